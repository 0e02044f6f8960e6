"""Speeds that were measured on GPUs: one JSON file per run in data/measurements, the newest shown with its device.

A file holds `device`, `date` (ISO), `versions` by package, and `results`: rows of plain numbers and texts by
name, times in seconds, rates in FLOP per second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from diagkit.bench.errors import KernelError
from diagkit.bench.show import CELL

FIELDS = ("device", "date", "versions", "results")
NONE = (
    "No GPU speed is recorded yet: data/measurements holds no file. `make gpu`, on a machine that has one, writes it."
)


@dataclass(frozen=True)
class Recorded:
    """One recorded run: `results` are rows of numbers and texts by name, in the order of the file.

    >>> found = Recorded(
    ...     "a GPU", "2026-01-01", {"torch": "2.13.0"}, ({"kind": "copy", "time_s": 1.0}, {"kind": "attention"})
    ... )
    >>> found.title, found.where(kind="attention").results
    ('recorded on a GPU, 2026-01-01 (torch 2.13.0)', ({},))
    >>> found.where(kind="copy").table()[0]
    ['time, ms']
    """

    device: str
    date: str
    versions: Mapping[str, str]
    results: tuple[Mapping[str, Any], ...]

    def where(self, **wanted: Any) -> Recorded:
        """Only the rows that have these values, without the columns that say so."""
        found = [row for row in self.results if all(row.get(name) == value for name, value in wanted.items())]
        kept = [{name: value for name, value in row.items() if name not in wanted} for row in found]
        return Recorded(self.device, self.date, self.versions, tuple(kept))

    @property
    def title(self) -> str:
        """Where and when: device, date, versions."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"recorded on {self.device}, {self.date}" + (f" ({versions})" if versions else "")

    def table(self) -> list[list[str]]:
        """The names of the columns, then the rows as text."""
        columns = list(dict.fromkeys(name for row in self.results for name in row))
        heads = [_head(name) for name in columns]
        return [heads, *([_text(name, row.get(name)) for name in columns] for row in self.results)]

    def __str__(self) -> str:
        table = self.table()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join([self.title, *("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)])

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        head, *rows = ("".join(f'<td style="{CELL}">{escape(cell)}</td>' for cell in row) for row in self.table())
        body = "".join(f"<tr>{row}</tr>" for row in (head.replace("<td", "<th").replace("</td", "</th"), *rows))
        return f"<p>{escape(self.title)}</p><table>{body}</table>"


@dataclass(frozen=True)
class Nothing:
    """What is shown where nothing is recorded.

    >>> str(Nothing("no record")) == Nothing("no record").text
    True
    """

    text: str = NONE

    def __str__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(self.text)


_UNITS = {"_flop_per_s": ("TFLOP/s", 1e-12), "_byte_per_s": ("TB/s", 1e-12), "_s": ("ms", 1e3)}
"""How columns are shown, by the end of their names: unit and factor."""


def _unit(name: str) -> tuple[str, str, float]:
    """What the column holds, its unit, and the factor to it."""
    end = next((end for end in _UNITS if name.endswith(end)), "")
    return (name.removesuffix(end).replace("_", " "), *_UNITS.get(end, ("", 1.0)))


def _head(name: str) -> str:
    what, unit, _ = _unit(name)
    return f"{what}, {unit}" if unit else what


def _text(name: str, value: Any) -> str:
    """A number in the unit of its column; nothing where there is none."""
    if isinstance(value, float):
        return f"{value * _unit(name)[2]:.4g}"
    return "" if value is None else str(value)


def recorded(folder: Path | None = None, **wanted: Any) -> Recorded | Nothing:
    """The newest recorded run, its rows that have the `wanted` values; a sentence where there is none.

    Raises KernelError for a file that is no record.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     print(recorded(Path(folder), kind="attention"))
    No GPU speed is recorded yet: data/measurements holds no file. `make gpu`, on a machine that has one, writes it.
    """
    from diagkit.machine import data_path

    place = folder or data_path() / "measurements"
    runs = [read(path) for path in sorted(place.glob("*.json"))] if place.is_dir() else []
    return max(runs, key=lambda run: run.date).where(**wanted) if runs else Nothing()


def read(path: Path) -> Recorded:
    """The record in a file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Recorded(found["device"], found["date"], found["versions"], tuple(found["results"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = f"a record is JSON with {', '.join(FIELDS)}"
        raise KernelError(f"{path.name} is no record of measurements: {error}", remedy=remedy) from error
