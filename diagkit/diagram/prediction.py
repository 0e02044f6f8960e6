"""A diagram on a machine: the tile that fits, the time by resource, what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from diagkit import cost, machine
from diagkit.cost import LegalTile
from diagkit.machine import Machine, Times, times
from diagkit.term import DiagkitError, Term, promote

ASSUMED = "no cache shared between groups, no latency, every unit at its stated peak"


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a diagram should do on a machine.

    * `tiles`: elements by tile; `chosen`: how they were found, None where they were given;
    * `moved`: bytes across global memory; `held`, `fits`: bytes of fast memory, and whether a block has them;
    * `times`: seconds per resource, with the serial and the overlapped bound.
    """

    machine: Machine
    dtype: str
    sizes: Mapping[str, int]
    tiles: Mapping[str, int]
    chosen: LegalTile | None
    moved: int
    held: int
    times: Times

    @property
    def fits(self) -> bool:
        """Whether what a kernel holds fits the fast memory of one block."""
        return self.held <= self.machine.capacity("shared", per_block=True)

    def rows(self) -> list[tuple[str, str]]:
        """Name and value with unit, for display."""
        low, high = self.times.rate()
        room = self.machine.capacity("shared", per_block=True)
        rows = [("machine", f"{self.machine.name}, {self.dtype}")]
        rows += [("sizes", ", ".join(f"{name}={number}" for name, number in self.sizes.items()))]
        rows += [(tile, f"{number} elements") for tile, number in self.tiles.items()]
        rows += [("held", f"{self.held:,} of {room:,} bytes per block{'' if self.fits else ': does not fit'}")]
        rows += [("moved", f"{self.moved:,} bytes")]
        rows += [(f"time, {name}", f"{seconds * 1e6:.4g} µs") for name, seconds in self.times.seconds]
        rows += [(f"time, {name}", "not stated by the machine, left out") for name in self.times.unknown]
        rows += [("bottleneck", self.times.bottleneck)]
        rows += [("time", f"{self.times.overlapped * 1e6:.4g} µs overlapped, {self.times.serial * 1e6:.4g} µs serial")]
        rows += [("rate", f"{low / 1e12:.4g} to {high / 1e12:.4g} TFLOP/s")]
        return [*rows, ("assumed", ASSUMED)]

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.rows())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        style = "text-align:left;padding:1px 10px 1px 0"
        cells = "".join(
            f'<tr><th style="{style}">{escape(name)}</th><td style="{style}">{escape(value)}</td></tr>'
            for name, value in self.rows()
        )
        return f'<table style="border-collapse:collapse">{cells}</table>'


def predict(term: Term, name: str | Machine, dtype: str | None, given: Mapping[str, int]) -> Prediction:
    """The prediction for `term` on a machine or the one of that name, at sizes and tiles in elements.

    Tiles that are not given are the best legal ones for the fast memory of one block. Raises DiagkitError
    for a size that is missing, MachineError for an unknown machine or format.
    """
    found = name if isinstance(name, Machine) else machine.load(name)
    kind = dtype or promote([array.dtype for array in term.inputs if array.dtype != "bool"])
    need_sizes(term, given)
    sizes = term.numbers(given)
    tiles, chosen = _tiles(term, found, dtype, given, sizes)
    everything = {**{name: int(given[name]) for name in term.open_sizes}, **tiles}
    moved = cost.transfers(term).bytes(dtype).total(**everything)
    held = cost.memory(term).bytes(dtype).peak(**everything)
    work = {unit: float(cost.evaluate(amount, everything)) for unit, amount in cost.work(term).by_unit().items()}
    measured = times(found, {"global": float(moved)}, {unit: n for unit, n in work.items() if n}, kind)
    return Prediction(found, kind, sizes, tiles, chosen, int(moved), int(held), measured)


def need_sizes(term: Term, given: Mapping[str, Any]) -> None:
    """Refuse where the size of an axis is missing."""
    missing = [name for name in term.open_sizes if name not in given]
    if missing:
        raise DiagkitError(
            f"{term.name} needs a size for axis {missing[0]!r}",
            axis=missing[0],
            remedy=f"give {', '.join(f'{name}=...' for name in missing)} in elements",
        )


def _tiles(
    term: Term, found: Machine, dtype: str | None, given: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[dict[str, int], LegalTile | None]:
    """Tiles by name: those given, else the best that fit."""
    wanted = [label.tile.name for label in term.labels if label.tile.is_Symbol and label.level == 1]
    if all(tile in given for tile in wanted):
        return {tile: given[tile] for tile in wanted}, None
    room = found.capacity("shared", per_block=True)
    fixed: dict[str, Any] = {tile: given[tile] for tile in wanted if tile in given}
    free: dict[str, Any] = {name: int(given[name]) for name in term.open_sizes}
    best = cost.legal_tile(term, room, unit="bytes", dtype=dtype, **free, **fixed)
    return {tile: int(best.tiles.get(tile, fixed.get(tile, 0))) for tile in wanted}, best
