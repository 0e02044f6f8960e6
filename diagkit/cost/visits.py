"""Sums over tiles, as one symbol each: how much of a streamed axis the groups visit under a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import sympy

from diagkit.cost.upper import at_least
from diagkit.term import InputError
from diagkit.term import size as symbol


@dataclass(frozen=True)
class Bound:
    """One inequality that a visible pair of positions satisfies, in whole numbers:

    ``sign * j <= sum(slope * i) + shift`` over the other coordinates i of the mask; `sign` is positive for
    an upper bound of the streamed position j, negative for a lower one. Where a mask shows what one of
    several cases shows, `case` tells whose bound this is, from 0 up.
    """

    sign: int
    slopes: tuple[int, ...]
    shift: Any
    case: int = 0

    def sympy(self) -> Any:
        """The same as a sympy tuple, so that it can stand in a formula."""
        return sympy.Tuple(self.sign, sympy.Tuple(*self.slopes), self.shift, self.case)


@dataclass(frozen=True)
class Cut:
    """How an axis is cut: its size, its tile, and what is counted along it: runs of `unit` positions (1 for
    the positions themselves; a unit divides the tile), or the tiles where that is 0. `outer` are the tiles
    inside which these lie, largest first: there the positions are what is counted, or the tiles."""

    size: Any
    tile: Any
    unit: Any
    outer: tuple[Any, ...] = ()

    def sympy(self) -> Any:
        """The same as a sympy tuple."""
        return sympy.Tuple(self.size, self.tile, self.unit, *self.outer)


@dataclass(frozen=True)
class Clip:
    """What counts at all: 0 <= ``sign * j + sum(slope * i) + shift`` < `size`, over the streamed position j and
    the other coordinates i. Along axes on which it depends, positions are what is counted."""

    sign: Any
    slopes: tuple[Any, ...]
    shift: Any
    size: Any

    def sympy(self) -> Any:
        """The same as a sympy tuple."""
        return sympy.Tuple(self.sign, sympy.Tuple(*self.slopes), self.shift, self.size)


class visited(sympy.Expr):  # type: ignore[misc]  # noqa: N801 - a function in formulas, like ceiling
    """What is visited of a streamed axis, summed over the tiles of the axes that the mask compares it with.

    Arguments: the streamed axis' cut, the cuts of the other axes, the bounds, the clips. Each tile visits the
    chunks that hold a position between its bounds; a chunk counts as 1, or as the units it has, and times the
    units of the tile along each other axis that does not count tiles; what is clipped never counts.
    """

    is_integer = True
    is_nonnegative = True
    is_commutative = True

    def __new__(cls, stream: Any, others: Any, bounds: Any, clips: Any = ()) -> Any:
        """A formula, and a number as soon as every size is one."""
        made = sympy.Expr.__new__(cls, *map(sympy.sympify, (stream, others, bounds, sympy.Tuple(*clips))))
        return made if made.free_symbols else sympy.Integer(count_visited(*_plain(made)))

    def closed(self) -> Any:
        """The closed form that tiles of matching sizes give, where there is one; else the sum itself."""
        found = closed_visited(*_plain(self))
        return self if found is None else found

    def short(self) -> Any:
        """The sum in a few letters, for a narrow cell: ``visits_x`` are the positions of x visited by all
        tiles together, and every tile has its full rows; exact numbers come from the sum itself."""
        (x, s, unit, *_), others, *_ = self.args
        made = symbol(f"visits_{x}") / (unit or s)
        for _, tile, one, *_ in others:
            made = made * tile / (one or tile)
        return made

    def _latex(self, printer: Any) -> str:
        (x, s, unit, *_), others, *_ = self.args
        tiles = "".join(rf"\sum^{{{printer.doprint(size / tile)}}}" for size, tile, *_ in others)
        rows = "".join(rf"{printer.doprint(tile / one)}\," for _, tile, one, *_ in others if one)
        what = r"\text{visited }" + printer.doprint(x / (unit or s))
        return rf"\left[{tiles} {rows}{what}\right]"

    def _sympystr(self, printer: Any) -> str:
        (x, s, unit, *_), others, *_ = self.args
        rows = "".join(f"{printer.doprint(tile / one)}*" for _, tile, one, *_ in others if one)
        tiles = "".join(f", {printer.doprint(size / tile)} tiles" for size, tile, *_ in others)
        return f"Sum({rows}visited {printer.doprint(x / (unit or s))}{tiles})"


Triple = tuple[Any, ...]
"""A cut, or with a fourth part a bound."""


def make_visited(stream: Cut, others: Sequence[Cut], bounds: Sequence[Bound], clips: Sequence[Clip] = ()) -> Any:
    """`visited` from plain values."""
    cuts = sympy.Tuple(*(cut.sympy() for cut in others))
    lines = sympy.Tuple(*(bound.sympy() for bound in bounds))
    return visited(stream.sympy(), cuts, lines, [clip.sympy() for clip in clips])


def _plain(node: Any) -> tuple[Triple, list[Triple], list[Triple], list[Triple]]:
    stream, others, bounds, clips = node.args
    lines = [(int(sign), tuple(map(int, slopes)), shift, int(case)) for sign, slopes, shift, case in bounds]
    return tuple(stream), [tuple(cut) for cut in others], lines, [tuple(clip) for clip in clips]


def count_visited(
    stream: Triple, others: Sequence[Triple], bounds: Sequence[Triple], clips: Sequence[Triple] = ()
) -> int:
    """The number that `visited` stands for, tile by tile; every size a whole number, the count exact.

    >>> causal = [(1, (1,), 0, 0)]
    >>> count_visited((1000, 128, 0), [(1000, 128, 0)], causal)
    36
    """
    x, s, unit, *outer = map(int, stream)
    chunks = tuple(max(length, 1) for length in (*outer, s))  # an empty axis that is not cut is its own chunk
    axes = [tuple(map(int, other)) for other in others]
    check_count(prod(pieces(size, (*above, tile)) for size, tile, _, *above in axes))
    kind = np.int64 if prod((x + s, *(size + tile for size, tile, *_ in axes))) < SMALL else object
    tiles = [_tiles_of(axis, place, len(axes), kind) for place, axis in enumerate(axes)]
    lines = [(int(sign), tuple(map(int, slopes)), int(shift), int(case)) for sign, slopes, shift, case in bounds]
    covered = _covered((np.array(x, dtype=kind), *chunks), tiles, lines)
    for clip in clips:
        tiles, covered = _clipped(clip, axes, tiles, covered)
    if outer and not unit:  # chunks of uneven lengths are counted by their numbers
        unit, covered = 1, _numbers(covered, chunks)
    weight = _weighed(unit or chunks[-1], covered, tiles)
    return int(np.broadcast_to(weight, tuple(len(rows.reshape(-1)) for _, _, rows in tiles)).sum())


def seen(stream: Triple, tiles: Sequence[Lines], bounds: Sequence[Triple]) -> Any:
    """What each tile visits of the streamed axis (size, chunk, unit), in whole numbers."""
    return _weighed(stream[2] or stream[1], _covered(stream[:2], tiles, bounds), tiles)


def _covered(stream: Triple, tiles: Sequence[Lines], bounds: Sequence[Triple]) -> Ends:
    """The positions begin <= j < end in the chunks that each tile visits; `stream` is the size of the streamed
    axis, then its chunks, largest first."""
    x, *chunks = stream
    lo, hi = _loosest(tiles, bounds, x)
    (begin, _), (_, end) = (_chunk_at(at, x, chunks) for at in (lo, hi - 1))
    nothing = np.zeros_like(x)
    return np.where(lo < hi, begin, nothing), np.where(lo < hi, end, nothing)


def _chunk_at(at: Any, x: Any, chunks: Sequence[Any]) -> Ends:
    """Where the innermost chunk around a position begins and ends."""
    begin, end = np.zeros_like(x), x
    for length in chunks:
        begin = begin + (at - begin) // length * length
        end = np.minimum(end, begin + length)
    return begin, end


def _numbers(ends: Ends, chunks: tuple[int, ...]) -> Ends:
    """Positions where chunks begin and end as the numbers of those chunks."""
    begin, end = ends
    return _number(begin, chunks), np.where(begin < end, _number(end - 1, chunks) + 1, _number(begin, chunks))


def _number(at: Any, chunks: tuple[int, ...]) -> Any:
    """How many innermost chunks end before the one around a position."""
    count = begin = np.zeros_like(at)
    for place, length in enumerate(chunks):
        whole = (at - begin) // length
        count, begin = count + whole * pieces(length, chunks[place + 1 :]), begin + whole * length
    return count


def pieces(whole: int, tiles: Sequence[int]) -> int:
    """How many tiles there are where each of `tiles` cuts what the one before it left, the first cuts `whole`.

    >>> pieces(100, (30, 20)), pieces(7, ())
    (7, 1)
    """
    if not tiles or not whole:
        return min(whole, 1)
    full, rest = divmod(whole, tiles[0])
    return full * pieces(tiles[0], tiles[1:]) + pieces(rest, tiles[1:])


def _weighed(unit: Any, covered: Ends, tiles: Sequence[Lines]) -> Any:
    """The units of what each tile covers, times its own along the other axes."""
    begin, end = covered
    weight = np.maximum(-(-end // unit) - begin // unit, 0)
    for _, _, rows in tiles:
        weight = weight * rows
    return weight


def _clipped(clip: Triple, axes: Sequence[Triple], tiles: Sequence[Lines], ends: Ends) -> tuple[list[Lines], Ends]:
    """The tiles, taken apart into positions along the axes of the clip, and the streamed positions
    begin <= j < end that are left of each."""
    sign, slopes, shift, size = clip
    apart, value = list(tiles), np.array(int(shift), dtype=object if tiles[0][0].dtype == object else np.int64)
    for place, slope in enumerate(map(int, slopes)):
        first, last, _ = apart[place]
        if slope and (first != last).any():
            check_count(axes[place][0])
            row = np.arange(axes[place][0]).astype(first.dtype)
            ends = tuple(_row_by_row(end, place, row // axes[place][1]) for end in ends)
            row = row.reshape([-1 if n == place else 1 for n in range(len(axes))])
            apart[place] = row, row, np.ones_like(row)
        value = value + slope * apart[place][0]
    return apart, _cut_off(ends, int(sign), value, int(size))


def _row_by_row(end: Any, place: int, tile_of: Any) -> Any:
    """Ends of tiles along the axis at `place` as ends of its positions."""
    return end.take(tile_of, place) if end.ndim and end.shape[place] > 1 else end


def _cut_off(ends: Ends, sign: int, value: Any, size: int) -> Ends:
    """Of begin <= j < end what satisfies 0 <= sign * j + value < size."""
    begin, end = ends
    if not sign:
        return begin, np.where((value >= 0) & (value < size), end, begin)
    low, high = (-value, size - value) if sign > 0 else (value - size + 1, value + 1)
    return np.maximum(begin, -(-low // abs(sign))), np.minimum(end, -(-high // abs(sign)))


MOST = 1 << 24
"""More tiles than this are not gone through one by one."""


def check_count(tiles: int) -> None:
    """Refuse a sum over more tiles than memory holds at once, instead of letting it run out."""
    if tiles > MOST:
        reason = f"under a mask tiles are counted one by one, and {tiles:,} of them are more than {MOST:,}"
        raise InputError(reason, remedy="use larger tiles, or .relaxed(), which closes the sum")


SMALL = 1 << 60
"""Below this many pairs of positions everything adds up within 64 bits; above, in Python's own numbers."""

Ends = tuple[Any, Any]
Lines = tuple[Any, Any, Any]
"""First and last position and weight of every tile along one axis, shaped to broadcast."""


def _tiles_of(axis: Triple, place: int, count: int, kind: Any) -> Lines:
    size, tile, unit, *outer = axis
    there = 1 if size or not tile else 0  # an empty axis that is not cut is one tile without rows
    first, end = np.zeros(there, dtype=kind), np.full(there, size, dtype=kind)
    for length in (*outer, tile) if size else ():
        number = (-(-(end - first) // length)).astype(np.int64)
        place_in = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        first = np.repeat(first, number) + place_in.astype(kind) * length
        end = np.minimum(first + length, np.repeat(end, number))
    last = end - 1
    rows = -(-(end - first) // (unit or tile)) if tile else np.full(there, 1 - bool(unit), dtype=kind)
    shape = [-1 if n == place else 1 for n in range(count)]
    return first.reshape(shape), last.reshape(shape), rows.reshape(shape)


def _loosest(tiles: Sequence[Lines], bounds: Sequence[Triple], x: Any) -> tuple[Any, Any]:
    """The positions lo <= j < hi that the loosest row of each tile may see, in one case or another."""
    cases = [_one_case(tiles, bounds, x, case) for case in sorted({case for *_, case in bounds}) or [0]]
    lows, highs = zip(*cases, strict=True)
    return reduce(np.minimum, lows), reduce(np.maximum, highs)


def _one_case(tiles: Sequence[Lines], bounds: Sequence[Triple], x: Any, case: int) -> tuple[Any, Any]:
    lo, hi = np.zeros_like(x), x
    for sign, slopes, shift, own in bounds:
        most = shift + sum(k * (last if k > 0 else first) for k, (first, last, _) in zip(slopes, tiles, strict=True))
        if sign > 0 and own == case:
            hi = np.minimum(hi, most // sign + 1)
        elif own == case:
            lo = np.maximum(lo, -(most // -sign))
    return lo, hi


def closed_visited(
    stream: Triple, others: Sequence[Triple], bounds: Sequence[Triple], clips: Sequence[Triple] = ()
) -> Any | None:
    """`visited` without ceilings. Exact where chunks divide tiles, tiles divide axes, and the bounds
    meet the ends of the axis at tile edges: between these the sum over tiles is a trapezoid rule.

    For causal attention with q = x = n this is n**2/(2 g) + n/2 positions. None where
    there is no such form: two bounds on one side, one with two moving axes, several cases, or clips.
    """
    x, s, unit, *_ = stream
    upper, lower = ([bound for bound in bounds if bound[0] * side > 0] for side in (1, -1))
    moving = [sum(map(bool, slopes)) for _, slopes, _, _ in bounds]
    split = bool(clips) or any(case for *_, case in bounds)
    if split or len(upper) > 1 or len(lower) > 1 or max(moving, default=0) > 1:
        return None
    end = _clamped_sum(x, others, upper[0], upper=True) if upper else x * _tiles(others)
    begin = _clamped_sum(x, others, lower[0], upper=False) if lower else 0
    rows = sympy.Mul(*(tile / one for _, tile, one, *_ in others if one))
    return rows * (end - begin) / (unit or s)


def _tiles(others: Sequence[Triple]) -> Any:
    return sympy.Mul(*(size / tile for size, tile, *_ in others))


def _clamped_sum(x: Any, others: Sequence[Triple], bound: Triple, *, upper: bool) -> Any:
    """Sum over tiles of clamp(slope * edge + base, 0, x); the edge is the loosest row's side of the tile."""
    sign, slopes, shift, _ = bound
    base = sympy.Rational(1, sign) * shift + (1 if upper else 0)
    place = next((n for n, k in enumerate(slopes) if k), None)
    if place is None:
        return _tiles(others) * (_above(base) - _above(base - x))
    slope = sympy.Rational(slopes[place], sign)
    at_end = (slope > 0) == upper
    rest = _tiles([other for n, other in enumerate(others) if n != place])
    return rest * _trapezoid(x, others[place], slope, base - (slope if at_end else 0), at_end=at_end)


def _above(value: Any) -> Any:
    """The value where it is positive, else 0; decided where sizes of 1 and up decide it."""
    value = sympy.expand(value)
    if at_least(value, sympy.S.Zero):
        return value
    return sympy.S.Zero if at_least(sympy.S.Zero, value) else sympy.Max(0, value)


def _trapezoid(x: Any, other: Triple, slope: Any, base: Any, *, at_end: bool) -> Any:
    """The sum over tiles of a line that is cut off at 0 and x, at one side of each tile: its area over
    the tile's length, and half of how much it rises."""
    q, g, *_ = other

    def clamp(p: Any) -> Any:
        return _above(slope * p + base) - _above(slope * p + base - x)

    def area(p: Any) -> Any:
        return (_above(slope * p + base) ** 2 - _above(slope * p + base - x) ** 2) / (2 * slope)

    if g == q:
        return clamp(q if at_end else sympy.Integer(0))
    rise = (clamp(q) - clamp(sympy.Integer(0))) / 2
    return (area(q) - area(sympy.Integer(0))) / g + (rise if at_end else -rise)
