"""Tables of counts, as text and as HTML: names to the left, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Cell = str | int | float
Rows = Sequence[Sequence[Cell]]
"""The first row is the head."""


def table_text(rows: Rows) -> str:
    """Rows in columns.

    >>> print(table_text([("array", "elements"), ("Q", 40), ("K", 1000)]))
    array  elements
    Q            40
    K          1000
    """
    widths = [max(len(_text(cell)) for cell in column) for column in zip(*rows, strict=True)]
    right = [any(not isinstance(cell, str) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(_padded, row, widths, right)).rstrip() for row in rows)


def _padded(cell: Cell, width: int, right: bool) -> str:
    return _text(cell).rjust(width) if right else _text(cell).ljust(width)


def _text(cell: Cell) -> str:
    return f"{cell:.10g}" if isinstance(cell, float) else str(cell)


def table_html(rows: Rows) -> str:
    """Rows as an HTML table of plain text."""
    lines = ["".join(_cell(cell, "td" if place else "th") for cell in row) for place, row in enumerate(rows)]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(cell: Cell, tag: str) -> str:
    side = "left" if isinstance(cell, str) else "right"
    return f'<{tag} style="text-align:{side}">{escape(_text(cell))}</{tag}>'
