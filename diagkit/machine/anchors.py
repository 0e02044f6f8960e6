"""The additive model of attention's speed, held against the published figures of data/anchors.csv.

A score costs one multiprocessor 2d FLOP of QK, 2d of PV and an exponential; the model adds the three up:
4d/r + 1/16 clocks where both products run at r FLOP per clock. Nothing is fitted, by row or in all.
It is arithmetic that happens to come near, not a mechanism: the best kernels do overlap softmax with products.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from statistics import median

from diagkit.machine.facts import Machine, MachineError
from diagkit.machine.files import data_path, load
from diagkit.machine.show import aligned, html_row

ASSUMED = (
    ("additive", "QK, exponentials and PV follow one another on a multiprocessor; nothing overlaps"),
    ("softmax", "is one exponential per score at the stated rate: maxima, sums, rescaling and casts are free"),
    ("rates", "tensor cores reach their stated dense rate, at the clock that the stated peaks assume"),
    ("formats", 'of two formats, such as "int8+fp8", the first is that of QK and the second that of PV'),
    ("moving", "all transfers hide behind the arithmetic; no launch, no last wave that fills only part of the machine"),
    ("causal", "exact pairs: no tile on the diagonal is computed in part for nothing"),
    ("machines", '"H100" and "H800" are taken as H100-SXM, "A100" as A100-SXM-80GB'),
)
MACHINES = {"H100": "H100-SXM", "H800": "H100-SXM", "A100": "A100-SXM-80GB"}
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SAME = "same"

LEFT_OUT: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "backward: the model counts the two products of a forward pass": lambda row: row["pass"] == "bwd",  # noqa: S105  # a pass over the data
    "power-capped: its clock is not that of the machine file": lambda row: row["gpu"].endswith("W"),
}


@dataclass(frozen=True)
class Anchor:
    """One published speed: `tflops` at a sequence length, forward (FLOP: 4 B H Nq Nk d, exact pairs if causal)."""

    gpu: str
    impl: str
    dtype: str
    d: int
    causal: bool
    length: int
    tflops: float
    conditions: str
    source: str

    @property
    def machine(self) -> Machine:
        """The machine whose rates stand for it."""
        return load(MACHINES.get(self.gpu, self.gpu))

    @property
    def predicted(self) -> float:
        """TFLOP/s by the additive model."""
        return additive_rate(self.machine, self.dtype, self.d) / 1e12

    @property
    def error(self) -> float:
        """Predicted over published, minus one: above zero where the kernel is slower than the model."""
        return self.predicted / self.tflops - 1

    def row(self) -> tuple[str, ...]:
        """What the table shows of it."""
        kind = "causal" if self.causal else "full"
        speeds = f"{self.predicted:.0f}", f"{self.tflops:g}", f"{self.error:+.1%}"
        return self.gpu, self.impl, self.dtype, str(self.d), kind, str(self.length), *speeds


def score_clocks(machine: Machine, dtype: str, d: int) -> float:
    """Clocks that one score takes one multiprocessor: QK, exponential and PV added up.

    `dtype` is a format, or that of QK and that of PV joined by "+"; `d` in elements of a head.
    Errors: `MachineError` where the machine states no rate for a format.

    >>> score_clocks(load("H100-SXM"), "fp16", 128), score_clocks(load("H100-SXM"), "int8+fp16", 128)
    (0.1875, 0.15625)
    """
    first, _, second = dtype.partition("+")
    products = sum(2 * d / machine.tensor_rate(kind) for kind in (first, second or first))
    return products + 1 / machine.exp_rate()


def additive_rate(machine: Machine, dtype: str, d: int) -> float:
    """FLOP/s of forward attention on the whole machine by the additive model.

    >>> [round(additive_rate(load("H100-SXM"), "fp16", d) / 1e12) for d in (64, 128, 256)]
    [495, 660, 792]
    """
    return 4 * d / score_clocks(machine, dtype, d) * machine.multiprocessors * machine.clock_hz


def balanced_d(machine: Machine, dtype: str) -> float:
    """The head size, in elements, at which exponentials and products of a score take equal time.

    >>> [balanced_d(load("H100-SXM"), dtype) for dtype in ("fp16", "fp8e4m3")], balanced_d(load("RTX4090"), "fp16")
    ([64.0, 128.0], 8.0)
    """
    return machine.tensor_rate(dtype) / (4 * machine.exp_rate())


@lru_cache(maxsize=1)
def sheet() -> list[dict[str, str]]:
    """The rows of data/anchors.csv, with "same" replaced by what it repeats."""
    rows: list[dict[str, str]] = []
    for row in csv.DictReader(data_path("anchors.csv").read_text(encoding="utf-8").splitlines()):
        said = {key: rows[-1][key] for key in ("conditions", "source") if row[key] == SAME}
        rows.append({**row, **said})
    return rows


def anchors(least: int = 4096) -> list[Anchor]:
    """Every published forward speed at that sequence length or longer, in the order of the file."""
    rows = [row for row in sheet() if not any(drops(row) for drops in LEFT_OUT.values())]
    return [anchor(row, n) for row in rows for n in LENGTHS if n >= least and row[str(n)]]


def anchor(row: Mapping[str, str], length: int) -> Anchor:
    """One cell of the sheet as a value; a format that the source leaves in doubt ("bf16?") is taken at its word."""
    about = row["gpu"], row["impl"], row["dtype"].rstrip("?"), int(row["head_dim"]), row["causal"] == "1"
    return Anchor(*about, length, float(row[str(length)]), row["conditions"], row["source"])


HEAD = ("gpu", "implementation", "format", "d", "mask", "length", "predicted", "published", "error")
GROUP_HEAD = ("gpu", "implementation", "format", "mask", "speeds", "median |error|", "worst")


@dataclass(frozen=True, repr=False)
class Comparison:
    """The additive model against published speeds, in TFLOP/s.

    >>> found = compare().only(impl="FA3", dtype="fp16", gpu="H100-SXM", causal=False)
    >>> len(found.anchors), found.median_error < 0.05
    (9, True)
    """

    anchors: tuple[Anchor, ...]

    @property
    def median_error(self) -> float:
        """The median absolute error, as a fraction of the published speed."""
        return median(abs(each.error) for each in self.anchors)

    @property
    def worst(self) -> Anchor:
        """The speed farthest from its prediction."""
        return max(self.anchors, key=lambda each: abs(each.error))

    @property
    def assumed(self) -> tuple[tuple[str, str], ...]:
        """Name and text of each assumption."""
        return ASSUMED

    @property
    def left_out(self) -> tuple[tuple[str, int], ...]:
        """Why rows of the file are not predicted, and how many."""
        return tuple((why, sum(drops(row) for row in sheet())) for why, drops in LEFT_OUT.items())

    def only(self, **wanted: str | int | bool) -> Comparison:
        """Those with such values: gpu, impl, dtype, d, causal, length. Errors: `MachineError` if there are none."""
        kept = tuple(each for each in self.anchors if all(getattr(each, key) == wanted[key] for key in wanted))
        if not kept:
            raise MachineError(f"no published speed with {wanted}", remedy="see anchors() for what there is")
        return Comparison(kept)

    def groups(self) -> Iterator[Comparison]:
        """One comparison for each machine, implementation, format and mask, in order of first mention."""
        keys = ("gpu", "impl", "dtype", "causal")
        for values in dict.fromkeys(tuple(getattr(each, key) for key in keys) for each in self.anchors):
            yield self.only(**dict(zip(keys, values, strict=True)))

    def summary(self) -> list[tuple[str, ...]]:
        """For each group: how many speeds, the median absolute error, the worst."""
        return [group.summed() for group in self.groups()]

    def summed(self) -> tuple[str, ...]:
        """All of it as one row of the summary, named after its first speed."""
        gpu, impl, dtype, _, kind, *_ = self.anchors[0].row()
        return gpu, impl, dtype, kind, str(len(self.anchors)), f"{self.median_error:.1%}", f"{self.worst.error:+.1%}"

    def rows(self) -> list[tuple[str, ...]]:
        """The table: one row for each published speed."""
        return [each.row() for each in self.anchors]

    def notes(self) -> list[str]:
        """The median over all, the assumptions, and what was left out."""
        said = [f"median absolute error over {len(self.anchors)} speeds: {self.median_error:.1%}"]
        said += [f"assumed, {name}: {text}" for name, text in self.assumed]
        return said + [f"left out, {count} rows, {why}" for why, count in self.left_out]

    def __repr__(self) -> str:
        tables = aligned([HEAD, *self.rows()]), aligned([GROUP_HEAD, *self.summary()])
        return "\n\n".join("\n".join(part) for part in (*tables, self.notes()))

    def _repr_html_(self) -> str:
        tables = ((HEAD, self.rows()), (GROUP_HEAD, self.summary()))
        return "".join(_html(*one) for one in tables) + "".join(f"<div>{escape(note)}</div>" for note in self.notes())


def compare(least: int = 4096) -> Comparison:
    """The additive model against every published forward speed at that sequence length or longer."""
    return Comparison(tuple(anchors(least)))


def _html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"<table>{html_row('th', head)}{''.join(html_row('td', row) for row in rows)}</table>"
