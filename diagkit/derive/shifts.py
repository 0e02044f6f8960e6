"""What a shift of one wire does to the others: nothing, where it cancels on its way.

A meaning of the boxes, as costs are: every wire has the amount by which it moves when one wire moves by an
amount free of some axis. Softmax over that axis takes the amount off again with its maximum; tanh does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from diagkit.term import Box, Cast, Map, Reduce, Term, arg, finite, names, quotient, value, where

NOTHING = sympy.S.Zero
SHIFT = value("shift")
"""The amount: it carries the axes of the wire that moves, but for one."""


def who_sees(term: Term, wire: str, axis: str) -> str | None:
    """The first box or output that changes when `wire` moves by an amount free of `axis`; None where it cancels.

    >>> from diagkit import ops
    >>> q, x = ops.axes("q x")
    >>> S = ops.array("S", q, x)
    >>> E = ops.exp(S, name="E")
    >>> P = ops.softmax(E * 2, over=x, name="P")
    >>> who_sees(Term(*ops.trace([P])), "E", "x"), who_sees(Term(*ops.trace([P])), "S", "x")
    (None, 'E')
    """
    moves: dict[str, Any] = {wire: SHIFT}
    for box in _after(term, wire):
        moved = _moved(term, box, axis, [moves.get(one, NOTHING) for one in box.inputs])
        if moved is None:
            return box.name
        moves[box.name] = moved
    return next((output for output in term.outputs if moves.get(output, NOTHING) != 0), None)


def _after(term: Term, wire: str) -> list[Box]:
    """The primitives that depend on `wire`."""
    reached, found = {wire}, []
    for box in term.flat:
        if reached & set(box.inputs):
            reached.add(box.name)
            found.append(box)
    return found


def _moved(term: Term, box: Any, axis: str, moves: list[Any]) -> Any:
    """By how much the wire of a box moves, or None where that is no amount free of the axis."""
    if not any(moves):
        return NOTHING
    if isinstance(box, Cast):
        return moves[0]  # exact before rounding
    if isinstance(box, Reduce):
        return moves[0] if box.op in ("max", "min") and set(box.over) == {axis} else None
    if not isinstance(box, Map):
        return None
    carried = {arg(i) for i, wire in enumerate(box.inputs) if axis in names(term.wires[wire].axes)}
    moved = _in_formula(box.expr, {arg(i): move for i, move in enumerate(moves)}, carried)
    there = {arg(i): value(wire) for i, wire in enumerate(box.inputs)}
    return None if moved is None else moved.xreplace(there)


def _in_formula(expr: Any, moves: dict[Any, Any], carried: set[Any]) -> Any:
    """By how much a formula moves, its arguments moving by `moves`; None where not by an amount free of the
    axis that the arguments `carried` carry."""
    if expr.is_Symbol:
        return moves.get(expr, NOTHING)
    parts = [_in_formula(part, moves, carried) for part in expr.args]
    if all(part == 0 for part in parts if part is not None) and None not in parts:
        return NOTHING
    case = _CASES.get(expr.func)
    return case(expr, parts, carried) if case and None not in parts else None


def _product(expr: Any, parts: list[Any], carried: set[Any]) -> Any:
    """One factor may move, the others must not see the axis."""
    still = sympy.Mul(*(factor for factor, part in zip(expr.args, parts, strict=True) if part == 0))
    moving = [part for part in parts if part != 0]
    return moving[0] * still if len(moving) == 1 and not still.free_symbols & carried else None


def _choice(expr: Any, parts: list[Any], carried: set[Any]) -> Any:
    """Both branches move alike, or one is infinite, where it may move as it likes."""
    moving = {part for branch, part in zip(expr.args[1:], parts[1:], strict=True) if not branch.is_infinite}
    return moving.pop() if parts[0] == 0 and len(moving) == 1 else None


def _alike(expr: Any, parts: list[Any], carried: set[Any]) -> Any:
    return parts[0] if len(set(parts)) == 1 else None


_CASES: dict[Any, Callable[[Any, list[Any], set[Any]], Any]] = {
    sympy.Add: lambda expr, parts, carried: sympy.Add(*parts),
    sympy.Mul: _product,
    sympy.Max: _alike,
    sympy.Min: _alike,
    finite: _alike,
    where: _choice,
    quotient: lambda expr, parts, carried: parts[0] / expr.args[1] if parts[1] == 0 else None,
}
