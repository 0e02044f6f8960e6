"""The numbers over a picture: for each row of the cost table, one formula per column of the diagram."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.cost.exact import relax
from diagkit.cost.kernel import Kernel, kernels
from diagkit.cost.levels import level_memory
from diagkit.cost.memory import Memory
from diagkit.cost.transfers import kernel_transfers
from diagkit.cost.upper import largest
from diagkit.cost.visits import visited
from diagkit.cost.work import UNITS, work
from diagkit.term import Term, at_level, depth, flatten

Key = str | tuple[str, int] | tuple[str, int, int]
"""A column of the picture: the name of a box, or ("load", n) and ("store", n) of kernel number n; with a
third entry, the level (2 and up) into or out of which is loaded or stored."""


@dataclass(frozen=True)
class CostRow:
    """One row: `name` ("H" transfers, "M" memory, or a unit), its `unit`, the level it is about, the
    formula of each column that has one, and the total of the diagram."""

    name: str
    unit: str
    level: int
    cells: Mapping[Key, Any]
    total: Any


def columns(term: Term, *, relaxed: bool = False) -> tuple[CostRow, ...]:
    """The rows H (elements moved between levels 0 and 1), M (elements held at level 1), and one per unit
    of work that occurs ("tensor" in FLOP, "fma" and "special" in operations); the total of M is the peak.

    Several primitives in one column (a block, a streamed box) add up their work; memory takes the most.
    With `relaxed`, ceilings are dropped. Where labels speak of more levels there are rows H and M for each;
    H between fast levels is that of tiles that fit into those above (`level_transfers` has the rest).

    >>> from diagkit.ops import array, axes, exp, trace
    >>> Y = exp(array("X", axes("q")), name="Y")
    >>> [(row.name, dict(row.cells)) for row in columns(Term(*trace([Y])))][0]
    ('H', {('load', 0): q, ('store', 0): q})
    """
    held, deepest = level_memory(term), depth(term)
    cuts = {level: kernels(at_level(term, level)) for level in range(1, deepest + 1)}
    pairs = ((_moved(cut, level), _held(held[level], cut, level)) for level, cut in cuts.items())
    rows = (*(row for pair in pairs for row in pair), *_done(at_level(term, deepest), cuts[deepest], deepest))
    return tuple(_relaxed(row) for row in rows) if relaxed else rows


def short(cell: Any) -> Any:
    """A formula for a narrow cell: sums over tiles under a mask in a few letters (see `visited.short`)."""
    return cell.replace(lambda part: isinstance(part, visited), lambda part: part.short())


def _relaxed(row: CostRow) -> CostRow:
    cells = {key: relax(cell) for key, cell in row.cells.items()}
    return CostRow(row.name, row.unit, row.level, cells, relax(row.total))


def _moved(cut: tuple[Kernel, ...], level: int) -> CostRow:
    parts: dict[Key, list[Any]] = {}
    for kernel in cut:
        for key, amount in kernel_transfers(kernel):
            parts.setdefault(_crossing("load" if key.target else "store", kernel.number, level), []).append(amount)
    cells = {key: sympy.Add(*amounts) for key, amounts in parts.items()}
    return CostRow("H", "elements", level - 1, cells, sympy.Add(*cells.values()))


def _crossing(kind: str, number: int, level: int) -> Key:
    """The column of a load or store of a kernel at a level."""
    return (kind, number) if level == 1 else (kind, number, level)


def _held(held: Memory, cut: tuple[Kernel, ...], level: int) -> CostRow:
    place = {kernel.number: column_of(kernel) for kernel in cut}
    parts: dict[Key, list[Any]] = {}
    for (number, name), amount in held.columns().items():
        kind = "load" if name == "chunk" else name.rstrip("'")
        key = place[number].get(name) or _crossing(kind, number, level)
        parts.setdefault(key, []).append(amount)
    cells = {key: largest(amounts) for key, amounts in parts.items()}
    return CostRow("M", "elements", level, cells, held.peak())


def _done(term: Term, cut: tuple[Kernel, ...], level: int) -> list[CostRow]:
    place = {kernel.number: column_of(kernel) for kernel in cut}
    parts: dict[str, dict[Key, list[Any]]] = {unit: {} for unit in UNITS}
    for key, amount in work(term).items():
        parts[key.unit].setdefault(place[key.kernel][key.box], []).append(amount)
    rows = []
    for unit, found in parts.items():
        cells = {key: sympy.Add(*amounts) for key, amounts in found.items()}
        rows.append(
            CostRow(unit, "FLOP" if unit == "tensor" else "operations", level, cells, sympy.Add(*cells.values()))
        )
    return [row for row in rows if row.cells]


def column_of(kernel: Kernel) -> dict[str, str]:
    """The column of the diagram that each primitive of a kernel belongs to; what a stream adds belongs to
    the box it is named after."""
    inside = {part.name: name for name in kernel.region.boxes for part in flatten([kernel.term.box(name)])}
    made = [box.name for box in (*kernel.fixed, *kernel.step, *kernel.tail)]
    return inside | {name: _named_after(name, inside, kernel) for name in made if name not in inside}


def _named_after(name: str, inside: Mapping[str, str], kernel: Kernel) -> str:
    stem = name
    while stem and stem not in inside:
        stem = stem.rpartition(".")[0]
    return inside.get(stem, kernel.region.boxes[-1])
