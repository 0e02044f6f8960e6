"""One row per scalar function: its symbolic form, how each array library calls it, what it costs.

A row is everything the product knows about a function; a new function is one row and nothing elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.term import DiagkitError, finite, quotient, where


@dataclass(frozen=True)
class Scalar:
    """A scalar function: `symbolic` is sympy's class, `numpy` and `torch` the library's name for it,
    `unit` who computes it ("fma": one multiply-add slot, "special": the special-function unit) and
    `slots` how many results of that unit one value takes. `example` is a call with its result, for the docstring."""

    name: str
    symbolic: Any
    numpy: str
    torch: str
    unit: str
    example: tuple[str, str]
    slots: int = 1


_ROWS = (
    Scalar("exp", sympy.exp, "exp", "exp", "special", ("exp(0)", "1")),
    Scalar("log", sympy.log, "log", "log", "special", ("log(1)", "0")),
    Scalar("tanh", sympy.tanh, "tanh", "tanh", "special", ("tanh(0)", "0")),
    Scalar("erf", sympy.erf, "erf", "erf", "special", ("erf(0)", "0")),
    Scalar("sin", sympy.sin, "sin", "sin", "special", ("sin(0)", "0")),
    Scalar("cos", sympy.cos, "cos", "cos", "special", ("cos(0)", "1")),
    Scalar("sign", sympy.sign, "sign", "sign", "fma", ("sign(-3)", "-1")),
    Scalar("floor", sympy.floor, "floor", "floor", "fma", ("floor(2.5)", "2")),
    Scalar("abs", sympy.Abs, "abs", "abs", "fma", ("absolute(-3)", "3")),
    Scalar("maximum", sympy.Max, "maximum", "maximum", "fma", ("maximum(1, 2)", "2")),
    Scalar("minimum", sympy.Min, "minimum", "minimum", "fma", ("minimum(1, 2)", "1")),
    Scalar("finite", finite, "finite", "finite", "fma", ("finite(float('-inf'))", "0")),
    Scalar("quotient", quotient, "quotient", "quotient", "special", ("quotient(1, 0)", "0")),
    Scalar("where", where, "where", "where", "fma", ("where(True, 1, 2)", "1")),
)


def _table(key: str) -> dict[Any, Scalar]:
    table: dict[Any, Scalar] = {}
    for row in _ROWS:
        if getattr(row, key) in table:
            raise DiagkitError(f"two rows for the scalar function {row.name!r}", remedy="keep one")
        table[getattr(row, key)] = row
    return table


SCALARS: dict[str, Scalar] = _table("name")
"""The scalar functions by the name users call them by."""

BY_SYMBOL: dict[Any, Scalar] = _table("symbolic")
"""The same rows by sympy class."""
