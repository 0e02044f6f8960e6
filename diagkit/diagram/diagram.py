"""`Diagram`: one immutable value; every method is a door into one room below."""

from __future__ import annotations

import sys
from typing import Any

from diagkit import ops
from diagkit.ops import Node
from diagkit.term import Term


class Diagram(Term):
    """A diagram: draws itself, runs, states its costs, and is relabelled step by step.

    Made from the values it outputs; wires take the names of the variables that hold them where the
    diagram is made (or those given with ``name=``).

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    >>> dk.Diagram(S, name="scores").outputs
    ('S',)
    """

    def __init__(self, *outputs: Any, name: str = "diagram", **parts: Any) -> None:
        if all(isinstance(node, Node) for node in outputs) and "inputs" not in parts:
            caller = sys._getframe(1)
            variables = {**caller.f_globals, **caller.f_locals}
            inputs, boxes, wires = ops.trace(outputs, variables)
            super().__init__(inputs, boxes, wires, name, **parts)
        else:
            super().__init__(*outputs, name=name, **parts)

    def __call__(self, **arrays: Any) -> Any:
        """Its numbers: numpy or torch arrays in by name, the same kind out (see `ops.evaluate`)."""
        return ops.evaluate(self, arrays)

    def reference(self, **arrays: Any) -> Any:
        """Its numbers computed in float64."""
        return ops.reference(self, arrays)
