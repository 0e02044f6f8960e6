"""What a diagram says about its parts: which weights hide in their layer, which axes carry an overbar."""

from __future__ import annotations

from functools import lru_cache

from diagkit.term import Block, Box, Contract, Map, Reduce, Term, names


def is_labelled(term: Term) -> bool:
    """Whether the diagram says anything about how it runs: then loads and stores are drawn."""
    return bool(term.labels or term.forms or any(level for _, level in term.levels))


@lru_cache(maxsize=16)
def hidden_weights(term: Term) -> frozenset[str]:
    """The learned arrays that are drawn inside their layer: every reader can show them so."""
    if is_labelled(term):
        return frozenset()
    weights = {array.name for array in term.inputs if array.weight and array.name not in term.outputs}
    for box in term.boxes:
        mine = weights & set(box.inputs)
        if mine and not _holds_weights(term, box, weights):
            weights -= mine
    return frozenset(weights)


def _holds_weights(term: Term, box: Box, weights: set[str]) -> bool:
    rest = [wire for wire in box.inputs if wire not in weights and not term.wires[wire].virtual]
    if not rest or not isinstance(box, Map | Contract | Block):
        return False
    gone = {axis for wire in rest for axis in names(term.wires[wire].axes)} - set(names(box.axes))
    return not isinstance(box, Contract) or (len(box.inputs) == 2 and len(rest) == 1 and bool(gone))


def barred_axes(term: Term) -> frozenset[str]:
    """The axes drawn with an overbar: those the diagram is mapped over. They are never summed, or lead
    every array that carries them (queries, keys), or a label partitions them."""
    gone: set[str] = set()
    for box in term.flat:
        gone |= set(summed(term, box))
    places: dict[str, list[bool]] = {}
    for array in term.inputs:
        for place, axis in enumerate(array.axes if not array.weight else ()):
            places.setdefault(axis.name, []).append(place < len(array.axes) - 1)
    leading = {axis for axis, firsts in places.items() if all(firsts)}
    labelled = {label.axis for label in term.labels}
    return frozenset((set(term.axes) - gone - _weight_only(term)) | leading | labelled)


def _weight_only(term: Term) -> set[str]:
    learned = {axis.name for array in term.inputs if array.weight for axis in array.axes}
    return learned - {axis.name for array in term.inputs if not array.weight for axis in array.axes}


def summed(term: Term, box: Box) -> tuple[str, ...]:
    """The axes that a reduction or a contraction sums (or takes the largest along)."""
    if isinstance(box, Reduce):
        return box.over
    if isinstance(box, Contract):
        joined = dict.fromkeys(a.name for wire in box.inputs for a in term.wires[wire].axes)
        return tuple(axis for axis in joined if axis not in names(box.axes))
    return ()
