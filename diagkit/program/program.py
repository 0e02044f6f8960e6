"""`Program`: a lowered diagram. One immutable value; each method is a door into one file of this room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagkit.ops import by_name, check_formulas, close_arrays, open_arrays
from diagkit.program.execute import run_kernels, walk_kernels
from diagkit.program.lower import kernels
from diagkit.program.lowered import Lowered
from diagkit.program.meter import Count
from diagkit.program.nest import Kernel
from diagkit.program.pseudocode import pseudocode
from diagkit.term import Term, check_sizes


@dataclass(frozen=True, repr=False)
class Program(Lowered):
    """The loop nests of a diagram: one kernel per region, in the order in which they run.

    * `term`: the diagram; `kernels`: the nests; `sizes`: (name, number) of the axes and tiles that were
      bound. What was left open stays a symbol in the kernels.

    >>> import diagkit as dk
    >>> made = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").group(x="g_x").lower()
    >>> made.deepest, made.at(g_x=4).run(X=[0.0] * 8)[:2]
    (1, array([1., 1.]))
    >>> print(made.at(x=8, g_x=4).pseudocode())
    # exp: loads and stores are global <-> shared memory
    <BLANKLINE>
    kernel E:                          # boxes E
        par x_tile in x by 4:          # 2 independent tiles of x
            X <- load X[x_tile]   (4)  # X · input
            E = exp(X)            (4)  # E · special, in place of X
            store E -> E[x_tile]  (4)  # E · output
            free E
    """

    term: Term
    kernels: tuple[Kernel, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def deepest(self) -> int:
        """Tiles of level 1."""
        return 1

    def at(self, **sizes: Any) -> Program:
        """The same diagram lowered with these sizes."""
        return lower(self.term, **sizes)

    def pseudocode(self) -> str:
        """The loop nests as text: each line with the tile it makes, the box it comes from and its unit."""
        return pseudocode(self.term.name, self.kernels)

    def run(self, *unnamed: Any, **arrays: Any) -> Any:
        """The outputs, computed tile by tile: numpy or torch arrays in by name, the same kind out.

        Sizes that were left open are taken from the arrays; tiles must have been given. One output comes
        alone, several as a dict by name. Raises InputError where arrays and sizes disagree.
        """
        return self._run(by_name(self.term, unnamed, arrays))[0]

    def count(self, **arrays: Any) -> Count:
        """What moves and what is held: counted while it runs on `arrays`, event by event.

        Without arrays the same loop nest is walked without data, tiles counted by their extents; that is
        quick at any size, needs every size and tile, and gives the same numbers.

        >>> from diagkit.ops import array, axes, trace
        >>> twice = Term(*trace([array("X", axes("q"), dtype="fp16") * 2]), "twice")
        >>> count = lower(twice, q=10).count()
        >>> count.total(), count.total_bytes(), count.peak
        (20, 40, 10)
        """
        if arrays:
            return self._run(arrays)[1]
        self._need(self.missing)
        return walk_kernels(self.kernels, self.known)

    def _run(self, arrays: Mapping[str, Any]) -> tuple[Any, Count]:
        engine, start = open_arrays(self.term, arrays, sizes=self.known)
        ready = self._bound(engine)
        with np.errstate(all="ignore"):
            slow, count = run_kernels(ready.kernels, engine, start)
        return close_arrays(engine, self.term, {name: slow[name] for name in self.term.outputs}), count


def lower(term: Term, /, **sizes: Any) -> Program:
    """The loop nests of `term`; axes by name, tiles by the name of their symbol, in elements.

    What is left out stays symbolic, in the pseudocode too; running needs every tile. Raises InputError
    for a name that is neither an open axis nor an open tile, and for a number that it cannot be.

    >>> from diagkit.ops import array, axes, total, trace
    >>> q, x = axes("q x")
    >>> sums = Term(*trace([total(array("X", q, x), over=x, name="s")]), "sums")
    >>> print(lower(sums, x=4))
    # sums: loads and stores are global <-> shared memory
    <BLANKLINE>
    kernel s:                 # boxes s
        X <- load X[q, x]      (q × 4)  # X · input
        s = sum over x of X    (q)      # s · fma
        free X
        store s -> s[q]        (q)      # s · output
        free s
    <BLANKLINE>
    """
    bound = check_sizes(term, sizes)
    check_formulas(term, term.numbers(bound))
    return Program(term, kernels(term, bound), tuple(sorted(bound.items())))
