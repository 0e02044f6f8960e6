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
from diagkit.term import FORMATS, InputError, Term, check_format

Live = tuple[tuple[Any, int, int], ...]
"""Live buffers, alike ones together: (elements, bits of one, how many)."""


@dataclass(frozen=True)
class Column:
    """One column of one kernel: "load", a box, or "store", and the buffers live there.

    `chunks` are those of them that hold one chunk of a streamed input; `along` are the sizes of the axes that
    it runs along: where one is 0, nothing of it is ever there.
    """

    kernel: int
    name: str
    live: Live
    chunks: Live = ()
    along: tuple[Any, ...] = ()

    def amount(self, weight: Mapping[int, Any]) -> Any:
        """The sum of what is live, an element of that many bits weighing `weight[bits]`."""
        return sympy.Add(*(elements * weight[bits] * count for elements, bits, count in self.live))

    def empty(self, sizes: Mapping[str, Any]) -> bool:
        """Whether it runs along an axis of no element."""
        return any(evaluate(size, sizes) == 0 for size in self.along)


@dataclass(frozen=True, repr=False)
class Memory(Shown):
    """What is live at level 1, column by column of every kernel, in `unit` ("elements" or "bytes"): what there
    must be room for. A run whose masks hide every chunk of a loop holds less.

    `paper` is the napkin form: loads, chunks and stored outputs only, one column per kernel; in `apart` one
    for each box that reads a chunk, with the chunks that this box reads. `begun` is what a loop begins with,
    which is all that there is of it where its axis is empty.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> held = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").memory()
    >>> held.peak(), held.where(), held.per_kernel()
    (g_a*g_c + g_a*s_b + g_c*s_b, ((0, 'C.part'), (0, 'C.new')), (g_a*g_c + g_a*s_b + g_c*s_b,))
    >>> held.columns()[0, "store"], held.at(g_a=4, g_c=8, s_b=2, a=16, b=16, c=16)[0, "store"]
    (g_a*g_c, 32)
    >>> held.napkin().peak(), held.bytes("fp16").peak(g_a=4, g_c=8, s_b=2)
    (g_a*g_c + g_a*s_b + g_c*s_b, 112)
    >>> nowhere = {"g_a": 4, "g_c": 8, "s_b": 2, "a": 16, "b": 0, "c": 16}
    >>> held.peak(**nowhere), tuple(held.running(**nowhere).columns())
    (32, ((0, 'load'), (0, 'store'), (0, 'begin')))
    """

    live: tuple[Column, ...]
    paper: tuple[Column, ...]
    apart: tuple[Column, ...] = ()
    begun: tuple[Column, ...] = ()
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
            return max((evaluate(amount, sizes) for amount in self._candidates(sizes)), default=0)
        return largest(_highest(self))

    def running(self, **sizes: Any) -> Self:
        """Without the columns that run along an axis of no element; a loop that runs nowhere has just begun."""
        if all(sizes.values()):
            return self
        live, begun = (tuple(c for c in view if not c.empty(sizes)) for view in (self.live, self.begun))
        return replace(self, live=(*live, *begun))

    def where(self, **sizes: Any) -> tuple[tuple[int, str], ...]:
        """The columns at which the peak is reached; all that may be, while sizes are open."""
        high = self._candidates(sizes)
        if sizes:
            peak = self.peak(**sizes)
            high = [amount for amount in high if evaluate(amount, sizes) == peak]
        return tuple(key for key, amount in self.running(**sizes).columns().items() if amount in high)

    def _candidates(self, sizes: Mapping[str, Any]) -> list[Any]:
        """The amounts that may be the peak; which exceeds which is known of sizes from 1 up alone."""
        return _highest(self) if all(sizes.values()) else list(self.running(**sizes).columns().values())

    def per_kernel(self) -> tuple[Any, ...]:
        """The peak of each kernel, in order."""
        numbers = dict.fromkeys(column.kernel for column in self.live)
        parts = (replace(self, live=tuple(c for c in self.live if c.kernel == n)) for n in numbers)
        return tuple(part.peak() for part in parts)

    def bytes(self, dtype: str | None = None) -> Self:
        """The same in bytes: by the format of each wire (accumulators their own), or one for all."""
        return replace(self, unit="bytes", dtype=check_format(dtype) if dtype else None)

    def napkin(self, together: bool = True) -> Self:
        """Only loads, chunks and stored outputs, as on the paper's figures: 2 g_q d + 2 s_x d. With
        ``together=False`` a chunk is there only while a box reads it: K and V, one after the other, take
        s_x max(d_k, d_v)."""
        return replace(self, live=self.paper if together else self.apart)

    def buffered(self, times: int = 2) -> Self:
        """The same where each chunk has room for `times`: the next one arrives while this one is used.

        >>> import diagkit as dk
        >>> q, x = dk.axes("q x")
        >>> row = dk.Diagram(dk.total(dk.array("X", q, x), over="x", name="T")).group(q="g").stream(x="s")
        >>> row.memory().peak(), row.memory().buffered().peak()
        (g*s + g, 2*g*s + g)
        """
        if not isinstance(times, int) or times < 1:
            raise InputError(f"a chunk cannot have {times!r} buffers", remedy="use a whole number of at least 1")
        views = (self.live, self.paper, self.apart)
        live, paper, apart = (tuple(_widened(column, times) for column in view) for view in views)
        return replace(self, live=live, paper=paper, apart=apart)

    def at(self, **sizes: Any) -> dict[tuple[int, str], Number]:
        """The amount live at each column as a plain number at `sizes`."""
        running = self.running(**sizes).columns()
        return {key: evaluate(running.get(key, sympy.S.Zero), sizes) for key in (*self.columns(), *running)}

    def _table(self) -> Table:
        peak = set(self.where())
        marked = ((key, amount, "peak" if key in peak else "") for key, amount in self.columns().items())
        rows = [(str(number), name, amount, mark) for (number, name), amount, mark in marked]
        return Table([("kernel", "column", self.unit, ""), *rows])


def _highest(held: Memory) -> list[Any]:
    return undominated(dict.fromkeys(held.columns().values()))


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
    apart = tuple(column for kernel in cut for column in _apart(kernel))
    begun = tuple(_begun(kernel) for kernel in cut if kernel.form)
    return Memory(live, tuple(_paper(kernel) for kernel in cut), apart, begun)


def _columns(kernel: Kernel) -> Iterator[Column]:
    """Go along the columns; buffers come and go."""
    row = events(kernel)
    begins, ends = _by_place(buffers(kernel, row), len(row.names))
    live: Counter[tuple[Any, int]] = Counter()
    chunks = _alike(_sizes(kernel, _chunks(kernel)))
    for place, name in enumerate(row.names):
        live.update(begins[place])
        looping = row.first <= place <= row.last
        yield Column(kernel.number, name, _alike(live), chunks if looping else (), along(kernel, looping))
        live.subtract(ends[place])


def along(kernel: Kernel, looping: bool) -> tuple[Any, ...]:
    """The sizes of the axes that a kernel runs along tile by tile, the streamed one only in its loop."""
    axes = (*kernel.grouped, *([str(kernel.streamed)] if looping else []))
    return tuple(kernel.term.axis(axis).size for axis in axes)


def _begun(kernel: Kernel) -> Column:
    """What is there when a loop begins: what was loaded and made before and stays, and the states."""
    row = events(kernel)
    stays = [one for one in buffers(kernel, row) if one.begin < row.first <= one.end]
    live = Counter((one.elements, one.bits) for one in stays)
    live.update(_sizes(kernel, [state.name for state in kernel.form.state] if kernel.form else []))
    return Column(kernel.number, "begin", _alike(live), (), along(kernel, looping=False))


def _by_place(found: Sequence[Buffer], length: int) -> tuple[list[list[Any]], list[list[Any]]]:
    begins: list[list[Any]] = [[] for _ in range(length)]
    ends: list[list[Any]] = [[] for _ in range(length)]
    for buffer in found:
        begins[buffer.begin].append((buffer.elements, buffer.bits))
        ends[buffer.end].append((buffer.elements, buffer.bits))
    return begins, ends


def _alike(live: Counter[tuple[Any, int]]) -> Live:
    return tuple((elements, bits, count) for (elements, bits), count in live.items() if count)


def _widened(column: Column, times: int) -> Column:
    """A column with its chunks held so many times."""
    live = Counter({(elements, bits): count for elements, bits, count in column.live})
    live.update({(elements, bits): count * (times - 1) for elements, bits, count in column.chunks})
    chunks = tuple((elements, bits, count * times) for elements, bits, count in column.chunks)
    return replace(column, live=_alike(live), chunks=chunks)


def _chunks(kernel: Kernel) -> list[str]:
    """The inputs that arrive chunk by chunk."""
    return [wire for wire in kernel.region.loads if kernel.form and kernel.carries(wire, kernel.streamed)]


def _sizes(kernel: Kernel, wires: Sequence[str]) -> Counter[tuple[Any, int]]:
    return Counter((kernel.held(wire), FORMATS[kernel.wires[wire].dtype]) for wire in wires)


def _paper(kernel: Kernel) -> Column:
    wires = [*kernel.region.loads, *kernel.region.stores]
    chunks = _alike(_sizes(kernel, _chunks(kernel)))
    return Column(kernel.number, "loads and stores", _alike(_sizes(kernel, wires)), chunks, along(kernel, False))


def _apart(kernel: Kernel) -> Iterator[Column]:
    """The napkin of each box that reads a chunk; of a kernel where none does, the napkin itself."""
    chunks = _chunks(kernel)
    lasting = [wire for wire in (*kernel.region.loads, *kernel.region.stores) if wire not in chunks]
    readers = {box.name: [wire for wire in chunks if wire in box.inputs] for box in kernel.step}
    for name, read in readers.items():
        if read:
            live = _sizes(kernel, lasting) + _sizes(kernel, read)
            yield Column(kernel.number, name, _alike(live), _alike(_sizes(kernel, read)), along(kernel, True))
    if not any(readers.values()):
        yield _paper(kernel)
