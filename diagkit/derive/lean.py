"""Partial states with one number less: a maximum and a sum of exponentials stored as one logarithm.

Where a state m is a maximum, and the sums z, o, ... are all carried from one maximum to another by the
factor exp(m - m'), only exp(m) z, exp(m) o, ... have a meaning. A part may then store m + log z and the
quotients o / z: the same state with z = 1. What reads the merged state must not tell the two apart. The
logarithm is as fine as its format is at m: where maxima are large, so is what it loses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.derive.algebra import is_nonnegative
from diagkit.term import Map, Reduce, State, StreamForm, arg, finite, plain, size, value


@dataclass(frozen=True)
class Lean:
    """The states of a stream by their part: `top` the maximum, `sum` the one that becomes 1, `rest` the other sums."""

    top: State
    sum: State
    rest: tuple[State, ...]


def lean(form: StreamForm, stores: tuple[str, ...]) -> Lean | None:
    """How the partial states of a stream are stored as one logarithm and quotients; None where they cannot be.

    >>> from diagkit import ops
    >>> from diagkit.derive import stream
    >>> from diagkit.term import Term
    >>> L = ops.logsumexp(ops.array("S", ops.axis("x")), over="x", name="L")
    >>> form = stream(Term(*ops.trace([L])), x="s").forms[0]
    >>> [state.name for state in form.state], lean(form, ("L",)).sum.name
    (['L.max', 'L.sum'], 'L.sum')
    """
    tops = [state for state in form.state if state.start is sympy.S.NegativeInfinity]
    sums = [state for state in form.state if state.start == 0]
    if len(tops) != 1 or len(sums) + 1 != len(form.state):
        return None
    (top,) = tops
    merged = {box.name: box for box in form.merge}
    if not all(_carried(merged, top.name, state.name) for state in sums):
        return None
    one = next((s for s in sums if {*s.axes} == {*top.axes} and _positive(form, s)), None)
    found = None if one is None else Lean(top, one, tuple(s for s in sums if s is not one))
    return found if found and _same_results(form, found, stores) else None


def _carried(merged: dict[str, Any], top: str, sum_: str) -> bool:
    """Whether a sum is carried to another maximum by exp(m - m'), and no otherwise."""
    box = merged[f"{sum_}.merged"]
    known = {arg(n): _written(merged, wire, f"{top}.merged") for n, wire in enumerate(box.inputs)}
    left, right = (value(f"{sum_}.{side}") for side in ("left", "right"))
    shifts = (sympy.exp(value(f"{top}.{side}") - value(f"{top}.merged")) for side in ("left", "right"))
    wanted = left * next(shifts) + right * next(shifts)
    return bool(sympy.expand(plain(box.expr.xreplace(known)) - wanted) == 0)


def _written(merged: dict[str, Any], wire: str, stop: str) -> Any:
    """A wire of a merge in terms of both sides and of the merged maximum."""
    box = merged.get(wire)
    if not isinstance(box, Map) or wire == stop:
        return value(wire)
    return box.expr.xreplace({arg(n): _written(merged, one, stop) for n, one in enumerate(box.inputs)})


def _positive(form: StreamForm, state: State) -> bool:
    """Whether a sum adds up what is never negative."""
    made: dict[str, Any] = {box.name: box for box in form.step}
    parts = [made[wire] for wire in made[state.new].inputs if isinstance(made.get(wire), Reduce)]
    summed = [made.get(box.inputs[0]) for box in parts]
    return bool(summed) and all(isinstance(box, Map) and is_nonnegative(_real(box.expr), {}) for box in summed)


def _real(expr: Any) -> Any:
    return expr.replace(finite, lambda inner: inner)


def _same_results(form: StreamForm, found: Lean, stores: tuple[str, ...]) -> bool:
    """Whether what the tail makes is the same of m + log t, z / t, o / t, for every t > 0."""
    tail = {box.name: box for box in form.tail}
    t = size("any.factor")
    moved = {value(found.top.name): value(found.top.name) + sympy.log(t)}
    moved |= {value(s.name): value(s.name) / t for s in (found.sum, *found.rest)}
    for wire in stores:
        formula = plain(_written(tail, wire, ""))
        difference = sympy.expand_log(formula.xreplace(moved) - formula, force=True)
        known = not any(symbol.name in tail for symbol in formula.free_symbols)  # a map of states, and no more
        if not known or wire in {state.name for state in form.state} or sympy.simplify(difference) != 0:
            return False
    return True
