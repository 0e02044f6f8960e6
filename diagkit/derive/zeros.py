"""What is 0 where a factor is 0, whatever the others are: ``where(p > 0, p log p, 0)``.

Whether p is 0 is not known before the last chunk where p is divided by a sum; but where p is 0 a product with it is
already 0 by the choice, so that the choice may be left out of the algebra, and be taken up again as the product is
summed: it is 0 where the factors of p are. The same holds for what counts down from an extreme, u = s - m: a weight
that is 0 leaves nothing of it, even where u is -inf; and for choices by conditions that no chunk changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import sympy

from diagkit.derive.algebra import ONE, ZERO, Symbols, factored, product
from diagkit.derive.logs import Signs
from diagkit.term import arg, quotient, where


class ZeroTest(NamedTuple):
    """A condition on `of`: that it is not 0 (else that it is), and `ordered` where it only says so of what is >= 0."""

    of: Any
    holds: bool
    ordered: bool


class Zeros:
    """The choices of a region that were left out; `factors` are, by wire, those that make it 0 by being 0."""

    def __init__(self, signs: Signs) -> None:
        self.signs = signs
        self.tests: dict[str, ZeroTest] = {}
        self.factors: dict[str, frozenset[Any]] = {}

    def read(self, box: Any, parts: dict[Any, Any], waiting: Symbols) -> Any:
        """The formula of a map over its inputs' formulas `parts`, choices left out where the product is 0 anyway."""
        found = asked(box.expr)
        if found is not None:
            self.tests[box.name] = found._replace(of=found.of.xreplace(parts))
        wires = {arg(place): wire for place, wire in enumerate(box.inputs)}
        zero = {factor for wire in box.inputs for factor in self.factors.get(wire, ())}
        ordered: list[ZeroTest] = []

        def chosen(condition: Any, a: Any, b: Any) -> Any:
            known = asked(condition)
            known = known._replace(of=known.of.xreplace(parts)) if known else self.tests.get(str(wires.get(condition)))
            kept = self._kept(known, a.xreplace(parts), b.xreplace(parts), waiting) if known else None
            if known is None or kept is None:
                return where(condition, a, b)
            zero.update(_bases(factored(known.of, waiting)))
            ordered.extend([known] * known.ordered)
            return a if known.holds else b

        formula = box.expr.replace(where, chosen)
        if zero:
            self.factors[box.name] = frozenset(zero)
        formula = formula.xreplace(parts)
        return formula.replace(_divides(waiting), lambda part: quotient(ONE, part.base)) if ordered else formula

    def _kept(self, test: ZeroTest, a: Any, b: Any, waiting: Symbols) -> Any | None:
        """What is chosen where the factor asked for is not 0, if it is a multiple of that and the other choice is 0."""
        kept, other = (a, b) if test.holds else (b, a)
        known = other == 0 and test.of.free_symbols & waiting and (not test.ordered or self.signs.nonnegative(test.of))
        above = _bases(factored(kept, waiting))
        covered = known and all(
            any(_vanish_alike(one, two) for two in above) for one in _bases(factored(test.of, waiting))
        )
        return kept if covered else None

    def weight(self, core: Any, source: str, tops: Symbols) -> Any | None:
        """The factors of a summed product that, being 0, make it 0 whatever the others are; None where all do."""
        factors, zero = sympy.Mul.make_args(core), self.factors.get(source, frozenset())
        below = [f for f in factors if f.free_symbols & tops]
        weight = [f for f in factors if f not in below] if below else [f for f in factors if _is_zero(f, zero)]
        return product(weight) if weight and len(weight) < len(factors) else None


def by_choice(core: Any) -> tuple[Any, list[Any]]:
    """A product without its factors that are 1 or 0 by choice; and the conditions of these.

    >>> from diagkit.term import value
    >>> by_choice(value("p") * where(value("keep"), ONE, ZERO))
    (p, [keep])
    """
    factors = sympy.Mul.make_args(core)
    chosen = [f for f in factors if isinstance(f, where) and f.args[1:] == (ONE, ZERO)]
    return product(f for f in factors if f not in chosen), [f.args[0] for f in chosen]


def asked(condition: Any) -> ZeroTest | None:
    """The test for 0 that a condition is; None where it is none.

    >>> from diagkit.term import value
    >>> asked(value("p") > 0)
    ZeroTest(of=p, holds=True, ordered=True)
    >>> asked(sympy.Eq(value("p"), 0)), asked(value("p") < 0)
    (ZeroTest(of=p, holds=False, ordered=False), None)
    """
    if isinstance(condition, sympy.Eq | sympy.Ne) and 0 in condition.args:
        of = next(side for side in condition.args if side != 0)
        return ZeroTest(of, isinstance(condition, sympy.Ne), ordered=False)
    if isinstance(condition, sympy.StrictGreaterThan | sympy.StrictLessThan) and condition.lts == 0:
        return ZeroTest(condition.gts, holds=True, ordered=True)
    if isinstance(condition, sympy.GreaterThan | sympy.LessThan) and condition.gts == 0:
        return ZeroTest(condition.lts, holds=False, ordered=True)
    return None


def _divides(waiting: Symbols) -> Any:
    """Divisions by what waits. What is no number is not > 0: where 0 is divided by 0, the choice was 0."""
    return lambda part: bool(part.is_Pow and part.exp == -1 and part.base.free_symbols & waiting)


def _bases(expr: Any) -> set[Any]:
    return {f.base if f.is_Pow and f.exp.is_number else f for f in sympy.Mul.make_args(expr) if not f.is_number}


def _is_zero(factor: Any, zero: frozenset[Any]) -> bool:
    return any(_vanish_alike(one, base) for one in zero for base in _bases(factor))


def _vanish_alike(one: Any, other: Any) -> bool:
    """Whether two factors are 0 together: equal, or exponentials of multiples of one exponent."""
    if one == other or not (isinstance(one, sympy.exp) and isinstance(other, sympy.exp)):
        return bool(one == other)
    ratio = sympy.cancel(other.args[0] / one.args[0])
    return bool(ratio.is_number and ratio.is_positive)


__all__ = ["ZeroTest", "Zeros", "asked", "by_choice"]
