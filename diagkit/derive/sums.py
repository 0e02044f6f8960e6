"""What a stream carries: for each reduction the partial results, and how they are carried past a chunk.

A partial sum of f(x, r), where r is another reduction that the next chunk will change, is lawful where

* f after the chunk / f before it is free of x: that factor *corrects* the partial sum; or
* f is a polynomial whose terms split into a factor of r and a sum that is free of r (*power sums*); or
* f is a choice of what equals r, r being the maximum of what is compared (see `attained`), or of what comes after
  r in order (see `ranked`); or
* f is a polynomial in a - mean(a): sums of powers of a deviation move with the mean by the binomial
  theorem (the *lemma* of Welford and Chan). Preferred to power sums, which cancel for a large mean.

Factors and terms that do not see the axis are *hoisted* out of the sum first.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as combinations
from typing import Any

import sympy

from diagkit.derive.algebra import (
    ONE,
    ZERO,
    Symbols,
    bases,
    correction,
    hide,
    is_nonnegative,
    is_positive,
    product,
    renewed,
    shift,
    split_factors,
    split_terms,
    terms,
)
from diagkit.derive.attained import ATTAINED, attained
from diagkit.derive.partial import STARTS, Accumulator, Centre, op_of
from diagkit.derive.ranked import RANKED, ranked
from diagkit.derive.sort import Sorted, halves
from diagkit.derive.unseen import only_unseen
from diagkit.term import Axes, Contract, StreamError, names, plain, quotient, value

LEMMA = "lemma: centred sums (Welford, Chan)"
_MOST_TERMS = 64


class Sums:
    """The accumulators of a sorted region, found reduction by reduction."""

    def __init__(self, chain: Sorted, hoist: bool, lemma: bool) -> None:
        self.chain, self.hoist, self.lemma = chain, hoist, lemma
        self.found: dict[Any, Accumulator] = {}
        self.values: dict[str, Any] = {}
        self.centres: dict[Any, Centre] = {}
        self.deviations: dict[str, Any] = {}
        self.summand: dict[Any, Any] = {}
        self.methods: dict[str, str] = {}
        self.divisors: dict[str, tuple[Any, ...]] = {}
        self.over: frozenset[str] = frozenset()
        for name in list(chain.reductions):
            self._reduction(name)

    @staticmethod
    def start_of(box: Any) -> Any:
        """What a reduction makes of nothing."""
        return STARTS[op_of(box)]

    def by_name(self) -> dict[str, Accumulator]:
        """The accumulators by the wire that carries them."""
        return {accumulator.name: accumulator for accumulator in self.found.values()}

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
        self._add(name, box, tuple(formulas), box.inputs, value(name))
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
        held = self._add(carrier, box, (core,), box.inputs, value(carrier) + moved)
        self._worth(name, held + outside)
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
        self._add(name, box, tuple(formulas), box.inputs, carry, sure=begun is None)
        self.methods[name] = RANKED if begun is None else ATTAINED
        return True

    def _sum(self, name: str, box: Any, formulas: list[Any]) -> bool:
        return self._corrected(name, box, formulas) or self._expanded(name, box, formulas)

    def _corrected(self, name: str, box: Any, formulas: list[Any]) -> bool:
        """One partial sum, rescaled by a factor; what need not be summed is multiplied on at the end."""
        inside, waiting = self.chain.inside(formulas, self.over), self.chain.waiting
        split = [split_factors(f, inside, waiting) if self.hoist else (ONE, f) for f in formulas]
        ratio = self._correction([core for _, core in split])
        if ratio is None:
            return False
        outside = product(factor for factor, _ in split)
        cores = tuple(core for _, core in split)
        divisors = self._divisors(product(cores))
        summed = self._partial(f"{name}.acc" if divisors or outside != 1 else name, box, cores, box.inputs, ratio)
        if summed is None:
            return False
        if divisors and summed.is_Symbol:
            self.divisors[summed.name] = divisors
        self._worth(name, outside * summed)
        self.methods[name] = self._means(formulas, inside, waiting)
        return True

    def _means(self, formulas: list[Any], inside: Symbols, waiting: Symbols) -> str:
        movable = any(split_factors(formula, inside, waiting)[0] != 1 for formula in formulas)
        return ("hoisted" if self.hoist else "normalised") if movable else "corrected"

    def _correction(self, cores: list[Any]) -> Any | None:
        inside, waiting = self.chain.inside(cores, self.over), self.chain.waiting
        vanishing = bases(plain(self.chain.full(product(cores))))

        def sound(below: Any) -> bool:
            return is_positive(below, self.summand) or all(
                base in self.summand
                and is_nonnegative(self.summand[base], self.summand)
                and {b for b in bases(self.summand[base]) if not b.is_positive or b.has(sympy.exp)} <= vanishing
                for base in bases(below)
            )

        return correction(product(cores), inside, waiting, sound)

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

    def _worth(self, name: str, worth: Any) -> None:
        """Say what a reduction is, in terms of what is carried; one that is carried already is that one."""
        if worth != value(name):
            self.values[name] = worth
        if worth.is_Symbol:
            self.chain.alias(name, worth)

    def _named(self, name: str, box: Any, cores: tuple[Any, ...]) -> str:
        """A wire for a partial result: the reduction's own where that is all it needs."""
        return name if name == box.name else self.chain.fresh(name, self._left(cores, box))

    def _expanded(self, name: str, box: Any, formulas: list[Any]) -> bool:
        """Power sums: one partial sum for each distinct product of summed factors."""
        written = [self._terms(formula) for formula in formulas]
        if len(list(combinations(*written))) > _MOST_TERMS:
            return False
        grouped: dict[Any, Any] = {}
        for choice in combinations(*written):
            cores = tuple(core for _, core in choice)
            grouped[cores] = grouped.get(cores, ZERO) + product(factor for factor, _ in choice)
        total = ZERO
        for number, (cores, factor) in enumerate(grouped.items(), 1):
            alone = name if factor == 1 else f"{name}.acc"
            summed = self._moment(f"{name}.{number}" if len(grouped) > 1 else alone, box, cores)
            if summed is None:
                return False
            total = total + factor * summed
        self._worth(name, total)
        centred = any(core.free_symbols & set(self.centres) for cores in grouped for core in cores)
        self.methods[name] = LEMMA if centred else "power sums"
        return True

    def _terms(self, formula: Any) -> list[tuple[Any, Any]]:
        """(what is multiplied on at the end, what is summed) for each term of a polynomial."""
        polynomial, hidden = hide(formula)
        chosen = terms(self._centred(polynomial, hidden) if self.lemma else polynomial, hidden)
        parts = []
        for factors in chosen:
            inside = self.chain.inside(factors, self.over)
            summed = [factor for factor in factors if factor.free_symbols & inside]
            parts.append((product(f for f in factors if f not in summed), product(summed)))
        return parts

    def _centred(self, polynomial: Any, hidden: dict[Any, Any]) -> Any:
        """The polynomial over deviations a - mean(a), wherever that takes no more terms."""
        for total in sorted(polynomial.free_symbols & set(map(value, self.by_name())), key=str):
            written = self._over_deviations(polynomial, hidden, total)
            if written is not None and len(terms(written, hidden)) <= len(terms(polynomial, hidden)):
                polynomial = written
                self._centre(self.by_name()[total.name])
        return polynomial

    def _over_deviations(self, polynomial: Any, hidden: dict[Any, Any], total: Any) -> Any | None:
        """The polynomial with total = number * (a - deviation), where it holds the mean of an `a`."""
        sums = self.by_name()[total.name]
        number = self.number(sums.over)
        inverses = [symbol for symbol, part in hidden.items() if part in (quotient(ONE, number), 1 / number)]
        inverse = next(iter(inverses), 1 / number if number.is_Integer and number > 0 else None)
        if inverse is None or sums.op != "sum" or len(sums.operands) != 1 or sums.carry != total:
            return None
        deviation = self._deviation(sums)
        written = sympy.expand(polynomial.xreplace({total: (sums.operands[0] - deviation) / inverse}))
        cancelled = not written.has(total) and not (inverse.is_Symbol and written.has(1 / inverse))
        return written if cancelled else None

    def number(self, over: tuple[str, ...]) -> Any:
        """How many elements are summed."""
        return product(self.chain.term.axis(name).size for name in over)

    def _deviation(self, sums: Accumulator) -> Any:
        """The symbol of the deviations from the mean of what `sums` sums."""
        if sums.name not in self.deviations:
            of = sums.operands[0]
            name = f"{of if of.is_Symbol else sums.name}.deviation"
            self.deviations[sums.name] = value(self.chain.fresh(name, self.chain.joined(of)))
        return self.deviations[sums.name]

    def _centre(self, sums: Accumulator) -> None:
        """Carry what deviations from this mean need: the count of what was seen."""
        symbol = self._deviation(sums)
        self.centres[symbol] = Centre(symbol, sums.operands[0], value(sums.name), self._seen(sums.over))

    def _count(self) -> Any:
        """The number of positions seen so far, counted once for all who ask."""
        if "count" not in self.found:
            name = self.chain.fresh(f"{self.chain.axis}.count")
            self.found["count"] = Accumulator(name, (), "sum", (self.chain.axis,), (), (), value(name), False)
        return value(self.found["count"].name)

    def _seen(self, over: tuple[str, ...]) -> Any:
        """How many elements have been summed so far."""
        return self._count() * self.number(tuple(axis for axis in over if axis != self.chain.axis))

    def _moment(self, name: str, box: Any, cores: tuple[Any, ...]) -> Any | None:
        """The sum of a product of summed factors, as a formula of what is carried; None where unlawful."""
        kept = [(core, source) for core, source in zip(cores, box.inputs, strict=True) if core != 1]
        if not kept:
            return self.number(tuple(self.over))
        cores, sources = tuple(core for core, _ in kept), tuple(source for _, source in kept)
        if self._cancels(product(cores)):
            return ZERO
        if not any(core.free_symbols & set(self.centres) for core in cores):
            ratio = self._correction(list(cores))
            return None if ratio is None else self._partial(name, box, cores, sources, ratio)
        return self._deviations(name, box, cores, sources)

    def _cancels(self, core: Any) -> bool:
        """Whether these are deviations from the mean of just what is summed: they sum to 0."""
        centre = self.centres.get(core)
        return centre is not None and set(self.by_name()[centre.total.name].over) == self.over

    def _deviations(self, name: str, box: Any, cores: tuple[Any, ...], sources: tuple[str, ...]) -> Any | None:
        """A sum with powers of deviations: as the mean moves by -delta, (u + delta)^p is multiplied out."""
        known = self._known(cores)
        if known is not None:
            return known
        centres = set(self.centres)
        ratio = self._correction(
            [product(f for f in sympy.Mul.make_args(product(cores)) if not f.free_symbols & centres)]
        )
        if ratio is None:
            return None
        name = self._named(name, box, cores)
        used = sorted(product(cores).free_symbols & centres, key=str)
        moves = {symbol: value(f"\0move{number}") for number, symbol in enumerate(used)}
        carry = self._moved(name, box, cores, sources, moves)
        if carry is None:
            return None
        deltas = {move: self._delta(self.centres[symbol]) for symbol, move in moves.items()}
        self._add(name, box, cores, sources, ratio * carry.xreplace(deltas))
        return value(name)

    def _delta(self, centre: Centre) -> Any:
        later = {symbol: renewed(symbol) for symbol in centre.mean.free_symbols & self._carried()}
        return centre.mean - centre.mean.xreplace(later)

    def _carried(self) -> set[Any]:
        return {value(name) for name in self.by_name()}

    def _moved(self, name: str, box: Any, cores: Any, sources: Any, moves: dict[Any, Any]) -> Any | None:
        written = [terms(*hide(core.xreplace({s: s + move for s, move in moves.items()}))) for core in cores]
        total = ZERO
        moving = set(moves.values())
        for choice in combinations(*written):
            factor = product(f for factors in choice for f in factors if f.free_symbols & moving or f.is_number)
            rest = tuple(product(f for f in fs if not (f.free_symbols & moving or f.is_number)) for fs in choice)
            summed = value(name) if rest == cores else self._lower(name, box, rest, sources)
            if summed is None:
                return None
            total = total + factor * summed
        return total

    def _lower(self, name: str, box: Any, cores: tuple[Any, ...], sources: tuple[str, ...]) -> Any | None:
        """A sum of lower degree in the deviations; 1 sums to the count."""
        kept = tuple((core, source) for core, source in zip(cores, sources, strict=True) if core != 1)
        if not kept:
            return self._seen(tuple(self.over))
        cut = type(box)(**{**vars(box), "inputs": tuple(source for _, source in kept)})
        return self._moment(f"{name}.weight", cut, tuple(core for core, _ in kept))

    def _left(self, cores: tuple[Any, ...], box: Any) -> Axes:
        """The axes of a sum of `cores`: those of the reduction that they carry."""
        carried = {axis for core in cores for axis in self._axes(core, box)}
        return tuple(axis for axis in box.axes if axis in carried)

    def _axes(self, core: Any, box: Any) -> Axes:
        """The axes of a summed factor: those of the wire that it is read from, where it is one."""
        for source in box.inputs:
            if core == self.chain.formula.get(source, value(source)):
                return self.chain.axes[value(source)]
        return self.chain.joined(core)

    def _known(self, cores: tuple[Any, ...]) -> Any | None:
        same = self.found.get(self._key("sum", cores))
        return None if same is None else value(same.name)

    def _key(self, op: str, cores: tuple[Any, ...]) -> Any:
        return op, self.over, plain(self.chain.full(product(cores)))

    def _partial(self, name: str, box: Any, cores: tuple[Any, ...], sources: tuple[str, ...], ratio: Any) -> Any | None:
        """A partial sum that is rescaled by `ratio`, times the sizes of summed axes that it lacks."""
        known = self._known(cores)
        summed = {axis.name for core in cores for axis in self._axes(core, box)}
        if self.chain.axis not in summed:
            return None
        if known is None:
            name = self._named(name, box, cores)
            self._add(name, box, cores, sources, ratio * value(name))
            known = value(name)
        return known * self.number(tuple(sorted(self.over - summed)))

    def _add(self, name: str, box: Any, cores: Any, sources: Any, carry: Any, sure: bool = False) -> Any:
        """Carry one more thing, unless it is carried already; the value that carries it."""
        axes = self._left(cores, box)
        summed = {axis.name for core in cores for axis in self._axes(core, box)}
        over = tuple(axis for axis in self.chain.term.axes if axis in self.over & summed)
        self.chain.axes[value(name)] = axes
        kept = tuple((core, source) for core, source in zip(cores, sources, strict=True) if core != 1)
        made = Accumulator(
            name, axes, op_of(box), over, tuple(c for c, _ in kept), tuple(s for _, s in kept), carry,
            isinstance(box, Contract) and len(kept) > 1, sure,
        )  # fmt: skip
        known = self.found.setdefault(self._key(op_of(box), cores), made)
        self._worth(name, value(known.name))
        return value(known.name)

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
