"""Inputs that hold class numbers: which they are, and the refusal of a number that names no class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from diagkit.term import Array, Axis, Block, Box, Index, InputError, Term

CROSS_ENTROPY = "cross-entropy"
"""The title of the block whose second input holds class numbers."""


def class_axes(term: Term) -> dict[str, Axis]:
    """For every input that holds class numbers, the axis along which the classes lie.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> class_axes(dk.Diagram(dk.cross_entropy(dk.array("S", q, x), dk.array("t", q, dtype="int64"), over=x)))
    {'t': Axis('x')}
    """
    found = dict(_targets(term.boxes))
    return {array.name: found[array.name] for array in term.inputs if array.name in found}


def _targets(boxes: Iterable[Box]) -> Iterator[tuple[str, Axis]]:
    for block in boxes:
        if isinstance(block, Block):
            yield from _targets(block.body)
            if block.title == CROSS_ENTROPY:
                yield from ((block.inputs[1], box.axes[0]) for box in block.body if isinstance(box, Index))


def check_classes(term: Term, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Refuse a class number that is no position along the axis of classes: it would find no logit.

    >>> import diagkit as dk
    >>> X, t = dk.array("X", dk.axis("x")), dk.array("t", dtype="int64")
    >>> dk.Diagram(dk.cross_entropy(X, t, over=dk.axis("x")))(X=[0.0, 0.0], t=2)
    Traceback (most recent call last):
    ...
    diagkit.term.errors.InputError: input 't' holds 2, which is no class: x has 2 elements; \
give class numbers from 0 to 1; rows that do not count are multiplied by 0 afterwards
    """
    for array, axis in class_axes(term).items():
        wrong = _beyond(arrays[array], sizes[axis.name])
        if wrong is not None:
            raise InputError(
                f"input {array!r} holds {wrong}, which is no class: {axis.name} has {sizes[axis.name]} elements",
                axis=axis.name,
                box=array,
                remedy=f"give class numbers from 0 to {sizes[axis.name] - 1}; rows that do not count are multiplied "
                "by 0 afterwards",
            )


def _beyond(numbers: Any, classes: int) -> int | None:
    """The least or largest number, where it lies outside of 0 to `classes` - 1; of an empty axis, any is taken."""
    ends = (int(numbers.min()), int(numbers.max())) if classes and 0 not in tuple(numbers.shape) else ()
    return next((end for end in ends if not 0 <= end < classes), None)


def largest_number(term: Term, array: Array, sizes: Mapping[str, int]) -> int:
    """One more than the largest whole number that makes sense in an input: of classes, there are so many."""
    axis = class_axes(term).get(array.name)
    return max(sizes[axis.name], 1) if axis else max([2, *sizes.values()])
