"""What warpgroups hide of the softmax behind the products: a model in two forms, closed and scheduled.

A warpgroup's step is QK (tensor cores), softmax (special-function units), PV (tensor cores). The products of
a step take 1 together, half each where their formats are one; softmax takes sigma. Two ways to overlap them:

* "intra": one warpgroup starts the next QK beside the softmax at hand, so PV + max(QK, sigma) a step;
* "inter": n warpgroups take turns and none overlaps itself, so max(1, sigma, (1 + sigma) / n) a step.

The scheduled form plays the rules out, operation by operation, and knows neither formula.
Source: the reading of FlashAttention-3 in arXiv 2412.03317, section 6. A model, not a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from numbers import Real

from diagkit.machine.facts import Machine, MachineError, need_machine
from diagkit.term import check_whole

ASSUMED = (
    ("softmax", "is its exponentials alone, slowed by the overhead: row maxima, sums and casts are in it (assumed)"),
    ("overhead", "is the same for both formats; 2/3 is chosen to meet FlashAttention-3 (section 6; overhead=0)"),
    ("products", "run at the stated tensor rate, in one format unless a configuration says so (the machine's file)"),
    ("units", "each unit serves one warpgroup at a time, first come first served, never yields midway (assumed)"),
    ("moving", "keys and values are always there in time; launch, first and last steps are left out (assumed)"),
)
"""Name and text, with the place in arXiv 2412.03317 or "assumed", and the option that changes it."""
HALF = Fraction(1, 2)
OVERHEAD = Fraction(2, 3)
UNITS = {"QK": "tensor", "softmax": "special", "PV": "tensor"}

Operation = tuple[str, int, int]  # kind, step, warpgroup


@dataclass(frozen=True)
class Slot:
    """One operation at its place in the schedule; times in units of a step's products.

    >>> Slot("QK", 0, 1, Fraction(0), Fraction(1, 2)).end
    Fraction(1, 2)
    """

    kind: str
    step: int
    warpgroup: int
    start: Fraction
    end: Fraction


def intra_time(sigma: Fraction, _warpgroups: int = 1, first: Fraction = HALF) -> Fraction:
    """Time of a step when softmax runs beside the first product of the next step of its own warpgroup.

    >>> intra_time(Fraction(5, 6))
    Fraction(4, 3)
    """
    return 1 - first + max(first, sigma)


def inter_time(sigma: Fraction, warpgroups: int = 2, _first: Fraction = HALF) -> Fraction:
    """Time of a step when so many warpgroups take turns: tensor cores, special units or the turn itself limit.

    At best: where products are unequal, first come first served may fall short of it.

    >>> inter_time(Fraction(5, 3)), inter_time(Fraction(1)), inter_time(Fraction(1), 1)
    (Fraction(5, 3), Fraction(1, 1), Fraction(2, 1))
    """
    return max(Fraction(1), sigma, (1 + sigma) / warpgroups)


CLOSED: dict[str, Callable[[Fraction, int, Fraction], Fraction]] = {"intra": intra_time, "inter": inter_time}


@dataclass(frozen=True)
class Pipeline:
    """Attention's inner loop on the warpgroups of one multiprocessor.

    * `sigma`: time of softmax over that of the products; `overlap`: "intra" (one warpgroup) or "inter";
    * `warpgroups`: how many take turns (1 for "intra"); `overhead`: the part of sigma beyond exponentials, over them;
    * `first`: the part of the products that QK takes; `clocks`: what the products of a step take, where known.

    >>> turns = Pipeline(Fraction(1, 2), "intra", 2)
    >>> turns.time, turns.scheduled_time(), turns.tensor_busy, turns.softmax_busy
    (Fraction(1, 1), Fraction(119, 120), 1.0, 0.5)
    >>> turns.assumed[0][0], turns.exponentials_end(turns.schedule(1)[0])
    ('softmax', None)
    """

    sigma: Fraction
    overlap: str
    warpgroups: int
    overhead: Fraction = Fraction(0)
    first: Fraction = HALF
    clocks: float | None = None

    @property
    def time(self) -> Fraction:
        """Time of a step by the closed form, in units of its products."""
        return CLOSED[self.overlap](self.sigma, self.warpgroups, self.first)

    @property
    def tensor_busy(self) -> float:
        """Share of the time that the tensor cores work: what is reached of the format's peak."""
        return float(1 / self.time)

    @property
    def softmax_busy(self) -> float:
        """Share of the time that a softmax is in work."""
        return float(self.sigma / self.time)

    @property
    def assumed(self) -> tuple[tuple[str, str], ...]:
        """Name and text of each assumption."""
        return ASSUMED

    def exponentials_end(self, slot: Slot) -> Fraction | None:
        """Where the exponentials of a softmax would end without the overhead; None for what has none."""
        return slot.start + self.sigma / (1 + self.overhead) if slot.kind == "softmax" and self.overhead else None

    def schedule(self, steps: int = 8) -> list[Slot]:
        """The first steps of every warpgroup, in order of their start.

        >>> for slot in Pipeline(HALF, "intra", 1).schedule(2)[:4]:
        ...     print(slot.kind, slot.step, slot.start, slot.end)
        QK 0 0 1/2
        QK 1 1/2 1
        softmax 0 1/2 1
        PV 0 1 3/2
        """
        return schedule(self, steps)

    def barriers(self, steps: int = 8) -> list[Fraction]:
        """Moments at which the tensor cores stood still until a softmax ended.

        >>> Pipeline(Fraction(5, 6), "intra", 1).barriers(2)
        [Fraction(4, 3), Fraction(8, 3)]
        """
        slots = [slot for slot in schedule(self, steps) if UNITS[slot.kind] == "tensor"]
        return [slot.start for before, slot in pairwise(slots) if before.end < slot.start]

    def scheduled_time(self, steps: int = 60) -> Fraction:
        """Time of a step by the schedule, over its second half, when the start no longer shows."""
        check_whole(steps, "steps", 1)
        ends = [slot for slot in schedule(self, 2 * steps) if slot.kind == "PV"]
        first, last = (max(slot.end for slot in ends if slot.step == step) for step in (steps - 1, 2 * steps - 1))
        return (last - first) / (steps * self.warpgroups)


def softmax_time(machine: Machine, dtype: str, d: int = 128, overhead: Fraction = OVERHEAD) -> Fraction:
    """sigma: clocks of a score's exponential over clocks of its 4d FLOP, times one plus the overhead.

    `d` is in elements of a head. Errors: `MachineError` where the machine states no such rate, and for an overhead
    that is no number of at least 0.

    >>> from diagkit.machine import load
    >>> softmax_time(load("H100-SXM"), "fp16"), softmax_time(load("H100-SXM"), "fp8e4m3", overhead=Fraction(0))
    (Fraction(5, 6), Fraction(1, 1))
    """
    if isinstance(overhead, bool) or not isinstance(overhead, Real) or not 0 <= overhead < float("inf"):
        raise MachineError(f"an overhead cannot be {overhead!r}", field="overhead", remedy="give a part, at least 0")
    rate = need_machine(machine).tensor_rate(dtype)
    products = Fraction(4 * check_whole(d, "d", 1)) / Fraction(rate)
    return (1 + Fraction(overhead)) / Fraction(machine.exp_rate()) / products


def pipeline(
    machine: Machine, dtype: str, overlap: str, *, d: int = 128, overhead: Fraction = OVERHEAD, warpgroups: int = 2
) -> Pipeline:
    """The pipeline of a machine's rates. `warpgroups` counts for "inter" alone.

    >>> from diagkit.machine import load
    >>> f"{pipeline(load('H100-SXM'), 'fp16', 'intra').tensor_busy:.1%}"
    '75.0%'
    """
    if overlap not in CLOSED:
        raise MachineError(f"no overlap {overlap!r}", field="overlap", remedy=f"one of: {', '.join(CLOSED)}")
    several = check_whole(warpgroups, "warpgroups", 1)
    sigma = softmax_time(machine, dtype, d, overhead)
    return Pipeline(sigma, overlap, several if overlap == "inter" else 1, Fraction(overhead))


def inter_waits(kind: str, step: int, group: int, _last: int) -> Iterator[Operation]:
    """A warpgroup that never overlaps itself: each operation waits for the one before."""
    before = {"QK": ("PV", step - 1), "softmax": ("QK", step), "PV": ("softmax", step)}
    yield (*before[kind], group)


def intra_waits(kind: str, step: int, group: int, last: int) -> Iterator[Operation]:
    """The next QK starts with the softmax at hand, after the PV before; PV waits for both."""
    waits = {
        "QK": [("PV", step - 2), ("QK", step - 1)],
        "softmax": [("QK", step), ("PV", step - 1)],
        "PV": [("softmax", step), ("QK", min(step + 1, last))],
    }
    yield from ((*wait, group) for wait in waits[kind])


WAITS: dict[str, Callable[[str, int, int, int], Iterator[Operation]]] = {"intra": intra_waits, "inter": inter_waits}


def schedule(model: Pipeline, steps: int) -> list[Slot]:
    """Every operation at the earliest moment that its waits and its unit allow; the longest ready goes first."""
    check_whole(steps, "steps")
    takes = {"QK": model.first, "softmax": model.sigma, "PV": 1 - model.first}
    free = dict.fromkeys(UNITS.values(), Fraction(0))
    done: dict[Operation, Slot] = {}
    # The next step of each kind, by warpgroup: a kind's steps run in order.
    heads = {(kind, group): 0 for kind in UNITS for group in range(model.warpgroups)}
    while any(step < steps for step in heads.values()):
        start, _, group, step, kind = min(candidates(model, steps, heads, done, free))
        done[kind, step, group] = Slot(kind, step, group, start, start + takes[kind])
        free[UNITS[kind]] = start + takes[kind]
        heads[kind, group] += 1
    return sorted(done.values(), key=lambda slot: (slot.start, slot.kind, slot.warpgroup))


def candidates(
    model: Pipeline,
    steps: int,
    heads: dict[tuple[str, int], int],
    done: dict[Operation, Slot],
    free: dict[str, Fraction],
) -> Iterator[tuple[Fraction, Fraction, int, int, str]]:
    """(start, ready, warpgroup, step, kind) of each operation that could come next."""
    for (kind, group), step in heads.items():
        waits = [wait for wait in WAITS[model.overlap](kind, step, group, steps - 1) if wait[1] >= 0]
        if step < steps and all(wait in done for wait in waits):
            ready = max((done[wait].end for wait in waits), default=Fraction(0))
            yield max(ready, free[UNITS[kind]]), ready, group, step, kind
