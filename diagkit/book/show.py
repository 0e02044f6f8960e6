"""Numbers and small tables as readers see them: text, HTML without classes, ids or scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

CELL = "text-align:left;padding:0.15em 0.9em 0.15em 0;vertical-align:top"
SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def count(number: int | None) -> str:
    """An integer with commas, or nothing.

    >>> count(1152000), count(None)
    ('1,152,000', '')
    """
    return "" if number is None else f"{number:,}"


def seconds(time_s: float | None) -> str:
    """A time in seconds with three digits and a fitting unit, or nothing.

    >>> seconds(0.0123), seconds(75.0), seconds(None)
    ('12.3 ms', '75 s', '')
    """
    if time_s is None:
        return ""
    unit, size = next(((unit, size) for unit, size in SECONDS if time_s >= size), SECONDS[-1])
    return f"{time_s / size:.3g} {unit}"


def small(number: float | None) -> str:
    """An error or a tolerance with two digits, or nothing.

    >>> small(3.14159e-7), small(0.0), small(None)
    ('3.1e-07', '0', '')
    """
    return "" if number is None else f"{number:.2g}"


def columns(rows: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """The rows in aligned columns.

    >>> print(columns([("a", "bc"), ("def", "g")]))
    a    bc
    def  g
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(gap.join(map(str.ljust, row, widths)).rstrip() for row in rows)


def html_rows(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and what they are, for the output of a cell; every text is escaped."""
    body = "".join(
        f'<tr><th style="{CELL}" scope="row">{escape(name)}</th><td style="{CELL}">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f"<table>{body}</table>"
