"""A program on several levels: tiles inside tiles, run in numpy, every crossing counted where it happens.

A tile of a middle level loads, hands on to the tiles below and stores; the innermost tiles compute. The
tiles below keep their state from chunk to chunk, all of them at once, as warps keep theirs in registers.
Each level has the kernel that its own tiles give (`at_level`); only its loads and stores are run there,
save at the innermost level, where everything else is run too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod
from typing import Any

from diagkit.ops import Engine
from diagkit.program.execute import Run, Walk, limited
from diagkit.program.meter import Key, Meter
from diagkit.program.nest import Kernel, Load, Statement, Store
from diagkit.program.show import table_html, table_text
from diagkit.term import FORMATS

Piece = tuple[int, int, int]
"""First position, extent, how often."""


@dataclass
class Tally:
    """What all tiles of all levels have moved, held and computed so far."""

    moved: dict[Key, int] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)
    flops: int = 0

    def close(self, level: int, meter: Meter) -> None:
        """A tile of `level` is done: what it held at most, what it computed."""
        self.peaks[level] = max(self.peaks.get(level, 0), meter.most)
        self.flops += meter.flops


def phase(kernel: Kernel, name: str) -> tuple[Statement, ...]:
    """The statements of one phase: "take" (loads that stay), "begin", "step" (of the loop), "finish" (the
    tail and the stores).

    >>> import diagkit as dk
    >>> double = dk.Diagram(2 * dk.array("X", dk.axis("x")), name="double").lower(x=4).kernels[0]
    >>> [[one.kind for one in phase(double, name)] for name in ("take", "begin", "step", "finish")]
    [['load'], ['compute'], [], ['store', 'free']]
    """
    before, after = kernel.part("before"), kernel.part("after")
    loads = tuple(one for one in before if isinstance(one, Load))
    rest = before[len(loads) :]
    stores = next((n for n, one in enumerate(rest) if isinstance(one, Store)), len(rest))
    begin, finish = (rest[:stores], rest[stores:]) if kernel.loop is None else (rest, after)
    return {"take": loads, "begin": begin, "step": kernel.part("loop"), "finish": finish}[name]


class Tile(Walk):
    """One tile of a level: where it lies, what lies above and below it, how many there are like it.

    `kernels` are those of its own level and of the levels below. The root (level 0) is all of slow memory.
    """

    def __init__(
        self, kernels: tuple[Kernel, ...], level: int, above: Tile | None, piece: Mapping[str, Piece], tally: Tally
    ) -> None:
        places = {**(above.places() if above else {}), **piece}
        self.level, self.above, self.kernels, self.tally = level, above, kernels, tally
        self.times = prod(times for _, _, times in piece.values())
        extents = {axis: extent for axis, (_, extent, _) in places.items()}
        starts = {axis: start for axis, (start, _, _) in places.items()}
        Walk.__init__(self, kernels[0], Meter(tally.moved, tally.formats), extents, starts)
        self.children: list[Tile] = []

    @property
    def innermost(self) -> bool:
        """Whether it computes; else it passes on."""
        return len(self.kernels) == 1

    def places(self) -> dict[str, Piece]:
        """Where it lies along every axis."""
        return {axis: (self.starts[axis], extent, 1) for axis, extent in self.extents.items()}

    def below(self, kernels: tuple[Kernel, ...], piece: Mapping[str, Piece]) -> Tile:
        """A tile inside this one."""
        return type(self)(kernels, self.level + 1, self, piece, self.tally)

    def moved(self, statement: Load | Store, elements: int) -> None:
        """Count what crosses between this level and the one above."""
        source, target = (self.level - 1, self.level) if isinstance(statement, Load) else (self.level, self.level - 1)
        self.meter.move((statement.array, source, target, statement.traffic), elements, statement.dtype)

    def inside(self, kernels: tuple[Kernel, ...]) -> Iterator[Tile]:
        """The tiles of the next level that lie in this one: those that count the same come once."""
        spans = [span for span in kernels[0].spans if span.role == "group"]
        cut = [self.pieces(span.axis, int(span.tile), self.merged(kernels[0], span.axis)) for span in spans]
        for chosen in product(*cut):
            yield self.below(kernels, dict(zip((span.axis for span in spans), chosen, strict=True)))

    def pieces(self, axis: str, tile: int, merged: bool) -> list[Piece]:
        """This tile's part of an axis, cut into tiles."""
        start, extent = self.starts[axis], self.extents[axis]
        if merged:
            full, short = divmod(extent, tile)
            found = [(start, tile, full), (start + full * tile, short, 1)]
            return [piece for piece in found if piece[1] * piece[2]]
        return [(start + at, min(tile, extent - at), 1) for at in range(0, extent, tile)]

    def merged(self, kernel: Kernel, axis: str) -> bool:
        """Whether tiles of one extent count the same: not where the bounds of the loop depend on the place."""
        loop = kernel.loop
        named = {symbol.name for symbol in loop.lo.free_symbols | loop.hi.free_symbols} if loop else set()
        return axis not in limited(self.kernel) and not named & {f"{axis}.first", f"{axis}.last"}

    def chunks(self) -> list[Piece]:
        """This tile's part of the streamed axis in its own chunks, those that its masks leave."""
        loop = self.kernel.loop
        assert loop is not None
        lo, hi = self.bound(loop.lo), self.bound(loop.hi)
        every = (lo, hi) == (0, int(loop.size))
        alike = every and self.unmasked and self.merged(self.kernel, loop.axis)
        found = self.pieces(loop.axis, int(loop.tile), merged=alike)
        return [piece for piece in found if every or (lo < hi and piece[0] < hi and lo < piece[0] + piece[1])]

    @property
    def unmasked(self) -> bool:
        """Whether no mask bounds the loops, here and below: then chunks of one extent count the same."""
        loops = (kernel.loop for kernel in self.kernels)
        return all(loop is None or (loop.lo, loop.hi) == (0, loop.size) for loop in loops)

    def part(self, name: str) -> tuple[Statement, ...]:
        """The statements of one phase of this tile's kernel."""
        return phase(self.kernel, name)

    def counted(self, work: Callable[[], None]) -> None:
        """Do `work`, counted as often as there are tiles like this one."""
        assert self.above is not None
        with self.meter.repeated(self.above.meter.times * self.times):
            work()

    def take(self) -> None:
        """Load what stays; those below load it from here."""
        self.each(self.part("take"))
        if not self.innermost:
            self.children = list(self.inside(self.kernels[1:]))
            self.ask(Tile.take)
            self.give_back(one.wire for one in self.part("take") if isinstance(one, Load))

    def ask(self, work: Callable[[Tile], None]) -> None:
        """Have every tile below do the same."""
        for child in self.children:
            child.counted(partial(work, child))

    def begin(self) -> None:
        """What is done once, before the loop."""
        if self.innermost:
            self.each(self.part("begin"))
        else:
            self.ask(Tile.begin)

    def loop(self) -> None:
        """This tile's part of the streamed axis, chunk by chunk."""
        if self.kernel.loop is not None:
            body = self.part("step")
            self.over(self.kernel.loop.axis, self.chunks(), body)

    def each(self, body: Iterable[Statement]) -> None:
        """Run statements; at a middle level one iteration is: load, hand on, store."""
        if self.innermost or body is not self.kernel.part("loop"):
            super().each(body)
        else:
            self.pass_on(tuple(body))

    def pass_on(self, body: tuple[Statement, ...]) -> None:
        """One chunk goes through this level."""
        loads = [one for one in body if isinstance(one, Load)]
        stores = [one for one in body if isinstance(one, Store)]
        super().each(loads)
        self.leave_room(stores)
        axis = str(self.kernel.loop.axis) if self.kernel.loop else ""
        for child in self.children:
            child.counted(partial(child.part_of, axis, self.starts[axis], self.extents[axis]))
        super().each(stores)
        self.give_back(one.wire for one in (*loads, *stores))

    def part_of(self, axis: str, start: int, extent: int) -> None:
        """Take the chunk that the level above holds."""
        self.starts[axis], self.extents[axis] = start, extent
        self.loop()

    def finish(self) -> None:
        """What is done once, after the loop, and the results go up; then this tile is no more."""
        stores = [one for one in self.part("finish") if isinstance(one, Store)]
        if self.innermost:
            super().each(self.part("finish"))
        else:
            self.leave_room(stores)
            self.ask(Tile.finish)
            super().each(stores)
            self.give_back(one.wire for one in stores)
        self.tally.close(self.level, self.meter)

    def leave_room(self, stores: Iterable[Store]) -> None:
        """Results that those below will leave here."""
        for wire in (one.wire for one in stores if not self.kernel.wire[one.wire].virtual):
            full = prod(int(extent) for extent in self.kernel.tile(self.kernel.wire[wire].axes))
            self.meter.hold(wire, full, self.kernel.wire[wire].dtype, wire)

    def give_back(self, wires: Iterable[str]) -> None:
        """Their storage ends here."""
        for wire in wires:
            if not self.kernel.wire[wire].virtual:
                self.meter.free(wire)
            self.free(wire)


class ArrayTile(Tile, Run):
    """The same with arrays: a tile of each wire, cut out of the memory above."""

    def __init__(
        self, kernels: tuple[Kernel, ...], level: int, above: Tile | None, piece: Mapping[str, Piece], tally: Tally
    ) -> None:
        Tile.__init__(self, kernels, level, above, piece, tally)
        self.fast = {}
        if isinstance(above, ArrayTile):
            self.slow = above.fast
            self.computes_with(above.engine)

    def computes_with(self, engine: Engine) -> None:
        """Take an engine's arrays and formats, at this tile's place."""
        shared = engine.xp, engine.sizes, engine.compute, engine.result, engine.like
        self.engine = Engine(*shared, self.extents, self.starts)

    def merged(self, kernel: Kernel, axis: str) -> bool:
        """Never: each tile has its own elements."""
        return False

    def _place(self, wire: str) -> tuple[slice, ...]:
        """Where the tile lies in that of the level above."""
        assert self.above is not None
        axes = [axis.name for axis in self.kernel.wire[wire].axes]
        starts = [self.starts[axis] - self.above.starts[axis] for axis in axes]
        return tuple(slice(start, start + self.extents[axis]) for start, axis in zip(starts, axes, strict=True))

    def leave_room(self, stores: Iterable[Store]) -> None:
        """Results that those below will leave here: room for what they are going to write."""
        kept = tuple(stores)
        super().leave_room(kept)
        for store in kept:
            shape = self.shape(self.kernel.wire[store.wire].axes)
            dtype = self._dtype(store.wire)
            poison = float("nan") if dtype == self.engine.compute else 0
            self.fast[store.wire] = self.engine.xp.full(shape, poison, dtype, self.engine.like)


@dataclass(frozen=True, repr=False)
class LevelCount:
    """What a program on several levels moved and held: `transfers` in elements by (array, from level, to
    level, kind); `formats` of the arrays; `peaks` by level, the most elements that one memory of it held;
    `flops` of contractions.

    >>> import diagkit as dk
    >>> import numpy as np
    >>> tiled = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E")).group(x="g_x").group(level=2, x="w_x")
    >>> found = tiled.nested(g_x=4, w_x=2).count(X=np.zeros(8, np.float32))
    >>> found.between(1), found.total_bytes(2)
    ({('X', 0, 1, 'input'): 8, ('E', 1, 0, 'output'): 8}, 64)
    """

    transfers: dict[Key, int]
    formats: dict[str, str]
    peaks: dict[int, int]
    flops: int

    def between(self, level: int) -> dict[Key, int]:
        """What crossed between `level` - 1 and `level`."""
        return {key: n for key, n in self.transfers.items() if max(key[1], key[2]) == level}

    def total_bytes(self, level: int) -> float:
        """Bytes that crossed between `level` - 1 and `level`, by the format of each array."""
        bits = sum(n * FORMATS[self.formats[key[0]]] for key, n in self.between(level).items())
        return bits // 8 if bits % 8 == 0 else bits / 8

    def __repr__(self) -> str:
        return table_text(self._rows())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return table_html(self._rows())

    def _rows(self) -> list[tuple[str | int, ...]]:
        order = sorted(self.transfers, key=lambda key: max(key[1], key[2]))
        moved = [(array, kind, f"{a} → {b}", self.transfers[array, a, b, kind]) for array, a, b, kind in order]
        held = [("peak", "one memory", str(level), peak) for level, peak in sorted(self.peaks.items())]
        return [("array", "kind", "level", "elements"), *moved, *held, ("contractions", "FLOP", "", self.flops)]


Nest = tuple[Kernel, ...]
"""One kernel as every level has it, from level 1 down."""


def walk_nests(nests: Iterable[Nest], sizes: Mapping[str, int]) -> LevelCount:
    """What the nests move and hold at these sizes, without data."""
    tally, whole = Tally(), {axis: (0, size, 1) for axis, size in sizes.items()}
    for nest in nests:
        _run(nest, Tile(nest, 0, None, whole, tally))
    return _counted(tally)


def run_nests(nests: Iterable[Nest], engine: Engine, arrays: Mapping[str, Any]) -> tuple[dict[str, Any], LevelCount]:
    """Slow memory after the nests have run on `arrays`, and what they moved and held."""
    tally, slow = Tally(), dict(arrays)
    whole = {axis: (0, size, 1) for axis, size in engine.sizes.items()}
    for nest in nests:
        root = ArrayTile(nest, 0, None, whole, tally)
        root.computes_with(engine)
        root.fast = slow
        root.leave_room(one for one in nest[0].statements if isinstance(one, Store))
        _run(nest, root)
    return slow, _counted(tally)


def _run(nest: Nest, root: Tile) -> None:
    """One kernel on all tiles of slow memory, one after another."""
    for level, deeper in enumerate(nest, 1):
        root.tally.peaks.setdefault(level, 0)  # what no tile comes to holds nothing
        for statement in deeper.statements:
            _none_yet(root.tally, nest, statement)
    for tile in root.inside(nest):
        for work in (Tile.take, Tile.begin, Tile.loop, Tile.finish):
            tile.counted(partial(work, tile))


def _counted(tally: Tally) -> LevelCount:
    return LevelCount(dict(tally.moved), dict(tally.formats), dict(sorted(tally.peaks.items())), tally.flops)


def _none_yet(tally: Tally, nest: tuple[Kernel, ...], statement: Statement) -> None:
    """Everything that may move is in the count, with 0 where there is nothing."""
    if isinstance(statement, Load | Store):
        for level in range(1, len(nest) + 1):
            ways = (level - 1, level) if isinstance(statement, Load) else (level, level - 1)
            tally.moved.setdefault((statement.array, *ways, statement.traffic), 0)
            tally.formats[statement.array] = statement.dtype
