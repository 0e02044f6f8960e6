"""When each buffer of a kernel comes and goes, and which results are written over an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from diagkit.cost.kernel import Kernel
from diagkit.term import FORMATS, Box, Cast, Map


@dataclass(frozen=True)
class Row:
    """The columns of a kernel in order: load, boxes before the loop, in it, after it, store.

    `names` are what the columns are called; `boxes` the box of each, None for load and store; the loop
    is columns `first` to `last` (last < first where there is none); `reader` the last column that reads
    each wire, `stay` the last at which it must be there.
    """

    names: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    first: int
    last: int
    reader: dict[str, int]
    stay: dict[str, int]


@dataclass(frozen=True)
class Buffer:
    """Storage of so many elements of so many bits, live from column `begin` to column `end`."""

    elements: Any
    bits: int
    begin: int
    end: int


@dataclass
class _Storage:
    """A buffer while it may still change hands; a chunk's is not given back before the iteration ends."""

    elements: Any
    bits: int
    begin: int
    until: int


def events(kernel: Kernel) -> Row:
    """The columns of a kernel; boxes of positions take no memory and have none."""
    fixed, step, tail = (_real(kernel, boxes) for boxes in (kernel.fixed, kernel.step, kernel.tail))
    boxes = (None, *fixed, *step, *tail, None)
    first = 1 + len(fixed)
    made = tuple(box.name for box in (*fixed, *step, *tail))
    names = (_end("load", made), *made, _end("store", made))
    row = Row(names, boxes, first, first + len(step) - 1, {}, {})
    for place, box in enumerate(boxes):
        row.reader.update(dict.fromkeys(box.inputs if box else (), place))
    row.stay.update({wire: _stay(kernel, row, wire) for wire in row.reader})
    row.stay.update(dict.fromkeys(kernel.region.stores, len(names) - 1))
    return row


def _end(name: str, taken: tuple[str, ...]) -> str:
    """What the load or store column is called: not like a box."""
    return name if name not in taken else _end(f"{name}'", taken)


def _real(kernel: Kernel, boxes: tuple[Box, ...]) -> tuple[Box, ...]:
    return tuple(box for box in boxes if not kernel.wires[box.name].virtual)


def _stay(kernel: Kernel, row: Row, wire: str) -> int:
    """The last reader; what the loop reads but does not make stays for all of its iterations."""
    read_in_loop = any(wire in box.inputs for box in kernel.step)
    made_in_loop = wire in {box.name for box in kernel.step}
    return max(row.reader[wire], row.last) if read_in_loop and not made_in_loop else row.reader[wire]


def buffers(kernel: Kernel, row: Row) -> list[Buffer]:
    """Every buffer of a kernel. A buffer that changes hands to a wider format is two, one after another."""
    owner: dict[str, _Storage] = dict(_loads(kernel, row))
    done: list[Buffer] = []
    for place, box in enumerate(row.boxes):
        if place == row.first and row.first <= row.last:
            owner.update(_loop(kernel, row))
        if box is not None and _takes_storage(kernel, row, place, box):
            _make(kernel, row, place, box, owner, done)
    return done + [Buffer(one.elements, one.bits, one.begin, one.until) for one in owner.values()]


def _loads(kernel: Kernel, row: Row) -> Iterator[tuple[str, _Storage]]:
    """Loads that carry no streamed axis are there from the load column on."""
    for wire in kernel.region.loads:
        if kernel.form is None or not kernel.carries(wire, kernel.streamed):
            yield wire, _storage(kernel, wire, 0, row.stay.get(wire, 0))


def _loop(kernel: Kernel, row: Row) -> Iterator[tuple[str, _Storage]]:
    """Chunks are there for the whole iteration, states from its first column to their last reader."""
    assert kernel.form is not None
    for wire in kernel.region.loads:
        if kernel.carries(wire, kernel.streamed):
            yield wire, _storage(kernel, wire, row.first, row.last)
    for state in kernel.form.state:
        yield state.name, _storage(kernel, state.name, row.first, max(row.stay.get(state.name, 0), row.last))


def _storage(kernel: Kernel, wire: str, begin: int, until: int) -> _Storage:
    return _Storage(kernel.held(wire), FORMATS[kernel.wires[wire].dtype], begin, until)


def _in_loop(row: Row, place: int) -> bool:
    return row.first <= place <= row.last


def _takes_storage(kernel: Kernel, row: Row, place: int, box: Box) -> bool:
    """In a loop only what carries the streamed axis is a buffer; the rest are registers of the update."""
    return not _in_loop(row, place) or kernel.carries(box.name, kernel.streamed)


def _make(kernel: Kernel, row: Row, place: int, box: Box, owner: dict[str, _Storage], done: list[Buffer]) -> None:
    until = row.stay.get(box.name, place)
    until = min(until, row.last) if _in_loop(row, place) else until
    taken = next((wire for wire in box.inputs if _may_overwrite(kernel, row, place, box, wire, owner)), None)
    if taken is None:
        owner[box.name] = _storage(kernel, box.name, place, until)
        return
    storage = owner.pop(taken)
    bits = FORMATS[kernel.wires[box.name].dtype]
    if bits > storage.bits:
        done.append(Buffer(storage.elements, storage.bits, storage.begin, place - 1))
        storage = _Storage(storage.elements, bits, place, storage.until)
    storage.until = max(storage.until, until)
    owner[box.name] = storage


def _may_overwrite(kernel: Kernel, row: Row, place: int, box: Box, wire: str, owner: dict[str, _Storage]) -> bool:
    """Whether a map may write its result over that input: same axes, and nobody reads it later."""
    same = {*kernel.wires[wire].axes} == {*box.axes}
    last = row.reader.get(wire) == place and wire not in kernel.region.stores
    free = not _in_loop(row, place) or kernel.carries(wire, kernel.streamed)
    return isinstance(box, Map | Cast) and same and last and free and wire in owner
