"""Views of tiles on chip: axes under other names, an axis cut into blocks of positions, and one value for each
block read at all its positions. Other views are gathers, which Triton's blocks cannot do.

Blocks of positions lie side by side in a tile where their width is a power of two and the axis is held whole.
"""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.codegen.layout import Order
from diagkit.codegen.triton_frame import Frame
from diagkit.term import FormatError, coordinate, exact
from diagkit.term import names as names_of


def view(frame: Frame, box: Any) -> tuple[str, Order, str]:
    """The text of a view, the order of its axes, and what its elements are. Raises FormatError for a gather."""
    (wire,) = box.inputs
    text, order = frame.variable(wire), frame.order[wire]
    reads = dict(zip(names_of(frame.kernel.wire[wire].axes), map(exact, box.coordinates), strict=True))
    wanted: list[str] = []
    for axis, read in reads.items():
        parts, width = _parts(box, read)
        wanted += parts
        if len(parts) == 2:
            text = _nothing_beyond(frame, wire, text, axis, order)
        if not _fits(frame, axis, parts, width):
            raise _refused(box)
        if axis in order:
            text = _laid_out(frame, text, order, axis, parts, width)
            order = tuple(part for one in order for part in (frame.within(parts) if one == axis else (one,)))
    if sorted(wanted) != sorted(names_of(box.axes)):
        raise _refused(box)
    return text, order, frame.held[wire]


def _parts(box: Any, read: Any) -> tuple[Order, int]:
    """The axes of the view that a coordinate reads, and the width of the blocks that it is about: one axis and 1
    is a name; two (the block, the place in it) are an axis that is cut; one and more than 1, blocks."""
    along = {coordinate(axis.name): axis.name for axis in box.axes}
    if read in along:
        return (along[read],), 1
    if read.func is sympy.floor:
        above, width = read.args[0].as_numer_denom()
        if above in along and width.is_Integer:
            return (along[above],), int(width)
    slopes = {name: read.coeff(symbol) for symbol, name in along.items() if read.has(symbol)}
    if len(slopes) == 2 and read == sum(slope * coordinate(name) for name, slope in slopes.items()):
        (inner, one), (outer, width) = sorted(slopes.items(), key=lambda item: item[1])
        if one == 1 and width.is_Integer:
            return (outer, inner), int(width)
    raise _refused(box)


def _fits(frame: Frame, axis: str, parts: Order, width: int) -> bool:
    """Whether the blocks of the axes are those of the axis, as a name or as blocks side by side."""
    spans, blocks = frame.spans, frame.block
    if width == 1:
        return blocks.get(axis) == blocks.get(parts[0])
    whole = all(spans[one].role == "whole" for one in (axis, *parts))
    if len(parts) == 1:
        return whole and blocks[axis] * width == blocks[parts[0]]
    outer, inner = parts
    return whole and frame.tile(inner) == blocks[inner] == width and blocks[outer] * width == blocks[axis]


def _laid_out(frame: Frame, text: str, order: Order, axis: str, parts: Order, width: int) -> str:
    """The block with the parts in place of the axis."""
    if width == 1:
        return text
    place = order.index(axis)
    lengths = [frame.block[one] for one in order]
    if len(parts) == 1:
        marks = ", ".join([":"] * (place + 1) + ["None"] + [":"] * (len(order) - place - 1))
        wide = [*lengths[: place + 1], width, *lengths[place + 1 :]]
        text = f"tl.broadcast_to({text}[{marks}], {shape_of(wide)})"
    wanted = [*lengths[:place], *(frame.block[one] for one in parts), *lengths[place + 1 :]]
    return f"tl.reshape({text}, {shape_of(wanted)})"


def _nothing_beyond(frame: Frame, wire: str, text: str, axis: str, order: Order) -> str:
    """The block with 0 beyond the end of an axis: a short last block counts that."""
    mask = "" if wire in frame.zeroed else frame.masks([axis], order)
    return f"tl.where({mask}, {text}, 0)" if mask else text


def shape_of(lengths: list[int]) -> str:
    """A block's shape as text."""
    return f"({', '.join(map(str, lengths))}{',' if len(lengths) == 1 else ''})"


def _refused(box: Any) -> FormatError:
    return FormatError(
        f"Triton kernels cannot gather the view {box.name!r}",
        box=box.name,
        remedy="run this diagram with numba, make the view before the kernel, or hold the axis whole in blocks"
        " of a power of two",
    )
