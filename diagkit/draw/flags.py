"""Warnings in a picture: which column or array carries one, the small mark on its wire, the words below.

What may go wrong with a wire is found elsewhere and handed in as words by wire; here it only gets a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from diagkit.draw.fonts import clean
from diagkit.draw.pen import Pen
from diagkit.draw.plan import Sheet
from diagkit.draw.scene import Point, polyline
from diagkit.draw.typeset import cut, roman
from diagkit.term import Block, Term, flatten

MARK = 15.0
"""How much of a wire a mark takes."""
SIZE = 11.5
FINE = "every wire holds its numbers"


def flagged(term: Term, sheet: Sheet, warnings: Mapping[str, str]) -> Sheet:
    """The sheet with `warnings` (words by wire) on the columns that make the wires and on the arrays at the left.
    What happens inside a block is said at the block."""
    said = {box.name: _about(_inside(term, box.name), warnings) for box in term.boxes}
    said |= {array.name: _about((array.name,), warnings) for array in term.inputs}
    columns = tuple(replace(column, warning=said.get(column.key, "")) for column in sheet.columns)
    sources = tuple(replace(source, warning=said.get(source.key[0], "")) for source in sheet.sources)
    return replace(sheet, columns=columns, sources=sources)


def _inside(term: Term, name: str) -> tuple[str, ...]:
    box = term.box(name)
    within = tuple(part.name for part in flatten(box.body)) if isinstance(box, Block) else ()
    return tuple(dict.fromkeys((*within, name)))


def _about(wires: tuple[str, ...], warnings: Mapping[str, str]) -> str:
    return "; ".join(f"{wire} {warnings[wire]}" for wire in wires if wire in warnings)


def draw_flag(pen: Pen, at: Point, owner: str, about: str) -> None:
    """The mark: a small triangle around a point, with what it warns of in words."""
    x, y = at
    pen.draw(
        "front", polyline([(x, y - 7), (x + 6.5, y + 4.5), (x - 6.5, y + 4.5)], closed=True), "alarm", owner, about
    )
    pen.draw("front", polyline([(x, y - 3), (x, y + 1)]), "alarm-sign", owner)
    pen.draw("front", polyline([(x, y + 2.4), (x, y + 3.4)]), "alarm-sign", owner)


def draw_warnings(pen: Pen, warnings: Mapping[str, str], left: float, low: float, room: float) -> float:
    """The warnings in words, one a line, from `low` down; returns how far down they reach."""
    for wire, words in warnings.items():
        low += 20
        draw_flag(pen, (left + 7, low - 4), wire, f"{wire} {words}")
        said = roman(f"{clean(wire)} {words}")
        pen.say(cut(said, room - 24, SIZE), left + 22, low, SIZE, "caption", "start", owner=wire)
    if not warnings:
        low += 20
        pen.say(roman(f"ranges: {FINE}"), left, low, SIZE, "caption", "start")
    return low + 8


def warning_words(warnings: Mapping[str, str] | None) -> str:
    """The warnings as a sentence of the description; nothing where nobody asked.

    >>> warning_words({"P": "vanishes: 0.0002 rounds to 0"}), warning_words(None)
    (' Warnings: P vanishes: 0.0002 rounds to 0.', '')
    """
    if warnings is None:
        return ""
    said = "; ".join(f"{wire} {words}" for wire, words in warnings.items())
    return f" Warnings: {said}." if said else f" Ranges: {FINE}."
