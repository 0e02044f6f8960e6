"""The picture as plain text: one row per column, for terminals and screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from diagkit.draw.fonts import clean
from diagkit.draw.table import Table
from diagkit.draw.wording import axes_words
from diagkit.term import LEVEL_NAMES, Label, Term, depth

HEAD = ("box", "kind", "reads", "makes", "level")


def listing(term: Term, table: Table | None = None) -> str:
    """The diagram as text: inputs, one row per box with what it reads and makes and where that lives,
    labels, results; with a table its cells too.

    >>> from diagkit.term import Array, Axis, Reduce
    >>> q = Axis("q")
    >>> print(listing(Term((Array("X", (q,)),), (Reduce("m", (), ("X",), "max", ("q",)),), ("m",), "top")))
    top
    inputs   X(q)
    box  kind    reads  makes  level
    m    reduce  X      ()     global
    results  m
    """
    heads = HEAD + tuple(row.name for row in table.rows if _any(term, row.cells)) if table else HEAD
    rows = [heads] + [_row(term, box, table, heads) for box in term.boxes]
    lines = [clean(term.name), "inputs   " + (", ".join(clean(_input(term, a)) for a in term.inputs) or "none")]
    lines += _aligned(rows) if term.boxes else []
    lines += [f"{label.kind:<8} {clean(label.axis)} in tiles of {label.tile}{at(label)}" for label in term.labels]
    lines += [f"carried  {_carried(form)}" for form in term.forms]
    lines += [f"total    {row.name}: {row.total}" for row in (table.rows if table else ()) if row.total is not None]
    return "\n".join([*lines, "results  " + clean(", ".join(term.outputs))])


def at(label: Label) -> str:
    """Where a label holds, unless it is the level that all have.

    >>> at(Label("group", "q", 8)), at(Label("group", "q", 8, level=2))
    ('', ' at level 2')
    """
    return f" at level {label.level}" if label.level > 1 else ""


def _any(term: Term, cells: Any) -> bool:
    return any(box.name in cells for box in term.boxes)


def _input(term: Term, array: Any) -> str:
    dtype = "" if array.dtype == "fp32" else f" {array.dtype}"
    return f"{array.name}{axes_words(term.wires[array.name])}{dtype}{' weight' if array.weight else ''}"


def _carried(form: Any) -> str:
    states = ", ".join(f"{one.name} from {one.start}{_narrow(one.dtype)}" for one in form.state)
    return f"{states} over {form.axis} ({form.method})"


def _narrow(dtype: str) -> str:
    return "" if dtype in ("fp32", "fp64") else f" in {dtype}"


def _row(term: Term, box: Any, table: Table | None, heads: Sequence[str]) -> tuple[str, ...]:
    wire = term.wires[box.name]
    own = term.level(box.name)
    level = "made where read" if wire.virtual else LEVEL_NAMES[max(own, depth(term)) if own else 0]
    kind = getattr(box, "title", box.kind)
    cells = [str(row.cells.get(box.name, "")) for row in (table.rows if table else ()) if row.name in heads]
    return tuple(clean(text) for text in (box.name, kind, ", ".join(box.inputs), axes_words(wire), level, *cells))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(text.ljust(wide) for text, wide in zip(row, widths, strict=True)).rstrip() for row in rows]
