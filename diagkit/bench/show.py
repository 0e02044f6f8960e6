"""How results of the bench display: rows of a name and a text, as text and as an HTML table."""

from __future__ import annotations

from html import escape
from typing import Any

CELL = "text-align:left;padding:0.15em 0.9em 0.15em 0;vertical-align:top"
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def seconds(time_s: float) -> str:
    """A time with three digits and a fitting unit.

    >>> seconds(0.01234), seconds(2.0)
    ('12.3 ms', '2 s')
    """
    unit, size = next(((unit, size) for unit, size in UNITS if time_s >= size), UNITS[-1])
    return f"{time_s / size:.3g} {unit}"


class Shown:
    """A result that displays as the rows it lists.

    >>> from diagkit.bench.measure import Compared
    >>> Compared(2.0, 1.0, 3.0).rows()[0]
    ('predicted', '1 s overlapped, 3 s serial')
    """

    def rows(self) -> list[tuple[str, str]]:
        """(name, text) of each row, in order."""
        raise NotImplementedError

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in self.rows())

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        body = "".join(
            f'<tr><th style="{CELL}" scope="row">{escape(name)}</th><td style="{CELL}">{escape(text)}</td></tr>'
            for name, text in self.rows()
        )
        return f"<table>{body}</table>"
