"""Masks as loop bounds: which chunks of a stream a tile need not visit.

A chunk may be skipped where the step, with the mask's answer put in for every position, leaves every
state as it was. Nothing here knows softmax: a choice `where(mask, s, -oo)` in front of a maximum and an
exponential passes the test, `where(mask, s, 0)` in front of sums of products passes it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.cost.kernel import Kernel
from diagkit.cost.visits import Bound
from diagkit.term import Box, Contract, Index, Map, Reduce, arg, coordinate, finite, value, where


@dataclass(frozen=True)
class Mask:
    """What bounds a kernel's loop: the axes it compares the streamed one with, and the inequalities.

    `free` are masks that hide positions but whose rule is not a set of linear inequalities: their
    chunks are all visited.
    """

    axes: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    free: tuple[Any, ...] = ()


def loop_mask(kernel: Kernel) -> Mask:
    """The bounds that a kernel's masks put on its loop; none where it has no loop or stores in it."""
    made = {box.name for box in kernel.step}
    if kernel.form is None or made & set(kernel.region.stores):
        return Mask()
    positions = _positions(kernel)
    lines = [line for seen in _visible(kernel, positions) for line in sympy.And.make_args(seen)]
    return _bounded(kernel, lines)


def _positions(kernel: Kernel) -> dict[str, Any]:
    """What each wire of positions holds, as a formula in coordinates, where it is one."""
    known: dict[str, Any] = {}
    boxes = {box.name: box for box in (*kernel.term.flat, *kernel.fixed, *kernel.step)}
    for box in boxes.values():
        if isinstance(box, Index):
            known[box.name] = coordinate(box.axes[0].name)
        elif isinstance(box, Map) and box.inputs and all(wire in known for wire in box.inputs):
            known[box.name] = _put(box, [known[wire] for wire in box.inputs])
    return known


def _put(box: Any, meanings: list[Any]) -> Any:
    return box.expr.xreplace({arg(place): meaning for place, meaning in enumerate(meanings)})


def _visible(kernel: Kernel, positions: Mapping[str, Any]) -> Iterator[Any]:
    """The rules that say what is seen: for each, all of its opposite may be skipped."""
    allowed = {symbol for meaning in positions.values() for symbol in meaning.free_symbols}
    for rule in _rules(kernel, positions, allowed):
        if _idle(kernel, positions, rule, sympy.false):
            yield rule
        elif _idle(kernel, positions, rule, sympy.true):
            yield sympy.Not(rule)


def _rules(kernel: Kernel, positions: Mapping[str, Any], allowed: set[Any]) -> list[Any]:
    """The conditions on positions that choices in the step ask, in order of appearance."""
    found: dict[Any, None] = {}
    for box in kernel.step:
        if isinstance(box, Map) and box.name not in positions and any(wire in positions for wire in box.inputs):
            formula = _put(box, [positions.get(wire, value(wire)) for wire in box.inputs])
            choices = sorted(formula.atoms(where), key=sympy.default_sort_key)
            found |= {choice.args[0]: None for choice in choices if _on_positions(choice.args[0], allowed)}
    return list(found)


def _on_positions(rule: Any, allowed: set[Any]) -> bool:
    return rule.free_symbols <= allowed and any(not symbol.is_positive for symbol in rule.free_symbols)


def _idle(kernel: Kernel, positions: Mapping[str, Any], rule: Any, answer: Any) -> bool:
    """Whether the step leaves every state as it was when `rule` gives `answer` at every position.

    Asked twice: of states that are some finite number, and of states as they began; a row is always one
    or the other.
    """
    assert kernel.form is not None
    begun = {state.name: state.start for state in kernel.form.state}
    for before in ({name: value(name) for name in begun}, begun):
        known = {**positions, **before}
        for box in kernel.step:
            if box.name not in positions:
                meanings = [known.get(wire, value(wire)) for wire in box.inputs]
                known[box.name] = _MEANING.get(type(box), _opaque)(box, meanings, rule, answer)
        if any(known.get(state.new) != before[state.name] for state in kernel.form.state):
            return False
    return True


def _mapped(box: Any, meanings: list[Any], rule: Any, answer: Any) -> Any:
    # The guard of a shift does nothing to a finite number, and is gone where -oo was put in.
    return _put(box, meanings).xreplace({rule: answer}).replace(finite, lambda inner: inner)


def _summed(box: Any, meanings: list[Any], *_: Any) -> Any:
    return sympy.S.Zero if any(meaning == 0 for meaning in meanings) else value(box.name)


def _reduced(box: Any, meanings: list[Any], *_: Any) -> Any:
    (inner,) = meanings
    kept = inner.is_number and (box.op != "sum" or inner == 0)
    return inner if kept else value(box.name)


def _opaque(box: Box, *_: Any) -> Any:
    return value(box.name)


_MEANING: dict[type[Box], Any] = {Map: _mapped, Contract: _summed, Reduce: _reduced}


def _bounded(kernel: Kernel, lines: list[Any]) -> Mask:
    """The inequalities that are linear in positions; the others stand in `free`."""
    assert kernel.form is not None
    axes = tuple(axis for axis in kernel.term.axes if axis != kernel.streamed)
    bounds = {line: tuple(_bounds(line, kernel.form.axis, axes)) for line in lines}
    kept = [bound for found in bounds.values() for bound in found]
    used = [n for n in range(len(axes)) if any(bound.slopes[n] for bound in kept)]
    short = tuple(Bound(b.sign, tuple(b.slopes[n] for n in used), b.shift) for b in kept)
    return Mask(tuple(axes[n] for n in used), short, tuple(line for line, found in bounds.items() if not found))


_SIDES: dict[type[Any], Any] = {
    sympy.LessThan: lambda left, right: [(left - right, 0)],
    sympy.StrictLessThan: lambda left, right: [(left - right, 1)],
    sympy.GreaterThan: lambda left, right: [(right - left, 0)],
    sympy.StrictGreaterThan: lambda left, right: [(right - left, 1)],
    sympy.Equality: lambda left, right: [(left - right, 0), (right - left, 0)],
}


def _bounds(line: Any, streamed: str, axes: tuple[str, ...]) -> Iterator[Bound]:
    """The bounds that one comparison makes: each of its sides is ``difference + strict <= 0``."""
    for difference, strict in _SIDES[type(line)](*line.args) if type(line) in _SIDES else ():
        found = _bound(sympy.expand(difference + strict), streamed, axes)
        if found is not None:
            yield found


def _bound(difference: Any, streamed: str, axes: tuple[str, ...]) -> Bound | None:
    """The bound ``difference <= 0``, where it is linear in positions with whole-number coefficients."""
    sign = difference.coeff(coordinate(streamed))
    slopes = [difference.coeff(coordinate(axis)) for axis in axes]
    places = [coordinate(streamed), *map(coordinate, axes)]
    rest = sympy.expand(difference - sum(k * place for k, place in zip([sign, *slopes], places, strict=True)))
    scale = sympy.ilcm(1, *(k.q for k in (sign, *slopes) if k.is_Rational))
    whole = all(k.is_Rational for k in (sign, *slopes)) and (rest * scale).is_integer
    if not whole or rest.free_symbols & set(places):
        return None
    return Bound(int(sign * scale), tuple(int(-k * scale) for k in slopes), -rest * scale)
