"""Blocks of order: where the largest and smallest elements lie, and the k largest of them.

Positions are numbers like others, exact up to 2**24 in fp32. What is no number counts as the largest in numpy's
maximum, equals nothing, and so has no position; nothing comes after it.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import sympy

from diagkit.ops.build import Over, index, pick
from diagkit.ops.nodes import Node, block, combine, need_node
from diagkit.ops.reductions import reduce
from diagkit.term import Axis, AxisError, InputError, where


def argmax(value: Node, over: Over, name: str | None = None) -> Node:
    """The first position of the largest element along one axis; +inf along an empty axis.

    Positions are numbers like others, exact up to 2**24 in fp32. Streams carry the maximum and its position.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.argmax(X, over="x"))(X=[1.0, 3.0, 3.0])
    array(1.)
    """
    return _attained("argmax", "max", value, over, name)


def argmin(value: Node, over: Over, name: str | None = None) -> Node:
    """The first position of the smallest element along one axis; +inf along an empty axis.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.argmin(X, over="x"))(X=[1.0, 3.0, 0.5])
    array(2.)
    """
    return _attained("argmin", "min", value, over, name)


def _attained(title: str, op: str, value: Node, over: Over, name: str | None) -> Node:
    axis = _one_axis(title, value, over)
    extreme = reduce(op, value, over, hint=op)
    place = combine(lambda s, m, j: where(sympy.Eq(s, m), j, sympy.oo), value, extreme, index(axis), hint="place")
    return block(title, [value], reduce("min", place, over, hint="first"), name)


def _one_axis(what: str, value: Node, over: Over) -> Axis:
    axes = pick(need_node(value).axes, over)
    if len(axes) != 1:
        raise AxisError(f"{what} over {len(axes)} axes", remedy="name one: a position is one number along one axis")
    return axes[0]


def topk(value: Node, over: Over, k: int, rank: str = "rank", name: str | None = None) -> Node:
    """The k largest elements along one axis, in order, along a new axis `rank`; -inf where there are fewer.

    Streams carry k values and, to tell equal ones apart, their positions. `argtopk` has these; where both are wanted
    they share what they carry. Costs grow with k squared: k is meant to be small.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.topk(X, over="x", k=3))(X=[1.0, 3.0, 2.0, 3.0])
    array([3., 3., 2.])
    """
    pairs = _ranked(value, over, k)
    return block(f"top {k}", [value], _stacked([top for top, _ in pairs], rank), name)


def argtopk(value: Node, over: Over, k: int, rank: str = "rank", name: str | None = None) -> Node:
    """The positions of the k largest elements along one axis, in order, of equal ones the first; +inf where there are
    fewer. As numpy's stable ``argsort`` of the negatives has them.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.argtopk(X, over="x", k=3))(X=[1.0, 3.0, 2.0, 3.0])
    array([1., 3., 2.])
    """
    pairs = _ranked(value, over, k)
    return block(f"positions of the top {k}", [value], _stacked([first for _, first in pairs], rank), name)


def _ranked(value: Node, over: Over, k: int) -> list[tuple[Node, Node]]:
    """The first k pairs of value and position: each the largest of what comes after the one before."""
    axis = _one_axis(f"the top {k}", value, over)
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise InputError(f"no top {k!r}", axis=axis.name, remedy="use a whole number k >= 1")
    places, after, pairs = index(axis), [], []
    for number in range(1, int(k) + 1):
        following = combine(_after_pair, value, *after, hint="after") if after else value
        top = reduce("max", following, over, hint=f"max_{number}")
        place = combine(_place_after_pair, value, top, places, *after[:2], hint="place")
        first = reduce("min", place, over, hint=f"first_{number}")
        after = [top, first, places]
        pairs.append((top, first))
    return pairs


def _is_after(s: Any, j: Any, m: Any, i: Any) -> Any:
    """Whether the element s at j comes after m at i: it is smaller, or equal and later."""
    return sympy.Or(s < m, sympy.And(sympy.Eq(s, m), j > i))


def _after_pair(s: Any, m: Any, i: Any, j: Any) -> Any:
    return where(_is_after(s, j, m, i), s, -sympy.oo)


def _place_after_pair(s: Any, r: Any, j: Any, m: Any = None, i: Any = None) -> Any:
    met = sympy.Eq(s, r)
    return where(met if m is None else sympy.And(met, _is_after(s, j, m, i)), j, sympy.oo)


def _stacked(nodes: list[Node], rank: str) -> Node:
    """Nodes side by side along a new axis."""

    def chosen(*values: Any) -> Any:
        *others, made, place = values
        for number, one in reversed(list(enumerate(others))):
            made = where(sympy.Eq(place, number), one, made)
        return made

    places = index(Axis(rank, len(nodes)))
    if len(nodes) == 1:  # a map reads every input, and here nothing is chosen
        return combine(lambda one, place: where(place >= 0, one, 0), nodes[0], places)
    return combine(chosen, *nodes, places)
