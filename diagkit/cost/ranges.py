"""What every wire may hold, beside what its format can: said before anything runs.

The bounds are intervals, made wire by wire from those of the inputs. Three things that intervals alone do not know
are followed from box to box, since formats are chosen by them: a maximum is reached by what it is taken of, so the
largest exp(s - max s) is 1; what is divided by its own sum adds up to 1; what is divided by its largest magnitude
is at most 1. None of this knows softmax or quantizers by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from diagkit.cost.intervals import ALL, Interval, product, within
from diagkit.cost.show import Shown, Table
from diagkit.ops import format_range, format_step, rounded
from diagkit.term import (
    Box,
    Cast,
    Contract,
    Index,
    InputError,
    Map,
    Reduce,
    Term,
    View,
    arg,
    finite,
    names,
    quotient,
    size,
    value,
)

USUAL = 6.0
"""The largest magnitude taken for an input of which nothing is said: a million normal numbers stay below it."""


@dataclass(frozen=True)
class Relation:
    """What a wire is of the wire `of`, but for a factor: its magnitudes ("abs"), its largest over `axes` ("max"), its
    largest magnitude ("norm"), its "sum"."""

    kind: str
    of: str
    factor: float = 1.0
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bound:
    """What is known of a wire: every element lies between `low` and `high`; the largest magnitude is at least `peak`;
    along each axis of `totals` the magnitudes add up to at most so much; `relation` to another wire, where there is
    one; `root` is the wire whose numbers these are, elsewhere or in another order."""

    low: float
    high: float
    peak: float = 0.0
    totals: Mapping[str, float] = field(default_factory=dict)
    relation: Relation | None = None
    root: str = ""

    @property
    def interval(self) -> Interval:
        """Between which two numbers every element lies."""
        return self.low, self.high

    @property
    def largest(self) -> float:
        """The largest magnitude that an element may have."""
        return max(abs(self.low), abs(self.high))


@dataclass(frozen=True)
class WireRange:
    """One row: a wire, its format, its `bound`, the smallest and the largest number of the format, and what may go
    wrong: "overflows", "saturates", "vanishes", or nothing."""

    wire: str
    dtype: str
    bound: Bound
    smallest: float
    largest: float
    trouble: str


@dataclass(frozen=True, repr=False)
class Ranges(Shown):
    """The bounds of every wire beside the ranges of their formats; displays as a table.

    `flagged` are the rows with trouble: a wire that may hold a number larger than its format does (integers and
    8-bit floats saturate, wider floats become infinite), or of which even the largest may round to 0.
    """

    rows: tuple[WireRange, ...]

    def __getitem__(self, wire: str) -> WireRange:
        return next(row for row in self.rows if row.wire == wire)

    @property
    def flagged(self) -> tuple[WireRange, ...]:
        """The wires that may overflow, saturate or vanish."""
        return tuple(row for row in self.rows if row.trouble)

    def _table(self) -> Table:
        head = ("wire", "format", "lies in", "largest at least", "format holds", "")
        return Table([head, *(_cells(row) for row in self.rows)])


def _cells(row: WireRange) -> tuple[str, ...]:
    low, high = (_number(end) for end in row.bound.interval)
    peak = _number(row.bound.peak) if row.bound.peak else ""
    return (
        row.wire,
        row.dtype,
        f"{low} to {high}",
        peak,
        f"{_number(row.smallest)} to {_number(row.largest)}",
        row.trouble,
    )


def _number(value: float) -> str:
    return f"{value:.4g}"


def ranges(term: Term, /, bounds: Mapping[str, Any] | None = None, **sizes: int) -> Ranges:
    """What every wire may hold when the axes have these sizes and the inputs these bounds.

    A bound is the largest magnitude, or (least, largest); an input without one lies within 6, and codes lie
    where their format does. Raises InputError for a size that is missing and an input that does not exist.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> P = dk.cast(dk.softmax(dk.array("S", q, x), over=x), "fp8e4m3", name="P")
    >>> ranges(dk.Diagram(P), q=1, x=4096).flagged[0].trouble
    'vanishes: 0.0002441 rounds to 0'
    """
    if not isinstance(bounds, Mapping | None):
        raise InputError(f"{bounds!r} are no bounds", remedy="give them by input: {'Q': 4.0}")
    given = dict(bounds or {})
    inputs = {array.name: array for array in term.inputs}
    for name in given:
        if name not in inputs:
            raise InputError(f"{term.name} has no input {name!r}", remedy=f"its inputs are: {', '.join(inputs)}")
    numbers = term.numbers(sizes)
    missing = [name for name in term.axes if name not in numbers]
    if missing:
        raise InputError(
            f"ranges need a size of {', '.join(missing)}", axis=missing[0], remedy=f"give {missing[0]}=..."
        )
    start = {name: _input_bound(given.get(name), array.dtype, name) for name, array in inputs.items()}
    found = term.fold(_cases(term, numbers), start)
    meant = found | {box.name: found[box.inputs[0]] for box in term.flat if isinstance(box, Cast)}
    shown = [wire for wire in term.wires if term.wires[wire].dtype != "bool"]
    return Ranges(tuple(_row(term.wires[wire].dtype, found[wire], meant[wire], wire) for wire in shown))


def _input_bound(given: Any, dtype: str, name: str) -> Bound:
    usual = format_range(dtype)[1] if dtype.startswith(("int", "fp8", "bool")) else USUAL
    largest = usual if given is None else given
    low, high = largest if isinstance(largest, tuple) else (-largest, largest)
    return Bound(float(low), float(high), root=name)


def _row(dtype: str, held: Bound, meant: Bound, wire: str) -> WireRange:
    """The row of a wire: what it holds, and what happens to what it is meant to hold."""
    smallest, largest = format_range(dtype)
    return WireRange(wire, dtype, held, smallest, largest, _trouble(dtype, meant, smallest, largest))


def _trouble(dtype: str, bound: Bound, smallest: float, largest: float) -> str:
    if bound.largest > largest * (1 + 1e-6):
        verb = "overflows" if dtype in ("fp16", "bf16", "fp32", "tf32", "fp64") else "saturates"
        return f"{verb}: {_number(bound.largest)} is beyond {_number(largest)}"
    least = bound.peak or (bound.largest if bound.largest <= smallest / 2 else math.inf)
    return f"vanishes: {_number(least)} rounds to 0" if 0 < least <= smallest / 2 else ""


def _cases(term: Term, numbers: Mapping[str, int]) -> dict[type[Box], Callable[..., Bound]]:
    """How each kind of box makes a bound of those of its inputs."""
    at = {size(name): sympy.Integer(number) for name, number in numbers.items()}
    return {
        Map: lambda box, *sources: _mapped(box, sources, box.expr.xreplace(at)),
        Reduce: lambda box, source: _reduced(box, source, numbers),
        Contract: lambda box, *sources: _contracted(term, box, sources, numbers),
        Index: lambda box: Bound(0.0, max(numbers[box.axes[0].name] - 1.0, 0.0), root=box.name),
        Cast: lambda box, source: _cast(box, source, numbers),
        View: lambda box, source: replace(source, low=min(source.low, 0.0), high=max(source.high, 0.0), totals={}),
    }


def _cast(box: Any, source: Bound, numbers: Mapping[str, int]) -> Bound:
    """Rounding keeps the order of numbers; what is beyond the format becomes its end, what is too small 0."""
    low, high = (rounded(end, box.dtype) for end in source.interval)
    totals = {axis: _rounded_total(total, box.dtype, numbers[axis]) for axis, total in source.totals.items()}
    return replace(source, low=low, high=high, peak=rounded(source.peak, box.dtype), totals=totals, root=box.name)


def _rounded_total(total: float, dtype: str, count: int) -> float:
    """What numbers may add up to after each is rounded: up by half a step, or to the smallest there is."""
    if dtype.startswith("int"):
        return math.inf
    return total * (1 + format_step(dtype) / 2) + count * format_range(dtype)[0] / 2


def _reduced(box: Any, source: Bound, numbers: Mapping[str, int]) -> Bound:
    if box.op != "sum":
        absolute = source.relation if source.relation and source.relation.kind == "abs" else None
        relation = Relation("norm", absolute.of, absolute.factor) if absolute else Relation(box.op, source.root)
        return Bound(source.low, source.high, source.peak, {}, replace(relation, axes=box.over), box.name)
    count = float(math.prod(numbers[axis] for axis in box.over))
    low, high = (product((count, count), (end, end))[0] for end in source.interval)
    low = max(low, source.peak) if source.low >= 0 else low
    return Bound(low, high, max(low, 0.0), {}, Relation("sum", source.root, axes=box.over), box.name)


def _contracted(term: Term, box: Any, sources: tuple[Bound, ...], numbers: Mapping[str, int]) -> Bound:
    """The number of summands times the largest, or less where an operand's magnitudes add up to something known."""
    summed = {axis.name for wire in box.inputs for axis in term.wires[wire].axes} - set(names(box.axes))
    made: Interval = (1.0, 1.0)
    for source in sources:
        made = product(made, source.interval)
    totals = [source for source in sources if summed <= set(source.totals) and len(summed) == 1 and source.largest]
    counts = [source.totals[next(iter(summed))] / source.largest for source in totals]
    count = min([float(math.prod(numbers[axis] for axis in summed)), *counts])
    low, high = product(made, (count, count))
    return Bound(low, high, root=box.name)


def _mapped(box: Any, sources: tuple[Bound, ...], expr: Any) -> Bound:
    places = {arg(i): source for i, source in enumerate(sources)}
    known = {symbol: source.interval for symbol, source in places.items()}
    if expr == sympy.Abs(arg(0)):
        low, high = within(expr, known)
        return Bound(low, high, sources[0].peak, sources[0].totals, Relation("abs", sources[0].root), box.name)
    expr, part = _related(expr, places)
    known = {**known, PART: part.interval}
    factor = sympy.cancel(expr / PART) if expr.has(PART) else _factor(expr, places)
    if factor is not None and factor.is_number:
        return _times(part if expr.has(PART) else places[_only(expr)], float(factor), box.name)
    low, high = within(expr, known)
    alone = expr.free_symbols == {PART} and part.relation is not None and part.relation.kind == "top"
    return Bound(low, high, within(expr, {PART: (0.0, 0.0)})[0] if alone else 0.0, root=box.name)


PART = value("part of a formula")
"""What stands in a formula for the piece of it of which more is known than its arguments tell."""


def _only(expr: Any) -> Any:
    return next(iter(expr.free_symbols))


def _factor(expr: Any, places: Mapping[Any, Bound]) -> Any:
    """The number that a formula multiplies its one argument by, or None."""
    if len(expr.free_symbols) != 1 or _only(expr) not in places:
        return None
    found = sympy.cancel(expr / _only(expr)) if expr.is_Mul or expr.is_Symbol else None
    return found if found is not None and found.is_number else None


def _times(source: Bound, factor: float, name: str) -> Bound:
    low, high = product(source.interval, (factor, factor))
    totals = {axis: total * abs(factor) for axis, total in source.totals.items()}
    relation = source.relation and replace(source.relation, factor=source.relation.factor * factor)
    return Bound(low, high, source.peak * abs(factor), totals, relation, name)


def _related(expr: Any, places: Mapping[Any, Bound]) -> tuple[Any, Bound]:
    """The formula with s - max s, e / sum e or v / max |v| as one argument, and what is known of that."""
    for one, source in places.items():
        for other, taken in places.items():
            relation = taken.relation
            for part in _PARTS.get(relation.kind, lambda one, other: ())(one, other) if relation else ():
                if relation and relation.of == source.root and expr.has(part):
                    return expr.xreplace({part: PART}), _KNOWN[relation.kind](source, taken, relation)
    return expr, Bound(*ALL)


def _shifted(source: Bound, taken: Bound, relation: Relation) -> Bound:
    """s - max s: 0 at the largest, less elsewhere."""
    return Bound(min(source.low - source.high, 0.0), 0.0, relation=Relation("top", source.root))


def _shared(source: Bound, taken: Bound, relation: Relation) -> Bound:
    """e / sum e: together at most 1, and the largest at least the largest e by the largest sum."""
    totals = dict.fromkeys(relation.axes, 1.0) if len(relation.axes) == 1 and source.low >= 0 else {}
    return Bound(0.0, 1.0, source.peak / taken.high, totals) if source.low >= 0 else Bound(*ALL)


def _scaled(source: Bound, taken: Bound, relation: Relation) -> Bound:
    """v / (factor max |v|): as large as that somewhere, and nowhere larger; all 0 where v is."""
    largest = 1 / abs(relation.factor)
    return Bound(-largest, largest, largest)


def _quotients(one: Any, other: Any) -> tuple[Any, ...]:
    return quotient(one, other), one / other


_PARTS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "max": lambda one, other: (one - finite(other), one - other),
    "sum": _quotients,
    "norm": _quotients,
}
_KNOWN = {"max": _shifted, "sum": _shared, "norm": _scaled}
