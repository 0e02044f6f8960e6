"""Which wires are scales or zeros of codes: found from what divides at a cast and multiplies behind it.

Codes are what a cast to a format of few numbers makes, and arrays in such a format. Their scale divides what is cast
and multiplies what is linear in the codes, there or in another kernel; a zero stands beside the scale, in a sum. No
name is asked. A factor of an array of codes that nothing has scaled yet counts as its scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import sympy

from diagkit.ops import LARGEST
from diagkit.term import Axes, Box, Cast, Contract, Map, Reduce, Term, View, arg, names, plain

Codes = frozenset[str]
"""The codes, by wire, in which a wire is linear and whose scale has not come yet."""


@lru_cache(maxsize=16)
def scales(term: Term) -> frozenset[str]:
    """The wires that hold scales or zeros, and the views through which these are read.

    >>> import diagkit as dk
    >>> x, d = dk.axes("x d")
    >>> codes, steps = dk.quantize(dk.array("K", x, d), "int8", over=d)
    >>> sorted(scales(dk.Diagram(dk.dequantize(codes, steps, name="V"), name="there and back")))
    ['steps']
    """
    held = {array.name: frozenset((array.name,)) for array in term.inputs if array.dtype in LARGEST}
    dividing = {wire for box in term.boxes if _makes_codes(box) for wire in _dividing(term, box)}
    found = {wire for wire in dividing if {wire, *_sources(term, wire)} & set(term.outputs)}
    for box in term.boxes:
        codes = frozenset().union(*(held.get(wire, frozenset()) for wire in box.inputs))
        if _makes_codes(box):
            held[box.name] = frozenset((box.name,))
        elif codes:
            found |= (mine := set(_undoing(term, box, codes)))
            held[box.name] = _still(term, box, codes, mine)
    kept = set(_with_sources(term, found))
    views = {box.name for box in term.boxes if isinstance(box, View) and kept & set(_sources(term, box.name))}
    return frozenset(kept | views)


def _makes_codes(box: Box) -> bool:
    return isinstance(box, Cast) and box.dtype in LARGEST


def _dividing(term: Term, box: Box) -> tuple[str, ...]:
    """What divides what is cast, or is subtracted from it: what the last map reads beside the numbers themselves."""
    before = _made(term, box.inputs[0])
    if isinstance(before, Cast):
        return _dividing(term, before)
    if not isinstance(before, Map):
        return ()
    return tuple(wire for wire in before.inputs if _fewer(term, wire, before.axes))


def _fewer(term: Term, wire: str, axes: Axes) -> bool:
    """Whether numbers lie over some of these axes and not over all, or are read for whole blocks of positions."""
    shown, wanted = term.wires[wire], set(names(axes))
    if shown.dtype == "bool" or shown.virtual or not set(names(shown.axes)) <= wanted:
        return False
    return len(shown.axes) < len(wanted) or any(at.has(sympy.floor) for at in _coordinates(term, wire))


def _coordinates(term: Term, wire: str) -> tuple[Any, ...]:
    box = _made(term, wire)
    return tuple(sympy.sympify(at) for at in box.coordinates) if isinstance(box, View) else ()


def _made(term: Term, wire: str) -> Box | None:
    return next((box for box in term.boxes if box.name == wire), None)


def _undoing(term: Term, box: Box, codes: Codes) -> Iterable[str]:
    """The scales with which a map multiplies what is linear in `codes`, and the zeros in the same sum."""
    if not isinstance(box, Map):
        return
    roles = {wire: _role(term, box, wire) for wire in box.inputs if _may_scale(term, wire, codes)}
    steps = {wire for wire, role in roles.items() if role == "factor"}
    spans = {frozenset(names(term.wires[wire].axes)) for wire in steps}
    for wire, role in roles.items():
        beside = role == "term" and frozenset(names(term.wires[wire].axes)) in spans
        if wire in steps or beside:
            yield wire


def _may_scale(term: Term, wire: str, codes: Codes) -> bool:
    return any(_belongs(term, wire, code) for code in codes)


def _belongs(term: Term, wire: str, code: str) -> bool:
    """Whether a wire can be a scale of `code`: it divided at its cast, or it is handed in like the codes."""
    made = _made(term, code)
    handed = {array.name for array in term.inputs if not array.weight}
    allowed = set(_with_sources(term, _dividing(term, made))) if made else handed
    held, axes = (wire, *_sources(term, wire)), term.wires[code].axes
    return any(_fewer(term, one, axes) for one in held) and bool(set(held) & allowed)


def _role(term: Term, box: Map, wire: str) -> str:
    """Whether a map multiplies by a wire ("factor") or adds it ("term") to what is linear in the rest."""
    expr, here = plain(box.expr), arg(box.inputs.index(wire))
    slope = expr.diff(here)
    others = {arg(place) for place in range(len(box.inputs))} - {here}
    if slope.has(here):
        return ""
    return "factor" if slope.free_symbols & others else "term"


def _still(term: Term, box: Box, codes: Codes, mine: set[str]) -> Codes:
    """The codes that wait for a scale behind a box: all but those that have theirs; none behind what is not linear."""
    left = set(_PASSES.get(type(box), _stop)(term, box, codes))
    for wire in sorted(mine):
        left -= {next((code for code in sorted(left) if _belongs(term, wire, code)), "")}
    return frozenset(left)


def _stop(term: Term, box: Any, codes: Codes) -> Codes:
    """No code goes on behind what is not linear."""
    return frozenset()


def _linear(term: Term, box: Any, codes: Codes) -> Codes:
    """All codes where a map is linear in what carries them."""
    expr = plain(box.expr)
    carry = [arg(n) for n, wire in enumerate(box.inputs) if not _may_scale(term, wire, codes)]
    return codes if all(not expr.diff(one).has(one) for one in carry) else frozenset()


_PASSES: Mapping[type[Box], Callable[[Term, Any, Codes], Codes]] = {
    Contract: lambda term, box, codes: codes,
    View: lambda term, box, codes: codes,
    Cast: lambda term, box, codes: codes,
    Reduce: lambda term, box, codes: codes if box.op == "sum" else frozenset(),
    Map: _linear,
}
"""Which codes go on behind each kind of box."""


def _sources(term: Term, wire: str) -> Iterable[str]:
    """The wires of which a wire is a view."""
    box = _made(term, wire)
    if isinstance(box, View):
        yield box.inputs[0]
        yield from _sources(term, box.inputs[0])


def _with_sources(term: Term, found: Iterable[str]) -> Iterable[str]:
    for wire in found:
        yield wire
        yield from _sources(term, wire)
