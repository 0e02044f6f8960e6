"""A diagram at many sizes, tiles and machines at once: amounts, times and rates as one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import product
from typing import Any, Self

import numpy as np

from diagkit import cost
from diagkit.diagram.prediction import NEEDED, need_sizes, several, tiles_on
from diagkit.machine import Machine, MachineError, resource_rate
from diagkit.term import DiagkitError, Term, accepted, as_float, check_whole, depth, promote

SHOWN = 20
"""How many rows a table displays; the others are there all the same."""

SCALES = {"s": ("µs", 1e-6), "FLOP/s": ("TFLOP/s", 1e12)}
"""Units that are displayed in another, and what one of that is worth."""


@dataclass(frozen=True)
class Column:
    """A column: its name, the unit of its `values` ("" for names and truth), one value per row."""

    name: str
    unit: str
    values: np.ndarray[Any, Any]

    @property
    def head(self) -> str:
        """Name and unit, as displayed."""
        unit = SCALES.get(self.unit, (self.unit, 1.0))[0]
        return f"{self.name}, {unit}" if unit else self.name

    def cell(self, row: int) -> str:
        """The value of a row, as displayed."""
        value = self.values[row]
        if self.unit in SCALES:
            return "not stated" if np.isnan(value) else f"{value / SCALES[self.unit][1]:.4g}"
        return str(_WRITTEN.get(type(value), lambda number: f"{number:,}")(value))


_WRITTEN: dict[type, Any] = {str: str, np.str_: str, np.bool_: lambda yes: "yes" if yes else "no"}


@dataclass(frozen=True, repr=False, eq=False)
class Sweep:
    """Many points of one diagram: a row for each machine, sizes and tiles.

    * sizes and tiles in elements; "held" in fast memory and "moved" across global memory in bytes, exactly;
    * "fits": whether a block of the machine has what is held; "tensor" FLOP, "fma" and "special" operations;
    * seconds per resource ("time global" ...; nan where the machine states no rate), "overlapped" and
      "serial" bounds, the "bottleneck", and "rate": matrix FLOP/s at most.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> tiled = dk.Diagram(C, name="product").group(a="g_a", c="g_c").stream(b="s_b")
    >>> found = tiled.sweep(["T4", "H100-SXM"], "fp16", a=4096, b=4096, c=4096, g_a=[64, 128], g_c=128, s_b=32)
    >>> len(found), found.units["moved"], found.row(0)["machine"], len(found.where(machine="T4", fits=True))
    (4, 'bytes', 'T4', 2)
    >>> found.best()["machine"], found.sorted("overlapped").row(0)["g_a"]
    ('H100-SXM', 128)
    """

    name: str
    dtype: str
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0].values)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """The values of a column."""
        return self._column(name).values

    def _column(self, name: str) -> Column:
        found = next((column for column in self.columns if column.name == name), None)
        if found is None:
            raise DiagkitError(f"no column {name!r}", remedy=f"columns: {', '.join(c.name for c in self.columns)}")
        return found

    @property
    def units(self) -> dict[str, str]:
        """The unit of the values of every column."""
        return {column.name: column.unit for column in self.columns}

    def row(self, number: int) -> dict[str, Any]:
        """One row as plain values by column."""
        if check_whole(number, "a row") >= len(self):
            raise DiagkitError(f"no row {number}", remedy=f"there are {len(self)}, numbered from 0")
        return {column.name: column.values[number : number + 1].tolist()[0] for column in self.columns}

    def where(self, **fixed: Any) -> Self:
        """The rows that have these values: ``where(machine="T4", fits=True)``."""
        kept = np.ones(len(self), dtype=bool)
        for name, value in fixed.items():
            kept &= self[name] == value
        return self._taken(np.flatnonzero(kept))

    def sorted(self, by: str) -> Self:
        """The rows in order of a column, smallest first."""
        return self._taken(np.argsort(self[by], kind="stable"))

    def best(self, by: str = "overlapped") -> dict[str, Any]:
        """The row that fits with the least value of a column. Errors: DiagkitError where none fits."""
        fitting = self.where(fits=True).sorted(by)
        if not len(fitting):
            raise DiagkitError("no point fits the fast memory of a block", remedy="sweep smaller tiles")
        if fitting[by].dtype.kind == "f" and np.isnan(fitting[by][0]):
            raise DiagkitError(f"no machine here states the rates of {by!r}", remedy="another format, or machine")
        return fitting.row(0)

    def _taken(self, rows: Any) -> Self:
        return replace(self, columns=tuple(replace(column, values=column.values[rows]) for column in self.columns))

    def _cells(self) -> Iterator[list[str]]:
        yield [column.head for column in self.columns]
        for row in range(min(SHOWN, len(self))):
            yield [column.cell(row) for column in self.columns]

    def _heading(self) -> str:
        rest = f", the first {SHOWN} shown" if len(self) > SHOWN else ""
        return f"{self.name} in {self.dtype}: {len(self):,} points{rest}"

    def __repr__(self) -> str:
        rows = list(self._cells())
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join([self._heading(), *("  ".join(map(str.rjust, row, widths)) for row in rows)])

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        rows = "".join(_html_row(row, "td") for row in body)
        caption = f'<caption style="text-align:left">{escape(self._heading())}</caption>'
        table = f'<table style="border-collapse:collapse">{caption}{_html_row(head, "th")}{rows}</table>'
        return f'<div style="overflow-x:auto">{table}</div>'


def _html_row(cells: Sequence[str], tag: str) -> str:
    style = "text-align:right;padding:1px 10px 1px 0;white-space:nowrap"
    return "<tr>" + "".join(f'<{tag} style="{style}">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"


def sweep(term: Term, machines: Any, dtype: str | None, given: Mapping[str, Any]) -> Sweep:
    """Every machine at every combination of the sizes and tiles `given`: numbers, sequences of numbers, or
    the name of another size that it equals. Tiles that are not given are the best legal ones of each point.

    Raises DiagkitError for a size that is missing, MachineError for an unknown machine.
    """
    need_sizes(term, given)
    kind = dtype or promote([array.dtype for array in term.inputs if array.dtype != "bool"])
    known = accepted(term)
    for name in given:
        if name not in known and name not in term.axes:
            raise DiagkitError(_not_swept(term, name), axis=name, remedy=f"it takes: {', '.join(known)}")
    found = several(machines)
    points, ready = combinations(given), cost.amounts(term, dtype)
    same = ready.at(**points) if not _missing(term, points) else None
    parts = [_on(ready, one, kind, *_at(term, ready, one, dtype, points, same)) for one in found]
    heads = [(column.name, column.unit) for column in parts[0]]
    joined = zip(*([column.values for column in part] for part in parts), strict=True)
    columns = (Column(*head, np.concatenate(values)) for head, values in zip(heads, joined, strict=True))
    return Sweep(term.name, kind, tuple(columns))


def _not_swept(term: Term, name: str) -> str:
    """Why this is nothing that a sweep turns."""
    inner = name in accepted(term, depth(term))
    deeper = f"{name!r} is a tile of a level inside; a sweep is about the outermost level"
    return deeper if inner else f"{term.name} has no size or tile {name!r}"


def combinations(given: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Each size at every combination of all: what is given as one number or a name takes no dimension.

    >>> {name: values.tolist() for name, values in combinations({"q": [1, 2], "x": "q", "d": [5, 6]}).items()}
    {'q': [1, 1, 2, 2], 'x': [1, 1, 2, 2], 'd': [5, 6, 5, 6]}
    """
    free = {name: _values(name, values) for name, values in given.items() if not isinstance(values, str)}
    rows = list(product(*free.values()))
    points = {name: np.array(column, dtype=object) for name, column in zip(free, zip(*rows, strict=True), strict=True)}
    strange = [name for name, other in given.items() if isinstance(other, str) and other not in points]
    if strange:
        raise DiagkitError(
            f"{strange[0]} follows {given[strange[0]]!r}, which has no values", axis=strange[0],
            remedy=f"a number, a sequence of numbers, or one of: {', '.join(points) or 'none'}",
        )  # fmt: skip
    return {name: points[values] if isinstance(values, str) else points[name] for name, values in given.items()}


def _values(name: str, values: Any) -> Sequence[Any]:
    listed = values.tolist() if hasattr(values, "tolist") else values
    numbers = list(listed) if isinstance(listed, Sequence | range) else [listed]
    if not numbers:
        raise DiagkitError(f"{name} without values has no points", axis=name, remedy="give at least one number")
    return [check_whole(number, name, 1) for number in numbers]


Points = Mapping[str, np.ndarray[Any, Any]]


def _missing(term: Term, points: Points) -> list[str]:
    """The tiles that nobody gave."""
    wanted = [label.tile.name for label in term.labels if label.tile.is_Symbol and label.level == 1]
    return [tile for tile in dict.fromkeys(wanted) if tile not in points]


def _with_tiles(term: Term, one: Machine, dtype: str | None, points: Points) -> Points:
    """The points with the best legal tile on a machine where tiles are not given; each point is searched once."""
    rows = list(zip(*(column.tolist() for column in points.values()), strict=True))
    at = {row: dict(zip(points, row, strict=True)) for row in rows}
    known = {row: tiles_on(term, one, dtype, given, term.numbers(given))[0] for row, given in at.items()}
    missing = _missing(term, points)
    return {**points, **{tile: np.array([known[row][tile] for row in rows], dtype=object) for tile in missing}}


def _at(term: Term, ready: cost.Amounts, one: Machine, dtype: str | None, points: Points, same: Any) -> tuple[Any, Any]:
    """The points of a machine and their amounts: the `same` on all where every tile was given."""
    if same is not None:
        return points, same
    chosen = _with_tiles(term, one, dtype, points)
    return chosen, ready.at(**chosen)


def _on(ready: cost.Amounts, one: Machine, kind: str, points: Points, amounts: Mapping[str, Any]) -> list[Column]:
    """The columns of one machine."""
    number = len(next(iter(amounts.values())))
    seconds = {name: _floats(amounts[key], key) / _rate(one, name, kind) for name, key in _resources(amounts).items()}
    times = np.array(list(seconds.values()))
    stated = np.where(np.isnan(times), 0.0, times)
    known = not any(np.isnan(seconds[name]).any() for name in NEEDED if name in seconds)
    slowest = np.array(list(seconds))[stated.argmax(axis=0)]
    overlapped = stated.max(axis=0) if known else np.full(number, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = _floats(amounts.get("tensor", np.zeros(number)), "tensor") / overlapped
    room = one.capacity("shared", per_block=True)
    columns = [Column("machine", "", np.full(number, one.name))]
    columns += [Column(name, "elements", np.broadcast_to(values, number)) for name, values in points.items()]
    columns += [Column("held", "bytes", amounts["held"]), Column("fits", "", (amounts["held"] <= room).astype(bool))]
    columns += [Column(name, ready.units[name], values) for name, values in amounts.items() if name != "held"]
    columns += [Column(f"time {name}", "s", column) for name, column in zip(seconds, times, strict=True)]
    columns += [Column("overlapped", "s", overlapped), Column("serial", "s", stated.sum(axis=0) + 0 * overlapped)]
    return [*columns, Column("bottleneck", "", slowest), Column("rate", "FLOP/s", rate)]


def _floats(amounts: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Exact amounts, of any length, as floats; refused where one has no float."""
    return np.array([as_float(one, name) for one in amounts.tolist()])


def _resources(amounts: Mapping[str, Any]) -> dict[str, str]:
    """The resources that take time, and what each works off."""
    return {"global": "moved"} | {unit: unit for unit in ("tensor", "fma", "special") if unit in amounts}


def _rate(one: Machine, name: str, kind: str) -> float:
    """Per second, or nan where the machine does not state it."""
    try:
        return resource_rate(one, name, kind)
    except MachineError:
        return float("nan")
