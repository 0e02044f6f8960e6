"""Sums of products of powers of tiles: what transfers and memory are once ceilings are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.term import DiagkitError

Powers = tuple[Any, ...]
"""The power of each variable, in order."""


@dataclass(frozen=True)
class Posynomial:
    """``sum(coefficient * product(variable ** power))``: coefficients, free of the variables, by powers."""

    variables: tuple[Any, ...]
    terms: tuple[tuple[Powers, Any], ...]

    @property
    def constant(self) -> Any:
        """The part without any variable."""
        return dict(self.terms).get(self.nothing, sympy.Integer(0))

    @property
    def nothing(self) -> Powers:
        """The powers of the constant part."""
        return (sympy.Integer(0),) * len(self.variables)

    @property
    def active(self) -> tuple[tuple[Powers, Any], ...]:
        """The terms that depend on the variables."""
        return tuple(term for term in self.terms if term[0] != self.nothing)

    def at(self, values: Mapping[Any, Any]) -> Any:
        """The expression with values for its variables."""
        return sympy.Add(*(self.term_at(powers, factor, values) for powers, factor in self.terms))

    def term_at(self, powers: Powers, factor: Any, values: Mapping[Any, Any]) -> Any:
        """One term with values for its variables."""
        parts = (values.get(v, v) ** power for v, power in zip(self.variables, powers, strict=True))
        return factor * sympy.Mul(*parts)

    def expression(self) -> Any:
        """The posynomial as a formula."""
        return self.at({})

    def uses(self, variable: Any) -> bool:
        """Whether a term depends on `variable`."""
        place = self.variables.index(variable)
        return any(powers[place] != 0 for powers, _ in self.terms)


def posynomial(expr: Any, variables: Iterable[Any]) -> Posynomial:
    """`expr` by powers of `variables`; a DiagkitError where it is no such sum.

    >>> from diagkit.term import size
    >>> q, x, g = size("q"), size("x"), size("g_q")
    >>> posynomial(q + 2 * q * x / g, [g]).terms
    (((0,), q), ((-1,), 2*q*x))
    """
    order = tuple(variables)
    found: dict[Powers, list[Any]] = {}
    for term in sympy.Add.make_args(sympy.expand(expr)):
        powers = term.as_powers_dict()
        key = tuple(sympy.sympify(powers.get(variable, 0)) for variable in order)
        rest = sympy.Mul(*(base**power for base, power in powers.items() if base not in order))
        if rest.free_symbols & set(order) or not all(power.is_Rational for power in key):
            raise DiagkitError(
                f"{term} is no product of powers of {', '.join(map(str, order))}",
                remedy="give numbers for the sizes and ask for the legal tile, which searches",
            )
        found.setdefault(key, []).append(rest)
    terms = ((key, sympy.factor_terms(sympy.Add(*parts))) for key, parts in sorted(found.items(), reverse=True))
    return Posynomial(order, tuple((key, factor) for key, factor in terms if factor != 0))
