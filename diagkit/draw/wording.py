"""The picture in words: for screen readers, for tooltips, for the text listing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from diagkit.term import Block, Box, Cast, Contract, Index, Map, Reduce, View, Wire, names


def axes_words(wire: Wire) -> str:
    """The axes of a wire in brackets, sizes where they are known."""
    return "(" + ", ".join(a.name if a.length is None else f"{a.name}={a.length}" for a in wire.axes) + ")"


def column_words(box: Box, wires: Mapping[str, Wire]) -> str:
    """One box in words: what it makes, how, from what.

    >>> from diagkit.term import Axis
    >>> q = Axis("q")
    >>> column_words(Reduce("m", (), ("S",), "max", ("q",)), {"m": Wire("m", (), "fp32"), "S": Wire("S", (q,), "fp32")})
    'm() = max of S(q) over q'
    """
    sources = ", ".join(f"{wire}{axes_words(wires[wire])}" for wire in box.inputs)
    return f"{box.name}{axes_words(wires[box.name])} = {_WORDS[type(box)](box, sources, wires)}"


def _contract(box: Any, sources: str, wires: Mapping[str, Wire]) -> str:
    joined = dict.fromkeys(axis for wire in box.inputs for axis in names(wires[wire].axes))
    summed = [axis for axis in joined if axis not in names(box.axes)]
    return f"contraction of {sources}" + (f" over {', '.join(summed)}" if summed else "")


_WORDS: dict[type[Box], Callable[[Any, str, Mapping[str, Wire]], str]] = {
    Map: lambda box, sources, wires: f"map of {sources or 'nothing'}",
    Reduce: lambda box, sources, wires: f"{box.op} of {sources} over {', '.join(box.over)}",
    Contract: _contract,
    Index: lambda box, sources, wires: "positions",
    Cast: lambda box, sources, wires: f"{sources} as {box.dtype}",
    View: lambda box, sources, wires: f"view of {sources}",
    Block: lambda box, sources, wires: f"{box.title} of {sources}",
}
