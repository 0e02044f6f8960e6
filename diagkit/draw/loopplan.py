"""The sheet of one section of a loop: a reduction and the map that adds it to the state are one column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diagkit.draw.equations import argument_names
from diagkit.draw.formulas import short
from diagkit.draw.masks import placed
from diagkit.draw.naming import end_runs
from diagkit.draw.plan import Column, Key, Planner, Sheet, Source
from diagkit.draw.scene import Runs
from diagkit.draw.typeset import formula, name_runs, roman
from diagkit.draw.wording import column_words
from diagkit.term import Box, Map, Reduce, Term, names


def loop_plan(
    term: Term, number: int, starts: Mapping[str, Any], level: int = 1, thin: frozenset[str] = frozenset()
) -> Sheet:
    """The sheet of one section of a stream: all of it in the fast memory (that of `level`) of region
    `number`. `starts` are the values that the state begins with; wires in `thin` hold scales."""
    planner = Planner(term)
    planner.thin = thin
    planner.deepest = level
    formats = planner.notes()
    notes = formats | {name: started(value, formats.get(name, ())) for name, value in starts.items()}
    shown = {a.name: end_runs(planner.called.values(), planner.called[a.name]) for a in term.inputs}
    sources = tuple(
        Source((name, number), axes, level, notes.get(name, ()), shown[name], name in starts, thin=name in thin)
        for name, axes in ((a.name, names(a.axes)) for a in term.inputs)
    )
    inside = inside_maps(term)
    columns = [
        _accumulating(planner, box, inside, number) or planner.column(box, number)
        for box in term.boxes
        if planner.drawn(box.name) and box.name not in inside
    ]
    columns = [replace(column, renews=_renewed(column, starts)) for column in columns]
    outputs = tuple((wire, number) for wire in term.outputs)
    return Sheet(sources, tuple(columns), outputs, shown=True, dense=True, called=planner.called, axes=tuple(term.axes))


def started(value: Any, dtype: Runs) -> Runs:
    """What a state begins with, and its format where that is not the usual one."""
    return roman("from ") + formula(value) + (roman(" in ") + dtype if dtype else ())


def _renewed(column: Column, starts: Mapping[str, Any]) -> Key | None:
    """The state that a column replaces: the one it reads and makes anew."""
    (made,) = column.makes
    old = (made[0].removesuffix(".new"), made[1])
    return old if old != made and old[0] in starts and old in column.reads else None


def inside_maps(term: Term) -> dict[str, Reduce]:
    """Reductions whose one reader is a map of several arrays: drawn together with it, as one box in which
    the reduced wire ends and the state goes on."""
    found = {}
    for box in term.boxes:
        readers = term.consumers(box.name)
        alone = len(readers) == 1 and box.name not in term.outputs and not term.wires[box.name].virtual
        if not isinstance(box, Reduce) or not alone:
            continue
        if isinstance(readers[0], Map) and len(readers[0].inputs) > 1:
            found[box.name] = box
    return found


def _accumulating(planner: Planner, box: Box, inside: dict[str, Reduce], number: int) -> Column | None:
    """The column of a map together with the reduction it reads; None for any other box."""
    part = next((inside[wire] for wire in box.inputs if wire in inside), None)
    if part is None or not isinstance(box, Map):
        return None
    term, (source,) = planner.term, part.inputs
    column = planner.column(box, number)
    keys = dict.fromkeys((source if wire == part.name else wire, number) for wire in box.inputs)
    axes = {key: names(term.wires[key[0]].axes) for key in (*keys, *column.makes)}
    called = argument_names(term, box, inside)
    text = formula(placed(term, box), (), lambda name: called.get(name) or name_runs(name))
    about = f"{column.about}, with {column_words(part, term.wires)}"
    return replace(column, glyph="join", reads=tuple(keys), axes=axes, text=short(text, term, box), about=about)
