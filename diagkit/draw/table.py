"""The cost table over a picture: rows of cells keyed by column, set by us, aligned with the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from diagkit.draw.fonts import SANS
from diagkit.draw.plan import GLOBAL, Column
from diagkit.draw.scene import Runs, runs_width
from diagkit.draw.typeset import cut, formula, roman

CELL = 12.0
LINE = 15.0
ROOM = 132.0
"""Wider cells break at their plus signs."""


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
class Cells:
    """A table set in type: for every row its name, level, and lines of runs by column key."""

    names: tuple[Runs, ...]
    levels: tuple[int, ...]
    cells: tuple[dict[Any, list[Runs]], ...]
    totals: tuple[list[Runs], ...]

    def width(self, key: Any) -> float:
        """The widest cell of a column."""
        return max((_wide(row.get(key, [])) for row in self.cells), default=0.0)

    @property
    def total_width(self) -> float:
        """The widest total."""
        return max((_wide(lines) for lines in self.totals), default=0.0)

    @property
    def name_width(self) -> float:
        """The widest name of a row."""
        return max((runs_width(name, 11, SANS) for name in self.names), default=0.0)

    def height(self, row: int, keys: Sequence[Any], total: bool) -> float:
        """How high a row is over these columns."""
        counts = [len(self.cells[row].get(key, [])) for key in keys] + [len(self.totals[row]) if total else 0]
        return 5.0 + LINE * max([1, *counts])


def _wide(lines: list[Runs]) -> float:
    return max((runs_width(line, CELL) for line in lines), default=0.0)


def set_table(table: Table | None, columns: Sequence[Column], order: Sequence[str]) -> Cells:
    """The table in type; `order` is the order of axes in a product."""
    rows = table.rows if table else ()
    keys = [column.key for column in columns]
    cells = tuple({key: lines for key in keys if (lines := _lines(_cell(row, key, columns), order))} for row in rows)
    totals = tuple(_lines(row.total, order) for row in rows)
    return Cells(tuple(roman(row.name) for row in rows), tuple(row.level for row in rows), cells, totals)


def _cell(row: Row, key: Any, columns: Sequence[Column]) -> Any:
    """The cell of a column; in a picture without loads and stores a column has those of its kernel too."""
    if key in row.cells or isinstance(key, tuple):
        return row.cells.get(key)
    return None


def _lines(cell: Any, order: Sequence[str]) -> list[Runs]:
    if cell in (None, "", 0):
        return []
    if isinstance(cell, str):
        return [cut(roman(cell), ROOM, CELL)]
    whole = formula(cell, order)
    if runs_width(whole, CELL) <= ROOM or not isinstance(sympy.sympify(cell), sympy.Add):
        return [cut(whole, 2 * ROOM, CELL)]
    return _broken(whole)


def _broken(runs: Runs) -> list[Runs]:
    """A sum on several lines, each beginning with its sign."""
    lines: list[list[Any]] = [[]]
    for run in _split_at_signs(runs):
        starts = run.text.startswith((" + ", " − "))
        if starts and runs_width(tuple(lines[-1]), CELL) > ROOM * 0.55:
            lines.append([])
        lines[-1].append(run)
    return [cut(tuple(line), 2 * ROOM, CELL) for line in lines]


def _split_at_signs(runs: Runs) -> Runs:
    from dataclasses import replace

    pieces = []
    for run in runs:
        text = run.text
        for sign in (" + ", " − "):
            text = text.replace(sign, f"\0{sign}")
        pieces += [replace(run, text=part) for part in text.split("\0") if part]
    return tuple(pieces)


__all__ = ["CELL", "GLOBAL", "LINE", "Cells", "Row", "Table", "set_table"]
