"""Fusing: intermediates that stay in fast memory instead of a round trip through slow memory.

A fused wire joins the box that makes it and every box that reads it into one region, which runs as one
kernel. That is lawful where nothing outside needs the wire and no path leaves the region and comes back.
"""

from __future__ import annotations

from typing import Any

from diagkit.derive.group import group_refusals
from diagkit.derive.history import AnyTerm, relabel, take
from diagkit.term import Box, FuseError, Term, coordinate, names


def fuse(term: AnyTerm, /, *boxes: str) -> AnyTerm:
    """Recolour intermediates into fast memory (level 1): all of the diagram, or those between `boxes`.

    What other steps prepare in kernels of its own (codes, scales) stays in slow memory unless it is named.
    A wire that is also an output is stored once and still read where it is made. Raises FuseError where
    a consumer of the wire is outside, or where a path leaves the region and re-enters it; the error
    names the box. Returns the diagram itself when nothing changes.

    Source: the fusion rules, "an intermediate may be recoloured low only if all its consumers are inside".

    >>> from diagkit import ops
    >>> shifted = ops.exp(ops.array("X", ops.axis("x")), name="E")
    >>> rows = Term(*ops.trace([ops.total(shifted, "x", name="Z")]))
    >>> [region.boxes for region in rows.regions], [region.boxes for region in fuse(rows).regions]
    ([('E',), ('Z',)], [('E', 'Z')])
    """
    chosen = _between(term, _several(term, boxes)) if boxes else _intermediates(term)
    wires = [wire for wire in chosen if not term.level(wire)]
    if not wires:
        return term
    levels = {**dict(term.levels), **dict.fromkeys(wires, 1)}
    _refuse_streamed(term, wires)
    _refuse_detours(term, levels, wires)
    reason = f"{_listed(wires)} {'stays' if len(wires) == 1 else 'stay'} in fast memory"
    made = take(term, {"levels": tuple(levels.items())}, relabel(term, "fuse", reason, boxes))
    refuse_stores(made)
    return made


def _several(term: Term, boxes: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of two boxes or more: between one box and itself there is nothing to keep."""
    unnamed = [box for box in boxes if not isinstance(box, str) or not term.box(box)]
    if unnamed or len(boxes) < 2:
        reason = f"{unnamed[0]!r} is no name of a box" if unnamed else f"nothing lies between {boxes[0]!r} and itself"
        remedy = 'name the boxes at both ends, fuse("P", "O"), or none to fuse all'
        raise FuseError(reason, box=None if unnamed else boxes[0], remedy=remedy)
    return boxes


def _listed(wires: list[str]) -> str:
    return ", ".join(wires[:-1]) + " and " + wires[-1] if len(wires) > 1 else wires[0]


def _intermediates(term: Term) -> list[str]:
    """The wires that may come to stay on chip. A view of an array that stays in slow memory is read there,
    save where the tile that is loaded of the array serves the view too."""
    slow = {*(array.name for array in term.inputs), *term.kept}
    made = [box.name for box in term.boxes if box.name not in term.kept and term.consumers(box.name)]
    read = (wire for wire in made if not term.wires[wire].virtual)
    return [wire for wire in read if term.array(wire) not in slow or wire not in term.aliases or _served(term, wire)]


def _served(term: Term, wire: str) -> bool:
    """Whether a view sees no more than what is loaded of its array for other boxes anyway: the same
    positions, or part of an axis that no wire carries beside the view's own (values that are a slice of
    the keys); else the two need tiles of their own."""
    box: Any = term.box(wire)
    (array,) = box.inputs
    mine, theirs = set(names(box.axes)), set(names(term.wires[array].axes))
    reads = zip(names(term.wires[array].axes), box.coordinates, strict=True)
    moved = [read for axis, read in reads if read != coordinate(axis)]
    apart = not any(coordinate(axis) in read.free_symbols for read in moved for axis in theirs)
    met = any((mine - theirs) & {*names(one.axes)} and (theirs - mine) & {*names(one.axes)} for one in _made(term))
    return apart and not met and any(reader.name != wire for reader in term.consumers(array))


def _made(term: Term) -> list[Box]:
    return [box for box in term.flat if not term.wires[box.name].virtual]


def _between(term: Term, boxes: tuple[str, ...]) -> list[str]:
    """The wires that go from one of `boxes` to another; each must be read by these boxes only."""
    inside = {term.box(name).name for name in boxes}
    made = [box.name for box in term.boxes if box.name in inside and not term.wires[box.name].virtual]
    wires = [wire for wire in made if any(box.name in inside for box in term.consumers(wire))]
    if not wires:
        named = ", ".join(map(repr, boxes))
        readers = [box.name for name in boxes for box in term.consumers(name)] or list(term.box(boxes[0]).inputs)
        remedy = f"name both ends of a wire: fuse({', '.join(map(repr, [*boxes, *readers[:1]]))})"
        raise FuseError(f"nothing goes from one of {named} to another", box=boxes[0], remedy=remedy)
    for wire in wires:
        outside = [box.name for box in term.consumers(wire) if box.name not in inside]
        if outside:
            raise FuseError(
                f"{wire!r} cannot stay in fast memory: {outside[0]!r} reads it and is outside",
                box=outside[0],
                axis=None,
                remedy=f"fuse {outside[0]!r} too: fuse({', '.join(map(repr, [*boxes, outside[0]]))})",
            )
    return wires


def _refuse_streamed(term: Term, wires: list[str]) -> None:
    touched = set(wires) | {box.name for wire in wires for box in term.consumers(wire)}
    for form in term.forms:
        if touched & set(form.region):
            box = min(touched & set(form.region))
            raise FuseError(
                f"{box!r} runs in a stream over {form.axis!r}, which was derived for its region as it is",
                axis=form.axis,
                box=box,
                remedy="fuse first, then stream",
            )


def _refuse_detours(term: Term, levels: dict[str, int], wires: list[str]) -> None:
    """No box outside a region may both wait for it and be waited for by it."""
    after = _edges(term, levels)
    before: dict[str, set[str]] = {}
    for box, readers in after.items():
        for reader in readers:
            before.setdefault(reader, set()).add(box)
    for wire in wires:
        region = _reached({wire}, _joined(term, levels))
        between = _reached(region, after) & _reached(region, before) - region
        outside = [box.name for box in term.boxes if box.name in between]
        if outside:
            raise FuseError(
                f"a path leaves the region of {wire!r} through {outside[0]!r} and comes back",
                box=outside[0],
                remedy=f"fuse {outside[0]!r} too, or leave {wire!r} in slow memory",
            )


def _edges(term: Term, levels: dict[str, int]) -> dict[str, set[str]]:
    """Who must have run before whom: a fused wire binds both its ends to one kernel."""
    after = _joined(term, levels)
    for box in term.boxes:
        for wire in box.inputs:
            after.setdefault(wire, set()).add(box.name)
    return after


def _joined(term: Term, levels: dict[str, int]) -> dict[str, set[str]]:
    joined: dict[str, set[str]] = {}
    for wire, level in levels.items():
        for reader in term.consumers(wire) if level else ():
            joined.setdefault(wire, set()).add(reader.name)
            joined.setdefault(reader.name, set()).add(wire)
    return joined


def _reached(start: set[str], edges: dict[str, set[str]]) -> set[str]:
    seen, todo = set(start), list(start)
    while todo:
        new = edges.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def refuse_stores(made: Term) -> None:
    """Axes that are grouped already must stay lawful in the larger region."""
    for label in made.labels:
        refusal = next(group_refusals(made, label.axis), None) if label.kind == "group" else None
        if refusal is not None:
            raise FuseError(
                f"with {label.axis!r} grouped, {refusal.reason}",
                axis=label.axis,
                box=refusal.box,
                remedy=f"fuse fewer boxes, or ungroup {label.axis!r} first",
            )
