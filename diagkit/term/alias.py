"""Aliases: views of arrays in slow memory. They are no kernels and move nothing; what reads one loads
straight from the array, at the coordinates of the view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import sympy

from diagkit.term.boxes import Axes, View
from diagkit.term.symbols import coordinate, exact

if TYPE_CHECKING:
    from diagkit.term.term import Term

Sizes = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """The positions that one coordinate reads: ``start + stride * u`` for u = 0, 1, ... below `count`, each
    once as the axes `axes` run; with a `block`, the numbers of the blocks of so many positions. Of windows, which
    read a position more than once, `signs` has 1 or -1 for each axis: how the position moves along it.

    >>> Run(("x",), start=2, stride=3, count=4).ends
    (2, 11)
    """

    axes: tuple[str, ...]
    start: Any
    stride: Any
    count: Any
    block: int = 1
    signs: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[Any, Any]:
        """The least and the greatest position."""
        low, high = self.start, self.start + self.stride * (self.count - 1)
        return (low, high) if self.stride > 0 else (high, low)


@dataclass(frozen=True)
class Alias:
    """How an alias is read: the element over `over` is that of `array` (over `axes`) at `coordinates`, one
    per axis of the array, where 0 <= position < size for every (position, size) of `bounds`; else it is 0.

    Views of views are followed to the array that has the elements. Bounds that surely hold are left out.

    >>> from diagkit.term.boxes import Axis
    >>> from diagkit.term.symbols import coordinate
    >>> x, y = Axis("x", 8), Axis("y", 3)
    >>> shift = Alias("X", (x,), (y,), (coordinate("y") + 2,))
    >>> [run.start for run in shift.runs], shift.read, shift.whole, shift.at(lambda size: size) == shift
    ([2], ('y',), False, True)
    """

    array: str
    axes: Axes
    over: Axes
    coordinates: tuple[Any, ...]
    bounds: tuple[tuple[Any, Any], ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """What each coordinate reads."""
        sizes = {axis.name: axis.size for axis in self.over}
        return tuple(run for run in (_run(read, sizes) for read in self.coordinates) if run)

    @property
    def read(self) -> tuple[str, ...]:
        """The axes on which the coordinates depend; along the others every position reads the same."""
        symbols = {symbol for read in self.coordinates for symbol in read.free_symbols}
        return tuple(axis.name for axis in self.over if coordinate(axis.name) in symbols)

    @property
    def whole(self) -> bool:
        """Whether it is the array itself, its axes under the same or other names."""
        return not self.bounds and self.coordinates == tuple(coordinate(axis.name) for axis in self.over)

    def at(self, number: Callable[[Any], Any]) -> Alias:
        """The same with sizes put in, and without the bounds that these make sure."""
        sizes = {axis.name: number(exact(axis.size)) for axis in self.over}
        bounds = tuple((number(position), number(exact(length))) for position, length in self.bounds)
        kept = tuple(bound for bound in bounds if not _sure(*bound, sizes))
        return replace(self, coordinates=tuple(map(number, self.coordinates)), bounds=kept)


def find_aliases(term: Term) -> dict[str, Alias]:
    """The aliases of a diagram by wire: views of inputs and of stored wires whose elements can be counted.

    A view that is an output is written and no alias; one that stays on chip is made there, of what is loaded;
    one that reads a diagonal, or windows with gaps or steps, is made by a kernel.
    """
    slow = {array.name for array in term.inputs}
    slow |= {box.name for box in term.boxes if not term.level(box.name) and not term.wires[box.name].virtual}
    found: dict[str, Alias] = {}
    for box in term.boxes:
        free = isinstance(box, View) and not term.level(box.name) and box.name not in term.outputs
        if isinstance(box, View) and free and box.inputs[0] in {*slow, *found}:
            (source,) = box.inputs
            axes = term.wires[source].axes
            inner = found.get(source) or Alias(source, axes, axes, tuple(coordinate(axis.name) for axis in axes))
            alias = _through(inner, box)
            if alias is not None:
                found[box.name] = alias
    return found


def _through(inner: Alias, box: View) -> Alias | None:
    """The array behind a view of `inner`, as the view sees it; None where its elements cannot be counted."""
    put = {coordinate(axis.name): exact(read) for axis, read in zip(inner.over, box.coordinates, strict=True)}
    reads = tuple(read.xreplace(put) for read in inner.coordinates)
    asked = [(position.xreplace(put), length) for position, length in inner.bounds]
    asked += [(put[coordinate(axis.name)], axis.size) for axis in inner.over]
    sizes = {axis.name: axis.size for axis in box.axes}
    bounds = tuple(dict.fromkeys(bound for bound in asked if not _sure(*bound, sizes)))
    alias = Alias(inner.array, inner.axes, box.axes, reads, bounds)
    return alias if _countable(alias, sizes) else None


def _countable(alias: Alias, sizes: Sizes) -> bool:
    """Whether every coordinate has axes of its own, and every bound limits one that reads no blocks."""
    runs = [_run(read, sizes) for read in alias.coordinates]
    if any(run is None for run in runs):
        return False
    axes = list(chain.from_iterable(run.axes for run in runs if run))
    plain = [read for read, run in zip(alias.coordinates, runs, strict=True) if run and run.block == 1]
    limits = all(any(shifted(position, read) is not None for read in plain) for position, _ in alias.bounds)
    return limits and len(set(axes)) == len(axes)


def shifted(position: Any, read: Any) -> Any | None:
    """How far `position` lies beyond the coordinate `read`, where that is the same everywhere; else None.

    >>> from diagkit.term.symbols import coordinate, size
    >>> shifted(coordinate("x") + size("n"), coordinate("x")), shifted(2 * coordinate("x"), coordinate("x"))
    (n, None)
    """
    difference = sympy.expand(position - read)
    return difference if all(symbol.is_positive for symbol in difference.free_symbols) else None


def _run(read: Any, sizes: Sizes) -> Run | None:
    """What a coordinate reads, where that is each position once, or windows next to each other; else None."""
    read = sympy.expand(exact(read))
    if read.has(sympy.floor):
        return _blocks(read, sizes)
    slopes = {name: slope for name in sizes if (slope := read.coeff(coordinate(name))) != 0}
    start = sympy.expand(read - sum(slope * coordinate(name) for name, slope in slopes.items()))
    if start.free_symbols & {coordinate(name) for name in sizes}:
        return None
    if len(slopes) == 1:
        ((name, slope),) = slopes.items()
        return Run((name,), start, slope, exact(sizes[name])) if slope.is_Integer else None
    count = _mixed(slopes, sizes)
    return _windows(slopes, start, sizes) if count is None else Run(tuple(slopes), start, sympy.S.One, count)


def _windows(slopes: Sizes, start: Any, sizes: Sizes) -> Run | None:
    """Windows that move by one position: all positions from the least to the greatest are read."""
    if not all(abs(slope) == 1 for slope in slopes.values()):
        return None
    reach = {name: exact(sizes[name]) - 1 for name in slopes}
    least = start - sympy.Add(*(reach[name] for name, slope in slopes.items() if slope < 0))
    count, signs = sympy.Add(*reach.values()) + 1, tuple(map(int, slopes.values()))
    return Run(tuple(slopes), sympy.expand(least), sympy.S.One, sympy.expand(count), signs=signs)


def _blocks(read: Any, sizes: Sizes) -> Run | None:
    """Blocks along one axis, from its first position on: ``floor(x / width)``."""
    if read.func is not sympy.floor:
        return None
    above, width = read.args[0].as_numer_denom()
    name = next((name for name in sizes if above == coordinate(name)), None)
    if name is None or not width.is_Integer:
        return None
    return Run((name,), sympy.S.Zero, sympy.S.One, sympy.ceiling(exact(sizes[name]) / width), int(width))


def _mixed(slopes: Sizes, sizes: Sizes) -> Any | None:
    """The positions that digits of mixed radix count through: each slope is the product of the sizes of the
    axes with smaller ones. None where it is not so."""
    count, left = sympy.S.One, dict(slopes)
    while left:
        name = next((name for name, slope in left.items() if slope == count), None)
        if name is None:
            return None
        del left[name]
        count = sympy.expand(count * exact(sizes[name]))
    return count


def _sure(position: Any, length: Any, sizes: Sizes) -> bool:
    """Whether 0 <= position < length everywhere."""
    run = _run(position, sizes)
    return run is not None and at_least(run.ends[0], 0) and at_least(exact(length) - 1, run.ends[1])


def at_least(high: Any, low: Any) -> bool:
    """Whether `high` >= `low` at all sizes; False where that is not sure.

    >>> from diagkit.term.symbols import size
    >>> at_least(4 * sympy.ceiling(size("x") / 4), size("x")), at_least(size("x"), size("y"))
    (True, False)
    """
    difference = sympy.expand(exact(high) - exact(low))
    least = sympy.Add(*_least(difference))
    return difference.is_nonnegative is True or sympy.expand(least).is_nonnegative is True


def _least(sum_: Any) -> Iterator[Any]:
    """The terms of a sum, each ceiling at its least, or at its greatest where it is taken off."""
    for term in sympy.Add.make_args(sum_):
        if term.could_extract_minus_sign():
            yield term.replace(sympy.ceiling, lambda inner: inner + 1 - 1 / inner.as_numer_denom()[1])
        else:
            yield term.replace(sympy.ceiling, lambda inner: inner)
