"""The whole picture of a term: title, lines of columns with their costs, legend; as a scene."""

from __future__ import annotations

from collections.abc import Mapping

from diagkit.draw.flags import draw_warnings, flagged, warning_words
from diagkit.draw.fonts import SANS, clean, fit
from diagkit.draw.layout import LEFT, WIDEST, draw_lines, overbar
from diagkit.draw.levelgraph import draw_graph
from diagkit.draw.listing import at
from diagkit.draw.loop import draw_loops
from diagkit.draw.pen import LAYERS, Pen
from diagkit.draw.plan import Sheet, plan
from diagkit.draw.roles import is_labelled
from diagkit.draw.scales import scales
from diagkit.draw.scene import Runs, Scene, polyline, runs_width
from diagkit.draw.table import Table, set_table
from diagkit.draw.typeset import joined, name_runs, roman
from diagkit.draw.wording import axes_words, column_words
from diagkit.term import LEVEL_NAMES, Term, depth

HEADLINE = 14.0


def scene(
    term: Term, table: Table | None = None, *, loops: bool = True, warnings: Mapping[str, str] | None = None
) -> Scene:
    """The picture of `term` as geometry; `table` stands over its columns. Without `loops` what a stream does
    in each chunk is left out. `warnings` (words by wire) are marked on the wires and said below."""
    pen, sheet = Pen(), flagged(term, plan(term), warnings or {})
    order = sorted(term.axes, key=lambda axis: axis not in sheet.barred)
    cells = set_table(table, sheet.columns, order)
    title = headline(term)
    pen.say(roman(fit(title, WIDEST - 60, HEADLINE, SANS, True), bold=True), LEFT, 28, HEADLINE, "title", "start", SANS)
    right, low = draw_lines(pen, sheet, cells, 42)
    right = max(right, max((line.box[2] for line in pen.words), default=0) + 12)
    wide, low = draw_loops(pen, term, sheet, low, WIDEST, warnings or {}) if loops else (right, low)
    right = max(right, wide)
    right, low = _legend(pen, term, sheet, right, low)
    if warnings is not None:
        low = draw_warnings(pen, warnings, LEFT, low, max(right, 420.0) - LEFT)
    right = max(right, max(line.box[2] for line in pen.words) + 4)
    return finished(pen, right, low, title, description(term) + warning_words(warnings))


def finished(pen: Pen, right: float, low: float, title: str, about: str) -> Scene:
    """What a pen has drawn, as a scene."""
    marks = tuple(mark for layer in LAYERS for mark in pen.layers[layer])
    return Scene(round(right + 8), round(low + 4), marks, tuple(pen.words), title, about)


def headline(term: Term) -> str:
    """The diagram's name and what its labels say.

    >>> from diagkit.term import Array, Axis
    >>> headline(Term((Array("X", (Axis("x"),)),), (), ("X",), "row"))
    'row'
    """
    parts = [clean(term.name)]
    if any(len(region.boxes) > 1 for region in term.regions) and any(level for _, level in term.levels):
        parts.append("fused")
    for kind, said in (("group", "grouped over"), ("stream", "streamed over")):
        axes = [label.axis for label in term.labels if label.kind == kind]
        parts += [f"{said} {', '.join(map(clean, dict.fromkeys(axes)))}"] if axes else []
    return ", ".join(parts)


def description(term: Term) -> str:
    """The picture in words: arrays, boxes, results, labels."""
    arrays = ", ".join(f"{array.name}{axes_words(term.wires[array.name])}" for array in term.inputs) or "none"
    boxes = "; ".join(column_words(box, term.wires) for box in term.boxes) or "none"
    labels = "; ".join(f"{label.kind} {label.axis} in tiles of {label.tile}{at(label)}" for label in term.labels)
    said = f"Arrays: {arrays}. Boxes, left to right: {boxes}. Results: {', '.join(term.outputs)}."
    return said + (f" Labels: {labels}." if labels else "")


def _legend(pen: Pen, term: Term, sheet: Sheet, right: float, low: float) -> tuple[float, float]:
    """The levels in their colours and what the letters stand for, on as many lines as it takes."""
    shown = _swatches(term, sheet)
    barred = sheet.axis_name(next(axis for axis in term.axes if axis in sheet.barred), 60, 12) if sheet.barred else ()
    if not is_labelled(term) and not shown and not barred:
        return right, low
    x, y, room = LEFT, low + 14, max(right, 420.0)
    if depth(term) > 1:
        x, y = draw_graph(pen, term, y)
    for role, runs in shown:
        wide = 32 + runs_width(runs, 11, SANS) + 26
        x, y = (LEFT, y + 20) if x + wide > room else (x, y)
        pen.draw("line", polyline([(x, y - 4), (x + 24, y - 4)]), role)
        pen.say(runs, x + 30, y, 11, "caption", "start", SANS)
        x += wide
    for runs in [*_meanings(term), *([barred + roman(_BARRED)] if barred else [])]:
        wide = runs_width(runs, 12) + 22
        x, y = (LEFT, y + 20) if x + wide > room else (x, y)
        pen.say(runs, x, y, 12, "caption", "start")
        if runs[: len(barred)] == barred != ():
            overbar(pen, barred, x, y, 12, "bar-0", "legend")
        x += wide
    return max(right, x), y + 12


def _swatches(term: Term, sheet: Sheet) -> list[tuple[str, Runs]]:
    """Lines of the legend: a colour for each level, where no graph of the levels says so, and thin wires."""
    named = is_labelled(term) and depth(term) <= 1
    levels = sorted({0, 1} | {column.level for column in sheet.columns}) if named else []
    shown = [(f"legend-{level}", roman(_level_words(level))) for level in levels]
    return shown + [("thin-wire-0", roman("scales and zeros of codes"))] * bool(scales(term))


def _level_words(level: int) -> str:
    return f"ℓ{level} {LEVEL_NAMES[level]} memory" if level < 2 else f"ℓ{level} {LEVEL_NAMES[level]}s"


def _meanings(term: Term) -> list[Runs]:
    kinds = {(label.kind, min(label.level, 2)) for label in term.labels}
    return [joined(name_runs(letter) + roman(f": {said}")) for kind, letter, said in _LETTERS if kind in kinds]


_BARRED = ": an axis to cut into tiles or chunks"
_LETTERS = (
    (("group", 1), "g", "group (tile)"),
    (("stream", 1), "s", "stream (loop)"),
    (("group", 2), "w", "tile inside a tile"),
    (("stream", 2), "u", "sub-loop"),
)
"""What labels are called by default, and what that says."""
