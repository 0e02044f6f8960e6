"""Where storage begins and ends: which results overwrite an input, and when each buffer is given back.

A wire holds storage from the statement that makes it to its last reader, stored wires to their store. The
result of a map (or of a cast) takes over an input of the same axes that nobody reads afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain

from diagkit.program.nest import Compute, Free, Init, Load, Statement, Store, Update
from diagkit.term import Box, Cast, Map, StreamForm, Wire, names

Wires = Mapping[str, Wire]
Columns = Mapping[str, str]


def place_whole(
    boxes: tuple[Box, ...], loads: tuple[Load, ...], stores: tuple[Store, ...], wires: Wires, columns: Columns
) -> tuple[Statement, ...]:
    """Loads, boxes and stores in a row, with what is given back after each."""
    kept = {store.wire for store in stores}
    inside = place_row(boxes, [load.wire for load in loads], kept, (), wires, columns, _always)
    return (*loads, *inside, *stores, *_free(s.wire for s in stores if not wires[s.wire].virtual))


def place_loop(
    form: StreamForm,
    fixed_loads: tuple[Load, ...],
    chunk_loads: tuple[Load, ...],
    chunk_stores: tuple[Store, ...],
    stores: tuple[Store, ...],
    wires: Wires,
    columns: Columns,
) -> tuple[tuple[Statement, ...], tuple[Statement, ...], tuple[Statement, ...]]:
    """What stands before the loop, in it and after it."""
    kept = {store.wire for store in stores}
    states = [state.name for state in form.state]
    in_step, in_tail = _read(form.step), _read(form.tail)
    loaded = [load.wire for load in fixed_loads]
    fixed = place_row(form.fixed, loaded, kept | in_step | in_tail, (), wires, columns, _always)
    before = (*fixed_loads, *fixed, *(Init(s.name, s.start, columns[s.name]) for s in form.state))
    step = _place_step(form, chunk_loads, chunk_stores, wires, columns)
    live = _left([*loaded, *(box.name for box in form.fixed)], fixed, wires)
    gone = [wire for wire in (*live, *states) if wire not in kept | in_tail]
    live = [wire for wire in (*live, *states) if wire not in gone]
    tail = place_row(form.tail, live, kept, (), wires, columns, _always)
    return before, step, (*_free(gone), *tail, *stores, *_free(s.wire for s in stores if not wires[s.wire].virtual))


def _place_step(
    form: StreamForm, loads: tuple[Load, ...], stores: tuple[Store, ...], wires: Wires, columns: Columns
) -> tuple[Statement, ...]:
    """One iteration. Chunks stay until its end; what does not carry the axis is held in registers."""
    chunks = [load.wire for load in loads]
    kept = {store.wire for store in stores}
    carried = set(form.carried)
    inside = place_row(form.step, chunks, kept, chunks, wires, columns, lambda box: box.name in carried)
    ends = _ends(inside, chunks)
    updates = (Update(state.name, state.new, columns[state.name]) for state in form.state)
    left = [s.wire for s in stores if s.wire not in ends and not wires[s.wire].virtual]
    return (*loads, *inside, *updates, *stores, *_free([*ends, *left]))


def place_row(
    boxes: tuple[Box, ...],
    live: Iterable[str],
    kept: Collection[str],
    pinned: Collection[str],
    wires: Wires,
    columns: Columns,
    buffered: Callable[[Box], bool],
) -> tuple[Statement, ...]:
    """`boxes` in order. `live` holds storage at the start; `kept` outlasts the row; the storage of
    `pinned` may be overwritten but is given back by the caller; `buffered` says what takes storage."""
    statements: list[Statement] = []
    storage = set(live)
    held = set(pinned)
    unread = [wire for wire in storage if wire not in _read(boxes) and wire not in kept and wire not in held]
    statements += _free(sorted(unread))
    storage -= set(unread)
    for place, box in enumerate(boxes):
        later = _read(boxes[place + 1 :]) | set(kept)
        buffer = buffered(box) and not wires[box.name].virtual
        into = _overwritten(box, storage, later, wires) if buffer else None
        statements.append(Compute(box, columns[box.name], into, buffer))
        if into is not None:
            storage.discard(into)
            held = held - {into} | {box.name} if into in held else held
        storage |= {box.name} if buffer else set()
        ended = [w for w in dict.fromkeys((*box.inputs, box.name)) if w in storage and w not in later and w not in held]
        statements += _free(ended)
        storage -= set(ended)
    return tuple(statements)


def _always(_: Box) -> bool:
    return True


def _overwritten(box: Box, storage: Collection[str], later: Collection[str], wires: Wires) -> str | None:
    """The first input that a map or a cast may write its result over."""
    if not isinstance(box, Map | Cast):
        return None
    same = (w for w in box.inputs if set(names(wires[w].axes)) == set(names(box.axes)))
    return next((wire for wire in same if wire in storage and wire not in later), None)


def _read(boxes: Iterable[Box]) -> set[str]:
    return set(chain.from_iterable(box.inputs for box in boxes))


def _free(wires: Iterable[str]) -> tuple[Free, ...]:
    gone = tuple(wires)
    return (Free(gone),) if gone else ()


def _ends(row: tuple[Statement, ...], chunks: Iterable[str]) -> list[str]:
    """Who holds the storage of each chunk at the end of the iteration."""
    heirs = {s.into: s.box.name for s in row if isinstance(s, Compute) and s.into is not None}
    return [_heir(chunk, heirs) for chunk in chunks]


def _heir(wire: str, heirs: Mapping[str, str]) -> str:
    while wire in heirs:
        wire = heirs[wire]
    return wire


def _left(made: Iterable[str], row: tuple[Statement, ...], wires: Wires) -> list[str]:
    """What still holds storage after a row."""
    freed = {wire for s in row if isinstance(s, Free) for wire in s.wires}
    taken = {s.into for s in row if isinstance(s, Compute) and s.into is not None}
    return [wire for wire in made if not wires[wire].virtual and wire not in freed and wire not in taken]
