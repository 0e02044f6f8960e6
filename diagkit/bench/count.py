"""What kernels moved, element by element, as they counted it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diagkit.bench.launch import Key, bind
from diagkit.bench.show import Shown
from diagkit.program import Program
from diagkit.term import FORMATS


@dataclass(frozen=True, repr=False)
class Counted(Shown):
    """Elements moved between slow and fast memory by (array, from level, to level, kind), counted by the
    kernels of `target` at `sizes`; `formats` of the arrays.

    >>> moved = {("Q", 0, 1, "input"): 8, ("O", 1, 0, "output"): 8}
    >>> found = Counted("numba", (("q", 8),), moved, {"Q": "fp16", "O": "fp32"})
    >>> found.total(), found.total_bytes(), found.bytes()["Q", 0, 1, "input"]
    (16, 48, 16)
    >>> found.rows()[1]
    ('Q (input)', '8 elements, 16 bytes')
    """

    target: str
    sizes: tuple[tuple[str, int], ...]
    transfers: Mapping[Key, int]
    formats: Mapping[str, str]

    def bytes(self) -> dict[Key, float]:
        """Bytes moved, by the format that the diagram gives each array."""
        bits = {key: count * FORMATS[self.formats[key[0]]] for key, count in self.transfers.items()}
        return {key: n // 8 if n % 8 == 0 else n / 8 for key, n in bits.items()}

    def total(self) -> int:
        """Elements moved, all arrays, both directions."""
        return sum(self.transfers.values())

    def total_bytes(self) -> float:
        """Bytes moved, all arrays, both directions."""
        return sum(self.bytes().values())

    def rows(self) -> list[tuple[str, str]]:
        """One row per array and direction, and the total."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes)
        moved = self.bytes()
        lines = [(f"{key[0]} ({key[3]})", f"{n:,} elements, {moved[key]:,} bytes") for key, n in self.transfers.items()]
        total = f"{self.total():,} elements, {self.total_bytes():,} bytes"
        return [("counted", f"{self.target}, {sizes}"), *lines, ("total", total)]


def count(program: Program, target: str, arrays: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> Counted:
    """Run kernels that count on `arrays`; what they moved. `sizes` where no array tells them."""
    bound = bind(program, target, arrays, sizes, counting=True)
    bound.launch.run()
    moved = dict(bound.launch.moved)
    formats = {key[0]: program.term.wires[key[0]].dtype for key in moved}
    return Counted(target, tuple(sorted(bound.engine.sizes.items())), moved, formats)
