"""What stands over a line and under it: names of columns, the cost table, the way back of a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from diagkit.draw.arrange import Placed
from diagkit.draw.fonts import SANS
from diagkit.draw.pen import Pen
from diagkit.draw.plan import Sheet
from diagkit.draw.rows import Bundle, Line, Zone
from diagkit.draw.scene import Runs, polyline, runs_width
from diagkit.draw.table import CELL, LINE, Cells
from diagkit.draw.typeset import joined, name_runs, roman

SIZE = 11.5
DENSE_HEAD = 14.5
"""Names of columns in a loop, which is made smaller as a whole."""


@dataclass
class Drawn:
    """One line of the picture: its columns in place, and how far it reaches."""

    line: Line
    placed: list[Placed]
    opening: Zone
    closing: Zone
    outputs: list[Bundle]
    last: bool
    end: int
    heads: dict[Any, float] = field(default_factory=dict)


def draw_head(
    pen: Pen, cells: Cells, drawn: Drawn, top: float, heights: list[float], sides: tuple[float, float], ruled: bool
) -> float:
    """Names of columns and cells from `top` down, rows of the given heights, between left and right; returns
    how far to the right the total reaches."""
    left, right = sides
    heads = {placed.column.key: placed.column for placed in drawn.placed}
    base = top + 14
    total = bool(cells.names) and drawn.last and cells.total_width > 0
    at = _beside_cells(left, cells, drawn) + cells.total_width / 2 if total else 0.0
    right = max(right, at + cells.total_width / 2 + 14 if total else 0.0)
    for key, column in heads.items():
        pen.say(column.head, drawn.heads[key], base, CELL if ruled else DENSE_HEAD, "head", owner=str(key))
    if total:
        pen.say(roman("total"), at, base, 11, "head", family=SANS)
    if heads and ruled:
        _rule(pen, left, base + 7, right)
    y = _say_rows(pen, cells, drawn, heights, (left, base + 7), at if total else None)
    if heights:
        y += 5
        _rule(pen, left, y, right)
    for key in heads if ruled else ():
        x = drawn.heads[key]
        pen.draw("line", polyline([(x, y + 2), (x, y + 8)]), "rule", str(key))
    return right


def _say_rows(
    pen: Pen, cells: Cells, drawn: Drawn, heights: list[float], corner: tuple[float, float], total: float | None
) -> float:
    """The rows of the table from `corner` down, those that say something; returns where they end."""
    left, y = corner
    for row, high in enumerate(heights):
        if high:
            pen.say(cells.names[row], left, y + LINE, 11, f"label-{cells.levels[row]}", "start", SANS)
            _say_cells(pen, cells, row, drawn, y, total)
        y += high
    return y


def _beside_cells(left: float, cells: Cells, drawn: Drawn) -> float:
    """Where the column of totals begins: right of every cell and every name of a column, over what comes out."""
    widths, ends = cells.widths(list(drawn.heads)), [left + cells.name_width]
    for placed in drawn.placed:
        key = placed.column.key
        ends.append(drawn.heads[key] + max(widths[key], runs_width(placed.column.head, CELL)) / 2)
    return max(ends) + 26


def _rule(pen: Pen, left: float, y: float, right: float) -> None:
    pen.draw("line", polyline([(left - 4, y), (right, y)]), "rule")


def _say_cells(pen: Pen, cells: Cells, row: int, drawn: Drawn, y: float, total: float | None) -> None:
    role = "cell" if not cells.levels[row] else f"label-{cells.levels[row]}"
    for span in cells.spans(row, list(drawn.heads)):
        first, last = drawn.heads[span.keys[0]], drawn.heads[span.keys[-1]]
        _say_lines(pen, span.lines, (first + last) / 2, y, role, str(span.keys[0]))
        if first < last:
            low = y + LINE * len(span.lines) + 5
            inside = runs_width(span.lines[-1], CELL) < last - first
            up = low - (4 if inside else 0.5)
            pen.draw("line", polyline([(first, up), (first, low), (last, low), (last, up)]), "rule")
    if total is not None:
        _say_lines(pen, cells.totals[row], total, y, role, "total")


def _say_lines(pen: Pen, lines: Sequence[Runs], x: float, y: float, role: str, owner: str) -> None:
    for number, runs in enumerate(lines):
        pen.say(runs, x, y + LINE * (number + 1), CELL, role, owner=owner)


def draw_brackets(pen: Pen, sheet: Sheet, drawn: Drawn, y: float) -> float:
    """Under each streamed region the way back to its start, chunk after chunk; how much height that takes. What
    neither reads nor makes a chunk comes before the loop or after it."""
    for number, axis in sheet.loops.items():
        inside = (p for p in drawn.placed if p.column.region == number and p.column.glyph != "store")
        mine = [p for p in inside if any(axis in axes for axes in p.column.axes.values())]
        if mine:
            said = roman("again for the next ") + sheet.tile(number, axis) + roman(" of ") + name_runs(axis, 90, SIZE)
            _bracket(pen, drawn.heads[mine[0].column.key], mine[-1].zone.x1, y, said)
    return 26.0 if sheet.loops else 0.0


def _bracket(pen: Pen, left: float, right: float, y: float, said: Runs) -> None:
    pen.draw("line", polyline([(right, y - 8), (right, y), (left, y), (left, y - 6)]), "loop")
    pen.draw("front", polyline([(left, y - 11), (left - 4, y - 4), (left + 4, y - 4)], closed=True), "loop-head")
    wide = runs_width(said, SIZE)
    if wide < right - left + 120:
        pen.say(joined(said), max((left + right) / 2, wide / 2 + 16), y + 15, SIZE, "note")
