"""`Program`: a lowered diagram. One immutable value; each method is a door into one file of this room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagkit.program.lower import accepted, check_sizes, kernels
from diagkit.program.nest import Kernel
from diagkit.term import Term


@dataclass(frozen=True)
class Program:
    """The loop nests of a diagram: one kernel per region, in the order in which they run.

    * `term`: the diagram; `kernels`: the nests; `sizes`: (name, number) of the axes and tiles that were
      bound. What was left open stays a symbol in the kernels.
    """

    term: Term
    kernels: tuple[Kernel, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the axes and tiles that still have no number."""
        return tuple(name for name in accepted(self.term) if name not in dict(self.sizes))


def lower(term: Term, /, **sizes: Any) -> Program:
    """The loop nests of `term`; axes by name, tiles by the name of their symbol, in elements.

    What is left out stays symbolic, in the pseudocode too; running needs every tile. Raises InputError
    for a name that is neither an open axis nor an open tile, and for a number that it cannot be.
    """
    bound = check_sizes(term, sizes)
    return Program(term, kernels(term, bound), tuple(sorted(bound.items())))
