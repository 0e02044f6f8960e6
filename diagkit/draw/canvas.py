"""A scene through matplotlib: PNG and PDF without a browser, Inkscape or TeX.

matplotlib loads here and nowhere else; pictures are drawn on a canvas of their own, so that the reader's
backend and figures stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from diagkit.draw.fonts import CAUTION, SANS, SERIF
from diagkit.draw.scene import Mark, Run, Scene, Words, runs_width
from diagkit.draw.theme import Style, Theme
from diagkit.term import DiagkitError

POINTS = 0.75
"""Points per unit of the scene: as CSS has it, 96 units are an inch."""


def write_png(scene: Scene, theme: Theme, scale: float) -> bytes:
    """The scene as a PNG of `scale` pixels per unit."""
    figure = _figure(scene, theme)
    out = BytesIO()
    facts = {"Software": None, "Title": scene.title}
    with _missing_glyphs_allowed():
        figure.savefig(out, format="png", dpi=96 * scale, facecolor=theme.paper, metadata=facts)
    return out.getvalue()


def write_pdf(scene: Scene, theme: Theme) -> bytes:
    """The scene as a PDF with text as text; no date is written, so equal scenes give equal bytes."""
    figure = _figure(scene, theme)
    import matplotlib

    facts = {"Title": scene.title, "Creator": "diagkit", "Producer": None, "CreationDate": None}
    out = BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}), _missing_glyphs_allowed():
        figure.savefig(out, format="pdf", facecolor=theme.paper, metadata=facts)
    return out.getvalue()


_TRUE = {SERIF: 1.04, SANS: 1.15}
"""How broad the fonts that come with matplotlib are against the table of widths."""


@contextmanager
def _missing_glyphs_allowed() -> Iterator[None]:
    """A letter that matplotlib's fonts lack draws as an empty box; that is no reason to warn a reader."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _figure(scene: Scene, theme: Theme) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise DiagkitError("PNG and PDF need matplotlib", remedy="install matplotlib, or take the SVG") from None

    figure = Figure(figsize=(scene.width / 96, scene.height / 96))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    axes.axis("off")
    for order, mark in enumerate(scene.marks):
        axes.add_patch(_patch(mark, theme[mark.role], order))
    for line in scene.words:
        _write(axes, line, theme, len(scene.marks) + 1)
    return figure


def _patch(mark: Mark, style: Style, order: int) -> Any:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes, points = list[Any](), list[tuple[float, float]]()
    for letter, numbers in mark.path:
        pairs = list(zip(numbers[::2], numbers[1::2], strict=True)) or [points[0]]
        code = {"M": Path.MOVETO, "L": Path.LINETO, "C": Path.CURVE4, "Z": Path.CLOSEPOLY}[letter]
        codes += [code] * len(pairs)
        points += pairs
    fill = to_rgba(style.fill, style.opacity) if style.fill else "none"
    dash = (0, tuple(n * POINTS for n in style.dash)) if style.dash else "solid"
    return PathPatch(
        Path(points, codes), facecolor=fill, edgecolor=style.stroke or "none", linewidth=style.width * POINTS,
        linestyle=dash, zorder=order + 1, capstyle="butt",
    )  # fmt: skip


def _write(axes: Any, line: Words, theme: Theme, order: int) -> None:
    """Each run by itself, at the place where the table of widths puts it."""
    true = _TRUE[line.family] / CAUTION[line.family]
    whole = runs_width(line.runs, line.size, line.family)
    x = line.left + (whole * (1 - true) / 2 if line.anchor == "middle" else 0)
    for run in line.runs:
        wide = runs_width((run,), line.size, line.family) * true
        begins = line.anchor == "start"
        axes.text(
            x if begins else x + wide / 2, line.y - run.rise * line.size, _escaped(run),
            ha="left" if begins else "center", va="baseline", zorder=order,
            fontsize=line.size * run.scale * POINTS, color=theme[line.role].fill, fontfamily=_family(line),
            fontstyle="italic" if run.italic else "normal", fontweight="bold" if run.bold else "normal",
        )  # fmt: skip
        x += wide


def _family(line: Words) -> list[str]:
    """Fonts that come with matplotlib, so that the picture is the same everywhere."""
    return ["DejaVu Sans"] if line.family == SANS else ["STIXGeneral", "DejaVu Sans"]


def _escaped(run: Run) -> str:
    """matplotlib reads dollars as mathematics unless they are escaped; blanks at the ends keep their room."""
    return run.text.replace("$", r"\$")
