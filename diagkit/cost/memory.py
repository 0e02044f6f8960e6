"""Memory: what is live in fast memory at each column of a kernel, its peak and where it is.

Counted at full tiles. All loads are resident from the load; a map writes over an input of the same axes
that nobody reads later; a streamed input is resident one chunk at a time; what a step makes without the
streamed axis is held in registers. Source: arXiv 2412.03317, sections 2.2
(M of a column) and 5.1 (live variables).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import sympy

from diagkit.cost.exact import Number, evaluate
from diagkit.cost.kernel import Kernel, kernels
from diagkit.cost.lifetimes import Buffer, buffers, events
from diagkit.cost.show import Shown, Table
from diagkit.cost.upper import largest, undominated
from diagkit.term import FORMATS, Term, check_format

Live = tuple[tuple[Any, int, int], ...]
"""Live buffers, alike ones together: (elements, bits of one, how many)."""


@dataclass(frozen=True)
class Column:
    """One column of one kernel: "load", a box, or "store", and the buffers live there."""

    kernel: int
    name: str
    live: Live

    def amount(self, weight: Mapping[int, Any]) -> Any:
        """The sum of what is live, an element of that many bits weighing `weight[bits]`."""
        return sympy.Add(*(elements * weight[bits] * count for elements, bits, count in self.live))


@dataclass(frozen=True, repr=False)
class Memory(Shown):
    """What is live at level 1, column by column of every kernel, in `unit` ("elements" or "bytes").

    `paper` is the napkin form: loads, chunks and stored outputs only, one column per kernel.
    """

    live: tuple[Column, ...]
    paper: tuple[Column, ...]
    unit: str = "elements"
    dtype: str | None = None

    def _weight(self) -> dict[int, Any]:
        if self.unit == "elements":
            return dict.fromkeys(FORMATS.values(), sympy.Integer(1))
        one = FORMATS[self.dtype] if self.dtype else None
        return {bits: sympy.Rational(one or bits, 8) for bits in FORMATS.values()}

    def columns(self) -> dict[tuple[int, str], Any]:
        """The amount live at each column, by (number of the kernel, name of the column)."""
        weight = self._weight()
        return {(column.kernel, column.name): column.amount(weight) for column in self.live}

    def peak(self, **sizes: Any) -> Any:
        """The most that is live at once: a formula, a Max only where sizes decide; a number at `sizes`."""
        if sizes:
            return max((evaluate(amount, sizes) for amount in self._highest()), default=0)
        return largest(self._highest())

    def _highest(self) -> list[Any]:
        return undominated(dict.fromkeys(self.columns().values()))

    def where(self, **sizes: Any) -> tuple[tuple[int, str], ...]:
        """The columns at which the peak is reached; all that may be, while sizes are open."""
        high = self._highest()
        if sizes:
            peak = self.peak(**sizes)
            high = [amount for amount in high if evaluate(amount, sizes) == peak]
        return tuple(key for key, amount in self.columns().items() if amount in high)

    def per_kernel(self) -> tuple[Any, ...]:
        """The peak of each kernel, in order."""
        numbers = dict.fromkeys(column.kernel for column in self.live)
        parts = (replace(self, live=tuple(c for c in self.live if c.kernel == n)) for n in numbers)
        return tuple(part.peak() for part in parts)

    def bytes(self, dtype: str | None = None) -> Self:
        """The same in bytes: by the format of each wire (accumulators their own), or one for all."""
        return replace(self, unit="bytes", dtype=check_format(dtype) if dtype else None)

    def napkin(self) -> Self:
        """Only loads, chunks and stored outputs, as on the paper's figures: 2 g_q d + 2 s_x d."""
        return replace(self, live=self.paper)

    def at(self, **sizes: Any) -> dict[tuple[int, str], Number]:
        """The amount live at each column as a plain number at `sizes`."""
        return {key: evaluate(amount, sizes) for key, amount in self.columns().items()}

    def _table(self) -> Table:
        peak = set(self.where())
        marked = ((key, amount, "peak" if key in peak else "") for key, amount in self.columns().items())
        rows = [(str(number), name, amount, mark) for (number, name), amount, mark in marked]
        return Table([("kernel", "column", self.unit, ""), *rows])


def memory(term: Term) -> Memory:
    """What every kernel of the diagram holds in fast memory, column by column, in elements.

    >>> from diagkit.ops import array, axes, einsum, trace
    >>> from diagkit.term import Label, size
    >>> a, b, c = axes("a b c")
    >>> C = einsum("a b, b c -> a c", array("A", a, b), array("B", b, c), name="C")
    >>> tiled = Term(*trace([C]), labels=(Label("group", "a", size("g_a")), Label("group", "c", size("g_c"))))
    >>> memory(tiled).peak()
    b*g_a + b*g_c + g_a*g_c
    """
    cut = kernels(term)
    live = tuple(column for kernel in cut for column in _columns(kernel))
    return Memory(live, tuple(_paper(kernel) for kernel in cut))


def _columns(kernel: Kernel) -> Iterator[Column]:
    """Go along the columns; buffers come and go."""
    row = events(kernel)
    begins, ends = _by_place(buffers(kernel, row), len(row.names))
    live: Counter[tuple[Any, int]] = Counter()
    for place, name in enumerate(row.names):
        live.update(begins[place])
        yield Column(kernel.number, name, _alike(live))
        live.subtract(ends[place])


def _by_place(found: Sequence[Buffer], length: int) -> tuple[list[list[Any]], list[list[Any]]]:
    begins: list[list[Any]] = [[] for _ in range(length)]
    ends: list[list[Any]] = [[] for _ in range(length)]
    for buffer in found:
        begins[buffer.begin].append((buffer.elements, buffer.bits))
        ends[buffer.end].append((buffer.elements, buffer.bits))
    return begins, ends


def _alike(live: Counter[tuple[Any, int]]) -> Live:
    return tuple((elements, bits, count) for (elements, bits), count in live.items() if count)


def _paper(kernel: Kernel) -> Column:
    wires = [*kernel.region.loads, *kernel.region.stores]
    held = Counter((kernel.held(wire), FORMATS[kernel.wires[wire].dtype]) for wire in wires)
    return Column(kernel.number, "loads and stores", _alike(held))
