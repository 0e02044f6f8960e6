"""Masks as loop bounds: which chunks of a stream a tile need not visit.

A mask is a wire of truth values made of positions only. Its chunks may be skipped where the step, with
the mask false at every position, leaves every state as it was. Nothing here knows softmax: a choice
`where(mask, s, -oo)` in front of a maximum and an exponential passes the test, `where(mask, s, 0)` in
front of sums of products passes it too. What a mask shows may be one of several cases (a prefix, or the
past): then the loop runs from the first position of any to the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy

from diagkit.cost.kernel import Kernel
from diagkit.cost.visits import Bound
from diagkit.term import Box, Contract, Index, Map, Reduce, arg, coordinate, finite, value


@dataclass(frozen=True)
class Mask:
    """What bounds a kernel's loop: the axes it compares the streamed one with, and the inequalities.

    Rules that are no linear inequalities of positions are not among them: they hide, but skip nothing.
    """

    axes: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()

    @property
    def cases(self) -> tuple[tuple[Bound, ...], ...]:
        """The bounds of each case, all of them as case 0."""
        each = sorted({bound.case for bound in self.bounds})
        return tuple(tuple(replace(b, case=0) for b in self.bounds if b.case == case) for case in each)


Linear = tuple[dict[str, int], Any]
"""An inequality ``sum(coefficient * position) + constant <= 0``, in whole numbers: coefficients by axis."""


def loop_mask(kernel: Kernel) -> Mask:
    """The bounds that a kernel's masks put on its loop; none where it has no loop or stores in it."""
    if kernel.form is None or {box.name for box in kernel.step} & set(kernel.region.stores):
        return Mask()
    rules = _rules(kernel)
    return _bounded(kernel, sympy.And(*(rules[wire] for wire in _masks(kernel) if wire in rules)))


def _rules(kernel: Kernel) -> dict[str, Any]:
    """What each wire of positions holds, as a formula in coordinates, where it is one."""
    known: dict[str, Any] = {}
    for box in (*kernel.fixed, *kernel.step):
        if isinstance(box, Index):
            known[box.name] = coordinate(box.axes[0].name)
        elif isinstance(box, Map) and box.inputs and all(wire in known for wire in box.inputs):
            known[box.name] = _put(box, [known[wire] for wire in box.inputs])
    return known


def _put(box: Any, meanings: list[Any]) -> Any:
    return box.expr.xreplace({arg(place): meaning for place, meaning in enumerate(meanings)})


def _masks(kernel: Kernel) -> Iterator[str]:
    """The masks along the streamed axis whose hidden chunks may be skipped, in order."""
    read = {wire for box in kernel.step if not kernel.wires[box.name].virtual for wire in box.inputs}
    for wire in sorted(read):
        one = kernel.wires[wire]
        if one.virtual and one.dtype == "bool" and kernel.carries(wire, kernel.streamed) and _idle(kernel, wire):
            yield wire


def _idle(kernel: Kernel, mask: str) -> bool:
    """Whether the step leaves every state as it was when `mask` is false at every position.

    Asked twice: of states that are some finite number, and of states as they began; a row is always one
    or the other.
    """
    assert kernel.form is not None
    begun = {state.name: state.start for state in kernel.form.state}
    for before in ({name: value(name) for name in begun}, begun):
        known = {**before, mask: sympy.false}
        for box in kernel.step:
            if not kernel.wires[box.name].virtual:
                meanings = [known.get(wire, value(wire)) for wire in box.inputs]
                known[box.name] = _MEANING.get(type(box), _opaque)(box, meanings)
        if any(known.get(state.new) != before[state.name] for state in kernel.form.state):
            return False
    return True


def _mapped(box: Any, meanings: list[Any]) -> Any:
    # The guard of a shift does nothing to a finite number, and is gone where -oo was put in.
    return _put(box, meanings).replace(finite, lambda inner: inner)


def _summed(box: Box, meanings: list[Any]) -> Any:
    return sympy.S.Zero if any(meaning == 0 for meaning in meanings) else value(box.name)


def _reduced(box: Any, meanings: list[Any]) -> Any:
    (inner,) = meanings
    kept = inner.is_number and inner in _SAME.get(box.op, (inner,))
    return inner if kept else value(box.name)


def _opaque(box: Box, _: list[Any]) -> Any:
    return value(box.name)


_SAME = {"sum": (0,), "product": (0, 1)}
"""The numbers of which any number make that number; a maximum is the same of every number."""

_MEANING: dict[type[Box], Any] = {Map: _mapped, Contract: _summed, Reduce: _reduced}


def _bounded(kernel: Kernel, rule: Any) -> Mask:
    """The inequalities that bound the streamed position, case by case; none where a case has none."""
    assert kernel.form is not None
    streamed = kernel.form.axis
    cases = [_with_consequences(_lines(case, kernel.term.axes), streamed) for case in _cases(rule)]
    found = [(number, *one) for number, case in enumerate(cases) for one in case]
    axes = tuple(a for a in kernel.term.axes if any(a in slopes for _, slopes, _ in found) and a != streamed)
    bounds = (Bound(s[streamed], tuple(-s.get(axis, 0) for axis in axes), -shift, n) for n, s, shift in found)
    return Mask(axes, tuple(dict.fromkeys(bounds))) if all(cases) else Mask()


MOST_CASES = 8


def _cases(rule: Any) -> tuple[Any, ...]:
    """The conjunctions of which one or another holds where `rule` does; `rule` where these are too many."""
    if not rule.has(sympy.Or):
        return (rule,)
    cases = tuple(sorted(sympy.Or.make_args(sympy.to_dnf(rule)), key=str))
    return cases if len(cases) <= MOST_CASES else (rule,)


def _lines(rule: Any, axes: Mapping[str, Any]) -> list[Linear]:
    return [one for line in sympy.And.make_args(rule) for one in _linear(line, axes)]


def _with_consequences(lines: list[Linear], streamed: str) -> list[Linear]:
    """Those on the streamed position, and what two of them say together once another one cancels."""
    for axis in sorted({name for slopes, _ in lines for name in slopes} - {streamed}):
        rising, falling = ([line for line in lines if line[0].get(axis, 0) * side > 0] for side in (1, -1))
        lines = lines + [_cancelled(up, down, axis) for up in rising for down in falling]
    return [line for line in lines if line[0].get(streamed, 0)]


def _cancelled(up: Linear, down: Linear, axis: str) -> Linear:
    """The sum of two inequalities, weighed so that `axis` falls out."""
    by_up, by_down = -down[0][axis], up[0][axis]
    slopes = {name: by_up * up[0].get(name, 0) + by_down * down[0].get(name, 0) for name in {**up[0], **down[0]}}
    return {name: slope for name, slope in slopes.items() if slope}, by_up * up[1] + by_down * down[1]


_SIDES: dict[type[Any], Any] = {
    sympy.LessThan: lambda left, right: [left - right],
    sympy.StrictLessThan: lambda left, right: [left - right + 1],
    sympy.GreaterThan: lambda left, right: [right - left],
    sympy.StrictGreaterThan: lambda left, right: [right - left + 1],
    sympy.Equality: lambda left, right: [left - right, right - left],
}


def _linear(line: Any, axes: Mapping[str, Any]) -> Iterator[Linear]:
    """What a comparison says as linear inequalities in whole numbers; nothing where it is none."""
    for difference in _SIDES[type(line)](*line.args) if type(line) in _SIDES else ():
        expanded = sympy.expand(difference)
        slopes = {axis: slope for axis in axes if (slope := expanded.coeff(coordinate(axis))) != 0}
        rest = sympy.expand(expanded - sum(slope * coordinate(axis) for axis, slope in slopes.items()))
        straight = all(symbol.is_positive for symbol in rest.free_symbols) and rest.is_integer
        if straight and all(slope.is_Integer for slope in slopes.values()):
            yield {axis: int(slope) for axis, slope in slopes.items()}, rest
