"""Loop bounds from masks: chunks in which a mask hides everything are not visited.

A mask of positions is a conjunction of linear inequalities in them (causal, windows, either alignment), or
several such alternatives (a prefix that all see, or the past). It bounds the streamed positions that a group
can see, by elimination of the other positions; alternatives are visited from the first of their positions to
the last. A chunk beyond the bounds may be left out where the step, with the mask false, leaves every state as
it is; that is checked on the step's own formulas, whatever the boxes compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.relational import Relational

from diagkit.program.nest import Span, first, last
from diagkit.program.silent import leaves_state
from diagkit.term import Box, Index, Map, StreamForm, Wire, arg, coordinate, names


@dataclass(frozen=True)
class Bounds:
    """Positions lo <= j < hi that a group visits, and full_lo <= j < full_hi where none of `masks` hides
    any; all of them formulas of sizes and of the group's first and last positions."""

    lo: Any
    hi: Any
    full_lo: Any
    full_hi: Any
    masks: tuple[str, ...] = ()


Ends = tuple[list[Any], list[Any]]
"""The least and the greatest positions along one axis, as formulas of which each holds."""

Linear = tuple[dict[str, int], Any]
"""An inequality sum(coefficient * position) + constant <= 0: coefficients by axis, and the constant."""


MOST_ALTERNATIVES = 8
"""A mask of more alternatives bounds no loop."""


def every(length: Any) -> Bounds:
    """All positions of an axis of that length."""
    return Bounds(sympy.Integer(0), length, sympy.Integer(0), length)


def stream_bounds(
    form: StreamForm, wires: Mapping[str, Wire], spans: Mapping[str, Span], number: Callable[[Any], Any]
) -> Bounds:
    """The bounds that the masks of `form` put on its loop; `number` puts in the sizes that are known."""
    found = every(spans[form.axis].size)
    limits = {axis: _limits(span) for axis, span in spans.items() if axis != form.axis}
    formulas = position_formulas((*form.fixed, *form.step))
    for wire, formula in formulas.items():
        cases = [inequalities(case) for case in alternatives(number(formula))]
        if all(cases) and _is_mask(wire, form, wires) and leaves_state(form, wire, wires):
            found = _narrowed(found, wire, cases, _is_exact(number(formula)), form.axis, limits)
    return found


def _is_mask(wire: str, form: StreamForm, wires: Mapping[str, Wire]) -> bool:
    """Whether `wire` holds conditions along the streamed axis that a box of the step reads."""
    readers = (box for box in form.step if wire in box.inputs and not wires[box.name].virtual)
    return wires[wire].dtype == "bool" and form.axis in names(wires[wire].axes) and any(readers)


def _limits(span: Span) -> tuple[Any, Any]:
    """The first and last position that a group holds along an axis."""
    return (first(span.axis), last(span.axis)) if span.role == "group" else (sympy.Integer(0), span.size - 1)


def position_formulas(boxes: Iterable[Box]) -> dict[str, Any]:
    """For each wire that is made of positions alone, its formula in ``coordinate(axis)``."""
    formulas: dict[str, Any] = {}
    for box in boxes:
        if isinstance(box, Index):
            formulas[box.name] = coordinate(box.axes[0].name)
        elif isinstance(box, Map) and all(wire in formulas for wire in box.inputs):
            formulas[box.name] = box.expr.xreplace({arg(n): formulas[wire] for n, wire in enumerate(box.inputs)})
    return formulas


def alternatives(formula: Any) -> list[Any]:
    """The conjunctions of which a condition is one or another; itself alone where these would be too many.

    >>> i, j = coordinate("q"), coordinate("x")
    >>> len(alternatives(sympy.And(j >= 0, sympy.Or(j <= i, j < 4))))
    2
    """
    made = sympy.Or.make_args(sympy.to_dnf(formula)) if formula.atoms(sympy.Or) else (formula,)
    return sorted(made, key=sympy.default_sort_key) if len(made) <= MOST_ALTERNATIVES else [formula]


def inequalities(formula: Any) -> list[Linear]:
    """The linear inequalities that `formula` implies: its own conjuncts, those that are not linear left out.

    >>> i, j = coordinate("q"), coordinate("x")
    >>> inequalities(sympy.And(j <= i, i - 3 < j))
    [({'q': -1, 'x': 1}, 0), ({'q': 1, 'x': -1}, -2)]
    """
    conjuncts = sorted(sympy.And.make_args(formula), key=sympy.default_sort_key)
    return [linear for conjunct in conjuncts for linear in _linear(conjunct)]


def _is_exact(formula: Any) -> bool:
    """Whether the inequalities say all that `formula` says."""
    return all(_linear(conjunct) for conjunct in sympy.And.make_args(formula))


_SIDES: dict[Any, Callable[[Any], list[Any]]] = {
    sympy.LessThan: lambda f: [f],
    sympy.StrictLessThan: lambda f: [f + 1],
    sympy.GreaterThan: lambda f: [-f],
    sympy.StrictGreaterThan: lambda f: [1 - f],
    sympy.Equality: lambda f: [f, -f],
}
"""Each comparison of whole numbers as left - right <= 0."""


def _linear(condition: Any) -> list[Linear]:
    if not isinstance(condition, Relational) or condition.func not in _SIDES:
        return []
    made = [_coefficients(side) for side in _SIDES[condition.func](condition.lhs - condition.rhs)]
    return [] if None in made else [linear for linear in made if linear is not None]


def _coefficients(side: Any) -> Linear | None:
    """`side` as whole multiples of positions plus a whole constant of sizes; None where it is no such thing."""
    positions = sorted((s for s in side.free_symbols if not s.is_positive), key=lambda s: str(s.name))
    if not side.is_polynomial(*positions):
        return None
    expanded = sympy.expand(side)
    slopes = {symbol.name: expanded.coeff(symbol) for symbol in positions}
    constant = expanded.xreplace(dict.fromkeys(positions, sympy.Integer(0)))
    straight = sympy.expand(expanded - constant - sum(slopes[s.name] * s for s in positions)) == 0
    whole = all(slope.is_Integer for slope in slopes.values()) and constant.is_integer
    return ({name: int(slope) for name, slope in slopes.items()}, constant) if straight and whole else None


def _narrowed(
    found: Bounds,
    mask: str,
    cases: list[list[Linear]],
    exact: bool,
    axis: str,
    limits: Mapping[str, tuple[Any, Any]],
) -> Bounds:
    """`found`, and what one more mask leaves of it."""
    ends = [_ends(eliminated(conditions, axis, limits), axis) for conditions in cases]
    lo, hi = _narrowest(found.lo, found.hi, ends)
    full_lo, full_hi, masks = found.full_lo, found.full_hi, found.masks
    if exact:
        worst = [_worst(linear, axis, limits) for conditions in cases for linear in conditions]
        full_lo, full_hi = _narrowest(full_lo, full_hi, [_ends(worst, axis)])
        masks = (*masks, mask)
    return Bounds(lo, hi, full_lo, full_hi, masks)


def _narrowest(lo: Any, hi: Any, cases: list[Ends]) -> tuple[Any, Any]:
    """What is left of lo <= j < hi where one of the cases holds: from the first position to the last."""
    lows = sympy.Min(*(sympy.Max(*low) for low, _ in cases)) if all(low for low, _ in cases) else lo
    ends = [sympy.Min(*(last + 1 for last in high)) for _, high in cases]
    highs = sympy.Max(*ends) if all(high for _, high in cases) else hi
    return sympy.Max(lo, lows), sympy.Min(hi, highs)


def eliminated(conditions: list[Linear], axis: str, limits: Mapping[str, tuple[Any, Any]]) -> list[Linear]:
    """What the conditions imply for positions along `axis` alone, whatever the others are within their
    limits: each other position is eliminated by adding what bounds it from above to what does from below."""
    others = sorted({name for slopes, _ in conditions for name in slopes} - {axis})
    system = [*conditions]
    for name in others:
        low, high = limits[name]
        system += [({name: -1}, low), ({name: 1}, -high)]
    for name in others:
        rising = [c for c in system if c[0].get(name, 0) > 0]
        falling = [c for c in system if c[0].get(name, 0) < 0]
        system = [c for c in system if not c[0].get(name, 0)]
        system += [_added(up, down, name) for up in rising for down in falling]
    return system


def _added(up: Linear, down: Linear, name: str) -> Linear:
    """The positive combination of two inequalities in which `name` cancels."""
    by_up, by_down = -down[0][name], up[0][name]
    slopes = {n: by_up * up[0].get(n, 0) + by_down * down[0].get(n, 0) for n in {**up[0], **down[0]}}
    return {n: slope for n, slope in slopes.items() if slope}, sympy.expand(by_up * up[1] + by_down * down[1])


def _worst(linear: Linear, axis: str, limits: Mapping[str, tuple[Any, Any]]) -> Linear:
    """The inequality at the group's position where it is hardest to meet."""
    slopes, constant = linear
    rest = sum(slope * limits[name][slope > 0] for name, slope in slopes.items() if name != axis)
    return {axis: slopes.get(axis, 0)}, constant + rest


def _ends(system: list[Linear], axis: str) -> Ends:
    """Least and greatest positions along `axis` that inequalities in it alone allow."""
    bounds = [(slopes.get(axis, 0), constant) for slopes, constant in system]
    lows = [sympy.ceiling(constant / -slope) for slope, constant in bounds if slope < 0]
    highs = [sympy.floor(-constant / slope) for slope, constant in bounds if slope > 0]
    return lows, highs
