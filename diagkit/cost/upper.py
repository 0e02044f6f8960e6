"""Which of several sums of products can be the largest, sizes being any whole numbers from 1 up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import sympy

Monomial = frozenset[tuple[Any, Any]]


def undominated(amounts: Iterable[Any]) -> list[Any]:
    """The amounts that no other is sure to reach, in order; one, where the largest is sure.

    >>> from diagkit.term import size
    >>> q, d = size("q"), size("d")
    >>> undominated([q * d, q * d + q, q])
    [d*q + q]
    """
    distinct = list(dict.fromkeys(amounts))
    kept: list[Any] = []
    for amount in distinct:
        if not any(at_least(other, amount) for other in kept):
            kept = [other for other in kept if not at_least(amount, other)] + [amount]
    return kept


def largest(amounts: Iterable[Any]) -> Any:
    """The largest of the amounts: one of them where that is sure, else a Max; 0 of none."""
    kept = undominated(amounts)
    if len(kept) < 2:
        return kept[0] if kept else sympy.Integer(0)
    return sympy.Max(*kept, evaluate=False)  # what sympy would try in vain was tried above, and faster


def at_least(high: Any, low: Any) -> bool:
    """Whether `high` >= `low` at all sizes of 1 and up; False where it is not sure.

    Every product that `low` has more of must be covered by products that `high` has more of and that
    are its multiples: a*b covers b, because a is at least 1.
    """
    rest = Counter(terms(high))
    rest.subtract(terms(low))
    spare = {product: count for product, count in rest.items() if count > 0}
    lacking = [(product, -count) for product, count in rest.items() if count < 0]
    return all(_cover(product, count, spare) for product, count in sorted(lacking, key=_degree, reverse=True))


def _degree(item: tuple[Monomial, Any]) -> Any:
    return sum(power for _, power in item[0])


def _cover(product: Monomial, count: Any, spare: dict[Monomial, Any]) -> bool:
    for other in sorted(spare, key=lambda one: _degree((one, 0))):
        if spare[other] > 0 and _divides(product, other):
            used = min(count, spare[other])
            spare[other] -= used
            count -= used
    return bool(count == 0)


def _divides(product: Monomial, other: Monomial) -> bool:
    powers = dict(other)
    return all(powers.get(base, 0) >= power for base, power in product)


@lru_cache(maxsize=4096)
def terms(amount: Any) -> dict[Monomial, Any]:
    """A sum of products as coefficients by product; a product is its factors with their powers."""
    found: Counter[Monomial] = Counter()
    for term in sympy.Add.make_args(sympy.expand(amount)):
        coefficient, rest = term.as_coeff_Mul()
        found[frozenset(factor.as_base_exp() for factor in sympy.Mul.make_args(rest) if factor != 1)] += coefficient
    return dict(found)
