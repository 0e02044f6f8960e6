"""Lanes: who does what when, one lane for each worker, boxes as wide as they take, coloured by unit.

What is overhead is hatched, barriers are thick dotted lines, as on the pipelining diagrams of arXiv 2412.03317,
section 5.7. The scene knows nothing of attention: it is given boxes with times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagkit.draw.fonts import SANS, clean, width
from diagkit.draw.layout import LEFT, WIDEST
from diagkit.draw.pen import LAYERS, Pen
from diagkit.draw.scene import BoxOf, Scene, polyline, rectangle
from diagkit.draw.svg import write_svg
from diagkit.draw.theme import theme_of
from diagkit.draw.typeset import roman
from diagkit.term import DiagkitError

ROW, GAP, TOP = 26.0, 14.0, 44.0
LABEL, SMALL = 11.0, 10.0
HATCH = 6.0
UNITS = {"tensor": "tensor cores", "special": "special-function units", "fma": "FMA units", "memory": "memory"}
"""The units that a box may be of, and what the legend calls them."""


@dataclass(frozen=True)
class LaneBox:
    """One box: its lane, unit and label, begin and end (any unit of time), and where its overhead begins."""

    lane: str
    unit: str
    label: str
    start: float
    end: float
    overhead: float | None = None


def lanes_scene(
    boxes: Sequence[LaneBox], barriers: Sequence[float] = (), title: str = "schedule", time: str = "time"
) -> Scene:
    """The boxes on their lanes, a row for each unit where boxes of one lane overlap; `time` names the axis.

    Errors: DiagkitError for no boxes, boxes that take no time, one that ends before it begins or begins before 0,
    or a unit without a colour.
    """
    _check(boxes)
    sheet = _Sheet(tuple(boxes), max(box.end for box in boxes))
    pen = Pen()
    pen.say(roman(clean(title), bold=True), LEFT, 24, 13, "title", "start", SANS)
    for box in boxes:
        _draw_box(pen, sheet, box)
    for lane in sheet.lanes:
        middle = (sheet.top(lane) + sheet.bottom(lane)) / 2
        pen.say(roman(clean(lane)), LEFT, middle + 4, LABEL, "name", "start", SANS)
    for at in barriers:
        line = polyline([(sheet.x(at), TOP - 8), (sheet.x(at), sheet.low + 6)])
        pen.draw("front", line, "barrier", about="barrier: products wait here")
    low = _axis(pen, sheet, time)
    low = _legend(pen, sheet, low, bool(barriers))
    marks = tuple(mark for layer in LAYERS for mark in pen.layers[layer])
    return Scene(WIDEST, round(low + 12), marks, tuple(pen.words), clean(title), _about(sheet))


def _check(boxes: Sequence[LaneBox]) -> None:
    if not boxes:
        raise DiagkitError("lanes need boxes", remedy="give one LaneBox or more")
    for box in boxes:
        if not 0 <= box.start <= box.end or box.unit not in UNITS:
            remedy = f"start at 0 or later and before the end; unit one of: {', '.join(UNITS)}"
            raise DiagkitError(f"{box} cannot be drawn", remedy=remedy)
    if not any(box.end for box in boxes):
        raise DiagkitError("nothing takes any time", remedy="give a box that ends later than 0")


@dataclass(frozen=True)
class _Sheet:
    """Where times and lanes lie."""

    boxes: tuple[LaneBox, ...]
    last: float

    @property
    def lanes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(box.lane for box in self.boxes))

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(unit for unit in UNITS if unit in {box.unit for box in self.boxes})

    @property
    def rows(self) -> tuple[str, ...]:
        """A row for each unit where boxes of a lane overlap, else one row."""
        return self.units if any(_overlapping(self.boxes, lane) for lane in self.lanes) else ("",)

    @property
    def left(self) -> float:
        return LEFT + max(width(lane, LABEL, SANS) for lane in self.lanes) + 14

    def x(self, time: float) -> float:
        return self.left + (WIDEST - 20 - self.left) * float(time) / float(self.last)

    def top(self, lane: str) -> float:
        return TOP + self.lanes.index(lane) * (ROW * len(self.rows) + GAP)

    def bottom(self, lane: str) -> float:
        return self.top(lane) + ROW * len(self.rows)

    @property
    def low(self) -> float:
        return self.bottom(self.lanes[-1])

    def place(self, box: LaneBox) -> BoxOf:
        row = self.rows.index(box.unit) if box.unit in self.rows else 0
        top = self.top(box.lane) + ROW * row
        return self.x(box.start), top + 1, self.x(box.end), top + ROW - 1


def _overlapping(boxes: Sequence[LaneBox], lane: str) -> bool:
    mine = sorted((box.start, box.end) for box in boxes if box.lane == lane)
    return any(start < end for (_, end), (start, _) in pairwise(mine))


def _draw_box(pen: Pen, sheet: _Sheet, box: LaneBox) -> None:
    left, top, right, bottom = sheet.place(box)
    about = f"{box.lane}: {box.label}, {UNITS[box.unit]}, {float(box.start):.4g} to {float(box.end):.4g}"
    pen.draw("strip", rectangle((left, top, right, bottom)), f"unit-{box.unit}", box.lane, about)
    if box.overhead is not None:
        for start, end in hatching((sheet.x(box.overhead), top, right, bottom)):
            pen.draw("line", polyline([start, end]), "hatch")
    clear = right if box.overhead is None else sheet.x(box.overhead)
    choices = ((text, edge) for edge in (clear, right) for text in (box.label, box.label.split(" ")[0]))
    words, edge = next((pair for pair in choices if _fits(pair[0], pair[1] - left)), ("", right))
    if words:
        pen.say(roman(clean(words)), (left + edge) / 2, (top + bottom) / 2 + 4, SMALL, "name", family=SANS)


def _fits(text: str, room: float) -> bool:
    return width(text, SMALL, SANS) <= room - 4


def hatching(box: BoxOf) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Rising lines that fill a rectangle, each cut off at its edges.

    >>> hatching((0, 0, 6, 6))
    [((0.0, 6.0), (6.0, 0.0))]
    """
    left, top, right, bottom = box
    high, lines, at = bottom - top, [], left + HATCH
    while at < right + high:
        over = max(at - right, 0)
        under = max(left - (at - high), 0)
        lines.append(((at - high + under, bottom - under), (at - over, top + over)))
        at += HATCH
    return lines


def _axis(pen: Pen, sheet: _Sheet, time: str) -> float:
    """The axis of time with a tick at each whole number that there is room for; returns where it ends."""
    y = sheet.low + 12
    pen.draw("line", polyline([(sheet.left, y), (sheet.x(sheet.last), y)]), "rule")
    step = tick_step(float(sheet.last))
    for tick in range(0, int(sheet.last) + 1, step):
        pen.draw("line", polyline([(sheet.x(tick), y - 3), (sheet.x(tick), y + 3)]), "rule")
        pen.say(roman(str(tick)), sheet.x(tick), y + 15, SMALL, "head", family=SANS)
    pen.say(roman(clean(time)), sheet.x(sheet.last), y + 31, LABEL, "caption", "end", SANS)
    return y + 31


def tick_step(last: float, most: int = 16) -> int:
    """The least of 1, 2, 5, 10, 20, 50 ... that leaves at most so many ticks.

    >>> tick_step(14), tick_step(40), tick_step(3000)
    (1, 5, 200)
    """
    steps = (int(lead * 10**power) for power in range(18) for lead in (1, 2, 5))
    return next(step for step in steps if last <= most * step)


def _legend(pen: Pen, sheet: _Sheet, y: float, barriers: bool) -> float:
    """What colours, hatching and dotted lines stand for, on the line of the axis's name."""
    x = LEFT
    for unit in sheet.units:
        x = _entry(pen, x, y, f"unit-{unit}", UNITS[unit])
    if any(box.overhead is not None for box in sheet.boxes):
        for start, end in hatching((x, y - 9, x + 14, y + 1)):
            pen.draw("line", polyline([start, end]), "hatch")
        x = _entry(pen, x, y, "frame", "overhead")
    if barriers:
        pen.draw("front", polyline([(x + 7, y - 12), (x + 7, y + 4)]), "barrier")
        pen.say(roman("barrier"), x + 20, y, LABEL, "caption", "start", SANS)
    return y


def _entry(pen: Pen, x: float, y: float, role: str, text: str) -> float:
    pen.draw("strip", rectangle((x, y - 9, x + 14, y + 1)), role)
    pen.say(roman(text), x + 20, y, LABEL, "caption", "start", SANS)
    return x + 20 + width(text, LABEL, SANS) + 18


def _about(sheet: _Sheet) -> str:
    """The schedule in words: lane by lane, what begins and ends when."""
    said = []
    for lane in sheet.lanes:
        mine = sorted((box for box in sheet.boxes if box.lane == lane), key=lambda box: (box.start, box.unit))
        said.append(f"{lane}: " + ", ".join(f"{b.label} {float(b.start):.4g} to {float(b.end):.4g}" for b in mine))
    return clean(". ".join(said))


def lanes(
    boxes: Sequence[LaneBox], barriers: Sequence[float] = (), title: str = "schedule", time: str = "time",
    theme: str = "light",
) -> str:  # fmt: skip
    """The lanes as SVG text; the same boxes give the same bytes.

    >>> lanes([LaneBox("warpgroup 0", "tensor", "QK 0", 0, 1)])[:39]
    '<svg xmlns="http://www.w3.org/2000/svg"'
    """
    return write_svg(lanes_scene(boxes, barriers, title, time), theme_of(theme))
