"""What a stream carries: for each reduction the partial results, and how they are carried past a chunk.

A partial sum of f(x, r), where r is another reduction that the next chunk will change, is lawful where

* f after the chunk / f before it is free of x: that factor *corrects* the partial sum; or
* f is a polynomial whose terms split into a factor of r and a sum that is free of r (*power sums*); or
* f is a choice of what equals r, r being the maximum of what is compared (see `attained`), or of what comes after
  r in order (see `ranked`); or
* f is a polynomial in a - mean(a): sums of powers of a deviation, under any weights, move with the mean by the
  binomial theorem (the *lemma* of Welford and Chan; see `moments`). Preferred to power sums, which cancel for a
  large mean.

Factors and terms that do not see the axis are *hoisted* out of the sum first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from diagkit.derive.algebra import Symbols, is_positive, product, shift, split_factors, split_terms
from diagkit.derive.attained import ATTAINED, attained
from diagkit.derive.carried import Carried
from diagkit.derive.exponents import Exponents, split_exponentials
from diagkit.derive.moments import Moments
from diagkit.derive.partial import STARTS, op_of
from diagkit.derive.ranked import RANKED, ranked
from diagkit.derive.sort import Sorted, halves
from diagkit.derive.unseen import only_unseen
from diagkit.term import StreamError, names, plain, value


class Sums(Carried):
    """The accumulators of a sorted region, found reduction by reduction."""

    def __init__(self, chain: Sorted, hoist: bool, lemma: bool) -> None:
        super().__init__(chain)
        self.hoist, self.moments, self.exponents = hoist, Moments(self, lemma), Exponents(self)
        for name in list(chain.reductions):
            self._reduction(name)

    @staticmethod
    def start_of(box: Any) -> Any:
        """What a reduction makes of nothing."""
        return STARTS[op_of(box)]

    def _reduction(self, name: str) -> None:
        box: Any = self.chain.boxes[name]
        formulas = [self.chain.formula.get(wire, value(wire)) for wire in box.inputs]
        self.over, waiting = self.chain.over(box), self.chain.waiting
        rows = self.chain.inside(formulas, self.over) & waiting
        if rows:
            self._in_two(name, rows)
            return
        self.summand[value(name)] = plain(self.chain.full(product(formulas)))
        waits = {s for formula in formulas for s in formula.free_symbols & waiting}
        case = self._waiting_case(op_of(box)) if waits else self._plain
        if not case(name, box, formulas) and not self._attained(name, box, formulas):
            raise self._refusal(name, box, formulas)

    def _waiting_case(self, op: str) -> Callable[[str, Any, list[Any]], bool]:
        """How a reduction of what waits is found. A product would be rescaled once for each of its factors."""
        cases = {"sum": self._sum, "max": self._extreme, "min": self._extreme}
        return cases.get(op, lambda *_: False)

    def _in_two(self, name: str, rows: Symbols) -> None:
        axes = {axis for symbol in rows for axis in names(self.chain.axes[symbol])}
        self._reduction(halves(self.chain, name, frozenset(axes & self.over)))

    def _plain(self, name: str, box: Any, formulas: list[Any]) -> bool:
        """Nothing waits: the partial results simply add up."""
        self.add(name, box, tuple(formulas), box.inputs, value(name))
        return True

    def _extreme(self, name: str, box: Any, formulas: list[Any]) -> bool:
        """A maximum or minimum: terms are hoisted always, since one may be infinite for now (the log of an
        empty sum); what is left may shift."""
        (formula,), waiting = formulas, self.chain.waiting
        inside = self.chain.inside(formulas, self.over)
        outside, core = split_terms(formula, inside, waiting)
        moved = shift(core, inside, waiting)
        if moved is None:
            return False
        carrier = name if outside == 0 else self.chain.fresh(f"{name}.acc", box.axes)
        held = self.add(carrier, box, (core,), box.inputs, value(carrier) + moved)
        self.worth(name, held + outside)
        return True

    def _attained(self, name: str, box: Any, formulas: list[Any]) -> bool:
        inside, waiting, known = self.chain.inside(formulas, self.over), self.chain.waiting, self.by_name()
        same = {one: known[one] for one in known if set(known[one].over) == self.over}
        if len(formulas) != 1:
            return False
        begun = attained(op_of(box), value(name), formulas[0], inside, waiting, same)
        carry = ranked(op_of(box), value(name), formulas[0], same) if begun is None else begun
        if carry is None:
            return False
        self.add(name, box, tuple(formulas), box.inputs, carry, sure=begun is None)
        self.methods[name] = RANKED if begun is None else ATTAINED
        return True

    def _sum(self, name: str, box: Any, formulas: list[Any]) -> bool:
        formulas = self.exponents.over_extremes(formulas, box)
        return self._corrected(name, box, formulas) or self.moments.expanded(name, box, formulas)

    def _corrected(self, name: str, box: Any, formulas: list[Any]) -> bool:
        """One partial sum, rescaled by a factor; what need not be summed is multiplied on at the end."""
        inside, waiting = self.chain.inside(formulas, self.over), self.chain.waiting
        split = [(split_factors if self.hoist else split_exponentials)(f, inside, waiting) for f in formulas]
        ratio = self.correction([core for _, core in split])
        if ratio is None:
            return False
        outside = product(factor for factor, _ in split)
        cores = tuple(core for _, core in split)
        divisors = self._divisors(product(cores))
        summed = self.partial(f"{name}.acc" if divisors or outside != 1 else name, box, cores, box.inputs, ratio)
        if summed is None:
            return False
        if divisors and summed.is_Symbol:
            self.divisors[summed.name] = divisors
        self.worth(name, outside * summed)
        self.methods[name] = self._means(formulas, inside, waiting)
        return True

    def _means(self, formulas: list[Any], inside: Symbols, waiting: Symbols) -> str:
        movable = any(split_factors(formula, inside, waiting)[0] != 1 for formula in formulas)
        return ("hoisted" if self.hoist else "normalised") if movable else "corrected"

    def _divisors(self, core: Any) -> tuple[Any, ...]:
        """What `core` is divided by while that still changes, and may be 0 at the end though something was seen."""
        waiting = self.chain.waiting
        below = [part.base for part in core.atoms(sympy.Pow) if part.exp.is_number and part.exp.is_negative]
        doubtful = [b for b in below if b.free_symbols & waiting and not is_positive(b, self.summand)]
        return tuple(sorted((b for b in doubtful if not self.only_unseen(b)), key=sympy.default_sort_key))

    def only_unseen(self, below: Any) -> bool:
        """Whether this is a sum that is 0 only where nothing was seen."""
        known = self.by_name()
        one = known.get(str(getattr(below, "name", "")))
        extremes = {value(n): other.operands[0] for n, other in known.items() if other.op in ("max", "min")}
        return one is not None and only_unseen(product(one.operands), extremes)

    def _refusal(self, name: str, box: Any, formulas: list[Any]) -> StreamError:
        waits = [w for wire in box.inputs for w in self.chain.waits.get(wire, ())]
        last = next(w for w in reversed(self.chain.reductions) if w in waits)
        how = {"sum": ", and not by a factor", "product": ""}.get(op_of(box), ", and not by a shift")
        what = f"each chunk of {self.chain.axis} changes what it takes the {op_of(box)} of{how}"
        return StreamError(
            f"{name!r} waits for {last!r}: {what}",
            axis=self.chain.axis,
            box=name,
            remedy=f"run two passes: end a kernel at {last!r}, then stream the rest",
        )
