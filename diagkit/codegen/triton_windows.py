"""Loads of overlapping windows in Triton: each position is read once, and the windows are gathered on chip.

A tile of g windows of w positions reads a run of g + w - 1 of them, the halo of its neighbours in it. Two
coordinates that are read by windows, like the rows and columns of a picture, are gathered one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from diagkit.codegen.layout import Order, sized
from diagkit.codegen.scalars import position
from diagkit.codegen.triton_frame import Frame
from diagkit.program import Load
from diagkit.term import Alias, FormatError, Run, coordinate, shifted, size
from diagkit.term import names as names_of


def overlapping(frame: Frame, alias: Alias) -> tuple[Run, ...]:
    """The coordinates along which a tile reads positions more than once."""
    return tuple(run for run in alias.runs if sum(axis in frame.block for axis in run.axes if run.signs) > 1)


@dataclass(frozen=True)
class Windows:
    """One load of windows: `runs` of positions are read, `others` are axes along which each is read once."""

    frame: Frame
    load: Load
    alias: Alias
    runs: tuple[Run, ...]

    @property
    def others(self) -> Order:
        """The axes of the block that no window runs along, and that the coordinates depend on."""
        taken = {axis for run in self.runs for axis in run.axes}
        read = [axis for axis in self.frame.along(self.load.wire) if axis in self.alias.read]
        return tuple(axis for axis in read if axis not in taken)

    @property
    def lanes(self) -> Order:
        """The block of pointers: a run of positions for each overlapping coordinate, then the other axes."""
        return (*(f"run {place}" for place in range(len(self.runs))), *self.others)

    def axes(self, run: Run) -> dict[str, int]:
        """The axes of a run that have more than one position in a tile, and how the position moves along them."""
        signs = zip(run.axes, run.signs, strict=True)
        return {axis: sign for axis, sign in signs if axis in self.frame.block}

    def length(self, run: Run) -> int:
        """The block of a run: a power of two that has a place for every position."""
        reach = sum(self.frame.block[axis] - 1 for axis in self.axes(run))
        return 1 << reach.bit_length()

    def text(self, other: str) -> str:
        """The tile over the axes of the block, 0 where it does not exist."""
        self._check()
        frame, order = self.frame, self.frame.along(self.load.wire)
        masks = " & ".join(f"({mask})" for mask in self.masks())
        guard = f", mask={masks}, other={other}" if masks else ""
        text = self.gathered(f"tl.load({self.pointer()}{guard})")
        made = (*(axis for run in self.runs for axis in self.axes(run)), *self.others)
        text = frame.aligned(text, made, order)
        text = text if set(made) == set(order) else f"tl.broadcast_to({text}, {frame.shape(order)})"
        exist = frame.masks([axis for run in self.runs for axis in self.axes(run)], order)
        return f"tl.where({exist}, {text}, {other})" if exist else text

    def _check(self) -> None:
        blocks = any(run.block > 1 for run in self.alias.runs)
        if blocks or self.load.dtype == "int4":
            what = "values of blocks" if blocks else "int4 codes"
            raise FormatError(
                f"Triton kernels read no windows of {what}, as {self.load.wire!r} has them",
                box=self.load.wire,
                remedy="turn them into numbers in a kernel before this one (dk.cast or dk.dequantize, which fuse leaves"
                " out), then take windows of these; or use numba",
            )

    def gathered(self, text: str) -> str:
        """The block over all axes of the windows, from the runs."""
        shape = [self.length(run) for run in self.runs] + [self.frame.block[axis] for axis in self.others]
        for place, run in enumerate(self.runs):
            axes = self.axes(run)
            blocks = tuple(self.frame.block[axis] for axis in axes)
            shape[place] = prod(blocks)
            flat = f"tl.reshape(tl.broadcast_to({self.places(axes)}, {_shape(blocks)}), {_shape([prod(blocks)])})"
            at = ", ".join(":" if n == place else "None" for n in range(len(shape)))
            text = f"tl.gather({text}, tl.broadcast_to({flat}[{at}], {_shape(shape)}), {place})"
        sides = [self.frame.block[axis] for run in self.runs for axis in self.axes(run)]
        return f"tl.reshape({text}, {_shape([*sides, *shape[len(self.runs) :]])})"

    def places(self, axes: dict[str, int]) -> str:
        """Where in its run the position of every window lies."""
        order, parts = tuple(axes), []
        for axis, sign in axes.items():
            lane = self.frame.lane(axis)
            place = lane if sign > 0 else f"{self.frame.block[axis] - 1} - {lane}"
            parts.append(self.frame.aligned(place, (axis,), order))
        return " + ".join(parts)

    def pointer(self) -> str:
        """Where the elements lie: one offset per axis of the array."""
        frame, array = self.frame, self.load.array
        reads = zip(names_of(self.alias.axes), self.alias.coordinates, strict=True)
        terms = (f"offset({self.place(read)}, {frame.step(array, axis, False)})" for axis, read in reads)
        return " + ".join([frame.pointer(array, False), *terms])

    def place(self, read: Any) -> str:
        """A coordinate as text, laid out for the lanes."""
        for number, run in enumerate(self.runs):
            if any(read.has(coordinate(axis)) for axis in run.axes):
                at = f"({self.least(read, run)} + tl.arange(0, {self.length(run)}))"
                return self.frame.aligned(at, (f"run {number}",), self.lanes)
        return position(read.xreplace(self.frame.sizes), self.values())

    def values(self) -> dict[Any, str]:
        """Positions and open sizes, as they stand in the other coordinates."""
        frame = self.frame
        found = {size(name): frame.size_of(name) for name in sized(frame.kernel)}
        for axis in names_of(self.alias.over):
            at = frame.at(axis)
            found[coordinate(axis)] = frame.aligned(at, (axis,), self.lanes) if axis in self.others else at
        return found

    def least(self, read: Any, run: Run) -> str:
        """The least position of the block: where every axis stands at its least."""
        values = self.values()
        for axis, sign in self.axes(run).items():
            start = "0" if self.frame.spans[axis].role == "whole" else self.frame.first(axis)
            values[coordinate(axis)] = start if sign > 0 else f"({start} + {self.frame.block[axis] - 1})"
        return position(read.xreplace(self.frame.sizes), values)

    def masks(self) -> Iterator[str]:
        """Which lanes a window that exists reads, and which lie inside the array."""
        frame = self.frame
        for axis in (one for one in self.others if frame.open(one)):
            yield frame.aligned(frame.inside(axis), (axis,), self.lanes)
        for number, run in enumerate(self.runs):
            for test in self._read(run):
                yield frame.aligned(f"({test})", (f"run {number}",), self.lanes)
        for read, length in self.alias.bounds:
            at = self.bounded(read)
            yield f"{at} >= 0"
            yield f"{at} < {position(length.xreplace(frame.sizes), self.values())}"

    def bounded(self, read: Any) -> str:
        """The position that must lie inside: a coordinate, or one a few places beside it."""
        for run, own in zip(self.alias.runs, self.alias.coordinates, strict=True):
            beside = shifted(read, own) if run in self.runs else None
            if beside is not None:
                return f"{self.place(own)} + {position(beside.xreplace(self.frame.sizes), self.values())}"
        return self.place(read)

    def _read(self, run: Run) -> Iterator[str]:
        """Tests on the places of a run: no window that exists reads below the first or beyond the last."""
        axes, block = self.axes(run), self.frame.block
        lane, sure = f"tl.arange(0, {self.length(run)})", {axis: not self.frame.open(axis) for axis in axes}
        spare = [f"{block[axis]} - {self.existing(axis)}" for axis in axes if axes[axis] < 0 and not sure[axis]]
        if spare:
            yield f"{lane} >= {' + '.join(spare)}"
        reach = [block[axis] if sign < 0 or sure[axis] else self.existing(axis) for axis, sign in axes.items()]
        yield f"{lane} <= {' + '.join(map(str, reach))} - {len(axes)}"

    def existing(self, axis: str) -> str:
        """How many positions of the tile exist along an axis."""
        frame, tile = self.frame, self.frame.tile(axis)
        if frame.spans[axis].role == "whole":
            return frame.size_of(axis)
        return f"min({tile}, {frame.size_of(axis)} - {frame.first(axis)})" if frame.ragged(axis) else str(tile)


def _shape(lengths: Any) -> str:
    lengths = list(lengths)
    return f"({', '.join(map(str, lengths))}{',' if len(lengths) == 1 else ''})"
