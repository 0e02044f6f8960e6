"""How a machine shows itself: values with readable units, one table as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from diagkit.term import MissingKeyError

Row = tuple[str, str, str, str]
HEAD: Row = ("field", "value", "grade", "source")
PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))  # no P: the field says 1979 TFLOP/s
BINARY = (("MiB", 1 << 20), ("KiB", 1 << 10))
UNSCALED = ("", "W", "B/clk", "FLOP/clk", "op/clk")
TINY = ("J/B", "J/FLOP", "J/op")  # shown in picojoules
CELL = "text-align:left;padding:1px 10px 1px 0"


def readable(value: float, unit: str) -> str:
    """A value with its unit: decimal prefixes, and binary ones for capacities that are whole KiB or MiB.

    >>> readable(3.35e12, "B/s"), readable(232_448, "B"), readable(80_000_000_000, "B"), readable(132, "")
    ('3.35 TB/s', '227 KiB', '80 GB', '132')
    >>> readable(3.12e-11, "J/B")
    '31.2 pJ/B'
    """
    if unit in UNSCALED:
        return f"{value:,g} {unit}".strip()
    if unit in TINY:
        return f"{value * 1e12:.4g} p{unit}"
    binary = [f"{value / size:g} {name}" for name, size in BINARY if unit == "B" and is_whole(value, size)]
    return binary[0] if binary else decimal(value, unit)


def is_whole(value: float, size: int) -> bool:
    """Whether a capacity reads well in that binary unit: a whole number of them, and below 1 GB."""
    return value % size == 0 and size <= value < 1e9


def decimal(value: float, unit: str) -> str:
    """The value with the largest decimal prefix that leaves at least 1.

    >>> decimal(1.9789e15, "FLOP/s"), decimal(65e12, "FLOP/s")
    ('1978.9 TFLOP/s', '65 TFLOP/s')
    """
    prefix, size = next((pair for pair in PREFIXES if value >= pair[1]), ("", 1.0))
    return f"{value / size:.6g} {prefix}{unit}"


def cited(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows with their sources as numbers in order of first mention, and the sources so numbered.

    >>> cited([("a", "1", "assumed", "X"), ("b", "2", "derived", "Y"), ("c", "3", "derived", "X")])[1]
    ['[1] X', '[2] Y']
    """
    marks = {source: f"[{i}]" for i, source in enumerate(dict.fromkeys(row[3] for row in rows), start=1)}
    return [(*row[:3], marks[row[3]]) for row in rows], [f"{mark} {source}" for source, mark in marks.items()]


def table_text(heading: str, rows: Sequence[Row]) -> str:
    """The rows in columns under a heading, the sources below.

    >>> print(table_text("X", [("device.clock_hz", "1 GHz", "published", "datasheet")]))
    X
    field            value  grade      source
    device.clock_hz  1 GHz  published  [1]
    [1] datasheet
    """
    short, sources = cited(rows)
    return "\n".join([heading, *aligned([HEAD, *short]), *sources])


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines of aligned columns.

    >>> aligned([("gpu", "d"), ("H100-SXM", "64")])
    ['gpu       d', 'H100-SXM  64']
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]


def table_html(heading: str, rows: Sequence[Row], note: str) -> str:
    """The same as HTML without classes, ids or scripts; every text is escaped."""
    short, sources = cited(rows)
    body = "".join(html_row("td", row) for row in short)
    caption = f'<caption style="{CELL};font-weight:bold">{escape(heading)}</caption>'
    table = f"<table>{caption}<thead>{html_row('th', HEAD)}</thead><tbody>{body}</tbody></table>"
    return table + "".join(f"<div>{escape(line)}</div>" for line in [*sources, note] if line)


def html_row(tag: str, cells: Sequence[str]) -> str:
    """One row of cells of that tag."""
    inner = "".join(f'<{tag} style="{CELL}">{escape(cell)}</{tag}>' for cell in cells)
    return f"<tr>{inner}</tr>"


@dataclass(frozen=True, repr=False)
class Sheet:
    """A table that shows itself: a head, rows of texts, notes below.

    >>> Sheet(("unit", "clocks"), (("tensor", "6"),), ("per row",))
    unit    clocks
    tensor  6
    per row

    >>> Sheet(("machine", "SMs"), (("T4", "40"), ("H100-SXM", "132"))).column("SMs")
    ['40', '132']
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> list[str]:
        """The cells of one column. Errors: MissingKeyError that lists the columns."""
        if name not in self.head:
            raise MissingKeyError(
                f"no column {name!r}", remedy=f"the columns are: {', '.join(filter(None, self.head))}"
            )
        return [row[self.head.index(name)] for row in self.rows]

    def __repr__(self) -> str:
        return "\n".join([*aligned([self.head, *self.rows]), *self.notes])

    def _repr_html_(self) -> str:
        body = html_row("th", self.head) + "".join(html_row("td", row) for row in self.rows)
        return f"<table>{body}</table>" + "".join(f"<div>{escape(note)}</div>" for note in self.notes)
