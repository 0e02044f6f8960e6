"""Costs level by level: what crosses between each pair of neighbouring memories, and what each holds.

A tile of level l is cut inside one of level l - 1, so the number of tiles is a sum over the tiles above of
their own ceilings. The innermost memories hold what the kernel computes; those between pass on what is
loaded and stored. Source: arXiv 2412.03317, sections 2.2 (levels) and 4.2 (several of them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy

from diagkit.cost.kernel import Kernel, kernels, product, tiles
from diagkit.cost.memory import Column, Memory, along, memory
from diagkit.cost.transfers import Transfer, Transfers, collect, kernel_transfers, one_group
from diagkit.cost.work import Work, kernel_work
from diagkit.term import FORMATS, Alias, Term, at_level, depth, outer_tiles


def nested_tiles(whole: Any, outer: tuple[Any, ...], tile: Any) -> Any:
    """The number of tiles of an axis whose tiles lie inside larger ones: over the larger ones (the short
    last one too) the sum of the ceilings.

    >>> from diagkit.term import size
    >>> nested_tiles(sympy.Integer(100), (sympy.Integer(30),), sympy.Integer(20))
    7
    >>> nested_tiles(size("q"), (size("q"),), size("w_q"))
    ceiling(q/w_q)
    """
    if not outer:
        return tiles(whole, tile)
    first, rest = sympy.sympify(outer[0]), outer[1:]
    if first in (whole, sympy.sympify(tile)):
        return nested_tiles(whole, rest, tile)
    full = sympy.floor(whole / first)
    return full * nested_tiles(first, rest, tile) + nested_tiles(whole - full * first, rest, tile)


@dataclass(frozen=True)
class NestedKernel(Kernel):
    """A kernel as a memory of level `level` sees it; `whole` is the diagram with the labels of all levels."""

    whole: Term | None = None
    level: int = 1

    def alias(self, wire: str) -> Alias | None:
        """Only the outermost level reads through views: below, what was read is a tile like others."""
        return super().alias(wire) if self.level == 1 else None

    def repeats(self, axes: Any, also: Any = ()) -> Any:
        """How often something over `axes` is done again: once per nested tile of every grouped axis it lacks."""
        done = {*axes, *also}
        lacked = (axis for axis in self.grouped if axis not in done)
        return product(tuple(self._tiles("group", axis, self.grouped[axis]) for axis in lacked))

    @property
    def chunks(self) -> Any:
        """The number of sub-chunks: those of each chunk added up."""
        return self._tiles("stream", str(self.streamed), self.chunk)

    def outer(self, kind: str, axis: str) -> tuple[Any, ...]:
        """The tiles of the levels above, inside which those of this one lie, largest first."""
        assert self.whole is not None
        return outer_tiles(self.whole, kind, axis, self.level)

    def _tiles(self, kind: str, axis: str, tile: Any) -> Any:
        return nested_tiles(self.term.axis(axis).size, self.outer(kind, axis), tile)


def nested_kernels(term: Term, level: int) -> tuple[NestedKernel, ...]:
    """The kernels of a diagram at the tiles of one level."""
    return tuple(
        NestedKernel(one.term, one.region, one.number, one.grouped, one.form, one.chunk, term, level)
        for one in kernels(at_level(term, level))
    )


@dataclass(frozen=True, repr=False)
class LevelTransfers(Transfers):
    """Transfers between all neighbouring levels, in one map.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> moved = dk.Diagram(C).group(a="g_a").group(level=2, a="w_a").level_transfers()
    >>> moved.between(1).total(), moved.between(2).total(a=8, b=2, c=3, g_a=4, w_a=2)
    (a*b + a*c + b*c*ceiling(a/g_a), 64)
    >>> sum(moved.at(a=8, b=2, c=3, g_a=4, w_a=2).values()), moved.total(a=8, b=2, c=3, g_a=4, w_a=2)
    (116, 116)
    """

    def between(self, level: int) -> LevelTransfers:
        """What crosses between `level` - 1 and `level`, both ways."""
        amounts = tuple((key, amount) for key, amount in self.amounts if max(key.source, key.target) == level)
        group = tuple((key, amount) for key, amount in self.one_group if max(key.source, key.target) == level)
        return replace(self, amounts=amounts, one_group=group)


def level_transfers(term: Term) -> LevelTransfers:
    """What one run of the diagram moves between every pair of neighbouring levels, exact ceilings kept.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a=32, c=32).group(level=2, a=8, c=16)
    >>> level_transfers(tiled).between(2).relaxed().total()
    3*a*b*c/16 + a*c
    """
    pairs = [pair for level in range(1, depth(term) + 1) for pair in _crossing(term, level)]
    amounts = collect((key, amount) for key, amount, _ in pairs)
    group = collect((key, amount) for key, _, amount in pairs)
    formats = {key.array: term.wires[key.array].dtype for key, _ in amounts}
    return LevelTransfers(amounts, group, formats)


def _crossing(term: Term, level: int) -> Iterator[tuple[Transfer, Any, Any]]:
    """What crosses into and out of one level: the key, all of it, and what one tile moves."""
    for kernel in nested_kernels(term, level):
        wires = (*kernel.region.loads, *kernel.region.stores)
        for wire, (key, amount) in zip(wires, kernel_transfers(kernel), strict=True):
            one = one_group(kernel, wire)
            yield key._replace(source=key.source + level - 1, target=key.target + level - 1), amount, one


def level_work(term: Term) -> Work:
    """The operations of one run at the tiles of the innermost level, which is where things are computed:
    what its tiles do again each time is counted each time.

    >>> import diagkit as dk
    >>> a, b, c, e = dk.axes("a b c e")
    >>> XY = dk.einsum("a c, b c -> a b", dk.array("X", a, c), dk.array("Y", b, c))
    >>> chain = dk.Diagram(dk.einsum("a b, b e -> a e", XY, dk.array("W", b, e))).fuse().group(level=2, e="w_e")
    >>> level_work(chain).mac()
    a*b*c*ceiling(e/w_e) + a*b*e
    """
    return Work(tuple(pair for kernel in nested_kernels(term, depth(term)) for pair in kernel_work(kernel)))


def level_memory(term: Term) -> dict[int, Memory]:
    """What one memory of each level holds, column by column, in elements.

    The innermost level holds what runs there, as `cost.memory` counts it. A level between holds a tile from
    its load until all below have taken it (a chunk: to the end of its iteration), and a result from when
    those below have left it until it is stored: columns "load", "chunk", "store".

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").group(level=2, a="w_a").stream(level=2, b="u_b")
    >>> held = level_memory(tiled)
    >>> held[2].peak()
    g_c*u_b + g_c*w_a + u_b*w_a
    >>> held[1].columns()[0, "chunk"]
    g_a*s_b + g_c*s_b
    """
    last = depth(term)
    found = {level: _passing(term, level) for level in range(1, last)}
    return {**found, last: memory(at_level(term, last))}


def _passing(term: Term, level: int) -> Memory:
    cut = nested_kernels(term, level)
    columns = tuple(column for kernel in cut for column in _passed(kernel))
    return replace(memory(at_level(term, level)), live=columns, begun=())


def _passed(kernel: Kernel) -> Iterator[Column]:
    """The columns of a kernel at a level that only passes on."""
    region, chunk = kernel.region, kernel.streamed
    stores = [wire for wire in region.stores if not kernel.wires[wire].virtual]
    fixed = [wire for wire in region.loads if not kernel.carries(wire, chunk)]
    carried = [wire for wire in stores if kernel.form and wire in kernel.form.carried]
    moving = [*(wire for wire in region.loads if wire not in fixed), *carried]
    yield _column(kernel, "load", fixed)
    if kernel.form:
        yield _column(kernel, "chunk", moving, looping=True)
    yield _column(kernel, "store", [wire for wire in stores if wire not in carried])


def _column(kernel: Kernel, name: str, wires: list[str], looping: bool = False) -> Column:
    formats = [kernel.term.wires[wire].dtype for wire in wires]
    live = tuple((kernel.held(wire), FORMATS[dtype], 1) for wire, dtype in zip(wires, formats, strict=True))
    return Column(kernel.number, name, live, (), along(kernel, looping))
