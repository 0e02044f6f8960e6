"""Exponentials of what still changes, exp(a - r), over the largest a that was seen.

Where r is no maximum of a, exp(a - r) may overflow in a partial result and be moderate in the whole: the mean of what
was seen so far may lie far below what follows. ``exp(a - r) = exp(a - m) exp(m - r)`` with m the maximum of a: the
first factor is at most 1 and is summed, the second is no element's and waits for the end. No exponential of a
difference is pulled apart but for this.
"""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.derive.algebra import ONE, Symbols, is_shifted, product
from diagkit.derive.carried import Carried
from diagkit.derive.partial import Accumulator
from diagkit.term import Reduce, finite, names, plain, quotient, value, where


class Exponents:
    """Writes the exponentials of a region over maxima that are carried."""

    def __init__(self, carried: Carried) -> None:
        self.carried, self.chain = carried, carried.chain
        self.apart = False

    def over_extremes(self, formulas: list[Any], box: Any) -> list[Any]:
        """The factors of a summed product, each exponential that may overflow on the way over an extreme."""
        inside, waiting = self.chain.inside(formulas, self.carried.over), self.chain.waiting

        seen = {choice.args[0] for one in formulas for choice in self.chain.full(one).atoms(where)}

        def over(part: Any) -> Any:
            found = self._terms(part.exp, inside, waiting, seen)
            return part if found is None else self._over(part, *found, box)

        def grows(part: Any) -> bool:
            return is_shifted(part) and bool(part.free_symbols & inside)

        written = [formula.replace(grows, over) for formula in formulas]
        return [self._cancelled(one, inside) for one in written] if self.apart else formulas

    def _terms(self, exponent: Any, inside: Symbols, waiting: Symbols, seen: set[Any]) -> tuple[Any, Any] | None:
        """An exponent as a and r; None where nothing waits, where an element enters r, or where an extreme of a is
        taken off already."""
        r = sympy.Add(*(part for part in sympy.Add.make_args(exponent) if part.free_symbols & waiting))
        a = exponent - r
        streamed = self.chain.axis in names(self.chain.joined(a))
        if (
            r == 0
            or r.free_symbols & inside
            or not streamed
            or self._bounded(plain(self.chain.full(exponent)), waiting, seen)
        ):
            return None
        return a, r

    def _bounded(self, exponent: Any, waiting: Symbols, seen: set[Any]) -> bool:
        """Whether an exponent is a number where an element is the extreme that it holds; one taken of what a mask lets
        through will do for what is summed under the same mask, one of the `seen`."""
        extremes = [one for one in self.carried.by_name().values() if one.op in ("max", "min")]
        held = [(self._elements(one, seen), value(one.name)) for one in extremes if exponent.has(value(one.name))]
        tops = [_at_extreme(exponent, of, top) for of, top in held]
        return any(not (top.free_symbols & waiting or self.chain.inside([top], self.carried.over)) for top in tops)

    def _elements(self, extreme: Accumulator, seen: set[Any]) -> Any:
        """What an extreme is taken of, without a mask that is one of the `seen`."""
        of = self.chain.full(extreme.operands[0])
        under = isinstance(of, where) and of.args[0] in seen and of.args[2] == extreme.start
        return of.args[1] if under else of

    def _over(self, part: Any, a: Any, r: Any, box: Any) -> Any:
        factor, of = _primitive(a)
        sign = 1 if factor * _growth(part) > 0 else -1
        held = self._extreme(of, "max" if sign == 1 else "min", box)
        guarded = sign * finite(sign * held)
        top = factor * (guarded if r.has(finite(sign * held)) else held)
        base = sympy.E if isinstance(part, sympy.exp) else part.base
        self.apart = True
        return base ** (a - top) * base ** (top + r)

    def _extreme(self, of: Any, op: str, box: Any) -> Any:
        """The carried extreme of what stands in an exponent."""
        axes = self.chain.joined(of)
        wire = next(symbol.name for symbol in sorted(of.free_symbols, key=str) if self.chain.axes.get(symbol))
        kept = tuple(axis for axis in axes if axis.name not in self.carried.over)
        over = tuple(axis.name for axis in axes if axis.name in self.carried.over)
        name = f"{of.name if of.is_Symbol else box.name}.{op}"
        return self.carried.extreme(Reduce(name, kept, (wire,), op, over), of)

    def _cancelled(self, formula: Any, inside: Symbols) -> Any:
        """`formula` in terms of what is carried, with every exponential that no element enters as a factor of its
        own: out of what is divided by and out of logs, where they cancel."""
        formula = self.carried.written(formula)
        self.carried.follow(formula.free_symbols)
        formula = formula.replace(quotient, _out_of_quotient).replace(sympy.log, _out_of_log)
        formula = formula.replace(finite, lambda u: sympy.Add(*map(_finite, sympy.Add.make_args(u))))
        return formula.replace(sympy.Mul, lambda *factors: _joined(factors, inside))


def _out_of_quotient(above: Any, below: Any) -> Any:
    factors, rest = _exponentials(below)
    return above * quotient(ONE, rest) / product(factors)


def _out_of_log(inside: Any) -> Any:
    factors, rest = _exponentials(inside)
    logs = (f.exp if isinstance(f, sympy.exp) else f.exp * sympy.log(f.base) for f in factors)
    return sympy.log(rest, evaluate=False) + sympy.Add(*logs)


def _finite(part: Any) -> Any:
    """A log may be -inf: that of an empty sum. What was an exponent is a number."""
    return part if not part.has(sympy.log) and not part.is_Symbol else finite(part)


def _exponentials(expr: Any) -> tuple[list[Any], Any]:
    factors = [f for f in sympy.Mul.make_args(expr) if is_shifted(f)]
    return factors, product(f for f in sympy.Mul.make_args(expr) if f not in factors)


def _joined(factors: tuple[Any, ...], inside: Symbols) -> Any:
    """A product with the exponentials that no element enters as one."""
    alike = [f for f in factors if isinstance(f, sympy.exp) and not f.free_symbols & inside]
    one = sympy.exp(sympy.expand(sympy.Add(*(f.exp for f in alike))))
    return product(f for f in factors if f not in alike) * one


def split_exponentials(expr: Any, inside: Symbols, waiting: Symbols) -> tuple[Any, Any]:
    """Exponentials that wait and that no element enters, and all other factors.

    >>> s, m, r, z = map(value, "smrz")
    >>> split_exponentials(sympy.exp(s - m) * sympy.exp(m - r) / z, frozenset([s]), frozenset([m, r, z]))
    (exp(m - r), exp(-m + s)/z)
    """
    factors = sympy.Mul.make_args(expr)
    outside = [f for f in factors if is_shifted(f) and f.free_symbols & waiting and not f.free_symbols & inside]
    return product(outside), product(f for f in factors if f not in outside)


def _at_extreme(exponent: Any, of: Any, top: Any) -> Any:
    """An exponent at the element that is the extreme; the larger of that and another takes off no less."""
    least = exponent.replace(sympy.Max, lambda *parts: top if top in parts else sympy.Max(*parts))
    return sympy.expand(least.xreplace({of: top}))


def _primitive(a: Any) -> tuple[Any, Any]:
    """A number above or below 0, and what it is multiplied with."""
    factor, of = a.primitive() if a.is_Add else a.as_coeff_Mul()
    return (factor, of) if factor.is_number and factor != 0 else (ONE, a)


def _growth(part: Any) -> Any:
    return ONE if isinstance(part, sympy.exp) else sympy.sign(sympy.log(part.base))


__all__ = ["Exponents", "split_exponentials"]
