"""Quantized attention as it is published: each recipe is a list of steps, taken one after the other.

A recipe is a derivation without a diagram: it names wires Q, K, V and P along the axes q, x and d (batches and heads
are as they are, the values may have a head size of their own), and every step in it is a rule like any other, with
its reason. A new recipe is one entry and nothing elsewhere.
"""

from __future__ import annotations

from typing import Any

from diagkit.derive.derivation import RULES
from diagkit.derive.history import AnyTerm
from diagkit.term import Contract, InputError, Term, TermError

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

OWN = "own"
"""Stands in a recipe for the axis that only V carries: d, or what the head size of the values is called."""


def _cast(**formats: str) -> Call:
    return "cast", (), formats


def _codes(wire: str, dtype: str, over: str | None = None, **blocks: int) -> Call:
    return "quantize", (wire, dtype) if over is None else (wire, dtype, over), blocks


def _zeros(wire: str, **blocks: int) -> Call:
    return "quantize", (wire, "int4"), {"scale": "fp16", "zero": True, **blocks}


SMOOTH: Call = ("smooth", (), {"K": "x"})
ROTATE: Call = ("rotate", ("Q", "K"), {"over": "d"})
EIGHT_BIT_P: tuple[Call, ...] = (("scale", (), {"P": 448}), _cast(P="fp8e4m3"))
TENSORS = tuple(_codes(wire, "fp8e4m3") for wire in "QKV")
BLOCKS = tuple(
    _codes(wire, "fp8e4m3", along, **{rows: 128})
    for wire, rows, along in (("Q", "q", "d"), ("K", "x", "d"), ("V", "x", OWN))
)
TOKENS = tuple(_codes(wire, "int8", "d") for wire in "QK")
CHANNELS = (("quantize", ("V", "fp8e4m3", "x"), {"order": (OWN, "x")}),)

RECIPES: dict[str, tuple[Call, ...]] = {
    "fp16": (_cast(Q="fp16", K="fp16", V="fp16"), _cast(P="fp16")),
    "bf16": (_cast(Q="bf16", K="bf16", V="bf16"), _cast(P="bf16")),
    "fp8 per tensor": (*TENSORS, *EIGHT_BIT_P),
    "fp8 per block, rotated": (ROTATE, *BLOCKS, *EIGHT_BIT_P),
    "fp8 per block, smoothed": (SMOOTH, *BLOCKS, *EIGHT_BIT_P),
    "int8 scores, fp8 values": (SMOOTH, ROTATE, *TOKENS, *CHANNELS, *EIGHT_BIT_P),
    "int8 keys and values": (_cast(Q="fp16"), _codes("K", "int8", "d"), _codes("V", "int8", OWN)),
    "int4 keys and values": (_cast(Q="fp16"), _codes("K", "int4", "d"), _codes("V", "int4", OWN)),
    "int4 keys per channel": (_cast(Q="fp16"), _codes("K", "int4", "x"), _codes("V", "int4", OWN)),
    "int4 per token, with zeros": (_cast(Q="fp16"), _zeros("K", d=64), _zeros("V", **{OWN: 64})),
    "int4 keys per channel, with zeros": (_cast(Q="fp16"), _zeros("K", x=64), _zeros("V", **{OWN: 64})),
}
"""Steps by the name of the recipe; each is (rule, positional arguments, named arguments).

Sources: FlashAttention-3 (arXiv 2407.08608), section 3.3, blocks and rotation; SageAttention (arXiv 2410.02367),
smoothed keys and int8 scores; KIVI (arXiv 2402.02750), keys per channel and values per token, in blocks with
zeros (of 32 there, of 64 here).
"""


WIRES = {
    "Q": 'name the queries so: dk.array("Q", q, d)',
    "K": 'name the keys so: dk.array("K", x, d)',
    "V": 'name the values so: dk.array("V", x, d)',
    "P": 'name what softmax makes so: dk.softmax(S, over=x, name="P")',
}
"""The wires that recipes speak of, and how each comes by its name."""


def _need_wires(term: Term, name: str) -> None:
    """Refuse a diagram in which a wire of the recipe is called otherwise."""
    spoken = {word for _, given, named in RECIPES[name] for word in (*given, *named)}
    for wire, remedy in WIRES.items():
        if wire in spoken and wire not in term.wires:
            raise TermError(f"the recipe {name!r} speaks of {wire!r}, and {term.name} has no such wire", remedy=remedy)


def recipe(term: AnyTerm, name: str, /) -> AnyTerm:
    """`term` after all steps of a recipe. Raises InputError for a name that is none, TermError where a wire that the
    recipe speaks of has another name in the diagram, and what the steps raise.

    >>> from diagkit import ops
    >>> from diagkit.term import Term
    >>> q, x, d = ops.axes("q x d")
    >>> P = ops.softmax(ops.einsum("q d, x d -> q x", ops.array("Q", q, d), ops.array("K", x, d)), over=x, name="P")
    >>> attention = Term(*ops.trace([ops.einsum("q x, x d -> q d", P, ops.array("V", x, d), name="O")]))
    >>> [step.rule for step in recipe(attention, "int8 scores, fp8 values").steps]
    ['smooth', 'rotate', 'quantize', 'quantize', 'quantize', 'scale', 'cast']
    """
    if name not in RECIPES:
        raise InputError(f"no recipe {name!r}", remedy=f"use one of: {', '.join(map(repr, RECIPES))}")
    _need_wires(term, name)
    own = _own(term)
    for rule, given, named in RECIPES[name]:
        term = RULES[rule](term, *_spoken(given, own), **_spoken(named, own))
    return term


def _own(term: Term) -> str:
    """The last axis of the values that nothing else in their contraction carries."""
    reading = [box for box in term.flat if isinstance(box, Contract) and "V" in box.inputs]
    beside = {axis for box in reading for wire in box.inputs if wire != "V" for axis in term.wires[wire].axes}
    own = [axis.name for axis in term.wires["V"].axes if axis not in beside] if reading else []
    return own[-1] if own else "d"


def _spoken(part: Any, own: str) -> Any:
    """A part of a step with the name of that axis in its place."""
    if isinstance(part, dict):
        return {_spoken(key, own): _spoken(one, own) for key, one in part.items()}
    if isinstance(part, tuple):
        return tuple(_spoken(one, own) for one in part)
    return own if part == OWN else part
