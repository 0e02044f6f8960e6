"""The values of this room: a number with its unit, source and grade, and a machine made of such numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from diagkit.machine.fields import CACHES, CLUSTERS, INTEGERS, LEVELS, PER_MULTIPROCESSOR, unit_of
from diagkit.machine.show import Row, readable, table_html, table_text
from diagkit.term import DiagkitError

GRADES = {
    "published": "stated by the vendor",
    "derived": "computed from published numbers",
    "to-confirm": "stated somewhere, not confirmed by the vendor",
    "assumed": "taken as true for a model; no vendor states it",
    "measured": "timed on one such machine",
    "reported": "told by the operating system",
}


class MachineError(DiagkitError):
    """A machine, a field or a recording that does not exist, or one that breaks the rules of data/.

    `field` is the name of the number concerned, dotted as in the machine's file, or None.

    >>> from diagkit.machine.files import load
    >>> load("H100-SMX")
    Traceback (most recent call last):
    ...
    diagkit.machine.facts.MachineError: no machine 'H100-SMX'; known, closest first: H100-SXM, H200-SXM, H100-PCIe, \
A100-SXM-80GB, H800-PCIe, MI300X, B200, L40S, RTX4090, T4, here
    """

    def __init__(self, reason: str, *, field: str | None = None, remedy: str | None = None) -> None:
        self.field = field
        super().__init__(reason, remedy=remedy)


@dataclass(frozen=True)
class Number:
    """One fact: the dotted field (its last part ends in the unit), the value, where it is from, how sure.

    >>> Number("device.clock_hz", 1_830_000_000, "datasheet", "published").unit
    'Hz'

    >>> Number("device.clock_hz", 1.83e9, "data sheet", "published").row()
    ('device.clock_hz', '1.83 GHz', 'published', 'data sheet')
    """

    field: str
    value: int | float
    source: str
    grade: str

    @property
    def unit(self) -> str:
        """The unit that the field's name ends in; empty for a plain count."""
        return unit_of(self.field)

    def row(self) -> Row:
        """Field, value with unit, grade and source, as the tables show them."""
        return self.field, readable(self.value, self.unit), self.grade, self.source


@dataclass(frozen=True)
class Machine:
    """Hardware as data: levels of memory, units and their rates, each number with its source.

    `about` holds texts (vendor, target, note ...), `numbers` the facts, `origin` where they were read.
    Values are plain int and float in bytes, seconds, FLOP, hertz and watts. A number nobody states is
    absent, and asking for it raises `MachineError` with the field and the origin.

    >>> from diagkit.machine import load
    >>> h100 = load("H100-SXM")
    >>> h100.peak("fp16"), h100.bandwidth("global"), h100.capacity("register")
    (989400000000000.0, 3350000000000.0, 262144)

    >>> from diagkit.machine.files import load
    >>> h100 = load("H100-SXM")
    >>> h100.multiprocessors, h100.clock_hz, h100.power_w, h100.text("target"), h100.formats[:2]
    (132, 1830000000.0, 700.0, 'sm_90', ('fp16', 'bf16'))
    >>> h100.tensor_rate("fp16"), h100.fma_rate("fp32"), h100.exp_rate()
    (4096.0, 256.0, 16.0)
    >>> h100.count("shared"), h100.total("shared"), h100.fields()[0], h100.number("device.clock_hz").grade
    (132, 30818304, 'device.multiprocessors', 'published')
    """

    name: str
    about: tuple[tuple[str, str], ...]
    numbers: tuple[Number, ...]
    origin: str

    def number(self, field: str) -> Number:
        """The fact of that dotted field, such as "level.L2.capacity_bytes"."""
        found = next((number for number in self.numbers if number.field == field), None)
        if found is None:
            raise self._absent(field)
        return found

    def __getitem__(self, field: str) -> int | float:
        """The plain value of a dotted field."""
        return self.number(field).value

    def __contains__(self, field: object) -> bool:
        """Whether the field is stated."""
        return field in self.fields()

    def _absent(self, field: str) -> MachineError:
        section = str(field).rpartition(".")[0]
        stated = [name for name in self.fields() if name.rpartition(".")[0] == section] or self.fields()
        remedy = f"stated there: {', '.join(stated) or 'nothing'}"
        return MachineError(f"{self.name} states no {field} ({self.origin})", field=field, remedy=remedy)

    def fields(self) -> tuple[str, ...]:
        """Every stated field, in the order of the file."""
        return tuple(number.field for number in self.numbers)

    def source(self, field: str) -> str:
        """Where the number is from, with its grade.

        >>> from diagkit.machine import load
        >>> load("L40S").source("special.exp_op_per_clk_per_sm").endswith("instructions (published)")
        True
        """
        number = self.number(field)
        return f"{number.source} ({number.grade})"

    def text(self, key: str) -> str:
        """A text about the machine ("vendor", "target", "note" ...), or "" where there is none."""
        return dict(self.about).get(key, "")

    @property
    def levels(self) -> tuple[str, ...]:
        """The memory levels, slowest first.

        >>> from diagkit.machine import load
        >>> load("A100-SXM-80GB").levels
        ('global', 'L2', 'shared', 'register')
        """
        stated = {field.split(".")[1] for field in self.fields() if field.startswith("level.")}
        return tuple(level for level in LEVELS if level in stated)

    @property
    def formats(self) -> tuple[str, ...]:
        """The number formats with a stated peak."""
        return tuple(field.split(".")[1].split("_")[0] for field in self.fields() if field.startswith("peak."))

    @property
    def multiprocessors(self) -> int:
        """Streaming multiprocessors, compute units, or cores."""
        return int(self["device.multiprocessors"])

    @property
    def clock_hz(self) -> float:
        """The clock that the dense tensor peaks assume, in hertz."""
        return float(self["device.clock_hz"])

    @property
    def power_w(self) -> float:
        """Board power, in watts."""
        return float(self["device.power_w"])

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s (op/s for integers) of the whole device in a number format.

        >>> from diagkit.machine import load
        >>> load("T4").peak("fp8e4m3")
        Traceback (most recent call last):
        ...
        diagkit.machine.facts.MachineError: T4 states no peak.fp8_flop_per_s (data/machines/T4.toml); \
stated there: peak.fp16_flop_per_s, peak.int8_op_per_s, peak.fp32_flop_per_s
        """
        return float(self[f"peak.{stem(dtype)}_per_s"])

    def tensor_rate(self, dtype: str) -> float:
        """FLOP (op for integers) per clock of the matrix units of one multiprocessor."""
        return float(self[f"tensor.{stem(dtype)}_per_clk_per_sm"])

    def fma_rate(self, dtype: str) -> float:
        """FLOP per clock of the fused multiply-add units of one multiprocessor; one such counts as two."""
        return float(self[f"fma.{stem(dtype)}_per_clk_per_sm"])

    def exp_rate(self) -> float:
        """Exponentials per clock of one multiprocessor (its special-function units)."""
        return float(self["special.exp_op_per_clk_per_sm"])

    def count(self, level: str) -> int:
        """How many memories of that level the device has.

        Stated where it is a fact of its own; one per multiprocessor for the levels inside one; else 1.
        """
        stated = f"level.{level}.count"
        if stated in self:
            return int(self[stated])
        self.capacity(level)
        return self.multiprocessors if level in PER_MULTIPROCESSOR else 1

    def capacity(self, level: str, *, per_block: bool = False) -> int:
        """Bytes of one memory of that level; with `per_block`, what one thread block may claim of it.

        >>> from diagkit.machine import load
        >>> load("H100-SXM").capacity("shared"), load("H100-SXM").capacity("shared", per_block=True)
        (233472, 232448)
        """
        return int(self[f"level.{level}.capacity{'_per_block' if per_block else ''}_bytes"])

    def total(self, level: str) -> int:
        """Bytes of all memories of that level together (what Theorem 2 of the paper caches in)."""
        return self.capacity(level) * self.count(level)

    def share(self, level: str = "last") -> int:
        """Bytes of a level that fall to one multiprocessor or core: what there is, over how many share it, but no
        more than one memory of it. "last" is the last cache before main memory, the nearest to it.

        >>> from diagkit.machine import load
        >>> load("H100-SXM").share("L2") == load("H100-SXM").capacity("L2") // 132 == load("H100-SXM").share()
        True
        """
        if level == "last":
            caches = [one for one in self.levels if one in CACHES]
            if not caches:
                raise MachineError(f"{self.name} states no cache ({self.origin})", remedy="give the bytes yourself")
            level = caches[0]
        return min(self.capacity(level), self.total(level) // self.multiprocessors)

    def bandwidth(self, level: str) -> float:
        """Bytes per second between that level and the faster ones, for the whole device.

        A rate stated per clock and multiprocessor is multiplied by the clock and the count.

        >>> from diagkit.machine import load
        >>> load("H100-SXM").bandwidth("shared") == 128 * 132 * 1.83e9
        True
        """
        per_clk = f"level.{level}.bandwidth_bytes_per_clk"
        if per_clk in self:
            return float(self[per_clk]) * self.count(level) * self.clock_hz
        return float(self[f"level.{level}.bandwidth_bytes_per_s"])

    def cluster_bandwidth(self, size: int) -> float:
        """Bytes per second read within clusters of `size` multiprocessors; of 1, what comes from above.

        >>> from diagkit.machine import load
        >>> load("H800-PCIe").cluster_bandwidth(2)
        3270000000000.0
        """
        return float(self[f"level.cluster.bandwidth_of_{size}_bytes_per_s"])

    @property
    def clusters(self) -> tuple[int, ...]:
        """The cluster sizes with a stated rate.

        >>> from diagkit.machine import load
        >>> load("H800-PCIe").clusters
        (1, 2, 4)
        """
        return tuple(size for size in CLUSTERS if f"level.cluster.bandwidth_of_{size}_bytes_per_s" in self)

    def energy(self, level: str = "global") -> float:
        """Joules for a byte that is moved between that level and the faster ones.

        >>> from diagkit.machine import load
        >>> load("RTX4090").energy("global")
        Traceback (most recent call last):
        ...
        diagkit.machine.facts.MachineError: RTX4090 states no level.global.energy_j_per_byte \
(data/machines/RTX4090.toml); stated there: level.global.capacity_bytes, level.global.bandwidth_bytes_per_s
        """
        return float(self[f"level.{level}.energy_j_per_byte"])

    def work_energy(self, dtype: str) -> float:
        """Joules for a FLOP (an op for integers) in a number format: the arithmetic alone.

        >>> from diagkit.machine import load
        >>> load("A100-SXM-80GB").work_energy("fp16")
        3.6e-13
        """
        return float(self[f"energy.{stem(dtype, '_j_per')}"])

    def ridge(self, dtype: str, level: str = "global") -> float:
        """FLOP per byte at which the memory of that level and the arithmetic take equal time.

        >>> from diagkit.machine import load
        >>> round(load("H100-SXM").ridge("fp16")), round(load("H200-SXM").ridge("fp16"))
        (295, 206)
        """
        return self.peak(dtype) / self.bandwidth(level)

    def roof(self, intensity: float, dtype: str, level: str = "global") -> float:
        """The roofline: FLOP/s within reach at so many FLOP per byte moved from that level.

        >>> from diagkit.machine import load
        >>> load("T4").roof(10, "fp16"), load("T4").roof(1000, "fp16")
        (3200000000000.0, 65000000000000.0)
        """
        if not isinstance(intensity, Real) or intensity < 0:
            raise MachineError(f"an intensity cannot be {intensity!r}", remedy="give FLOP per byte, at least 0")
        return min(self.peak(dtype), self.bandwidth(level) * float(intensity))

    def what_if(self, field: str, times: float) -> Machine:
        """The machine with one stated number multiplied: a machine that is not built, and says so.

        Bytes are rounded down. Errors: `MachineError` where the field is not stated, where `times` is no number
        above 0, and where a count would not stay whole.

        >>> from diagkit.machine import load
        >>> more = load("H100-SXM").what_if("special.exp_op_per_clk_per_sm", 2)
        >>> more.exp_rate(), more.source("special.exp_op_per_clk_per_sm")
        (32.0, 'what if: 2 times what H100-SXM states (assumed)')
        """
        old = self.number(field)
        if isinstance(times, bool) or not isinstance(times, Real) or not 0 < times < float("inf"):
            raise MachineError(f"{field} cannot be {times!r} times as much", field=field, remedy="use a number above 0")
        value = _multiplied(old, times)
        new = Number(field, value, f"what if: {times:g} times what {self.name} states", "assumed")
        numbers = tuple(new if number is old else number for number in self.numbers)
        return replace(self, name=f"{self.name}, {times:g} times {field}", numbers=numbers)

    def __str__(self) -> str:
        return table_text(self._heading(), self._rows())

    def _rows(self) -> list[Row]:
        return [number.row() for number in self.numbers]

    def _heading(self) -> str:
        described = " ".join(self.text(key) for key in ("vendor", "architecture", "target", "memory"))
        return ": ".join(part for part in (self.name, " ".join(described.split())) if part)

    def _repr_pretty_(self, printer: object, _cycle: bool) -> None:
        """The table, where IPython would print the whole repr."""
        printer.text(str(self))  # type: ignore[attr-defined]  # IPython's printer, which the core does not import

    def _repr_html_(self) -> str:
        return table_html(self._heading(), self._rows(), self.text("note"))


def _multiplied(old: Number, times: float) -> int | float:
    """A fact times a number: rates as they come, whole bytes, and counts only where they stay whole."""
    value = old.value * times
    whole = not isinstance(old.value, float) and old.unit in ("", "B")
    if whole and (value < 1 or (not old.unit and value != int(value))):
        reason = f"{old.field} would be {value:g}"
        raise MachineError(reason, field=old.field, remedy=f"choose a multiple of {old.value:,} that is whole")
    return int(value) if whole or value == old.value else value


def need_machine(found: Any) -> Machine:
    """`found`, if it is a machine; else a MachineError that says how to get one."""
    if not isinstance(found, Machine):
        raise MachineError(f"{found!r} is no machine", remedy='get one by its name: machine.load("H100-SXM")')
    return found


def stem(dtype: str, between: str = "") -> str:
    """The head of a rate's field name: both fp8 formats share one, integers count op and not FLOP."""
    name = "fp8" if dtype in ("fp8e4m3", "fp8e5m2") else dtype
    return f"{name}{between}_{'op' if name in INTEGERS else 'flop'}"
