"""Reductions over axes: the sum, the product, the largest and the smallest element."""

from __future__ import annotations

from diagkit.ops.build import Over, pick, without
from diagkit.ops.nodes import Node, need_node
from diagkit.term import REDUCTIONS, AxisError, Reduce, TermError, names


def reduce(op: str, value: Node, over: Over, name: str | None = None, hint: str = "") -> Node:
    """The `op` ("sum", "max", "min", "product") of `value` over one axis or several. Of nothing: 0, -inf, +inf, 1.

    >>> from diagkit.ops.build import array, axes
    >>> reduce("max", array("S", *axes("q x")), over="x")
    <reduce over (q)>
    """
    if op not in REDUCTIONS:
        raise TermError(f"no reduction {op!r}", remedy=f"use one of: {', '.join(REDUCTIONS)}")
    gone = pick(need_node(value).axes, over)
    if not gone:
        raise AxisError(f"{op} over no axis", remedy=f"the axes are: {', '.join(names(value.axes)) or 'none'}")
    return Node(Reduce("", without(value.axes, gone), (), op, names(gone)), (value,), hint, name)


def amax(value: Node, over: Over, name: str | None = None) -> Node:
    """The largest element over the axes `over`; -inf of nothing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.amax(X, over="x"))(X=[1.0, 3.0, 2.0])
    array(3.)
    """
    return reduce("max", value, over, name)


def amin(value: Node, over: Over, name: str | None = None) -> Node:
    """The smallest element over the axes `over`; +inf of nothing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.amin(X, over="x"))(X=[1.0, 3.0, 2.0])
    array(1.)
    """
    return reduce("min", value, over, name)


def total(value: Node, over: Over, name: str | None = None) -> Node:
    """The sum of the elements over the axes `over`; 0 of nothing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.total(X, over="x"))(X=[1.0, 3.0, 2.0])
    array(6.)
    """
    return reduce("sum", value, over, name)


def product(value: Node, over: Over, name: str | None = None) -> Node:
    """The product of the elements over the axes `over`; 1 of nothing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.product(X, over="x"))(X=[2.0, 3.0, 4.0])
    array(24.)
    """
    return reduce("product", value, over, name)
