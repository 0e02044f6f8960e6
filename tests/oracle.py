"""The independent oracle: a diagram evaluated by plain loops over positions, in Python floats.

It shares nothing with diagkit's evaluation: no numpy, no fold, one dict from position to number per wire.
"""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

from diagkit.term import Term

INF = math.inf


def run(term: Term, arrays: dict[str, Any], sizes: dict[str, int]) -> dict[str, dict[tuple[int, ...], Any]]:
    """Every output as a dict from position to number; `arrays` are numpy arrays."""
    wires: dict[str, tuple[list[str], dict[tuple[int, ...], Any]]] = {}
    for array in term.inputs:
        axes = [axis.name for axis in array.axes]
        points = {at: arrays[array.name][at] for at in positions(axes, sizes)}
        wires[array.name] = axes, {at: value.item() for at, value in points.items()}
    for box in term.flat:
        axes = [axis.name for axis in box.axes]
        wires[box.name] = axes, globals()[f"do_{box.kind}"](box, axes, [wires[w] for w in box.inputs], sizes)
    return {name: wires[name][1] for name in term.outputs}


def positions(axes: list[str], sizes: dict[str, int]) -> Any:
    return itertools.product(*(range(sizes[axis]) for axis in axes))


def pick(wire: Any, at: dict[str, int]) -> Any:
    axes, points = wire
    return points[tuple(at[axis] for axis in axes)]


def do_map(box: Any, axes: list[str], wires: list[Any], sizes: dict[str, int]) -> Any:
    out = {}
    for at in positions(axes, sizes):
        values = [pick(wire, dict(zip(axes, at, strict=True))) for wire in wires]
        out[at] = scalar(box.expr, values, sizes)
    return out


def do_contract(box: Any, axes: list[str], wires: list[Any], sizes: dict[str, int]) -> Any:
    inner = list(dict.fromkeys(axis for wire in wires for axis in wire[0] if axis not in axes))
    out = {}
    for at in positions(axes, sizes):
        total = 0.0
        for within in positions(inner, sizes):
            here = dict(zip(axes + inner, at + within, strict=True))
            total += math.prod(pick(wire, here) for wire in wires)
        out[at] = total
    return out


def do_reduce(box: Any, axes: list[str], wires: list[Any], sizes: dict[str, int]) -> Any:
    gone = list(box.over)
    out = {}
    for at in positions(axes, sizes):
        every = [pick(wires[0], dict(zip(axes + gone, at + k, strict=True))) for k in positions(gone, sizes)]
        out[at] = {"sum": sum, "max": largest, "min": smallest, "product": math.prod}[box.op](every)
    return out


def largest(values: list[float]) -> float:
    return max(values, default=-INF)


def smallest(values: list[float]) -> float:
    return min(values, default=INF)


def do_index(box: Any, axes: list[str], wires: list[Any], sizes: dict[str, int]) -> Any:
    return {at: at[0] for at in positions(axes, sizes)}


def do_cast(box: Any, axes: list[str], wires: list[Any], sizes: dict[str, int]) -> Any:
    places = positions(axes, sizes)
    return {at: rounded(pick(wires[0], dict(zip(axes, at, strict=True))), box.dtype) for at in places}


def rounded(value: float, dtype: str) -> float:
    """To the nearest number of the format, as Python's own struct rounds; beyond the largest, infinite."""
    code = {"fp16": "e", "fp32": "f"}[dtype]
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(INF, value)


def do_view(box: Any, axes: list[str], wires: list[Any], sizes: dict[str, int]) -> Any:
    from diagkit.term import coordinate

    points = wires[0][1]
    out = {}
    for at in positions(axes, sizes):
        here = {coordinate(axis): place for axis, place in zip(axes, at, strict=True)}
        out[at] = points.get(tuple(int(read.subs(here)) for read in box.coordinates), 0)
    return out


def scalar(expr: Any, values: list[Any], sizes: dict[str, int]) -> Any:
    if expr.is_Symbol:
        return sizes[expr.name] if expr.is_positive else values[int(expr.name[1:])]
    if expr.is_number:
        return float(expr)
    parts = [scalar(part, values, sizes) for part in expr.args]
    return TABLE[expr.func.__name__](*parts)


def power(base: float, exponent: float) -> float:
    if base == 0 and exponent < 0:
        return INF
    return INF if base == INF and exponent > 0 else base**exponent


def exp(x: float) -> float:
    return 0.0 if x == -INF else math.exp(x)


def multiply(*factors: float) -> float:
    return math.prod(factors)


TABLE: dict[str, Any] = {
    "Add": lambda *t: math.fsum(t) if all(map(math.isfinite, t)) else sum(t),
    "Mul": multiply,
    "Pow": power,
    "exp": exp,
    "log": lambda x: math.log(x) if x > 0 else -INF,
    "tanh": math.tanh,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "Abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "floor": math.floor,
    "Max": max,
    "Min": min,
    "finite": lambda x: 0.0 if x == -INF else x,
    "quotient": lambda a, b: 0.0 if b == 0 else a / b,
    "where": lambda c, a, b: a if c else b,
    "StrictLessThan": lambda a, b: a < b,
    "LessThan": lambda a, b: a <= b,
    "StrictGreaterThan": lambda a, b: a > b,
    "GreaterThan": lambda a, b: a >= b,
    "Equality": lambda a, b: a == b,
    "Unequality": lambda a, b: a != b,
    "And": lambda *t: all(t),
    "Or": lambda *t: any(t),
    "Not": lambda t: not t,
}
