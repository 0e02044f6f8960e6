"""A piece of a diagram as a diagram of its own: one kernel of many, to be tiled, counted and compiled alone."""

from __future__ import annotations

from diagkit.derive.history import AnyTerm
from diagkit.term import Array, Term, TermError


def part(term: AnyTerm, /, *outputs: str, name: str | None = None, whole: bool = False) -> AnyTerm:
    """The piece that makes the wires `outputs` from inputs and from what other kernels prepare.

    ``part("O")`` of quantized attention is the attention itself, with codes and scales as its inputs;
    ``part("K.codes", "K.scale")`` is the quantizer of its keys; with ``whole=True`` everything that comes before is
    in it too. Labels of axes that are left stay. Raises TermError for a wire that no box makes.

    >>> from diagkit import ops
    >>> from diagkit.derive.quantize import quantize
    >>> q, x, d = ops.axes("q x d")
    >>> S = ops.einsum("q d, x d -> q x", ops.array("Q", q, d), ops.array("K", x, d), name="S")
    >>> coded = quantize(Term(*ops.trace([S])), "K", "int8", over="d")
    >>> [(array.name, array.dtype) for array in part(coded, "S").inputs]
    [('Q', 'fp32'), ('K.scale', 'fp32'), ('K.codes', 'int8')]
    """
    if not outputs:
        raise TermError(f"no part of {term.name}", remedy=f"name what it makes: part({term.outputs[-1]!r})")
    wanted = {term.box(wire).name for wire in outputs}
    read: dict[str, None] = {}
    for box in reversed(term.boxes):
        if box.name in wanted:
            needed = [wire for wire in box.inputs if wire not in outputs]
            wanted |= {wire for wire in needed if whole or wire not in term.kept}
            read.update(dict.fromkeys(needed))
    boxes = tuple(box for box in term.boxes if box.name in wanted)
    made = {box.name for box in boxes}
    given = [wire for wire in read if wire not in made]
    piece = term.replace(
        name=name or f"{term.name}: {', '.join(outputs)}",
        inputs=tuple(_input(term, wire) for wire in term.wires if wire in given),
        boxes=boxes,
        outputs=outputs,
        levels=tuple(one for one in term.levels if one[0] in made - {*outputs}),
        **dict.fromkeys(("labels", "forms", "steps"), ()),
    )
    return _whole(piece, term)


def _whole(piece: AnyTerm, term: Term) -> AnyTerm:
    """The piece with the labels and streams that still have something to say."""
    labels = tuple(label for label in term.labels if label.axis in piece.axes)
    forms = tuple(form for form in term.forms if set(form.region) <= {box.name for box in piece.boxes})
    return piece.replace(labels=labels, forms=forms)


def _input(term: Term, wire: str) -> Array:
    known = {array.name: array for array in term.inputs}
    found = term.wires[wire]
    return known.get(wire) or Array(wire, found.axes, found.dtype)
