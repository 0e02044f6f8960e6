"""Loads through views in Triton: pointers from the coordinates of the view, 0 where it sees nothing.

What several positions of a tile read the same is read once and spread over them: one value for each block
of positions, or one for a whole axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from diagkit.codegen.layout import Order, sized
from diagkit.codegen.scalars import position
from diagkit.codegen.triton_frame import Frame
from diagkit.codegen.triton_windows import Windows, overlapping
from diagkit.program import Load
from diagkit.term import Alias, FormatError, coordinate, size
from diagkit.term import names as names_of


@dataclass(frozen=True)
class Through:
    """One load through a view: what it reads, `lanes` the axes of the block of pointers."""

    frame: Frame
    load: Load
    alias: Alias

    @property
    def wire(self) -> str:
        """The alias."""
        return self.load.wire

    @property
    def order(self) -> Order:
        """The axes of the tile."""
        return self.frame.along(self.wire)

    @property
    def blocks(self) -> dict[str, int]:
        """The axes along which a value is read per block of so many positions."""
        return {axis: run.block for run in self.alias.runs for axis in run.axes if run.block > 1}

    def several(self, axis: str) -> int:
        """How many blocks a tile holds along such an axis."""
        block = self.blocks[axis]
        if self.frame.block.get(axis, 1) > block and block & (block - 1):
            raise FormatError(
                f"Triton kernels spread values over blocks of a power of two, and {self.wire!r} has one for each"
                f" {block} positions of {axis!r}",
                box=self.wire,
                axis=axis,
                remedy=f"use blocks of a power of two, tiles of {axis!r} within one block, or numba",
            )
        return max(self.frame.block.get(axis, 1) // block, 1)

    @property
    def lanes(self) -> Order:
        """The axes along which different elements are read."""
        read = [axis for axis in self.order if axis in self.alias.read]
        return tuple(axis for axis in read if axis not in self.blocks or self.several(axis) > 1)

    def text(self, other: str) -> str:
        """The tile: loaded, and spread where several positions read the same; `other` is what lies beyond."""
        runs = overlapping(self.frame, self.alias)
        if runs:
            return Windows(self.frame, self.load, self.alias, runs).text(other)
        masks = " & ".join(f"({mask})" for mask in self.masks())
        guard = f", mask={masks}, other={other}" if masks else ""
        text = f"tl.load({self.pointer()}{guard})"
        return self.spread(f"codes({text})" if self.pairs() else text)

    def pointer(self) -> str:
        """Where the elements lie: one offset per axis of the array."""
        frame, array = self.frame, self.load.array
        places = zip(names_of(self.alias.axes), self.alias.coordinates, strict=True)
        terms = (f"offset({self.place(read)}, {frame.step(array, axis, False)})" for axis, read in places)
        return " + ".join([frame.pointer(array, False), *terms])

    def place(self, read: Any) -> str:
        """A coordinate as text, laid out for the lanes."""
        frame = self.frame
        axis = next((axis for axis, block in self.blocks.items() if read.has(coordinate(axis))), None)
        if axis is not None:
            return frame.aligned(self.numbers(axis), (axis,) if axis in self.lanes else (), self.lanes)
        last = self.pairs()
        if last is not None and read == coordinate(last):
            start = "" if frame.spans[last].role == "whole" else f"{frame.first(last)} // 2 + "
            return frame.aligned(f"({start}{frame.pair_lane(last)})", (last,), self.lanes)
        return position(read.xreplace(frame.sizes), self.values())

    def values(self) -> dict[Any, str]:
        """Positions and open sizes, as they stand in coordinates."""
        frame = self.frame
        found = {size(name): frame.size_of(name) for name in sized(frame.kernel)}
        for axis in names_of(self.alias.over):
            lane = axis in self.lanes
            at = frame.aligned(frame.at(axis), (axis,), self.lanes) if lane else frame.at(axis)
            found[coordinate(axis)] = at
        return found

    def numbers(self, axis: str) -> str:
        """The numbers of the blocks that the tile meets along an axis: several, or the one it lies in."""
        frame, several = self.frame, self.several(axis)
        start = "" if frame.spans[axis].role == "whole" else f"{frame.first(axis)} // {self.blocks[axis]}"
        if axis not in self.lanes:
            return start or "0"
        return f"({start} + tl.arange(0, {several}))" if start else f"tl.arange(0, {several})"

    def masks(self) -> Iterator[str]:
        """Which lanes exist, and lie inside the array."""
        frame, last = self.frame, self.pairs()
        for axis in (one for one in self.lanes if frame.open(one)):
            if axis in self.blocks:
                yield frame.aligned(f"({self._met(axis)})", (axis,), self.lanes)
            else:
                inside = f"({frame.pairs_inside(axis)})" if axis == last else frame.inside(axis)
                yield frame.aligned(inside, (axis,), self.lanes)
        for read, length in self.alias.bounds:
            at, values = position(read.xreplace(frame.sizes), self.values()), self.values()
            if read.is_nonnegative is not True:
                yield f"{at} >= 0"
            yield f"{at} < {position(length.xreplace(frame.sizes), values)}"

    def _met(self, axis: str) -> str:
        """Which blocks have a position in the tile."""
        frame, block = self.frame, self.blocks[axis]
        parts = [f"{self.numbers(axis)} * {block} < {frame.size_of(axis)}"]
        if frame.padded(axis) and frame.spans[axis].role != "whole":
            parts.append(f"tl.arange(0, {self.several(axis)}) * {block} < {frame.tile(axis)}")
        return " & ".join(f"({part})" for part in parts)

    def spread(self, text: str) -> str:
        """What was loaded, over the whole tile."""
        lengths = [self.several(one) if one in self.blocks else self.frame.block[one] for one in self.lanes]
        for place, axis in enumerate(self.lanes):
            if axis in self.blocks:
                block = self.blocks[axis]
                marks = [":"] * (place + 1) + ["None"] + [":"] * (len(lengths) - place - 1)
                wide = [*lengths[: place + 1], block, *lengths[place + 1 :]]
                lengths[place] *= block
                text = f"tl.reshape(tl.broadcast_to({text}[{', '.join(marks)}], {_shape(wide)}), {_shape(lengths)})"
        if self.lanes == self.order:
            return text
        return f"tl.broadcast_to({self.frame.aligned(text, self.lanes, self.order)}, {self.frame.shape(self.order)})"

    def pairs(self) -> str | None:
        """The axis of int4 codes that lie two in a byte: it must be read as it lies."""
        if self.load.dtype != "int4" or not self.alias.over:
            return None
        last = self.alias.over[-1].name
        if self.alias.coordinates[-1] != coordinate(last) or self.frame.paired(self.wire) != last:
            raise FormatError(
                f"Triton kernels read the int4 codes of {self.load.array!r} two by two, and {self.wire!r} does not",
                box=self.wire,
                remedy="leave the last axis as it is, or use numba",
            )
        return last


def _shape(lengths: list[int]) -> str:
    return f"({', '.join(map(str, lengths))}{',' if len(lengths) == 1 else ''})"
