"""Which glyph a box draws as: one case per kind of box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from diagkit.draw.formulas import join_text, short, unary_text
from diagkit.draw.masks import closed, mask_of, position_mask
from diagkit.draw.naming import label
from diagkit.draw.roles import hidden_weights, summed
from diagkit.draw.scene import Runs
from diagkit.draw.typeset import formula, italic, roman
from diagkit.term import Block, Box, Cast, Contract, Index, Map, Reduce, Term, View, coordinate, flatten, names

# What each kind of box draws as: the fields of its column.


def _map_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    mask = mask_of(term, box)
    if mask is not None and len(drawn) == 1:
        return {"glyph": "mask", "title": "mask", "style": mask}
    if len(drawn) == 1:
        return {"glyph": "map", "text": unary_text(term, box, drawn[0])}
    if not drawn:
        return {"glyph": "source", **_positions(term, box)}
    return {"glyph": "join", "text": join_text(term, box)}


def _positions(term: Term, box: Map) -> dict[str, Any]:
    """What is made of nothing, or of positions alone: a condition on these is a mask, the rest a formula."""
    made = closed(term, box.name) if term.wires[box.name].virtual else None
    if made is None:
        return {"text": label(term, box.name, 60, 14)}
    if term.wires[box.name].dtype == "bool":
        return {"text": label(term, box.name, 60, 14), "style": position_mask(made, names(box.axes))}
    return {"text": short(formula(made, tuple(term.axes)), term, box)}


def _reduce_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    sign = {"sum": "Σ", "product": "Π"}.get(box.op, box.op)
    return {
        "glyph": "reduce",
        "acts": tuple(box.over),
        "text": roman(sign, bold=True),
        "title": box.op,
        "style": "reduce",
    }


def _contract_glyph(term: Term, box: Box, drawn: tuple[str, ...]) -> dict[str, Any]:
    gone = summed(term, box)
    if len(drawn) == 1 and len(box.inputs) == 2:
        (weight,) = set(box.inputs) - set(drawn)
        inner = tuple(axis for axis in gone if axis in names(term.wires[drawn[0]].axes))
        text = label(term, weight, 64, 15, bold=True)
        return {"glyph": "linear", "acts": inner, "text": text, "title": "linear"}
    if len(drawn) == 1 and gone:
        return {"glyph": "reduce", "acts": gone, "text": roman("Σ", bold=True), "title": "sum"}
    both = [set(names(term.wires[wire].axes)) for wire in drawn]
    if len(drawn) == 2 and any(axis in both[0] & both[1] for axis in gone):
        dtype = term.wires[box.name].dtype
        return {"glyph": "contract", "acts": gone, "title": f"contract, {dtype}" if dtype == "int32" else "contract"}
    sign = "Σ ×" if gone else "×"
    return {"glyph": "join", "text": roman(sign, bold=True), "title": "contract"}


def _index_glyph(term: Term, box: Box, drawn: tuple[str, ...]) -> dict[str, Any]:
    return {"glyph": "source", "text": roman("0, 1, …"), "title": "index"}


def _cast_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    return {"glyph": "cast", "text": roman(box.dtype), "title": ""}


def _view_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    source = term.wires[drawn[0]].axes if drawn else ()
    changed = [(axis, at) for axis, at in zip(source, box.coordinates, strict=False) if at != coordinate(axis.name)]
    text: Runs = ()
    for place, (_, at) in enumerate(changed):
        text += (roman(", ") if place else ()) + formula(at)
    acts = tuple(axis.name for axis, _ in changed)
    return {"glyph": "view", "acts": acts, "text": text or italic("copy"), "title": "view"}


_KNOWN_BLOCKS = {"softmax": "softmax", "rmsnorm": "norm", "layernorm": "norm", "l2 norm": "norm"}


def _block_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    kind = _KNOWN_BLOCKS.get(box.title.lower(), "block")
    acts = block_axes(term, box)
    main = set(names(term.wires[drawn[0]].axes)) if drawn else set()
    inside = all(set(names(term.wires[wire].axes)) <= main for wire in drawn[1:])
    if not acts or not inside or (kind == "softmax" and len(drawn) > 1):
        kind = "block"
    text = roman(box.title) if kind == "block" else _learned_names(term, box)
    return {"glyph": kind, "acts": acts, "title": box.title, "text": text}


def _learned_names(term: Term, box: Block) -> Runs:
    """The names of the weights that a norm holds."""
    held = [wire for wire in box.inputs if wire in hidden_weights(term)]
    runs: Runs = ()
    for place, wire in enumerate(held):
        runs += (roman(", ") if place else ()) + label(term, wire, 40, 12, bold=True)
    return runs


def choose(term: Term, box: Box, drawn: tuple[str, ...]) -> dict[str, Any]:
    """The glyph of a box that reads the wires `drawn`, and what is written in it, as fields of a column."""
    return _GLYPHS[type(box)](term, box, drawn)


_GLYPHS: dict[type[Box], Callable[[Term, Any, tuple[str, ...]], dict[str, Any]]] = {
    Map: _map_glyph,
    Reduce: _reduce_glyph,
    Contract: _contract_glyph,
    Index: _index_glyph,
    Cast: _cast_glyph,
    View: _view_glyph,
    Block: _block_glyph,
}


def block_axes(term: Term, box: Block) -> tuple[str, ...]:
    """The axes a block reduces on its way and still gives back: those its glyph sits on."""
    inside = dict.fromkeys(axis for part in flatten(box.body) for axis in summed(term, part))
    return tuple(axis for axis in inside if axis in names(box.axes))
