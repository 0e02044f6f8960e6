"""What wires and axes are called in one picture: short names, cut in the middle where they are long, no two alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from diagkit.draw.scene import Runs, runs_width
from diagkit.draw.typeset import FORMS, name_runs, short_name
from diagkit.term import Term

LARGE, SMALL = 24.0, 16.0
"""Sizes of the names at the left and right of a picture; long ones are small."""


@lru_cache(maxsize=64)
def called(term: Term) -> Mapping[str, str]:
    """What every wire of a diagram is called in its picture: its last part, as many more as tell it from others.

    >>> import diagkit as dk
    >>> K, V = (dk.absolute(dk.array(name, dk.axis("x")), name=f"{name}.size") for name in "KV")
    >>> called(dk.Diagram(K, V))
    {'K': 'K', 'V': 'V', 'K.size': 'K.size', 'V.size': 'V.size'}
    """
    arrays = {array.name: _choices(array.name, array.name.rpartition(".")[2] not in FORMS) for array in term.inputs}
    return distinct(arrays | {box.name: _choices(box.name, False) for box in term.boxes})


def _choices(wire: str, whole: bool) -> tuple[str, ...]:
    """What a wire may be called, shortest first; arrays keep all they were given, except where a form ends it."""
    parts = range(1, wire.count(".") + 1)
    return (wire,) if whole else (*dict.fromkeys(short_name(wire, count) for count in parts), wire)


def distinct(choices: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The first choice for each, and the next for those that would be alike.

    >>> distinct({"O.m": ["m", "O.m"], "P.m": ["m", "P.m"], "P.z": ["z", "P.z"]})
    {'O.m': 'O.m', 'P.m': 'P.m', 'P.z': 'z'}
    """
    turn = dict.fromkeys(choices, 0)
    while True:
        said = {wire: options[turn[wire]] for wire, options in choices.items()}
        counts = Counter(said.values())
        alike = [wire for wire, name in said.items() if counts[name] > 1 and turn[wire] + 1 < len(choices[wire])]
        if not alike:
            return said
        turn |= {wire: turn[wire] + 1 for wire in alike}


@lru_cache(maxsize=512)
def spelled(names: tuple[str, ...], room: float, size: float, bold: bool = False) -> Mapping[str, Runs]:
    """Names in type, cut in the middle where they are wider than `room`; those that would look alike, less.

    >>> for runs in spelled(("key position first", "key position next"), 60, 15).values():
    ...     print("".join(run.text for run in runs))
    key…st
    key…xt
    """
    rooms = dict.fromkeys(names, room)
    while True:
        runs = {name: name_runs(name, rooms[name], size, bold) for name in names}
        counts = Counter(map(_text, runs.values()))
        alike = [name for name in rooms if counts[_text(runs[name])] > 1 and _cut(runs[name])]
        if not alike:
            return runs
        rooms |= {name: 1.3 * rooms[name] for name in alike}


def _text(runs: Runs) -> str:
    return "".join(run.text for run in runs)


def _cut(runs: Runs) -> bool:
    return "…" in _text(runs)


def label(term: Term, wire: str, room: float, size: float, bold: bool = False) -> Runs:
    """The name of a wire inside a glyph of its picture."""
    names = called(term)
    said = names.get(wire) or short_name(wire)
    return spelled(tuple(dict.fromkeys((*names.values(), said))), room, size, bold)[said]


def end_runs(names: Iterable[str], said: str) -> Runs:
    """A name at the left or right of a picture: large where it is short."""
    runs = name_runs(said)
    return runs if runs_width(runs, LARGE) <= 60 else spelled(tuple(dict.fromkeys((*names, said))), 104, SMALL)[said]
