"""The landscape of tiles: one kernel timed at many of them, in turns, so that all meet the same noise.

Of many noisy times the smallest is too small: who is called the best of thirty has also been lucky. So all who
may be the best are timed again, several times as often, before one of them is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np

from diagkit.bench.errors import KernelError
from diagkit.bench.measure import device
from diagkit.bench.show import Shown, seconds
from diagkit.ops import open_arrays
from diagkit.program import Program, lower
from diagkit.term import InputError

_ANY_TILE = {"numba": ("diagkit.bench.numba_run", "any_tile"), "triton": ("diagkit.bench.triton_run", "launch")}
"""What binds a program with its tiles, by target."""

CLOSE, AGAIN = 0.25, 4
"""Tiles within this fraction of the fastest may be the best; how many times the rounds they run again."""

Tiles = tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Landscape(Shown):
    """Times by tile: `times_s` has the seconds of the fastest round at each combination of the tiles `names`.

    The fastest, not the median: what disturbs a run only ever makes it slower.

    >>> found = Landscape("numba", "a CPU", ("g_q",), {(64,): 2e-3, (128,): 1e-3})
    >>> found.best, found.loss(g_q=64), found.milliseconds
    ((128,), 1.0, {(64,): 2.0, (128,): 1.0})
    >>> found.rows()[1]
    ('best', 'g_q=128: 1 ms')
    """

    target: str
    device: str
    names: tuple[str, ...]
    times_s: Mapping[Tiles, float]

    @property
    def best(self) -> Tiles:
        """The fastest combination."""
        return min(self.times_s, key=lambda tiles: self.times_s[tiles])

    def loss(self, **tiles: int) -> float:
        """How much slower than the best these tiles are, as a fraction."""
        at = tuple(tiles.get(name, 0) for name in self.names)
        if at not in self.times_s or len(tiles) != len(at):
            known = ", ".join(f"{name}={n}" for name, n in zip(self.names, self.best, strict=True))
            raise InputError(f"no time for these tiles: {tiles}", remedy=f"measured, among others: {known}")
        return self.times_s[at] / self.times_s[self.best] - 1

    @property
    def milliseconds(self) -> dict[Tiles, float]:
        """The times in milliseconds."""
        return {tiles: 1000 * time_s for tiles, time_s in self.times_s.items()}

    def rows(self) -> list[tuple[str, str]]:
        """The best tile, and the range."""
        best = ", ".join(f"{name}={tile}" for name, tile in zip(self.names, self.best, strict=True))
        slowest = max(self.times_s.values())
        return [
            ("landscape", f"{self.target} on {self.device}, {len(self.times_s)} tiles of {', '.join(self.names)}"),
            ("best", f"{best}: {seconds(self.times_s[self.best])}"),
            ("slowest", f"{seconds(slowest)}, {slowest / self.times_s[self.best]:.2g} times as long"),
        ]


def landscape(
    program: Program,
    target: str,
    arrays: Mapping[str, Any],
    tiles: Mapping[str, Sequence[int]],
    rounds: int,
    tolerance: float,
) -> Landscape:
    """Bind the program with every combination of `tiles`, compare their results with each other (within
    `tolerance` of the largest value), and time them in turns."""
    place, bound = device(target), dict(program.sizes)
    _known(bound, tiles)
    runs = {}
    first = None
    for at in product(*tiles.values()):
        changed = {**bound, **dict(zip(tiles, at, strict=True))}
        runs[at], outputs = _bound(lower(program.term, **changed), target, arrays)
        first = first or {name: np.array(value) for name, value in outputs.items()}
        _agree(first, outputs, dict(zip(tiles, at, strict=True)), tolerance)
    fastest = _fastest(runs, rounds)
    close = {at: runs[at] for at, time_s in fastest.items() if time_s <= (1 + CLOSE) * min(fastest.values())}
    again = _fastest(close, AGAIN * rounds)
    return Landscape(
        target, place, tuple(tiles), {at: min(time_s, again.get(at, time_s)) for at, time_s in fastest.items()}
    )


def _fastest(runs: Mapping[Tiles, Callable[[], None]], rounds: int) -> dict[Tiles, float]:
    """The seconds of the fastest of some rounds, in which all take turns."""
    times = [{at: _once(run) for at, run in runs.items()} for _ in range(rounds)]
    return {at: min(one[at] for one in times) for at in runs}


def _known(bound: Mapping[str, Any], tiles: Mapping[str, Sequence[int]]) -> None:
    for name in tiles:
        if name not in bound:
            raise InputError(f"no tile {name!r}", axis=name, remedy=f"the kernel has: {', '.join(bound)}")


def _bound(program: Program, target: str, arrays: Mapping[str, Any]) -> tuple[Callable[[], None], Mapping[str, Any]]:
    """What runs the kernels, once it has run; and the outputs."""
    module, function = _ANY_TILE[target]
    engine, start = open_arrays(program.term, arrays, sizes=program.known)
    launch = getattr(import_module(module), function)(program, engine.sizes, start)
    launch.run()
    return launch.run, launch.outputs


def _agree(first: Mapping[str, Any], outputs: Mapping[str, Any], tiles: Mapping[str, int], tolerance: float) -> None:
    for name, value in outputs.items():
        largest = float(np.max(np.abs(first[name]), initial=0.0)) or 1.0
        if not np.allclose(np.asarray(value), first[name], rtol=0, atol=2 * tolerance * largest, equal_nan=True):
            raise KernelError(f"{name!r} differs at the tiles {dict(tiles)}", remedy="check the kernel at these tiles")


def _once(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
