"""Views, loads and stores as numba functions, and the buffers that tiles lie in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diagkit.codegen.numba_frame import Frame
from diagkit.codegen.numba_through import NOTHING, write_through
from diagkit.codegen.scalars import position
from diagkit.codegen.writer import Writer
from diagkit.program import Compute, Load, Store
from diagkit.term import coordinate


def loops(frame: Frame, axes: Iterable[tuple[str, str]], halved: str | None = None) -> list[str]:
    """Loops over the tile of a wire, each with its axis; half as long along the axis that is `halved`."""
    halves = {halved: " // 2"}
    return [
        f"for {frame.axis(axis)} in range({frame.extent(wire, axis)}{halves.get(axis, '')}):" for wire, axis in axes
    ]


def write_view(frame: Frame, compute: Compute) -> str:
    """Write the function of a view; the call to it."""
    box: Any = compute.box
    source, writer = box.inputs[0], Writer()
    nothing = NOTHING.get(frame.element(source), "0")
    with writer.nested(*loops(frame, [(box.name, a) for a in frame.order(box.name)]), column=compute.column):
        inside, read = _coordinates(frame, writer, box, source, compute.column)
        element = f"{frame.tile(source)}[{', '.join(read) or '0'}]"
        chosen = f"{element} if {' and '.join(inside)} else {nothing}" if inside else element
        writer.add(f"{frame.at(box.name)} = {chosen}", compute.column)
    return frame.function(f"make_{box.name}", writer.lines)


def _coordinates(frame: Frame, writer: Writer, box: Any, source: str, column: str) -> tuple[list[str], list[str]]:
    """Conditions under which the view reads inside the tile, and the places it reads."""
    inside, read = [], {}
    for axis, formula in zip(frame.kernel.wire[source].axes, box.coordinates, strict=True):
        if formula == coordinate(axis.name):
            read[axis.name] = frame.axis(axis.name)
            continue
        at = frame.names.of((frame.title, "read", box.name, axis.name), f"{axis.name}_at")
        whole = frame.kernel.span[axis.name].role == "whole"
        text = position(formula, frame.places())
        writer.add(f"{at} = {text}" if whole else f"{at} = {text} - {frame.first(axis.name)}", column)
        held = axis.name in frame.order(source)
        inside.append(f"0 <= {at} < {frame.extent(source, axis.name)}" if held else f"{at} == 0")
        read[axis.name] = at
    return inside, [read[axis] for axis in frame.order(source)]


def write_move(frame: Frame, move: Load | Store) -> str:
    """Write the function that loads or stores a tile; the call to it. When counting, it returns how many
    elements it touched."""
    if isinstance(move, Load) and move.through is not None:
        return write_through(frame, move, move.through)
    writer = Writer()
    pairs = frame.paired(move.wire)
    around = [(move.wire, axis) for axis in frame.order(move.wire)]
    if frame.counted:
        writer.add("count = 0", move.column)
    with writer.nested(*loops(frame, around, halved=pairs), column=move.column):
        for line in _pair(frame, move, pairs) if pairs else _element(frame, move):
            writer.add(line, move.column)
        if frame.counted:
            writer.add(f"count += {2 if pairs else 1}", move.column)
    return frame.function(f"{move.kind}_{move.wire}", writer.lines, "count" if frame.counted else "")


def _element(frame: Frame, move: Load | Store) -> list[str]:
    tile, whole = frame.at(move.wire), frame.in_array(move.wire)
    return [f"{tile} = {whole}" if isinstance(move, Load) else f"{whole} = {tile}"]


def _pair(frame: Frame, move: Load | Store, axis: str) -> list[str]:
    """Two codes of the tile and the byte that holds them in the array; the tile begins with a whole byte."""
    place = frame.axis(axis)
    first, second = (frame.at(move.wire, {axis: text}) for text in (f"2 * {place}", f"2 * {place} + 1"))
    start = "" if frame.kernel.span[axis].role == "whole" else f"{frame.first(axis)} // 2 + "
    byte = frame.in_array(move.wire, {axis: start + place})
    if isinstance(move, Store):
        return [f"{byte} = paired({first}, {second})"]
    return [f"{first} = lower({byte})", f"{second} = upper({byte})"]


def buffer_length(frame: Frame, wire: str) -> str:
    """Elements of the largest tile of a wire, as text."""
    return " * ".join(_full(frame, axis) for axis in frame.order(wire)) or "1"


def _full(frame: Frame, axis: str) -> str:
    span = frame.kernel.span[axis]
    return frame.size(axis) if span.role == "whole" else f"min({frame.step(axis)}, {frame.size(axis)})"


def tile_view(frame: Frame, wire: str, buffer: str) -> str:
    """The tile as an array of its current shape, at the front of its buffer."""
    counts = [frame.count(axis) for axis in frame.order(wire)]
    if not counts:
        return buffer
    front = f"{buffer}[: {' * '.join(counts)}]"
    return front if len(counts) == 1 else f"{front}.reshape({', '.join(counts)})"
