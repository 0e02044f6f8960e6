"""Charts beside a picture, as scenes: time by resource, the roofline, a map of tiles. Numbers come in plain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10

from diagkit.draw.fonts import SANS, SERIF, clean, fit
from diagkit.draw.layout import LEFT
from diagkit.draw.pen import LAYERS, Pen
from diagkit.draw.scene import Point, Scene, circle, polyline, rectangle
from diagkit.draw.typeset import name_runs, roman

WIDE, HIGH = 306.0, 244.0
"""The size of a chart; its title stands in the first TOP units, its axis in the last FOOT."""
TOP, FOOT, EDGE = 34.0, 44.0, 46.0
TITLE, TEXT, SMALL = 12.0, 11.0, 10.0
SHADES = 7
"""How many shades a map has, lightest first."""
PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
)


def brief(value: float, unit: str = "") -> str:
    """A number in three or four digits with a decimal prefix and its unit.

    >>> brief(1_352_000), brief(8.68e-6, "s"), brief(512, "B"), brief(0, "s")
    ('1.352 M', '8.68 µs', '512 B', '0 s')
    """
    size, prefix = next(((size, prefix) for size, prefix in PREFIXES if abs(value) >= size), (1.0, ""))
    return f"{value / size:.4g} {prefix}{unit}".strip()


@dataclass(frozen=True)
class Bars:
    """Seconds by name, None where nobody states them; `totals` are drawn apart; `slowest` is marked."""

    title: str
    seconds: tuple[tuple[str, float | None], ...]
    totals: tuple[tuple[str, float], ...] = ()
    slowest: str = ""


@dataclass(frozen=True)
class Roof:
    """A machine's roof: bytes and FLOP per second; `here` is (FLOP per byte, least and most FLOP per second),
    `best` the same of the best tile, if there is one."""

    title: str
    bandwidth: float
    peak: float
    here: tuple[float, float, float]
    best: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class TileMap:
    """A value for each pair of tiles: `rows` and `columns` name the tiles with their values, smallest first.

    `heights` are by (row, column), in `unit`; pairs in `unfit` cannot run, and stay empty. `here` and `best`
    are pairs of tiles, wherever they lie between the values. A map without rows has one.
    """

    title: str
    unit: str
    rows: tuple[str, tuple[int, ...]]
    columns: tuple[str, tuple[int, ...]]
    heights: Mapping[tuple[int, int], float]
    unfit: frozenset[tuple[int, int]] = frozenset()
    here: tuple[int, int] | None = None
    best: tuple[int, int] | None = None


@dataclass
class _Chart:
    """A chart while it is drawn."""

    title: str
    pen: Pen = field(default_factory=Pen)

    def __post_init__(self) -> None:
        self.say(fit(clean(self.title), WIDE - 20, TITLE, SANS, True), 10, 20, TITLE, bold=True)

    def say(
        self,
        text: str,
        x: float,
        y: float,
        size: float = SMALL,
        anchor: str = "start",
        role: str = "note",
        bold: bool = False,
    ) -> None:
        """Upright words."""
        self.pen.say(roman(clean(text), bold=bold), x, y, size, "title" if bold else role, anchor, SANS)

    def name(self, tile: str, x: float, y: float) -> None:
        """The name of a tile, as in the picture."""
        self.pen.say(name_runs(tile), x, y, 13.0, "name", "middle", SERIF)

    def line(self, points: Sequence[Point], role: str) -> None:
        """A line from point to point."""
        self.pen.draw("line", polyline(points), role)

    def dot(self, at: Point, role: str, about: str) -> None:
        """A dot that stands for something."""
        self.pen.draw("front", circle(*at, 5.0), role, about=about)

    def diamond(self, at: Point, about: str) -> None:
        """The mark of the best tile."""
        x, y = at
        path = polyline([(x, y - 7), (x + 7, y), (x, y + 7), (x - 7, y)], closed=True)
        self.pen.draw("front", path, "chart-best", about=about)

    def scene(self, about: str) -> Scene:
        """What was drawn."""
        marks = tuple(mark for layer in LAYERS for mark in self.pen.layers[layer])
        return Scene(WIDE, HIGH, marks, tuple(self.pen.words), clean(self.title), clean(about))


def bars_scene(bars: Bars) -> Scene:
    """A bar for every resource, and apart from them the totals; all on one scale from 0."""
    chart = _Chart(bars.title)
    rows = [*bars.seconds, *bars.totals]
    longest = max((time for _, time in rows if time), default=1.0)
    step = min(30.0, (HIGH - TOP - 20) / max(len(rows) + 0.5, 1))
    for number, (name, time) in enumerate(rows):
        apart = number >= len(bars.seconds)
        y = TOP + 8 + step * (number + (0.5 if apart else 0))
        role = "chart-slow" if name == bars.slowest else "chart-total" if apart else "chart-bar"
        _bar(chart, name, time, (time or 0) / longest, y, step, role)
    told = ", ".join(f"{name} {brief(time, 's') if time is not None else 'not stated'}" for name, time in rows)
    return chart.scene(told)


def _bar(chart: _Chart, name: str, time: float | None, share: float, y: float, step: float, role: str) -> None:
    left, room = 84.0, WIDE - 84.0 - 78.0
    chart.say(name, left - 8, y + step * 0.55, TEXT, "end", "caption")
    if share:
        path = rectangle((left, y + step * 0.16, left + max(share * room, 1.0), y + step * 0.76))
        chart.pen.draw("strip", path, role, about=name)
    said = "not stated" if time is None else brief(time, "s")
    chart.say(said, left + share * room + 6, y + step * 0.58, SMALL, "start", "caption")


@dataclass(frozen=True)
class _Scale:
    """Decades of a logarithmic axis, from `low` to `high`, onto the units from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (log10(value) - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def decades(self) -> Iterator[float]:
        """The powers of ten on it."""
        yield from (10.0**power for power in range(ceil(self.low), floor(self.high) + 1))


def roof_scene(roof: Roof) -> Scene:
    """FLOP/s within reach over FLOP per byte, both logarithmic; a dot where the diagram stands, a bar from
    the rate of nothing overlapping to that of everything overlapping."""
    chart = _Chart(roof.title)
    every = [point for point in (roof.here, roof.best) if point]
    ridge = roof.peak / roof.bandwidth
    reach = [log10(max(at, 1e-3)) for at, _, _ in every] + [log10(ridge)]
    lowest = min(log10(max(rate, 1.0)) for _, rate, _ in every)
    across = _Scale(min(0.0, *reach) - 0.2, max(3.3, *reach) + 0.4, EDGE, WIDE - 12)
    up = _Scale(min(log10(roof.peak) - 2.4, lowest - 0.2), log10(roof.peak) + 0.35, HIGH - FOOT, TOP + 8)
    _grid(chart, across, up)
    ends = [10**across.low, ridge, 10**across.high]
    chart.line([(across(at), up(min(roof.peak, at * roof.bandwidth))) for at in ends], "chart-roof")
    if roof.best:
        chart.diamond((across(roof.best[0]), up(roof.best[2])), "the best tile")
    at, least, most = roof.here
    chart.line([(across(at), up(max(least, 1.0))), (across(at), up(most))], "chart-range")
    chart.dot((across(at), up(most)), "chart-here", "this tile")
    chart.say("FLOP per byte of slow memory", (EDGE + WIDE) / 2, HIGH - 10, SMALL, "middle")
    about = f"{brief(at)} FLOP per byte, {brief(least, 'FLOP/s')} to {brief(most, 'FLOP/s')}"
    chart.say(about, 10, TOP, SMALL)
    return chart.scene(about)


def _grid(chart: _Chart, across: _Scale, up: _Scale) -> None:
    """Decades and what they are called."""
    for value in across.decades():
        x = across(value)
        chart.line([(x, up.start), (x, up.end)], "chart-grid")
        chart.say(brief(value).replace(" ", ""), x, up.start + 14, SMALL, "middle")
    for value in up.decades():
        y = up(value)
        chart.line([(across.start, y), (across.end, y)], "chart-grid")
        chart.say(brief(value).replace(" ", ""), across.start - 5, y + 3, SMALL, "end")


def map_scene(tiles: TileMap) -> Scene:
    """The map of a value over two tiles, dark is large; empty where a tile cannot run; a dot at the tile that
    is shown, a diamond at the best."""
    chart = _Chart(tiles.title)
    columns, rows = tiles.columns[1], tiles.rows[1]
    wide, high = (WIDE - EDGE - 12) / len(columns), (HIGH - TOP - 8 - FOOT) / len(rows)
    shade = _shades([height for pair, height in tiles.heights.items() if pair not in tiles.unfit])
    for (row, column), height in tiles.heights.items():
        x, y = EDGE + wide * columns.index(column), HIGH - FOOT - high * (rows.index(row) + 1)
        unfit = (row, column) in tiles.unfit
        role = "heat-none" if unfit else f"heat-{shade(height)}"
        about = (
            f"{tiles.rows[0]}={row}, " * bool(tiles.rows[0])
            + f"{tiles.columns[0]}={column}: {brief(height, tiles.unit)}"
        )
        chart.pen.draw("strip", rectangle((x, y, x + wide, y + high)), role, about=about + ", does not fit" * unfit)
    _map_axes(chart, tiles, wide, high)
    chart.say("dark: more; empty: does not fit; dot: here; diamond: best", 10, TOP, SMALL)
    for pair, best in ((tiles.best, True), (tiles.here, False)):
        if pair:
            at = EDGE + wide * _between(columns, pair[1]), HIGH - FOOT - high * _between(rows, pair[0])
            told = f"{'the best tile' if best else 'this tile'}: {pair[0]}, {pair[1]}"
            chart.diamond(at, told) if best else chart.dot(at, "chart-here", told)
    return chart.scene(
        f"{tiles.title}, over {tiles.rows[0]} and {tiles.columns[0]}; {len(tiles.unfit)} pairs cannot run"
    )


def _map_axes(chart: _Chart, tiles: TileMap, wide: float, high: float) -> None:
    (rows, row_values), (columns, column_values) = tiles.rows, tiles.columns
    every = max(1, ceil(len(column_values) * 30 / (WIDE - EDGE)))
    for number, value in enumerate(column_values[::every]):
        chart.say(f"{value}", EDGE + wide * (every * number + 0.5), HIGH - FOOT + 14, SMALL, "middle")
    for number, value in enumerate(row_values if rows else ()):
        chart.say(f"{value}", EDGE - 5, HIGH - FOOT - high * (number + 0.5) + 3, SMALL, "end")
    chart.name(columns, (EDGE + WIDE) / 2, HIGH - 12)
    if rows:
        chart.name(rows, 16, HIGH - FOOT + 16)


def _shades(heights: Sequence[float]) -> Callable[[float], int]:
    """The shade of a height: steps of equal ratio between the least and the largest."""
    logs = [log10(max(height, 1e-30)) for height in heights] or [0.0]
    low, spread = min(logs), max(max(logs) - min(logs), 1e-9)
    return lambda height: min(SHADES - 1, int((log10(max(height, 1e-30)) - low) / spread * SHADES))


def _between(values: Sequence[int], value: int) -> float:
    """Where a value lies along cells for `values`, in cells: the middle of its own, else between two.

    >>> _between((16, 32, 64), 32), round(_between((16, 32, 64), 48), 2), _between((16, 32, 64), 999)
    (1.5, 2.08, 2.5)
    """
    below = [place for place, one in enumerate(values) if one <= value]
    if not below or below[-1] == len(values) - 1:
        return 0.5 if not below else len(values) - 0.5
    low, high = values[below[-1]], values[below[-1] + 1]
    return below[-1] + 0.5 + log10(value / low) / log10(high / low)


def board(picture: Scene, charts: Sequence[Scene], lines: Sequence[tuple[str, bool]] = ()) -> Scene:
    """A picture, under it lines of words (those with True stand out), then charts side by side."""
    pen, y = Pen(), picture.height + 14
    wide = max(picture.width, LEFT + 3 * (WIDE + 10))
    for text, loud in lines:
        pen.say(roman(fit(clean(text), wide - 2 * LEFT, 12.5, SANS, loud), bold=loud), LEFT, y, 12.5,
                "alarm" if loud else "caption", "start", SANS)  # fmt: skip
        y += 18
    placed = [chart.shifted(LEFT - 10 + number * (WIDE + 10), y) for number, chart in enumerate(charts)]
    every = [picture, *placed]
    about = " ".join([*(text for text, _ in lines), *(f"{scene.title}: {scene.about}." for scene in every)])
    high = round(max(scene.height for scene in every) + 4)
    marks = tuple(mark for scene in every for mark in scene.marks)
    return Scene(
        round(wide), high, marks, (*(line for scene in every for line in scene.words), *pen.words), picture.title, about
    )


def filled(scene: Scene, said: Mapping[str, str]) -> Scene:
    """The scene with other words: each line that is a key of `said` says what stands there, or is gone."""
    kept = (line for line in scene.words if said.get(line.text, line.text))
    words = (replace(line, runs=roman(said[line.text])) if line.text in said else line for line in kept)
    return replace(scene, words=tuple(words))
