"""Intervals: between which two numbers a formula lies when its arguments lie between theirs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from diagkit.term import empty, finite, quotient, where

Interval = tuple[float, float]
ALL: Interval = (-math.inf, math.inf)


def within(expr: Any, known: Mapping[Any, Interval]) -> Interval:
    """The interval of a formula; arguments that are not known may be anything.

    >>> from diagkit.term import arg
    >>> within(3 * arg(0) ** 2 - arg(1), {arg(0): (-2.0, 1.0), arg(1): (0.0, 5.0)})
    (-5.0, 12.0)
    """
    if expr in known:
        return known[expr]
    if expr.is_number:
        return (float(expr),) * 2
    case = _CASES.get(expr.func)
    return case(expr, [within(part, known) for part in expr.args]) if case else ALL


def product(left: Interval, right: Interval) -> Interval:
    """The interval of a product; 0 times infinity is 0.

    >>> product((-1.0, 2.0), (0.0, math.inf))
    (-inf, inf)
    """
    ends = [a * b if a and b else 0.0 for a in left for b in right]
    return min(ends), max(ends)


def raised(factor: Interval, count: int) -> Interval:
    """The product of `count` factors, each anywhere in an interval.

    >>> raised((0.5, 2.0), 3), raised((-3.0, 2.0), 2), raised((-2.0, -1.0), 3)
    ((0.125, 8.0), (-6.0, 9.0), (-8.0, -1.0))
    """
    made: Interval = (1.0, 1.0)
    for bit in f"{count:b}":
        made = product(made, made)
        made = product(made, factor) if bit == "1" else made
    return made


def ratio(above: Interval, below: Interval) -> Interval:
    """The interval of a quotient; anything where the divisor may be 0.

    >>> ratio((1.0, 2.0), (4.0, 8.0))
    (0.125, 0.5)
    """
    if below[0] <= 0 <= below[1]:
        return (0.0, math.inf) if above[0] >= 0 and below[0] >= 0 else ALL
    return product(above, (1 / below[1], 1 / below[0]))


def rising(function: Callable[[float], float]) -> Callable[[Any, list[Interval]], Interval]:
    """The case of a function that grows with its argument."""

    def case(expr: Any, parts: list[Interval]) -> Interval:
        low, high = (_outside(function, end) for end in parts[0])
        return low, high

    return case


def _outside(function: Callable[[float], float], at: float) -> float:
    try:
        return function(at)
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf


def _sum(expr: Any, parts: list[Interval]) -> Interval:
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def _product(expr: Any, parts: list[Interval]) -> Interval:
    made = (1.0, 1.0)
    for part in parts:
        made = product(made, part)
    return made


def _power(expr: Any, parts: list[Interval]) -> Interval:
    (low, high), exponent = parts[0], expr.exp
    if not exponent.is_number:
        return ALL
    if exponent.is_negative:
        return ratio((1.0, 1.0), _raised(low, high, -exponent))
    return _raised(low, high, exponent)


def _raised(low: float, high: float, exponent: Any) -> Interval:
    if not exponent.is_Integer:
        return max(low, 0.0) ** float(exponent), max(high, 0.0) ** float(exponent)
    ends = [low ** int(exponent), high ** int(exponent)]
    return (0.0 if exponent.is_even and low < 0 < high else min(ends)), max(ends)


def _absolute(expr: Any, parts: list[Interval]) -> Interval:
    low, high = parts[0]
    return max(low, -high, 0.0), max(-low, high)


def _choice(expr: Any, parts: list[Interval]) -> Interval:
    return min(low for low, _ in parts[1:]), max(high for _, high in parts[1:])


def _bounded(expr: Any, parts: list[Interval]) -> Interval:
    return -1.0, 1.0


_CASES: dict[Any, Callable[[Any, list[Interval]], Interval]] = {
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Pow: _power,
    sympy.exp: rising(math.exp),
    sympy.log: rising(math.log),
    sympy.tanh: rising(math.tanh),
    sympy.erf: rising(math.erf),
    sympy.floor: rising(lambda at: float(math.floor(at)) if math.isfinite(at) else at),
    sympy.sign: rising(lambda at: float((at > 0) - (at < 0))),
    sympy.sin: _bounded,
    sympy.cos: _bounded,
    sympy.Abs: _absolute,
    sympy.Max: lambda expr, parts: (max(low for low, _ in parts), max(high for _, high in parts)),
    sympy.Min: lambda expr, parts: (min(low for low, _ in parts), min(high for _, high in parts)),
    where: _choice,
    finite: lambda expr, parts: (0.0 if parts[0][0] == -math.inf else parts[0][0], parts[0][1]),
    quotient: lambda expr, parts: ratio(*parts),
    empty: lambda expr, parts: (0.0, 1.0),
}
