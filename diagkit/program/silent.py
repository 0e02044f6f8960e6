"""Whether a chunk may be left out: the step's own formulas, with a mask false, must leave the state alone.

Each wire of the step is followed as a formula of states and other wires; what cannot be followed becomes
a symbol of its own. No box is known by name: a sum of zeros is 0, a maximum of -oo is -oo, and the rest
is algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

from diagkit.term import (
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    StreamForm,
    View,
    Wire,
    arg,
    finite,
    names,
    plain,
    quotient,
    value,
)

Formulas = dict[str, Any]


def leaves_state(form: StreamForm, mask: str, wires: Mapping[str, Wire]) -> bool:
    """Whether the step leaves every state as it was where the virtual wire `mask` is false throughout.

    A quotient counts as a division here; so the same is asked of the state at its start, where
    denominators are the empty sums that quotients are for.
    """
    made = _followed(form, mask, wires)
    starts = {value(state.name): state.start for state in form.state}
    kept = all(_same(plain(made[state.new]), value(state.name)) for state in form.state)
    return kept and all(_same(_settled(made[s.new].xreplace(starts)), s.start) for s in form.state)


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) or bool(left.is_finite is not False and sympy.expand(left - right) == 0)


def _followed(form: StreamForm, mask: str, wires: Mapping[str, Wire]) -> Formulas:
    formulas: Formulas = {mask: sympy.false}
    for box in form.step:
        if box.name != mask:
            inputs = [formulas.get(wire, value(wire)) for wire in box.inputs]
            carried = {value(name) for name, wire in wires.items() if form.axis in names(wire.axes)}
            formulas[box.name] = _settled(_CASES[type(box)](box, inputs, carried))
    return formulas


def _settled(formula: Any) -> Any:
    """The formula with 0 / anything as 0, and exp(-oo - finite shift) as 0."""
    formula = formula.replace(quotient, lambda a, b: sympy.S.Zero if a == 0 else quotient(a, b))
    return formula.replace(sympy.exp, lambda e: sympy.S.Zero if _falls(e) else sympy.exp(e))


def _falls(exponent: Any) -> bool:
    """Whether an exponent is -oo plus things that are finite."""
    parts = sympy.Add.make_args(exponent)
    rest = [part for part in parts if part is not sympy.S.NegativeInfinity]
    return len(rest) < len(parts) and all(part.is_real or part.atoms(finite) for part in rest)


def _map(box: Any, inputs: list[Any], _: set[Any]) -> Any:
    return box.expr.xreplace({arg(place): formula for place, formula in enumerate(inputs)})


def _reduce(box: Any, inputs: list[Any], carried: set[Any]) -> Any:
    (formula,) = inputs
    if box.op in _SAME:
        return formula if formula in _SAME[box.op] else value(box.name)
    return value(box.name) if formula.free_symbols & carried else formula


_SAME = {"sum": (0,), "product": (0, 1)}
"""What stays the same however often it is added, or multiplied."""


def _contract(box: Box, inputs: list[Any], _: set[Any]) -> Any:
    return sympy.S.Zero if 0 in inputs else value(box.name)


def _moved(box: Box, inputs: list[Any], _: set[Any]) -> Any:
    return sympy.S.Zero if inputs == [0] else value(box.name)


def _unknown(box: Box, _inputs: list[Any], _carried: set[Any]) -> Any:
    return value(box.name)


_CASES: dict[type[Box], Callable[..., Any]] = {
    Map: _map,
    Reduce: _reduce,
    Contract: _contract,
    Cast: _moved,
    View: _moved,
    Index: _unknown,
}
