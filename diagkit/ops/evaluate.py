"""Running a diagram on arrays: one case per kind of box, one row per scalar function.

`evaluate` is the plain meaning of the boxes; labels do not enter. It computes in at least fp32 and
returns the inputs' own float type. `reference` does the same in float64.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce as chain
from typing import Any

import numpy as np
import sympy

from diagkit.ops.classes import check_classes
from diagkit.ops.inputs import bind_sizes, check_inputs
from diagkit.ops.libraries import library
from diagkit.ops.room import refuse_larger
from diagkit.ops.scalars import BY_SYMBOL
from diagkit.ops.undefined import check_formulas
from diagkit.term import (
    FORMATS,
    Array,
    Axes,
    Axis,
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    Term,
    View,
    coordinate,
    where,
)
from diagkit.term import names as names_of
from diagkit.term import size as size_of


def evaluate(term: Term, arrays: Mapping[str, Any]) -> Any:
    """The outputs of `term` on numpy or torch arrays, given by name; the same kind out.

    One output comes alone, several as a dict by name. Shapes follow the axes of the inputs; symbolic
    sizes are bound by the shapes. Raises InputError for what is missing, extra or of the wrong shape
    or kind.

    >>> import diagkit as dk
    >>> evaluate(dk.Diagram(2 * dk.array("X", dk.axis("x"))), {"X": [1.0, 2.0]})
    array([2., 4.])
    """
    return _run(term, arrays, None)


def reference(term: Term, arrays: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> Any:
    """As `evaluate`, computed and returned in float64; `sizes` (elements) where no array tells them.

    >>> import diagkit as dk
    >>> import numpy as np
    >>> reference(dk.Diagram(2 * dk.array("X", dk.axis("x"))), {"X": np.float16([1.0, 2.0])}).dtype
    dtype('float64')
    """
    return _run(term, arrays, "float64", sizes)


def _run(term: Term, arrays: Mapping[str, Any], force: str | None, sizes: Mapping[str, int] | None = None) -> Any:
    engine, start = open_arrays(term, arrays, force, sizes)
    refuse_larger(term, engine.shape, np.dtype(str(engine.compute).removeprefix("torch.")).itemsize)
    with np.errstate(all="ignore"):
        made = term.fold(_cases(engine, term), start)
    return close_arrays(engine, term, {name: made[name] for name in term.outputs})


def open_arrays(
    term: Term, arrays: Mapping[str, Any], force: str | None = None, sizes: Mapping[str, int] | None = None
) -> tuple[Engine, dict[str, Any]]:
    """What runs the boxes of `term` on these arrays, and the arrays, checked and in the float type that
    is computed in: at least fp32, or `force`. `sizes` are known before. Raises as `evaluate` does."""
    xp = library(dict(arrays))
    given = check_inputs(term, arrays, xp)
    sizes = bind_sizes(term, {name: tuple(value.shape) for name, value in given.items()}, sizes)
    check_classes(term, given, sizes)
    check_formulas(term, sizes)
    compute, result = _float_types(xp, given, force)
    start = {name: (value if xp.kind(value) != "float" else xp.astype(value, compute)) for name, value in given.items()}
    start |= {array.name: xp.astype(start[array.name], compute) for array in term.inputs if _is_float(array)}
    like = next(iter(given.values()), None)
    return Engine(xp, sizes, compute, result, like, sizes, dict.fromkeys(sizes, 0)), start


def close_arrays(engine: Engine, term: Term, made: Mapping[str, Any]) -> Any:
    """Outputs in the float type of the inputs, or in fp32 where an output is declared wider than every input (the
    positions of halves): one comes alone, several as a dict by name."""
    outputs = {name: _finish(engine, value, _is_wider(term, name)) for name, value in made.items()}
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def _is_float(array: Array) -> bool:
    return array.dtype != "bool" and not array.dtype.startswith("int")


def _is_wider(term: Term, name: str) -> bool:
    declared, own = [FORMATS[array.dtype] for array in term.inputs if _is_float(array)], term.wires[name].dtype
    return bool(declared) and own in ("fp32", "fp64") and max(declared) < FORMATS[own]


def _finish(engine: Engine, value: Any, wider: bool) -> Any:
    xp, result = engine.xp, engine.result
    if value.dtype != engine.compute:
        return value
    return xp.astype(value, xp.promote([result, xp.float32]) if wider else result)


def _float_types(xp: Any, given: Mapping[str, Any], force: str | None) -> tuple[Any, Any]:
    """What to compute in (at least fp32) and what to return (the inputs' common float type)."""
    if force:
        return xp.float64, xp.float64
    floats = [value.dtype for value in given.values() if xp.kind(value) == "float"]
    if not floats:
        return xp.float32, xp.float32
    common = xp.promote(floats)
    return xp.promote([common, xp.float32]), common


@dataclass(frozen=True)
class Engine:
    """What runs one box: the library `xp`, the `sizes` of whole axes, the float type to `compute` in and
    the one to `result` in, an array `like` those that are made; and the tile that is computed, as its
    `extents` (elements along each axis) and `starts` (its first position along each axis)."""

    xp: Any
    sizes: Mapping[str, int]
    compute: Any
    result: Any
    like: Any
    extents: Mapping[str, int]
    starts: Mapping[str, int]

    def shape(self, axes: Axes) -> tuple[int, ...]:
        """The shape of a tile over `axes`."""
        return tuple(self.extents[axis.name] for axis in axes)

    def number(self, expr: Any) -> Any:
        """A formula of sizes as a number."""
        return expr.xreplace({size_of(name): sympy.Integer(n) for name, n in self.sizes.items()})

    def positions(self, axis: str) -> Any:
        """The positions that the tile covers along `axis`."""
        return self.xp.arange(self.extents[axis], self.like) + self.starts[axis]


def evaluate_box(engine: Engine, box: Box, axes: list[Axes], *values: Any) -> Any:
    """The tile that a primitive makes from tiles `values` over `axes`, one each per input."""
    return _BOX_CASES[type(box)](engine, box, axes, *values)


def _cases(engine: Engine, term: Term) -> dict[type[Box], Callable[..., Any]]:
    axes = {name: wire.axes for name, wire in term.wires.items()}

    def case(box: Box, *values: Any) -> Any:
        return evaluate_box(engine, box, [axes[wire] for wire in box.inputs], *values)

    return dict.fromkeys(_BOX_CASES, case)


def _map(engine: Engine, box: Any, axes: list[Axes], *values: Any) -> Any:
    aligned = [align(engine.xp, v, a, box.axes) for v, a in zip(values, axes, strict=True)]
    result = scalar_value(engine.number(box.expr), aligned, engine.xp, engine.compute)
    if not hasattr(result, "shape"):
        result = engine.xp.full((), result, engine.compute, engine.like)
    if engine.xp.kind(result) == "float":
        result = engine.xp.astype(result, engine.compute)  # int32 with fp32 came out in fp64
    return engine.xp.broadcast(result, engine.shape(box.axes))


def align(xp: Any, value: Any, axes: Axes, wanted: Axes) -> Any:
    """`value` over `axes` laid out for `wanted`, with length 1 where it lacks an axis."""
    places = [names_of(axes).index(axis.name) for axis in wanted if axis in axes]
    shape = [value.shape[names_of(axes).index(axis.name)] if axis in axes else 1 for axis in wanted]
    return xp.reshape(xp.permute(value, places), shape) if axes else value


def scalar_value(expr: Any, values: list[Any], xp: Any, compute: Any) -> Any:
    """A scalar formula on aligned arrays: arg(i) is values[i]; numbers stay Python numbers."""
    if expr.is_Symbol:
        return values[int(expr.name[1:])]
    if expr.is_number:
        return float(expr)
    parts = expr.args
    run = _SCALAR_CASES.get(expr.func)
    if run is not None:
        return run(xp, expr, lambda part: scalar_value(part, values, xp, compute))
    row = BY_SYMBOL[expr.func]
    operands = [_floated(scalar_value(part, values, xp, compute), xp, compute) for part in parts]
    return _call(xp, xp.function(getattr(row, xp.name)), row.name, operands)


def _floated(value: Any, xp: Any, compute: Any) -> Any:
    return xp.astype(value, compute) if hasattr(value, "dtype") and xp.kind(value) == "int" else value


def _call(xp: Any, function: Any, name: str, operands: list[Any]) -> Any:
    return chain(function, operands) if name in ("maximum", "minimum") else function(*operands)


Part = Callable[[Any], Any]


def _add(xp: Any, expr: Any, part: Part) -> Any:
    ordered = sorted(expr.args, key=lambda term: term.could_extract_minus_sign())
    result = part(ordered[0])
    for term in ordered[1:]:
        result = result - part(-term) if term.could_extract_minus_sign() else result + part(term)
    return result


def _multiply(xp: Any, expr: Any, part: Part) -> Any:
    below = [factor for factor in expr.args if divides(factor)]
    above = [factor for factor in expr.args if factor not in below]
    result = chain(lambda a, b: a * b, [part(factor) for factor in above]) if above else 1.0
    return chain(lambda a, f: a / part(1 / f), below, result)


def divides(factor: Any) -> bool:
    """Whether a factor of a product is there to divide: 1/z, and 1/127, which has no exact float to multiply by.

    >>> [divides(sympy.Rational(1, n)) for n in (127, 128)]
    [True, False]
    """
    if factor.is_number:
        return bool(factor.is_Rational and factor.p == 1 and factor.q & (factor.q - 1))
    return bool(factor.is_Pow and factor.exp.is_number and factor.exp.is_negative)


def _power(xp: Any, expr: Any, part: Part) -> Any:
    base, exponent = expr.args
    if exponent == sympy.Rational(1, 2):
        return xp.function("sqrt")(part(base))
    if exponent.is_number and exponent.is_negative:
        return 1.0 / part(1 / expr)
    if exponent.is_Integer and exponent <= 4:
        return chain(lambda a, b: a * b, [part(base)] * int(exponent))
    return part(base) ** part(exponent)


def _compare(symbol: str) -> Callable[[Any, Any, Part], Any]:
    return lambda xp, expr, part: getattr(operator, symbol)(part(expr.args[0]), part(expr.args[1]))


def _logic(symbol: str) -> Callable[[Any, Any, Part], Any]:
    return lambda xp, expr, part: chain(getattr(operator, symbol), [part(term) for term in expr.args])


def _where(xp: Any, expr: Any, part: Part) -> Any:
    condition, chosen, other = (part(term) for term in expr.args)
    return xp.where(condition, chosen, other)


_SCALAR_CASES: dict[Any, Callable[[Any, Any, Part], Any]] = {
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
    sympy.StrictLessThan: _compare("lt"),
    sympy.LessThan: _compare("le"),
    sympy.StrictGreaterThan: _compare("gt"),
    sympy.GreaterThan: _compare("ge"),
    sympy.Equality: _compare("eq"),
    sympy.Unequality: _compare("ne"),
    sympy.And: _logic("and_"),
    sympy.Or: _logic("or_"),
    sympy.Not: lambda xp, expr, part: ~part(expr.args[0]),
    where: _where,
}


def _reduce(engine: Engine, box: Any, axes: list[Axes], value: Any) -> Any:
    places = tuple(names_of(axes[0]).index(name) for name in box.over)
    kept = tuple(axis for axis in axes[0] if axis.name not in box.over)
    reduced = engine.xp.reduce(box.op, _floated(value, engine.xp, engine.compute), places)
    return align(engine.xp, reduced, kept, box.axes)


def _contract(engine: Engine, box: Any, axes: list[Axes], *values: Any) -> Any:
    """Pair by pair, left to right; each product is one batched matrix product."""
    xp = engine.xp
    value, have = _floated(values[0], xp, engine.compute), axes[0]
    for position in range(1, len(values)):
        later = {axis for rest in axes[position + 1 :] for axis in rest} | set(box.axes)
        right = _floated(values[position], xp, engine.compute)
        value, have = _product(xp, (value, have), (right, axes[position]), later)
    gone = tuple(place for place, axis in enumerate(have) if axis not in box.axes)
    kept = tuple(axis for axis in have if axis in box.axes)
    return align(xp, xp.reduce("sum", value, gone) if gone else value, kept, box.axes)


def _product(xp: Any, left: tuple[Any, Axes], right: tuple[Any, Axes], later: set[Axis]) -> tuple[Any, Axes]:
    """Sum over what nobody needs later; the axes of the result are batch, left, right."""
    both = set(left[1]) & set(right[1])
    batch = tuple(axis for axis in left[1] if axis in both and axis in later)
    inner = tuple(axis for axis in left[1] if axis in both and axis not in later)
    rows = tuple(axis for axis in left[1] if axis not in both)
    columns = tuple(axis for axis in right[1] if axis not in both)
    sizes = {axis: n for value, axes in (left, right) for axis, n in zip(axes, value.shape, strict=True)}

    def count(axes: Axes) -> int:
        return int(np.prod([sizes[axis] for axis in axes], dtype=np.int64))

    lead = [sizes[axis] for axis in batch]
    a = xp.reshape(align(xp, left[0], left[1], batch + rows + inner), [*lead, count(rows), count(inner)])
    b = xp.reshape(align(xp, right[0], right[1], batch + inner + columns), [*lead, count(inner), count(columns)])
    made = batch + rows + columns
    return xp.reshape(xp.matmul(a, b), [sizes[axis] for axis in made]), made


def _index(engine: Engine, box: Any, axes: list[Axes]) -> Any:
    return engine.positions(box.axes[0].name)


def _cast(engine: Engine, box: Any, axes: list[Axes], value: Any) -> Any:
    return align(engine.xp, engine.xp.round_to(value, box.dtype), axes[0], box.axes)


def _view(engine: Engine, box: Any, axes: list[Axes], value: Any) -> Any:
    """Read at the coordinates; outside the input the value is 0 (False)."""
    xp, shape = engine.xp, engine.shape(box.axes)
    inside, places = True, []
    for axis, read in zip(axes[0], box.coordinates, strict=True):
        at = _coordinate_values(engine, box.axes, read) - engine.starts[axis.name]
        length = engine.extents[axis.name]
        inside = inside & (at >= 0) & (at < length)
        places.append(xp.clip(at, 0, max(length - 1, 0)))
    if 0 in value.shape or 0 in shape:
        return xp.full(shape, 0, value.dtype, value)
    picked = xp.broadcast(value[tuple(places)], shape)
    return picked if inside is True else xp.where(inside, picked, xp.full((), 0, value.dtype, value))


def _coordinate_values(engine: Engine, axes: Axes, read: Any) -> Any:
    """A coordinate, affine but for floors of affine quotients, as integers that broadcast over `axes`."""
    floors = sorted(read.atoms(sympy.floor), key=sympy.default_sort_key)
    result = _affine_values(engine, axes, read.xreplace(dict.fromkeys(floors, sympy.S.Zero)))
    for part in floors:
        above, below = part.args[0].as_numer_denom()
        result = result + int(read.coeff(part)) * (_affine_values(engine, axes, above) // int(below))
    return result


def _affine_values(engine: Engine, axes: Axes, read: Any) -> Any:
    """An affine coordinate as an integer array that broadcasts over `axes`."""
    symbols = [coordinate(axis.name) for axis in axes]
    constant = int(engine.number(read.xreplace({symbol: sympy.Integer(0) for symbol in symbols})))
    result: Any = engine.xp.full([1] * len(axes), constant, engine.xp.arange(0, engine.like).dtype, engine.like)
    for place, (axis, symbol) in enumerate(zip(axes, symbols, strict=True)):
        slope = int(engine.number(read.coeff(symbol)))
        if slope:
            shape = [-1 if i == place else 1 for i in range(len(axes))]
            shape[place] = engine.extents[axis.name]
            result = result + slope * engine.xp.reshape(engine.positions(axis.name), shape)
    return result


_BOX_CASES: dict[type[Box], Callable[..., Any]] = {
    Map: _map,
    Reduce: _reduce,
    Contract: _contract,
    Index: _index,
    Cast: _cast,
    View: _view,
}
