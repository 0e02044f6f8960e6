"""What lies in shared memory: the compiled number as a sum of the tiles that the program loads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod

from diagkit.bench.compiled import Compiled, products_of
from diagkit.codegen.triton_boxes import dot_format
from diagkit.codegen.triton_frame import Frame
from diagkit.program import Kernel, Load, Program
from diagkit.term import FORMATS

Tiles = tuple[tuple[str, int], ...]
"""Wires and the bytes of one tile of each."""


@dataclass(frozen=True)
class Buffers:
    """What a kernel keeps on chip, in bytes.

    * `once` and `chunk`: sides of products as they were loaded, before the loop and per stage of it;
    * `made`: what boxes make (in registers);
    * `once_read` and `chunk_read`: what is loaded on its way to registers, because it is no side of a
      product or is converted first; `converted`: the largest tiles that are a product's right and left side
      after that.
    """

    once: Tiles
    chunk: Tiles
    made: int
    once_read: Tiles = ()
    chunk_read: Tiles = ()
    converted: Tiles = ()

    @property
    def loaded(self) -> int:
        """Every tile that is loaded, chunks once: what a diagram counts of them."""
        return sum(map(total, (self.once, self.chunk, self.once_read, self.chunk_read)))

    def shared(self, stages: int) -> int:
        """Shared memory with every loaded side of a product in it, chunks once per stage; what goes on to
        registers leaves its buffer one stage earlier."""
        return total(self.once) + stages * total(self.chunk) + max(stages - 1, 0) * total(self.chunk_read)


@dataclass(frozen=True)
class Account:
    """Shared memory as tiles times how often each is there, and the bytes that no tile explains."""

    tiles: tuple[tuple[str, int, int], ...]
    rest: int

    def beyond(self, buffers: Buffers) -> list[tuple[str, int]]:
        """By name, what there is more (or less) than every load once."""
        loads = dict((*buffers.once, *buffers.chunk, *buffers.once_read, *buffers.chunk_read))
        there = {name: (bytes_, count) for name, bytes_, count in self.tiles}
        more = [(name, n, there.get(name, (n, 0))[1] - 1) for name, n in loads.items()]
        found = [(f"{_times(count)} {name}", count * n) for name, n, count in more if count > 0]
        found += [(name, n) for name, n, _ in self.tiles if name not in loads]
        return [*found, *((f"{name} in registers", -n) for name, n, count in more if count < 0)]


def _times(count: int) -> str:
    return "another" if count == 1 else f"{count} more"


def account(one: Compiled, buffers: Buffers) -> Account:
    """Which tiles make up the shared memory that was compiled: the choice that leaves the least."""
    tiles = tuple((f"{name} as a side of a product", n) for name, n in buffers.converted)
    sides = ((), tiles[:1], tiles[1:], tiles)
    options = product((1, 0), range(one.stages, -1, -1), (1, 0), sides)
    found = [_counted(one, buffers, *option) for option in options]
    return min(found, key=lambda choice: (choice.rest < 0, abs(choice.rest)))


def _counted(one: Compiled, buffers: Buffers, kept: int, depth: int, read: int, sides: Tiles) -> Account:
    fewer = max(min(depth, one.stages - 1), 0)
    rows = ((buffers.once, kept), (buffers.chunk, depth), (buffers.chunk_read, read * fewer), (sides, 1))
    tiles = tuple((name, n, count) for tiles, count in rows for name, n in tiles if count)
    return Account(tiles, one.shared_bytes - sum(n * count for _, n, count in tiles))


def explained(one: Compiled, buffers: Buffers) -> str:
    """The shared memory as a sum of tiles, with what no tile explains."""
    found = account(one, buffers)
    parts = [f"{f'{count} × ' if count > 1 else ''}{name} {n:,}" for name, n, count in found.tiles]
    parts += [f"{found.rest:,} for exchange between threads"] if found.rest > 0 else []
    parts += [f"{-found.rest:,} never there at one time"] if found.rest < 0 else []
    there = {name for name, _, _ in found.tiles}
    away = [name for name, _ in (*buffers.once, *buffers.once_read, *buffers.chunk_read) if name not in there]
    parts += [f"{', '.join(away)} in registers"] if away else []
    return ", ".join(parts) or "nothing kept"


def unexplained(one: Compiled, buffers: Buffers) -> float:
    """The share of the shared memory that no tile explains."""
    return abs(account(one, buffers).rest) / one.shared_bytes if one.shared_bytes else 0.0


def total(tiles: Tiles) -> int:
    """The bytes of all."""
    return sum(n for _, n in tiles)


def buffers_of(kernel: Kernel, program: Program) -> Buffers:
    """What the kernel keeps on chip, by its blocks, in bytes."""
    frame = Frame(kernel, program)
    products = products_of(kernel, frame)
    wanted = {wire: dot_format(frame, box) for box in products for wire in box.inputs}

    def tiles(wires: Iterable[str]) -> Tiles:
        return tuple((wire, _bytes(frame, wire, kernel.wire[wire].dtype)) for wire in wires)

    once, chunk = ([s.wire for s in kernel.part(part) if isinstance(s, Load)] for part in ("before", "loop"))
    sides = {wire for wire in (*once, *chunk) if wanted.get(wire) == kernel.wire[wire].dtype}
    converted = ({box.inputs[side] for box in products} - sides for side in (1, 0))
    largest = (sorted((-_bytes(frame, wire, wanted[wire]), wire) for wire in wires)[:1] for wires in converted)
    return Buffers(
        tiles(wire for wire in once if wire in sides),
        tiles(wire for wire in chunk if wire in sides),
        total(tiles(w.name for w in kernel.wires if w.name not in (*once, *chunk) and not w.virtual)),
        tiles(wire for wire in once if wire not in sides),
        tiles(wire for wire in chunk if wire not in sides),
        tuple((wire, -n) for one in largest for n, wire in one),
    )


def _bytes(frame: Frame, wire: str, dtype: str) -> int:
    return prod(frame.block[axis] for axis in frame.along(wire)) * FORMATS[dtype] // 8
