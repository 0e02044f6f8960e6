"""Masks made from positions: recognised by their formula, whatever they are called."""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.term import Index, Map, Term, arg, coordinate, names, where


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


def placed(term: Term, box: Map) -> Any:
    """The expression of a map with positions written out, as far as they are known."""
    spots = {arg(place): closed(term, wire) for place, wire in enumerate(box.inputs) if term.wires[wire].virtual}
    return box.expr.xreplace({symbol: at for symbol, at in spots.items() if at is not None})


def mask_of(term: Term, box: Map) -> str | None:
    """How a map hides scores by position: "causal", "window", "mask"; None where it does no such thing."""
    if not isinstance(box.expr, where) or box.expr.args[2] is not sympy.S.NegativeInfinity:
        return None
    inputs = {arg(place): wire for place, wire in enumerate(box.inputs)}
    wire = inputs.get(box.expr.args[0])
    if wire is None or not term.wires[wire].virtual:
        return None
    scores = next((term.wires[source].axes for source in box.inputs if not term.wires[source].virtual), box.axes)
    return position_mask(closed(term, wire), names(scores))


def position_mask(condition: Any, axes: tuple[str, ...]) -> str:
    """The shape of a condition on positions, where the last of `axes` counts the keys: "causal" where it
    bounds these from above by another position, "window" from above and below, else "mask".

    >>> i, j = coordinate("q"), coordinate("x")
    >>> position_mask(j <= i, ("q", "x")), position_mask(i <= j, ("q", "x"))
    ('causal', 'mask')
    """
    sides = {_side(part, coordinate(axes[-1])) for part in sympy.And.make_args(condition)} if axes else set()
    return "causal" if sides == {"above"} else "window" if sides == {"above", "below"} else "mask"


_LESS = {sympy.Le: 1, sympy.Lt: 1, sympy.Ge: -1, sympy.Gt: -1}
"""For each comparison, the sign that makes left - right what must not be positive."""


def _side(comparison: Any, key: Any) -> str | None:
    """From which side a comparison with one other position bounds the keys."""
    if type(comparison) not in _LESS:
        return None
    difference = sympy.expand(_LESS[type(comparison)] * (comparison.lhs - comparison.rhs))
    slopes = [difference.coeff(at) for at in difference.free_symbols - {key} if not at.is_positive]
    slope = difference.coeff(key)
    opposite = len(slopes) == 1 and slope * slopes[0] < 0
    return ("above" if slope > 0 else "below") if opposite else None
