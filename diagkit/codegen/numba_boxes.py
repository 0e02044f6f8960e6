"""Boxes that are no sweep, as numba functions: products, other contractions, views; and loads and stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from diagkit.codegen.layout import Order, Product
from diagkit.codegen.numba_frame import Frame
from diagkit.codegen.scalars import position
from diagkit.codegen.writer import Writer
from diagkit.program import Compute, Load, Store
from diagkit.term import coordinate


def write_contract(frame: Frame, compute: Compute) -> str:
    """Write the function of a contraction; the call to it."""
    box = compute.box
    product = frame.layout.products.get(box.name)
    writer = Writer()
    if product and frame.order(box.name) in product.made and frame.element(box.name) == "number":
        _product(frame, writer, box, product, compute.column)
    else:
        _sum_of_products(frame, writer, box, compute.column)
    return frame.function(f"{box.name}_product", writer.lines)


def _product(frame: Frame, writer: Writer, box: Any, product: Product, column: str) -> None:
    left = _operand(frame, writer, box.inputs[0], product.left, column)
    right = _operand(frame, writer, box.inputs[1], product.right, column)
    made = frame.tile(box.name), frame.order(box.name)
    _nothing_to_sum(frame, writer, box, product.inner, column)
    with writer.nested(*_batches(frame, made, product.batch), column=column):
        a = _matrix(frame, *left, product.batch, product.rows, product.inner)
        b = _matrix(frame, *right, product.batch, product.inner, product.columns)
        if made[1] == product.made[0]:
            c = _matrix(frame, *made, product.batch, product.rows, product.columns)
        else:
            a, b = _turned(b), _turned(a)
            c = _matrix(frame, *made, product.batch, product.columns, product.rows)
        writer.add(f"np.dot({a}, {b}, {c})", column)


def _turned(matrix: str) -> str:
    return matrix.removesuffix(".T") if matrix.endswith(".T") else f"{matrix}.T"


def _operand(frame: Frame, writer: Writer, wire: str, forms: tuple[Order, Order], column: str) -> tuple[str, Order]:
    """The tile as it lies, or packed: as numbers, in an order that makes it a matrix."""
    order = frame.order(wire)
    if order in forms and frame.element(wire) == "number":
        return frame.tile(wire), order
    packed = f"{frame.tile(wire)}_packed"
    shape = "".join(f"{frame.extent(wire, axis)}, " for axis in forms[0]) or "1, "
    writer.add(f"{packed} = np.empty(({shape}), number)", column)
    with writer.nested(*_loops(frame, [(wire, axis) for axis in forms[0]]), column=column):
        places = ", ".join(map(frame.axis, forms[0])) or "0"
        writer.add(f"{packed}[{places}] = number({frame.at(wire)})", column)
    return packed, forms[0]


def _loops(frame: Frame, axes: Iterable[tuple[str, str]], halved: str | None = None) -> list[str]:
    """Loops over the tile of a wire, each with its axis; half as long along the axis that is `halved`."""
    halves = {halved: " // 2"}
    return [
        f"for {frame.axis(axis)} in range({frame.extent(wire, axis)}{halves.get(axis, '')}):" for wire, axis in axes
    ]


def _batches(frame: Frame, tile: tuple[str, Order], batch: Order) -> list[str]:
    return [f"for {frame.axis(axis)} in range({tile[0]}.shape[{tile[1].index(axis)}]):" for axis in batch]


def _matrix(frame: Frame, tile: str, order: Order, batch: Order, above: Order, across: Order) -> str:
    """The tile as a matrix `above` by `across`, at the places of the loops over `batch`."""
    picked = f"{tile}[{', '.join(map(frame.axis, batch))}]" if batch else tile
    turned = order != batch + above + across
    first, second = (across, above) if turned else (above, across)
    if (len(first), len(second)) != (1, 1):
        picked += f".reshape({_length(tile, order, first)}, {_length(tile, order, second)})"
    return f"{picked}.T" if turned else picked


def _length(tile: str, order: Order, axes: Order) -> str:
    return " * ".join(f"{tile}.shape[{order.index(axis)}]" for axis in axes) or "1"


def _nothing_to_sum(frame: Frame, writer: Writer, box: Any, inner: Order, column: str) -> None:
    """Empty sums are 0; libraries are not asked for products without elements."""
    if any(_may_be_empty(frame, axis) for axis in frame.order(box.name)):
        with writer.nested(f"if {frame.tile(box.name)}.size == 0:", column=column):
            writer.add("return", column)
    if any(_may_be_empty(frame, axis) for axis in inner):
        with writer.nested(
            f"if {' * '.join(frame.extent(box.inputs[0], axis) for axis in inner)} == 0:", column=column
        ):
            writer.add(f"{frame.tile(box.name)}[...] = number(0.0)", column)
            writer.add("return", column)


def _may_be_empty(frame: Frame, axis: str) -> bool:
    span = frame.kernel.span[axis]
    return span.role == "whole" and not (isinstance(span.size, sympy.Integer | int) and span.size > 0)


def _sum_of_products(frame: Frame, writer: Writer, box: Any, column: str) -> None:
    """Any contraction: one loop per axis."""
    summed = [(w, a) for w in box.inputs for a in frame.order(w) if a not in frame.order(box.name)]
    summed = list({axis: (wire, axis) for wire, axis in reversed(summed)}.values())[::-1]
    local, kind = frame.here(box.name), frame.elements(box.name)
    factors = " * ".join(f"{kind}({frame.at(wire)})" for wire in box.inputs)
    with writer.nested(*_loops(frame, [(box.name, axis) for axis in frame.order(box.name)]), column=column):
        writer.add(f"{local} = {kind}(0)", column)
        with writer.nested(*_loops(frame, summed), column=column):
            writer.add(f"{local} = {kind}({local} + {factors})", column)
        writer.add(f"{frame.at(box.name)} = {local}", column)


def write_view(frame: Frame, compute: Compute) -> str:
    """Write the function of a view; the call to it."""
    box: Any = compute.box
    source, writer = box.inputs[0], Writer()
    nothing = {"number": "number(0.0)", "bool": "False"}.get(frame.element(source), "0")
    with writer.nested(*_loops(frame, [(box.name, a) for a in frame.order(box.name)]), column=compute.column):
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
    writer = Writer()
    pairs = frame.paired(move.wire)
    loops = [(move.wire, axis) for axis in frame.order(move.wire)]
    if frame.counted:
        writer.add("count = 0", move.column)
    with writer.nested(*_loops(frame, loops, halved=pairs), column=move.column):
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
