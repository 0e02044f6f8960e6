"""Boxes on blocks: one case per kind, each the text of its result, the order of its axes, what it holds.

Blocks hold fp32, or the narrow format in which they were loaded or cast; arithmetic is in fp32, products
take both sides in the format of the wires. Positions that do not exist count as nothing in every sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2, prod
from typing import Any

import sympy

from diagkit.codegen.layout import Order, Product, sized
from diagkit.codegen.numbers import Axes, covered, folded, nonnegative, with_numbers, without
from diagkit.codegen.reach import far_inputs
from diagkit.codegen.scalars import Text, scalar
from diagkit.codegen.triton_frame import Frame
from diagkit.codegen.triton_scalars import ELEMENT, EXACT, LARGEST, TRITON, WHOLE
from diagkit.codegen.triton_views import view
from diagkit.term import Box, Cast, Contract, Index, Map, Reduce, View, arg, size
from diagkit.term import names as names_of

_NOTHING = {"sum": "0.0", "product": "1.0", "max": 'float("-inf")', "min": 'float("inf")'}
_REDUCED = {"sum": "tl.sum", "product": "product", "max": "largest", "min": "smallest"}
"""Functions of a block and an axis; Triton's own maximum and minimum leave out what is no number."""


@dataclass(frozen=True)
class Made:
    """What a box makes: its text, the order of its axes, and what its elements are."""

    text: str
    order: Order
    held: str = "float"


def made(frame: Frame, box: Box, sure: tuple[str, ...] = ()) -> Made:
    """The result of a box; the wires `sure` are masks that hold everywhere here."""
    return _map(frame, box, sure) if isinstance(box, Map) else _CASES[type(box)](frame, box)


def number(frame: Frame, wire: str, wanted: Order) -> Text:
    """A wire to compute with, laid out for `wanted`: narrow formats become fp32, short integers int32."""
    held = frame.held[wire]
    text = frame.aligned(frame.variable(wire), frame.order[wire], wanted)
    if held in ("bool", "int", "float"):
        return Text(text, held)
    return Text(f"{text}.to(tl.int32)", "int") if held == "int8" else Text(f"{text}.to(tl.float32)")


def _map(frame: Frame, box: Any, sure: tuple[str, ...]) -> Made:
    """A scalar formula, element by element."""
    order = frame.within(names_of(box.axes))
    expr = with_numbers(box, frame.numbers, frame.sizes)
    expr = expr.xreplace({arg(i): sympy.true for i, wire in enumerate(box.inputs) if wire in sure})
    if nonnegative(expr, frozenset(arg(i) for i, wire in enumerate(box.inputs) if wire in frame.positive)):
        frame.positive.add(box.name)
    read = {wire for i, wire in enumerate(box.inputs) if arg(i) in expr.free_symbols}
    values: dict[Any, Text] = {arg(i): number(frame, w, order) for i, w in enumerate(box.inputs) if w in read}
    values |= {size(axis): Text(frame.size_of(axis), "int") for axis in sized(frame.kernel)}
    dtype = frame.kernel.wire[box.name].dtype
    along = {arg(i): set(frame.order[w]) for i, w in enumerate(box.inputs) if w in read}
    expr = _without_number(frame, box, expr, values, along)
    expr = _few_first(expr, along, values, len(box.inputs))
    dialect = EXACT if box.name in frame.coded else TRITON
    found = scalar(expr, values, dialect, number=dtype != "bool" and not dtype.startswith("int"))
    covered = {axis for wire in read for axis in frame.order[wire]}
    return Made(_spread(frame, found, order, bool(covered), covered == set(order)), order, found.kind)


def _without_number(frame: Frame, box: Any, expr: Any, values: dict[Any, Text], along: Axes) -> Any:
    """The formula, folded, without the number that waits; an exponential without it has one more term."""
    number, far = frame.numbers.get(box.name, sympy.S.One), far_inputs(frame.kernel, box)
    if expr.func != sympy.exp or number == 1:
        return folded(expr if number == 1 else without(expr, number), along, far)
    more = arg(len(box.inputs) + len(values))
    values[more] = Text(repr(-log2(number)))
    return sympy.exp(folded(expr, along, far).args[0] + more)


def _few_first(expr: Any, axes: Axes, values: dict[Any, Text], spare: int) -> Any:
    """The formula with the terms of each exponent that lack an axis summed before the others: once per row.
    Such a sum becomes a symbol of `values`, numbered from `spare` on; `axes` are those of each input."""

    def gathered(power: Any) -> Any:
        inside = power.args[0]
        along = {term: covered(term, axes) for term in inside.args}
        most = max(along.values(), key=len, default=set())
        few = [term for term, found in along.items() if found < most]
        if len(few) < 2:
            return power
        symbol = arg(spare + len(values))
        values[symbol] = scalar(sympy.Add(*few), values, TRITON, number=True)
        return sympy.exp(sympy.Add(*(term for term in inside.args if term not in few), symbol), evaluate=False)

    return expr.replace(lambda part: part.func == sympy.exp and part.args[0].is_Add, gathered)


def _spread(frame: Frame, found: Text, order: Order, some: bool, every: bool) -> str:
    """The text of a formula that reads only some axes of its result, or none, over all of them."""
    if every:
        return str(found)
    if some:
        return f"tl.broadcast_to({found}, {frame.shape(order)})"
    kind = {"int": "tl.int32", "bool": "tl.int1", "float": "tl.float32"}[found.kind]
    return f"tl.full({frame.shape(order)}, {found}, {kind})"


def _reduce(frame: Frame, box: Any) -> Made:
    """The sum, product, max or min over axes of a block."""
    (wire,) = box.inputs
    order = frame.order[wire]
    text = _fp32(number(frame, wire, order))
    mask = frame.masks(box.over, order)
    text = f"tl.where({mask}, {text}, {_NOTHING[box.op]})" if mask else text
    found = _reduced(box.op, text, order, frame.within(box.over))
    return replace(found, text=f"{float(frame.numbers[wire])!r} * {found.text}") if wire in frame.numbers else found


def _fp32(found: Text) -> str:
    return str(found) if found.kind == "float" else f"({found}).to(tl.float32)"


def _reduced(op: str, text: str, order: Order, over: Order) -> Made:
    for axis in sorted(over, key=order.index, reverse=True):
        text = f"{_REDUCED[op]}({text}, {order.index(axis)})"
    return Made(text, tuple(axis for axis in order if axis not in over))


def _contract(frame: Frame, box: Box) -> Made:
    """A product of matrices where there is one, else a sum of products."""
    product = frame.products.get(box.name)
    return _dot(frame, box, product) if product else _sum_of_products(frame, box)


def _sum_of_products(frame: Frame, box: Box) -> Made:
    kept = frame.within(names_of(box.axes))
    order = (*kept, *dict.fromkeys(axis for wire in box.inputs for axis in frame.order[wire] if axis not in kept))
    frame.check_block(box.name, order)
    factors = [_fp32(number(frame, wire, order)) for wire in box.inputs]
    text = " * ".join(factors)
    covered = {axis for wire in box.inputs for axis in frame.order[wire]}
    text = text if covered == set(order) else f"tl.broadcast_to({text}, {frame.shape(order)})"
    over = order[len(kept) :]
    mask = frame.masks(over, order)
    return _reduced("sum", f"tl.where({mask}, {text}, 0.0)" if mask else text, order, over)


def _dot(frame: Frame, box: Box, product: Product) -> Made:
    kind = dot_format(frame, box)
    batch, rows, columns, inner = product.batch, product.rows, product.columns, product.inner
    left = _matrix(frame, box.inputs[0], (batch, rows, inner), inner, kind)
    right = _matrix(frame, box.inputs[1], (batch, inner, columns), inner, kind)
    how = {"fp32": ', input_precision="ieee"', "tf32": ', input_precision="tf32"', "int8": ", out_dtype=tl.int32"}
    text = f"tl.dot({left}, {right}{how.get(kind, '')})"
    order = batch + rows + columns
    if not _plain_sides(batch, rows, columns):
        text = f"tl.reshape({text}, {frame.shape(order)})"
    return Made(f"{text}.to(tl.float32)" if kind == "int8" else text, order)


def dot_format(frame: Frame, box: Box) -> str:
    """The format in which a product's sides are multiplied: that of both wires, else the wider 16-bit one,
    else fp32 in full precision."""
    kinds = {frame.kernel.wire[wire].dtype.replace("int4", "int8") for wire in box.inputs}
    if len(kinds) == 1 and not kinds & {"bool", "int32", "int64", "fp8e8m0"}:
        return kinds.pop()
    wide = kinds - {"fp8e4m3", "fp8e5m2", "fp8e8m0", "int8", "bool"}
    return wide.pop() if len(wide) == 1 and wide <= {"fp16", "bf16"} else "fp32"


def _plain_sides(*sides: Order) -> bool:
    """Whether each side is one axis (a batch may be missing): then nothing needs reshaping."""
    batch, *rest = sides
    return len(batch) <= 1 and all(len(side) == 1 for side in rest)


def _matrix(frame: Frame, wire: str, sides: tuple[Order, Order, Order], inner: Order, kind: str) -> str:
    """A tile as a matrix, or a batch of them; zero along `inner` where there is nothing."""
    order = sum(sides, ())
    mask = "" if wire in frame.zeroed else frame.masks(inner, frame.order[wire])
    text, held = frame.variable(wire), frame.held[wire]
    if mask and held != "bool":
        text = f"tl.where({mask}, {text}, 0.0)"
    elif mask:
        text = f"({text} & {mask})"
    text = text if held == kind or (held == "float" and kind in ("fp32", "tf32")) else _in_format(text, held, kind)
    text = frame.aligned(text, frame.order[wire], order)
    if _plain_sides(*sides):
        return text
    counts = [prod(frame.block[axis] for axis in side) for side in sides if side or side is not sides[0]]
    return f"tl.reshape({text}, ({', '.join(map(str, counts))}))"


def _in_format(text: str, held: str, kind: str) -> str:
    """A block rounded to the format in which it is multiplied."""
    # no clamp here: the hardware's own conversion to fp8 saturates, and so does the interpreter's
    if held in LARGEST and kind in LARGEST:
        text = f"{text}.to(tl.float32)"
    return f"{text}.to({ELEMENT[kind]})"


def _index(frame: Frame, box: Box) -> Made:
    axis = box.axes[0].name
    return Made(frame.at(axis), frame.within([axis]), "int")


def _cast(frame: Frame, box: Any) -> Made:
    """Rounded to the format, and kept in it; fp8 and short whole numbers saturate by an explicit clamp;
    powers of two are held in fp32."""
    (wire,) = box.inputs
    order = frame.order[wire]
    if box.dtype in ("fp32", "tf32"):
        return Made(_fp32(number(frame, wire, order)), order)
    if box.dtype == "fp8e8m0":
        return Made(f"power_of_two({_fp32(number(frame, wire, order))})", order)
    text = _fp32(number(frame, wire, order)) if box.dtype in WHOLE else str(number(frame, wire, order))
    clamp = "at_most" if wire in frame.positive else "clamp"
    text = f"{clamp}({text}, {LARGEST[box.dtype]})" if box.dtype in LARGEST else text
    text = f"whole({text}, {WHOLE[box.dtype][0]}, {WHOLE[box.dtype][1]})" if box.dtype in WHOLE else text
    held = {"int4": "int8", "int32": "int", "int64": "int"}.get(box.dtype, box.dtype)
    return Made(f"{text}.to({ELEMENT[box.dtype]})", order, held)


_CASES: dict[type[Box], Callable[[Frame, Any], Made]] = {
    Reduce: _reduce,
    Contract: _contract,
    Index: _index,
    Cast: _cast,
    View: lambda frame, box: Made(*view(frame, box)),
}
