"""The published figures of data/anchors.csv, and the additive model held against them.

Every forward speed is there; what is left out is named with its reason. The model and its assumptions are in
`additive`; each can be switched off here, to see what it buys.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import median

from diagkit.machine.additive import ASSUMPTIONS, BARE, FIXED, Case, case_rate, switched_on
from diagkit.machine.facts import Machine, MachineError
from diagkit.machine.files import data_path, load
from diagkit.machine.implementations import implementation
from diagkit.machine.show import Sheet
from diagkit.term import check_whole

MACHINES = {"H100": "H100-SXM", "H800": "H100-SXM", "A100": "A100-SXM-80GB"}
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
SAME = "same"

LEFT_OUT: dict[str, Callable[[Mapping[str, str]], bool]] = {
    "backward: the model counts the two products of a forward pass": lambda row: row["pass"] == "bwd",  # noqa: S105  # a pass over the data
    "power-capped: its clock is not that of the machine file": lambda row: row["gpu"].endswith("W"),
}


CONDITIONS: dict[str, Callable[[re.Match[str], Anchor], int]] = {
    r"16k tokens, hidden 2048": lambda _, it: 16384 // it.length * 2048 // it.d,
    r"B\*S=16k H=(\d+)": lambda match, it: 16384 // it.length * int(match[1]),
    r"\bB(\d+) H(\d+)": lambda match, _: int(match[1]) * int(match[2]),
}
"""How the conditions of a row say how many heads ran, batch included."""


@dataclass(frozen=True)
class Anchor:
    """One published speed: `tflops` at a sequence length, forward (FLOP: 4 B H Nq Nk d, exact pairs if causal).

    `without` names the assumptions that its prediction does without.

    >>> first = anchors()[0]
    >>> first.machine.name, first.heads, first.case.length, first.row()[:2]
    ('H100-SXM', 128, 4096, ('H100-SXM', 'FA3'))
    >>> first.tflops, first.predicted / first.tflops - 1 == first.error
    (476.0, True)
    """

    gpu: str
    impl: str
    dtype: str
    d: int
    causal: bool
    length: int
    tflops: float
    conditions: str
    source: str
    without: tuple[str, ...] = ()

    @property
    def machine(self) -> Machine:
        """The machine whose rates stand for it."""
        return load(MACHINES.get(self.gpu, self.gpu))

    @property
    def heads(self) -> int | None:
        """Batch times heads, where the conditions say so."""
        found = ((re.search(pattern, self.conditions), count) for pattern, count in CONDITIONS.items())
        return next((count(match, self) for match, count in found if match), None)

    @property
    def case(self) -> Case:
        """What was run, as the model takes it."""
        return Case(self.machine, self.impl, self.dtype, self.d, self.causal, self.length, self.heads)

    @property
    def predicted(self) -> float:
        """TFLOP/s by the additive model."""
        return case_rate(self.case, self.without) / 1e12

    @property
    def error(self) -> float:
        """Predicted over published, minus one: above zero where the kernel is slower than the model."""
        return self.predicted / self.tflops - 1

    def row(self) -> tuple[str, ...]:
        """What the table shows of it."""
        kind = "causal" if self.causal else "full"
        speeds = f"{self.predicted:.0f}", f"{self.tflops:g}", f"{self.error:+.1%}"
        return self.gpu, self.impl, self.dtype, str(self.d), kind, str(self.length), *speeds


@lru_cache(maxsize=1)
def sheet() -> list[dict[str, str]]:
    """The rows of data/anchors.csv, with "same" replaced by what it repeats."""
    rows: list[dict[str, str]] = []
    for row in csv.DictReader(data_path("anchors.csv").read_text(encoding="utf-8").splitlines()):
        said = {key: rows[-1][key] for key in ("conditions", "source") if row[key] == SAME}
        rows.append({**row, **said})
    return rows


def anchors(least: int = 4096) -> list[Anchor]:
    """Every published forward speed at that sequence length or longer, in the order of the file.

    >>> found = anchors()
    >>> found[0].machine.name, {anchor.length for anchor in found} <= {512, 1024, 2048, 4096, 8192, 16384}
    ('H100-SXM', True)
    """
    check_whole(least, "the least sequence length", 1)
    rows = [row for row in sheet() if not any(drops(row) for drops in LEFT_OUT.values())]
    return [anchor(row, n) for row in rows for n in LENGTHS if n >= least and row[str(n)]]


def anchor(row: Mapping[str, str], length: int) -> Anchor:
    """One cell of the sheet as a value; a format that the source leaves in doubt ("bf16?") is taken at its word."""
    about = row["gpu"], row["impl"], row["dtype"].rstrip("?"), int(row["head_dim"]), row["causal"] == "1"
    return Anchor(*about, length, float(row[str(length)]), row["conditions"], row["source"])


INSTRUCTIONS = {False: "the machine's own", True: "mma.sync"}
HEAD = ("gpu", "implementation", "format", "d", "mask", "length", "predicted", "published", "error")
GROUP_HEAD = ("gpu", "implementation", "format", "mask", "speeds", "median |error|", "worst")


@dataclass(frozen=True, repr=False)
class Comparison:
    """The additive model against published speeds, in TFLOP/s.

    >>> found = compare().only(impl="FA3", dtype="fp16", gpu="H100-SXM", causal=False)
    >>> len(found.anchors), found.median_error < 0.05
    (9, True)

    >>> import diagkit as dk
    >>> fa3 = compare().family("FA3")
    >>> fa3.worst.impl[:3], len(fa3.pairs) == len(fa3.anchors) == sum(len(one.anchors) for one in fa3.groups())
    ('FA3', True)
    >>> [fa3.assumed[0][0], fa3.assumptions().column("assumption")[0], fa3.implementations().head[0]]
    ['softmax', 'softmax', 'implementation']
    >>> fa3.without("softmax").median_error > fa3.median_error, fa3.switched_off().head
    (True, ('without', 'FA3', 'all'))
    >>> fa3.summed()[0], len(fa3.summary()) == len(fa3.table().rows), len(fa3.rows()) == len(fa3.anchors)
    ('H100-SXM', True, True)
    >>> [fa3.left_out[0][0][:8], fa3.notes()[0][:6]]
    ['backward', 'median']
    """

    anchors: tuple[Anchor, ...]

    @property
    def median_error(self) -> float:
        """The median absolute error, as a fraction of the published speed."""
        return median(abs(each.error) for each in self.anchors)

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Predicted and published TFLOP/s of each, for plots."""
        return [(each.predicted, each.tflops) for each in self.anchors]

    @property
    def worst(self) -> Anchor:
        """The speed farthest from its prediction."""
        return max(self.anchors, key=lambda each: abs(each.error))

    @property
    def assumed(self) -> tuple[tuple[str, str], ...]:
        """Name and text of each assumption that is made."""
        on = switched_on(self.anchors[0].without)
        return tuple((each.name, f"{each.text} ({each.source})") for each in on) + FIXED

    def assumptions(self) -> Sheet:
        """Each assumption that is made and can be switched off: its name, text and source."""
        on = switched_on(self.anchors[0].without)
        return Sheet(
            ("assumption", "what it says", "source"), tuple((each.name, each.text, each.source) for each in on)
        )

    def implementations(self) -> Sheet:
        """What each implementation is taken to do: facts about programs, the same for all their speeds."""
        known = {name: implementation(name) for name in dict.fromkeys(each.impl for each in self.anchors)}
        rows = [
            (name, INSTRUCTIONS[one.mma_sync], "hides" if one.pipelined else "takes time", one.source)
            for name, one in known.items()
        ]
        return Sheet(("implementation", "products", "rest of softmax", "source"), tuple(rows))

    @property
    def left_out(self) -> tuple[tuple[str, int], ...]:
        """Why rows of the file are not predicted, and how many."""
        return tuple((why, sum(drops(row) for row in sheet())) for why, drops in LEFT_OUT.items())

    def only(self, **wanted: str | int | bool) -> Comparison:
        """Those with such values: gpu, impl, dtype, d, causal, length. Errors: `MachineError` if there are none."""
        known = [each.name for each in fields(Anchor)]
        for key in wanted:
            if key not in known:
                raise MachineError(f"no speed is told by its {key!r}", field=key, remedy=f"use: {', '.join(known)}")
        return self._kept(lambda each: all(getattr(each, key) == value for key, value in wanted.items()), wanted)

    def family(self, start: str) -> Comparison:
        """Those whose implementation's name begins so: "FA3" has FA3, FA3-fp16 and FA3-fp8."""
        return self._kept(lambda each: each.impl.startswith(str(start)), start)

    def _kept(self, keeps: Callable[[Anchor], bool], wanted: object) -> Comparison:
        kept = tuple(each for each in self.anchors if keeps(each))
        if not kept:
            raise MachineError(f"no published speed with {wanted}", remedy="see anchors() for what there is")
        return Comparison(kept)

    def without(self, *names: str) -> Comparison:
        """The same with these assumptions switched off, and no others."""
        switched_on(names)
        return Comparison(tuple(replace(each, without=names) for each in self.anchors))

    def switched_off(self) -> Sheet:
        """The median absolute error with each assumption off in turn, and with all of a kernel's own off."""
        cases = [(), *((each.name,) for each in ASSUMPTIONS), BARE]
        return Sheet(("without", "FA3", "all"), tuple(self._without_row(names) for names in cases))

    def _without_row(self, names: Collection[str]) -> tuple[str, ...]:
        changed = self.without(*names)
        errors = (f"{part.median_error:.1%}" for part in (changed.family("FA3"), changed))
        said = "all but the first two" if names == BARE else ", ".join(names) or "(nothing)"
        return said, *errors

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

    def table(self) -> Sheet:
        """The groups as a table."""
        return Sheet(GROUP_HEAD, tuple(self.summary()))

    def rows(self) -> list[tuple[str, ...]]:
        """The table: one row for each published speed."""
        return [each.row() for each in self.anchors]

    def notes(self) -> list[str]:
        """The median over all, the assumptions, and what was left out."""
        said = [f"median absolute error over {len(self.anchors)} speeds: {self.median_error:.1%}"]
        said += [f"assumed, {name}: {text}" for name, text in self.assumed]
        return said + [f"left out, {count} rows, {why}" for why, count in self.left_out]

    def _sheets(self) -> tuple[Sheet, Sheet]:
        return Sheet(HEAD, tuple(self.rows())), Sheet(GROUP_HEAD, tuple(self.summary()), tuple(self.notes()))

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self._sheets()))

    def _repr_html_(self) -> str:
        return "".join(sheet._repr_html_() for sheet in self._sheets())


def compare(least: int = 4096) -> Comparison:
    """The additive model against every published forward speed at that sequence length or longer.

    >>> len(compare(8192).anchors) < len(compare().anchors)
    True
    """
    found = tuple(anchors(least))
    if not found:
        raise MachineError(f"no published speed at length {least} or more", remedy=f"the longest is {max(LENGTHS)}")
    return Comparison(found)
