"""Powers of a - r, where r is still to change and no element enters it: written over deviations of a from any c.

With u = a - c and d = c - r, ``a - r`` is ``u + d``, and a polynomial in it a sum of ``d^n`` times powers of u. Where c
is a mean of the a that were seen and r lies among them, none of these is much larger than the result: r may be a mean
under weights of either sign, the sum that a mean is where its weights are normalised, or an extreme.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.derive.algebra import Symbols, hide
from diagkit.term import value


@dataclass(frozen=True)
class Near:
    """The factors of a product as polynomials over placeholders, and what they hide.

    `of` gives for the placeholder of each u the a, and `gaps` for the one of each d the placeholder of its u and the r.
    """

    factors: tuple[Any, ...]
    hidden: dict[Any, Any]
    of: dict[Any, Any]
    gaps: dict[Any, tuple[Any, Any]]

    @property
    def degrees(self) -> tuple[int, ...]:
        """For each factor the highest power of a - r in it."""
        places = (*self.of, *self.gaps)
        return tuple(int(sympy.Poly(one, *places).total_degree()) if one.has(*places) else 0 for one in self.factors)


def near(formulas: Iterable[Any], inside: Symbols, waiting: Symbols) -> Near:
    """The product of `formulas` with every ``a - r`` in it as ``u + d``; not where it is within a function.

    >>> a, r, w = value("a"), value("r"), value("w")
    >>> found = near([w, (a - r) ** 2], frozenset([a, w]), frozenset([r]))
    >>> found.degrees, list(found.of.values()), [r for _, r in found.gaps.values()]
    ((0, 2), [a], [r])
    >>> near([w * a * r, sympy.exp(a - r)], frozenset([a, w]), frozenset([r])).of
    {}
    """
    hidden: dict[Any, Any] = {}
    polynomials = [hide(formula, hidden)[0] for formula in formulas]
    enters = inside | {symbol for symbol, part in hidden.items() if part.free_symbols & inside}
    changes = waiting | {symbol for symbol, part in hidden.items() if part.free_symbols & waiting}
    of: dict[Any, Any] = {}
    gaps: dict[Any, tuple[Any, Any]] = {}

    def apart(*parts: Any) -> Any:
        outside = sympy.Add(*(part for part in parts if not part.free_symbols & (enters | of.keys())))
        a = sympy.Add(*parts) - outside
        if not outside.free_symbols & changes or a.free_symbols & (changes | of.keys()) or a == 0:
            return sympy.Add(*parts)
        u = _place(of, "u", a.xreplace(hidden))
        return u + _place(gaps, "d", (u, -outside.xreplace(hidden)))

    return Near(tuple(one.replace(sympy.Add, apart) for one in polynomials), hidden, of, gaps)


def _place(known: dict[Any, Any], letter: str, held: Any) -> Any:
    """The placeholder of what is held, the same for the same."""
    symbol = next((one for one, other in known.items() if other == held), value(f"\0{letter}{len(known)}"))
    known[symbol] = held
    return symbol
