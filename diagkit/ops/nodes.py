"""Nodes: what users hold while they write an algorithm down. `trace` turns them into a Term."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, cast

import numpy as np
import sympy

from diagkit.ops.foreign import Foreign, Same, refuse_ufunc
from diagkit.term import (
    FORMATS,
    Array,
    Axes,
    AxisError,
    Block,
    Box,
    Cast,
    Contract,
    Index,
    InputError,
    Map,
    Reduce,
    TermError,
    arg,
    check_name,
    exact,
    names,
)

_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
    "less": sympy.StrictLessThan,
    "less_equal": sympy.LessThan,
    "greater": sympy.StrictGreaterThan,
    "greater_equal": sympy.GreaterThan,
}
"""How numpy calls the operators that stand between one of its numbers and a node."""


@dataclass(frozen=True, eq=False)
class Node(Foreign):
    """A value of the algorithm: an input array, or a box applied to other nodes.

    Arithmetic and comparison make maps: ``S * d.size**-0.5``, ``i <= j``. Axes are matched by name, and
    an axis that one side lacks is an axis along which that side is used again.

    >>> import diagkit as dk
    >>> S = dk.array("S", *dk.axes("q x"))
    >>> S * 2 <= dk.index(dk.axis("x"))
    <map over (q, x)>

    >>> import diagkit as dk
    >>> dk.exp(dk.array("X", dk.axis("x"))).named("E").name
    'E'
    """

    source: Array | Box
    inputs: tuple[Node, ...] = ()
    hint: str = ""
    name: str | None = None
    result: Node | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name, "a value")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **named: Any) -> Node:
        """Operators with a number of numpy's; arrays and other functions are refused, not taken element by element."""
        if method != "__call__" or named or ufunc.__name__ not in _UFUNCS:
            raise refuse_ufunc(ufunc.__name__)
        return combine(_UFUNCS[ufunc.__name__], *operands)

    @property
    def axes(self) -> Axes:
        """The axes of the value, in order."""
        return self.source.axes

    def named(self, name: str | None) -> Node:
        """The same value under a name of its own."""
        return self if name is None else replace(self, name=name)

    def __repr__(self) -> str:
        kind = "array" if isinstance(self.source, Array) else self.source.kind
        name = self.name or self.hint
        return f"<{kind}{f' {name!r}' if name else ''} over ({', '.join(names(self.axes))})>"

    def __add__(self, other: Any) -> Node:
        return combine(lambda a, b: a + b, self, other)

    def __radd__(self, other: Any) -> Node:
        return combine(lambda a, b: a + b, other, self)

    def __sub__(self, other: Any) -> Node:
        return combine(lambda a, b: a - b, self, other)

    def __rsub__(self, other: Any) -> Node:
        return combine(lambda a, b: a - b, other, self)

    def __mul__(self, other: Any) -> Node:
        return combine(lambda a, b: a * b, self, other)

    def __rmul__(self, other: Any) -> Node:
        return combine(lambda a, b: a * b, other, self)

    def __truediv__(self, other: Any) -> Node:
        return combine(lambda a, b: a / b, self, other)

    def __rtruediv__(self, other: Any) -> Node:
        return combine(lambda a, b: a / b, other, self)

    def __pow__(self, other: Any) -> Node:
        return combine(lambda a, b: a**b, self, other)

    def __rpow__(self, other: Any) -> Node:
        return combine(lambda a, b: a**b, other, self)

    def __abs__(self) -> Node:
        return combine(sympy.Abs, self)

    def __neg__(self) -> Node:
        return combine(lambda a: -a, self)

    def __pos__(self) -> Node:
        return self

    def __lt__(self, other: Any) -> Node:
        return combine(sympy.StrictLessThan, self, other)

    def __le__(self, other: Any) -> Node:
        return combine(sympy.LessThan, self, other)

    def __gt__(self, other: Any) -> Node:
        return combine(sympy.StrictGreaterThan, self, other)

    def __ge__(self, other: Any) -> Node:
        return combine(sympy.GreaterThan, self, other)

    def __and__(self, other: Any) -> Node:
        return combine(sympy.And, self, other)

    def __or__(self, other: Any) -> Node:
        return combine(sympy.Or, self, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Node:
        return combine(sympy.Not, self)


def combine(function: Callable[..., Any], *operands: Any, hint: str = "", name: str | None = None) -> Node:
    """A map: `function` of the operands' scalars; numbers and size expressions go into the formula.

    >>> from diagkit.term import Axis
    >>> x = Node(Array("X", (Axis("x"),)))
    >>> combine(lambda a: 2 * a, x).source
    Map('', (Axis('x'),), (), (2)*(arg(0)))
    """
    inputs = tuple(dict.fromkeys(op for op in operands if isinstance(op, Node)))
    places = {id(node): arg(position) for position, node in enumerate(inputs)}
    expr = formula(function, [places[id(op)] if isinstance(op, Node) else op for op in operands])
    return Node(Map("", union([node.axes for node in inputs]), (), expr), inputs, hint, name)


def _fitting(error: str) -> str:
    """What to do about a formula that sympy refuses."""
    counted = "argument" in error and ("exactly" in error or "at least" in error)
    return "give it that many" if counted else "use arithmetic, comparisons, &, |, dk.exp, sympy.exp ..."


def formula(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """`function` of numbers and formulas, as a formula. Errors: TermError for what has no place in one.

    >>> formula(sympy.exp, [0]), formula(lambda a: 2 * a, [arg(0)])
    (1, 2*a0)
    """
    scalars = [_constant(operand) for operand in operands]
    try:
        made = _constant(function(*scalars))
    except (TypeError, ValueError, AttributeError) as error:
        reason = f"no formula of {len(scalars)} scalars comes of that: {error}"
        raise TermError(reason, remedy=_fitting(str(error))) from error
    if made.has(sympy.zoo, sympy.nan):
        raise TermError(f"a formula that is nowhere a number: {made}", remedy="something is divided by 0")
    return made


def _constant(value: Any) -> Any:
    """A number or a size expression, exactly; anything else has no place in a formula."""
    if isinstance(value, Same):
        value.refuse()
    if not isinstance(value, (Number, np.bool_, sympy.Basic)):
        raise TermError(
            f"{type(value).__name__} is neither a number nor a value of the diagram",
            remedy='declare an array with dk.array("A", a, b) and hand its numbers in when the diagram runs',
        )
    if isinstance(value, complex | np.complexfloating) or getattr(value, "is_extended_real", None) is False:
        raise TermError(f"{value} is no real number", remedy="use two real values, one for each part")
    return exact(value)


def need_node(operand: Any) -> Node:
    """The operand, if it is a value of a diagram; else an InputError that says how to make one."""
    if isinstance(operand, Same):
        operand.refuse()
    if not isinstance(operand, Node):
        raise InputError(f"{type(operand).__name__} is no value of a diagram", remedy="make one with dk.array(...)")
    return operand


def union(several: Sequence[Axes]) -> Axes:
    """The axes of several arrays together, in order of first appearance; one size per name."""
    found: dict[str, Any] = {}
    for axis in (axis for axes in several for axis in axes):
        first = found.setdefault(axis.name, axis)
        if first != axis:
            raise AxisError(
                f"axis {axis.name!r} has size {first.size} and size {axis.size}",
                axis=axis.name,
                remedy="one axis has one size: rename one of them (an axis of size 1 never stretches)",
            )
    return tuple(found.values())


def block(title: str, inputs: Sequence[Node], result: Node, name: str | None = None) -> Node:
    """Name a piece of the algorithm: everything between `inputs` and `result` becomes one block.

    The block draws as one glyph and can be opened. Its title is a label: nothing depends on it but the
    drawing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.block("twice", [X], 2 * X)
    <block 'twice' over (x)>
    """
    check_name(title, "a block")
    if isinstance(inputs, Node) or not isinstance(inputs, Sequence):
        raise InputError(f"block {title!r} takes a list of inputs", box=title, remedy='dk.block("twice", [X], 2 * X)')
    inside = Block("", need_node(result).axes, (), title, ())
    return Node(inside, tuple(map(need_node, inputs)), title, name, result)


def trace(
    outputs: Sequence[Node], variables: Mapping[str, Any] | None = None
) -> tuple[tuple[Array, ...], tuple[Box, ...], tuple[str, ...]]:
    """Inputs, boxes and output names of the diagram that computes `outputs`.

    A wire takes the name given with ``name=``, else that of the variable in `variables` which holds it
    (unless an array has that name already), else one made from what it is; equal programs get equal names.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> trace([dk.exp(X, name="E")])
    ((Array('X', (Axis('x'),), 'fp32'),), (Map('E', (Axis('x'),), ('X',), apply('exp', arg(0))),), ('E',))
    """
    for node in outputs:
        if not isinstance(node, Node):
            reason = f"a diagram's output is a value such as dk.softmax(...), not {type(node).__name__}"
            raise TermError(reason, remedy="give the values it outputs: dk.Diagram(O)")
    held = {id(v): k for k, v in reversed(list((variables or {}).items())) if isinstance(v, Node) and k[0] != "_"}
    return _Trace(held).run(outputs)


class _Trace:
    """Names nodes in the order in which they are needed, and writes their boxes down."""

    def __init__(self, held: Mapping[int, str], prefix: str = "") -> None:
        self.held, self.prefix = held, prefix
        self.wire: dict[int, str] = {}
        self.arrays: dict[str, Array] = {}
        self.boxes: list[Box] = []
        self.taken: set[str] = set()
        self.positions: dict[Axes, Node] = {}
        self.last: set[int] = set()

    def run(self, outputs: Sequence[Node]) -> tuple[tuple[Array, ...], tuple[Box, ...], tuple[str, ...]]:
        order, self.last = _ordered(outputs, set()), {id(node) for node in outputs}
        self.taken = {name for node in order if (name := _own_name(node))}
        self.held = {key: name for key, name in self.held.items() if name not in self.taken}
        self.taken |= {self.held[id(node)] for node in order if id(node) in self.held}
        for node in order:
            self._write(node)
        return tuple(self.arrays.values()), tuple(self.boxes), tuple(self.wire[id(node)] for node in outputs)

    def _name(self, node: Node) -> str:
        base = _own_name(node) or self.held.get(id(node))
        if base is None:
            base = _free(self.prefix + (node.hint or _hint(node, self.wire)), self.taken)
        self.taken.add(base)
        return base

    def _write(self, node: Node, name: str | None = None) -> None:
        if isinstance(node.source, Array):
            self._write_array(node, node.source)
            return
        if isinstance(node.source, Index) and name is None and self._again(node):
            return
        name = self.wire[id(node)] = name or self._name(node)
        wires = tuple(self.wire[id(source)] for source in node.inputs)
        box = replace(node.source, name=name, inputs=wires)
        if node.result is not None:
            box = replace(cast(Block, box), body=self._body(node, name))
        self.boxes.append(box)

    def _again(self, node: Node) -> bool:
        """Whether positions without a name of their own are written down already: two readers share one wire."""
        known = self.positions.setdefault(node.axes, node)
        shared = known is not node and not (_own_name(node) or id(node) in self.held or id(node) in self.last)
        if shared:
            self.wire[id(node)] = self.wire[id(known)]
        return shared

    def _write_array(self, node: Node, array: Array) -> None:
        if self.arrays.setdefault(array.name, array) != array:
            raise TermError(f"two different arrays are named {array.name!r}", remedy="give one another name")
        self.wire[id(node)] = array.name

    def _body(self, node: Node, name: str) -> tuple[Box, ...]:
        """The boxes inside a block: their wires are named after the block's own."""
        assert node.result is not None
        inner = _Trace({}, f"{name}.")
        inner.wire = {id(source): self.wire[id(source)] for source in node.inputs}
        order = _ordered([node.result], set(inner.wire))
        if any(isinstance(free.source, Array) for free in order) or not order:
            reason = f"block {name!r} reads an array that is not among its inputs"
            raise TermError(reason, box=name, remedy="list every array that it reads")
        inner.taken = set(self.taken)
        for child in order[:-1]:
            inner._write(child)
        inner._write(order[-1], name)
        return tuple(inner.boxes)


def _own_name(node: Node) -> str | None:
    return node.source.name if isinstance(node.source, Array) else node.name


def _ordered(outputs: Sequence[Node], known: set[int]) -> list[Node]:
    """Every node that the outputs need, each after its inputs, left to right; no recursion."""
    order: list[Node] = []
    seen = set(known)
    stack: list[tuple[Node, bool]] = [(node, False) for node in reversed(outputs)]
    while stack:
        node, ready = stack.pop()
        if id(node) in seen:
            continue
        if ready:
            seen.add(id(node))
            order.append(node)
        else:
            stack.append((node, True))
            stack += [(source, False) for source in reversed(node.inputs)]
    return order


def _free(base: str, taken: set[str]) -> str:
    name, count = base, 1
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name


def _stem(wire: str) -> str:
    """The part of a wire's name that says what it holds: `K` of `K.int8`, `max` of `softmax.max`."""
    parts = wire.split(".")
    return parts[-2] if len(parts) > 1 and parts[-1].partition("_")[0] in FORMATS else parts[-1]


_HINTS: dict[type[Box], Callable[[Any, list[str]], str]] = {
    Contract: lambda box, wires: "".join(wires),
    Reduce: lambda box, wires: f"{box.op}({wires[0]})",
    Map: lambda box, wires: f"f({', '.join(wires)})",
    Cast: lambda box, wires: f"{wires[0]}.{box.dtype}",
}


def _hint(node: Node, wire: Mapping[int, str]) -> str:
    """A name from what the box is: its inputs' names put together, kept short."""
    wires = [_stem(wire[id(source)]) for source in node.inputs]
    box = node.source
    case = _HINTS.get(type(box))  # type: ignore[arg-type]
    made = case(box, wires) if case else box.kind if isinstance(box, Box) else box.name
    return made if len(made) <= 16 else box.kind if isinstance(box, Box) else made
