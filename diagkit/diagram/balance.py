"""Where moving and computing take equal time: the least memory, and the least sizes, of a diagram on a machine.

The transfers H*(M) over the work K is a sum of terms; one falls with the memory, one with a size. Moving takes no
longer than computing once their sum is at most one over the machine's FLOP per value moved.
Source: arXiv 2412.03317, appendix B.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import sympy

from diagkit import cost, machine
from diagkit.machine import Machine, Sheet
from diagkit.term import FORMATS, DiagkitError, Term, size


@dataclass(frozen=True, repr=False)
class Balance:
    """What a diagram needs in order not to wait for one level of a machine.

    * `parts` of the transfers over the work, in elements per FLOP: formulas in M (elements) and sizes, each with
      its exponent of M;
    * `intensity`: FLOP that the machine does for each value that it moves; `dtype`: the format of values.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> found = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").balance("H100-SXM")
    >>> found.ratio, found.moving(65536), round(found.least_memory)
    (1/(2*b) + 1/sqrt(M), 0.00390625, 697821)
    >>> {axis: round(least) for axis, least in found.least_size().items()}
    {'b': 295}
    >>> found.rows()[0], len(found.table().rows) == len(found.rows())
    (('machine', 'H100-SXM, global, fp16'), True)
    """

    machine: Machine
    level: str
    dtype: str
    parts: tuple[tuple[Any, Any], ...]
    intensity: float

    @property
    def ratio(self) -> Any:
        """Transfers over work, the sum of its parts: elements per FLOP."""
        return sympy.Add(*(part for part, _ in self.parts))

    def moving(self, elements: float) -> float:
        """What the parts that fall with the memory come to at so many elements of it."""
        if not isinstance(elements, Real) or not elements > 0:
            raise DiagkitError(f"a memory cannot have {elements!r} elements", remedy="give a number above 0")
        falling = [(part * size("M") ** beta, beta) for part, beta in self.parts if beta != 0]
        open_sizes = sorted({str(symbol) for part, _ in falling for symbol in part.free_symbols})
        if open_sizes:
            raise DiagkitError(f"the balance needs {open_sizes[0]}", remedy=f"give {open_sizes[0]}=... in elements")
        return float(sum(float(part) * elements ** -float(beta) for part, beta in falling))

    @property
    def least_memory(self) -> float:
        """Bytes of fast memory at which moving and computing take equal time, sizes without limit."""
        low, high = 0.0, 200.0  # powers of two, in elements
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if self.moving(2.0**middle) * self.intensity <= 1 else (middle, high)
        return float(2.0**high) * FORMATS[self.dtype] / 8

    def least_size(self, memory: float | None = None) -> dict[str, float]:
        """The least size of each axis for which moving takes no longer, others without limit; memory in bytes,
        or None for one without limit. Errors: DiagkitError where that memory is below the least."""
        if memory is not None and (not isinstance(memory, Real) or not memory > 0):
            raise DiagkitError(f"a memory cannot have {memory!r} bytes", remedy="give a number above 0, or None")
        left = 1 / self.intensity - (0.0 if memory is None else self.moving(memory * 8 / FORMATS[self.dtype]))
        if left <= 0:
            raise DiagkitError(
                f"{memory:,.0f} bytes are too few at any size", remedy=f"at least {self.least_memory:,.0f} bytes"
            )
        fixed = (part for part, beta in self.parts if beta == 0)
        return {str(symbol): float(part * symbol) / left for part in fixed for symbol in part.free_symbols}

    def rows(self) -> list[tuple[str, str]]:
        """Name and value with unit, for display."""
        sizes = ", ".join(f"{name} = {number:.0f}" for name, number in self.least_size().items())
        return [
            ("machine", f"{self.machine.name}, {self.level}, {self.dtype}"),
            ("transfers / work", str(self.ratio)),
            ("FLOP for each value", f"{self.intensity:.1f}"),
            ("least memory", f"{self.least_memory / 1024:.0f} KiB"),
            ("least sizes", sizes),
        ]

    def table(self) -> Sheet:
        """The rows under a head."""
        return Sheet(("moving and computing in balance", ""), tuple(self.rows()))

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def balance(term: Term, name: str, level: str, dtype: str, sizes: Mapping[str, int]) -> Balance:
    """The balance of a diagram, its tiles at their best for a memory M, against one level of a machine.

    `sizes` in elements fix axes whose size is given. Errors: MachineError by field where the machine states no
    peak or bandwidth; DiagkitError of `cost.optimum`.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> found = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").balance("H100-SXM")
    >>> found.ratio, f"{found.least_memory / 1024:.1f} KiB", round(found.least_size()["b"])
    (1/(2*b) + 1/sqrt(M), '681.5 KiB', 295)
    """
    found = machine.load(name)
    work, fixed = cost.work(term).flop(), {size(axis): number for axis, number in sizes.items()}
    terms = cost.optimum(term, size("M"), napkin=True).terms
    parts = tuple((sympy.powsimp((part / work).subs(fixed)), beta) for part, beta in terms)
    intensity = found.peak(dtype) / found.bandwidth(level) * FORMATS[dtype] / 8
    return Balance(found, level, dtype, parts, intensity)
