"""Polynomials in s - m, m being the maximum or minimum of s: over u = s - m, counted from the extreme seen so far.

As the extreme moves to m', u becomes u + (m - m'), and a sum of ``w u^p`` is multiplied out by the binomial theorem, as
it is for deviations from a mean. An element that is -inf stays so; a sum that counts it with the weight 0 does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.derive.algebra import ZERO, hide
from diagkit.derive.carried import Carried
from diagkit.derive.partial import Accumulator
from diagkit.term import finite, value

TOPPED = "lemma: counted from the extreme"


@dataclass(frozen=True)
class Top:
    """Elements `of` counted from the extreme `total`, whose `sign` is 1 for a maximum and -1 for a minimum."""

    symbol: Any
    of: Any
    total: Any
    sign: Any
    weight: Any = ZERO
    """No weights under which they sum to 0."""
    suffix: str = ".shift"

    @property
    def mean(self) -> Any:
        """What is taken off: 0 while nothing was seen."""
        return self.sign * finite(self.sign * self.total)


def extremes_in(hidden: Mapping[Any, Any], polynomial: Any, carried: Carried) -> Iterator[tuple[Accumulator, Any]]:
    """The extremes that a polynomial holds, and the symbol that it has for each."""
    for one in carried.by_name().values():
        if one.op in ("max", "min") and one.carry == value(one.name):
            sign = 1 if one.op == "max" else -1
            for symbol in (value(one.name), *hidden):
                known = hidden.get(symbol, symbol) in (value(one.name), finite(sign * value(one.name)))
                if known and polynomial.has(symbol):
                    yield one, symbol


def counted_from(polynomial: Any, hidden: dict[Any, Any], of: Any, held: Any, symbol: Any) -> Any | None:
    """The polynomial with `of` = `symbol` + `held`; None where that leaves the extreme `held` in it.

    >>> s, m, u, w = map(value, "smuw")
    >>> counted_from(w * (s - m) ** 2, {}, s, m, u), counted_from(w * s, {}, s, m, u)
    (u**2*w, None)
    """
    place = hide(of, hidden)[0]
    written = sympy.expand(polynomial.xreplace({place: symbol + held}))
    return None if written.has(held) or not polynomial.has(held) else written


__all__ = ["TOPPED", "Top", "counted_from", "extremes_in"]
