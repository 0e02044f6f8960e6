"""Contractions as numba functions: products of matrices by the BLAS, loops of their own where a side has few
rows, and any other sum of products."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

import sympy

from diagkit.codegen.layout import Order, Product, single
from diagkit.codegen.numba_boxes import loops
from diagkit.codegen.numba_frame import Frame
from diagkit.codegen.writer import Writer
from diagkit.program import Compute, Load, Store
from diagkit.term import Box, names

FEW = 8
"""So many rows or less are multiplied row by row: a BLAS lays out the other side anew for each product, which
pays where many rows share it."""


def write_contract(frame: Frame, compute: Compute) -> str:
    """Write the function of a contraction; the call to it."""
    box = compute.box
    product, many = frame.layout.products.get(box.name), _read_by_rows(frame, box)
    writer = Writer()
    if many:
        _row_by_row(frame, writer, box, many, compute.column)
    elif product and _is_product(frame, box):
        _product(frame, writer, box, product, compute.column)
    else:
        _sum_of_products(frame, writer, box, compute.column)
    return frame.function(f"{box.name}_product", writer.lines)


def read_in_place(frame: Frame) -> set[str]:
    """Loaded tiles that need no copy, since nothing but products touches them: those read row by row, through the
    cache, and those that are matrices as they lie in the array. A kernel that counts copies them, to count what it
    copies."""
    if frame.counted:
        return set()
    plain = {move.wire for move in frame.moves if isinstance(move, Load) and _as_it_lies(frame, move)}
    for statement in frame.kernel.statements:
        if isinstance(statement, Compute):
            plain -= set(statement.box.inputs) - _read_as_they_lie(frame, statement.box)
        elif isinstance(statement, Store):
            plain.discard(statement.wire)
    shared = Counter(frame.layout.buffer.values())
    return {wire for wire in plain if frame.layout.buffer[wire] == wire and shared[wire] == 1}


def _read_as_they_lie(frame: Frame, box: Box) -> set[str | None]:
    """The inputs of a product that it can read in the array: the side of many rows beside few, and what lies there
    in one piece."""
    many = _read_by_rows(frame, box)
    if many or not _is_product(frame, box):
        return {many}
    return {
        wire for wire in box.inputs if frame.dense and frame.element(wire) == "number" and _in_one_piece(frame, wire)
    }


def _is_product(frame: Frame, box: Box) -> bool:
    """Whether a box is written as a product of matrices."""
    product = frame.layout.products.get(box.name)
    return bool(product and frame.order(box.name) in product.made and frame.element(box.name) == "number")


def _in_one_piece(frame: Frame, wire: str) -> bool:
    """Whether a tile is one stretch of a dense array: all of each axis behind the first that it has."""
    held = frame.order(wire)
    return bool(held) and all(frame.kernel.span[axis].role == "whole" for axis in held[1:])


def _as_it_lies(frame: Frame, move: Load) -> bool:
    """Whether the tile is a part of the array as it stands there, in its order of axes."""
    axes = names(frame.kernel.wire[move.wire].axes)
    held = tuple(axis for axis in axes if not single(frame.kernel, axis))
    return move.through is None and not frame.paired(move.wire) and frame.order(move.wire) == held


def _read_by_rows(frame: Frame, box: Box) -> str | None:
    product = frame.layout.products.get(box.name)
    return _beside_few(frame, box, product) if product else None


def _beside_few(frame: Frame, box: Any, product: Product) -> str | None:
    """The input whose other side has few rows, where it has."""
    sides = product.rows, product.columns
    pairs = zip(box.inputs, sides, reversed(sides), strict=True)
    return next((wire for wire, axes, others in pairs if axes and _are_few(frame, others)), None)


def _are_few(frame: Frame, axes: Order) -> bool:
    return prod(_length_known(frame, axis) for axis in axes) <= FEW


def _length_known(frame: Frame, axis: str) -> int:
    """The length of a tile along an axis, or more than few where the text must not depend on it."""
    span = frame.kernel.span[axis]
    length = span.size if span.role == "whole" else span.tile
    known = isinstance(length, sympy.Integer | int) and axis not in frame.open
    return int(length) if known else FEW + 1


def _row_by_row(frame: Frame, writer: Writer, box: Any, many: str, column: str) -> None:
    """Each row of the side with few meets the elements of the other in the order in which they lie: numbers that
    are summed along its last axis gather in a local, others in a row of the result."""
    lies, made = frame.order(many), frame.order(box.name)
    summed = [axis for axis in lies if axis not in made]
    if lies[-1] in summed:
        _sum_of_products(frame, writer, box, column)
        return
    kind, few = frame.elements(box.name), next(wire for wire in box.inputs if wire != many)
    across = [axis for axis in made if axis not in lies]
    along = [axis for axis in lies if axis in made]
    shared = [axis for axis in along if axis in frame.order(few)]
    writer.add(f"{frame.tile(box.name)}[...] = {kind}(0)", column)
    outer = [(few, axis) for axis in (*shared, *summed, *across)]
    with writer.nested(*loops(frame, outer), column=column):
        writer.add(f"{frame.here(few)} = {kind}({frame.at(few)})", column)
        with writer.nested(*loops(frame, [(many, a) for a in along if a not in shared]), column=column):
            added = f"{frame.at(box.name)} + {frame.here(few)} * {kind}({frame.at(many)})"
            writer.add(f"{frame.at(box.name)} = {kind}({added})", column)


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
    with writer.nested(*loops(frame, [(wire, axis) for axis in forms[0]]), column=column):
        places = ", ".join(map(frame.axis, forms[0])) or "0"
        writer.add(f"{packed}[{places}] = number({frame.at(wire)})", column)
    return packed, forms[0]


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
    with writer.nested(*loops(frame, [(box.name, axis) for axis in frame.order(box.name)]), column=column):
        writer.add(f"{local} = {kind}(0)", column)
        with writer.nested(*loops(frame, summed), column=column):
            writer.add(f"{local} = {kind}({local} + {factors})", column)
        writer.add(f"{frame.at(box.name)} = {local}", column)
