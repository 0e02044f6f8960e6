"""The level graph as a legend: one coloured node per memory, joined by the pipes through which tiles go."""

from __future__ import annotations

from diagkit.draw.fonts import SANS
from diagkit.draw.layout import LEFT
from diagkit.draw.pen import Pen
from diagkit.draw.scene import Runs, circle, polyline, runs_width
from diagkit.draw.typeset import joined, name_runs, roman
from diagkit.term import LEVEL_NAMES, Term, depth

NODE = 5.0
PIPE = 34.0
FAN = 9.0


def draw_graph(pen: Pen, term: Term, y: float) -> tuple[float, float]:
    """Draw the levels that the labels of `term` speak of, in a row; returns where the next words may stand.

    A pipe fans out towards the faster side: one memory there has several below it.
    """
    x, y = LEFT + NODE, y + 12
    for level in range(depth(term) + 1):
        if level:
            x = _pipe(pen, term, level, x, y)
        pen.draw("front", circle(x, y - 4, NODE), f"solid-{level}")
        runs = roman(f"ℓ{level} {LEVEL_NAMES[level]}")
        pen.say(runs, x + NODE + 5, y, 11, "caption", "start", SANS)
        x += NODE + 5 + runs_width(runs, 11, SANS) + 8
    return LEFT, y + 26


def _pipe(pen: Pen, term: Term, level: int, x: float, y: float) -> float:
    """The pipe into a level: a line from above that fans out to the memories of this level."""
    runs = tiles_at(term, level)
    far = x + max(PIPE, runs_width(runs, 11) + 16)
    pen.say(runs, (x + far) / 2, y - 14, 11, f"label-{level}")
    for lift in (-FAN / 2, 0.0, FAN / 2):
        line = polyline([(x, y - 4), (far - 14, y - 4), (far - 4, y - 4 + lift)])
        pen.draw("line", line, f"legend-{level}" if not lift else f"wire-{level}")
    return far + NODE


def tiles_at(term: Term, level: int) -> Runs:
    """The tiles that the labels of one level cut."""
    said: Runs = ()
    for label in term.labels:
        if label.level == level:
            said += (roman(", ") if said else ()) + name_runs(str(label.tile))
    return joined(said)
