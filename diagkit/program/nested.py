"""`Nested`: a diagram lowered on all the levels that its labels speak of; pseudocode with its sub-loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagkit.ops import by_name, close_arrays, open_arrays
from diagkit.program.levels import LevelCount, Nest, phase, run_nests, walk_nests
from diagkit.program.lower import kernels
from diagkit.program.lowered import Lowered
from diagkit.program.nest import Kernel, Load, Statement, Store
from diagkit.program.pseudocode import Line, aligned, lines
from diagkit.term import LEVEL_NAMES, Term, at_level, check_sizes, depth


@dataclass(frozen=True, repr=False)
class Nested(Lowered):
    """The loop nests of a diagram on several levels: per kernel one nest for each, from level 1 down.

    * `term`: the diagram; `nests`: its kernels, each as every level has it; `sizes`: (name, number) of the axes
      and tiles that were bound, tiles of all levels.

    >>> import diagkit as dk
    >>> grown = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp")
    >>> made = grown.group(x="g_x").group(level=2, x="w_x").nested()
    >>> made.deepest, made.at(x=8, g_x=4, w_x=2).run(X=[0.0] * 8)[:2]
    (2, array([1., 1.]))
    >>> made.pseudocode().splitlines()[0]
    '# exp: levels global, shared, register'
    """

    term: Term
    nests: tuple[Nest, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def deepest(self) -> int:
        """Tiles of every level that labels speak of."""
        return depth(self.term)

    def at(self, **sizes: Any) -> Nested:
        """The same diagram lowered with these sizes."""
        return nested(self.term, **sizes)

    def pseudocode(self) -> str:
        """The loops and, inside a tile of each level, the sub-loops of the next."""
        top = f"# {self.term.name}: levels {', '.join(LEVEL_NAMES[: depth(self.term) + 1])}"
        return "\n\n".join([top, *(aligned(list(_nest_lines(nest))) for nest in self.nests)]) + "\n"

    def run(self, *unnamed: Any, **arrays: Any) -> Any:
        """The outputs, computed by the innermost tiles; one comes alone, several as a dict by name."""
        return self._run(by_name(self.term, unnamed, arrays))[0]

    def count(self, **arrays: Any) -> LevelCount:
        """What crosses at every level and what one memory of each holds: counted while it runs on `arrays`,
        or without arrays while the tiles are gone through by their extents.

        >>> from diagkit import derive, ops
        >>> rows = Term(*ops.trace([ops.softmax(ops.array("X", *ops.axes("q x")), over="x", name="P")]), "rows")
        >>> nested(derive.group(derive.group(rows, q=4), level=2, q=2), q=9, x=3).count().peaks
        {1: 12, 2: 8}
        """
        if arrays:
            return self._run(arrays)[1]
        self._need(self.missing)
        return walk_nests(self.nests, self.known)

    def _run(self, arrays: Mapping[str, Any]) -> tuple[Any, LevelCount]:
        engine, start = open_arrays(self.term, arrays, sizes=self.known)
        ready = self._bound(engine)
        with np.errstate(all="ignore"):
            slow, count = run_nests(ready.nests, engine, start)
        return close_arrays(engine, self.term, {name: slow[name] for name in self.term.outputs}), count


def nested(term: Term, /, **sizes: Any) -> Nested:
    """The loop nests of `term` on all its levels; axes by name, tiles of every level by their symbol.

    What is left out stays symbolic, in the pseudocode too. Raises InputError as `lower` does.
    """
    bound = check_sizes(term, sizes, depth(term))
    levels = [kernels(at_level(term, level), bound, outermost=level == 1) for level in range(1, depth(term) + 1)]
    return Nested(term, tuple(zip(*levels, strict=True)), tuple(sorted(bound.items())))


def _nest_lines(nest: Nest) -> Iterator[Line]:
    kernel = nest[0]
    yield Line(0, f"kernel {kernel.name}:", "", f"boxes {', '.join(kernel.boxes)}")
    loops = list(_tiles(kernel, 1, 1))
    yield from loops
    for part in ("open", "loop", "finish"):
        yield from _PARTS[part](nest, 1, 1 + len(loops))


def _tiles(kernel: Kernel, level: int, indent: int) -> Iterator[Line]:
    """The parallel loops over the tiles of one level."""
    for deeper, loop in enumerate(kernel.groups):
        text = f"par {_at(loop.axis, level)} in {_at(loop.axis, level - 1)} by {loop.tile}:"
        yield Line(indent + deeper, text, "", f"tiles of {loop.axis} in {LEVEL_NAMES[level]} memory")


def _at(axis: str, level: int) -> str:
    """The part of an axis that is at hand at a level: all of q, then q_tile, then q_tile2 inside it."""
    return axis if not level else f"{axis}_tile{level if level > 1 else ''}"


def _said(kernel: Kernel, body: Iterable[Statement], level: int, indent: int) -> Iterator[Line]:
    """Statements of one level; loads and stores say between which memories."""
    for statement in body:
        for line in lines(kernel, (statement,), indent):
            yield _between(line, statement, level) if isinstance(statement, Load | Store) else line


def _between(line: Line, statement: Statement, level: int) -> Line:
    pair = LEVEL_NAMES[level - 1], LEVEL_NAMES[level]
    ways = " -> ".join(pair if isinstance(statement, Load) else reversed(pair))
    text = line.text.replace("_tile", f"_tile{level}") if level > 1 else line.text
    return replace(line, text=text, origin=f"{line.origin}, {ways}")


def _below(nest: Nest, level: int, indent: int, part: str) -> Iterator[Line]:
    """What the tiles of the next level do in one part, under their loops; nothing where they do nothing."""
    loops = list(_tiles(nest[1], level + 1, indent))
    done = list(_PARTS[part](nest[1:], level + 1, indent + len(loops)))
    return iter([*loops, *done] if done else [])


def _open(nest: Nest, level: int, indent: int) -> Iterator[Line]:
    yield from _said(nest[0], phase(nest[0], "take"), level, indent)
    if nest[1:]:
        yield from _below(nest, level, indent, "open")
    else:
        yield from _said(nest[0], phase(nest[0], "begin"), level, indent)


def _loop(nest: Nest, level: int, indent: int) -> Iterator[Line]:
    kernel, loop = nest[0], nest[0].loop
    if loop is None:
        return
    (head,) = lines(kernel, (replace(loop, body=()),), indent)
    yield head if level == 1 else _inner(head, loop.axis, level)
    if not nest[1:]:
        yield from _said(kernel, loop.body, level, indent + 1)
        return
    yield from _said(kernel, (one for one in loop.body if isinstance(one, Load)), level, indent + 1)
    yield from _below(nest, level, indent + 1, "loop")
    yield from _said(kernel, (one for one in loop.body if isinstance(one, Store)), level, indent + 1)


def _inner(head: Line, axis: str, level: int) -> Line:
    """The head of a sub-loop: it runs through the chunk that the level above holds."""
    text = head.text.replace("_tile", f"_tile{level}").replace(f" in {axis}", f" in {_at(axis, level - 1)}", 1)
    return replace(head, text=text, origin=f"parts of a chunk of {axis}, in order")


def _finish(nest: Nest, level: int, indent: int) -> Iterator[Line]:
    if nest[1:]:
        yield from _below(nest, level, indent, "finish")
        stores = (one for one in phase(nest[0], "finish") if isinstance(one, Store))
        yield from _said(nest[0], stores, level, indent)
    else:
        yield from _said(nest[0], phase(nest[0], "finish"), level, indent)


_PARTS: dict[str, Callable[[Nest, int, int], Iterator[Line]]] = {"open": _open, "loop": _loop, "finish": _finish}
