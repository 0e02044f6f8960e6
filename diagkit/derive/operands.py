"""What a contraction reads, made ready before it: the common ground of quantizers and transforms.

A wire that a contraction reads is replaced by one that is made from it; where the contraction's result then
differs by a factor, that factor is undone behind it. What is made from inputs alone is *prepared*: it runs in
kernels of its own, and stays in slow memory whatever is fused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from diagkit.derive.history import AnyTerm
from diagkit.derive.rewrite import open_around
from diagkit.ops import Node, array, trace
from diagkit.term import Axis, Box, Contract, Map, Term, TermError, arg, flatten, names, rename_box


def operand(term: Term, wire: str) -> Node:
    """The wire as a value to write algorithms with."""
    if wire not in term.wires:
        raise TermError(f"{term.name} has no wire {wire!r}", box=wire, remedy=f"the wires are: {', '.join(term.wires)}")
    found = term.wires[wire]
    return array(wire, *found.axes, dtype=found.dtype)


def written(term: Term, wire: str, *made: Node) -> list[Box]:
    """The boxes that make the nodes from `wire`; those without a name are called after it."""
    _, boxes, outputs = trace(made)
    taken = set(term.wires)
    own = {box.name: free(f"{wire}.{box.name}", taken) for box in flatten(boxes) if box.name not in outputs}
    own = {name: new for name, new in own.items() if not name.startswith(f"{wire}.")}
    return [rename_box(box, own) for box in boxes]


def free(name: str, taken: Iterable[str]) -> str:
    """The name, or one like it where it is taken."""
    while name in taken:
        name += "'"
    return name


def readers(term: Term, wire: str) -> list[Any]:
    """The contractions that read `wire`; a TermError where something else does, or nothing."""
    found = [box for box in term.flat if wire in box.inputs]
    other = next((box for box in found if not isinstance(box, Contract)), None)
    if other is not None or not found:
        reason = f"{other.name!r} reads {wire!r} and is no contraction" if other else f"nothing reads {wire!r}"
        read = {name for box in term.flat if isinstance(box, Contract) for name in box.inputs}
        remedy = f"name what contractions alone read: {', '.join(sorted(read)) or 'there are none'}"
        raise TermError(reason, box=other.name if other else wire, remedy=remedy)
    return found


def summed(term: Term, box: Box) -> set[str]:
    """The names of the axes that a contraction or a reduction sums over."""
    return {axis.name for wire in box.inputs for axis in term.wires[wire].axes} - set(names(box.axes))


def prepared(term: Term, wire: str) -> bool:
    """Whether what is made of `wire` alone can run before everything else: of inputs and what was prepared."""
    return wire in term.kept or any(array.name == wire for array in term.inputs)


def replaced(term: AnyTerm, wire: str, boxes: Sequence[Box], by: str, rule: str, stays: Iterable[str]) -> AnyTerm:
    """`term` with `boxes` in front of the contractions that read `wire`, which then read `by`; of what is
    prepared `stays` is kept in slow memory."""
    reading = [box.name for box in readers(term, wire)]
    opened = open_around(term, set(reading), rule)
    columns: list[Box] = []
    for box in opened.boxes:
        columns += boxes if reading and box.name == reading[0] else ()
        columns.append(_reading(box, wire, by) if box.name in reading else box)
    kept = [(name, 0) for name in stays] if prepared(term, wire) else []
    return opened.replace(boxes=tuple(columns), levels=(*opened.levels, *kept))


def _reading(box: Box, wire: str, by: str) -> Box:
    return replace(box, inputs=tuple(by if one == wire else one for one in box.inputs))


def undone(term: AnyTerm, contraction: str, factor: Any, wires: Sequence[str]) -> AnyTerm:
    """`term` with the result of a contraction times `factor`, a formula of arg(0), arg(1), ... for `wires`.

    A map that alone reads the result takes the factor in; otherwise a map of its own makes the wire of old.
    """
    reading = [box for box in term.flat if contraction in box.inputs]
    column = next((box for box in term.boxes if [box] == reading and isinstance(box, Map)), None)
    if column is None or contraction in term.outputs:
        return _undone_apart(term, contraction, factor, wires)
    place = column.inputs.index(contraction)
    inputs = (*column.inputs, *(wire for wire in wires if wire not in column.inputs))
    there = {arg(i): arg(inputs.index(wire)) for i, wire in enumerate(wires)}
    expr = column.expr.xreplace({arg(place): arg(place) * factor.xreplace(there)})
    return _swap(term, column.name, [replace(column, inputs=inputs, expr=expr)])


def _undone_apart(term: AnyTerm, contraction: str, factor: Any, wires: Sequence[str]) -> AnyTerm:
    box = term.box(contraction)
    bare = replace(box, name=free(f"{contraction}.acc", term.wires))
    there = {arg(i): arg(i + 1) for i in range(len(wires))}
    whole = Map(contraction, box.axes, (bare.name, *wires), arg(0) * factor.xreplace(there))
    level = term.level(contraction)
    made = _swap(term, contraction, [bare, whole])
    return made.replace(levels=(*made.levels, (bare.name, level))) if level else made


def _swap(term: AnyTerm, name: str, boxes: Sequence[Box]) -> AnyTerm:
    return term.replace(boxes=tuple(new for box in term.boxes for new in (boxes if box.name == name else (box,))))


def standing_for(term: Term, wire: str) -> str:
    """What contractions read in the place of `wire` by now: itself, or the one that was made of it."""
    read = {one for box in term.flat if isinstance(box, Contract) and box.name not in term.kept for one in box.inputs}
    made = sorted(one for one in read if one.startswith(f"{wire}."))
    return made[0] if wire not in read and len(made) == 1 else wire


TURNED = "_rot"
"""What the name of an axis gains when a rotation mixes it."""


def axis_of(term: Term, wire: str, name: str | Axis) -> Axis:
    """The axis of that name on `wire`, or the one that it was turned into; a TermError that lists all it has."""
    wanted = name.name if isinstance(name, Axis) else name
    by_name = {axis.name: axis for axis in operand(term, wire).axes}
    found = by_name.get(wanted) or by_name.get(f"{wanted}{TURNED}")
    if found is None:
        remedy = f"it has: {', '.join(by_name) or 'none'}"
        raise TermError(f"{wire!r} has no axis {wanted!r}", box=wire, axis=wanted, remedy=remedy)
    return found
