"""From a term to a sheet: which columns are drawn, with which glyph, on which wires.

The sheet knows boxes and names; it knows no coordinates. Positions (a mask's `index`) are drawn inside the
box that reads them, and so are the weights of a learned layer in a diagram without labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import sympy

from diagkit.draw.scene import Runs, runs_width
from diagkit.draw.typeset import formula, italic, joined, name_runs, raised, roman, short_name
from diagkit.draw.wording import column_words
from diagkit.term import (
    Axes,
    Block,
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    Region,
    Term,
    View,
    Wire,
    arg,
    coordinate,
    flatten,
    names,
    quotient,
    where,
)

Key = tuple[str, int]
"""A wire in one place: its name and the region it lives in, -1 being global memory."""
GLOBAL = -1


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


@dataclass(frozen=True)
class Sheet:
    """Everything to be drawn: arrays at the left, columns, results at the right."""

    sources: tuple[Source, ...]
    columns: tuple[Column, ...]
    outputs: tuple[Key, ...]
    tiles: dict[tuple[int, str], Runs] = field(default_factory=dict)
    barred: frozenset[str] = frozenset()
    shown: bool = False
    dense: bool = False

    def plain_tiles(self) -> dict[tuple[int, str], Runs]:
        """The tiles without what divides them."""
        return {key: tuple(run for run in runs if not run.text.startswith("(")) for key, runs in self.tiles.items()}


def is_labelled(term: Term) -> bool:
    """Whether the diagram says anything about how it runs: then loads and stores are drawn."""
    return bool(term.labels or term.forms or any(level for _, level in term.levels))


@lru_cache(maxsize=16)
def hidden_weights(term: Term) -> frozenset[str]:
    """The learned arrays that are drawn inside their layer: every reader can show them so."""
    if is_labelled(term):
        return frozenset()
    weights = {array.name for array in term.inputs if array.weight and array.name not in term.outputs}
    for box in term.boxes:
        mine = weights & set(box.inputs)
        if mine and not _holds_weights(term, box, weights):
            weights -= mine
    return frozenset(weights)


def _holds_weights(term: Term, box: Box, weights: set[str]) -> bool:
    rest = [wire for wire in box.inputs if wire not in weights and not term.wires[wire].virtual]
    if not rest or not isinstance(box, Map | Contract | Block):
        return False
    summed = {axis for wire in rest for axis in names(term.wires[wire].axes)} - set(names(box.axes))
    return not isinstance(box, Contract) or (len(box.inputs) == 2 and len(rest) == 1 and bool(summed))


def barred_axes(term: Term) -> frozenset[str]:
    """The axes drawn with an overbar: those the diagram is mapped over. They are never summed, or lead
    every array that carries them (queries, keys), or a label partitions them."""
    summed: set[str] = set()
    for box in term.flat:
        summed |= set(_summed(term, box))
    places: dict[str, list[bool]] = {}
    for array in term.inputs:
        for place, axis in enumerate(array.axes if not array.weight else ()):
            places.setdefault(axis.name, []).append(place < len(array.axes) - 1)
    leading = {axis for axis, firsts in places.items() if all(firsts)}
    labelled = {label.axis for label in term.labels}
    return frozenset((set(term.axes) - summed - _weight_only(term)) | leading | labelled)


def _weight_only(term: Term) -> set[str]:
    learned = {axis.name for array in term.inputs if array.weight for axis in array.axes}
    return learned - {axis.name for array in term.inputs if not array.weight for axis in array.axes}


def _summed(term: Term, box: Box) -> tuple[str, ...]:
    if isinstance(box, Reduce):
        return box.over
    if isinstance(box, Contract):
        joined = dict.fromkeys(a.name for wire in box.inputs for a in term.wires[wire].axes)
        return tuple(axis for axis in joined if axis not in names(box.axes))
    return ()


def plan(term: Term) -> Sheet:
    """The sheet of a term: regions in the order in which they run, each between its load and its store."""
    return _Planner(term).sheet()


def loop_plan(term: Term, number: int, starts: Mapping[str, Any]) -> Sheet:
    """The sheet of one section of a stream: all of it in the fast memory of region `number`. `starts`
    are the values that the state begins with."""
    planner = _Planner(term)
    notes = {name: roman("from ") + formula(value) for name, value in starts.items()}
    sources = tuple(
        Source((a.name, number), names(a.axes), 1, notes.get(a.name, ()), source_name(a.name), a.name in starts)
        for a in term.inputs
    )
    taken_in = _taken_in(term)
    columns = [
        _accumulating(planner, box, taken_in, number) or planner.column(box, number)
        for box in term.boxes
        if planner.drawn(box.name) and box.name not in taken_in
    ]
    columns = [replace(column, renews=_renewed(column, starts)) for column in columns]
    return Sheet(sources, tuple(columns), tuple((wire, number) for wire in term.outputs), shown=True, dense=True)


def _renewed(column: Column, starts: Mapping[str, Any]) -> Key | None:
    """The state that a column replaces: the one it reads and makes anew."""
    (made,) = column.makes
    old = (made[0].removesuffix(".new"), made[1])
    return old if old != made and old[0] in starts and old in column.reads else None


def _taken_in(term: Term) -> dict[str, Reduce]:
    """Reductions whose one reader is a map of several arrays: drawn together with it, as one box in which
    the reduced wire ends and the state goes on."""
    found = {}
    for box in term.boxes:
        readers = term.consumers(box.name)
        if isinstance(box, Reduce) and len(readers) == 1 and box.name not in term.outputs:
            if isinstance(readers[0], Map) and len(readers[0].inputs) > 1:
                found[box.name] = box
    return found


def _accumulating(planner: _Planner, box: Box, taken_in: dict[str, Reduce], number: int) -> Column | None:
    """The column of a map together with the reduction it reads; None for any other box."""
    part = next((taken_in[wire] for wire in box.inputs if wire in taken_in), None)
    if part is None or not isinstance(box, Map):
        return None
    term, (source,) = planner.term, part.inputs
    column = planner.column(box, number)
    keys = dict.fromkeys((source if wire == part.name else wire, number) for wire in box.inputs)
    axes = {key: names(term.wires[key[0]].axes) for key in (*keys, *column.makes)}
    own = name_runs(short_name(source), 50, 14)
    sign = () if part.op == "max" and isinstance(box.expr, sympy.Max) else roman({"sum": "Σ "}.get(part.op, f"{part.op} "))
    called = {f"a{place}": name_runs(short_name(wire), 50, 14) for place, wire in enumerate(box.inputs)}
    called[f"a{box.inputs.index(part.name)}"] = joined(sign + own)
    text = formula(box.expr, (), lambda name: called.get(name) or name_runs(name))
    about = f"{column.about}, with {column_words(part, term.wires)}"
    return replace(column, glyph="join", reads=tuple(keys), axes=axes, text=short(text, box), about=about)


class _Planner:
    """Holds what several columns ask about: which arrays are hidden, where each wire lives."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.hidden = hidden_weights(term)
        self.shown = is_labelled(term)

    def sheet(self) -> Sheet:
        used = {wire for box in self.term.boxes for wire in box.inputs} | set(self.term.outputs)
        sources = tuple(
            Source((a.name, GLOBAL), names(a.axes), 0, _format_note(a.dtype), source_name(a.name))
            for a in self.term.inputs
            if a.name in used and a.name not in self.hidden
        )
        outputs = tuple((wire, GLOBAL) for wire in self.term.outputs)
        columns = tuple(self._labelled() if self.shown else self._plain())
        tiles = {(n, a): t for n in range(len(self.term.regions)) for a, t in self._tiles(n).items()}
        return Sheet(sources, columns, outputs, tiles, barred_axes(self.term), self.shown)

    def _plain(self) -> Iterable[Column]:
        for box in self.term.boxes:
            if self.drawn(box.name):
                yield self.column(box, GLOBAL)

    def drawn(self, wire: str) -> bool:
        """Whether a wire is drawn: positions are not, unless they are a result."""
        return not self.term.wires[wire].virtual or wire in self.term.outputs

    def _labelled(self) -> Iterable[Column]:
        for number, region in enumerate(self.term.regions):
            made = [name for name in region.boxes if not self.term.wires[name].virtual]
            if not made:
                yield from (self.column(self.term.box(name), GLOBAL) for name in region.stores)
                continue
            loads = tuple(wire for wire in region.loads if not self.term.wires[wire].virtual)
            if loads:
                yield self._transfer("load", loads, number)
            yield from (self.column(self.term.box(name), number) for name in made)
            yield self._transfer("store", region.stores, number)

    def _transfer(self, kind: str, wires: tuple[str, ...], number: int) -> Column:
        here, there = (GLOBAL, number) if kind == "load" else (number, GLOBAL)
        reads, makes = tuple((w, here) for w in wires), tuple((w, there) for w in wires)
        axes = {key: names(self.term.wires[key[0]].axes) for key in reads + makes}
        about = f"{kind}: {', '.join(wires)}"
        level = 1 if kind == "load" else 0
        return Column((kind, number), kind, reads, makes, axes, level=level, region=number, head=roman(kind), about=about)

    def _tiles(self, number: int) -> dict[str, Runs]:
        region = self.term.regions[number]
        carried = {a.name for wire in (*region.loads, *region.boxes) for a in self.term.wires[wire].axes}
        form = self.term.form(region)
        tiles = {}
        for label in self.term.labels:
            streams = label.kind == "stream"
            if label.axis in carried and (not streams or form is None or form.axis == label.axis):
                tiles[label.axis] = _tile_runs(label.tile, label.multiple)
        return tiles

    def column(self, box: Box, region: int) -> Column:
        """The column of one box, drawn in a region (or in global memory)."""
        drawn = tuple(dict.fromkeys(w for w in box.inputs if w not in self.hidden and not self.term.wires[w].virtual))
        reads, made = tuple((wire, region) for wire in drawn), (box.name, region)
        axes = {key: names(self.term.wires[key[0]].axes) for key in (*reads, made)}
        level = 0 if region == GLOBAL else max(1, self.term.level(box.name))
        picked = _GLYPHS[type(box)](self.term, box, drawn)
        about = column_words(box, self.term.wires)
        head = _head(box)
        return Column(box.name, reads=reads, makes=(made,), axes=axes, level=level, region=region, head=head, about=about, **picked)  # fmt: skip


def source_name(name: str) -> Runs:
    """The name of an array at the left or right, cut where even in small type it is too long."""
    runs = name_runs(name)
    return runs if runs_width(runs, 24) <= 60 else name_runs(name, 104, 16)


def _head(box: Box) -> Runs:
    """The name over a column; what has no name of its own is called by its kind."""
    made_up = "(" in box.name and box.name.endswith(")")
    return name_runs(short_name(box.name), 92, 12) if not made_up else roman(box.kind)


def _format_note(dtype: str) -> Runs:
    return () if dtype == "fp32" else roman(dtype)


def _tile_runs(tile: Any, multiple: int) -> Runs:
    runs = formula(tile)
    return runs + (raised(roman(f"({multiple})")) if multiple != 1 else ())


# What each kind of box draws as: the fields of its column.


def _map_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    mask = mask_of(term, box)
    if mask is not None and len(drawn) == 1:
        return {"glyph": "mask", "title": "mask", "style": mask}
    if len(drawn) == 1:
        return {"glyph": "map", "text": unary_text(term, box, drawn[0]), "style": "map"}
    if not drawn:
        style = position_mask(closed(term, box.name)) if term.wires[box.name].virtual else ""
        return {"glyph": "source", "text": name_runs(box.name, 60, 14), "style": style}
    return {"glyph": "join", "text": _join_text(term, box), "style": "map"}


def _reduce_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    sign = {"sum": "Σ"}.get(box.op, box.op)
    return {"glyph": "reduce", "acts": tuple(box.over), "text": roman(sign, bold=True), "title": box.op, "style": "reduce"}


def _contract_glyph(term: Term, box: Box, drawn: tuple[str, ...]) -> dict[str, Any]:
    summed = _summed(term, box)
    if len(drawn) == 1 and len(box.inputs) == 2:
        (weight,) = set(box.inputs) - set(drawn)
        inner = tuple(axis for axis in summed if axis in names(term.wires[drawn[0]].axes))
        return {"glyph": "linear", "acts": inner, "text": name_runs(weight, 64, 15, bold=True), "title": "linear", "style": "linear"}  # fmt: skip
    if len(drawn) == 1 and summed:
        return {"glyph": "reduce", "acts": summed, "text": roman("Σ", bold=True), "title": "sum", "style": "reduce"}
    both = [set(names(term.wires[wire].axes)) for wire in drawn]
    if len(drawn) == 2 and any(axis in both[0] & both[1] for axis in summed):
        return {"glyph": "contract", "acts": summed, "title": "contract", "style": "contract"}
    sign = "Σ ×" if summed else "×"
    return {"glyph": "join", "text": roman(sign, bold=True), "title": "contract", "style": "contract"}


def _index_glyph(term: Term, box: Box, drawn: tuple[str, ...]) -> dict[str, Any]:
    return {"glyph": "source", "text": roman("0, 1, …"), "title": "index"}


def _cast_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    return {"glyph": "cast", "text": roman(box.dtype), "title": "", "style": "cast"}


def _view_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    source = term.wires[drawn[0]].axes if drawn else ()
    changed = [(axis, at) for axis, at in zip(source, box.coordinates, strict=False) if at != coordinate(axis.name)]
    text: Runs = ()
    for place, (_, at) in enumerate(changed):
        text += (roman(", ") if place else ()) + formula(at)
    acts = tuple(axis.name for axis, _ in changed)
    return {"glyph": "view", "acts": acts, "text": text or italic("copy"), "title": "view", "style": "view"}


def _block_glyph(term: Term, box: Any, drawn: tuple[str, ...]) -> dict[str, Any]:
    kind = {"softmax": "softmax", "rmsnorm": "norm", "layernorm": "norm", "l2 norm": "norm"}.get(box.title.lower(), "block")
    acts = block_axes(term, box)
    main = set(names(term.wires[drawn[0]].axes)) if drawn else set()
    inside = all(set(names(term.wires[wire].axes)) <= main for wire in drawn[1:])
    if not acts or not inside or (kind == "softmax" and len(drawn) > 1):
        kind = "block"
    text = roman(box.title) if kind == "block" else _learned_names(term, box)
    return {"glyph": kind, "acts": acts, "title": box.title, "style": kind, "text": text}


def _learned_names(term: Term, box: Block) -> Runs:
    """The names of the weights that a norm holds."""
    held = [wire for wire in box.inputs if wire in hidden_weights(term)]
    runs: Runs = ()
    for place, wire in enumerate(held):
        runs += (roman(", ") if place else ()) + name_runs(wire, 40, 12, bold=True)
    return runs


_GLYPHS: dict[type[Box], Callable[[Term, Any, tuple[str, ...]], dict[str, Any]]] = {
    Map: _map_glyph,
    Reduce: _reduce_glyph,
    Contract: _contract_glyph,
    Index: _index_glyph,
    Cast: _cast_glyph,
    View: _view_glyph,
    Block: _block_glyph,
}


def block_axes(term: Term, box: Block) -> tuple[str, ...]:
    """The axes a block reduces on its way and still gives back: those its glyph sits on."""
    inside = dict.fromkeys(axis for part in flatten(box.body) for axis in _summed(term, part))
    return tuple(axis for axis in inside if axis in names(box.axes))


# Masks.


def closed(term: Term, wire: str) -> Any:
    """A wire of positions as one expression in the coordinates of its axes."""
    box = term.wires[wire] and next((b for b in term.flat if b.name == wire), None)
    if isinstance(box, Index):
        return coordinate(box.axes[0].name)
    if not isinstance(box, Map):
        return None
    parts = [closed(term, source) for source in box.inputs]
    if any(part is None for part in parts):
        return None
    return box.expr.xreplace({arg(place): part for place, part in enumerate(parts)})


def mask_of(term: Term, box: Map) -> str | None:
    """How a map hides scores by position: "causal", "window", "mask"; None where it does no such thing."""
    if not isinstance(box.expr, where) or box.expr.args[2] is not sympy.S.NegativeInfinity:
        return None
    inputs = {arg(place): wire for place, wire in enumerate(box.inputs)}
    wire = inputs.get(box.expr.args[0])
    return position_mask(closed(term, wire)) if wire is not None and term.wires[wire].virtual else None


def position_mask(condition: Any) -> str:
    """The shape of a mask given as a condition on coordinates."""
    shapes = {sympy.Le: "causal", sympy.Ge: "causal", sympy.Lt: "causal", sympy.Gt: "causal", sympy.And: "window"}
    return next((shape for kind, shape in shapes.items() if isinstance(condition, kind)), "mask")


# What stands in a map.

_A, _B = arg(0), arg(1)
_KNOWN: dict[Any, str] = {
    sympy.Max(_A, 0): "relu",
    1 / (1 + sympy.exp(-_A)): "sigmoid",
    _A / (1 + sympy.exp(-_A)): "silu",
    _A * (1 + sympy.erf(_A / sympy.sqrt(2))) / 2: "gelu",
    sympy.exp(_A): "exp",
    sympy.log(_A): "log",
    sympy.tanh(_A): "tanh",
}
_JOINS: dict[Any, str] = {
    _A + _B: "+", _A * _B: "×", sympy.Max(_A, _B): "max", sympy.Min(_A, _B): "min",
}  # fmt: skip


def unary_text(term: Term, box: Map, wire: str) -> Runs:
    """What a map of one drawn wire is labelled: "× c", "+ c", a known function's name, a short formula."""
    own = arg(box.inputs.index(wire))
    if box.expr in _KNOWN:
        return roman(_KNOWN[box.expr])
    for kind, sign in ((sympy.Mul, "×"), (sympy.Add, "+")):
        rest = [part for part in kind.make_args(box.expr) if part != own]
        if isinstance(box.expr, kind) and len(rest) == len(kind.make_args(box.expr)) - 1 and not _reads(rest, own):
            return short(_signed(term, box, sign, kind(*rest)), box)
    return short(_named(term, box, box.expr), box)


def _reads(parts: list[Any], own: Any) -> bool:
    return any(own in part.free_symbols for part in parts)


def _signed(term: Term, box: Map, sign: str, rest: Any) -> Runs:
    """"× c", "/ c", "+ c" or "− c"."""
    if sign == "+" and rest.could_extract_minus_sign():
        return roman("− ") + _named(term, box, -rest, 2)
    if sign == "×" and rest.is_Rational and rest.p == 1 and rest.q != 1:
        return roman(f"/ {rest.q}")
    return roman(f"{sign} ") + _named(term, box, rest, 2 if sign == "×" else 1)


def _named(term: Term, box: Map, expr: Any, tight: int = 0) -> Runs:
    """The formula, arguments under the names of their wires, positions written out."""
    spots = {arg(place): closed(term, wire) for place, wire in enumerate(box.inputs) if term.wires[wire].virtual}
    expr = expr.xreplace({symbol: at for symbol, at in spots.items() if at is not None})
    called = {f"a{place}": name_runs(short_name(wire), 50, 14) for place, wire in enumerate(box.inputs)}
    return formula(expr, tuple(term.axes), lambda name: called.get(name) or name_runs(name), tight)


def short(runs: Runs, box: Box, room: float = 118.0) -> Runs:
    """The runs where they are short enough for a glyph, else the box's own name."""
    return runs if runs_width(runs, 14) <= room else name_runs(short_name(box.name), room, 14)


def _join_text(term: Term, box: Map) -> Runs:
    if box.expr in _JOINS:
        return roman(_JOINS[box.expr], bold=True)
    return short(_named(term, box, box.expr), box)


