"""Which partial sum, over what, is a mean: of all elements alike, or weighted by a sum that is carried too.

The lemma of Welford and Chan, for weights that of West, needs nothing of the weights but their sum: as the mean moves
by -delta, sums of ``w (u + delta)^p`` are multiplied out, and ``w u`` sums to 0. Weights that are rescaled themselves,
such as exp(s - max s), rescale every sum alike, so that the mean does not see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.derive.algebra import ONE, factored, is_nonnegative, product
from diagkit.derive.carried import Carried
from diagkit.derive.partial import Accumulator
from diagkit.term import plain, quotient, value


@dataclass(frozen=True)
class Mean:
    """The mean of the values `of` under a `weight`, made of the sums `total`: `inverse` stands in the formula for one
    over the sum of weights, which is carried as `sum`; None where that is the number of elements. The mean `divides` by
    it where 0 / 0 is to be no number."""

    of: Any
    weight: Any
    total: Accumulator
    inverse: Any
    sum: Any | None
    divides: bool = False


def means_in(hidden: Mapping[Any, Any], total: Accumulator, carried: Carried) -> Iterator[Mean]:
    """The means that a formula with the parts `hidden` may make of the partial sum `total`."""
    if total.op == "sum" and total.operands:
        yield from _alike(hidden, total, carried)
        for weights in carried.by_name().values():
            inverse = _inverse(hidden, value(weights.name))
            if inverse is not None and _same_way(total, weights) and not_negative(weights.operands, carried):
                for of in _quotients(total, weights, carried):
                    divides = not isinstance(hidden[inverse], quotient)
                    yield Mean(of, product(weights.operands), total, inverse, value(weights.name), divides)


def not_negative(weights: tuple[Any, ...], carried: Carried) -> bool:
    """Whether these are sure to be >= 0: only then is their sum 0 where each of them is, and their mean among what it
    is the mean of."""
    return is_nonnegative(plain(carried.chain.full(product(weights))), carried.summand)


def _alike(hidden: Mapping[Any, Any], total: Accumulator, carried: Carried) -> Iterator[Mean]:
    """The mean of the number of elements."""
    number = carried.number(total.over)
    inverse = _inverse(hidden, number)
    if inverse is None and number.is_Integer and number > 0:
        inverse = 1 / number
    if inverse is not None and len(total.operands) == 1 and total.carry == value(total.name):
        yield Mean(total.operands[0], ONE, total, inverse, None)


def _inverse(hidden: Mapping[Any, Any], number: Any) -> Any | None:
    return next((symbol for symbol, part in hidden.items() if part in (quotient(ONE, number), 1 / number)), None)


def _same_way(total: Accumulator, weights: Accumulator) -> bool:
    """Whether both are sums over the same elements, carried past a chunk by the same factor."""
    factors = [plain(one.carry / value(one.name)) for one in (total, weights)]
    return total is not weights and weights.op == "sum" and weights.over == total.over and factors[0] == factors[1]


def _quotients(total: Accumulator, weights: Accumulator, carried: Carried) -> Iterator[Any]:
    """What the weights are multiplied with: as the wires have it, and written out."""
    chain = carried.chain
    above, below = product(total.operands), product(weights.operands)
    open_above, open_below = (_unchosen(chain.full(one)) for one in (above, below))
    for of in dict.fromkeys((_divided(above, below), _divided(open_above, open_below))):
        if chain.inside([of], carried.over) and not of.free_symbols & chain.waiting:
            yield of


def _unchosen(expr: Any) -> Any:
    """`expr` with every choice between a value and 0 as a product."""
    return factored(expr, expr.free_symbols)


def _divided(above: Any, below: Any) -> Any:
    """The quotient of two products; equal exponentials cancel as a whole."""
    parts = [sympy.Mul.make_args(plain(one)) for one in (above, below)]
    left, right = ([one for one in mine if one not in other] for mine, other in (parts, parts[::-1]))
    return product(left) / product(right)
