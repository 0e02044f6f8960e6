"""Reading through a view: the elements of an array that lie behind a tile of an alias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add, and_, mul
from typing import Any

import numpy as np
import sympy

from diagkit.term import Alias, coordinate

Places = Mapping[Any, Any]
"""Positions along each axis, by its coordinate: arrays that broadcast over the axes of the alias."""


def places(alias: Alias, positions: Callable[[str], Any]) -> dict[Any, Any]:
    """The `positions` of a tile along each axis of an alias, shaped to broadcast over all of them."""
    found = {}
    for place, axis in enumerate(alias.over):
        shape = [-1 if n == place else 1 for n in range(len(alias.over))]
        found[coordinate(axis.name)] = positions(axis.name).reshape(shape)
    return found


def value(read: Any, at: Places) -> Any:
    """A coordinate at some places: sums and products of whole numbers, floors of quotients.

    >>> value(sympy.floor((coordinate("x") + 1) / 4), {coordinate("x"): 7})
    2
    """
    if read.is_Symbol:
        return at[read]
    if read.is_Integer:
        return int(read)
    if read.func is sympy.floor:
        above, below = read.args[0].as_numer_denom()
        return value(above, at) // value(below, at)
    return reduce(add if read.is_Add else mul, (value(part, at) for part in read.args))


def inside(alias: Alias, at: Places) -> Any:
    """Which places lie inside the array; True where all do."""
    found: Any = True
    for position, length in alias.bounds:
        read = value(position, at)
        found = found & (read >= 0) & (read < int(length))
    return found


def touched(alias: Alias, at: Places) -> int:
    """How many elements of the array a tile at these places reads, each counted once.

    Axes that enter other coordinates are independent of each other: what each group of them reads
    multiplies.
    """
    groups = _together(alias)
    if any(0 in np.shape(place) for place in at.values()):
        return 0
    return reduce(mul, (_distinct(group.reads, group.limits, at) for group in groups), 1)


def _together(alias: Alias) -> list[_Group]:
    """The coordinates and bounds, those that share axes together."""
    found: list[_Group] = []
    every = [_Group(_axes(alias, read), [read], []) for read in alias.coordinates]
    every += [_Group(_axes(alias, bound[0]), [], [bound]) for bound in alias.bounds]
    for one in every:
        met = [other for other in found if other.axes & one.axes]
        found = [other for other in found if other not in met]
        found.append(reduce(_Group.joined, met, one))
    return found


@dataclass(frozen=True)
class _Group:
    """Coordinates and bounds that depend on some axes, and no others of the alias do."""

    axes: frozenset[Any]
    reads: list[Any]
    limits: list[Any]

    def joined(self, other: _Group) -> _Group:
        """Both together."""
        return _Group(self.axes | other.axes, [*other.reads, *self.reads], [*other.limits, *self.limits])


def _axes(alias: Alias, formula: Any) -> frozenset[Any]:
    return frozenset(coordinate(axis.name) for axis in alias.over if formula.has(coordinate(axis.name)))


def _distinct(reads: list[Any], limits: list[Any], at: Places) -> int:
    """How many different elements some coordinates read within some bounds."""
    read = [value(position, at) for position, _ in limits]
    tests = [(low >= 0) & (low < int(length)) for low, (_, length) in zip(read, limits, strict=True)]
    seen, *several = np.broadcast_arrays(reduce(and_, tests, np.True_), *(value(one, at) for one in reads))
    rows = np.stack([seen[seen], *(one[seen] for one in several)])
    return len(np.unique(rows, axis=1).T)
