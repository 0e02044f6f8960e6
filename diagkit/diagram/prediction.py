"""A diagram on a machine: the tile that fits, the time by resource, what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from numbers import Integral
from typing import Any

from diagkit import cost, machine
from diagkit.cost import LegalTile
from diagkit.diagram.together import moved_together
from diagkit.machine import Energy, Machine, Sheet, Times, energy, times
from diagkit.term import DiagkitError, InputError, Term, accepted, as_float, depth, promote

NEEDED = ("global", "tensor")
"""Without these no time and no energy says anything; what else a machine does not state is left out."""

ASSUMED = (
    (
        "unshared",
        "each group fetches all it needs by itself (assumed; off: those at work at once fetch as one, Theorem 2)",
    ),
    ("special", "exponentials, quotients, roots take the special-function units' time (the machine's file; off: none)"),
    ("fma", "maxima, sums, scaling take the FMA units' time in fp32 (the machine's file; off: none)"),
)
"""What may be switched off: name and text."""
TIME_HEAD = ("time, µs", "TFLOP/s", "bottleneck")
FIXED = "no latency, no launch, every unit at its stated peak (assumed)"


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a diagram should do on a machine.

    * `tiles`: elements by tile; `chosen`: how they were found, None where they were given;
    * `moved`: bytes across global memory; `held`, `fits`: bytes of fast memory, and whether a block has them;
    * `times`: seconds per resource, with the serial and the overlapped bound;
    * `fetched`: bytes from global memory alone and together (see `ASSUMED`), and into registers where the diagram
      has labels for them; `work` by unit; `without`: the assumptions that are switched off.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> tiled = dk.Diagram(C, name="product").group(a="g_a", c="g_c").stream(b="s_b")
    >>> found = tiled.on("H100-SXM", "fp16", a=4096, b=4096, c=4096)
    >>> found.tiles, found.fits, found.timed()
    ({'g_a': 304, 'g_c': 256, 's_b': 64}, True, ('310.5 to 484.1', '284 to 443', 'global'))
    >>> found.but("unshared") == found.leaving_out("unshared"), round(found.energy.total, 3)
    (True, 0.085)
    >>> found.rows()[0], found.switched_off().column("time, µs")
    (('machine', 'H100-SXM, fp16'), ['310.5 to 484.1', '138.9 to 213.7', '310.5 to 484.1', '310.5 to 449.4', '138.9 to
    179'])
    """

    machine: Machine
    dtype: str
    sizes: Mapping[str, int]
    tiles: Mapping[str, int]
    chosen: LegalTile | None
    moved: int
    held: int
    times: Times
    fetched: tuple[int, int, int] = (0, 0, 0)
    work: Mapping[str, float] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def but(self, *names: str) -> Prediction:
        """The same with these assumptions switched off, and no others. Errors: DiagkitError for a name that is none."""
        known: list[Any] = [name for name, _ in ASSUMED]
        unknown = [name for name in names if name not in known]
        if unknown:
            raise DiagkitError(f"no assumption {unknown[0]!r}", remedy=f"one of: {', '.join(known)}")
        moved = self.fetched["unshared" in names]
        work = {unit: amount for unit, amount in self.work.items() if amount and unit not in names}
        found = times(self.machine, by_level(moved, self.fetched[2]), work, self.dtype)
        return replace(self, moved=moved, times=found, without=names)

    def leaving_out(self, without: Sequence[str] | str) -> Prediction:
        """The same without one assumption or several, by name."""
        names = [without] if isinstance(without, str) else without
        if not isinstance(names, Sequence):
            raise DiagkitError(f"{without!r} names no assumptions", remedy="give names: without=('special',)")
        return self.but(*names) if names else self

    def switched_off(self) -> Sheet:
        """The time with each assumption off in turn, and with all: what each one costs."""
        cases = [(), *((name,) for name, _ in ASSUMED), tuple(name for name, _ in ASSUMED)]
        return Sheet(
            ("without", *TIME_HEAD),
            tuple((", ".join(names) or "(nothing)", *self.but(*names).timed()) for names in cases),
        )

    def timed(self) -> tuple[str, ...]:
        """Time, rate and bottleneck as tables show them."""
        low, high = self.times.rate()
        time = f"{_short(self.times.overlapped * 1e6, 4)} to {_short(self.times.serial * 1e6, 4)}"
        return time, f"{_short(low / 1e12)} to {_short(high / 1e12)}", self.times.bottleneck

    @property
    def energy(self) -> Energy:
        """Joules by resource: what leaves global memory, the cache that fills the multiprocessors (all that groups
        fetch, shared or not), and shared memory where the diagram has labels for registers; and the operations."""
        first, *rest = by_level(self.moved, self.fetched[2]).items()
        moved = dict((first, ("L2", as_float(self.fetched[0], "moved")), *rest))
        return energy(self.machine, moved, self.work, self.dtype)

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
        rows += [(f"assumed, {name}", text) for name, text in ASSUMED if name not in self.without]
        return [*rows, ("assumed", FIXED)]

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


def held(term: Term, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Bytes of fast memory that each kernel of `term` holds at its peak, in the formats of its wires."""
    peaks: dict[int, int] = {}
    for (number, _), amount in cost.memory(term).bytes().at(**sizes).items():
        peaks[number] = max(peaks.get(number, 0), int(amount))
    return tuple(peaks.values())


def by_level(moved: int, into_registers: int) -> dict[str, float]:
    """Bytes by the memory that they leave; without those of shared memory where no labels speak of registers."""
    inner = {"shared": as_float(into_registers, "moved")} if into_registers else {}
    return {"global": as_float(moved, "moved")} | inner


def _short(number: float, digits: int = 3) -> str:
    """So many digits, or all of a whole number that has more."""
    return f"{number:.{digits}g}" if number < 1000 else f"{number:,.0f}"


def predict(
    term: Term,
    name: str | Machine,
    dtype: str | None,
    given: Mapping[str, int],
    price: cost.Price | None = None,
) -> Prediction:
    """The prediction for `term` on a machine or the one of that name, at sizes and tiles in elements.

    Tiles that are not given are the best legal ones for the fast memory of one block: of least transfers, or of
    least `price`. Raises DiagkitError for a size that is missing, MachineError for an unknown machine, or where the
    machine states no peak for the format that the products have.
    """
    (found,) = several([name])
    kind = dtype or usual_format(term)
    need_sizes(term, given)
    sizes = term.numbers(given)
    need_whole(term, given)
    _need_inner(term, given)
    tiles, chosen = tiles_on(term, found, dtype, given, sizes, price)
    everything = {**{name: int(given[name]) for name in term.open_sizes}, **tiles}
    moved = cost.transfers(term).bytes(dtype).total(**everything)
    held = cost.memory(term).bytes(dtype).peak(**everything)
    formulas = cost.work(term).by_unit()
    counted = {unit: as_float(cost.evaluate(amount, everything), unit) for unit, amount in formulas.items()}
    work = {unit: amount for unit, amount in counted.items() if amount}
    if "tensor" in work:
        found.peak(kind)  # without it no time says anything: refused by the name of the field
    together = moved_together(term, dtype, everything, found.multiprocessors)
    fetched = int(moved), together, into_registers(term, dtype, {**given, **everything})
    measured = times(found, by_level(int(moved), fetched[2]), work, kind)
    return Prediction(found, kind, sizes, tiles, chosen, int(moved), int(held), measured, fetched, work)


def need_whole(term: Term, given: Mapping[str, Any]) -> None:
    """Refuse what is no size, and a name that takes none, at any level."""
    known = accepted(term, depth(term))
    for name, number in given.items():
        if name not in known and name not in term.axes:
            raise InputError(f"no open size or tile {name!r}", axis=name, remedy=f"there are: {', '.join(known)}")
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise InputError(
                f"{name!r} cannot have size {number!r}", axis=name, remedy="use whole numbers of at least 1"
            )


def _need_inner(term: Term, given: Mapping[str, Any]) -> None:
    """Refuse where a tile of a level inside is missing: only those of the outermost are chosen."""
    inner = [
        label for label in term.labels if label.level > 1 and label.tile.is_Symbol and label.tile.name not in given
    ]
    if inner:
        first, remedy = inner[0], f"give {', '.join(f'{label.tile}=...' for label in inner)} in elements"
        reason = f"{term.name} needs a size for the tile {first.tile} of {first.axis!r} at level {first.level}"
        raise InputError(reason, axis=first.axis, remedy=remedy)


def usual_format(term: Term) -> str:
    """The number format that a diagram computes in: what those of its inputs make together."""
    return promote([array.dtype for array in term.inputs if array.dtype != "bool"])


def into_registers(term: Term, dtype: str | None, sizes: Mapping[str, int]) -> int:
    """Bytes between shared memory and registers, where labels speak of those; else 0."""
    return int(cost.level_transfers(term).bytes(dtype).between(2).total(**sizes)) if depth(term) > 1 else 0


def several(machines: Any) -> list[Machine]:
    """One machine or several, by name or as they are. Errors: DiagkitError for none, MachineError for a wrong name."""
    listed = [machines] if isinstance(machines, str | Machine) else machines
    if not isinstance(listed, Sequence) or not listed:
        raise DiagkitError(f"{machines!r} are no machines", remedy='give names: ["A100-SXM-80GB", "H100-SXM"]')
    return [one if isinstance(one, Machine) else machine.load(one) for one in listed]


def need_sizes(term: Term, given: Mapping[str, Any]) -> None:
    """Refuse where the size of an axis is missing."""
    missing = [name for name in term.open_sizes if name not in given]
    if missing:
        raise DiagkitError(
            f"{term.name} needs a size for axis {missing[0]!r}",
            axis=missing[0],
            remedy=f"give {', '.join(f'{name}=...' for name in missing)} in elements",
        )


def tiles_on(
    term: Term,
    found: Machine,
    dtype: str | None,
    given: Mapping[str, int],
    sizes: Mapping[str, int],
    price: cost.Price | None = None,
) -> tuple[dict[str, int], LegalTile | None]:
    """Tiles by name: those given, else the best that fit a block of the machine; and how they were found."""
    wanted = [label.tile.name for label in term.labels if label.tile.is_Symbol and label.level == 1]
    if all(tile in given for tile in wanted):
        return {tile: given[tile] for tile in wanted}, None
    room = found.capacity("shared", per_block=True)
    fixed: dict[str, Any] = {tile: given[tile] for tile in wanted if tile in given}
    free: dict[str, Any] = {name: int(given[name]) for name in term.open_sizes}
    best = cost.legal_tile(term, room, unit="bytes", dtype=dtype, price=price, **free, **fixed)
    return {tile: int(best.tiles.get(tile, fixed.get(tile, 0))) for tile in wanted}, best
