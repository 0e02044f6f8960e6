"""Levels: the memories of a machine from the slowest down, and a diagram as one of them sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from diagkit.term.errors import TermError
from diagkit.term.labels import LEVEL_NAMES
from diagkit.term.term import Term

AnyTerm = TypeVar("AnyTerm", bound=Term)


@dataclass(frozen=True)
class Level:
    """One family of memories: `children` of them under each memory of the level above, each holding
    `capacity`, filled from above at `bandwidth` (all of the family together, per second).

    Capacity and bandwidth are in one unit, elements or bytes, and may be symbols; `role` is the place in a
    theme's level colours.

    >>> shared = Level("shared", 1, capacity="M", bandwidth="B")
    >>> shared.name, shared.role, shared.children
    ('shared', 1, 1)
    """

    name: str
    role: int
    capacity: Any = None
    bandwidth: Any = None
    children: Any = 1


@dataclass(frozen=True)
class LevelGraph:
    """The level graph: a chain of families, slowest first; the first has number `top`.

    Memory numbers stay what they are in `LEVEL_NAMES` (0 is global memory); what lies above has negative ones.

    >>> [(number, level.name) for number, level in GPU]
    [(0, 'global'), (1, 'shared'), (2, 'register'), (3, 'fragment')]
    >>> NETWORK.number("network"), NETWORK.number("global"), CLUSTERS[1].name
    (-1, 0, 'cluster')
    """

    levels: tuple[Level, ...]
    top: int = 0

    def __iter__(self) -> Iterator[tuple[int, Level]]:
        return enumerate(self.levels, self.top)

    def __getitem__(self, number: int) -> Level:
        found = dict(self)
        if number not in found:
            known = ", ".join(f"{n} {level.name}" for n, level in self)
            raise TermError(f"there is no level {number}", remedy=f"the levels are: {known}")
        return found[number]

    def number(self, name: str) -> int:
        """The number of a level by its name; a TermError that lists the others where there is none."""
        found = {level.name: number for number, level in self}
        if name not in found:
            raise TermError(f"there is no level {name!r}", remedy=f"the levels are: {', '.join(found)}")
        return found[name]


GPU = LevelGraph(tuple(Level(name, role) for role, name in enumerate(LEVEL_NAMES)))
"""Device memory, the memory of thread blocks, registers, fragments of the matrix units."""
CLUSTERS = LevelGraph((Level("global", 0), Level("cluster", 1), Level("shared", 1), Level("register", 2)))
"""The same with clusters: the shared memories of several blocks that read from each other."""
NETWORK = LevelGraph((Level("network", 0), *GPU.levels), top=-1)
"""Several devices: the network stands above device memory."""


def depth(term: Term) -> int:
    """The number of the fastest level that labels of `term` speak of; 1 where there are none.

    >>> from diagkit.term.boxes import Array, Axis
    >>> depth(Term((Array("X", (Axis("x"),)),), (), ("X",)))
    1
    """
    return max((label.level for label in term.labels), default=1)


def at_level(term: AnyTerm, level: int) -> AnyTerm:
    """The diagram as one memory of `level` sees it: its tiles, as if they were the only ones.

    An axis that no label of this level cuts keeps the tile of the nearest level above. The steps that led
    here are dropped: none of them led to this value.

    >>> from diagkit.term import Array, Axis, Label
    >>> labels = Label("group", "x", 8), Label("group", "x", 2, level=2)
    >>> at_level(Term((Array("X", (Axis("x"),)),), (), ("X",), labels=labels), 2).labels
    (Label('group', 'x', 2),)
    """
    nearest = {(label.kind, label.axis): label for label in term.labels if label.level <= level}
    labels = tuple(replace(label, level=1) for label in nearest.values())
    return term if labels == term.labels else term.replace(labels=labels, steps=())


def outer_tiles(term: Term, kind: str, axis: str, level: int) -> tuple[Any, ...]:
    """The tiles of `axis` at the levels above `level`, largest first; the axis itself is not among them.

    >>> import diagkit as dk
    >>> double = dk.Diagram(2 * dk.array("X", dk.axis("x")), name="double").group(x="g_x").group(level=2, x="w_x")
    >>> outer_tiles(double, "group", "x", 2), outer_tiles(double, "group", "x", 1)
    ((g_x,), ())
    """
    found = (label for label in term.labels if (label.kind, label.axis) == (kind, axis))
    return tuple(label.tile for label in sorted(found, key=lambda label: label.level) if label.level < level)
