"""Intensity: operations per byte moved, and where that puts a diagram under a machine's roof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagkit.cost.transfers import transfers
from diagkit.cost.work import work
from diagkit.term import Term


def intensity(term: Term, dtype: str | None = None, **sizes: Any) -> Any:
    """FLOP of the contractions per byte moved: a formula, or a number at `sizes`.

    >>> from diagkit.ops import array, axes, einsum, trace
    >>> a, b, c = axes("a=2 b=3 c=5")
    >>> C = einsum("a b, b c -> a c", array("A", a, b), array("B", b, c), name="C")
    >>> intensity(Term(*trace([C])))
    15/31
    """
    flop, moved = work(term).flop(**sizes), transfers(term).bytes(dtype).total(**sizes)
    return flop / moved


@dataclass(frozen=True)
class Point:
    """Where a diagram stands: `intensity` in FLOP per byte, the rate in FLOP/s that the roof allows
    there, and what bounds it ("memory" or "compute")."""

    intensity: float
    rate: float
    bound: str


def roofline_point(term: Term, bandwidth: float, peak: float, dtype: str | None = None, **sizes: Any) -> Point:
    """The diagram under the roof of `bandwidth` (bytes/s) and `peak` (FLOP/s), at `sizes` (elements).

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> roofline_point(dk.Diagram(C), 1e12, 1e14, a=1024, b=1024, c=1024).bound
    'compute'
    """
    at = float(intensity(term, dtype, **sizes))
    return Point(at, min(peak, at * bandwidth), "memory" if at * bandwidth < peak else "compute")
