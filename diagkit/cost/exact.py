"""Formulas to numbers and to their leading form: exact whole numbers of any length, and no ceilings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from sympy.printing.str import StrPrinter

from diagkit.cost.visits import count_visited, visited
from diagkit.term import InputError, as_float

Number = int | float


def ratio(above: Any, below: Any) -> Any:
    """A quotient that stays exact while both are whole numbers or fractions."""
    exactly = isinstance(above, int | Fraction) and isinstance(below, int | Fraction)
    return Fraction(above) / below if exactly else above / below


class PythonText(StrPrinter):  # type: ignore[misc]
    """A size formula as Python source: whole numbers stay whole, of any length."""

    printmethod = "_exact"  # a formula's own way of showing itself is not Python

    def __init__(self, places: Mapping[Any, str]) -> None:
        super().__init__()
        self.places = dict(places)

    def _print_Symbol(self, symbol: Any) -> str:
        return str(self.places[symbol])

    def _print_Rational(self, number: Any) -> str:
        return f"Fraction({number.p}, {number.q})"

    def _print_Half(self, number: Any) -> str:
        return self._print_Rational(number)

    def _print_Integer(self, number: Any) -> str:
        return f"({number.p})" if number.p < 0 else str(number.p)

    def _print_Add(self, total: Any, order: Any = None) -> str:
        return "(" + " + ".join(map(self._print, total.args)) + ")"

    def _print_Mul(self, product: Any) -> str:
        above, below = sympy.fraction(product)
        if below == 1:
            return "(" + "*".join(map(self._print, product.args)) + ")"
        return f"ratio({self._print(above)}, {self._print(below)})"

    def _print_Pow(self, power: Any, rational: bool = False) -> str:
        base, exponent = power.args
        if exponent.is_Integer and exponent < 0:
            return f"ratio(1, {self._print(base)}**{-exponent.p})"
        shown = str(exponent.p) if exponent.is_Integer else f"float({self._print(exponent)})"
        return f"{self._print(base)}**{shown}"

    def _print_ceiling(self, node: Any) -> str:
        above, below = sympy.fraction(sympy.together(node.args[0]))
        return f"(-(-{self._print(above)}//{self._print(below)}))"

    def _print_floor(self, node: Any) -> str:
        above, below = sympy.fraction(sympy.together(node.args[0]))
        return f"({self._print(above)}//{self._print(below)})"

    def _print_Max(self, node: Any) -> str:
        return f"max({', '.join(map(self._print, node.args))})"

    def _print_Min(self, node: Any) -> str:
        return f"min({', '.join(map(self._print, node.args))})"

    def _print_Tuple(self, values: Any) -> str:
        return "(" + "".join(f"{self._print(one)}, " for one in values) + ")"

    def _print_visited(self, node: Any) -> str:
        return self.places.get(node) or f"count_visited({', '.join(map(self._print, node.args))})"


_NAMES = {"ratio": ratio, "Fraction": Fraction, "count_visited": count_visited, "max": max, "min": min, "float": float}


@lru_cache(maxsize=8192)
def compiled(expr: Any) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """The symbols of a formula, sorted by name, and a Python function of their values in that order."""
    symbols = tuple(sorted(expr.free_symbols, key=lambda symbol: symbol.name))
    places = {symbol: f"v{number}" for number, symbol in enumerate(symbols)}
    sums = {node: f"s{number}" for number, node in enumerate(sorted(expr.atoms(visited), key=sympy.default_sort_key))}
    once = ", ".join(PythonText(places).doprint(node) for node in sums)
    source = f"(lambda {', '.join(sums.values())}: {PythonText({**places, **sums}).doprint(expr)})({once})"
    # The text is ours: symbols became v0, v1, ..., everything else is a number or an operator.
    return symbols, eval(f"lambda {', '.join(places.values())}: {source}", dict(_NAMES))  # noqa: S307


def evaluate(expr: Any, sizes: Mapping[str, Any]) -> Number:
    """The number that a formula has at `sizes` (elements, by the name of the axis or tile).

    Whole numbers are exact at any length; others are floats. A missing size is an InputError.

    >>> from diagkit.term import size
    >>> evaluate(size("n") ** 3, {"n": 10**7})
    1000000000000000000000
    """
    symbols, function = compiled(sympy.sympify(expr))
    missing = [symbol.name for symbol in symbols if symbol.name not in sizes]
    if missing:
        stray = [f"it has no {name!r}" for name in sizes if name not in {symbol.name for symbol in symbols}]
        remedy = "; ".join([f"give also: {', '.join(missing)}", *stray])
        raise InputError(f"the size of {missing[0]!r} is not given", axis=missing[0], remedy=remedy)
    numbers = [whole(sizes[symbol.name], symbol.name) for symbol in symbols]
    try:
        return tidy(function(*numbers))
    except ZeroDivisionError:
        tile = next(symbol.name for symbol, number in zip(symbols, numbers, strict=True) if number == 0)
        raise InputError(f"{tile} cannot be 0: a size is divided by it", axis=tile, remedy="use at least 1") from None


def whole(value: Any, name: str) -> Any:
    """A size as Python holds it: whole numbers exactly. An InputError for what is no size."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__") or not 0 <= value < math.inf:
        raise InputError(f"{name} cannot be {value!r}", axis=name, remedy="use a number >= 0")
    return int(value) if isinstance(value, int | sympy.Integer) or value == int(value) else float(value)


def tidy(value: Any) -> Number:
    """A plain int where the value is whole, else a float."""
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else as_float(value, "an amount")
    return int(value) if isinstance(value, int) else as_float(value, "an amount")


@lru_cache(maxsize=8192)
def relax(expr: Any) -> Any:
    """A formula without ceilings, its sums over tiles closed: what it is when every tile fits.

    >>> from diagkit.term import size
    >>> relax(size("x") * sympy.ceiling(size("q") / size("g_q")))
    q*x/g_q
    """
    rounded = (sympy.ceiling, sympy.floor)
    if not expr.has(*rounded, visited):
        return expr
    opened = expr.replace(lambda part: isinstance(part, rounded), lambda part: part.args[0])
    return opened.replace(lambda part: isinstance(part, visited), lambda part: part.closed())
