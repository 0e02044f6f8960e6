"""The configuration of a streamed kernel on one multiprocessor: its variables, how many workers fit, its clocks.

Everything is read off the diagram with labels on two levels (tiles of a block, and of a worker: a warpgroup or
a warp) and off a machine. Source: arXiv 2412.03317, section 5, Tables 1 to 3; the split of the registers is a
reading that gives the paper's sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf

from diagkit.machine import Machine, Pipeline, Sheet
from diagkit.term import FORMATS, DiagkitError

ASSUMED = (
    ("buffers", "one copy of a chunk is filled while another is read (a reading of Table 1; buffers=1 has none)"),
    ("opaque", "what passes between products and registers goes through shared memory (section 6; opaque=False)"),
    ("on chip", "all that is made on the chip has one format, accumulators too (a reading of Table 1; on_chip=...)"),
    (
        "pieces",
        "a result leaves its fragment d' columns at a time and is added on d'' at a time (a reading; pieces={})",
    ),
    ("stream", "each multiprocessor fetches its chunks by itself, through no cache (assumed; see Theorem 2)"),
    ("fused", "a product and its sum are two operations; a lone maximum is charged as one of the two (assumed)"),
    ("clock", "is the one that the stated peak of the products implies (derived from the machine's file)"),
)
"""Name and text, with the place in arXiv 2412.03317 or "assumed", and the option that changes it."""
WORKERS = {128: "warpgroup", 32: "warp"}
PLACES = ("block", "worker", "thread")


@dataclass(frozen=True)
class Variable:
    """One variable: what holds it ("block": shared memory of a thread block; "worker": that of one worker;
    "thread": registers), its shape in words, elements, format, and how many copies there are."""

    name: str
    role: str
    place: str
    shape: str
    elements: int
    dtype: str
    copies: int = 1

    @property
    def bytes(self) -> float:
        """Bytes of all copies."""
        return self.copies * self.elements * FORMATS[self.dtype] / 8


@dataclass(frozen=True)
class Operation:
    """What a box costs a row for each chunk: `amount` (FLOP of products, operations else) at `rate` per clock
    and multiprocessor, None where the machine states none."""

    box: str
    unit: str
    dtype: str
    amount: float
    rate: float | None

    @property
    def clocks(self) -> float:
        """Clocks of one multiprocessor for each row; 0 where no rate is stated."""
        return self.amount / self.rate if self.rate else 0.0

    def row(self) -> tuple[str, ...]:
        """What the throughput table shows of it."""
        rate = f"{self.rate:g}" if self.rate else "not stated"
        return self.box, self.unit, self.dtype, f"{self.amount:g}", rate, f"{self.clocks:.3g}" if self.rate else ""


@dataclass(frozen=True, repr=False)
class Configuration:
    """A kernel laid out on one multiprocessor of a machine.

    * `variables` and `operations`: the two tables; `threads` of a worker, `rows` (elements of the axes that workers
      share out) that a worker takes, `flop` of a row and a chunk, `clock_hz`;
    * `asked`: the workers that the tile of a block asks for, or None for as many as fit.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    >>> flash = dk.Diagram(dk.attention(Q, K, V, over=x, features=d)).fuse().group(q="g_q").stream(x="s_x")
    >>> laid = flash.group(level=2, q="w_q").formats("fp16").configuration("H100-SXM", d=128, w_q=64, s_x=64)
    >>> laid.worker, laid.fitting, laid.workers, laid.held("block"), laid.held("worker"), laid.moved("worker")
    ('warpgroup', 5, 5, 65536.0, 32768.0, 0)
    >>> laid.limits, laid.by_unit, laid.bound, laid.clocks
    ({'shared': 5.09375, 'register': 5.251282051282051}, {'tensor': 8.0, 'fma': 1.134765625, 'special': 4.0625},
    'tensor', 8.0)
    >>> laid.chunk_bytes, round(1e6 * laid.compute_s, 2), round(1e6 * laid.transfer_s, 2), round(laid.least_rows)
    (32768.0, 1.4, 1.29, 295)
    >>> round(laid.rows_for("tensor")), round(laid.ideal_rate / 1e12), round(laid.pipeline().tensor_busy, 2)
    (295, 989, 1.0)
    >>> laid.memory_table().rows[0], laid.throughput_table().rows[0], laid.summary().rows[0], laid.assumed[0][0]
    (('Q', 'tile', 'shared, warpgroup', 'w_q × d', 'fp16', '1', '16384'), ('attention.QK', 'tensor', 'fp16', '16384',
    '4096', '4'), ('warpgroups', '5.1 by shared memory, 5.3 by registers: 5'), 'buffers')
    """

    machine: Machine
    variables: tuple[Variable, ...]
    operations: tuple[Operation, ...]
    threads: int
    rows: int
    flop: float
    clock_hz: float
    asked: int | None = None

    def held(self, place: str) -> float:
        """Bytes of a "block", a "worker" or a "thread"."""
        return sum(each.bytes for each in self.variables if each.place == place)

    @property
    def worker(self) -> str:
        """What a worker is called."""
        return WORKERS.get(self.threads, f"{self.threads} threads")

    @property
    def limits(self) -> dict[str, float]:
        """How many workers fit, by shared memory and by registers: N = (M - M of the block) / M of a worker."""
        left = self.machine.capacity("shared", per_block=True) - self.held("block")
        enough = inf if left >= 0 else 0.0  # where nothing of a worker lies there
        return {
            "shared": left / self.held("worker") if self.held("worker") else enough,
            "register": self.machine.capacity("register") / (self.threads * self.held("thread")),
        }

    @property
    def fitting(self) -> int:
        """Whole workers that fit on a multiprocessor."""
        return floor(max(min(self.limits.values()), 0))

    @property
    def workers(self) -> int:
        """Workers of a multiprocessor."""
        return self.fitting if self.asked is None else self.asked

    def moved(self, place: str) -> float:
        """Bytes of a chunk, for all workers ("block") or for each ("worker")."""
        chunks = [each for each in self.variables if each.place == place and each.role == "chunk"]
        return sum(each.bytes / each.copies for each in chunks)

    @property
    def chunk_bytes(self) -> float:
        """Bytes that one chunk moves to a multiprocessor, with what each worker reads alone."""
        return self.moved("block") + self.workers * self.moved("worker")

    @property
    def by_unit(self) -> dict[str, float]:
        """Clocks of one multiprocessor for a row and a chunk, by unit; without those that have no stated rate."""
        found: dict[str, float] = {}
        for each in self.operations:
            if each.rate:
                found[each.unit] = found.get(each.unit, 0.0) + each.clocks
        return found

    @property
    def bound(self) -> str:
        """The unit that takes longest."""
        return max(self.by_unit, key=self.by_unit.__getitem__)

    @property
    def clocks(self) -> float:
        """Clocks for a row and a chunk if all units work at once."""
        return self.by_unit[self.bound]

    @property
    def compute_s(self) -> float:
        """Seconds that a chunk keeps the multiprocessor, with all its workers."""
        return self.workers * self.rows * self.clocks / self.clock_hz

    @property
    def transfer_s(self) -> float:
        """Seconds to fetch a chunk for each multiprocessor from global memory."""
        return self.chunk_bytes * self.machine.multiprocessors / self.machine.bandwidth("global")

    def rows_for(self, unit: str) -> float:
        """Rows on a multiprocessor from which on that unit takes longer than fetching; infinite where a row's own part
        of a chunk takes longer to fetch than the unit takes for it."""
        byte_s = self.machine.multiprocessors / self.machine.bandwidth("global")
        gained = self.by_unit[unit] / self.clock_hz - self.moved("worker") / self.rows * byte_s
        return self.moved("block") * byte_s / gained if gained > 0 else inf

    @property
    def least_rows(self) -> float:
        """Rows on a multiprocessor from which on fetching is not what limits."""
        return self.rows_for(self.bound)

    @property
    def ideal_rate(self) -> float:
        """FLOP/s of the whole machine if the limiting unit never waits: an ideal, no measurement."""
        return self.flop / self.clocks * self.machine.multiprocessors * self.clock_hz

    def pipeline(self, overlap: str = "inter", overhead: float = 0) -> Pipeline:
        """How the workers share the units, as a schedule: softmax is what the special-function units do, `overhead`
        (a part of that) longer; "inter": all workers take turns, "intra": one overlaps itself.

        Errors: DiagkitError where a step has not two products with something between them.
        """
        products = [each.clocks for each in self.operations if each.unit == "tensor"]
        if len(products) != 2 or "special" not in self.by_unit:
            reason = f"a step has {len(products)} products; a schedule needs two, and exponentials between them"
            raise DiagkitError(reason, remedy="ask it of a diagram such as attention")
        both = Fraction(sum(products))
        sigma = Fraction(self.by_unit["special"]) / both * (1 + Fraction(overhead))
        workers = self.workers if overlap == "inter" else 1
        clocks = float(both) * self.rows
        return Pipeline(sigma, overlap, workers, Fraction(overhead), Fraction(products[0]) / both, clocks)

    @property
    def assumed(self) -> tuple[tuple[str, str], ...]:
        """Name and text of each assumption."""
        return ASSUMED

    def memory_table(self) -> Sheet:
        """Every variable with its place, shape and bytes, and the sums."""
        place = {"block": "shared, block", "worker": f"shared, {self.worker}", "thread": "registers, thread"}
        rows = [
            (each.name, each.role, place[each.place], each.shape, each.dtype, str(each.copies), f"{each.bytes:g}")
            for each in self.variables
        ]
        rows += [("all", "", place[where], "", "", "", f"{self.held(where):g}") for where in PLACES]
        return Sheet(("variable", "what", "where", "shape", "format", "copies", "bytes"), tuple(rows))

    def throughput_table(self) -> Sheet:
        """Every operation of a row with its unit, amount, rate and clocks, and the sums by unit."""
        rows = [each.row() for each in self.operations]
        rows += [("all", unit, "", "", "", f"{clocks:.3g}") for unit, clocks in self.by_unit.items()]
        return Sheet(("box", "unit", "format", "per row", "per clock", "clocks"), tuple(rows))

    def summary(self) -> Sheet:
        """What follows from the two tables."""
        shared, registers = (f"{n:.1f}" if n < inf else "any number" for n in self.limits.values())
        rows = (
            (f"{self.worker}s", f"{shared} by shared memory, {registers} by registers: {self.workers}"),
            ("rows", f"{self.workers * self.rows}"),
            ("bound", f"{self.bound}, {self.clocks:g} clocks for a row and a chunk"),
            ("computing a chunk", f"{self.compute_s * 1e6:.2f} µs"),
            ("fetching a chunk", f"{self.transfer_s * 1e6:.2f} µs"),
            ("least rows", f"{self.least_rows:.0f}"),
            ("ideal", f"{self.ideal_rate / 1e12:,.0f} TFLOP/s"),
        )
        notes = tuple(f"assumed, {name}: {text}" for name, text in self.assumed)
        return Sheet(("on one multiprocessor", self.machine.name), rows, notes)

    def _sheets(self) -> tuple[Sheet, ...]:
        return self.memory_table(), self.throughput_table(), self.summary()

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self._sheets()))

    def _repr_html_(self) -> str:
        return "<br>".join(sheet._repr_html_() for sheet in self._sheets())
