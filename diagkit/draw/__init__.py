"""Pictures: a term becomes a layout, a scene of geometry, and SVG, PNG or PDF."""

from __future__ import annotations

from diagkit.draw.picture import scene
from diagkit.draw.svg import write_svg
from diagkit.draw.table import Row, Table
from diagkit.draw.theme import theme_of
from diagkit.term import Term


def svg(term: Term, table: Table | None = None, theme: str = "light") -> str:
    """The picture of a diagram as SVG text; `theme` is "light" or "dark"."""
    return write_svg(scene(term, table), theme_of(theme))


__all__ = ["Row", "Table", "scene", "svg"]
