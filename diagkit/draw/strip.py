"""A strip: several pictures one under another, each equal to the last, with the rule that says so."""

from __future__ import annotations

from collections.abc import Sequence

from diagkit.draw.fonts import SANS, SERIF, clean, fit, folded, width
from diagkit.draw.layout import LEFT, WIDEST
from diagkit.draw.pen import Pen
from diagkit.draw.picture import scene
from diagkit.draw.scene import Mark, Scene, Words
from diagkit.draw.table import Table
from diagkit.draw.typeset import roman
from diagkit.term import DiagkitError, Term

INDENT = 34.0
RULE = 13.0
REASON = 12.0


def strip_scene(
    terms: Sequence[Term], captions: Sequence[tuple[str, str]] = (), tables: Sequence[Table | None] = ()
) -> Scene:
    """The pictures of `terms` under one another. Before each but the first stand the sign ≡, the rule
    and the reason given in `captions` (one pair fewer than there are terms, or none)."""
    if not terms:
        raise DiagkitError("a strip needs a diagram", remedy="hand in one or more")
    if captions and len(captions) != len(terms) - 1:
        raise DiagkitError(f"{len(captions)} captions for {len(terms)} diagrams", remedy="one between each two")
    pictures = [scene(term, table) for term, table in zip(terms, [*tables, *[None] * len(terms)], strict=False)]
    pen, y = Pen(), 0.0
    marks, placed = list[Mark](), list[Words]()
    for place, picture in enumerate(pictures):
        if place:
            y = _equals(pen, y, captions[place - 1] if captions else ("", ""))
        moved = picture.shifted(INDENT if place else 0.0, y)
        marks += moved.marks
        placed += moved.words
        y += picture.height
    words = (*placed, *pen.words)
    right = max(max((line.box[2] for line in words), default=0), max(p.width for p in pictures) + INDENT)
    about = " Equal to: ".join(picture.about for picture in pictures)
    return Scene(round(right + 8), round(y + 4), tuple(marks), words, f"{pictures[0].title}, step by step", about)


def _equals(pen: Pen, y: float, caption: tuple[str, str]) -> float:
    """The sign and the caption between two pictures; returns where the next begins."""
    rule, reason = (clean(part) for part in caption)
    pen.say(roman("≡"), LEFT + 6, y + 24, 26, "equals")
    pen.say(roman(rule, bold=True), LEFT + INDENT, y + 21, RULE, "caption", "start", SANS)
    start = LEFT + INDENT + width(rule, RULE, SANS, True) + 12
    for number, line in enumerate(_folded(reason, WIDEST - start)):
        pen.say(roman(line), start if not number else LEFT + INDENT, y + 21 + 17 * number, REASON, "reason", "start")
        y += 17 if number else 0
    return y + 30


def _folded(text: str, room: float) -> list[str]:
    """The text broken at blanks into lines that fit."""
    return [fit(part, WIDEST, REASON, SERIF) for part in folded(text, room, REASON)]
