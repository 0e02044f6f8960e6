"""The cost table over a picture: what `cost` says per column, under the columns that `draw` shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from diagkit import cost, draw
from diagkit.term import Term

NAMES: dict[str, str] = {
    "H": "H ℓ{level}↔ℓ{below}, elements",
    "M": "M ℓ{level}, elements",
    "tensor": "tensor, FLOP",
    "fma": "fma, operations",
    "special": "special, operations",
}
"""What the rows are called, with their units."""


def cost_table(term: Term, written: Callable[[Any], Any] = cost.short) -> draw.Table:
    """The costs of `term` as rows over its picture; `written` says what stands in a cell for a formula.

    Under a mask that skips chunks, ``visits_x`` in a cell is how many positions of x all tiles visit.
    An unlabelled picture shows neither loads nor stores: there a column states what its own kernel moves.
    """
    shown = {column.key for column in draw.plan(term).columns}
    return draw.Table(tuple(_row(term, row, shown, written) for row in cost.columns(term)))


def _row(term: Term, row: cost.CostRow, shown: set[Any], written: Callable[[Any], Any]) -> draw.Row:
    cells = {key: cell for key, cell in row.cells.items() if key in shown}
    for key, cell in row.cells.items():
        if key not in shown and isinstance(key, tuple) and row.name == "H":
            column = term.regions[key[1]].boxes[-1]
            cells[column] = cells.get(column, 0) + cell
    brief = {key: written(cell) for key, cell in cells.items()}
    name = NAMES[row.name].format(level=row.level, below=row.level + 1)
    return draw.Row(name, row.level, brief, written(row.total))
