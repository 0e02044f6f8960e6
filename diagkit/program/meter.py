"""What a program moves and holds, counted event by event while it runs (or while its loops are walked)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from diagkit.program.show import Rows, table_html, table_text
from diagkit.term import FORMATS

Key = tuple[str, int, int, str]
"""(array, from level, to level, kind): kinds are "input", "output", "spill" and "refill"."""


@dataclass(frozen=True)
class Held:
    """The most storage that one kernel held at once in fast memory, in elements and in bytes, and the
    columns of the diagram at which it did."""

    kernel: str
    elements: int
    at: str
    bytes: float
    bytes_at: str


@dataclass
class Meter:
    """Counts moves, storage and multiply-adds. Storage is that of full tiles: what a kernel reserves."""

    moved: dict[Key, int] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    flops: int = 0
    held: list[Held] = field(default_factory=list)
    _live: dict[str, tuple[int, int]] = field(default_factory=dict)
    _times: int = 1
    _most: tuple[int, str] = (0, "")
    _most_bits: tuple[int, str] = (0, "")

    @property
    def times(self) -> int:
        """How often what is counted now happens."""
        return self._times

    @property
    def most(self) -> int:
        """The most elements held at once since the kernel began."""
        return self._most[0]

    @contextmanager
    def repeated(self, times: int) -> Iterator[None]:
        """What is counted inside happens that many times."""
        before, self._times = self._times, self._times * times
        yield
        self._times = before

    @contextmanager
    def kernel(self, name: str) -> Iterator[None]:
        """The storage of one kernel: nothing outlives it."""
        self._live, self._most, self._most_bits = {}, (0, ""), (0, "")
        yield
        assert not self._live, f"kernel {name!r} never gave back {sorted(self._live)}"
        self.held.append(Held(name, *self._most, _bytes(self._most_bits[0]), self._most_bits[1]))

    def move(self, key: Key, elements: int, dtype: str) -> None:
        """`elements` of an array go from one level to another."""
        self.moved[key] = self.moved.get(key, 0) + elements * self._times
        self.formats[key[0]] = dtype

    def work(self, flops: int) -> None:
        """Operations of a contraction, two per multiply-add."""
        self.flops += flops * self._times

    def hold(self, wire: str, elements: int, dtype: str, at: str) -> None:
        """A buffer begins."""
        self._live[wire] = elements, FORMATS[dtype]
        self._measure(at)

    def take_over(self, old: str, new: str, dtype: str, at: str) -> None:
        """`new` overwrites `old`: one storage, as wide as the wider of the two formats."""
        elements, bits = self._live.pop(old)
        self._live[new] = elements, max(bits, FORMATS[dtype])
        self._measure(at)

    def free(self, wire: str) -> None:
        """A buffer ends."""
        del self._live[wire]

    def _measure(self, at: str) -> None:
        elements = sum(count for count, _ in self._live.values())
        bits = sum(count * width for count, width in self._live.values())
        self._most = max(self._most, (elements, at), key=lambda pair: pair[0])
        self._most_bits = max(self._most_bits, (bits, at), key=lambda pair: pair[0])


def _bytes(bits: int) -> float:
    return bits // 8 if bits % 8 == 0 else bits / 8


@dataclass(frozen=True, repr=False)
class Count:
    """What a program moved and held: `transfers` in elements by (array, from level, to level, kind);
    `formats` of the arrays; `held` per kernel, in fast memory; `flops` of its contractions.

    >>> import diagkit as dk
    >>> import numpy as np
    >>> made = dk.Diagram(dk.exp(dk.array("X", dk.axis("x"), dtype="fp16"), name="E"), name="exp").group(x=4).lower()
    >>> found = made.count(X=np.zeros(8, np.float16))
    >>> found.total(), found.total_bytes(), found.peak, found.peak_bytes, found.bytes()["X", 0, 1, "input"]
    (16, 32, 4, 8, 16)
    """

    transfers: dict[Key, int]
    formats: dict[str, str]
    held: tuple[Held, ...]
    flops: int

    def __repr__(self) -> str:
        return table_text(_rows(self))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return table_html(_rows(self))

    def total(self) -> int:
        """Elements moved, all arrays, both directions."""
        return sum(self.transfers.values())

    def bytes(self) -> dict[Key, float]:
        """Bytes moved, by the format of each array."""
        return {key: _bytes(n * FORMATS[self.formats[key[0]]]) for key, n in self.transfers.items()}

    def total_bytes(self) -> float:
        """Bytes moved, all arrays, both directions."""
        return sum(self.bytes().values())

    @property
    def peak(self) -> int:
        """The most elements that any kernel held in fast memory at once, in this run: where a mask hides every
        chunk of a loop, its chunks and scores were never there, though a kernel must have room for them."""
        return max((held.elements for held in self.held), default=0)

    @property
    def peak_bytes(self) -> float:
        """The most bytes that any kernel held in fast memory at once."""
        return max((held.bytes for held in self.held), default=0)


def finished(meter: Meter) -> Count:
    """The counts of a meter that has run."""
    return Count(dict(meter.moved), dict(meter.formats), tuple(meter.held), meter.flops)


def _rows(count: Count) -> Rows:
    """Transfers and their total, what each kernel holds at most, and the FLOP, under a head."""
    size = count.bytes()
    moved = [
        (array, kind, f"{source} → {target}", elements, size[array, source, target, kind])
        for (array, source, target, kind), elements in count.transfers.items()
    ]
    held = [(f"peak of {held.kernel}", f"at {held.at}", "1", held.elements, held.bytes) for held in count.held]
    total = ("total", "", "", count.total(), count.total_bytes())
    return [
        ("array", "kind", "level", "elements", "bytes"),
        *moved,
        total,
        *held,
        ("contractions", "FLOP", "", count.flops, ""),
    ]
