"""The scene: geometry with roles. Coordinates and text, no colours; a theme says what a role looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from diagkit.draw.fonts import ELLIPSIS, SERIF, width

Point = tuple[float, float]
Command = tuple[str, tuple[float, ...]]
BoxOf = tuple[float, float, float, float]
"""left, top, right, bottom"""

_CIRCLE = 0.5522847498
"""Control distance of a cubic that draws a quarter of a circle of radius 1."""


@dataclass(frozen=True)
class Mark:
    """A line or a shape: `path` of M, L, C and Z commands (absolute), and the role it plays.

    `about` says in words what it stands for; `owner` names the box or wire it belongs to.
    """

    path: tuple[Command, ...]
    role: str
    owner: str = ""
    about: str = ""

    def shifted(self, dx: float, dy: float) -> Mark:
        """The mark moved by (dx, dy)."""
        moved = tuple((letter, _shift(numbers, dx, dy)) for letter, numbers in self.path)
        return replace(self, path=moved)

    def scaled(self, by: float) -> Mark:
        """The mark made larger or smaller about the origin."""
        return replace(self, path=tuple((letter, tuple(n * by for n in numbers)) for letter, numbers in self.path))

    def outline(self) -> list[Point]:
        """Points along the mark, curves sampled."""
        points: list[Point] = []
        for letter, numbers in self.path:
            if letter == "C":
                points += _sampled(points[-1], numbers)
            elif letter == "Z":
                points.append(points[0])
            else:
                points.append((numbers[0], numbers[1]))
        return points

    @property
    def box(self) -> BoxOf:
        """The smallest upright rectangle around it."""
        points = self.outline()
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        return min(xs), min(ys), max(xs), max(ys)


def _shift(numbers: tuple[float, ...], dx: float, dy: float) -> tuple[float, ...]:
    return tuple(n + (dy if place % 2 else dx) for place, n in enumerate(numbers))


def _sampled(start: Point, numbers: tuple[float, ...], steps: int = 8) -> list[Point]:
    (x0, y0), (x1, y1, x2, y2, x3, y3) = start, numbers
    points = []
    for step in range(1, steps + 1):
        t = step / steps
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        points.append((a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3))
    return points


@dataclass(frozen=True)
class Run:
    """A piece of text in one style: `rise` in parts of the size (subscripts negative), `scale` its size
    against that of the whole."""

    text: str
    italic: bool = False
    bold: bool = False
    rise: float = 0.0
    scale: float = 1.0


Runs = tuple[Run, ...]


def runs_width(runs: Runs, size: float, family: str = SERIF) -> float:
    """How wide the runs are, set one after another at that size."""
    return sum(width(run.text, size * run.scale, family, run.bold) for run in runs)


@dataclass(frozen=True)
class Words:
    """A line of text at (x, y), y being its baseline; `anchor` is "start", "middle" or "end"."""

    runs: Runs
    x: float
    y: float
    size: float
    role: str
    anchor: str = "middle"
    family: str = SERIF
    owner: str = ""

    @property
    def about(self) -> str:
        """What the words stand for, where they are cut."""
        return self.owner if ELLIPSIS in self.text else ""

    def shifted(self, dx: float, dy: float) -> Words:
        """The words moved by (dx, dy)."""
        return replace(self, x=self.x + dx, y=self.y + dy)

    def scaled(self, by: float) -> Words:
        """The words made larger or smaller about the origin."""
        return replace(self, x=self.x * by, y=self.y * by, size=self.size * by)

    @property
    def text(self) -> str:
        """The words as plain text."""
        return "".join(run.text for run in self.runs)

    @property
    def left(self) -> float:
        """Where the words begin."""
        share = {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return self.x - share * runs_width(self.runs, self.size, self.family)

    @property
    def box(self) -> BoxOf:
        """The rectangle that the words take."""
        top = max((r.rise * 1.0 + 0.74 * r.scale for r in self.runs), default=0.7)
        bottom = min((r.rise - 0.21 * r.scale for r in self.runs), default=0.2)
        right = self.left + runs_width(self.runs, self.size, self.family)
        return self.left, self.y - top * self.size, right, self.y - bottom * self.size


@dataclass(frozen=True)
class Scene:
    """A picture before it has a style: marks back to front, then words, on a sheet of a size.

    >>> page = Scene(100.0, 50.0, (), ())
    >>> page.shifted(5.0, 7.0).width, page.shifted(5.0, 7.0).height
    (105.0, 57.0)
    """

    width: float
    height: float
    marks: tuple[Mark, ...]
    words: tuple[Words, ...]
    title: str = ""
    about: str = ""

    def shifted(self, dx: float, dy: float) -> Scene:
        """Everything moved by (dx, dy), the sheet grown by as much."""
        return replace(
            self,
            width=self.width + dx,
            height=self.height + dy,
            marks=tuple(mark.shifted(dx, dy) for mark in self.marks),
            words=tuple(line.shifted(dx, dy) for line in self.words),
        )


def polyline(points: Iterable[Point], closed: bool = False) -> tuple[Command, ...]:
    """Straight lines from point to point."""
    path: list[Command] = [("L" if n else "M", tuple(point)) for n, point in enumerate(points)]
    return (*path, ("Z", ())) if closed else tuple(path)


def rectangle(box: BoxOf, radius: float = 0.0) -> tuple[Command, ...]:
    """The outline of a rectangle, its corners rounded."""
    left, top, right, bottom = box
    if not radius:
        return polyline([(left, top), (right, top), (right, bottom), (left, bottom)], closed=True)
    r, k = radius, radius * (1 - _CIRCLE)
    return (
        ("M", (left + r, top)), ("L", (right - r, top)), ("C", (right - k, top, right, top + k, right, top + r)),
        ("L", (right, bottom - r)), ("C", (right, bottom - k, right - k, bottom, right - r, bottom)),
        ("L", (left + r, bottom)), ("C", (left + k, bottom, left, bottom - k, left, bottom - r)),
        ("L", (left, top + r)), ("C", (left, top + k, left + k, top, left + r, top)), ("Z", ()),
    )  # fmt: skip


def circle(x: float, y: float, radius: float) -> tuple[Command, ...]:
    """A whole circle."""
    r, k = radius, radius * _CIRCLE
    return (
        ("M", (x - r, y)), ("C", (x - r, y - k, x - k, y - r, x, y - r)), ("C", (x + k, y - r, x + r, y - k, x + r, y)),
        ("C", (x + r, y + k, x + k, y + r, x, y + r)), ("C", (x - k, y + r, x - r, y + k, x - r, y)), ("Z", ()),
    )  # fmt: skip


def semicircle(x: float, top: float, bottom: float, reach: float | None = None) -> tuple[Command, ...]:
    """The right-facing arc that joins (x, top) and (x, bottom); it reaches to x plus half the height."""
    middle, radius = (top + bottom) / 2, (bottom - top) / 2
    far = radius if reach is None else reach
    return (
        ("M", (x, top)),
        ("C", (x + far * _CIRCLE, top, x + far, middle - radius * _CIRCLE, x + far, middle)),
        ("C", (x + far, middle + radius * _CIRCLE, x + far * _CIRCLE, bottom, x, bottom)),
    )


def swing(x0: float, y0: float, x1: float, y1: float) -> Command:
    """The curve of a wire that changes its row: horizontal at both ends."""
    reach = 0.4 * (x1 - x0)
    return ("C", (x0 + reach, y0, x1 - reach, y1, x1, y1))
