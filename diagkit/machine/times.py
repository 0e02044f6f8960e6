"""Time by resource: what each memory and each unit of a machine takes for its share of the work.

Two bounds, both without latency, launch, or caches shared between groups: `serial` adds the resources up
(nothing overlaps), `overlapped` takes the slowest (everything does). A measured time falls between where
the model holds. `serial` is the weighted sum of arXiv 2412.03317, section 4.2; `overlapped` is the roofline's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from diagkit.machine.facts import Machine, MachineError, need_machine


@dataclass(frozen=True)
class Times:
    """Seconds per resource of a machine, and the bounds that follow.

    * `seconds`: by resource ("global" memory, "tensor", "fma", "special" units);
    * `flop`: matrix FLOP that rates refer to; `unknown`: resources that the machine states no rate for.

    >>> Times((("global", 2e-3), ("tensor", 1e-3)), 6e9).bottleneck
    'global'

    >>> spent = Times((("global", 2e-3), ("tensor", 1e-3)), 6e9)
    >>> spent.overlapped, spent.serial, spent.rate()
    (0.002, 0.003, (2000000000000.0, 3000000000000.0))
    """

    seconds: tuple[tuple[str, float], ...]
    flop: float
    unknown: tuple[str, ...] = ()

    @property
    def serial(self) -> float:
        """Seconds if nothing overlaps."""
        return sum(time for _, time in self.seconds)

    @property
    def overlapped(self) -> float:
        """Seconds if everything overlaps."""
        return max((time for _, time in self.seconds), default=0.0)

    @property
    def bottleneck(self) -> str:
        """The resource that takes longest."""
        return max(self.seconds, key=lambda pair: pair[1])[0]

    def rate(self) -> tuple[float, float]:
        """Matrix FLOP/s, at least (serial) and at most (overlapped)."""
        return self.flop / self.serial, self.flop / self.overlapped


def times(machine: Machine, moved: Mapping[str, float], work: Mapping[str, float], dtype: str) -> Times:
    """The time of every resource: bytes `moved` by level, `work` by unit ("tensor" in FLOP, in the format
    `dtype`; "fma" and "special" in operations). What a machine states no rate for is named in `unknown`.

    >>> from diagkit.machine import load
    >>> found = times(load("H100-SXM"), {"global": 3.35e9}, {"tensor": 989.4e9}, "fp16")
    >>> [(name, round(seconds, 6)) for name, seconds in found.seconds]
    [('global', 0.001), ('tensor', 0.001)]
    """
    need_machine(machine)
    seconds, unknown = [], []
    for name, amount in (*moved.items(), *work.items()):
        try:
            seconds.append((name, amount / resource_rate(machine, name, dtype)))
        except MachineError:
            unknown.append(name)
    return Times(tuple(seconds), work.get("tensor", 0.0), tuple(unknown))


def resource_rate(machine: Machine, name: str, dtype: str) -> float:
    """What a resource of the whole device does in a second: bytes of a memory level, by its name; FLOP of the
    "tensor" units in `dtype`; results of the "fma" and "special" units (a multiply-add is one result).

    Errors: MachineError where the machine does not state it.

    >>> from diagkit.machine import load
    >>> resource_rate(load("H100-SXM"), "global", "fp16")
    3350000000000.0
    """
    need_machine(machine)
    per_s = machine.multiprocessors * machine.clock_hz
    units: dict[str, Callable[[], float]] = {
        "tensor": lambda: machine.peak(dtype),
        "fma": lambda: machine.fma_rate("fp32") / 2 * per_s,
        "special": lambda: machine.exp_rate() * per_s,
    }
    return units[name]() if name in units else machine.bandwidth(name)
