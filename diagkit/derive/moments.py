"""Sums of polynomials in what still changes: as sums of powers, or better as sums of powers of deviations.

A term of a polynomial is a factor that no element enters times a sum that is carried. With u = a - c, c being the mean
of the a that have been seen, sums of ``w u^p v^r`` move with the means by the binomial theorem: as c moves by -delta, u
becomes u + delta, and what is multiplied out are sums of lower degree. Where c is the mean under the weights w
themselves, ``w u`` sums to 0 and is not carried.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product as combinations
from typing import Any

import sympy

from diagkit.derive.algebra import ONE, ZERO, hide, product, renewed, terms
from diagkit.derive.carried import Carried
from diagkit.derive.means import Mean, means_in, not_negative
from diagkit.derive.near import Near, near
from diagkit.derive.partial import Accumulator, Centre
from diagkit.derive.tops import TOPPED, Top, counted_from, extremes_in
from diagkit.term import Map, arg, plain, value, where

LEMMA = "lemma: centred sums (Welford, Chan)"
_MOST_TERMS = 64
Product = list[list[list[Any]]]
"""A product of sums of terms, each term a list of factors."""


class Moments:
    """Finds the sums behind the polynomials of a region, and the means that deviations in them are taken from."""

    def __init__(self, carried: Carried, lemma: bool) -> None:
        self.carried, self.chain, self.lemma = carried, carried.chain, lemma
        self.centres: dict[Any, Centre | Top] = {}
        self.deviations: dict[Any, Any] = {}
        self.gaps: dict[Any, Any] = {}
        self.divided: dict[Any, Any] = {}

    def expanded(self, name: str, box: Any, formulas: list[Any]) -> bool:
        """One partial sum for each distinct product of summed factors; whether they can be carried."""
        written = [self._terms(chosen) for chosen in self._chosen(formulas, box)]
        if len(list(combinations(*written))) > _MOST_TERMS:
            return False
        grouped: dict[Any, Any] = {}
        for choice in combinations(*written):
            cores = tuple(core for _, core in choice)
            grouped[cores] = grouped.get(cores, ZERO) + product(factor for factor, _ in choice)
        total, doubtful = ZERO, self._doubtful(name, grouped)
        for number, (cores, factor) in enumerate(grouped.items(), 1):
            alone = name if factor == 1 and not doubtful else f"{name}.acc"
            summed = self._moment(f"{name}.{number}" if len(grouped) > 1 else alone, box, cores)
            if summed is None:
                return False
            total = total + factor * summed
        self.carried.worth(name, total.xreplace(self.gaps))
        if doubtful:
            self.carried.divisors[name] = doubtful
        used = {symbol for cores in grouped for core in cores for symbol in core.free_symbols & set(self.centres)}
        self.carried.methods[name] = self._method(used)
        return True

    def _doubtful(self, name: str, grouped: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
        """The sums that means in these were divided by, where 0 / 0 would make the whole no number: a factor does, and
        a choice does not; and not where what reads the whole divides it once more."""
        whole = [product(cores) for cores in grouped]
        if any(isinstance(factor, where) for one in whole for factor in sympy.Mul.make_args(one)):
            return ()
        used = set().union(*(one.free_symbols for one in whole)) & self.divided.keys()
        return tuple(sorted({self.divided[u] for u in used if not self._divided_again(name, self.divided[u])}, key=str))

    def _divided_again(self, name: str, by: Any) -> bool:
        """Whether everything that reads a wire is a quotient of it and `by`."""
        readers = self.chain.term.consumers(name)
        sums = {wire for wire in self.chain.boxes if self.chain.formula[wire] == by}
        again = all(isinstance(one, Map) and _quotient_of(one, name, sums) for one in readers)
        return again and name not in self.chain.region.stores

    def _method(self, used: set[Any]) -> str:
        lemma = TOPPED if used <= self.tops else LEMMA
        return lemma if used else "power sums"

    @property
    def tops(self) -> frozenset[Any]:
        """The symbols of what is counted from an extreme."""
        return frozenset(symbol for symbol, centre in self.centres.items() if isinstance(centre, Top))

    def _terms(self, chosen: list[list[Any]]) -> list[tuple[Any, Any]]:
        """(what is multiplied on at the end, what is summed) for each term of a polynomial."""
        parts = []
        for factors in chosen:
            inside = self.chain.inside(factors, self.carried.over)
            summed = [factor for factor in factors if factor.free_symbols & inside]
            parts.append((product(f for f in factors if f not in summed), product(summed)))
        return parts

    def _chosen(self, formulas: list[Any], box: Any) -> Product:
        """The terms of each factor: over deviations where it has any, else as it is written."""
        own = [self._about_extremes(one) or (self._about_own_means(one) if self.lemma else None) for one in formulas]
        apart = near(formulas, self.chain.inside(formulas, self.carried.over), self.chain.waiting)
        degrees = [degree if one is None else 1 for degree, one in zip(apart.degrees, own, strict=True)]
        written = [one or terms(*hide(formula)) for one, formula in zip(own, formulas, strict=True)]
        if not self.lemma or sum(degrees) < 2:
            return written
        parts = [one or terms(part, apart.hidden) for one, part in zip(own, apart.factors, strict=True)]
        return self._about_other_means(apart, parts, box) or written

    def _about_extremes(self, formula: Any) -> list[list[Any]] | None:
        """The terms of a polynomial counted from the extremes in it; None where there are none."""
        polynomial, hidden = hide(self.carried.written(formula))
        used: dict[Any, Top] = {}
        for one, held in extremes_in(hidden, polynomial, self.carried):
            symbol = self._shifted(one)
            written = counted_from(polynomial, hidden, one.operands[0], held, symbol)
            if written is not None:
                polynomial = written
                used[symbol] = Top(symbol, one.operands[0], value(one.name), 1 if one.op == "max" else -1)
        self.centres |= used
        return terms(polynomial, hidden) if used else None

    def _shifted(self, one: Accumulator) -> Any:
        key = one.name, one.operands[0]
        if key not in self.deviations:
            of = one.operands[0]
            name = f"{of if of.is_Symbol else one.name}.shifted"
            self.deviations[key] = value(self.chain.fresh(name, self.chain.joined(of * value(one.name))))
        return self.deviations[key]

    def _about_own_means(self, formula: Any) -> list[list[Any]] | None:
        """The terms of a polynomial over deviations from means that it holds itself; None where it holds none."""
        worth = self.carried.written(formula)
        found = [self._centred(one) for one in dict.fromkeys((worth, self.chain.full(worth)))]
        chosen, used = min(found, key=lambda one: len(one[0]) if one[1] else _MOST_TERMS)
        self.centres |= {symbol: self._centre(symbol, mean) for symbol, mean in used.items()}
        self.divided |= {symbol: mean.sum for symbol, mean in used.items() if mean.divides}
        return chosen if used else None

    def _about_other_means(self, apart: Near, chosen: Product, box: Any) -> Product | None:
        """The terms of a product of polynomials in a - r over deviations of a from a mean of what was seen of it."""
        centres: dict[Any, Centre] = {}
        left = {symbol for terms_ in chosen for factors in terms_ for f in factors for symbol in f.free_symbols}
        for u in (one for one in apart.of if one in left):
            centre = self._made_centre(apart.of[u], *self._weights(u, apart, chosen), box)
            if centre is None:
                return None
            centres[u] = centre
        self.centres |= {one.symbol: one for one in centres.values()}
        self.gaps = {d: centres[u].mean - r for d, (u, r) in apart.gaps.items() if u in centres}
        held = {u: one.symbol for u, one in centres.items()}
        return [[[factor.xreplace(held) for factor in factors] for factors in one] for one in chosen]

    def _weights(self, u: Any, apart: Near, chosen: Product) -> tuple[tuple[Any, ...], int]:
        """The size of what powers of u are multiplied with, by the product's factors, 1 where terms differ in it; and
        the place of a factor with u in it."""
        weights, places = set[tuple[Any, ...]](), set[int]()
        for choice in combinations(*chosen):
            found = {place for place, factors in enumerate(choice) if any(f.has(u) for f in factors)}
            if found:
                places |= found
                weights.add(tuple(self._weight(factors, apart) for factors in choice))
        return weights.pop() if len(weights) == 1 else (ONE,) * len(chosen), min(places)

    def _weight(self, factors: list[Any], apart: Near) -> Any:
        moving = apart.of.keys() | apart.gaps.keys() | self.centres.keys()
        inside = self.chain.inside(factors, self.carried.over)
        weight = product(f for f in factors if f.free_symbols & inside and not f.free_symbols & moving)
        return weight if not_negative((weight,), self.carried) else sympy.Abs(weight)

    def _made_centre(self, a: Any, weights: tuple[Any, ...], place: int, box: Any) -> Centre | None:
        """The mean of the values `a` under weights that are not negative, whose sums are carried for it; None where
        these cannot be."""
        weighted = tuple(core * a if place == at else core for at, core in enumerate(weights))
        name = self._name_of(a, box)
        total = self._sum_of(f"{name}.total", box, weighted, box.inputs)
        if total is None or not total.is_Symbol:
            return None
        weight = product(weights)
        seen = None if weight == 1 else self._sum_of(f"{name}.weights", box, weights, box.inputs)
        mean = Mean(a, weight, self.carried.by_name()[total.name], ZERO, seen)
        return self._centre(self._deviation(mean), mean) if weight == 1 or seen is not None else None

    def _name_of(self, a: Any, box: Any) -> str:
        return str(a if a.is_Symbol else box.name)

    def _centred(self, formula: Any) -> tuple[list[list[Any]], dict[Any, Mean]]:
        """The terms of a formula over deviations a - mean(a), wherever that takes no more terms; and these means."""
        polynomial, hidden = hide(formula)
        chosen, used = terms(polynomial, hidden), dict[Any, Mean]()
        known = self.carried.by_name()
        for total in sorted(polynomial.free_symbols & set(map(value, known)), key=str):
            for mean in means_in(hidden, known[total.name], self.carried):
                written = self._over_deviations(polynomial, mean, hidden)
                parts = [] if written is None else terms(written, hidden)
                if written is not None and len(parts) <= len(chosen):
                    polynomial, chosen = written, parts
                    used[self._deviation(mean)] = mean
                    break
        return chosen, used

    def _over_deviations(self, polynomial: Any, mean: Mean, hidden: dict[Any, Any]) -> Any | None:
        """The polynomial with total = (a - deviation) / inverse, where that leaves no total in it."""
        total, inverse = value(mean.total.name), mean.inverse
        of = hide(mean.of, hidden)[0]
        written = sympy.expand(polynomial.xreplace({total: (of - self._deviation(mean)) / inverse}))
        cancelled = not written.has(total) and not (inverse.is_Symbol and written.has(1 / inverse))
        return written if cancelled else None

    def _deviation(self, mean: Mean) -> Any:
        """The symbol of the deviations from a mean."""
        key = mean.total.name, mean.of
        if key not in self.deviations:
            name = f"{mean.of if mean.of.is_Symbol else mean.total.name}.deviation"
            axes = self.chain.joined(mean.of * value(mean.total.name))
            self.deviations[key] = value(self.chain.fresh(name, axes))
        return self.deviations[key]

    def _centre(self, symbol: Any, mean: Mean) -> Centre:
        """What deviations from this mean need: the sum of the weights seen, or the count."""
        seen = mean.sum if mean.sum is not None else self.carried.seen(mean.total.over)
        return Centre(symbol, mean.of, value(mean.total.name), seen, mean.weight)

    def _moment(self, name: str, box: Any, cores: tuple[Any, ...]) -> Any | None:
        """The sum of a product of summed factors, as a formula of what is carried; None where unlawful."""
        kept = [(core, source) for core, source in zip(cores, box.inputs, strict=True) if core != 1]
        if not kept:
            return self.carried.number(tuple(self.carried.over))
        cores, sources = tuple(core for core, _ in kept), tuple(source for _, source in kept)
        if self._cancels(product(cores)):
            return ZERO
        if not any(core.free_symbols & set(self.centres) for core in cores):
            ratio = self.carried.correction(list(cores))
            return None if ratio is None else self.carried.partial(name, box, cores, sources, ratio)
        return self._moving(name, box, cores, sources)

    def _cancels(self, core: Any) -> bool:
        """Whether these are deviations from the mean of just what is summed: they sum to 0."""
        return any(
            set(self.carried.by_name()[centre.total.name].over) == self.carried.over
            and self._full(core) == self._full(centre.weight * centre.symbol)
            for centre in self.centres.values()
            if centre.symbol in core.free_symbols
        )

    def _full(self, core: Any) -> Any:
        return plain(self.chain.full(core))

    def _moving(self, name: str, box: Any, cores: tuple[Any, ...], sources: tuple[str, ...]) -> Any | None:
        """A sum with powers of deviations: as the mean moves by -delta, (u + delta)^p is multiplied out."""
        known = self.carried.known(cores)
        if known is not None:
            return known
        centres = set(self.centres)
        still = product(f for f in sympy.Mul.make_args(product(cores)) if not f.free_symbols & centres)
        ratio = self.carried.correction([still])
        if ratio is None:
            return None
        name = self.carried.named(name, box, cores)
        used = sorted(product(cores).free_symbols & centres, key=str)
        moves = {symbol: value(f"\0move{number}") for number, symbol in enumerate(used)}
        carry = self._moved(name, box, cores, sources, moves)
        if carry is None:
            return None
        deltas = {move: self._delta(self.centres[symbol]) for symbol, move in moves.items()}
        self.carried.add(name, box, cores, sources, ratio * carry.xreplace(deltas))
        return value(name)

    def _delta(self, centre: Centre | Top) -> Any:
        changing = set(map(value, self.carried.by_name()))
        later = {symbol: renewed(symbol) for symbol in centre.mean.free_symbols & changing}
        return centre.mean - centre.mean.xreplace(later)

    def _moved(self, name: str, box: Any, cores: Any, sources: Any, moves: dict[Any, Any]) -> Any | None:
        written = [terms(*hide(core.xreplace({s: s + move for s, move in moves.items()}))) for core in cores]
        total = ZERO
        moving = set(moves.values())
        for choice in combinations(*written):
            factor = product(f for factors in choice for f in factors if f.free_symbols & moving or f.is_number)
            rest = tuple(product(f for f in fs if not (f.free_symbols & moving or f.is_number)) for fs in choice)
            summed = value(name) if rest == cores else self._sum_of(f"{name}.weight", box, rest, sources)
            if summed is None:
                return None
            total = total + factor * summed
        return total

    def _sum_of(self, name: str, box: Any, cores: tuple[Any, ...], sources: tuple[str, ...]) -> Any | None:
        """The sum of a product that the reduction needs besides its own; 1 sums to the count."""
        kept = tuple((core, source) for core, source in zip(cores, sources, strict=True) if core != 1)
        if not kept:
            return self.carried.seen(tuple(self.carried.over))
        cut = type(box)(**{**vars(box), "inputs": tuple(source for _, source in kept)})
        return self._moment(name, cut, tuple(core for core, _ in kept))


def _quotient_of(box: Map, above: str, below: set[str]) -> bool:
    """Whether a map is a product with the wire `above` in it and one over one of the wires `below`."""
    factors = sympy.Mul.make_args(box.expr)
    places = {wire: arg(place) for place, wire in enumerate(box.inputs)}
    return places[above] in factors and any(1 / places[one] in factors for one in below & places.keys())
