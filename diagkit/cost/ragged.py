"""Sums over tiles at many points at once: `count_visited`, with the tiles of all points in one row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from diagkit.cost.visits import SMALL, Lines, Triple, check_count, count_visited, seen

Array = np.ndarray[Any, Any]
BATCH = 1 << 20
"""How many tiles are held at once (a point with more is a batch by itself)."""


def count_at(stream: Triple, others: Sequence[Triple], bounds: Sequence[Triple]) -> Array:
    """What `count_visited` counts, at every point: sizes, tiles and shifts are arrays, one entry per point.

    >>> n = np.array([1000, 1000, 64])
    >>> count_at((n, 0 * n + 128, 0), [(n, 0 * n + 128, 0)], [(1, (1,), 0 * n, 0)]).tolist()
    [36, 36, 1]
    """
    columns = [*stream[:2], *(part for other in others for part in other[:2]), *(shift for _, _, shift, _ in bounds)]
    if not _fits(stream, others, bounds):
        return _one_by_one(columns, stream, others, bounds)
    distinct, back = np.unique(np.stack(columns), axis=1, return_inverse=True)
    x, s, *rest = distinct
    cuts = [(rest[2 * n], rest[2 * n + 1], other[2]) for n, other in enumerate(others)]
    lines = _shifted(bounds, rest[2 * len(others) :])
    return _counted((x, s, stream[2]), cuts, lines)[back.reshape(-1)]


def _shifted(bounds: Sequence[Triple], shifts: Sequence[Any]) -> list[Triple]:
    """The bounds, with these shifts."""
    return [(sign, slopes, shift, case) for (sign, slopes, _, case), shift in zip(bounds, shifts, strict=True)]


def _fits(stream: Triple, others: Sequence[Triple], bounds: Sequence[Triple]) -> bool:
    """Whether everything stays within 64 bits, and no tile is that of an empty axis."""
    if not all((tile > 0).all() for _, tile, _ in (stream, *others)):
        return False
    spread = prod(int(size.max(initial=0)) + int(tile.max(initial=0)) for size, tile, _ in (stream, *others))
    lines = [sum(map(abs, slopes)) + 1 for _, slopes, _, _ in bounds]
    shifts = [int(abs(shift).max(initial=0)) for _, _, shift, _ in bounds]
    return spread * max(lines, default=1) + sum(shifts) < SMALL


def _one_by_one(columns: Sequence[Array], stream: Triple, others: Sequence[Triple], bounds: Sequence[Triple]) -> Array:
    known: dict[Any, int] = {}
    for point in zip(*(column.tolist() for column in columns), strict=True):
        x, s, *rest = point
        cuts = [(rest[2 * n], rest[2 * n + 1], other[2]) for n, other in enumerate(others)]
        lines = _shifted(bounds, rest[2 * len(others) :])
        known[point] = known.get(point) or count_visited((x, s, stream[2]), cuts, lines)
    return np.array([known[point] for point in zip(*(c.tolist() for c in columns), strict=True)], dtype=object)


def _counted(stream: Triple, others: Sequence[Triple], bounds: Sequence[Triple]) -> Array:
    """The counts at distinct points, as many at once as a batch holds."""
    counts = [-(-size // tile) for size, tile, _ in others]
    total = np.prod([np.ones_like(stream[0]), *counts], axis=0)
    check_count(int(total.max(initial=0)))
    return np.concatenate([_batch(part, total, counts, stream, others, bounds) for part in _batches(total)])


def _batches(total: Array) -> Iterator[slice]:
    """Runs of points that have about BATCH tiles together; at least one run."""
    ends = np.cumsum(total)
    marks = np.searchsorted(ends, np.arange(BATCH, int(ends[-1]) if len(ends) else 0, BATCH), side="right")
    edges = [0, *sorted({*marks.tolist()} - {0, len(total)}), len(total)]
    yield from (slice(low, high) for low, high in pairwise(edges))


def _batch(
    part: slice, total: Array, counts: Sequence[Array], stream: Triple, others: Sequence[Triple], bounds: Sequence[Any]
) -> Array:
    """The counts of one run of points: all their tiles in one row, each point's summed."""
    tiles_of = total[part]
    owner = np.repeat(np.arange(part.start, part.stop), tiles_of)
    ends = np.cumsum(tiles_of)
    place = np.arange(len(owner)) - np.repeat(ends - tiles_of, tiles_of)
    tiles = list(_tiles(owner, place, counts, others))
    lines = _shifted(bounds, [shift[owner] for _, _, shift, _ in bounds])
    weight = seen((stream[0][owner], stream[1][owner], stream[2]), tiles, lines)
    upto = np.concatenate([[0], np.cumsum(np.broadcast_to(weight, owner.shape))])
    return np.asarray(upto[ends] - upto[ends - tiles_of])


def _tiles(owner: Array, place: Array, counts: Sequence[Array], others: Sequence[Triple]) -> Iterator[Lines]:
    """First and last position and weight of each point's tiles, axis by axis."""
    for count, (size, tile, positions) in zip(counts, others, strict=True):
        place, number = np.divmod(place, count[owner])
        first = number * tile[owner]
        last = np.minimum(first + tile[owner], size[owner]) - 1
        yield first, last, last - first + 1 if positions else np.ones_like(first)
