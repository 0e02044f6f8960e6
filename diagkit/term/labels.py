"""Labels: what says how a diagram runs without changing what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from diagkit.term.boxes import Axes, Box
from diagkit.term.symbols import exact, size, text

LEVEL_NAMES: tuple[str, ...] = ("global", "shared", "register", "fragment")
"""Names of the memory levels, slowest first; a level's number is its place here."""


@dataclass(frozen=True)
class Label:
    """A partition of one axis: `kind` is "group" (independent tiles) or "stream" (a loop of chunks).

    `tile` is the tile's size in elements, a positive integer or a size symbol; `multiple` divides it.

    >>> Label("group", "q", size("g_q"))
    Label('group', 'q', size('g_q'))

    >>> Label("group", "q", size("g_q")).order, Label("stream", "x", 64, level=2)
    ((1, 'group', 'q'), Label('stream', 'x', 64, level=2))
    """

    kind: str
    axis: str
    tile: Any
    multiple: int = 1
    level: int = 1

    def __repr__(self) -> str:
        rest = "".join(
            f", {name}={value}"
            for name, value, usual in (("multiple", self.multiple, 1), ("level", self.level, 1))
            if value != usual
        )
        return f"Label({self.kind!r}, {self.axis!r}, {text(self.tile)}{rest})"

    @property
    def order(self) -> tuple[int, str, str]:
        """Where the label stands among others: labels are a set, kept in this order."""
        return self.level, self.kind, self.axis


def tile_size(tile: Any, axis: str, prefix: str) -> Any:
    """A tile as the user gives it (a name, a number, a symbol, None) as an expression, in elements.

    >>> tile_size(None, "q", "g"), tile_size("t", "q", "g"), tile_size(64, "q", "g")
    (g_q, t, 64)
    """
    if tile is None:
        return size(f"{prefix}_{axis}")
    return size(tile) if isinstance(tile, str) else exact(tile)


@dataclass(frozen=True)
class State:
    """One thing a stream carries from chunk to chunk: wire `name` over `axes`, begun at `start` (a
    number), replaced after each chunk by the wire `new` that the step makes; at least fp32.

    >>> import sympy
    >>> State("m", (), sympy.S.NegativeInfinity, "m.new")
    State('m', (), exact('-oo'), 'm.new', 'fp32')
    """

    name: str
    axes: Axes
    start: Any
    new: str
    dtype: str = "fp32"

    def __repr__(self) -> str:
        return f"State({self.name!r}, {self.axes!r}, {text(self.start)}, {self.new!r}, {self.dtype!r})"


@dataclass(frozen=True)
class StreamForm:
    """How one region runs in chunks along `axis`; found by `derive`, read by every other room.

    * `region`: names of the boxes of the diagram that it runs.
    * `fixed`: primitives done once before the loop: they see neither the axis nor the state.
    * `state`: what is carried.
    * `step`: primitives done per chunk, in order: those whose wire carries the axis work on the chunk;
      the others update the state, reading the old value under its own name and making `State.new`.
    * `tail`: primitives after the loop; they read the state and make the region's outputs.
    * `merge`: primitives that combine two partial states: read `m.left` and `m.right` for each state
      `m` and make `m.merged`.
    * `identity`: the equations used, as pairs of expressions; `method`: "plain", "hoisted", "normalised",
      "power sums" or "lemma: <name>".

    >>> import diagkit as dk
    >>> (form,) = dk.Diagram(dk.total(dk.array("X", dk.axis("x")), over="x", name="T")).stream(x="s_x").forms
    >>> form.axis, [state.name for state in form.state], [box.name for box in form.step], form.carried, form.method
    ('x', ['T'], ['T.part', 'T.new'], (), 'plain')
    """

    axis: str
    region: tuple[str, ...]
    fixed: tuple[Box, ...]
    state: tuple[State, ...]
    step: tuple[Box, ...]
    tail: tuple[Box, ...]
    merge: tuple[Box, ...]
    identity: tuple[tuple[Any, Any], ...]
    method: str

    def __repr__(self) -> str:
        pairs = "".join(f"({text(left)}, {text(right)}), " for left, right in self.identity)
        parts = [repr(part) for part in (self.axis, self.region, self.fixed, self.state, self.step)]
        parts += [repr(self.tail), repr(self.merge), f"({pairs})", repr(self.method)]
        return f"StreamForm({', '.join(parts)})"

    @property
    def carried(self) -> tuple[str, ...]:
        """Wires of the step that carry the streamed axis: they live on chip one chunk at a time."""
        return tuple(box.name for box in self.step if self.axis in {axis.name for axis in box.axes})


@dataclass(frozen=True)
class Step:
    """One step of a derivation, remembered by the value it made.

    `kind` is "relabel" (identical columns) or "rewrite" (other columns, same numbers); `rule` names it;
    `call` is the method and its arguments, so that it can be replayed; `identity` the equations used;
    `before` the value it was taken from.

    >>> import diagkit as dk
    >>> double = dk.Diagram(2 * dk.array("X", dk.axis("x")), name="double").group(x="g_x")
    >>> step = double.steps[0]
    >>> step.kind, step.rule, step.call
    ('relabel', 'group', ('group', (('x', 'g_x'),)))
    """

    kind: str
    rule: str
    reason: str
    call: tuple[str, tuple[tuple[str, Any], ...]]
    identity: tuple[tuple[Any, Any], ...]
    before: Any
