"""Running a program: one case per statement. `Walk` follows the loops and counts tiles by their extents;
`Run` is the same walk with arrays, and counts the elements that it really touches.

Slow memory is a dict of whole arrays, fast memory a dict of tiles. Edge tiles are short, an empty axis
has no tile at all, and a chunk that the loop bounds leave out is neither loaded nor computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import sympy

from diagkit.ops import Engine, evaluate_box
from diagkit.program.meter import Count, Meter, finished
from diagkit.program.nest import (
    Compute,
    For,
    Free,
    Init,
    Kernel,
    Load,
    ParFor,
    Statement,
    Store,
    Update,
    first,
    last,
)
from diagkit.program.through import inside, places, touched, value
from diagkit.term import Alias, Axes, Contract, coordinate, names

SLOW, FAST = 0, 1


class Walk:
    """One kernel, followed without data. Tiles of one extent are visited once and counted as many times
    as there are, except along axes on which the loop bounds depend."""

    def __init__(self, kernel: Kernel, meter: Meter, extents: dict[str, int], starts: dict[str, int]) -> None:
        self.kernel, self.meter, self.extents, self.starts = kernel, meter, extents, starts
        loop = kernel.loop
        symbols = loop.lo.free_symbols | loop.hi.free_symbols if loop else set()
        self.bounding = {axis for axis in extents if {first(axis), last(axis)} & symbols} | limited(kernel)

    def go(self) -> None:
        """Run the kernel."""
        for statement in self.kernel.statements:
            if isinstance(statement, Load | Store):
                self.moved(statement, 0)
        with self.meter.kernel(self.kernel.name):
            self.each(self.kernel.body)

    def moved(self, statement: Load | Store, elements: int) -> None:
        """Count what a load or a store moves; nothing at all is counted as 0."""
        source, target = (SLOW, FAST) if isinstance(statement, Load) else (FAST, SLOW)
        key = statement.array, source, target, statement.traffic
        self.meter.move(key, elements, statement.dtype)

    def each(self, body: Iterable[Statement]) -> None:
        """Run statements in order."""
        for statement in body:
            _CASES[type(statement)](self, statement)

    def over(self, axis: str, tiles: Iterable[tuple[int, int, int]], body: tuple[Statement, ...]) -> None:
        """Run `body` on tiles of `axis`: (first position, extent, how often)."""
        whole = self.starts[axis], self.extents[axis]
        for start, extent, times in tiles:
            self.starts[axis], self.extents[axis] = start, extent
            with self.meter.repeated(times):
                self.each(body)
        self.starts[axis], self.extents[axis] = whole

    def tiles(self, loop: ParFor | For, begin: int, end: int) -> Iterable[tuple[int, int, int]]:
        """The tiles of a loop numbered `begin` up to but without `end`: (first position, extent, how often).

        Those that count the same come once: the full ones, and a short one at the end of the axis.
        """
        if loop.axis in self.bounding:
            return _each_tile(loop, begin, end)
        full = max(min(end, int(loop.size) // int(loop.tile)) - begin, 0)
        several = [(begin * int(loop.tile), int(loop.tile), full)] if full else []
        return [*several, *_each_tile(loop, begin + full, end)]

    def shape(self, axes: Axes) -> tuple[int, ...]:
        """The shape of the current tile over `axes`."""
        return tuple(self.extents[axis.name] for axis in axes)

    def bound(self, position: Any) -> int:
        """A loop bound as a number, for the current group."""
        here = {first(axis): sympy.Integer(start) for axis, start in self.starts.items()}
        here |= {last(axis): sympy.Integer(start + self.extents[axis] - 1) for axis, start in self.starts.items()}
        return int(position.xreplace(here))

    def load(self, statement: Load) -> int:
        """Bring a tile into fast memory; how many elements that moved."""
        through = statement.through
        if through is not None:
            return touched(through, places(through, self.positions))
        return prod(self.shape(self.kernel.wire[statement.wire].axes))

    def positions(self, axis: str) -> Any:
        """The positions of the current tile along an axis."""
        return np.arange(self.starts[axis], self.starts[axis] + self.extents[axis])

    def store(self, wire: str) -> int:
        """Write a tile of `wire` to slow memory; how many elements that moved."""
        return prod(self.shape(self.kernel.wire[wire].axes))

    def init(self, statement: Init) -> None:
        """Begin a state."""

    def compute(self, statement: Compute) -> None:
        """Make a tile."""

    def update(self, statement: Update) -> None:
        """Renew a state."""

    def free(self, wire: str) -> None:
        """Forget a tile."""


class Run(Walk):
    """One kernel, run on arrays: `slow` is the slow memory that it reads and writes."""

    def __init__(self, kernel: Kernel, meter: Meter, engine: Engine, slow: dict[str, Any]) -> None:
        extents, starts = dict(engine.sizes), dict.fromkeys(engine.sizes, 0)
        super().__init__(kernel, meter, extents, starts)
        self.engine = Engine(engine.xp, engine.sizes, engine.compute, engine.result, engine.like, extents, starts)
        self.slow = slow
        self.fast: dict[str, Any] = {}

    def go(self) -> None:
        """Run the kernel; what no group wrote, because there was none, is empty."""
        super().go()
        for statement in self.kernel.statements:
            if isinstance(statement, Store) and statement.wire not in self.slow:
                self.slow[statement.wire] = self._unwritten(statement.wire, self._dtype(statement.wire))

    def tiles(self, loop: ParFor | For, begin: int, end: int) -> Iterable[tuple[int, int, int]]:
        """Every tile by itself: each has its own elements."""
        return _each_tile(loop, begin, end)

    def _place(self, wire: str) -> tuple[slice, ...]:
        axes = names(self.kernel.wire[wire].axes)
        return tuple(slice(self.starts[axis], self.starts[axis] + self.extents[axis]) for axis in axes)

    def load(self, statement: Load) -> int:
        """Cut the tile out of slow memory, or gather it there; how many elements of the array that took."""
        wire = statement.wire
        if statement.through is not None:
            return self._gather(wire, statement.through)
        self.fast[wire] = self.slow[wire][self._place(wire)]
        return prod(self.fast[wire].shape)

    def _gather(self, wire: str, alias: Alias) -> int:
        """Read a tile through a view, 0 beyond the array; how many different elements that took."""
        array, xp = self.slow[alias.array], self.engine.xp
        zero = xp.reshape(xp.arange(1, array), [1] * len(alias.over))
        at, shape, lengths = places(alias, self.engine.positions), self.shape(alias.over), array.shape
        nothing = xp.full((), 0, array.dtype, array)
        self.fast[wire] = xp.broadcast(nothing, shape)
        if 0 in (*shape, *lengths):
            return 0
        seen = xp.broadcast((zero == 0) & inside(alias, at), shape)
        read = [xp.clip(zero + value(one, at), 0, n - 1) for one, n in zip(alias.coordinates, lengths, strict=True)]
        self.fast[wire] = xp.where(seen, xp.broadcast(array[tuple(read)], shape), nothing)
        flat = reduce(lambda so_far, pair: so_far * pair[1] + pair[0], zip(read, lengths, strict=True), zero)
        return len(set(xp.broadcast(flat, shape)[seen].tolist()))

    def store(self, wire: str) -> int:
        """Put the tile into slow memory; how many elements it has."""
        tile = self.fast[wire]
        if wire not in self.slow:
            self.slow[wire] = self._unwritten(wire, tile.dtype)
        self.slow[wire][self._place(wire)] = tile
        return prod(tile.shape)

    def _unwritten(self, wire: str, dtype: Any) -> Any:
        """A whole array of NaN: whatever a kernel forgets to write shows."""
        shape = [self.engine.sizes[axis.name] for axis in self.kernel.wire[wire].axes]
        poison = float("nan") if dtype == self.engine.compute else 0
        return self.engine.xp.full(shape, poison, dtype, self.engine.like)

    def _dtype(self, wire: str) -> Any:
        """The array type of a wire of which there is no element."""
        positions = self.engine.xp.arange(0, self.engine.like)
        kind = self.kernel.wire[wire].dtype.rstrip("0123456789")
        return {"bool": (positions == 0).dtype, "int": positions.dtype}.get(kind, self.engine.compute)

    def init(self, statement: Init) -> None:
        """A tile that is `start` everywhere."""
        shape = self.shape(self.kernel.wire[statement.wire].axes)
        start = float(statement.start)
        self.fast[statement.wire] = self.engine.xp.full(shape, start, self.engine.compute, self.engine.like)

    def compute(self, statement: Compute) -> None:
        """What the box makes of its tiles."""
        box = statement.box
        axes = [self.kernel.wire[wire].axes for wire in box.inputs]
        made = evaluate_box(self.engine, box, axes, *(self.fast[wire] for wire in box.inputs))
        narrow = self.kernel.narrowed.get(box.name)
        self.fast[box.name] = made if narrow is None else self.engine.xp.round_to(made, narrow)

    def update(self, statement: Update) -> None:
        """The state is the new tile."""
        self.fast[statement.wire] = self.fast[statement.new]

    def free(self, wire: str) -> None:
        """The tile is gone: reading it again is an error."""
        del self.fast[wire]


def limited(kernel: Kernel) -> set[str]:
    """The axes along which a load may reach beyond its array: there tiles of one extent are not alike."""
    aliases = (one.through for one in kernel.statements if isinstance(one, Load) and one.through)
    bounds = [position.free_symbols for alias in aliases for position, _ in alias.bounds]
    return {axis for axis in kernel.span if any(coordinate(axis) in symbols for symbols in bounds)}


def _each_tile(loop: ParFor | For, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    size, tile = int(loop.size), int(loop.tile)
    return ((at * tile, min(tile, size - at * tile), 1) for at in range(begin, end))


def _parfor(walk: Walk, loop: ParFor) -> None:
    walk.over(loop.axis, walk.tiles(loop, 0, _ceil(int(loop.size), int(loop.tile))), loop.body)


def _for(walk: Walk, loop: For) -> None:
    lo, hi, tile = walk.bound(loop.lo), walk.bound(loop.hi), int(loop.tile)
    begin = lo // tile
    walk.over(loop.axis, walk.tiles(loop, begin, _ceil(hi, tile) if hi > lo else begin), loop.body)


def _ceil(size: int, tile: int) -> int:
    return -(-size // tile)


def _load(walk: Walk, load: Load) -> None:
    walk.moved(load, walk.load(load))
    _hold(walk, load.wire, load.column)


def _store(walk: Walk, store: Store) -> None:
    walk.moved(store, walk.store(store.wire))


def _init(walk: Walk, init: Init) -> None:
    walk.init(init)
    _hold(walk, init.wire, init.column)


def _hold(walk: Walk, wire: str, at: str) -> None:
    kernel = walk.kernel
    full = prod(int(extent) for extent in kernel.tile(kernel.wire[wire].axes))
    walk.meter.hold(wire, full, kernel.wire[wire].dtype, at)


def _compute(walk: Walk, compute: Compute) -> None:
    walk.compute(compute)
    if isinstance(compute.box, Contract):
        walk.meter.work(_flops(walk, compute.box))
    if compute.into is not None:
        walk.meter.take_over(compute.into, compute.box.name, walk.kernel.wire[compute.box.name].dtype, compute.column)
    elif compute.buffer:
        _hold(walk, compute.box.name, compute.column)


def _flops(walk: Walk, box: Contract) -> int:
    """Two per multiply-add, where several inputs are multiplied and summed; else nothing."""
    joined = {axis for wire in box.inputs for axis in walk.kernel.wire[wire].axes}
    sums = len(box.inputs) > 1 and joined - set(box.axes)
    return 2 * prod(walk.shape(tuple(joined))) if sums else 0


def _update(walk: Walk, update: Update) -> None:
    walk.update(update)


def _free(walk: Walk, free: Free) -> None:
    for wire in free.wires:
        walk.free(wire)
        walk.meter.free(wire)


_CASES: dict[type[Statement], Callable[[Walk, Any], None]] = {
    Load: _load,
    Store: _store,
    Init: _init,
    Compute: _compute,
    Update: _update,
    Free: _free,
    ParFor: _parfor,
    For: _for,
}


def walk_kernels(kernels: Iterable[Kernel], sizes: Mapping[str, int]) -> Count:
    """What the kernels move and hold at these sizes, without data."""
    meter = Meter()
    for kernel in kernels:
        Walk(kernel, meter, dict(sizes), dict.fromkeys(sizes, 0)).go()
    return finished(meter)


def run_kernels(kernels: Iterable[Kernel], engine: Engine, arrays: Mapping[str, Any]) -> tuple[dict[str, Any], Count]:
    """Slow memory after the kernels have run on `arrays`, and what they moved and held."""
    meter, slow = Meter(), dict(arrays)
    for kernel in kernels:
        Run(kernel, meter, engine, slow).go()
    return slow, finished(meter)
