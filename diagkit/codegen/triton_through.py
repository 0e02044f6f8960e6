"""Loads through views in Triton: pointers from the coordinates of the view, 0 where it sees nothing.

What several positions of a tile read the same is read once and spread over them: one value for each block
of positions, or one for a whole axis. int4 codes are read two by two, along the axis on which the place in a
byte depends, wherever that lies in the view.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from diagkit.codegen.layout import Order, sized
from diagkit.codegen.scalars import position
from diagkit.codegen.triton_frame import Frame, power_of_two
from diagkit.codegen.triton_views import shape_of
from diagkit.codegen.triton_windows import Windows, overlapping
from diagkit.program import Load
from diagkit.term import Alias, FormatError, coordinate, exact, size
from diagkit.term import names as names_of

WHOLE_NUMBERS = ("bool", "int64", "int32", "int8", "int4", "fp8e8m0")
"""Formats of which a load brings whole numbers."""


def read(dtype: str, text: str, mask: str) -> str:
    """What a load brings, as numbers: codes out of bytes, powers of two out of exponents; 0 beyond the `mask`."""
    if dtype == "fp8e8m0":
        return f"tl.where({mask}, powers({text}), 0.0)" if mask else f"powers({text})"
    return f"codes({text})" if dtype == "int4" else text


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
        width = self.blocks[axis]
        if axis not in self.frame.block:
            return 1
        return max(self.frame.block[axis] // width, 1) if _is_power(width) else -(-self.frame.tile(axis) // width)

    def numbered(self, axis: str) -> int:
        """As `several`, rounded up to what a block of numbers can be."""
        return power_of_two(self.several(axis))

    @cached_property
    def lanes(self) -> Order:
        """The axes along which different elements are read; that of the pairs of codes comes last."""
        axes = [axis for axis in self.order if axis in self.alias.read]
        found = [axis for axis in axes if axis not in self.blocks or self.several(axis) > 1]
        return tuple(sorted(found, key=lambda axis: axis == self.pairs))

    def text(self, other: str) -> str:
        """The tile: loaded, and spread where several positions read the same; `other` is what lies beyond."""
        runs = overlapping(self.frame, self.alias)
        if runs:
            return Windows(self.frame, self.load, self.alias, runs).text(other)
        masks = " & ".join(f"({mask})" for mask in self.masks())
        guard = f", mask={masks}, other={other}" if masks else ""
        return self.spread(read(self.load.dtype, f"tl.load({self.pointer()}{guard})", masks))

    def pointer(self) -> str:
        """Where the elements lie: one offset per axis of the array."""
        frame, array = self.frame, self.load.array
        places = [self.place(read) for read in self.alias.coordinates]
        if self.pairs:
            places[-1] = self.byte(self.alias.coordinates[-1])
        steps = (frame.step(array, axis, False) for axis in names_of(self.alias.axes))
        terms = (f"offset({place}, {step})" for place, step in zip(places, steps, strict=True))
        return " + ".join([frame.pointer(array, False), *terms])

    def place(self, read: Any) -> str:
        """A coordinate as text, laid out for the lanes."""
        axis = next((axis for axis in self.blocks if read.has(coordinate(axis))), None)
        if axis is not None:
            return self.frame.aligned(self.numbers(axis), (axis,) if axis in self.lanes else (), self.lanes)
        return position(read.xreplace(self.frame.sizes), self.values())

    def byte(self, read: Any) -> str:
        """The byte of a pair of codes, laid out for the lanes."""
        frame, axis = self.frame, self.pairs
        assert axis is not None
        start = "" if frame.spans[axis].role == "whole" else f"{frame.first(axis)} // 2 + "
        pair = frame.aligned(f"({start}{frame.pair_lane(axis)})", (axis,), self.lanes)
        rest = (exact(read) - coordinate(axis)).xreplace(frame.sizes)
        return f"{position(sympy.expand(rest / 2), self.values())} + {pair}" if rest != 0 else pair

    def values(self) -> dict[Any, str]:
        """Positions and open sizes, as they stand in coordinates; of a pair of codes the position of the first."""
        frame = self.frame
        found = {size(name): frame.size_of(name) for name in sized(frame.kernel)}
        for axis in names_of(self.alias.over):
            at = self._first_of_pair(axis) if axis == self.pairs else frame.at(axis)
            found[coordinate(axis)] = frame.aligned(at, (axis,), self.lanes) if axis in self.lanes else at
        return found

    def _first_of_pair(self, axis: str) -> str:
        start = "" if self.frame.spans[axis].role == "whole" else f"{self.frame.first(axis)} + "
        return f"({start}2 * {self.frame.pair_lane(axis)})"

    def numbers(self, axis: str) -> str:
        """The numbers of the blocks that the tile meets along an axis: several, or the one it lies in."""
        frame = self.frame
        start = "" if frame.spans[axis].role == "whole" else f"{frame.first(axis)} // {self.blocks[axis]}"
        if axis not in self.lanes:
            return start or "0"
        numbers = f"tl.arange(0, {self.numbered(axis)})"
        return f"({start} + {numbers})" if start else numbers

    def masks(self) -> Iterator[str]:
        """Which lanes exist, and lie inside the array."""
        frame = self.frame
        for axis in self.lanes:
            if axis in self.blocks and (frame.open(axis) or self.numbered(axis) > self.several(axis)):
                yield frame.aligned(f"({self._met(axis)})", (axis,), self.lanes)
            elif axis not in self.blocks and frame.open(axis):
                inside = f"({frame.pairs_inside(axis)})" if axis == self.pairs else frame.inside(axis)
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
            parts.append(f"tl.arange(0, {self.numbered(axis)}) * {block} < {frame.tile(axis)}")
        return " & ".join(f"({part})" for part in parts)

    def spread(self, text: str) -> str:
        """What was loaded, over the whole tile."""
        lengths = [self.numbered(one) if one in self.blocks else self.frame.block[one] for one in self.lanes]
        for place, axis in enumerate(self.lanes):
            if axis in self.blocks:
                spread = self._repeated if _is_power(self.blocks[axis]) else self._gathered
                text = spread(text, axis, place, lengths)
                lengths[place] = self.frame.block[axis]
        if self.lanes == self.order:
            return text
        text = self.frame.aligned(text, self.lanes, self.order)
        if set(self.lanes) == set(self.order):
            return text
        return f"tl.broadcast_to({text}, {self.frame.shape(self.order)})"

    def _repeated(self, text: str, axis: str, place: int, lengths: list[int]) -> str:
        """A value for each block at each position: blocks of a power of two lie side by side in the tile."""
        before, after = lengths[: place + 1], lengths[place + 1 :]
        marks = ", ".join([*(":" for _ in before), "None", *(":" for _ in after)])
        wide = [*before, self.blocks[axis], *after]
        tile = [*before[:-1], self.frame.block[axis], *after]
        return f"tl.reshape(tl.broadcast_to({text}[{marks}], {shape_of(wide)}), {shape_of(tile)})"

    def _gathered(self, text: str, axis: str, place: int, lengths: list[int]) -> str:
        """A value for each block at each position: blocks of another width are looked up."""
        frame = self.frame
        number = f"tl.minimum({frame.lane(axis)} // {self.blocks[axis]}, {self.several(axis) - 1})"
        tile = [*lengths[:place], frame.block[axis], *lengths[place + 1 :]]
        marks = ", ".join("None" if other != place else ":" for other in range(len(lengths)))
        numbers = f"tl.broadcast_to({number}[{marks}], {shape_of(tile)})" if len(lengths) > 1 else number
        return f"tl.gather({text}, {numbers}, {place})"

    @cached_property
    def pairs(self) -> str | None:
        """The axis along which int4 codes are read two by two: the last axis of the array runs along it, and all
        else moves by whole bytes. None of other formats; FormatError where no axis is such."""
        if self.load.dtype != "int4" or not self.alias.coordinates:
            return None
        read = exact(self.alias.coordinates[-1]).xreplace(self.frame.sizes)
        for axis in (one for one in self.order if read.coeff(coordinate(one)) == 1):
            rest = sympy.expand((read - coordinate(axis)) / 2)
            whole = self.frame.tile(axis) % 2 == 0 and not read.has(sympy.floor)
            if whole and all(slope.is_Integer for slope in rest.as_coefficients_dict().values()):
                return axis
        raise FormatError(
            f"Triton kernels read the int4 codes of {self.load.array!r} two by two, and {self.wire!r} does not",
            box=self.wire,
            remedy="read whole bytes: an even tile along the array's last axis, even shifts and parts; or use numba",
        )


def _is_power(width: int) -> bool:
    return not width & (width - 1)
