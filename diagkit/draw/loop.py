"""A streamed region unfolded: what stands before the loop, what one chunk does, what comes after.

The step of a `StreamForm` is drawn as a diagram of its own, on soft yellow, under the picture it belongs
to: the state comes in at the left with its start values and leaves at the right, renewed, for the next chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from diagkit.draw.equations import equation, equations
from diagkit.draw.flags import MARK, draw_flag, flagged
from diagkit.draw.fonts import SANS
from diagkit.draw.layout import LEFT, SMALL_NAME, draw_lines
from diagkit.draw.loopplan import inside_maps, loop_plan, started
from diagkit.draw.pen import LAYERS, Pen
from diagkit.draw.plan import Sheet, format_note
from diagkit.draw.scales import scales
from diagkit.draw.scene import Runs, polyline, rectangle, runs_width
from diagkit.draw.table import set_table
from diagkit.draw.typeset import cut, joined, name_runs, roman
from diagkit.term import Array, Box, Map, State, StreamForm, Term, rename_box

PAD = 14.0
INSET = 24.0
HEAD = 11.5
HEADING = 12.5
EQUATION = 13.5
SECTIONS = ("before the loop", "each chunk", "after the last chunk")
SMALLEST = 0.6
"""A loop whose diagram would have to be smaller than this, or wrap, is written as equations."""
UNFOLDED = 1400.0
"""How wide a line of a loop may be before it wraps; the whole is then made smaller to fit the sheet."""


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
    warnings: Mapping[str, str] = field(default_factory=dict)
    thin: frozenset[str] = frozenset()

    @property
    def formats(self) -> dict[str, Runs]:
        """The formats of what is carried, where they are not the usual one."""
        states = {self.called[state.name]: state.dtype for state in self.form.state}
        return {name: format_note(dtype) for name, dtype in states.items()}


def short_names(form: StreamForm, axes: Iterable[str] = ()) -> dict[str, str]:
    """What the wires of a form are called in its picture: a maximum m, a sum z, a weighted sum by the
    small letter of its array; new values take a prime, the part of one chunk says so."""
    boxes = (*form.fixed, *form.step, *form.tail)
    kept = (wire for box in boxes for wire in (box.name, *box.inputs) if "." not in wire)
    called = {f" {name}": name for name in (*axes, *kept)}
    for state in form.state:
        _call(called, state.name, [_letter(state), _last(state.name), state.name])
        _call(called, state.new, [f"{called[state.name]}.new", state.new])
    factors = [box.name for box in form.step if box.name.endswith(".factor")]
    for box in boxes:
        owner = box.name.rpartition(".")[0]
        if box.name in factors:
            _call(called, box.name, ["δ", f"δ_{called.get(owner, owner.lower())}", box.name])
        elif box.name.endswith(".part") and owner in called:
            _call(called, box.name, [f"{called[owner]}_chunk", box.name])
        elif box.name.endswith(".exp"):
            _call(called, box.name, ["p", box.name])
        elif "." in box.name:
            own = _last(box.name)
            _call(called, box.name, [own, f"{own}_{called.get(owner, owner)}", box.name])
    return {wire: name for wire, name in called.items() if not wire.startswith(" ")}


def _call(called: dict[str, str], wire: str, choices: Sequence[str]) -> None:
    taken = set(called.values())
    called.setdefault(wire, next((name for name in choices if name not in taken), wire))


def _letter(state: State) -> str:
    """m for a maximum, z for a sum, n for a count; the small letter of the array it grows into, with its
    number where there are several."""
    own = _last(state.name)
    if own in _USUAL:
        return _USUAL[own]
    base = state.name.partition(".")[0]
    small = base.lower() if len(base) == 1 else base
    return f"{small}_{own}" if own.isdecimal() else small if own in (base, "acc") else own


_USUAL = {"max": "m", "min": "m", "sum": "z", "product": "p", "total": "t", "count": "n", "weight": "w"}


def _last(name: str) -> str:
    return name.rpartition(".")[2] or name


def unfold(term: Term, number: int) -> Unfolded | None:
    """The stream of a region as terms to be drawn; None where the region has none."""
    region = term.regions[number]
    form = term.form(region)
    if form is None:
        return None
    called = short_names(form, term.axes)
    states = tuple(Array(called[s.name], s.axes, s.dtype) for s in form.state)
    after = (*form.step, *form.tail)
    before = [box for box in form.fixed if box.name not in term.wires or not term.wires[box.name].virtual]
    fixed = _piece(term, before, called, (), [box.name for box in before if _read(after, box.name)], "before")
    step = _piece(term, form.step, called, states, [s.new for s in form.state], "step", form.fixed)
    results = [box.name for box in form.tail if box.name in region.stores]
    tail = _piece(term, form.tail, called, states, results, "after", form.fixed)
    assert step is not None
    starts = {called[state.name]: state.start for state in form.state}
    thin = frozenset(called.get(wire, wire) for wire in scales(term))
    return Unfolded(form, number, called, fixed, step, tail, starts, thin=thin)


def _read(boxes: Iterable[Box], wire: str) -> bool:
    return any(wire in box.inputs for box in boxes)


def _piece(
    term: Term, boxes: Sequence[Box], called: dict[str, str], states: tuple[Array, ...], outputs: Sequence[str],
    name: str, given: Sequence[Box] = (),
) -> Term | None:  # fmt: skip
    """One section of a form as a term: what it reads from outside are its inputs."""
    if not boxes:
        return None
    back = {new: old for old, new in called.items()}
    made = {box.name for box in boxes} | {back.get(state.name, state.name) for state in states}
    outside = {box.name: (box.axes, "fp32") for box in given}
    outside |= {wire: (w.axes, w.dtype) for wire, w in term.wires.items() if not w.virtual}
    positions = _positions(term, boxes, made)
    renamed = tuple(rename_box(box, called) for box in (*positions, *boxes))
    known = {box.name for box in renamed} | {state.name for state in states}
    reads = dict.fromkeys(wire for box in renamed for wire in box.inputs if wire not in known)
    inputs = tuple(Array(wire, *outside[back.get(wire, wire)]) for wire in reads)
    used = tuple(state for state in states if _read(renamed, state.name))
    return Term((*inputs, *used), renamed, tuple(called.get(wire, wire) for wire in outputs), name)


def _positions(term: Term, boxes: Sequence[Box], made: set[str]) -> tuple[Box, ...]:
    """Boxes of positions that the section reads and does not make itself."""
    wanted: set[str] = {wire for box in boxes for wire in box.inputs}
    free = [box for box in term.flat if term.wires[box.name].virtual and box.name not in made]
    for box in reversed(free):
        wanted |= set(box.inputs) if box.name in wanted else set()
    return tuple(box for box in free if box.name in wanted)


# Drawing.


def draw_loops(
    pen: Pen, term: Term, sheet: Sheet, top: float, widest: float, warnings: Mapping[str, str]
) -> tuple[float, float]:
    """Draw every streamed region unfolded, from `top` down; returns how far right and down that reaches."""
    right = 0.0
    for number in range(len(term.regions)):
        unfolded = unfold(term, number)
        if unfolded is not None:
            said = {unfolded.called.get(wire, wire): words for wire, words in warnings.items()}
            wide, top = _draw_loop(pen, replace(unfolded, warnings=said), sheet, top + 14, widest)
            right = max(right, wide)
    return right, top


def _draw_loop(pen: Pen, loop: Unfolded, sheet: Sheet, top: float, widest: float) -> tuple[float, float]:
    heading = _heading(loop, sheet)
    inner, right, y = _unfolded(loop, sheet)
    scale = min(1.0, widest / (right + INSET + PAD))
    if scale < SMALLEST or _wrapped(inner):
        (inner, right, y), scale = _written(loop, widest - 2 * INSET - PAD), 1.0
    down = top + 32
    far = max(scale * (right + INSET + PAD), LEFT + 8 + runs_width(heading, HEADING) + PAD)
    low = down + scale * (y + 4)
    pen.draw("back", rectangle((LEFT - 4, top, far, low), 8), "tint-stream", "loop")
    pen.say(heading, LEFT + 8, top + 20, HEADING, "caption", "start")
    for layer in LAYERS:
        pen.layers[layer] += [mark.scaled(scale).shifted(INSET * scale, down) for mark in inner.layers[layer]]
    pen.words += [line.scaled(scale).shifted(INSET * scale, down) for line in inner.words]
    return far, low + 4


def _unfolded(loop: Unfolded, sheet: Sheet) -> tuple[Pen, float, float]:
    """The loop as diagrams."""
    inner, right, y = Pen(), 0.0, -10.0 if sheet.deepest == 1 else -6.0
    if loop.first is not None:
        right, y = _section(inner, loop, loop.first, sheet, SECTIONS[0], (right, y), {})
    top = y
    right, y = _section(inner, loop, loop.step, sheet, SECTIONS[1] if loop.first else "", (right, y), loop.starts)
    right, y = _dotted(inner, loop, sheet, (top, right, y)) if sheet.deepest > 1 else (right, y)
    right, y = _back(inner, loop, right, y)
    if loop.last is not None:
        right, y = _ending(inner, loop, loop.last, sheet, (right, y))
    return inner, right, y


def _dotted(pen: Pen, loop: Unfolded, sheet: Sheet, at: tuple[float, float, float]) -> tuple[float, float]:
    """The sub-loop: a dotted box round what is done to a part of the chunk, and what the parts are."""
    top, right, low = at
    axis, deepest = loop.form.axis, sheet.deepest
    cut = [(name, sheet.tile(loop.number, name, deepest)) for name in sheet.named(loop.number, deepest)]
    said = roman("sub-loop: ")
    for place, (name, tile) in enumerate(sorted(cut, key=lambda pair: pair[0] == axis)):
        kind = " in turn" if name == axis else " at once"
        said += roman(", " if place else "") + tile + roman(" of ")
        said += (sheet.tile(loop.number, name, deepest - 1) or name_runs(name)) + roman(kind)
    right = max(right, LEFT + runs_width(said, 12) + 16)
    pen.draw("line", rectangle((LEFT - 8, top + 2, right - 2, low + 20), 6), "subloop", "subloop")
    pen.say(joined(said), LEFT, low + 14, 12, "note", "start")
    return right, low + 34


def _wrapped(pen: Pen) -> bool:
    """Whether a wire had to be continued on a second line."""
    return any(line.role == "head" and line.size == SMALL_NAME for line in pen.words)


def _written(loop: Unfolded, room: float) -> tuple[Pen, float, float]:
    """The loop as equations, for one that would be too wide to read as a diagram."""
    inner, right, y = Pen(), 0.0, 0.0
    for head, piece in (
        ("before the loop", loop.first),
        ("each chunk", loop.step),
        ("after the last chunk", loop.last),
    ):
        if piece is not None:
            inner.say(roman(head, bold=True), LEFT, y + 12, HEAD, "note", "start", SANS)
            top, lines = y + 16, equations(piece, inside_maps(piece))
            wide, y = _columns(inner, [(line, _warned(loop, name)) for name, line in lines], top, room)
            right = max(right, wide)
        if piece is loop.step:
            inner.say(_renewal(loop), LEFT + 14, y + 16, EQUATION - 1, "note", "start")
            _round(inner, top + 8, y + 12)
            y += 26
        y += 8
    return inner, right, y


def _warned(loop: Unfolded, name: str) -> str:
    """What a wire is warned of, a state by its own name, in words; nothing where it is not."""
    known = name if name in loop.warnings else name.removesuffix(".new")
    return f"{known} {loop.warnings[known]}" if known in loop.warnings else ""


def _columns(pen: Pen, lines: Sequence[tuple[Runs, str]], top: float, room: float) -> tuple[float, float]:
    """Lines of equations with their warnings, in two columns where there are many and they are short."""
    widest = max(runs_width(line, EQUATION) + (MARK if warning else 0) for line, warning in lines)
    high = len(lines) if len(lines) < 5 or 2 * widest + 60 > room else -(-len(lines) // 2)
    for place, (line, warning) in enumerate(lines):
        x, y = LEFT + 14 + (widest + 40 if place >= high else 0), top + 18 + 22 * (place % high)
        said = cut(line, room - (MARK if warning else 0), EQUATION)
        pen.say(said, x, y, EQUATION, "caption", "start")
        if warning:
            draw_flag(pen, (x + runs_width(said, EQUATION) + MARK, y - 5), "", warning)
    return LEFT + 14 + min(widest, room) + (widest + 40 if high < len(lines) else 0), top + 22 * high + 4


def _round(pen: Pen, top: float, low: float) -> None:
    """The arrow at the left that says: again."""
    x = LEFT - 10
    pen.draw("line", polyline([(x + 18, low), (x, low), (x, top), (x + 12, top)]), "loop")
    pen.draw("front", polyline([(x + 18, top), (x + 10, top - 4), (x + 10, top + 4)], closed=True), "loop-head")


def _renewal(loop: Unfolded) -> Runs:
    said: Runs = ()
    for name in loop.starts:
        said += roman(", " if said else "next chunk: ") + name_runs(name) + roman(" ← ") + name_runs(f"{name}.new")
    return joined(said)


def _heading(loop: Unfolded, sheet: Sheet) -> Runs:
    axis = loop.form.axis
    tile = sheet.tile(loop.number, axis) or name_runs(f"s_{axis}")
    said = roman("the loop over ") + name_runs(axis) + roman(", ") + tile + roman(" at a time; carried: ")
    for place, (name, start) in enumerate(loop.starts.items()):
        said += (roman(", ") if place else ()) + name_runs(name) + roman(" ") + started(start, loop.formats[name])
    return joined(said + _rescaled(loop))


def _rescaled(loop: Unfolded) -> Runs:
    """By what the old state is multiplied, where it is."""
    said: Runs = ()
    for box in loop.step.boxes:
        if isinstance(box, Map) and box.name.startswith("δ"):
            said += roman(", " if said else "; rescaled by ") + equation(loop.step, box, {})
    return said


def _section(
    pen: Pen, loop: Unfolded, piece: Term, sheet: Sheet, head: str, at: tuple[float, float], starts: dict[str, Any]
) -> tuple[float, float]:
    """One section: its heading, then its diagram, all of it in fast memory."""
    right, y = at
    made = flagged(piece, loop_plan(piece, loop.number, starts, sheet.deepest, loop.thin), loop.warnings)
    inside = replace(made, tiles=sheet.plain_tiles(), barred=sheet.barred)
    pen.say(roman(head, bold=True), LEFT, y + 16, HEAD, "note", "start", SANS)
    y += 20 if head else 4
    wide, low = draw_lines(pen, inside, set_table(None, inside.columns, ()), y, UNFOLDED, ruled=False)
    return max(right, wide), low - 8


def _ending(pen: Pen, loop: Unfolded, last: Term, sheet: Sheet, at: tuple[float, float]) -> tuple[float, float]:
    """What comes after the loop: one line of formulas where that says it all, else a diagram."""
    maps = [box for box in last.boxes if isinstance(box, Map)]
    if len(maps) < len(last.boxes) or len(maps) > 2:
        return _section(pen, loop, last, sheet, SECTIONS[2], at, {})
    head = roman(SECTIONS[2], bold=True)
    pen.say(head, LEFT, at[1] + 18, HEAD, "note", "start", SANS)
    said: Runs = ()
    for box in maps:
        said += (roman(",  ") if said else ()) + equation(last, box, {})
    x = LEFT + runs_width(head, HEAD, SANS) + 12
    pen.say(joined(said), x, at[1] + 18, 14, "caption", "start")
    right = x + runs_width(said, 14)
    for warning in filter(None, (_warned(loop, box.name) for box in maps)):
        right += MARK
        draw_flag(pen, (right, at[1] + 13), "", warning)
    return max(at[0], right), at[1] + 30


def _back(pen: Pen, loop: Unfolded, right: float, low: float) -> tuple[float, float]:
    """The arrow from the renewed state back to the old one, round the bottom."""
    y, far, near = low + 8, right + 4, LEFT - 15
    new, old = (_heights(pen, names) for names in ({f"{n}.new" for n in loop.starts}, set(loop.starts)))
    around = [(far - 6, new[0]), (far, new[0]), (far, y), (near, y), (near, old[0]), (near + 4, old[0])]
    pen.draw("line", polyline(around), "loop")
    for row in new[1:]:
        pen.draw("line", polyline([(far - 6, row), (far, row)]), "loop")
    for row in old:
        pen.draw("line", polyline([(near, row), (near + 4, row)]), "loop")
        point = [(near + 9, row), (near + 2, row - 4), (near + 2, row + 4)]
        pen.draw("front", polyline(point, closed=True), "loop-head")
    pen.say(_renewal(loop), (near + far) / 2, y - 6, 12, "note")
    return far, y + 8


def _heights(pen: Pen, names: set[str]) -> list[float]:
    """Where the names of some arrays stand, top to bottom."""
    return sorted(line.y - 5 for line in pen.words if line.role == "name" and line.owner in names)
