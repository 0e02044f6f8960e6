"""The loop nest as a tree of plain data: kernels, loops, and the statements inside them.

Every meaning of a program (pseudocode, numpy, counts, kernel source) is a fold over this tree with one
case per kind of statement. Sizes and tiles are integers, or size symbols where they were left open.

A kernel runs one region. Along each of its axes it holds either a *group* tile (one of many that run
independently), a *stream* chunk (one after the other) or the *whole* axis: its `Span`. A wire inside the
kernel is a tile over its axes, each as long as that axis's span says; edge tiles are shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from diagkit.term import Alias, Axes, Box, Wire, coordinate


@dataclass(frozen=True)
class Span:
    """How much of an axis a kernel holds at a time: `tile` elements of its `size`.

    `role` is "group", "stream" or "whole"; a whole axis is one tile of its own size.

    >>> Span("q", 512, 64, "group").tile
    64
    """

    axis: str
    size: Any
    tile: Any
    role: str


@dataclass(frozen=True)
class Move:
    """A tile of `wire` crosses between slow and fast memory; `traffic` says as what, `dtype` is the format
    in slow memory."""

    wire: str
    traffic: str
    dtype: str
    kind: ClassVar[str] = "move"

    @property
    def column(self) -> str:
        """The wire it moves."""
        return self.wire

    @property
    def array(self) -> str:
        """The array that it moves elements of, and under which these are counted."""
        return self.wire


@dataclass(frozen=True)
class Load(Move):
    """Read a tile from slow memory: at the current group and, in the loop, the current chunk.

    `traffic` is "input" (an array of the diagram) or "refill" (an intermediate that was spilled). Where
    `wire` is an alias, `source` is the array behind it, and `through` says where each element lies in it
    (None below the outermost level: there the tile above is read).
    """

    source: str = ""
    through: Alias | None = None

    @property
    def array(self) -> str:
        """The array behind an alias, else the wire itself."""
        return self.source or self.wire

    kind: ClassVar[str] = "load"


@dataclass(frozen=True)
class Store(Move):
    """Write a tile to slow memory; `traffic` is "output" or "spill". A state may be held wider than it is
    stored."""

    kind: ClassVar[str] = "store"


@dataclass(frozen=True)
class Init:
    """Begin the state `wire` at the number `start` (0, or -oo for a maximum), before the loop."""

    wire: str
    start: Any
    column: str
    kind: ClassVar[str] = "init"


@dataclass(frozen=True)
class Compute:
    """Run one primitive `box` on tiles: its inputs are wires made or loaded before.

    `into` names the input whose storage the result takes over (in place), or None. `buffer` is false
    for what takes no storage: positions, and values of a step that do not carry the streamed axis.
    """

    box: Box
    column: str
    into: str | None = None
    buffer: bool = True
    kind: ClassVar[str] = "compute"


@dataclass(frozen=True)
class Update:
    """At the end of an iteration the state `wire` takes the value of the wire `new`."""

    wire: str
    new: str
    column: str
    kind: ClassVar[str] = "update"


@dataclass(frozen=True)
class Free:
    """Give back the storage of `wires`: nothing reads them any more."""

    wires: tuple[str, ...]
    kind: ClassVar[str] = "free"

    @property
    def column(self) -> str:
        """The first wire whose storage ends."""
        return self.wires[0]


@dataclass(frozen=True)
class ParFor:
    """The independent tiles along `axis`: ceil(size / tile) of them, in any order or at once.

    >>> ParFor("q", 512, 64, ()).column
    'q'
    """

    axis: str
    size: Any
    tile: Any
    body: tuple[Statement, ...]
    kind: ClassVar[str] = "parfor"

    @property
    def column(self) -> str:
        """The axis it runs along."""
        return self.axis


@dataclass(frozen=True)
class For:
    """The chunks of `axis`, one after the other: those that meet the positions lo <= j < hi.

    `lo` and `hi` are positions (elements, not chunks) and may depend on the group that runs, through
    ``first(axis)`` and ``last(axis)``: its first and last position along a grouped axis. Chunk numbers
    run from lo // tile up to but without ceil(hi / tile). Chunks that lie in full_lo <= j < full_hi are
    live throughout: there the masks named in `masks` hold everywhere and need not be applied.

    >>> For("x", 512, 64, 0, 512, ()).column
    'x'
    """

    axis: str
    size: Any
    tile: Any
    lo: Any
    hi: Any
    body: tuple[Statement, ...]
    full_lo: Any = None
    full_hi: Any = None
    masks: tuple[str, ...] = ()
    kind: ClassVar[str] = "for"

    @property
    def column(self) -> str:
        """The axis it runs along."""
        return self.axis


Statement = Load | Store | Init | Compute | Update | Free | ParFor | For
"""One line of a kernel. Its `column` is the box (a column of the diagram) that it comes from; for loads,
stores and loops it is the wire or the axis that they serve."""


def first(axis: str) -> Any:
    """The first position of the current group along `axis` (0 where the axis is whole).

    >>> first("q"), last("q")
    (q.first, q.last)
    """
    return coordinate(f"{axis}.first")


def last(axis: str) -> Any:
    """The last position of the current group along `axis`: a short edge tile ends with the axis."""
    return coordinate(f"{axis}.last")


@dataclass(frozen=True)
class Kernel:
    """One region as a loop nest.

    * `name`: the wire it stores first; `boxes`: the columns of the diagram it runs.
    * `spans`: every axis of its wires, and how much of it is held at a time.
    * `wires`: every wire in it (loaded, made, carried, stored), with axes, format and whether virtual.
    * `body`: nested `ParFor`s, then loads, boxes, perhaps one `For`, and stores.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> rows = dk.Diagram(dk.total(dk.array("X", q, x), over=x, name="T")).group(q=4).stream(x=8)
    >>> (kernel,) = rows.lower(q=16, x=16).kernels
    >>> kernel.span["q"].tile, kernel.wire["X"].dtype, list(kernel.arrays), kernel.tile(rows.wires["X"].axes)
    (4, 'fp32', ['X', 'T'], (4, 8))
    >>> kernel.loop.axis, [loop.axis for loop in kernel.groups], [line.kind for line in kernel.part("loop")]
    ('x', ['q'], ['load', 'compute', 'compute', 'update', 'free'])
    >>> len(kernel.statements), len(kernel.inner), kernel.narrowed
    (10, 4, {})
    """

    name: str
    boxes: tuple[str, ...]
    spans: tuple[Span, ...]
    wires: tuple[Wire, ...]
    body: tuple[Statement, ...]

    @cached_property
    def wire(self) -> dict[str, Wire]:
        """The wires by name."""
        return {wire.name: wire for wire in self.wires}

    @cached_property
    def arrays(self) -> dict[str, Wire]:
        """The arrays in slow memory that it loads from or stores, those behind aliases too, by name."""
        found = {}
        for move in (s for s in self.statements if isinstance(s, Load | Store)):
            alias = move.through if isinstance(move, Load) else None
            wire = self.wire[move.wire]
            found[move.array] = wire if alias is None else Wire(move.array, alias.axes, move.dtype)
        return found

    @cached_property
    def span(self) -> dict[str, Span]:
        """The spans by axis."""
        return {span.axis: span for span in self.spans}

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Every statement, loops before what is in them."""
        return tuple(walk(self.body))

    @cached_property
    def narrowed(self) -> dict[str, str]:
        """The wires that renew a state held in fewer bits than are computed in, and its format: they are rounded."""
        wide = any(wire.dtype == "fp64" for wire in self.wires)
        kept = ("fp64",) if wide else ("fp32", "fp64")
        renewed = [(s.new, self.wire[s.wire].dtype) for s in self.statements if isinstance(s, Update)]
        return {new: dtype for new, dtype in renewed if dtype not in kept}

    @cached_property
    def groups(self) -> tuple[ParFor, ...]:
        """The parallel loops, outermost first."""
        return tuple(s for s in self.statements if isinstance(s, ParFor))

    @cached_property
    def loop(self) -> For | None:
        """The streaming loop, if the kernel has one."""
        return next((s for s in self.statements if isinstance(s, For)), None)

    @cached_property
    def inner(self) -> tuple[Statement, ...]:
        """What one group does: the body of the innermost parallel loop."""
        return self.groups[-1].body if self.groups else self.body

    def part(self, where: str) -> tuple[Statement, ...]:
        """The statements "before" the streaming loop, in the "loop", or "after" it.

        Without a streaming loop everything is "before".
        """
        at = self.inner.index(self.loop) if self.loop else len(self.inner)
        parts = {"before": self.inner[:at], "loop": self.loop.body if self.loop else (), "after": self.inner[at + 1 :]}
        return parts[where]

    def tile(self, axes: Axes) -> tuple[Any, ...]:
        """The shape of a full tile over `axes`."""
        return tuple(self.span[axis.name].tile for axis in axes)


def walk(body: Iterable[Statement]) -> Iterator[Statement]:
    """Every statement of `body`, each loop before what is in it.

    >>> import diagkit as dk
    >>> double = dk.Diagram(2 * dk.array("X", dk.axis("x")), name="double")
    >>> [statement.kind for statement in walk(double.lower(x=4).kernels[0].body)]
    ['load', 'compute', 'store', 'free']
    """
    for statement in body:
        yield statement
        yield from walk(getattr(statement, "body", ()))
