"""The log of what waits: a sum of logs, so that what is summed and what waits come apart.

``log(a b) = log a + log b`` and ``log(a / b) = log a - log b`` where no factor is negative, and ``log(exp(u)) = u``,
which holds also where exp(u) is too small to be told from 0. What is divided by a sum that is 0 only where it is 0
itself, ``quotient(e, z)``, is 0 there, and its log is -inf: that of e, the log of z counting for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.derive.algebra import Symbols, bases, is_nonnegative, is_positive
from diagkit.term import finite, plain, quotient


@dataclass(frozen=True)
class Signs:
    """What is known of the signs of wires: what each sum sums, and what each wire is made of."""

    summand: dict[Any, Any]
    full: Callable[[Any], Any]

    def nonnegative(self, expr: Any) -> bool:
        """Whether `expr` is sure to be >= 0."""
        return is_nonnegative(self._plain(expr), self.summand)

    def positive(self, expr: Any) -> bool:
        """Whether `expr` is sure to be > 0."""
        return is_positive(self._plain(expr), self.summand)

    def vanishes_with(self, below: Any, above: Any) -> bool:
        """Whether a sum is 0 only where the product `above` is 0 too: it sums nothing negative, and `above` is a
        multiple of one that it sums."""
        summed = self.summand.get(below)
        doubtful = () if summed is None else [b for b in bases(summed) if not b.is_positive or b.has(sympy.exp)]
        return summed is not None and self.nonnegative(below) and {*doubtful} <= bases(self._plain(above))

    def _plain(self, expr: Any) -> Any:
        return plain(self.full(expr))


def opened(expr: Any, waiting: Symbols, signs: Signs) -> Any:
    """`expr` with the log of each product that waits as a sum of logs, where that is the same.

    >>> from diagkit.term import value
    >>> s, m, z = map(value, "smz")
    >>> e = sympy.exp(s - finite(m))
    >>> opened(sympy.log(e * quotient(sympy.S.One, z)), frozenset([m, z]), Signs({z: plain(e)}, lambda expr: expr))
    s - finite(m) - finite(log(z))
    """

    def of(inside: Any) -> Any:
        found = _sum_of_logs(inside, signs) if inside.free_symbols & waiting else None
        return sympy.log(inside, evaluate=False) if found is None else found

    return expr.replace(sympy.log, of)


def _sum_of_logs(inside: Any, signs: Signs) -> Any | None:
    logs = [_log(factor, inside, signs) for factor in sympy.Mul.make_args(inside)]
    return None if None in logs else sympy.Add(*logs)


def _log(factor: Any, inside: Any, signs: Signs) -> Any | None:
    """The log of one factor of `inside`; None where that may be no number, or not the same."""
    if isinstance(factor, sympy.exp):
        return factor.args[0]
    if isinstance(factor, quotient):
        return _log_of_quotient(factor.args[1], inside, signs)
    if factor.is_Pow:
        return _log_of_power(factor, inside, signs)
    if factor.is_Mul:
        return _sum_of_logs(factor, signs)
    return sympy.log(factor) if factor == inside or signs.nonnegative(factor) else None


def _log_of_quotient(below: Any, inside: Any, signs: Signs) -> Any | None:
    found = _log(below, below, signs)
    if found is None or signs.positive(below):
        return None if found is None else -found
    return -finite(found) if signs.vanishes_with(below, inside) else None


def _log_of_power(power: Any, inside: Any, signs: Signs) -> Any | None:
    if power.base.is_number and power.base.is_positive:
        return power.exp * sympy.log(power.base)
    base = sympy.Abs(power.base) if power.exp.is_even and not signs.nonnegative(power.base) else power.base
    above = 1 / inside if power.exp.is_negative else inside
    found = _log(base, above, signs) if power.exp.is_number else None
    return None if found is None else power.exp * found


__all__ = ["Signs", "opened"]
