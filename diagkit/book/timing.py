"""Timing in chapters: the median of several runs after one that warms up, with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diagkit.bench import Shown
from diagkit.book.errors import BookError
from diagkit.book.show import seconds


@dataclass(frozen=True, repr=False)
class Timing(Shown):
    """Seconds of each run, in order; the first run, which warms up, is not among them.

    >>> found = Timing("numpy", (2.0, 1.0, 4.0))
    >>> found.median_s, found.rate(8), found.rows()[0]
    (2.0, 4.0, ('timed', 'numpy'))
    """

    what: str
    runs_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of the runs, in seconds."""
        return statistics.median(self.runs_s)

    def rate(self, amount: float) -> float:
        """`amount` per second of the median run: FLOP become FLOP/s, bytes become bytes/s."""
        return float(amount) / self.median_s

    def rows(self) -> list[tuple[str, str]]:
        """What the display shows."""
        spread = f"{seconds(min(self.runs_s))} to {seconds(max(self.runs_s))} in {len(self.runs_s)} runs"
        return [("timed", self.what), ("median", seconds(self.median_s)), ("spread", spread)]

    def __str__(self) -> str:
        return ", ".join(f"{name} {text}" for name, text in self.rows())


def timed(function: Callable[..., Any], *args: Any, budget_s: float = 0.5, **arrays: Any) -> Timing:
    """Time `function(*args, **arrays)`: one run to warm up, then at least 5 until `budget_s` is used up.

    At most 1000 runs. What the function returns is thrown away.

    >>> len(timed(sum, range(10), budget_s=0).runs_s)
    5
    """
    if not callable(function):
        raise BookError(f"{function!r} cannot be run", remedy="what to call comes first: timed(kernel, Q=...)")
    function(*args, **arrays)
    runs: list[float] = []
    while len(runs) < 5 or (sum(runs) < budget_s and len(runs) < 1000):
        start = time.perf_counter()
        function(*args, **arrays)
        runs.append(time.perf_counter() - start)
    return Timing(name_of(function), tuple(runs))


def name_of(function: Any) -> str:
    """What was called: its own name, or its kind."""
    return str(getattr(function, "name", "") or getattr(function, "__name__", type(function).__name__))
