"""Plots of the chapters: rooflines, costs along a tile, landscapes of tiles. matplotlib loads when one is made.

A plot is opaque and of fixed size; its colours keep apart for colour-blind readers, and its lines carry
their names. The backend of matplotlib is left alone.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagkit.book.errors import BookError
from diagkit.book.labels import name_points
from diagkit.term import size

COLOURS = ("#1f1f1f", "#c2540a", "#1b7f4b", "#2a5db0", "#8d3b9c", "#7a6a00")
MARKERS = "osD^vP"
POINT, GRID = "#b3261e", "#d9dde2"
Point = tuple[str, float, float]


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure and what it shows in words.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from diagkit.machine import load
    >>> plot = roofline([load("T4")])
    >>> with TemporaryDirectory() as folder:
    ...     plot.save(f"{folder}/t4.svg")
    ...     [path.name for path in Path(folder).iterdir()]
    ['t4.svg']
    >>> str(plot), plot.png()[1:4]
    ('Roofline: T4', b'PNG')
    """

    figure: Any
    text: str

    def __str__(self) -> str:
        return self.text

    def png(self) -> bytes:
        """The plot as PNG, at twice the density of a screen."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144, metadata={"Software": None})
        return buffer.getvalue()

    def save(self, path: str) -> None:
        """Write the plot to a file; the name's ending says how (png, svg, pdf)."""
        self.figure.savefig(path)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"text/plain": self.text, "image/png": self.png()}


def canvas(title: str, x: str, y: str, size_inches: tuple[float, float] = (7.2, 4.4)) -> tuple[Any, Any]:
    """An empty figure with named axes, outside of pyplot: nothing global changes."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BookError("plots need matplotlib", remedy="install diagkit[lab]") from error
    figure = Figure(figsize=size_inches, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=typeset(x), ylabel=typeset(y))
    axes.set_title(typeset(title), loc="left", fontsize=11)
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def typeset(text: str) -> str:
    """The text with sizes such as g_q and powers such as 10^6 set as formulas.

    >>> typeset("10^6 elements by g_q")
    '$10^{6}$ elements by $g_{q}$'
    """
    return re.sub(r"\b([A-Za-z]_|10\^)(\w+)\b", lambda found: f"${found[1]}{{{found[2]}}}$", text)


def roofline(
    machines: Sequence[Any], points: Iterable[Point] = (), dtype: str = "fp16", title: str = "Roofline"
) -> Plot:
    """What machines can do at so many FLOP per byte of slow memory, and where algorithms stand.

    `machines` are `Machine`s: each is drawn in `dtype`, or in fp32 where it states no such peak. `points`
    are (name, FLOP per byte, FLOP/s). Both axes are logarithmic.

    >>> from diagkit.machine import load
    >>> str(roofline([load("T4"), load("H100-SXM")], [("attention", 43, 1e14)]))
    'Roofline: T4, H100-SXM'
    """
    if not isinstance(machines, Sequence) or not all(hasattr(one, "roof") for one in machines):
        raise BookError(f"{machines!r} are no machines", remedy='write roofline([machine.load("H100-SXM")])')
    figure, axes = canvas(title, "FLOP per byte moved from slow memory", "FLOP/s")
    axes.set(xscale="log", yscale="log")
    for machine, colour in zip(machines, COLOURS, strict=False):
        draw_roof(axes, machine, dtype if dtype in machine.formats else "fp32", colour)
    for point, marker in zip(points, MARKERS, strict=False):
        draw_point(axes, point, marker)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", fontsize=8, frameon=False)
    return Plot(figure, f"{title}: {', '.join(machine.name for machine in machines)}")


def draw_roof(axes: Any, machine: Any, dtype: str, colour: str) -> None:
    """One roof, its name at the right end, a dot at its ridge."""
    ridge = machine.ridge(dtype)
    reach = [2.0**-3, ridge, 2.0**12]
    axes.plot(reach, [machine.roof(at, dtype) for at in reach], color=colour, linewidth=1.6)
    axes.plot([ridge], [machine.peak(dtype)], "o", color=colour, markersize=4)
    axes.annotate(
        f"{machine.name} {dtype}", (reach[-1], machine.peak(dtype)), (-2, 4), textcoords="offset points",
        ha="right", fontsize=8, color=colour,
    )  # fmt: skip


def draw_point(axes: Any, point: Point, marker: str) -> None:
    """One algorithm, named in the legend."""
    name, intensity, rate = point
    axes.plot([intensity], [rate], marker, color=POINT, markersize=7, label=name, markeredgecolor="white")


def curves(
    lines: Mapping[str, Any],
    along: tuple[str, Sequence[int]],
    at: Mapping[str, int],
    y: str = "elements",
    title: str = "",
    mark: Mapping[str, int] | None = None,
) -> Plot:
    """Formulas (by name) along one size: `along` names it and its values, `at` gives all other sizes.

    Several names with blanks between, such as "q x", take the same value.
    `mark` draws upright lines at named values. A formula that still holds a symbol is refused.

    >>> from diagkit.term import size
    >>> str(curves({"moved": size("q") * size("d")}, ("q", [1, 2, 4]), {"d": 32}, title="Q"))
    'Q: moved for q from 1 to 4'
    >>> curves({"moved": size("q") * size("d")}, ("q", [1, 2, 4]), {})
    Traceback (most recent call last):
    ...
    diagkit.book.errors.BookError: no size is given for d; `at` takes sizes in elements, by name
    """
    names, values = along
    symbol = " = ".join(names.split())
    figure, axes = canvas(title, symbol, y)
    for (name, formula), colour in zip(lines.items(), COLOURS, strict=False):
        heights = [evaluated(formula, {**at, **dict.fromkeys(names.split(), value)}) for value in values]
        axes.plot(values, heights, color=colour, label=name, linewidth=1.6)
    for name, place in (mark or {}).items():
        draw_mark(axes, name, place)
    axes.set(yscale="log")
    axes.legend(fontsize=8, frameon=False)
    return Plot(figure, f"{title or y}: {', '.join(lines)} for {symbol} from {values[0]} to {values[-1]}")


def draw_mark(axes: Any, name: str, place: float) -> None:
    """An upright dashed line with its name at the top."""
    axes.axvline(place, color=COLOURS[1], linewidth=1, linestyle=(0, (4, 3)))
    where = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    axes.annotate(name, (place, 0.97), (3, 0), fontsize=8, va="top", **where)


def evaluated(formula: Any, sizes: Mapping[str, int]) -> float:
    """The number that a formula has at these sizes. Errors: BookError naming the sizes that are missing."""
    import sympy

    found = sympy.sympify(formula).subs({size(name): value for name, value in sizes.items()})
    missing = sorted(map(str, found.free_symbols))
    if missing:
        raise BookError(f"no size is given for {', '.join(missing)}", remedy="`at` takes sizes in elements, by name")
    return float(found)


def agreement(
    groups: Mapping[str, Sequence[tuple[float, float]]], unit: str = "TFLOP/s", title: str = "", within: float = 0.2
) -> Plot:
    """Predictions against what was measured: a mark for each (predicted, measured) pair, in groups by name.

    The line is where both are equal, the band within that part of it. Both axes are in `unit`.

    >>> str(agreement({"FA3": [(500.0, 480.0), (600.0, 610.0)]}, title="predicted and measured"))
    'predicted and measured: 2 pairs of FA3'
    """
    figure, axes = canvas(title, f"measured, {unit}", f"predicted, {unit}", (7.2, 5.6))
    numbers = [number for pairs in groups.values() for pair in pairs for number in pair]
    ends = [0.0, 1.08 * max(numbers)]
    axes.plot(ends, ends, color=COLOURS[0], linewidth=1)
    axes.fill_between(ends, [(1 - within) * x for x in ends], [(1 + within) * x for x in ends], color=GRID, alpha=0.6)
    for place, (name, pairs) in enumerate(groups.items()):
        predicted, measured = zip(*pairs, strict=True)
        again, turn = divmod(place, len(MARKERS))  # a second round takes other colours
        marker, colour = MARKERS[turn], COLOURS[(turn + again) % len(COLOURS)]
        axes.plot(measured, predicted, marker, color=colour, markersize=5, label=name, markeredgecolor="white")
    axes.set(xlim=ends, ylim=ends)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    return Plot(figure, f"{title}: {sum(map(len, groups.values()))} pairs of {', '.join(groups)}")


def scatter(
    groups: Mapping[str, Sequence[tuple[float, float, str]]], x: str, y: str, title: str = "", named: str | None = None
) -> Plot:
    """Points (x, y, name) in groups, upwards in powers of ten; those of the group `named`, or else the first, carry
    their names.

    >>> str(scatter({"recipes": [(8.0, 1e-3, "int8"), (4.0, 1e-2, "int4")]}, "bits", "error", title="cost of bits"))
    'cost of bits: 2 points of recipes'
    """
    figure, axes = canvas(title, x, y, (7.2, 5.0))
    for place, (group, points) in enumerate(groups.items()):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        axes.plot(*zip(*((a, b) for a, b, _ in points), strict=True), marker, color=colour, label=group, alpha=0.85)
    axes.set(yscale="log")
    axes.margins(x=0.16)
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    chosen = named or next(iter(groups))
    everywhere = [(a, b) for points in groups.values() for a, b, _ in points]
    name_points(axes, _one_each(groups[chosen]), everywhere, COLOURS[list(groups).index(chosen) % len(COLOURS)])
    return Plot(figure, f"{title}: {sum(map(len, groups.values()))} points of {', '.join(groups)}")


def _one_each(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """The points with one name for those that lie on each other.

    >>> _one_each([(8.0, 1.1, "b"), (4.0, 1.0, "c"), (8.1, 9.0, "d"), (8.2, 1.0, "a")])
    [(4.0, 1.0, 'c'), (8.0, 1.1, 'b; a'), (8.1, 9.0, 'd')]
    """
    made: list[tuple[float, float, str]] = []
    for across, up, name in sorted(points):
        near = [n for n, (x, y, _) in enumerate(made) if abs(across - x) < 0.3 and max(up, y) < 1.25 * min(up, y)]
        if near:
            made[near[0]] = (*made[near[0]][:2], f"{made[near[0]][2]}; {name}")
        else:
            made.append((across, up, name))
    return made


def landscape(
    value: Any,
    rows: tuple[str, Sequence[int]],
    columns: tuple[str, Sequence[int]],
    at: Mapping[str, int] | None = None,
    within: tuple[Any, float] | None = None,
    mark: tuple[int, int] | None = None,
    title: str = "",
    unit: str = "",
) -> Plot:
    """A value for each pair of tiles, as a map with its numbers; dark is small.

    `value` is a formula, or a mapping from (row, column) to numbers; `rows` and `columns` are the names of
    the two sizes with their values, `at` the other sizes. `within` is a formula and its limit: tiles beyond
    stay empty, as do those that the mapping lacks. `mark` is the (row, column) to frame.

    >>> from diagkit.term import size
    >>> str(landscape(size("g") * size("s"), ("g", [16, 32]), ("s", [16, 32]), mark=(32, 16), title="held"))
    'held: g by s, marked g=32 s=16'
    """
    heights = heights_of(value, rows, columns, at or {}, within)
    figure, axes = canvas(title, columns[0], rows[0])
    axes.grid(visible=False)
    image = axes.imshow(heights, cmap="viridis", aspect="auto", origin="lower")
    axes.set(xticks=range(len(columns[1])), yticks=range(len(rows[1])), xticklabels=columns[1], yticklabels=rows[1])
    write_values(axes, heights, image.norm)
    if mark is not None:
        draw_frame(axes, columns[1].index(mark[1]), rows[1].index(mark[0]))
    figure.colorbar(image, label=unit)
    marked = f", marked {rows[0]}={mark[0]} {columns[0]}={mark[1]}" if mark else ""
    return Plot(figure, f"{title}: {rows[0]} by {columns[0]}{marked}")


def heights_of(
    value: Any,
    rows: tuple[str, Sequence[int]],
    columns: tuple[str, Sequence[int]],
    at: Mapping[str, int],
    within: tuple[Any, float] | None,
) -> list[list[float]]:
    """The numbers of a landscape, row by row; nan where there is none."""

    def height(row: int, column: int) -> float:
        if isinstance(value, Mapping):
            return float(value.get((row, column), "nan"))
        sizes = {**at, rows[0]: row, columns[0]: column}
        if within is not None and evaluated(within[0], sizes) > within[1]:
            return float("nan")
        return evaluated(value, sizes)

    return [[height(row, column) for column in columns[1]] for row in rows[1]]


def draw_frame(axes: Any, column: int, row: int) -> None:
    """A frame around one place of a map."""
    from matplotlib.patches import Rectangle

    frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#ff7a1a", linewidth=2.5)
    axes.add_patch(frame)
    frame.set_clip_on(False)


def write_values(axes: Any, values: Sequence[Sequence[float]], norm: Any) -> None:
    """Each number on its place, in ink that reads on the colour below."""
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            if not math.isnan(value):
                ink = "black" if norm(value) > 0.6 else "white"
                axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=7, color=ink)
