"""Grouping: tiles of one axis that run independently of each other.

Lawful exactly where every box of every region that carries the axis maps over it, and every wire that
such a region stores carries it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import sympy

from diagkit.derive.history import AnyTerm, relabel, take
from diagkit.term import (
    LEVEL_NAMES,
    Box,
    Cast,
    Contract,
    GroupError,
    Index,
    Label,
    LabelError,
    Map,
    Reduce,
    Region,
    StreamError,
    Term,
    View,
    coordinate,
    flatten,
    names,
    size,
    tile_size,
)


def group(term: AnyTerm, /, *, level: int = 1, **tiles: Any) -> AnyTerm:
    """Tile axes into independent groups: ``group(q="g_q")``, ``group(q=64)``, ``group(q=None)`` (a tile
    named g_q), ``group(q=("g_q", 16))`` (a tile that is a multiple of 16). With `level` 2 and up the tile
    is cut inside that of the level above: ``group(level=2, q="w_q")``.

    A tile is in elements; an axis that is grouped already gets the new tile. A tile may be wider than its axis,
    here, at every size and in kernels alike: one tile then covers the axis, short as the last one may be; what
    moves is what there is, and memory is counted for the tile as it is asked for. Raises GroupError where a
    box does not map over the axis or a stored wire lacks it (naming box, axis, reason and remedy), where
    a tile is no size or is named like an axis; AxisError for an unknown axis.

    Source: "Group partition: legal iff the function is weaved (mapped) over the axis".

    >>> from diagkit import ops
    >>> q, x = ops.axes("q x")
    >>> rows = Term(*ops.trace([ops.softmax(ops.array("S", q, x), over=x, name="P")]))
    >>> group(rows, q=("g_q", 16)).labels
    (Label('group', 'q', size('g_q'), multiple=16),)
    >>> group(rows, x=32)
    Traceback (most recent call last):
    ...
    diagkit.term.errors.GroupError: axis 'x' cannot be grouped: softmax 'P' needs the whole of x: 'P.max' takes \
    the max over x; stream 'x' instead, or group another axis (q)
    """
    if not tiles:
        raise GroupError(
            f"group({'' if level == 1 else repr(level)}) names no axis", remedy='write for example group(q="g_q")'
        )
    made = [make_label(term, "group", axis, tile, GroupError, level) for axis, tile in tiles.items()]
    for label in made:
        refusal = next(group_refusals(term, label.axis), None)
        if refusal is not None:
            raise refusal
    kept = [label for label in term.labels if label.order not in {new.order for new in made}]
    refuse_wider((*kept, *made), made)
    reason = "; ".join(f"every box maps over {label.axis}: tiles of {label.tile} run on their own" for label in made)
    named = tiles if level == 1 else {"level": level, **tiles}
    return take(term, {"labels": (*kept, *made)}, relabel(term, "group", reason, named=named))


def ungroup(term: AnyTerm, /, *axes: str) -> AnyTerm:
    """The diagram without the group labels of `axes` (of all axes where none is named).

    >>> import diagkit as dk
    >>> doubled = dk.Diagram(2 * dk.array("X", dk.axis("x")))
    >>> ungroup(doubled.group(x="g_x")) == doubled
    True
    """
    for axis in axes:
        if not any((label.kind, label.axis) == ("group", term.axis(axis).name) for label in term.labels):
            grouped = ", ".join(label.axis for label in term.labels if label.kind == "group") or "none"
            raise GroupError(f"axis {axis!r} is not grouped", axis=axis, remedy=f"grouped axes: {grouped}")
    kept = tuple(label for label in term.labels if label.kind != "group" or (axes and label.axis not in axes))
    return take(term, {"labels": kept}, relabel(term, "ungroup", "a label says how, not what", axes))


PREFIXES = {("group", 1): "g", ("stream", 1): "s", ("group", 2): "w", ("stream", 2): "u"}
"""How a tile that got no name is called, by kind and level: the paper's letters for tiles and sub-loops."""


def make_label(term: Term, kind: str, axis: str, tile: Any, error: type[LabelError], level: int = 1) -> Label:
    """The label that a user's `tile` means, checked against the sizes and names of `term`."""
    owner = term.axis(axis)
    _refuse_level(level, axis, error)
    tile, multiple = tile if isinstance(tile, tuple) and len(tile) == 2 else (tile, 1)
    prefix = PREFIXES.get((kind, level), f"{kind[0]}{level}")
    refusal = _tile_refusal(term, owner, f"{prefix}_{axis}" if tile is None else tile, multiple)
    if refusal is not None:
        reason, remedy = refusal
        raise error(reason, axis=axis, remedy=f"{remedy}, for example {axis}={prefix + '_' + axis!r}")
    expr = tile_size(tile, axis, prefix)
    return Label(kind, axis, size(expr.name) if expr.is_Symbol else expr, multiple, level)


def _refuse_level(level: Any, axis: str, error: type[LabelError]) -> None:
    if isinstance(level, bool) or not isinstance(level, int) or not 1 <= level < len(LEVEL_NAMES):
        levels = ", ".join(f"{number} {name}" for number, name in enumerate(LEVEL_NAMES) if number)
        raise error(f"there is no level {level!r} to cut {axis!r} for", axis=axis, remedy=f"use one of: {levels}")


def refuse_wider(labels: Iterable[Label], made: Iterable[Label]) -> None:
    """Refuse labels of which one is wider than the one that it is cut from: a tile lies inside the tile above."""
    nested = sorted(labels, key=lambda label: label.level)
    for label in made:
        chain = [one for one in nested if (one.kind, one.axis) == (label.kind, label.axis)]
        for above, below in pairwise(chain):
            if above.tile.is_number and below.tile.is_number and below.tile > above.tile:
                raise (GroupError if label.kind == "group" else StreamError)(
                    f"a tile of {below.tile} at level {below.level} does not lie inside one of {above.tile}",
                    axis=label.axis,
                    remedy=f"use at most {above.tile} at level {below.level}",
                )


def _tile_refusal(term: Term, axis: Any, tile: Any, multiple: Any) -> tuple[str, str] | None:
    """Why `tile` cannot be a tile of `axis`, and what could; or nothing."""
    if not isinstance(multiple, int) or isinstance(multiple, bool) or multiple < 1:
        return f"a tile cannot be a multiple of {multiple!r}", "use a whole number >= 1"
    if isinstance(tile, str) or getattr(tile, "is_Symbol", False):
        return _name_refusal(term, axis.name, str(tile))
    if not isinstance(tile, int | sympy.Integer) or isinstance(tile, bool) or tile < 1:
        return f"a tile of {axis.name!r} cannot be {tile!r}", "use a name or a whole number >= 1"
    if tile % multiple:
        return f"a tile of {tile} is no multiple of {multiple}", f"use a multiple of {multiple}"
    return None


def _name_refusal(term: Term, axis: str, tile: str) -> tuple[str, str] | None:
    if tile in term.axes:
        return f"tile {tile!r} of axis {axis!r} is named like an axis", "give the tile another name"
    if tile.strip().isdecimal():
        return (
            f"a tile of {axis!r} cannot be named {tile!r}",
            f"write {tile.strip()} without quotes, or a name",
        )
    if not tile.strip():
        return f"a tile of {axis!r} needs a name", "give it one"
    if not tile.isidentifier():
        return f"a tile of {axis!r} cannot be named {tile!r}", "use letters, digits and _, no digit first"
    return None


def group_refusals(term: Term, axis: str) -> Iterator[GroupError]:
    """Every reason, box by box, why `axis` cannot be grouped; nothing where it can.

    Boxes of positions run again on every tile, so they too must map over an axis that their kernel tiles. A
    kernel that merges what others have stored along the axis holds it whole: nothing is asked of it.
    """
    for region in term.regions:
        boxes = term.primitives(region)
        if term.merges(region, axis) or not any(_runs(term, box, axis) for box in boxes):
            continue
        for box in boxes:
            reason = not_mapped(term, box, axis)
            if reason is not None:
                yield _refusal(term, region, box, axis, reason)
        yield from _store_refusals(term, region, axis)


def _runs(term: Term, box: Box, axis: str) -> bool:
    return not term.wires[box.name].virtual and _carries(term, box, axis)


def _carries(term: Term, box: Box, axis: str) -> bool:
    return any(axis in names(term.wires[wire].axes) for wire in (box.name, *box.inputs))


def not_mapped(term: Term, box: Box, axis: str) -> str | None:
    """Why `box` is not a map over `axis`; None where it is one, or has nothing to do with the axis."""
    return _NOT_MAPPED[type(box)](term, box, axis) if _carries(term, box, axis) else None


def _summed(term: Term, box: Box, axis: str) -> str | None:
    return None if axis in names(box.axes) else f"sums over {axis}"


def _reduced(term: Term, box: Any, axis: str) -> str | None:
    return None if axis in names(box.axes) else f"takes the {box.op} over {axis}"


def _viewed(term: Term, box: Any, axis: str) -> str | None:
    """A view maps over an axis where it reads each position at that same position."""
    read = dict(zip(names(term.wires[box.inputs[0]].axes), box.coordinates, strict=True))
    same = read.pop(axis, None) in (None, coordinate(axis))
    alone = not any(coordinate(axis) in other.free_symbols for other in read.values())
    return None if same and alone and axis in names(box.axes) else f"reads other positions of {axis}"


_NOT_MAPPED: dict[type[Box], Callable[[Term, Any, str], str | None]] = {
    Map: lambda term, box, axis: None,
    Cast: lambda term, box, axis: None,
    Index: lambda term, box, axis: None,
    Contract: _summed,
    Reduce: _reduced,
    View: _viewed,
}


def _refusal(term: Term, region: Region, box: Box, axis: str, reason: str) -> GroupError:
    column = next(name for name in region.boxes if box.name in {inner.name for inner in flatten([term.box(name)])})
    title = getattr(term.box(column), "title", "")
    whole = f"{title} {column!r}".strip() + f" needs the whole of {axis}: "
    what = f"it {reason}" if box.name == column else f"{box.name!r} {reason}"
    others = [name for name in names(term.box(column).axes) if name != axis]
    instead = f", or group another axis ({', '.join(others)})" if others else ""
    stream = f"stream {axis!r} instead"
    if isinstance(box, View):
        stream = f"end the kernel before {box.name!r}: of an array in slow memory each tile loads what it reads"
    reason = f"axis {axis!r} cannot be grouped: {whole}{what}"
    return GroupError(reason, axis=axis, box=column, remedy=f"{stream}{instead}")


def _store_refusals(term: Term, region: Region, axis: str) -> Iterator[GroupError]:
    for wire in region.stores:
        if axis not in names(term.wires[wire].axes):
            yield GroupError(
                f"axis {axis!r} cannot be grouped: {wire!r} lacks it, and each group would store it again",
                axis=axis,
                box=wire,
                remedy=f"run {wire!r} in a kernel of its own, or group another axis",
            )
