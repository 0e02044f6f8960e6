"""Scalar functions that users call: of values, element by element, and of formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from diagkit.ops.nodes import Node, combine, formula
from diagkit.ops.scalars import SCALARS


def scalar(name: str) -> Callable[..., Any]:
    """The scalar function of that name: of nodes a map, of formulas a formula.

    >>> from diagkit.ops.build import array, axis
    >>> scalar("exp")(array("X", axis("x"))), scalar("exp")(0)
    (<map over (x)>, 1)
    """
    row = SCALARS[name]

    def function(*operands: Any, **named: Any) -> Any:
        if any(isinstance(operand, Node) for operand in operands):
            return combine(row.symbolic, *operands, **named)
        return formula(row.symbolic, operands)

    function.__name__ = function.__qualname__ = name
    call, result = row.example
    first = f"`{row.symbolic.__name__}` of values (element by element, work for the {row.unit} unit) or of formulas."
    function.__doc__ = f"{first}\n\n    >>> {call}\n    {result}"
    return function


exp, log, tanh, erf = scalar("exp"), scalar("log"), scalar("tanh"), scalar("erf")
sin, cos, sign, floor, absolute = scalar("sin"), scalar("cos"), scalar("sign"), scalar("floor"), scalar("abs")
maximum, minimum = scalar("maximum"), scalar("minimum")
where, finite, quotient = scalar("where"), scalar("finite"), scalar("quotient")


def sqrt(value: Any, name: str | None = None) -> Any:
    """The square root of a value or a formula.

    >>> from diagkit.ops.build import array, axis
    >>> sqrt(axis("d").size), sqrt(array("X", axis("x")))
    (sqrt(d), <map over (x)>)
    """
    return combine(sympy.sqrt, value, name=name) if isinstance(value, Node) else formula(sympy.sqrt, [value])


def equal(left: Any, right: Any, name: str | None = None) -> Node:
    """Where two values are equal (``==`` compares the nodes themselves).

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.equal(X, 2))(X=[1.0, 2.0])
    array([False,  True])
    """
    return combine(sympy.Eq, left, right, name=name)
