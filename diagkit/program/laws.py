"""The law of a stream, executed: folding over any split of the axis gives the whole, in any order of merging.

A derived form is algebra; this runs it. Random cuts (empty chunks too) are folded from the start, some runs
of chunks apart from each other, and their partial states are merged in a random tree.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diagkit.ops import evaluate_box, open_arrays, reference
from diagkit.term import Axes, Box, InputError, StreamForm, Term, check_whole, names

Values = dict[str, Any]


@dataclass(frozen=True)
class Law:
    """What came of it: how many random splits and merge trees were run, the number of partial states that
    were merged in all, and the largest error against the whole, relative to the largest output.

    >>> import diagkit as dk
    >>> import numpy as np
    >>> total = dk.Diagram(dk.total(dk.array("X", dk.axis("x")), over="x", name="T")).stream(x="s_x")
    >>> found = total.law(trials=3, X=np.arange(8.0))
    >>> found.axis, found.trials, found.error < 1e-12, bool(found)
    ('x', 3, True, True)
    """

    axis: str
    trials: int
    merged: int
    error: float

    def __str__(self) -> str:
        return f"{self.trials} random splits of {self.axis}, {self.merged} merges of partial states"

    __repr__ = __str__


def law(term: Term, /, trials: int = 20, seed: int = 0, **arrays: Any) -> Law:
    """Fold the one stream of `term` over random splits and merge trees of `arrays`, in float64.

    Raises InputError where the diagram is not one streamed region whose outputs are made after the loop.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> s = dk.total(dk.array("X", q, x), over=x)
    >>> sums = dk.Diagram(s).fuse().group(q="g_q").stream(x="s_x")
    >>> law(sums, trials=3, X=[[1.0, 2.0, 3.0]])
    3 random splits of x, 10 merges of partial states
    """
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise InputError(f"{trials!r} trials show nothing", remedy="use a whole number of at least 1")
    check_whole(seed, "seed")
    stream, whole = Partial(term, arrays), _listed(term, reference(term, arrays))
    dice = random.Random(seed)  # noqa: S311  (a test draws lots, not secrets)
    merged, errors = 0, [0.0]
    for _ in range(trials):
        parts = [stream.fold(run) for run in _runs(stream.length, dice)]
        merged += len(parts) - 1
        errors.append(_distance(stream.finish(_merged(stream, parts, dice)), whole))
    return Law(stream.form.axis, trials, merged, float(np.max(errors)))


def _listed(term: Term, outputs: Any) -> Values:
    return outputs if isinstance(outputs, dict) else {term.outputs[0]: outputs}


def _runs(length: int, dice: random.Random) -> list[list[tuple[int, int]]]:
    """Random chunks of 0 to `length`, in runs of neighbours that are folded apart from each other."""
    cuts = sorted(dice.randint(0, length) for _ in range(dice.randint(1, 8)))
    chunks = list(zip([0, *cuts], [*cuts, length], strict=True))
    breaks = sorted(dice.sample(range(1, len(chunks)), dice.randint(0, len(chunks) - 1)))
    return [chunks[begin:end] for begin, end in zip([0, *breaks], [*breaks, len(chunks)], strict=True)]


def _merged(stream: Partial, parts: list[Values], dice: random.Random) -> Values:
    """One state from several: two neighbours at a time, wherever the dice fall."""
    while len(parts) > 1:
        place = dice.randrange(len(parts) - 1)
        parts[place : place + 2] = [stream.merge(*parts[place : place + 2])]
    return parts[0]


def _distance(made: Mapping[str, Any], whole: Mapping[str, Any]) -> float:
    """The largest difference, relative to the largest finite number of each output (at least 1); nan counts."""
    return float(np.max([_apart(np.asarray(made[name]), np.asarray(whole[name])) for name in whole]))


def _apart(made: Any, whole: Any) -> Any:
    scale = np.max(np.abs(whole), initial=1.0, where=np.isfinite(whole))
    with np.errstate(invalid="ignore"):
        return np.max(np.where(made == whole, 0.0, np.abs(made - whole)), initial=0.0) / scale


class Partial:
    """The one stream of a diagram on given arrays: its partial states, piece by piece."""

    def __init__(self, term: Term, arrays: Mapping[str, Any]) -> None:
        self.form = _only_form(term)
        self.engine, start = open_arrays(term, arrays, "float64")
        self.outputs = term.outputs
        self.axes = _axes(term, self.form)
        self.length = self.engine.sizes[self.form.axis]
        views = [box for box in term.boxes if box.name in term.aliases]
        self.fixed = self._run((*views, *self.form.fixed), dict(start), 0, self.length)

    def _run(self, boxes: Iterable[Box], values: Values, begin: int, end: int) -> Values:
        """`values` and what the boxes make of them on the chunk from `begin` to `end`."""
        axis = self.form.axis
        extents = {**self.engine.sizes, axis: end - begin}
        engine = replace(self.engine, extents=extents, starts={**self.engine.starts, axis: begin})
        with np.errstate(all="ignore"):
            for box in boxes:
                read = [values[wire] for wire in box.inputs]
                values[box.name] = evaluate_box(engine, box, [self.axes[wire] for wire in box.inputs], *read)
        return values

    def start(self) -> Values:
        """The state that has seen nothing."""
        xp, compute, like = self.engine.xp, self.engine.compute, self.engine.like
        return {s.name: xp.full(self.engine.shape(s.axes), float(s.start), compute, like) for s in self.form.state}

    def fold(self, chunks: Iterable[tuple[int, int]]) -> Values:
        """The state after these chunks, from the start."""
        state = self.start()
        for begin, end in chunks:
            made = self._run(self.form.step, {**self._chunk(begin, end), **state}, begin, end)
            state = {s.name: made[s.new] for s in self.form.state}
        return state

    def _chunk(self, begin: int, end: int) -> Values:
        """Every array as the chunk sees it."""
        return {name: value[self._place(name, begin, end)] for name, value in self.fixed.items()}

    def _place(self, wire: str, begin: int, end: int) -> tuple[slice, ...]:
        cut = slice(begin, end)
        return tuple(cut if axis == self.form.axis else slice(None) for axis in names(self.axes[wire]))

    def merge(self, left: Values, right: Values) -> Values:
        """One state from two."""
        sides = {
            f"{s.name}.{side}": state[s.name]
            for side, state in (("left", left), ("right", right))
            for s in self.form.state
        }
        made = self._run(self.form.merge, {**self.fixed, **sides}, 0, self.length)
        return {s.name: made[f"{s.name}.merged"] for s in self.form.state}

    def finish(self, state: Values) -> Values:
        """The outputs that the tail makes of a state."""
        made = self._run(self.form.tail, {**self.fixed, **state}, 0, self.length)
        return {name: made[name] for name in self.outputs}


def _only_form(term: Term) -> StreamForm:
    """The stream of a diagram that is one region."""
    whole = {box.name for box in term.boxes} - {*term.aliases}
    late = {box.name for form in term.forms for box in form.tail} | {s.name for f in term.forms for s in f.state}
    if len(term.forms) != 1 or set(term.forms[0].region) != whole or not set(term.outputs) <= late:
        raise InputError(
            f"{term.name} is not one streamed region whose results are made after the loop",
            remedy="fuse it, then stream the axis that is reduced",
        )
    return term.forms[0]


def _axes(term: Term, form: StreamForm) -> dict[str, Axes]:
    """The axes of every wire that a form reads or makes."""
    found = {name: wire.axes for name, wire in term.wires.items()}
    found |= {box.name: box.axes for box in (*form.fixed, *form.step, *form.tail, *form.merge)}
    sides = ("", ".new", ".left", ".right", ".merged")
    return found | {s.name + side: s.axes for s in form.state for side in sides}
