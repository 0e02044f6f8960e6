"""What every wire may hold, beside what its format can: said before anything runs (the bounds: `bounds`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from diagkit.cost.bounds import Bound, Rules, first_bound
from diagkit.cost.show import Shown, Table
from diagkit.ops import format_range
from diagkit.term import Array, Box, Cast, InputError, Map, State, StreamForm, Term, arg

USUAL = 6.0
"""The largest magnitude taken for an input of which nothing is said: a million normal numbers stay below it."""


@dataclass(frozen=True)
class WireRange:
    """One row: a wire, its format, its `bound`, the smallest and the largest number of the format, and what may go
    wrong: "overflows", "saturates", "vanishes", or nothing.

    >>> import diagkit as dk
    >>> grown = dk.Diagram(dk.exp(dk.array("X", dk.axis("x"), dtype="fp16"), name="E"))
    >>> row = grown.ranges({"X": (0, 20)}, x=8).rows[-1]
    >>> row.wire, row.dtype, row.largest, row.trouble
    ('E', 'fp16', 65504.0, 'overflows: 4.852e+08 is beyond 6.55e+04')
    """

    wire: str
    dtype: str
    bound: Bound
    smallest: float
    largest: float
    trouble: str


@dataclass(frozen=True, repr=False)
class Ranges(Shown):
    """The bounds of every wire, and of all that streams carry, beside the ranges of their formats; shown as a table.

    `flagged` are the rows with trouble: a wire that may hold a number larger than its format does (integers and
    8-bit floats saturate, wider floats become infinite), or of which even the largest may round to 0.

    >>> import diagkit as dk
    >>> grown = dk.Diagram(dk.exp(dk.array("X", dk.axis("x"), dtype="fp16"), name="E"))
    >>> found = grown.ranges({"X": (0, 20)}, x=8)
    >>> [row.wire for row in found.rows], [row.wire for row in found.flagged]
    (['X', 'E'], ['E'])
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
    where their format does. What a stream carries is bounded by what it holds after the last chunk, in the format
    that it is gathered in. Raises InputError for a size that is missing and an input that does not exist.

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
    start = {name: first_bound(array, *_ends(given.get(name), array.dtype)) for name, array in inputs.items()}
    found = term.fold(Rules(term, numbers).cases(), start)
    meant = found | {box.name: found[box.inputs[0]] for box in term.flat if isinstance(box, Cast)}
    shown = {wire: term.wires[wire].dtype for wire in term.wires if term.wires[wire].dtype != "bool"}
    for form in term.forms:
        held = _carried(term, form, found, numbers)
        meant, found = {**meant, **held}, {**found, **held}
        shown |= {state.name: _narrower(state.dtype, shown.get(state.name)) for state in form.state}
    return Ranges(tuple(_row(dtype, found[wire], meant[wire], wire) for wire, dtype in shown.items()))


def _carried(term: Term, form: StreamForm, found: Mapping[str, Bound], numbers: Mapping[str, int]) -> dict[str, Bound]:
    """What the states hold after all chunks: after one chunk, the whole axis, where they began."""
    starts = {state.name: state for state in form.state}
    boxes = (*form.fixed, *(_begun(box, starts) for box in form.step))
    made = {box.name for box in boxes}
    read = {wire: None for box in boxes for wire in box.inputs if wire not in made}
    inputs = tuple(_array(term, starts, wire) for wire in read)
    known = {wire: first_bound(array, *_start(starts[wire])) if wire in starts else found[wire]
             for wire, array in zip(read, inputs, strict=True)}  # fmt: skip
    chunk = Term(inputs, boxes, tuple(state.new for state in form.state))
    after = chunk.fold(Rules(chunk, numbers).cases(), known)
    return {state.name: after[state.new] for state in form.state}


def _begun(box: Box, starts: Mapping[str, State]) -> Box:
    """A formula with the states as they begin, so that the largest of -inf and m is known to be m."""
    if not isinstance(box, Map):
        return box
    known = {arg(place): starts[wire].start for place, wire in enumerate(box.inputs) if wire in starts}
    return replace(box, expr=box.expr.xreplace(known))


def _array(term: Term, starts: Mapping[str, State], wire: str) -> Array:
    axes = starts[wire].axes if wire in starts else term.wires[wire].axes
    return Array(wire, axes)


def _start(state: State) -> tuple[float, float]:
    return float(state.start), float(state.start)


def _narrower(dtype: str, other: str | None) -> str:
    return dtype if other is None else min(dtype, other, key=lambda name: format_range(name)[1])


def _ends(given: Any, dtype: str) -> tuple[float, float]:
    """The least and the largest number of an input, in what was given or in what is usual."""
    usual = format_range(dtype)[1] if dtype.startswith(("int", "fp8", "bool")) else USUAL
    largest = usual if given is None else given
    low, high = largest if isinstance(largest, tuple) else (-largest, largest)
    return float(low), float(high)


def _row(dtype: str, held: Bound, meant: Bound, wire: str) -> WireRange:
    """The row of a wire: what it holds, and what happens to what it is meant to hold."""
    smallest, largest = format_range(dtype)
    return WireRange(wire, dtype, held, smallest, largest, _trouble(dtype, meant, smallest, largest))


def _trouble(dtype: str, bound: Bound, smallest: float, largest: float) -> str:
    wide = dtype in ("fp16", "bf16", "fp32", "tf32", "fp64")
    most = max(abs(end) for end in (bound.finite if wide else bound.interval))
    if most > largest * (1 + 1e-6):
        return f"{'overflows' if wide else 'saturates'}: {_number(most)} is beyond {_number(largest)}"
    least = bound.peak or (bound.largest if bound.largest <= smallest / 2 else math.inf)
    return f"vanishes: {_number(least)} rounds to 0" if 0 < least <= smallest / 2 else ""
