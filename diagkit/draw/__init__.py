"""Pictures: a term becomes a layout, a scene of geometry, and SVG, PNG or PDF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from diagkit.draw.canvas import write_pdf, write_png
from diagkit.draw.charts import Bars, Roof, TileMap, bars_scene, board, brief, filled, map_scene, roof_scene
from diagkit.draw.flags import FINE
from diagkit.draw.glyphs import GLYPHS
from diagkit.draw.lanes import LaneBox, lanes, lanes_scene
from diagkit.draw.listing import listing
from diagkit.draw.overlap import Clash, overlaps
from diagkit.draw.picture import headline, scene
from diagkit.draw.plan import plan
from diagkit.draw.scene import Scene
from diagkit.draw.strip import strip_scene
from diagkit.draw.svg import write_svg
from diagkit.draw.table import Row, Table
from diagkit.draw.theme import THEMES, Theme, theme_of
from diagkit.term import DiagkitError, Term


def svg(term: Term, table: Table | None = None, theme: str = "light", warnings: Mapping[str, str] | None = None) -> str:
    """The picture of a diagram as SVG text; `theme` is "light" or "dark"; `warnings` (words by wire) are marked on
    the wires and said below.

    The text stands alone (no style sheet, script, font, link or id) and is the same in every process.

    >>> from diagkit.term import Array, Axis
    >>> svg(Term((Array("X", (Axis("x"),)),), (), ("X",), "row"))[:39]
    '<svg xmlns="http://www.w3.org/2000/svg"'
    """
    return write_svg(scene(term, table, warnings=warnings), theme_of(theme))


def as_svg(drawn: Scene, theme: str = "light") -> str:
    """A scene as SVG text."""
    return write_svg(drawn, theme_of(theme))


def png(term: Term, table: Table | None = None, scale: float = 2.0, theme: str = "light") -> bytes:
    """The picture as PNG bytes, `scale` pixels per unit of the SVG; needs matplotlib."""
    return write_png(scene(term, table), theme_of(theme), scale)


def pdf(term: Term, table: Table | None = None, theme: str = "light") -> bytes:
    """The picture as PDF bytes; needs matplotlib, neither TeX nor Inkscape."""
    return write_pdf(scene(term, table), theme_of(theme))


_SUFFIXES: dict[str, Callable[[Scene, Theme], bytes]] = {
    ".svg": lambda drawn, theme: write_svg(drawn, theme).encode("utf-8"),
    ".png": lambda drawn, theme: write_png(drawn, theme, 2.0),
    ".pdf": write_pdf,
}


def destination(path: Any, suffixes: Iterable[str]) -> Path:
    """The file to write to: a path with one of `suffixes`, in a folder that is there.

    >>> destination("picture.svg", [".svg"]).name
    'picture.svg'
    """
    if not isinstance(path, str | PathLike):
        raise DiagkitError(f"{path!r} is no path", remedy='write for example save("picture.svg")')
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        raise DiagkitError(f"cannot draw into {target.name!r}", remedy=f"use a suffix of: {', '.join(suffixes)}")
    if not target.parent.is_dir():
        reason = f"there is no folder {str(target.parent)!r} to save {target.name!r} in"
        raise DiagkitError(reason, remedy="make the folder first, or name one that is there")
    return target


def save(term: Term, path: Any, table: Table | None = None) -> Path:
    """Write the picture to a file; the suffix (.svg, .png, .pdf) says as what. Returns the path."""
    return write(lambda: scene(term, table), path)


def write(drawn: Callable[[], Scene], path: Any, theme: str = "light") -> Path:
    """Write a scene, made once the path is known to be good, to a file of that suffix. Returns the path."""
    target = destination(path, _SUFFIXES)
    target.write_bytes(_SUFFIXES[target.suffix.lower()](drawn(), theme_of(theme)))
    return target


def strip(
    terms: Sequence[Term],
    captions: Sequence[tuple[str, str]] = (),
    tables: Sequence[Table | None] = (),
    theme: str = "light",
) -> str:
    """Several diagrams under one another as SVG, with ≡ and the caption (rule, reason) between each two."""
    return write_svg(strip_scene(terms, captions, tables), theme_of(theme))


__all__ = [
    "FINE", "GLYPHS", "THEMES", "Bars", "Clash", "LaneBox", "Roof", "Row", "Scene", "Table", "TileMap", "as_svg",
    "bars_scene", "board", "brief", "filled", "headline", "lanes", "lanes_scene", "listing", "map_scene", "overlaps",
    "pdf", "plan", "png", "roof_scene", "save", "scene", "strip", "strip_scene", "svg", "write",
]  # fmt: skip
