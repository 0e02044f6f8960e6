"""The cost table over a picture: rows of cells keyed by column, set by us, aligned with the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import sympy

from diagkit.draw.fonts import SANS, folded
from diagkit.draw.plan import Column
from diagkit.draw.scene import Run, Runs, runs_width
from diagkit.draw.typeset import cut, formula, roman

CELL = 12.0
LINE = 15.0
ROOM = 124.0
NARROW = 84.0
"""Cells wider than this break at their plus signs: at loads, stores and totals, and over a box."""


@dataclass(frozen=True)
class Row:
    """One row: what it counts, the level whose colour it takes, cells by column key, the total.

    Keys are names of boxes and ("load", region) and ("store", region); a cell is a sympy expression or a
    text. `total` stands at the right.
    """

    name: str
    level: int = 0
    cells: Mapping[Any, Any] = field(default_factory=dict)
    total: Any = None


@dataclass(frozen=True)
class Table:
    """The rows over the columns, top to bottom.

    >>> from diagkit.term import size
    >>> Table((Row("H", 0, {"S": 2 * size("q")}),)).rows[0].name
    'H'
    """

    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Span:
    """A cell over one column or several that it holds for."""

    keys: tuple[Any, ...]
    lines: list[Runs]


@dataclass(frozen=True)
class Cells:
    """A table set in type: for every row its name, level, and lines of runs by column key."""

    names: tuple[Runs, ...]
    levels: tuple[int, ...]
    cells: tuple[dict[Any, list[Runs]], ...]
    totals: tuple[list[Runs], ...]
    given: tuple[Row, ...] = ()
    order: tuple[str, ...] = ()

    def spans(self, row: int, keys: Sequence[Any]) -> list[Span]:
        """The cells of a row over these columns; neighbours that say the same are one, on fewer lines."""
        found: list[Span] = []
        for key in keys:
            lines = self.cells[row].get(key, [])
            if found and lines and found[-1].lines == lines:
                found[-1] = Span((*found[-1].keys, key), lines)
            else:
                found.append(Span((key,), lines))
        return [self._joined(row, span) for span in found if span.lines]

    def _joined(self, row: int, span: Span) -> Span:
        if len(span.keys) == 1:
            return span
        return Span(span.keys, _lines(self.given[row].cells[span.keys[0]], self.order, ROOM * len(span.keys) / 2))

    def widths(self, keys: Sequence[Any]) -> dict[Any, float]:
        """How wide each of these columns has to be for its cells."""
        widths = dict.fromkeys(keys, 0.0)
        for row in range(len(self.cells)):
            for span in self.spans(row, keys):
                share = _wide(span.lines) / len(span.keys)
                widths |= {key: max(widths[key], share) for key in span.keys}
        return widths

    @property
    def total_width(self) -> float:
        """The widest total."""
        return max((_wide(lines) for lines in self.totals), default=0.0)

    @property
    def name_width(self) -> float:
        """The widest name of a row."""
        return max((runs_width(name, 11, SANS) for name in self.names), default=0.0)

    def height(self, row: int, keys: Sequence[Any], total: bool) -> float:
        """How high a row is over these columns; nothing where it says nothing about them."""
        spans = self.spans(row, keys)
        counts = [len(span.lines) for span in spans] + [len(self.totals[row]) if total else 0]
        if not any(counts):
            return 0.0
        return (9.0 if any(len(span.keys) > 1 for span in spans) else 5.0) + LINE * max([1, *counts])


def _wide(lines: list[Runs]) -> float:
    return max((runs_width(line, CELL) for line in lines), default=0.0)


def set_table(table: Table | None, columns: Sequence[Column], order: Sequence[str]) -> Cells:
    """The table in type; `order` is the order of axes in a product."""
    rows = table.rows if table else ()
    keys = [column.key for column in columns]
    cells = tuple(
        {key: lines for key in keys if (lines := _lines(row.cells.get(key), order, room_of(key)))} for row in rows
    )
    totals = tuple(_lines(row.total, order) for row in rows)
    return Cells(
        tuple(_row_name(row.name) for row in rows),
        tuple(row.level for row in rows),
        cells,
        totals,
        tuple(rows),
        tuple(order),
    )


def _row_name(name: str) -> Runs:
    """The name of a row; what follows a comma (its unit) in small type."""
    what, comma, unit = name.partition(", ")
    return roman(what) + ((Run(f"{comma}{unit}", scale=0.82),) if unit else ())


def room_of(key: Any) -> float:
    """How wide a cell may be before it breaks."""
    return ROOM if isinstance(key, tuple) else NARROW


def _lines(cell: Any, order: Sequence[str], room: float = ROOM) -> list[Runs]:
    if cell in (None, "", 0):
        return []
    if isinstance(cell, str):
        return [cut(roman(line), ROOM, CELL) for line in folded(cell, ROOM, CELL)]
    return _set_cell(sympy.sympify(cell), tuple(order), room)


@lru_cache(maxsize=1024)
def _set_cell(cell: Any, order: tuple[str, ...], room: float) -> list[Runs]:
    """An expression in lines; kept, because layers of one network say the same many times."""
    whole = formula(cell, order)
    return [whole] if runs_width(whole, CELL) <= room else _broken(whole, room)


def _broken(runs: Runs, room: float) -> list[Runs]:
    """A sum on several lines, each beginning with its sign."""
    terms: list[list[Run]] = [[]]
    for run in _split_at_signs(runs):
        if run.text.startswith(SIGNS):
            terms.append([])
        terms[-1].append(run)
    lines: list[Runs] = [tuple(terms[0])]
    for term in terms[1:]:
        longer = (*lines[-1], *term)
        lines[-1:] = [longer] if runs_width(longer, CELL) <= room else [lines[-1], tuple(term)]
    return [cut(line, 1.6 * room, CELL) for line in lines]


SIGNS = (" + ", " − ")
"""Where a formula may go on in the next line."""


def _split_at_signs(runs: Runs) -> Runs:
    pieces = []
    for run in runs:
        text = run.text
        for sign in SIGNS:
            text = text.replace(sign, f"\0{sign}")
        pieces += [replace(run, text=part) for part in text.split("\0") if part]
    return tuple(pieces)


__all__ = ["CELL", "LINE", "Cells", "Row", "Table", "set_table"]
