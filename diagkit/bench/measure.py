"""Timing kernels beside their rivals: in the same rounds, so that both meet the same noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagkit.bench.errors import KernelError
from diagkit.bench.launch import bind
from diagkit.bench.rivals import Rival, rival
from diagkit.bench.show import Shown, seconds
from diagkit.program import Program, lower
from diagkit.term import InputError, check_whole

_FLUSH_BYTES = 1 << 28


REST_S = 0.03
"""Seconds before each timed run on a CPU. Threads of OpenMP turn in circles for some 10 ms after their work, waiting
for more, and would take a core from whoever runs next: the one after torch seemed up to 20 % slower than it is."""

UNEVEN = 1.0
"""The spread of rounds, of their median, beyond which ratios mean little."""


@dataclass(frozen=True)
class Times:
    """Seconds of each run of one contestant, in order; what warmed up is not among them. `flops` are the
    operations of its products, where they are known.

    >>> times = Times("numpy", (2.0, 1.0, 4.0), flops=12)
    >>> times.median_s, times.spread, times.rate
    (2.0, 1.5, 6.0)
    """

    name: str
    runs_s: tuple[float, ...]
    flops: int

    @property
    def median_s(self) -> float:
        """The median run, in seconds."""
        return statistics.median(self.runs_s)

    @property
    def spread(self) -> float:
        """From the fastest to the slowest run, as a fraction of the median."""
        return (max(self.runs_s) - min(self.runs_s)) / self.median_s

    @property
    def rate(self) -> float:
        """FLOP per second of the median run, products only."""
        return self.flops / self.median_s


@dataclass(frozen=True, repr=False)
class Measured(Shown):
    """Times of a kernel and its rivals, taken in turns on `device`.

    `ratio(name)` is the median, over the rounds, of the rival's time over the kernel's: above 1 the kernel
    is faster. Against "gemm" it compares FLOP per second: the fraction of the matrix product's rate.

    >>> kernel, rival = Times("kernel", (1.0, 2.0, 1.0), 8), Times("numpy", (3.0, 4.0, 5.0), 8)
    >>> found = Measured("numba", "a CPU", (("q", 8),), False, kernel, (rival,))
    >>> found.ratio("numpy"), found.compare(overlapped_s=0.5, serial_s=1.5).within
    (3.0, True)
    >>> found.rows()[1]
    ('kernel', '1 s (spread 100%), 0.0 GFLOP/s')
    """

    target: str
    device: str
    sizes: tuple[tuple[str, int], ...]
    cold: bool
    kernel: Times
    rivals: tuple[Times, ...]

    def ratio(self, name: str) -> float:
        """How many times faster than that rival, round by round, in the median."""
        other = next((times for times in self.rivals if times.name == name), None)
        if other is None:
            known = ", ".join(times.name for times in self.rivals) or "none"
            raise InputError(f"{name!r} was not measured", remedy=f"measured: {known}")
        pairs = zip(other.runs_s, self.kernel.runs_s, strict=True)
        work = self.kernel.flops / other.flops if name == "gemm" else 1.0
        return work * statistics.median(rival / kernel for rival, kernel in pairs)

    def compare(self, overlapped_s: float, serial_s: float) -> Compared:
        """Beside a prediction: all resources at once, and one after the other, in seconds."""
        return Compared(self.kernel.median_s, overlapped_s, serial_s)

    def rows(self) -> list[tuple[str, str]]:
        """One row per contestant."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes)
        caches = "caches emptied before each run" if self.cold else "warm"
        found = [("measured", f"{self.target} on {self.device}, {sizes}, {caches}, {len(self.kernel.runs_s)} rounds")]
        found.append(("kernel", _times_text(self.kernel)))
        for other in self.rivals:
            share = (
                f"{self.ratio(other.name):.0%} of its rate"
                if other.name == "gemm"
                else f"{self.ratio(other.name):.2f}x"
            )
            found.append((other.name, f"{_times_text(other)}; kernel {share}"))
        uneven = [times.name for times in (self.kernel, *self.rivals) if times.spread > UNEVEN]
        if uneven:
            said = f"rounds of {', '.join(uneven)} differ by more than {UNEVEN:.0%}: repeat it on an idle machine"
            found.append(("doubtful", said))
        return found


def _times_text(times: Times) -> str:
    rate = f", {times.rate / 1e9:.1f} GFLOP/s" if times.flops else ""
    return f"{seconds(times.median_s)} (spread {times.spread:.0%}){rate}"


@dataclass(frozen=True, repr=False)
class Compared(Shown):
    """A measured time beside its prediction, in seconds: between `overlapped_s` and `serial_s`, or not.

    >>> found = Compared(measured_s=3e-3, overlapped_s=1e-3, serial_s=2e-3)
    >>> found.within, found.rows()[-1]
    (False, ('verdict', 'slower than serial, 3x overlapped'))
    """

    measured_s: float
    overlapped_s: float
    serial_s: float

    @property
    def within(self) -> bool:
        """Whether the measured time lies between the two predictions."""
        return self.overlapped_s <= self.measured_s <= self.serial_s

    def rows(self) -> list[tuple[str, str]]:
        """Prediction, measurement, verdict."""
        side = "faster than overlapped" if self.measured_s < self.overlapped_s else "slower than serial"
        factor = f"{self.measured_s / self.overlapped_s:.2g}x overlapped"
        return [
            ("predicted", f"{seconds(self.overlapped_s)} overlapped, {seconds(self.serial_s)} serial"),
            ("measured", seconds(self.measured_s)),
            (
                "verdict",
                "between the two" if self.within else f"{side}, {factor}",
            ),
        ]


def measure(
    program: Program,
    target: str,
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int],
    against: tuple[str, ...],
    repeats: int,
    cold: bool,
) -> Measured:
    """Warm everything up, then time the kernel and each rival once per round, each when the one before has come to
    rest."""
    check_whole(repeats, "repeats", 1)
    place = device(target)
    bound = bind(program, target, arrays, sizes)
    flops = contraction_flops(program, sizes)
    bound.launch.run()
    rivals = [rival(name, program.term, arrays, bound.results, sizes) for name in against]
    contestants = [Rival("kernel", bound.launch.run, flops), *rivals]
    rest_s = REST_S if target == "numba" else 0.0
    rounds = [[_once(one.run, cold, rest_s) for one in contestants] for _ in range(repeats)]
    times = [
        Times(one.name, tuple(column), one.flops if one.flops is not None else flops)
        for one, column in zip(contestants, zip(*rounds, strict=True), strict=True)
    ]
    return Measured(target, place, tuple(sorted(sizes.items())), cold, times[0], tuple(times[1:]))


def contraction_flops(program: Program, sizes: Mapping[str, int]) -> int:
    """Operations of the program's products at these sizes, masked chunks left out."""
    open_axes = {name: sizes[name] for name in program.missing if name in sizes}
    return lower(program.term, **{**dict(program.sizes), **open_axes}).count().flops


def _once(run: Callable[[], Any], cold: bool, rest_s: float) -> float:
    time.sleep(rest_s)
    if cold:
        np.ones(_FLUSH_BYTES, np.int8).sum()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _gpu() -> str:
    """The name of the GPU; what the interpreter takes is no time of a kernel, so nothing is timed without one."""
    from diagkit.bench.triton_run import on_gpu

    if not on_gpu():
        raise KernelError(
            "a Triton kernel is timed on a GPU, and there is none here",
            remedy="time the numba kernel here, or run make gpu where there is a GPU",
        )
    import torch

    return str(torch.cuda.get_device_name())


def device(target: str) -> str:
    """What the target runs on, in words."""
    from diagkit.machine import cores, processor

    if target == "triton":
        return _gpu()
    return f"{processor()}, {cores()} cores"
