"""What is carried from chunk to chunk: partial results, and the running means that deviations are taken from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.derive.algebra import ONE, ZERO
from diagkit.term import Axes, Reduce, quotient

STARTS = {"sum": ZERO, "max": -sympy.oo, "min": sympy.oo, "product": ONE}
"""What each operation makes of nothing."""

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "max": sympy.Max,
    "min": sympy.Min,
    "product": lambda a, b: a * b,
}
"""How each operation makes one of two partial results."""


@dataclass(frozen=True)
class Accumulator:
    """One thing that is carried: the `op` over the axes `over` of the product of `operands`.

    `carry` is what the old value becomes when a chunk changes what it waits for, also while nothing has been
    seen where that is `sure`; `sources` are the wires that the operands were taken from.
    """

    name: str
    axes: Axes
    op: str
    over: tuple[str, ...]
    operands: tuple[Any, ...]
    sources: tuple[str, ...]
    carry: Any
    contracts: bool
    sure: bool = False

    @property
    def start(self) -> Any:
        """The value of nothing."""
        return STARTS[self.op]


@dataclass(frozen=True)
class Centre:
    """A deviation from a running mean: the values `of` minus the partial sum `total` over the count, which is the
    sum of `weight`."""

    symbol: Any
    of: Any
    total: Any
    count: Any
    weight: Any
    suffix: str = ".mean"

    @property
    def mean(self) -> Any:
        """The mean of what has been seen."""
        return quotient(self.total, self.count)


def op_of(box: Any) -> str:
    """The operation of a reduction; a contraction sums.

    >>> op_of(Reduce("m", (), ("X",), "max", ("x",)))
    'max'
    """
    return str(box.op) if isinstance(box, Reduce) else "sum"
