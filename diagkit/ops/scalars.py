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
    `slots` how many results of that unit one value takes."""

    name: str
    symbolic: Any
    numpy: str
    torch: str
    unit: str
    slots: int = 1


_ROWS = (
    Scalar("exp", sympy.exp, "exp", "exp", "special"),
    Scalar("log", sympy.log, "log", "log", "special"),
    Scalar("tanh", sympy.tanh, "tanh", "tanh", "special"),
    Scalar("erf", sympy.erf, "erf", "erf", "special"),
    Scalar("sin", sympy.sin, "sin", "sin", "special"),
    Scalar("cos", sympy.cos, "cos", "cos", "special"),
    Scalar("sign", sympy.sign, "sign", "sign", "fma"),
    Scalar("floor", sympy.floor, "floor", "floor", "fma"),
    Scalar("abs", sympy.Abs, "abs", "abs", "fma"),
    Scalar("maximum", sympy.Max, "maximum", "maximum", "fma"),
    Scalar("minimum", sympy.Min, "minimum", "minimum", "fma"),
    Scalar("finite", finite, "finite", "finite", "fma"),
    Scalar("quotient", quotient, "quotient", "quotient", "special"),
    Scalar("where", where, "where", "where", "fma"),
)


def _table(key: str) -> dict[Any, Scalar]:
    table: dict[Any, Scalar] = {}
    for row in _ROWS:
        if getattr(row, key) in table:
            raise DiagkitError(f"two rows for the scalar function {row.name!r}")
        table[getattr(row, key)] = row
    return table


SCALARS: dict[str, Scalar] = _table("name")
"""The scalar functions by the name users call them by."""

BY_SYMBOL: dict[Any, Scalar] = _table("symbolic")
"""The same rows by sympy class."""
