"""Masks made from positions: recognised by their formula, whatever they are called."""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.term import Index, Map, Term, arg, coordinate, where


def closed(term: Term, wire: str) -> Any:
    """A wire of positions as one expression in the coordinates of its axes."""
    box = term.wires[wire] and next((b for b in term.flat if b.name == wire), None)
    if isinstance(box, Index):
        return coordinate(box.axes[0].name)
    if not isinstance(box, Map):
        return None
    parts = [closed(term, source) for source in box.inputs]
    if any(part is None for part in parts):
        return None
    return box.expr.xreplace({arg(place): part for place, part in enumerate(parts)})


def mask_of(term: Term, box: Map) -> str | None:
    """How a map hides scores by position: "causal", "window", "mask"; None where it does no such thing."""
    if not isinstance(box.expr, where) or box.expr.args[2] is not sympy.S.NegativeInfinity:
        return None
    inputs = {arg(place): wire for place, wire in enumerate(box.inputs)}
    wire = inputs.get(box.expr.args[0])
    return position_mask(closed(term, wire)) if wire is not None and term.wires[wire].virtual else None


def position_mask(condition: Any) -> str:
    """The shape of a mask given as a condition on coordinates."""
    shapes = {sympy.Le: "causal", sympy.Ge: "causal", sympy.Lt: "causal", sympy.Gt: "causal", sympy.And: "window"}
    return next((shape for kind, shape in shapes.items() if isinstance(condition, kind)), "mask")
