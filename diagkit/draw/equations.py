"""Boxes as equations between names: what a loop does where its diagram would be too wide to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

from diagkit.draw.masks import placed
from diagkit.draw.naming import called
from diagkit.draw.scene import Runs
from diagkit.draw.typeset import formula, joined, lowered, name_runs, roman
from diagkit.term import Box, Cast, Contract, Map, Reduce, Term, View, coordinate, names


def equations(term: Term, inside: Mapping[str, Reduce]) -> list[tuple[str, Runs]]:
    """One equation per box that is drawn, with its name; the reductions `inside` stand in the one that reads them."""
    shown = [box for box in term.boxes if not term.wires[box.name].virtual and box.name not in inside]
    return [(box.name, equation(term, box, inside)) for box in shown]


def equation(term: Term, box: Box, inside: Mapping[str, Reduce]) -> Runs:
    """What a box makes = from what it makes it."""
    return joined(_said(term, box.name) + roman(" = ") + _RIGHT[type(box)](term, box, inside))


def _said(term: Term, wire: str) -> Runs:
    return name_runs(called(term).get(wire, wire))


def argument_names(term: Term, box: Map, inside: Mapping[str, Reduce]) -> dict[str, Runs]:
    """What the arguments of a map are called in its formula; a reduction is written out."""
    found = {}
    for place, wire in enumerate(box.inputs):
        larger = wire in inside and inside[wire].op == "max" and isinstance(box.expr, sympy.Max)
        written = _said(term, inside[wire].inputs[0]) if larger else None
        found[f"a{place}"] = written or (reduced(term, inside[wire]) if wire in inside else _said(term, wire))
    return found


def reduced(term: Term, box: Reduce) -> Runs:
    """A reduction in a formula: its sign, the axis below it, what it reduces."""
    sign = roman({"sum": "Σ", "product": "Π"}.get(box.op, box.op))
    return sign + lowered(_listed(box.over)) + roman(" ") + _said(term, box.inputs[0])


def _listed(axes: tuple[str, ...]) -> Runs:
    runs: Runs = ()
    for axis in axes:
        runs += (roman(",") if runs else ()) + name_runs(axis)
    return runs


def _map(term: Term, box: Any, inside: Mapping[str, Reduce]) -> Runs:
    found = argument_names(term, box, inside)
    return formula(placed(term, box), (), lambda name: found.get(name) or name_runs(name))


def _contract(term: Term, box: Box, inside: Mapping[str, Reduce]) -> Runs:
    carried = dict.fromkeys(axis for wire in box.inputs for axis in names(term.wires[wire].axes))
    gone = tuple(axis for axis in carried if axis not in names(box.axes))
    runs: Runs = ()
    for wire in box.inputs:
        runs += (roman(" · ") if runs else ()) + _said(term, wire)
    return (roman("Σ") + lowered(_listed(gone)) + roman(" ") if gone else ()) + runs


def _view(term: Term, box: Any, inside: Mapping[str, Reduce]) -> Runs:
    at: Runs = ()
    for axis, place in zip(term.wires[box.inputs[0]].axes, box.coordinates, strict=True):
        at += (roman(", ") if at else ()) + (name_runs(axis.name) if place == coordinate(axis.name) else formula(place))
    return _said(term, box.inputs[0]) + roman("[") + at + roman("]")


_RIGHT: dict[type[Box], Callable[[Term, Any, Mapping[str, Reduce]], Runs]] = {
    Map: _map,
    Reduce: lambda term, box, inside: reduced(term, box),
    Contract: _contract,
    Cast: lambda term, box, inside: _said(term, box.inputs[0]) + roman(f" as {box.dtype}"),
    View: _view,
}
