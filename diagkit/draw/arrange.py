"""How each glyph stands among the wires: which wires come together, which end, which go on, in which rows.

One case per glyph. A case opens the glyph's zone with its wires in place and says which strands the result
is made of; nothing here has an x coordinate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from diagkit.draw.plan import Column, Key
from diagkit.draw.rows import Bundle, Line, Strand, Track, Zone


@dataclass
class Placed:
    """A column in its place: the zones of its glyph and of the labels after it, and the strands that its
    glyph touches: those it ends, those it makes, the line of scalars, those it sits on."""

    column: Column
    zone: Zone
    after: Zone
    ends: list[Strand] = field(default_factory=list)
    makes: list[Strand] = field(default_factory=list)
    pairs: list[tuple[Strand, Strand]] = field(default_factory=list)
    spans: list[Strand] = field(default_factory=list)
    lane: Strand | None = None
    fresh: bool = False


@dataclass
class Ahead:
    """What comes after a column: how often each wire is still read, on which side of a copy it goes on,
    and whether the next reader of the result stands on its line of scalars."""

    goes_on: Callable[[Key], bool]
    copy_below: Callable[[Key], bool]
    lane: bool = False


def arrange(line: Line, column: Column, ahead: Ahead) -> Placed:
    """Put one column at the right end of the line."""
    stack = list(line.stack)
    operands = [_take(line, stack, key, column, ahead) for key in column.reads]
    placed = _CASES[column.glyph](line, stack, column, operands, ahead)
    line.stack = [_weighted(line, bundle, column) if bundle.key in column.makes else bundle for bundle in line.stack]
    placed.after = line.open("label", line.stack)
    return placed


def _weighted(line: Line, bundle: Bundle, column: Column) -> Bundle:
    """What a column has made, its wires thin where they hold scales: those that ran before go on in new ones."""
    thin, strands = bundle.key in column.thin, []
    for strand in bundle.strands:
        old = strand.spans and strand.thin != thin and strand.kind != "lane"
        made = _continued(line, strand, strand.level) if old else strand
        if old or not strand.spans:
            made.thin, made.named, made.label_x = thin, strand.named, strand.label_x
        strands.append(made)
    return replace(bundle, strands=strands)


def _take(line: Line, stack: list[Bundle], key: Key, column: Column, ahead: Ahead) -> Bundle:
    """The array that a column reads: itself when nobody needs it afterwards; else it forks, the new
    branch below, and the column takes the branch or the wires above it. A rail is left to the column
    that renews it."""
    place, bundle = next((n, b) for n, b in enumerate(stack) if b.key == key)
    if not ahead.goes_on(key):
        return bundle
    copies = []
    for strand in bundle.wires:
        copy = line.strand(strand.axis, strand.level, strand.kind, strand.owner, strand.thin)
        copy.forked = strand
        copies.append(copy)
    branch = replace(bundle, strands=copies, rail=False)
    stack.insert(place + 1, branch)
    moves = bundle.rail or column.renews is not None
    below = column.renews != key if moves else ahead.copy_below(key)
    return branch if below else bundle


def _put(stack: list[Bundle], old: Bundle, new: Sequence[Bundle]) -> None:
    place = next(n for n, bundle in enumerate(stack) if bundle is old)
    stack[place : place + 1] = list(new)


def _together(stack: list[Bundle], operands: list[Bundle]) -> list[Bundle]:
    """Bring the operands next to each other, around the one that is hardest to move; returns them in order."""
    marked = {id(bundle) for bundle in operands}
    ordered = [bundle for bundle in stack if id(bundle) in marked]
    anchor = _anchor(ordered)
    rest = [bundle for bundle in stack if id(bundle) not in marked or bundle is anchor]
    place = next(n for n, bundle in enumerate(rest) if bundle is anchor)
    stack[:] = rest[:place] + ordered + rest[place + 1 :]
    return ordered


def _anchor(operands: Sequence[Bundle]) -> Bundle:
    """The operand that stays where it is: a rail, else wires that were there before, else the most wires."""
    return max(operands, key=lambda b: (b.rail, all(s.forked is None or s.spans for s in b.strands), len(b.strands)))


def _recoloured(line: Line, strands: Sequence[Strand], level: int) -> list[Strand]:
    """The strands at a level: those of another level end here and go on in its colour, on the same row."""
    return [_continued(line, strand, level) if strand.level != level else strand for strand in strands]


def _continued(line: Line, strand: Strand, level: int) -> Strand:
    made = line.strand(strand.axis, level, strand.kind, strand.owner, strand.thin)
    made.seat = strand.track
    return made


def _result(line: Line, group: Sequence[Bundle], column: Column, strands: list[Strand]) -> None:
    """Put the array that the column makes where its operands were."""
    made = Bundle(column.makes[0], strands, rail=column.renews is not None)
    inside = {id(bundle) for bundle in group}
    place = next(n for n, bundle in enumerate(line.stack) if id(bundle) in inside)
    before, after = line.stack[:place], [b for b in line.stack[place:] if id(b) not in inside]
    line.stack = [*before, made, *after]


def _seated(line: Line, axis: str, level: int, kind: str, seat: Track) -> Strand:
    strand = line.strand(axis, level, kind)
    strand.seat = seat
    return strand


def _scalar(line: Line, column: Column, rows: list[Strand], place: int, seat: Track, ahead: Ahead) -> list[Strand]:
    """Add the line of scalars to the rows of a result, where the next column stands on it; a result
    without axes is that line."""
    kind = "lane" if rows else "item"
    if rows and not ahead.lane:
        return rows
    return [*rows[:place], _seated(line, "", column.level, kind, seat), *rows[place:]]


def _placed(line: Line, column: Column, zone: Zone) -> Placed:
    return Placed(column, zone, zone)


def _contract(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    upper, lower = _together(stack, operands)
    common = [s.axis for s in upper.wires if s.axis in column.acts and lower.axis(s.axis)]
    shared = {s.axis for s in upper.wires if s.kind == "axis" and lower.axis(s.axis)} - set(common)
    first = _pick(upper, [a for a in upper.axes if a not in common]) + _pick(upper, common)
    rest = [a for a in lower.axes if a not in common and a not in shared]
    second = _pick(lower, common[::-1]) + _pick(lower, rest)
    for axis in sorted(shared):
        _axis(lower, axis).joins = _axis(upper, axis)
    pair = [replace(upper, strands=first), replace(lower, strands=second)]
    _put(stack, upper, pair[:1])
    _put(stack, lower, pair[1:])
    placed = _placed(line, column, line.open("glyph", stack, [pair]))
    placed.pairs = [(_axis(pair[0], axis), _axis(pair[1], axis)) for axis in common]
    placed.ends = [strand for strand in first + second if strand.axis in column.acts]
    line.room(placed.pairs[0][0], placed.pairs[0][1], 26, 24)
    kept = [s for s in first if s.axis not in column.acts]
    rows = kept + [s for s in second if s.axis not in column.acts]
    lane = line.track()
    lane.centre = (placed.pairs[0][0].track, placed.pairs[0][1].track)
    made = _scalar(line, column, _recoloured(line, rows, column.level), len(kept), lane, ahead)
    placed.lane = next((s for s in made if s.kind != "axis"), None)
    _result(line, pair, column, made)
    return placed


def _axis(bundle: Bundle, name: str) -> Strand:
    strand = bundle.axis(name)
    assert strand is not None
    return strand


def _pick(bundle: Bundle, axes: Sequence[str]) -> list[Strand]:
    return [_axis(bundle, axis) for axis in axes]


def _gathered(bundle: Bundle, axes: Sequence[str]) -> Bundle:
    """The bundle with the strands of `axes` next to each other, after the first of them."""
    strands = bundle.wires
    mine = [strand for strand in strands if strand.axis in axes]
    place = strands.index(mine[0])
    others = [strand for strand in strands if strand.axis not in axes]
    return replace(bundle, strands=others[:place] + mine + others[place:])


def _reduce(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    bundle = _gathered(operands[0], column.acts)
    _put(stack, operands[0], [bundle])
    placed = _placed(line, column, line.open("glyph", stack))
    placed.ends = [strand for strand in bundle.wires if strand.axis in column.acts]
    line.room(placed.ends[0], placed.ends[-1], 34, 24)
    place = bundle.strands.index(placed.ends[0])
    rows = _recoloured(line, [s for s in bundle.wires if s not in placed.ends], column.level)
    made = _scalar(line, column, rows, place, placed.ends[0].track, ahead)
    placed.lane = next((s for s in made if s.kind != "axis"), None)
    _result(line, [bundle], column, made)
    return placed


def _inline(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """A map, mask or cast: on the line of scalars; on the wire itself where there is only one."""
    bundle = operands[0]
    lane = next((s for s in bundle.strands if s.kind == "lane"), None)
    fresh = lane is None and len(bundle.wires) > 1
    if fresh:
        lane = line.strand("", column.level, "lane")
        rows = bundle.wires
        bundle = replace(bundle, strands=[*rows[:-1], lane, rows[-1]])
        _put(stack, operands[0], [bundle])
    placed = _placed(line, column, line.open("glyph", stack))
    placed.lane, placed.fresh, placed.spans = lane, fresh, bundle.wires
    if lane is None:
        line.room(bundle.strands[0], bundle.strands[-1], 24, 24)
    else:
        _lane_room(line, bundle, lane, *((36, 22) if column.glyph == "mask" else (18, 18)))
    rows = _recoloured(line, bundle.strands if ahead.lane else bundle.wires, column.level)
    placed.makes = rows
    _result(line, [bundle], column, rows)
    return placed


def _lane_room(line: Line, bundle: Bundle, lane: Strand, head: float, foot: float) -> None:
    """Room above and below the line of scalars, towards the wires of its own array."""
    for upper, lower in pairwise(bundle.strands):
        if lower is lane or upper is lane:
            line.need(upper, lower, head if lower is lane else foot)


def _through(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """A learned layer or a view: a box on some wires, from which others leave in their rows."""
    bundle = operands[0]
    ins = [axis for axis in bundle.axes if axis in column.acts]
    if ins:
        bundle = _gathered(bundle, ins)
        _put(stack, operands[0], [bundle])
    placed = _placed(line, column, line.open("glyph", stack))
    placed.ends = [s for s in bundle.wires if s.axis in ins] or [s for s in bundle.wires if s.kind == "item"]
    placed.spans = placed.ends or bundle.wires[-1:]
    line.room(placed.spans[0], placed.spans[-1], 26, 26)
    kept = [axis for axis in bundle.axes if axis not in ins]
    outs = [axis for axis in column.axes[column.makes[0]] if axis not in kept]
    made = [line.strand(axis, column.level) for axis in outs]
    for strand, old in zip(made, placed.ends, strict=False):
        strand.seat = old.track
    place = bundle.wires.index(placed.spans[0]) + (0 if placed.ends else 1)
    rows = _recoloured(line, [s for s in bundle.wires if s not in placed.ends], column.level)
    rows = rows[:place] + made + rows[place:]
    placed.makes = made
    _result(line, [bundle], column, rows or [_seated(line, "", column.level, "item", placed.ends[0].track)])
    return placed


def _seat_glyph(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """Softmax and norms: a glyph that sits on the wires it normalises; gains join these before it."""
    bundle = _gathered(operands[0], column.acts)
    _together(stack, operands)
    _put(stack, operands[0], [bundle])
    for gain in operands[1:]:
        for strand in gain.wires:
            strand.joins = _axis(bundle, strand.axis)
        _put(stack, gain, [])
    placed = _placed(line, column, line.open("glyph", stack))
    placed.spans = [strand for strand in bundle.wires if strand.axis in column.acts]
    line.room(placed.spans[0], placed.spans[-1], 40, 27)
    _result(line, [bundle], column, _recoloured(line, bundle.wires, column.level))
    return placed


def _join(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """A map of several arrays: wires of one axis meet in a dot, then go through one box."""
    ordered = _together(stack, operands)
    base = _anchor(ordered)
    seen = {strand.axis: strand for strand in base.wires}
    group = []
    for bundle in ordered:
        rows = [strand for strand in bundle.wires if seen.setdefault(strand.axis, strand) is strand]
        for strand in bundle.wires:
            strand.joins = None if strand in rows else seen[strand.axis]
        group.append((bundle, replace(bundle, strands=rows)))
    for old, new in group:
        _put(stack, old, [new] if new.strands else [])
    return _boxed(line, stack, column, [new for _, new in group if new.strands])


def _box(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """A block: a box over all wires of what it reads; an axis goes on in the row where it first came in."""
    ordered = _together(stack, operands)
    group = [replace(bundle, strands=bundle.wires) for bundle in ordered]
    for old, new in zip(ordered, group, strict=True):
        _put(stack, old, [new])
    return _boxed(line, stack, column, group)


def _boxed(line: Line, stack: list[Bundle], column: Column, group: list[Bundle]) -> Placed:
    strands = [strand for bundle in group for strand in bundle.strands]
    placed = _placed(line, column, line.open("glyph", stack, [group], hug=strands[:-1]))
    line.room(strands[0], strands[-1], 26, 26)
    outs = column.axes[column.makes[0]]
    kept = {s.axis: s for s in reversed(strands) if s.kind == "axis" and s.axis in outs}
    rows = [s for s in strands if kept.get(s.axis) is s]
    placed.ends, placed.spans = [s for s in strands if s not in rows], strands
    placed.makes = [line.strand(axis, column.level) for axis in outs if axis not in kept]
    for strand, old in zip(placed.makes, placed.ends, strict=False):
        strand.seat = old.track if not rows else None
    rows = _recoloured(line, rows, column.level) + placed.makes
    rows = rows or [_seated(line, "", column.level, "item", strands[len(strands) // 2].track)]
    _result(line, group, column, rows)
    return placed


def _source(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """A box that reads nothing: its wires begin at it, below all others."""
    axes = column.axes[column.makes[0]]
    strands = [line.strand(axis, column.level) for axis in axes] or [line.strand("", column.level, "item")]
    made = Bundle(column.makes[0], strands)
    placed = _placed(line, column, line.open("glyph", [*stack, made]))
    placed.makes = strands
    line.room(strands[0], strands[-1], 30, 26)
    return placed


def _transfer(line: Line, stack: list[Bundle], column: Column, operands: list[Bundle], ahead: Ahead) -> Placed:
    """A load or a store: the wires change colour and keep their rows; before a store the wires of an
    array come together in the array's own order."""
    hug: list[Strand] = []
    moved = list(operands)
    if column.glyph == "store":
        for place, bundle in enumerate(operands):
            moved[place] = closed_up(bundle, column.axes[bundle.key])
            hug += moved[place].strands[:-1]
            _put(stack, bundle, [moved[place]])
    placed = _placed(line, column, line.open("glyph", stack, hug=hug))
    placed.ends = [strand for bundle in moved for strand in bundle.strands]
    flat = [strand for bundle in line.stack for strand in bundle.strands]
    last = max(placed.ends, key=flat.index)
    line.room(min(placed.ends, key=flat.index), last, 26, 37)
    for bundle, key in zip(moved, column.makes, strict=True):
        strands = _recoloured(line, bundle.wires, column.level)
        placed.makes += strands
        line.stack = [Bundle(key, strands) if b is bundle else b for b in line.stack]
    return placed


def closed_up(bundle: Bundle, axes: Sequence[str]) -> Bundle:
    """The bundle with its strands in the order of `axes`."""
    rank = {axis: place for place, axis in enumerate(axes)}
    return replace(bundle, strands=sorted(bundle.wires, key=lambda s: rank.get(s.axis, 0)))


_CASES: dict[str, Callable[..., Placed]] = {
    "contract": _contract,
    "reduce": _reduce,
    "map": _inline,
    "mask": _inline,
    "cast": _inline,
    "linear": _through,
    "view": _through,
    "softmax": _seat_glyph,
    "norm": _seat_glyph,
    "join": _join,
    "block": _box,
    "source": _source,
    "load": _transfer,
    "store": _transfer,
}
LANE_GLYPHS = ("map", "mask", "cast")
