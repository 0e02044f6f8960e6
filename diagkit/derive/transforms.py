"""Transforms that change nothing before rounding, and a good deal after it.

Quantization errs by what shares a scale. Each of these makes what shares one more alike, and none changes the
numbers: the mean of the keys, which softmax does not see; a rotation of queries and keys, which their products
do not see; a factor, undone behind the sum; another order of the keys, which no sum sees.
"""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.derive.history import AnyTerm, rewrite, take
from diagkit.derive.operands import TURNED, axis_of, operand, readers, replaced, standing_for, summed, undone, written
from diagkit.derive.shifts import who_sees
from diagkit.ops import Node, combine, contract, mean
from diagkit.term import (
    Array,
    Axis,
    AxisError,
    Index,
    InputError,
    Term,
    TermError,
    View,
    coordinate,
    exact,
    rename_box,
    value,
)


def smooth(term: AnyTerm, /, **over: str | Axis) -> AnyTerm:
    """Take the mean over an axis off what a contraction reads: ``smooth(K="x")``.

    All products of one query then move by the same amount, which must cancel behind the contraction, as it does
    in a softmax over that axis. Raises TermError, naming the box, where something sees the amount.

    Source: SageAttention (arXiv 2410.02367), section 4.2.

    >>> from diagkit import ops
    >>> q, x, d = ops.axes("q x d")
    >>> S = ops.einsum("q d, x d -> q x", ops.array("Q", q, d), ops.array("K", x, d), name="S")
    >>> rows = Term(*ops.trace([ops.softmax(S, over=x, name="P")]))
    >>> [box.name for box in smooth(rows, K="x").boxes]
    ['K.mean', 'K.smooth', 'S', 'P']
    """
    made = term
    for wire, axis in over.items():
        made = _smoothed(made, wire, axis)
    why = "; ".join(
        f"the mean of {wire} over {axis} moves all products alike, and cancels" for wire, axis in over.items()
    )
    return taken(term, made, rewrite(term, "smooth", why, named=over))


def taken(term: AnyTerm, made: Term, step: Any) -> AnyTerm:
    """`term` as `made` is, with the one step that led there."""
    changes = {name: getattr(made, name) for name in ("inputs", "boxes", "levels", "forms")}
    return take(term, changes, step)


def _smoothed(term: AnyTerm, root: str, axis: str | Axis) -> AnyTerm:
    wire = standing_for(term, root)
    over = axis_of(term, wire, axis)
    for box in readers(term, wire):
        others = [one for one in box.inputs if one != wire and over in term.wires[one].axes]
        reader = box.name if over not in box.axes else next(iter(others), None)
        sees = reader or who_sees(term, box.name, over.name)
        if sees is not None:
            raise TermError(
                f"{sees!r} sees the mean of {wire!r} over {over.name!r}",
                axis=over.name, box=sees, remedy="smooth what a softmax over that axis takes off again",
            )  # fmt: skip
    keys = operand(term, wire)
    average = mean(keys, over, name=f"{root}.mean")
    smoothed = combine(lambda key, middle: key - middle, keys, average, name=f"{root}.smooth")
    return replaced(
        term, wire, written(term, root, smoothed), f"{root}.smooth", "smooth", (f"{root}.mean", f"{root}.smooth")
    )


def rotate(term: AnyTerm, /, *wires: str, over: str | Axis, matrix: str = "H") -> AnyTerm:
    """Turn both factors of a contraction by one orthogonal matrix: ``rotate("Q", "K", over="d")``.

    The matrix is a new input, `matrix`, over the axis and one of the same size (d and d_rot): hand in
    ``dk.hadamard(128)``. Spikes are spread over all features, so that one scale serves them all. Raises
    TermError where the two are not the factors of one contraction that sums over the axis.

    Source: QuaRot (arXiv 2404.00456) and FlashAttention-3 (arXiv 2407.08608), section 3.3.

    >>> from diagkit import ops
    >>> q, x, d = ops.axes("q x d")
    >>> S = ops.einsum("q d, x d -> q x", ops.array("Q", q, d), ops.array("K", x, d), name="S")
    >>> [box.name for box in rotate(Term(*ops.trace([S])), "Q", "K", over="d").boxes]
    ['Q.rotated', 'K.rotated', 'S']
    """
    if len(wires) != 2:
        raise TermError(
            f"{len(wires)} wires cannot turn together", remedy='name both factors: rotate("Q", "K", over="d")'
        )
    sources = [standing_for(term, wire) for wire in wires]
    axis = axis_of(term, sources[0], over)
    _refuse_rotation(term, sources, axis)
    turned = Axis(f"{axis.name}{TURNED}", axis.size if axis.length is None else axis.length)
    made = term.replace(inputs=_with_matrix(term, Array(matrix, (axis, turned), weight=True)))
    for wire, source in zip(wires, sources, strict=True):
        node = contract(operand(made, source), operand(made, matrix), over=axis, name=f"{wire}.rotated")
        made = replaced(made, source, written(made, wire, node), f"{wire}.rotated", "rotate", (f"{wire}.rotated",))
    reason = f"{matrix} is orthogonal: products over {axis.name} of what it turned are those of before"
    named = {"over": axis.name, **({} if matrix == "H" else {"matrix": matrix})}
    return taken(term, made, rewrite(term, "rotate", reason, wires, named))


def _with_matrix(term: Term, matrix: Array) -> tuple[Array, ...]:
    return term.inputs if matrix in term.inputs else (*term.inputs, matrix)


def _refuse_rotation(term: Term, wires: list[str], axis: Axis) -> None:
    for box in (box for wire in wires for box in readers(term, wire)):
        with_axis = {one for one in box.inputs if axis in term.wires[one].axes}
        if axis.name not in summed(term, box) or with_axis != set(wires) or len(wires) != 2:
            raise TermError(
                f"{box.name!r} would see that {' and '.join(map(repr, wires))} are turned along {axis.name!r}",
                axis=axis.name, box=box.name, remedy="turn both factors of a contraction that sums over the axis",
            )  # fmt: skip


def scale(term: AnyTerm, /, **factors: Any) -> AnyTerm:
    """Multiply what a contraction reads by a number, and divide its result by it: ``scale(P=256)``.

    Exact by linearity. A cast behind it then finds the numbers where its format has some: probabilities of
    thousands of keys lie below the smallest number of fp8. InputError for a factor that is no positive number.

    >>> from diagkit import ops
    >>> x, d = ops.axes("x d")
    >>> O = ops.einsum("x, x d -> d", ops.array("P", x), ops.array("V", x, d), name="O")
    >>> scale(Term(*ops.trace([O])), P=256).boxes[-1].expr
    a0/256
    """
    made = term
    for root, factor in factors.items():
        number = exact(factor) if not isinstance(factor, str) else sympy.nan
        if not number.is_number or not number.is_positive:
            raise InputError(f"{root!r} times {factor!r} cannot be undone", box=root, remedy="use a number above 0")
        made = _scaled(made, root, number)
    why = "; ".join(f"{root} is multiplied by {number}, its sum divided by it" for root, number in factors.items())
    identity = tuple((value(f"{root}.scaled"), exact(number) * value(root)) for root, number in factors.items())
    return taken(term, made, rewrite(term, "scale", why, named=factors, identity=identity))


def _scaled(term: AnyTerm, root: str, number: Any) -> AnyTerm:
    wire = standing_for(term, root)
    node = combine(lambda one: number * one, operand(term, wire), name=f"{root}.scaled")
    reading = [box.name for box in readers(term, wire)]
    made = replaced(term, wire, written(term, root, node), f"{root}.scaled", "scale", (f"{root}.scaled",))
    for contraction in reading:
        made = undone(made, contraction, 1 / number, ())
    return made


def permute(term: AnyTerm, /, **orders: str | int) -> AnyTerm:
    """Read all inputs along an axis in another order: ``permute(x="reversed")``, or with stride 8, ``permute(x=8)``
    (positions 0, 8, 16 ... then 1, 9, ...; the length must be known and a multiple of the stride).

    No sum, maximum or minimum sees the order of what it takes. Streamed backwards, the first keys come last: the
    attention that language models pay to them no longer hides what comes after. Raises AxisError where the
    order is seen: by positions, by an output, by a view.

    >>> import diagkit as dk
    >>> rows = dk.Diagram(dk.total(dk.array("X", dk.axis("x")), over="x", name="T"))
    >>> [box.name for box in permute(rows, x="reversed").boxes]
    ['X.reversed', 'T']
    """
    made = term
    for axis, order in orders.items():
        made = _permuted(made, made.axis(axis), order)
    why = "; ".join(f"nothing sees the order of {axis}" for axis in orders)
    return taken(term, made, rewrite(term, "permute", why, named=orders))


def _permuted(term: AnyTerm, axis: Axis, order: str | int) -> AnyTerm:
    _refuse_order(term, axis)
    read = _read_at(axis, order)
    word = "reversed" if order == "reversed" else "permuted"
    made = term
    for array in (array for array in term.inputs if axis in array.axes):
        places = tuple(read if one == axis else coordinate(one.name) for one in array.axes)
        node = Node(View("", array.axes, (), places), (operand(term, array.name),), "", f"{array.name}.{word}")
        made = _first(made, array.name, node.name or "", written(made, array.name, node)[0])
    return made


def _first(term: AnyTerm, array: str, name: str, view_box: Any) -> AnyTerm:
    """`term` with a view of an input in front of everything that read the input."""
    boxes = tuple(rename_box(box, {array: name}) for box in term.boxes)
    return term.replace(boxes=(view_box, *boxes), levels=(*term.levels, (name, 0)))


def _refuse_order(term: Term, axis: Axis) -> None:
    known = {wire.name: wire.axes for wire in term.wires.values()} | {box.name: box.axes for box in term.flat}
    for box in term.flat:
        seen = (axis in known[wire] for wire in (box.name, *box.inputs))
        if isinstance(box, Index | View) and any(seen):
            remedy = "permute an axis along which nothing asks for positions"
            raise AxisError(
                f"{box.name!r} sees the order of {axis.name!r}", axis=axis.name, box=box.name, remedy=remedy
            )
    for name in term.outputs:
        if axis in term.wires[name].axes:
            remedy = "permute an axis that is summed away"
            raise AxisError(
                f"the output {name!r} keeps the order of {axis.name!r}", axis=axis.name, box=name, remedy=remedy
            )
    if term.forms:
        raise AxisError("a stream was derived for this order", axis=axis.name, remedy="permute first, then stream")


def _read_at(axis: Axis, order: str | int) -> Any:
    """Where a position reads."""
    here = coordinate(axis.name)
    if order == "reversed":
        return axis.size - 1 - here
    if isinstance(order, int) and order > 0 and isinstance(axis.length, int) and axis.length % order == 0:
        rows = axis.length // order
        turn = sympy.floor(here / rows)
        return order * here - (order * rows - 1) * turn
    raise AxisError(
        f"{axis.name!r} of size {axis.size} cannot be read in the order {order!r}",
        axis=axis.name, remedy='use "reversed", or a stride that divides the length',
    )  # fmt: skip
