"""A streamed region unfolded: what stands before the loop, what one chunk does, what comes after.

The step of a `StreamForm` is drawn as a diagram of its own, on soft yellow, under the picture it belongs
to: the state comes in at the left with its start values and leaves at the right, renewed, for the next chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from diagkit.draw.fonts import SANS
from diagkit.draw.glyphs import LAYERS, Pen
from diagkit.draw.layout import LEFT, draw_lines
from diagkit.draw.plan import Sheet, loop_plan
from diagkit.draw.scene import Runs, polyline, rectangle, runs_width
from diagkit.draw.table import set_table
from diagkit.draw.typeset import formula, joined, name_runs, roman
from diagkit.term import Array, Box, State, StreamForm, Term, rename_box

PAD = 16.0
HEAD = 11.5


@dataclass(frozen=True)
class Unfolded:
    """A stream as terms that can be drawn, under short names: m, z, o for what is carried."""

    form: StreamForm
    number: int
    called: dict[str, str]
    first: Term | None
    step: Term
    last: Term | None
    starts: dict[str, Any]


def short_names(form: StreamForm) -> dict[str, str]:
    """What the wires of a form are called in its picture: a maximum m, a sum z, a weighted sum by the
    small letter of its array; new values take a prime, the part of one chunk says so."""
    called: dict[str, str] = {}
    for state in form.state:
        _call(called, state.name, [_letter(state), _last(state.name), state.name])
        _call(called, state.new, [f"{called[state.name]}.new", state.new])
    factors = [box.name for box in form.step if box.name.endswith(".factor")]
    for box in (*form.fixed, *form.step, *form.tail):
        owner = box.name.rpartition(".")[0]
        if box.name in factors:
            _call(called, box.name, ["δ" if len(factors) == 1 else f"δ_{called.get(owner, owner)}", box.name])
        elif box.name.endswith(".part") and owner in called:
            _call(called, box.name, [f"{called[owner]}_chunk", box.name])
        elif "." in box.name:
            _call(called, box.name, [_last(box.name), box.name])
    return called


def _call(called: dict[str, str], wire: str, choices: Sequence[str]) -> None:
    taken = set(called.values())
    called.setdefault(wire, next((name for name in choices if name not in taken), wire))


def _letter(state: State) -> str:
    """m for a maximum, z for a sum, else the small letter of the array it grows into."""
    own = _last(state.name)
    usual = {"max": "m", "min": "m", "sum": "z"}
    if own in usual:
        return usual[own]
    base = state.name.partition(".")[0]
    return base.lower() if len(base) == 1 else base


def _last(name: str) -> str:
    return name.rpartition(".")[2] or name


def unfold(term: Term, number: int) -> Unfolded | None:
    """The stream of a region as terms to be drawn; None where the region has none."""
    region = term.regions[number]
    form = term.form(region)
    if form is None:
        return None
    called = short_names(form)
    states = tuple(Array(called[s.name], s.axes, s.dtype) for s in form.state)
    after = (*form.step, *form.tail)
    fixed = _piece(term, form.fixed, called, (), [box.name for box in form.fixed if _read(after, box.name)], "before")
    step = _piece(term, form.step, called, states, [s.new for s in form.state], "step", form.fixed)
    tail = _piece(term, form.tail, called, states, [box.name for box in form.tail if box.name in region.stores], "after", form.fixed)  # fmt: skip
    assert step is not None
    starts = {called[state.name]: state.start for state in form.state}
    return Unfolded(form, number, called, fixed, step, tail, starts)


def _read(boxes: Iterable[Box], wire: str) -> bool:
    return any(wire in box.inputs for box in boxes)


def _piece(
    term: Term, boxes: Sequence[Box], called: dict[str, str], states: tuple[Array, ...], outputs: Sequence[str],
    name: str, given: Sequence[Box] = (),
) -> Term | None:  # fmt: skip
    """One section of a form as a term: what it reads from outside are its inputs."""
    if not boxes:
        return None
    made = {box.name for box in boxes} | {state.name for state in states}
    outside = {box.name: box.axes for box in given} | {wire: w.axes for wire, w in term.wires.items() if not w.virtual}
    positions = _positions(term, boxes, made)
    renamed = tuple(rename_box(box, called) for box in (*positions, *boxes))
    known = {box.name for box in renamed} | {state.name for state in states}
    back = {new: old for old, new in called.items()}
    reads = dict.fromkeys(wire for box in renamed for wire in box.inputs if wire not in known)
    inputs = tuple(Array(wire, outside[back.get(wire, wire)]) for wire in reads)
    used = tuple(state for state in states if _read(renamed, state.name))
    return Term((*inputs, *used), renamed, tuple(called.get(wire, wire) for wire in outputs), name)


def _positions(term: Term, boxes: Sequence[Box], made: set[str]) -> tuple[Box, ...]:
    """Boxes of positions that the section reads and does not make itself."""
    wanted: set[str] = {wire for box in boxes for wire in box.inputs}
    for box in reversed(term.flat):
        if box.name in wanted:
            wanted |= set(box.inputs)
    return tuple(b for b in term.flat if b.name in wanted and b.name not in made and term.wires[b.name].virtual)


# Drawing.


def draw_loops(pen: Pen, term: Term, sheet: Sheet, top: float, widest: float) -> tuple[float, float]:
    """Draw every streamed region unfolded, from `top` down; returns how far right and down that reaches."""
    right = 0.0
    for number in range(len(term.regions)):
        unfolded = unfold(term, number)
        if unfolded is not None:
            wide, top = _draw_loop(pen, unfolded, sheet, top + 14, widest)
            right = max(right, wide)
    return right, top


def _draw_loop(pen: Pen, loop: Unfolded, sheet: Sheet, top: float, widest: float) -> tuple[float, float]:
    inner = Pen()
    y = top + 24
    inner.say(_heading(loop, sheet), LEFT, y, 13, "caption", "start")
    right, y = runs_width(_heading(loop, sheet), 13) + LEFT, y + 6
    if loop.first is not None:
        right, y = _section(inner, loop, loop.first, sheet, "before the loop", (right, y), widest)
    start = y
    right, y = _section(inner, loop, loop.step, sheet, "each chunk", (right, y), widest)
    right, y = _back(inner, loop, right, start, y)
    if loop.last is not None:
        right, y = _section(inner, loop, loop.last, sheet, "after the last chunk", (right, y), widest)
    pen.draw("back", rectangle((LEFT - 4, top, right + PAD + 8, y + 2), 8), "tint-stream", "loop")
    for layer in LAYERS:
        pen.layers[layer] += [mark.shifted(PAD - 4, 0) for mark in inner.layers[layer]]
    pen.words += [line.shifted(PAD - 4, 0) for line in inner.words]
    return right + PAD + 8, y + 6


def _heading(loop: Unfolded, sheet: Sheet) -> Runs:
    axis = loop.form.axis
    tile = sheet.tiles.get((loop.number, axis)) or name_runs(f"s_{axis}")
    said = roman("the loop over ") + name_runs(axis) + roman(", ") + tile + roman(" at a time; carried: ")
    for place, (name, start) in enumerate(loop.starts.items()):
        said += (roman(", ") if place else ()) + name_runs(name) + roman(" from ") + formula(start)
    return joined(said + _rescaled(loop))


def _rescaled(loop: Unfolded) -> Runs:
    """By what the old state is multiplied, where it is."""
    factors = [box for box in loop.step.boxes if box.name.startswith("δ")]
    said: Runs = ()
    for place, box in enumerate(factors):
        called = {f"a{at}": name_runs(wire) for at, wire in enumerate(box.inputs)}
        expr = getattr(box, "expr", None)
        said += roman(", " if place else "; rescaled by ") + name_runs(box.name) + roman(" = ")
        said += formula(expr, (), lambda name, called=called: called.get(name) or name_runs(name))  # type: ignore[misc]
    return said


def _section(pen: Pen, loop: Unfolded, piece: Term, sheet: Sheet, head: str, at: tuple[float, float], widest: float) -> tuple[float, float]:  # fmt: skip
    """One section: its heading, then its diagram, all of it in fast memory."""
    right, y = at
    inside = replace(loop_plan(piece, loop.number, loop.starts), tiles=sheet.tiles, barred=sheet.barred)
    pen.say(roman(head, bold=True), LEFT, y + 16, HEAD, "note", "start", SANS)
    wide, low = draw_lines(pen, inside, set_table(None, inside.columns, ()), y + 20, widest - 2 * PAD)
    return max(right, wide), low - 8


def _back(pen: Pen, loop: Unfolded, right: float, top: float, low: float) -> tuple[float, float]:
    """The arrow from the renewed state back to the old one."""
    y, far = low + 4, right + 6
    said: Runs = roman("next chunk: ")
    for place, name in enumerate(loop.starts):
        said += (roman(", ") if place else ()) + name_runs(name) + roman(" ← ") + name_runs(f"{name}.new")
    pen.draw("line", polyline([(far - 6, low - 22), (far, low - 22), (far, y), (LEFT - 6, y), (LEFT - 6, low - 22), (LEFT, low - 22)]), "loop")  # fmt: skip
    pen.draw("front", polyline([(LEFT + 2, low - 22), (LEFT - 5, low - 26), (LEFT - 5, low - 18)], closed=True), "loop-head")
    pen.say(joined(said), (LEFT + far) / 2, y - 6, 12, "note")
    return far, y + 10
