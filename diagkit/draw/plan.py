"""From a term to a sheet: which columns are drawn, with which glyph, on which wires.

The sheet knows boxes and names; it knows no coordinates. Positions (a mask's `index`) are drawn inside the
box that reads them, and so are the weights of a learned layer in a diagram without labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagkit.draw.choose import choose
from diagkit.draw.naming import called, end_runs, label, spelled
from diagkit.draw.roles import barred_axes, hidden_weights, is_labelled
from diagkit.draw.scales import scales
from diagkit.draw.scene import Runs
from diagkit.draw.typeset import formula, raised, roman
from diagkit.draw.wording import column_words
from diagkit.term import Array, Box, Term, depth, names

Key = tuple[str, int]
"""A wire in one place: its name and the region it lives in, -1 being global memory."""
GLOBAL = -1
PASSING = 1_000_000
"""Added to a region's number, times the level: a wire on its way through a level above that of the boxes."""


@dataclass(frozen=True)
class Source:
    """An array that stands at the left: where it lives, its axes, its level, a note under its name. A `rail`
    is carried round a loop: it keeps its row, other wires come to it."""

    key: Key
    axes: tuple[str, ...]
    level: int = 0
    note: Runs = ()
    shown: Runs = ()
    rail: bool = False
    warning: str = ""
    thin: bool = False


@dataclass(frozen=True)
class Column:
    """One column: its key in the cost table, its glyph, the wires it reads and makes, and what to write.

    `renews` is the state that it replaces, in a loop: the result stands where that stood."""

    key: Any
    glyph: str
    reads: tuple[Key, ...]
    makes: tuple[Key, ...]
    axes: dict[Key, tuple[str, ...]]
    acts: tuple[str, ...] = ()
    level: int = 0
    region: int = GLOBAL
    title: str = ""
    text: Runs = ()
    style: str = ""
    head: Runs = ()
    about: str = ""
    renews: Key | None = None
    warning: str = ""
    thin: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Sheet:
    """Everything to be drawn: arrays at the left, columns, results at the right."""

    sources: tuple[Source, ...]
    columns: tuple[Column, ...]
    outputs: tuple[Key, ...]
    tiles: dict[tuple[int, str, int], Runs] = field(default_factory=dict)
    barred: frozenset[str] = frozenset()
    shown: bool = False
    dense: bool = False
    loops: dict[int, str] = field(default_factory=dict)
    notes: dict[str, Runs] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)
    axes: tuple[str, ...] = ()

    def tile(self, region: int, axis: str, level: int = 1) -> Runs:
        """What a label makes of an axis in a region, at a level or at the nearest slower one; else nothing."""
        region = region if region == GLOBAL else region % PASSING
        levels = [at for number, name, at in self.tiles if (number, name) == (region, axis) and at <= level]
        return self.tiles[region, axis, max(levels)] if levels else ()

    def name(self, wire: str, room: float, size: float) -> Runs:
        """What a wire is called, within some room."""
        return spelled(tuple(self.called.values()), room, size)[self.called[wire]]

    def end_name(self, wire: str) -> Runs:
        """What a wire is called at the left or right of the picture."""
        return end_runs(self.called.values(), self.called[wire])

    def axis_name(self, axis: str, room: float, size: float) -> Runs:
        """What an axis is called, within some room."""
        return spelled((*self.axes, axis), room, size)[axis]

    @property
    def deepest(self) -> int:
        """The fastest level that the tiles speak of: there boxes run."""
        return max((level for *_, level in self.tiles), default=1)

    def named(self, region: int, level: int) -> tuple[str, ...]:
        """The axes that have a tile of their own at a level."""
        return tuple(axis for number, axis, at in self.tiles if (number, at) == (region, level))

    def plain_tiles(self) -> dict[tuple[int, str, int], Runs]:
        """The tiles without what divides them."""
        return {key: tuple(run for run in runs if not run.text.startswith("(")) for key, runs in self.tiles.items()}


def plan(term: Term) -> Sheet:
    """The sheet of a term: regions in the order in which they run, each between its load and its store.

    >>> import diagkit as dk
    >>> [column.glyph for column in plan(dk.Diagram(dk.softmax(dk.array("X", dk.axis("x")), "x"))).columns]
    ['softmax']
    """
    return Planner(term).sheet()


class Planner:
    """Holds what several columns ask about: which arrays are hidden, where each wire lives."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.hidden = hidden_weights(term)
        self.thin = scales(term)
        self.called = called(term)
        self.shown = is_labelled(term)
        self.deepest = depth(term)

    def sheet(self) -> Sheet:
        """The whole diagram: arrays, columns, results, tiles."""
        used = {wire for box in self.term.boxes for wire in box.inputs} | set(self.term.outputs)
        sources = tuple(self._source(a) for a in self.term.inputs if a.name in used and a.name not in self.hidden)
        outputs = tuple((wire, GLOBAL) for wire in self.term.outputs)
        columns = tuple(self._labelled() if self.shown else self._plain())
        tiles = {(n, *at): tile for n in range(len(self.term.regions)) for at, tile in self._tiles(n).items()}
        forms = {number: self.term.form(region) for number, region in enumerate(self.term.regions)}
        loops = {number: form.axis for number, form in forms.items() if form}
        return Sheet(
            sources,
            columns,
            outputs,
            tiles,
            barred_axes(self.term),
            self.shown,
            loops=loops,
            notes=self.notes(),
            called=self.called,
            axes=tuple(self.term.axes),
        )

    def _source(self, array: Array) -> Source:
        note, shown = format_note(array.dtype), end_runs(self.called.values(), self.called[array.name])
        return Source((array.name, GLOBAL), names(array.axes), 0, note, shown, thin=array.name in self.thin)

    def notes(self) -> dict[str, Runs]:
        """The formats of wires that are not what is usual, small, for where their names stand."""
        return {name: note for name, wire in self.term.wires.items() if (note := format_note(wire.dtype))}

    def thinned(self, keys: Iterable[Key]) -> frozenset[Key]:
        """Those that hold scales: drawn as thin wires."""
        return frozenset(key for key in keys if key[0] in self.thin)

    def _plain(self) -> Iterable[Column]:
        for box in self.term.boxes:
            if self.drawn(box.name):
                yield self.column(box, GLOBAL)

    def drawn(self, wire: str) -> bool:
        """Whether a wire is drawn: positions are not, unless they are a result."""
        return not self.term.wires[wire].virtual or wire in self.term.outputs

    def _aliases(self, wires: Iterable[str], seen: set[str]) -> Iterable[Column]:
        """The views through which `wires` are loaded, not drawn before: they lie where their array lies."""
        for wire in (one for one in wires if one in self.term.aliases and one not in seen):
            box = self.term.box(wire)
            yield from self._aliases(box.inputs, seen)
            seen.add(wire)
            yield self.column(box, GLOBAL)

    def _labelled(self) -> Iterable[Column]:
        seen: set[str] = set()
        for number, region in enumerate(self.term.regions):
            made = [name for name in region.boxes if not self.term.wires[name].virtual]
            if not made:
                yield from (self.column(self.term.box(name), GLOBAL) for name in region.stores)
                continue
            loads = tuple(wire for wire in region.loads if not self.term.wires[wire].virtual)
            yield from self._aliases(loads, seen)
            for level in range(1, self.deepest + 1) if loads else ():
                yield self._transfer("load", loads, number, level)
            yield from (self.column(self.term.box(name), number) for name in made)
            for level in range(self.deepest, 0, -1):
                yield self._transfer("store", region.stores, number, level)

    def _head(self, box: Box) -> Runs:
        """The name over a column; what has no name of its own is called by its kind."""
        made_up = "(" in box.name and box.name.endswith(")")
        return roman(box.kind) if made_up else label(self.term, box.name, 92, 12)

    def _transfer(self, kind: str, wires: tuple[str, ...], number: int, level: int) -> Column:
        """A crossing between `level` and the level above it."""
        ends = self._place(number, level - 1), self._place(number, level)
        here, there = ends if kind == "load" else ends[::-1]
        reads, makes = tuple((w, here) for w in wires), tuple((w, there) for w in wires)
        axes = {key: names(self.term.wires[key[0]].axes) for key in reads + makes}
        about = f"{kind}: {', '.join(wires)}" + (f", level {level}" if level > 1 else "")
        key = (kind, number) if level == 1 else (kind, number, level)
        reached = level if kind == "load" else level - 1
        return Column(
            key, kind, reads, makes, axes, level=reached, region=number, head=roman(kind), about=about,
            thin=self.thinned(makes),
        )  # fmt: skip

    def _place(self, number: int, level: int) -> int:
        """Where a wire of a region lives at a level: global, on the way, or where the boxes run."""
        return GLOBAL if level == 0 else number + (PASSING * level if level < self.deepest else 0)

    def _tiles(self, number: int) -> dict[tuple[str, int], Runs]:
        region = self.term.regions[number]
        carried = {a.name for wire in (*region.loads, *region.boxes) for a in self.term.wires[wire].axes}
        form = self.term.form(region)
        mine = {form.axis} if form else set() if self.term.forms else carried
        return {
            (label.axis, label.level): _tile_runs(label.tile, label.multiple)
            for label in self.term.labels
            if label.axis in (carried if label.kind == "group" else mine)
        }

    def column(self, box: Box, region: int) -> Column:
        """The column of one box, drawn in a region (or in global memory)."""
        drawn = tuple(dict.fromkeys(w for w in box.inputs if w not in self.hidden and not self.term.wires[w].virtual))
        reads, made = tuple((wire, region) for wire in drawn), (box.name, region)
        axes = {key: names(self.term.wires[key[0]].axes) for key in (*reads, made)}
        level = 0 if region == GLOBAL else max(self.deepest, self.term.level(box.name))
        picked = choose(self.term, box, drawn)
        return Column(
            box.name, reads=reads, makes=(made,), axes=axes, level=level, region=region, head=self._head(box),
            about=column_words(box, self.term.wires), thin=self.thinned((made,)), **picked,
        )  # fmt: skip


def format_note(dtype: str) -> Runs:
    """The name of a number format, nothing for the usual one."""
    return () if dtype == "fp32" else roman(dtype)


def _tile_runs(tile: Any, multiple: int) -> Runs:
    runs = formula(tile)
    return runs + (raised(roman(f"({multiple})")) if multiple != 1 else ())
