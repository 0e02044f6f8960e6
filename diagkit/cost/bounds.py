"""Between which numbers the elements of each wire lie, made box by box from those of the inputs.

Three things that intervals alone do not know are followed from box to box, since formats are chosen by them: a maximum
is reached by what it is taken of, so the largest exp(s - max s) is 1; what is divided by its own sum adds up to 1;
what is divided by its largest magnitude is at most 1. None of this knows softmax or quantizers by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from diagkit.cost.intervals import ALL, Interval, product, raised, within
from diagkit.ops import format_range, format_step, rounded
from diagkit.term import (
    Array,
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    Term,
    View,
    arg,
    coordinate,
    finite,
    names,
    quotient,
    size,
    value,
    where,
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a wire come from: element by element those of `wire`, read at `places` (a position along
    each of its axes, by the positions of the reader); `free` are the positions that a reduction ran through."""

    wire: str = ""
    places: tuple[tuple[str, Any], ...] = ()
    free: tuple[tuple[Any, int], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether nothing was read in another place."""
        ran = {symbol for symbol, _ in self.free}
        return all(place in (coordinate(axis), _ran(axis)) or place in ran for axis, place in self.places)

    def moved(self, to: Mapping[Any, Any]) -> Origin:
        """The same with other positions of the reader."""
        return replace(self, places=tuple((axis, sympy.sympify(place).xreplace(to)) for axis, place in self.places))

    def through(self, over: tuple[str, ...], numbers: Mapping[str, int]) -> Origin:
        """The same after a reduction over those axes of the reader."""
        gone = {coordinate(axis): _ran(axis) for axis in over}
        return replace(self.moved(gone), free=(*self.free, *((_ran(axis), numbers[axis]) for axis in over)))

    def holds(self, other: Origin, numbers: Mapping[str, int]) -> bool:
        """Whether among the elements that were run through is the one of `other`, at every position."""
        if self.wire != other.wire:
            return False
        there, sizes = dict(other.places), dict(self.free)
        return all(_reaches(place, there[axis], sizes, numbers[axis]) for axis, place in self.places)


def _ran(axis: str) -> Any:
    return value(f"all of {axis}")


def _reaches(place: Any, wanted: Any, free: Mapping[Any, int], length: int) -> bool:
    """Whether a place that holds a free position is somewhere the wanted one: the whole axis, or a block around it."""
    ran = [symbol for symbol in free if place.has(symbol)]
    if not ran:
        return bool(sympy.expand(place - wanted) == 0)
    if len(ran) > 1 or sympy.expand(place - ran[0]).has(ran[0]):
        return False
    rest, width = sympy.expand(place - ran[0]), free[ran[0]]
    whole = rest == 0 and width >= length
    return whole or bool(sympy.expand(rest - width * sympy.floor(wanted / width)) == 0)


@dataclass(frozen=True)
class Relation:
    """What a wire is: `factor` times the largest ("max"), the largest magnitude ("norm") or the "sum" of what `of`
    names; or the magnitudes of it ("abs"); or it less its largest ("top"), over `axes`."""

    kind: str
    of: Origin
    factor: float = 1.0
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bound:
    """What is known of a wire: every element lies between `low` and `high`; along the axes `reached`, whatever the
    others are, the largest magnitude is at least `peak`; along each axis of `totals` the magnitudes add up to at most
    so much; `relation` to another wire, where there is one; `origin`, of its numbers. Where an infinity was written
    (the score of a hidden key) or is exact (the logarithm of nothing), `ends` are those of the finite numbers beside
    it, and `reached` holds in the rows that have one."""

    low: float
    high: float
    peak: float = 0.0
    reached: tuple[str, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)
    relation: Relation | None = None
    origin: Origin = Origin()
    ends: Interval | None = None

    @property
    def interval(self) -> Interval:
        """Between which two numbers every element lies."""
        return self.low, self.high

    @property
    def finite(self) -> Interval:
        """Between which two numbers every finite element lies."""
        return self.interval if self.ends is None else self.ends

    @property
    def largest(self) -> float:
        """The largest magnitude that an element may have."""
        return max(abs(self.low), abs(self.high))


def first_bound(wire: Array | Box, low: float, high: float) -> Bound:
    """A wire of which no more is known than its interval.

    >>> from diagkit.ops import array, axis
    >>> first_bound(array("X", axis("x")).source, -1.0, 2.0).largest
    2.0
    """
    return Bound(low, high, origin=_own(wire))


def _own(wire: Array | Box) -> Origin:
    return Origin(wire.name, tuple((axis, coordinate(axis)) for axis in names(wire.axes)))


PART = value("part of a formula")
"""What stands in a formula for the piece of it of which more is known than its arguments tell."""


@dataclass(frozen=True)
class Rules:
    """How each kind of box makes a bound of those of its inputs, where the axes have these sizes."""

    term: Term
    numbers: Mapping[str, int]

    def cases(self) -> dict[type[Box], Callable[..., Bound]]:
        """The rule of each kind, for `Term.fold`."""
        return {
            Map: self.mapped, Reduce: self.reduced, Contract: self.contracted, Cast: self.cast, View: self.view,
            Index: lambda box: first_bound(box, 0.0, max(self.numbers[box.axes[0].name] - 1.0, 0.0)),
        }  # fmt: skip

    def sized(self, expr: Any) -> Any:
        """A formula with numbers for sizes."""
        return expr.xreplace({size(name): sympy.Integer(number) for name, number in self.numbers.items()})

    def view(self, box: Any, source: Bound) -> Bound:
        """The same numbers elsewhere, and 0 outside. A maximum may be another one where 0 comes in."""
        before = _axes_of(self.term, box.inputs[0])
        read = {coordinate(axis): self.sized(place) for axis, place in zip(before, box.coordinates, strict=True)}
        kept = source.relation if source.relation and source.relation.kind in ("norm", "sum") else None
        relation = kept and replace(kept, of=kept.of.moved(read))
        low, high = min(source.low, 0.0), max(source.high, 0.0)
        ends = source.ends and (min(source.ends[0], 0.0), max(source.ends[1], 0.0))
        return Bound(low, high, relation=relation, origin=source.origin.moved(read), ends=ends)

    def cast(self, box: Any, source: Bound) -> Bound:
        """Rounding keeps the order of numbers; what is beyond the format becomes its end, what is too small 0."""
        low, high = (rounded(end, box.dtype) for end in source.interval)
        rounding = ((axis, _rounded_total(n, box.dtype, self.numbers[axis])) for axis, n in source.totals.items())
        peak = rounded(source.peak, box.dtype)
        ends = source.ends and (rounded(source.ends[0], box.dtype), rounded(source.ends[1], box.dtype))
        return replace(source, low=low, high=high, peak=peak, totals=dict(rounding), origin=_own(box), ends=ends)

    def reduced(self, box: Any, source: Bound) -> Bound:
        """A sum, a product, a maximum or a minimum; what reached its peak in every row still does."""
        reached = tuple(axis for axis in source.reached if axis not in box.over)
        count = math.prod(self.numbers[axis] for axis in box.over)
        if box.op == "product":
            ends = source.ends and raised(source.ends, count)
            return replace(first_bound(box, *raised(source.interval, count)), ends=ends)
        if box.op == "sum":
            peak = source.peak if source.low >= 0 else 0.0
            least = peak if peak and not reached else -math.inf
            low, high = _summed(source.interval, count, least if source.ends is None else -math.inf)
            of = source.origin.through(box.over, self.numbers)
            return Bound(low, high, max(low, peak, 0.0), reached, {}, Relation("sum", of, axes=box.over), _own(box),
                         source.ends and _summed(source.ends, count, least))  # fmt: skip
        peak = source.peak if box.op == "max" and source.low >= 0 else 0.0
        return Bound(source.low, source.high, peak, reached, {}, self.extreme(box, source), _own(box), source.ends)

    def extreme(self, box: Any, source: Bound) -> Relation | None:
        """What a maximum is to what it is taken of: of magnitudes it is their norm."""
        if box.op != "max":
            return None
        absolute = source.relation if source.relation and source.relation.kind == "abs" else None
        of = (absolute.of if absolute else source.origin).through(box.over, self.numbers)
        return Relation("norm", of, axes=box.over) if absolute else Relation("max", of, axes=box.over)

    def contracted(self, box: Any, *sources: Bound) -> Bound:
        """The number of summands times the largest, or less where an operand's magnitudes add up to something."""
        summed = {axis for wire in box.inputs for axis in _axes_of(self.term, wire)} - set(names(box.axes))
        made: Interval = (1.0, 1.0)
        ends: Interval = (1.0, 1.0)
        for source in sources:
            made, ends = product(made, source.interval), product(ends, source.finite)
        totals = [source for source in sources if summed <= set(source.totals) and len(summed) == 1 and source.largest]
        counts = [source.totals[next(iter(summed))] / source.largest for source in totals]
        count = min([float(math.prod(self.numbers[axis] for axis in summed)), *counts])
        touched = any(source.ends is not None for source in sources)
        return replace(first_bound(box, *_summed(made, count)), ends=_summed(ends, count) if touched else None)

    def mapped(self, box: Any, *sources: Bound) -> Bound:
        """A formula of its arguments, and of a part of it of which more is known."""
        expr, places = self.sized(box.expr), {arg(i): source for i, source in enumerate(sources)}
        known = {symbol: source.interval for symbol, source in places.items()}
        if expr == sympy.Abs(arg(0)):
            relation = Relation("abs", sources[0].origin)
            return replace(sources[0], low=within(expr, known)[0], high=sources[0].largest, relation=relation,
                           origin=_own(box))  # fmt: skip
        expr, part = self.related(expr, places)
        factor = sympy.cancel(expr / PART) if expr.has(PART) else _factor(expr, places)
        if factor is not None and factor.is_number:
            return _times(part if expr.has(PART) else places[_only(expr)], float(factor), box)
        low, high, ends = _with_ends(expr, {**places, PART: part})
        alone = {**places, PART: part}[_only(expr)].relation if len(expr.free_symbols) == 1 else None
        top = alone if alone and alone.kind == "top" else None
        peak = within(expr, {_only(expr): (0.0, 0.0)})[0] if top else 0.0
        return Bound(low, high, max(peak, 0.0), top.axes if top else (), origin=_own(box), ends=ends)

    def related(self, expr: Any, places: Mapping[Any, Bound]) -> tuple[Any, Bound]:
        """The formula with s - max s, e / sum e or v / max |v| as one argument, and what is known of that."""
        for one, source in places.items():
            for other, taken in places.items():
                relation = taken.relation
                parts = _PARTS.get(relation.kind, lambda one, other: ())(one, other) if relation else ()
                for part in (part for part in parts if expr.has(part)):
                    if relation and relation.of.holds(source.origin, self.numbers):
                        return expr.xreplace({part: PART}), _KNOWN[relation.kind](source, taken, relation)
        return expr, Bound(*ALL)


def _with_ends(expr: Any, places: Mapping[Any, Bound]) -> tuple[float, float, Interval | None]:
    """The ends of a formula's values, and of those that finite numbers make where these are fewer."""
    low, high = within(_unwritten(expr), {symbol: source.finite for symbol, source in places.items()})
    least, most = within(expr, {symbol: source.interval for symbol, source in places.items()})
    wider = least < low or most > high
    return min(low, least), max(high, most), (low, high) if wider else None


def _unwritten(expr: Any) -> Any:
    """The formula without the infinities that are written where something is hidden."""
    return expr.replace(
        lambda part: part.func == where and any(choice.is_infinite for choice in part.args[1:]),
        lambda part: next((choice for choice in part.args[1:] if not choice.is_infinite), part),
    )


def _summed(each: Interval, count: float, least: float = -math.inf) -> Interval:
    low, high = product(each, (count, count))
    return max(low, least), high


def _axes_of(term: Term, wire: str) -> tuple[str, ...]:
    inner = {box.name: box.axes for box in term.flat}
    return names(inner[wire] if wire in inner else term.wires[wire].axes)


def _rounded_total(total: float, dtype: str, count: int) -> float:
    """What numbers may add up to after each is rounded: up by half a step, or to the smallest there is."""
    if dtype.startswith("int"):
        return math.inf
    return total * (1 + format_step(dtype) / 2) + count * format_range(dtype)[0] / 2


def _only(expr: Any) -> Any:
    return next(iter(expr.free_symbols))


def _factor(expr: Any, places: Mapping[Any, Bound]) -> Any:
    """The number that a formula multiplies its one argument by, or None."""
    if len(expr.free_symbols) != 1 or _only(expr) not in places:
        return None
    found = sympy.cancel(expr / _only(expr)) if expr.is_Mul or expr.is_Symbol else None
    return found if found is not None and found.is_number else None


def _times(source: Bound, factor: float, box: Box) -> Bound:
    low, high = product(source.interval, (factor, factor))
    ends = source.ends and product(source.ends, (factor, factor))
    totals = {axis: total * abs(factor) for axis, total in source.totals.items()}
    relation = source.relation and replace(source.relation, factor=source.relation.factor * factor)
    return Bound(low, high, source.peak * abs(factor), source.reached, totals, relation, _own(box), ends)


def _shifted(source: Bound, taken: Bound, relation: Relation) -> Bound:
    """s - max s: 0 at the largest, less elsewhere; nothing is known of s less another multiple of it."""
    (low, high), (least, most) = source.finite, taken.finite
    touched = source.ends is not None or taken.ends is not None
    if relation.factor != 1 or not relation.of.plain:
        return Bound(
            source.low - taken.high, source.high - taken.low, ends=(low - most, high - least) if touched else None
        )
    top = Relation("top", source.origin, axes=relation.axes)
    return Bound(min(source.low - high, 0.0), 0.0, relation=top, ends=(min(low - high, 0.0), 0.0) if touched else None)


def _shared(source: Bound, taken: Bound, relation: Relation) -> Bound:
    """e / (factor sum e): together at most 1 / factor, and the largest at least the largest e by the largest sum."""
    if source.low < 0 or relation.factor <= 0:
        return Bound(*ALL)
    most, plain = 1 / relation.factor, relation.of.plain and source.origin.plain
    totals = dict.fromkeys(relation.axes, most) if len(relation.axes) == 1 and plain else {}
    return Bound(0.0, most, source.peak / taken.high, source.reached, totals, ends=source.ends and (0.0, most))


def _scaled(source: Bound, taken: Bound, relation: Relation) -> Bound:
    """v / (factor max |v|): as large as that somewhere, and nowhere larger; all 0 where v is."""
    largest = 1 / abs(relation.factor)
    return Bound(-largest, largest, largest, relation.axes if relation.of.plain else tuple(dict(source.origin.places)))


def _quotients(one: Any, other: Any) -> tuple[Any, ...]:
    return quotient(one, other), one / other


_PARTS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "max": lambda one, other: (one - finite(other), one - other),
    "sum": _quotients,
    "norm": _quotients,
}
_KNOWN = {"max": _shifted, "sum": _shared, "norm": _scaled}
