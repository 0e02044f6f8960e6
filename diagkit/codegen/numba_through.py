"""Loads through views, as numba functions: each element is read where the view says it lies in the array."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from diagkit.codegen.numba_frame import Frame
from diagkit.codegen.scalars import position
from diagkit.codegen.writer import Writer
from diagkit.program import Load
from diagkit.term import Alias, Run, names

NOTHING = {"number": "number(0.0)", "bool": "False"}
"""What is read beyond an array; 0 of whole numbers."""


def write_through(frame: Frame, move: Load, alias: Alias) -> str:
    """Write the function that loads a tile through a view; the call to it. When counting, it returns how many
    elements of the array it read."""
    writer, wire = Writer(), move.wire
    if frame.counted:
        writer.add("count = 0", move.column)
    loops = [f"for {frame.axis(axis)} in range({frame.extent(wire, axis)}):" for axis in frame.order(wire)]
    seen = [f"0 <= {_text(frame, read)} < {_text(frame, length)}" for read, length in alias.bounds]
    element = _element(frame, move, alias)
    with writer.nested(*loops, column=move.column):
        chosen = f"{element} if {' and '.join(seen)} else {NOTHING.get(frame.element(wire), '0')}" if seen else element
        writer.add(f"{frame.at(wire)} = {chosen}", move.column)
        if frame.counted:
            counted = " and ".join([*seen, *_first(frame, wire, alias)])
            writer.add(f"count += 1 if {counted} else 0" if counted else "count += 1", move.column)
    return frame.function(f"{move.kind}_{wire}", writer.lines, "count" if frame.counted else "")


def _text(frame: Frame, read: Any) -> str:
    return position(read, frame.places()) if hasattr(read, "free_symbols") else str(read)


def _element(frame: Frame, move: Load, alias: Alias) -> str:
    """The element of the array; of int4 codes the half of a byte."""
    array, reads = frame.array(move.array), [_text(frame, read) for read in alias.coordinates]
    if move.dtype != "int4" or not reads:
        return f"{array}[{', '.join(reads) or '0'}]"
    byte = f"{array}[{', '.join([*reads[:-1], f'({reads[-1]}) // 2'])}]"
    return f"(upper({byte}) if ({reads[-1]}) % 2 else lower({byte}))"


def _first(frame: Frame, wire: str, alias: Alias) -> Iterator[str]:
    """When an element is the first of those in the tile that read the same."""
    blocks = {axis: run.block for run in alias.runs for axis in run.axes if run.block > 1}
    for axis in (one for one in names(alias.over) if one in frame.order(wire)):
        if axis in blocks:
            yield f"({frame.axis(axis)} == 0 or {frame.position(axis)} % {blocks[axis]} == 0)"
        elif axis not in alias.read:
            yield f"{frame.axis(axis)} == 0"
    for run in (one for one in alias.runs if one.signs):
        yield f"({' or '.join(_path(frame, wire, run))})"


def _path(frame: Frame, wire: str, run: Run) -> Iterator[str]:
    """The windows of a tile that meet each position once: along one axis after the other, from the least position
    to the greatest. Where each axis but one stands at an end, and that one anywhere."""
    ends = {
        axis: (frame.axis(axis), f"{frame.extent(wire, axis)} - 1") for axis in run.axes if axis in frame.order(wire)
    }
    signs = dict(zip(run.axes, run.signs, strict=True))
    low = {axis: f"{at} == {last if signs[axis] < 0 else 0}" for axis, (at, last) in ends.items()}
    high = {axis: f"{at} == {last if signs[axis] > 0 else 0}" for axis, (at, last) in ends.items()}
    for place in range(len(ends)):
        yield " and ".join([*list(high.values())[:place], *list(low.values())[place + 1 :]]) or "True"
