"""The additive model of attention's speed: what a score costs one multiprocessor, term by named term.

The bare form adds the products and the exponential of a score: 4d/r + 1/16 clocks where both products run at
r FLOP per clock. `ASSUMPTIONS` add what an implementation does beyond; each has a source or says "assumed",
holds for every row alike, and can be switched off. Nothing is fitted, by row or in all. It is arithmetic
that comes near, not a mechanism: the best kernels do overlap softmax with products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from diagkit.machine.facts import Machine, MachineError
from diagkit.machine.implementations import implementation

ROWS = 128
"""Queries of a tile: that of FlashAttention-2 and 3 at d = 128, taken for all."""
KEYS = 64
"""Keys of a chunk where results are rescaled after each: FlashAttention-2 at d = 128, taken for all."""


OWN_INSTRUCTIONS = ("sm_90", "sm_100", "sm_103")
"""Targets whose matrix units have instructions of their own, which kernels of the generation before do not use."""


@dataclass(frozen=True)
class Case:
    """A forward pass of attention as somebody ran it: `heads` is batch times heads, None where not said.

    >>> from diagkit.machine.files import load
    >>> run = Case(load("H100-SXM"), "FA3-fp8", "fp8e4m3", d=128, causal=True, length=4096)
    >>> run.formats, run.of("fp16").formats, run.steps
    (('fp8e4m3', 'fp8e4m3'), ('fp16', 'fp16'), 16.5)
    """

    machine: Machine
    impl: str
    dtype: str
    d: int
    causal: bool
    length: int
    heads: int | None = None

    @property
    def formats(self) -> tuple[str, str]:
        """The formats of QK and of PV."""
        first, _, second = self.dtype.partition("+")
        return first, second or first

    def of(self, dtype: str) -> Case:
        """The same in other formats."""
        return replace(self, dtype=dtype)

    @property
    def steps(self) -> float:
        """Chunks of `ROWS` keys that a tile of queries meets, on average."""
        chunks = self.length / ROWS
        return (chunks + 1) / 2 if self.causal else chunks


Effect = Callable[[Case], float]


@dataclass(frozen=True)
class Assumption:
    """A named assumption. `kind` says what the number of `effect` does: "adds" clocks to a score, "slows" the
    products by a factor, "stretches" the whole by a factor, or "joins": adds up what would overlap.

    >>> ASSUMPTIONS[0].name, ASSUMPTIONS[0].kind
    ('softmax', 'adds')
    """

    name: str
    kind: str
    effect: Effect
    text: str
    source: str


def exponential(case: Case) -> float:
    """Clocks of the exponential of a score."""
    return 1 / case.machine.exp_rate()


def lanes(machine: Machine) -> float:
    """Results per clock of the FMA units of one multiprocessor in fp32."""
    return machine.fma_rate("fp32") / 2


def other_softmax(case: Case) -> float:
    """Clocks of the rest of softmax, unless it hides: three operations, and d to rescale once in `KEYS` scores."""
    return 0.0 if implementation(case.impl).pipelined else (3 + case.d / KEYS) / lanes(case.machine)


def casts(case: Case) -> float:
    """Clocks to round a probability to 8 bits and bring it where PV wants it: two operations."""
    return 2 / lanes(case.machine) if "8" in case.formats[1] else 0.0


def old_instructions(case: Case) -> float:
    """How much longer products take by mma.sync, on machines whose matrix units have instructions of their own.

    Errors: MachineError by field where such a machine does not state what part of its rates mma.sync reaches.
    """
    slow = implementation(case.impl).mma_sync and case.machine.text("target") in OWN_INSTRUCTIONS
    return 1 / float(case.machine["tensor.mma_sync_part"]) if slow else 1.0


def ends(case: Case) -> float:
    """One step more than a tile has."""
    return (case.steps + 1) / case.steps


def diagonal(case: Case) -> float:
    """What whole tiles on the diagonal compute over the exact pairs: 2 n^2 d + 2 n g d over 2 n (n + 1) d."""
    return (case.length + ROWS) / (case.length + 1) if case.causal else 1.0


def waves(case: Case) -> float:
    """Whole rounds of tiles over the rounds that there are. Causal tiles are dealt longest first, and fill up."""
    if case.causal or case.heads is None:
        return 1.0
    rounds = case.heads * math.ceil(case.length / ROWS) / case.machine.multiprocessors
    return math.ceil(rounds) / rounds


ASSUMPTIONS: tuple[Assumption, ...] = (
    Assumption("softmax", "adds", exponential, "one exponential per score, at the rate of the special-function units",
               "rate: the machine's file"),
    Assumption("additive", "joins", lambda _: 1.0, "products and softmax of a multiprocessor follow one another",
               "assumed; the weighted sum of arXiv 2412.03317, section 4.2, inside a multiprocessor"),
    Assumption("mma.sync", "slows", old_instructions,
               "kernels written for Ampere run Ampere's instructions on Hopper, at a part of its rates",
               "part: the machine's file; who does: the table of implementations"),
    Assumption("other", "adds", other_softmax, "maximum, scaled difference and sum of a score, and rescaling results "
               f"after each {KEYS} keys, take the FMA units' time unless the kernel is pipelined",
               "operations: the diagram; who hides them: the table of implementations"),
    Assumption("casts", "adds", casts, "a probability in 8 bits costs two operations more, rounding and moving",
               "assumed; FlashAttention-3 (arXiv 2407.08608), section 3.3, says that it moves registers about"),
    Assumption("ends", "stretches", ends, "a tile takes one step more: its first product has no softmax beside it, its "
               "last softmax no product, and queries and results move alone", "assumed"),
    Assumption("diagonal", "stretches", diagonal, "tiles on the diagonal of a causal mask are computed whole, and half "
               "for nothing", f"2 n^2 d + 2 n g d FLOP with g = {ROWS}: counted from the diagram"),
    Assumption("waves", "stretches", waves, "full tiles run in rounds of one per multiprocessor, the last one not full",
               f"assumed: tiles of {ROWS} rows; batch and heads as published"),
)  # fmt: skip
"""Each may be named in `without`."""

FIXED = (
    ("rates", "tensor cores reach their stated dense rate, at the clock that the stated peaks assume"),
    ("formats", 'of two formats, such as "int8+fp8", the first is that of QK and the second that of PV'),
    ("moving", "all transfers hide behind the arithmetic, and there is no launch"),
    ("machines", '"H100" and "H800" are taken as H100-SXM, "A100" as A100-SXM-80GB'),
)
"""What the model assumes throughout."""

NAMES = tuple(each.name for each in ASSUMPTIONS)


def switched_on(without: Collection[str]) -> tuple[Assumption, ...]:
    """All assumptions but those named. Errors: `MachineError` for a name that is none.

    >>> [each.name for each in switched_on(("casts", "ends", "waves"))]
    ['softmax', 'additive', 'mma.sync', 'other', 'diagonal']
    """
    unknown = [name for name in without if name not in NAMES]
    if unknown:
        raise MachineError(f"no assumption {unknown[0]!r}", field="without", remedy=f"one of: {', '.join(NAMES)}")
    return tuple(each for each in ASSUMPTIONS if each.name not in without)


def products(case: Case) -> float:
    """Clocks of the two products of a score on one multiprocessor, 2d FLOP each."""
    return sum(2 * case.d / case.machine.tensor_rate(dtype) for dtype in case.formats)


def case_clocks(case: Case, without: Collection[str] = ()) -> float:
    """Clocks that one score takes one multiprocessor, under all assumptions but those named.

    >>> from diagkit.machine.files import load
    >>> case = Case(load("H100-SXM"), "FA3", "fp16", 128, True, 4096)
    >>> case_clocks(case, NAMES), case_clocks(case, ("additive", "ends", "diagonal"))
    (0.125, 0.125)
    """
    on = switched_on(without)
    effects = {kind: list(_effects(on, kind, case)) for kind in ("slows", "adds", "stretches", "joins")}
    parts = products(case) * math.prod(effects["slows"]), sum(effects["adds"])
    return (sum(parts) if effects["joins"] else max(parts)) * math.prod(effects["stretches"])


def _effects(on: Collection[Assumption], kind: str, case: Case) -> Iterator[float]:
    return (each.effect(case) for each in on if each.kind == kind)


def case_rate(case: Case, without: Collection[str] = ()) -> float:
    """FLOP/s of the whole machine, under all assumptions but those named; FLOP as published (exact pairs).

    >>> from diagkit.machine.files import load
    >>> case = Case(load("H100-SXM"), "FA3", "fp16", d=128, causal=False, length=4096)
    >>> case_rate(case) < load("H100-SXM").peak("fp16")
    True
    """
    per_s = case.machine.multiprocessors * case.machine.clock_hz
    return 4 * case.d / case_clocks(case, without) * per_s


UNITS = {
    "tensor cores": ("tensor.fp16_flop_per_clk_per_sm", "tensor.bf16_flop_per_clk_per_sm",
                     "tensor.fp8_flop_per_clk_per_sm", "tensor.int8_op_per_clk_per_sm"),
    "exponentials": ("special.exp_op_per_clk_per_sm",),
    "FMA units": ("fma.fp32_flop_per_clk_per_sm",),
    "clock": ("device.clock_hz",),
    "multiprocessors": ("device.multiprocessors",),
}  # fmt: skip
"""What a machine could have more of, and the fields that say how much it has."""


def gains(case: Case, times: float = 2, without: Collection[str] = ()) -> dict[str, float]:
    """What so many times as much of each unit would do to the speed of one case: new over old, by unit.

    >>> from diagkit.machine.files import load
    >>> found = gains(Case(load("H100-SXM"), "FA3", "fp16", 128, False, 16384), without=("ends",))
    >>> {unit: round(gain, 2) for unit, gain in found.items()}["exponentials"]
    1.2
    """
    old = case_rate(case, without)
    return {unit: case_rate(_with_more(case, unit, times), without) / old for unit in UNITS}


def _with_more(case: Case, unit: str, times: float) -> Case:
    machine = case.machine
    for field in UNITS[unit]:
        machine = machine.what_if(field, times) if field in machine else machine
    return replace(case, machine=machine)


BARE = ("mma.sync", "other", "casts", "ends", "diagonal", "waves")
"""Without these the model is products and exponentials alone."""


def score_clocks(machine: Machine, dtype: str, d: int) -> float:
    """Clocks that one score takes one multiprocessor in the bare form: QK, exponential and PV added up.

    `dtype` is a format, or that of QK and that of PV joined by "+"; `d` in elements of a head.
    Errors: `MachineError` where the machine states no rate for a format.

    >>> from diagkit.machine.files import load
    >>> score_clocks(load("H100-SXM"), "fp16", 128), score_clocks(load("H100-SXM"), "int8+fp16", 128)
    (0.1875, 0.15625)
    """
    return case_clocks(Case(machine, "", dtype, d, False, ROWS), BARE)


def additive_rate(machine: Machine, dtype: str, d: int) -> float:
    """FLOP/s of forward attention on the whole machine in the bare form.

    >>> from diagkit.machine.files import load
    >>> [round(additive_rate(load("H100-SXM"), "fp16", d) / 1e12) for d in (64, 128, 256)]
    [495, 660, 792]
    """
    return case_rate(Case(machine, "", dtype, d, False, ROWS), BARE)


def balanced_d(machine: Machine, dtype: str) -> float:
    """The head size, in elements, at which exponentials and products of a score take equal time.

    >>> from diagkit.machine.files import load
    >>> [balanced_d(load("H100-SXM"), dtype) for dtype in ("fp16", "fp8e4m3")], balanced_d(load("RTX4090"), "fp16")
    ([64.0, 128.0], 8.0)
    """
    return machine.tensor_rate(dtype) / (4 * machine.exp_rate())
