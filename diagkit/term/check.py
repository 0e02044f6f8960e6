"""What makes a diagram well-formed, kind by kind; each check returns a reason or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sympy

from diagkit.term.boxes import (
    Axes,
    Axis,
    Block,
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    View,
    check_name,
    distinct,
    names,
)
from diagkit.term.errors import AxisError, TermError
from diagkit.term.formats import check_format
from diagkit.term.symbols import arg, finite, where

if TYPE_CHECKING:
    from diagkit.term.term import Term

REDUCTIONS = ("sum", "max", "min", "product")
_GROWS = ("sum", "product")
"""What makes larger numbers than it is made of."""
_WIDTH = {"int4": 0, "int8": 1, "int32": 2, "int64": 3, "fp16": 5, "bf16": 5}
_WIDTH |= {"fp8e4m3": 4, "fp8e5m2": 4, "fp8e8m0": 4, "bool": -1, "tf32": 6, "fp32": 7, "fp64": 8}


def promote(formats: Sequence[str]) -> str:
    """The format that holds them all: the widest float, fp32 where two of one width differ.

    >>> promote(["fp16", "fp32"]), promote(["fp16", "bf16"]), promote(["fp8e4m3", "fp8e4m3"])
    ('fp32', 'fp32', 'fp8e4m3')
    """
    widest = max(formats, key=lambda dtype: _WIDTH[dtype], default="fp32")
    rivals = {dtype for dtype in formats if _WIDTH[dtype] == _WIDTH[widest]}
    return widest if len(rivals) == 1 else "fp32"


def _is_condition(expr: Any, formats: Sequence[str]) -> bool:
    """Whether a formula is true or false, its arguments being of these formats."""
    if isinstance(expr, where):
        return all(_is_condition(branch, formats) for branch in expr.args[1:])
    if expr.is_Symbol:
        return any(expr == arg(place) and dtype == "bool" for place, dtype in enumerate(formats))
    return isinstance(expr, sympy.logic.boolalg.Boolean)


def _map_format(box: Any, formats: Sequence[str]) -> str:
    if _is_condition(box.expr, formats):
        return "bool"
    every = {arg(place): dtype for place, dtype in enumerate(formats) if dtype != "bool"}
    chosen = {symbol: dtype for symbol, dtype in every.items() if symbol in _values(box.expr)}
    numbers = [*(chosen or every).values()]
    floats = [dtype for dtype in numbers if _WIDTH[dtype] >= _WIDTH["fp8e4m3"]]
    if "fp8e8m0" in floats and not _made_of(box.expr, _CHOICES):
        return promote([*floats, "fp32"])  # what is made of powers of two is none
    if floats or not numbers:
        return promote(floats or ["fp32"])
    if _made_of(box.expr, _CHOICES):
        return promote(numbers)
    return _summed(numbers) if _made_of(box.expr, (*_CHOICES, *_ARITHMETIC)) else "fp32"


def _values(expr: Any) -> set[Any]:
    """The arguments that the values of a formula are made of: what a choice compares decides, and enters none."""
    if expr.is_Symbol:
        return {expr}
    parts = expr.args[1:] if isinstance(expr, where) else expr.args
    return {symbol for part in parts for symbol in _values(part)}


_CHOICES = (sympy.Symbol, where, sympy.Max, sympy.Min, finite)
"""What gives back one of its arguments."""
_ARITHMETIC = (sympy.Integer, sympy.Add, sympy.Mul, sympy.Abs)
"""What makes whole numbers of whole numbers."""


def _made_of(expr: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether the values of a formula come of such parts alone; powers count as products."""
    if expr.is_Pow and sympy.Mul in kinds:
        return bool(expr.exp.is_Integer and expr.exp >= 0) and _made_of(expr.base, kinds)
    parts = expr.args[1:] if isinstance(expr, where) else expr.args
    return isinstance(expr, kinds) and all(_made_of(part, kinds) for part in parts)


def _summed(formats: Sequence[str]) -> str:
    """Sums of short whole numbers take 32 bits, and so do sums with an 8-bit float in them: nothing adds up
    in fewer."""
    if _SHORT_FLOATS & {*formats}:
        return promote([*formats, "fp32"])
    found = promote(formats)
    return "int32" if found in ("bool", "int4", "int8") else found


_SHORT_FLOATS = {"fp8e4m3", "fp8e5m2", "fp8e8m0"}


_FORMAT_OF: dict[type[Box], Callable[..., str]] = {
    Map: _map_format,
    Reduce: lambda box, formats: _summed(formats) if box.op in _GROWS else promote(formats),
    Contract: lambda box, formats: _summed(formats),
    Index: lambda box, formats: "int32",
    Cast: lambda box, formats: str(box.dtype),
    View: lambda box, formats: promote(formats),
}


def wire_format(box: Box, formats: Sequence[str]) -> str:
    """The number format of the wire that a primitive makes from inputs of those formats.

    >>> wire_format(Cast("C", (), ("X",), "fp16"), ["fp32"]), wire_format(Index("i", (), ()), [])
    ('fp16', 'int32')
    """
    return _FORMAT_OF[type(box)](box, formats)


def check_term(term: Term) -> None:
    """Raise a TermError or AxisError for the first thing that is wrong with `term`; else nothing."""
    known: dict[str, Axes] = {}
    check_name(term.name, "a diagram")
    for array in term.inputs:
        _new_name(known, array.name, term.name)
        known[array.name] = array.axes
    _check_boxes(term.boxes, known, term.name)
    for wire in term.outputs:
        if wire not in known:
            raise TermError(f"{term.name}: nobody makes the output {wire!r}", remedy=_known(known))
    if len(set(term.outputs)) < len(term.outputs):
        raise TermError(f"{term.name}: an output is named twice", remedy="name each output once")
    _one_size_each(known, term.name)
    _check_conditions(term)
    _check_labels(term, known)


@cache
def _conditions(expr: Any) -> frozenset[Any]:
    """The scalars that a formula takes for true or false."""
    choices = [part.args[0] for part in expr.atoms(where)]
    logic = [side for part in expr.atoms(sympy.And, sympy.Or, sympy.Not) for side in part.args]
    return frozenset(side for side in (*choices, *logic) if side.is_Symbol)


def _check_conditions(term: Term) -> None:
    """What chooses is true or false: a number would count as true wherever it is not 0."""
    maps = (box for box in term.flat if isinstance(box, Map) and _conditions(box.expr))
    for box in maps:
        for place, wire in enumerate(box.inputs):
            found = term.wires[wire].dtype
            if found != "bool" and arg(place) in _conditions(box.expr):
                raise TermError(
                    f"map {box.name!r} takes {wire!r} for true or false, and {wire!r} is {found}",
                    box=box.name,
                    remedy="a mask is boolean: compare, or declare dtype='bool'; a mask of numbers is added",
                )


def _known(known: dict[str, Axes]) -> str:
    return f"the wires are: {', '.join(known) or 'none'}"


def _new_name(known: dict[str, Axes], name: str, owner: str) -> None:
    if name in known:
        raise TermError(f"{owner}: two wires are named {name!r}", box=name, remedy="give one of them another name")


def _check_boxes(boxes: tuple[Box, ...], known: dict[str, Axes], owner: str) -> None:
    for box in boxes:
        missing = [wire for wire in box.inputs if wire not in known]
        if missing:
            reason = f"box {box.name!r} reads the unknown wire {missing[0]!r}"
            raise TermError(reason, box=box.name, remedy=_known(known))
        if isinstance(box, Block):
            _check_block(box, known, owner)
        else:
            _new_name(known, box.name, owner)
            distinct(box.axes, f"box {box.name!r}", box.name)
            _CHECK[type(box)](box, [known[wire] for wire in box.inputs])
            known[box.name] = box.axes


def _check_block(box: Block, known: dict[str, Axes], owner: str) -> None:
    if not box.body or box.body[-1].name != box.name:
        reason = f"block {box.name!r} must end with the box that makes {box.name!r}"
        raise TermError(reason, box=box.name, remedy="let its last box bear its name")
    inside = {wire: known[wire] for wire in box.inputs}
    _check_boxes(box.body, inside, box.name)
    if inside[box.name] != box.axes:
        made = names(inside[box.name])
        reason = f"block {box.name!r} says axes {names(box.axes)} but makes {made}"
        raise AxisError(reason, box=box.name, remedy=f"say {made}")
    for wire, axes in inside.items():
        if wire not in box.inputs:
            _new_name(known, wire, owner)
            known[wire] = axes


def _one_size_each(known: dict[str, Axes], owner: str) -> None:
    sizes: dict[str, tuple[Axis, str]] = {}
    for wire, axes in known.items():
        for axis in axes:
            first, where = sizes.setdefault(axis.name, (axis, wire))
            if first != axis:
                raise AxisError(
                    f"{owner}: axis {axis.name!r} has size {first.size} on {where!r} and {axis.size} on {wire!r}",
                    axis=axis.name,
                    box=wire,
                    remedy="one axis has one size: rename one of them (an axis of size 1 never stretches)",
                )


def _joined(inputs: list[Axes]) -> set[str]:
    return {axis.name for axes in inputs for axis in axes}


def _unknown_axis(box: Box, inputs: list[Axes]) -> None:
    for axis in box.axes:
        if axis.name not in _joined(inputs):
            raise AxisError(
                f"box {box.name!r} makes axis {axis.name!r}, which none of its inputs has",
                axis=axis.name,
                box=box.name,
                remedy=f"use axes of {', '.join(map(repr, box.inputs)) or 'an input'}: {sorted(_joined(inputs))}",
            )


def _check_map(box: Any, inputs: list[Axes]) -> None:
    _unknown_axis(box, inputs)
    lost = _joined(inputs) - set(names(box.axes))
    if lost:
        raise AxisError(f"map {box.name!r} loses axis {min(lost)!r}", axis=min(lost), box=box.name, remedy="reduce it")


def _check_reduce(box: Any, inputs: list[Axes]) -> None:
    if box.op not in REDUCTIONS:
        raise TermError(f"no reduction {box.op!r}", box=box.name, remedy=f"use one of: {', '.join(REDUCTIONS)}")
    (source,) = inputs
    for axis in box.over:
        if axis not in names(source):
            raise AxisError(
                f"{box.op} {box.name!r} over axis {axis!r}, which {box.inputs[0]!r} lacks",
                axis=axis, box=box.name, remedy=f"its axes are: {', '.join(names(source)) or 'none'}",
            )  # fmt: skip
    kept = tuple(axis for axis in source if axis.name not in box.over)
    if set(kept) != set(box.axes):
        reason = f"{box.op} {box.name!r} keeps {names(kept)}, not {names(box.axes)}"
        raise AxisError(reason, box=box.name, remedy=f"say {names(kept)}")


def _check_index(box: Any, inputs: list[Axes]) -> None:
    if len(box.axes) != 1 or inputs:
        raise TermError(f"index {box.name!r} has one axis and no input", box=box.name, remedy="Index(name, (x,), ())")


def _check_cast(box: Any, inputs: list[Axes]) -> None:
    check_format(box.dtype)
    if set(inputs[0]) != set(box.axes):
        reason = f"cast {box.name!r} keeps the axes of {box.inputs[0]!r}"
        raise AxisError(reason, box=box.name, remedy=f"say {names(inputs[0])}")


def _check_view(box: Any, inputs: list[Axes]) -> None:
    if len(box.coordinates) != len(inputs[0]):
        raise AxisError(
            f"view {box.name!r} gives {len(box.coordinates)} coordinates for {len(inputs[0])} axes",
            box=box.name,
            remedy="give one for each axis of what it reads",
        )


_CHECK: dict[type[Box], Callable[[Any, list[Axes]], None]] = {
    Map: _check_map,
    Reduce: _check_reduce,
    Contract: _unknown_axis,
    Index: _check_index,
    Cast: _check_cast,
    View: _check_view,
}


def _check_labels(term: Term, known: dict[str, Axes]) -> None:
    carried = _joined(list(known.values()))
    for label in term.labels:
        if label.axis not in carried:
            reason = f"{term.name} has no axis {label.axis!r} to {label.kind}"
            raise AxisError(reason, axis=label.axis, remedy=f"its axes are: {', '.join(sorted(carried))}")
    columns = {box.name for box in term.boxes}
    for wire, _ in term.levels:
        if wire not in columns:
            raise TermError(f"{term.name} has no intermediate {wire!r}", box=wire, remedy=_known(known))


__all__ = ["check_term", "promote", "wire_format"]
