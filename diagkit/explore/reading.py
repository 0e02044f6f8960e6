"""What an explorer reads off a diagram at one state: numbers only, from the rooms that know them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from diagkit import cost, derive, machine, program
from diagkit.cost import Amounts, LegalTile
from diagkit.diagram import moved_together
from diagkit.machine import Machine, MachineError, Times, times
from diagkit.term import FORMATS, DiagkitError, Term, as_float, at_level, promote

SIZES = tuple(2**power for power in range(4, 18))
"""What a size may be set to, in elements; the value that was given comes in between."""

SCALES = frozenset({"bool", "fp8e8m0"})
"""Formats that no matrix unit multiplies."""

Pairs = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class State:
    """A diagram on a machine; sizes and tiles in elements. Where `shared`, groups that run at once fetch what
    they have in common once (Theorem 2); else each fetches for itself."""

    term: Term
    machine: str
    sizes: Pairs
    tiles: Pairs
    shared: bool = False

    @property
    def kind(self) -> str:
        """The format that the matrix units work in."""
        return promote([array.dtype for array in self.term.inputs if array.dtype != "bool"])

    @property
    def everything(self) -> dict[str, int]:
        """Sizes and tiles by name."""
        return {**dict(self.sizes), **dict(self.tiles)}


@dataclass(frozen=True)
class Reading:
    """What moves and is held (bytes), the `room` of a block, the times, FLOP per byte; the best legal tile with its
    own, or why there is none (`no_best`); and why this tile is none (`reasons`). `fetched` are the bytes that the
    times are for: what moves, or less where groups share.

    >>> import diagkit as dk
    >>> double = dk.Diagram(2 * dk.array("X", dk.axis("x")), name="double").group(x="g_x")
    >>> found = dk.Explorer(double, machine="T4", dtype="fp16", x=4096, g_x=1024).reading
    >>> found.moved, found.held, found.room, found.intensity, found.reasons
    (16384, 2048, 65536, 0.0, ())
    """

    state: State
    moved: int
    fetched: int
    held: int
    room: int
    times: Times
    intensity: float
    best: LegalTile | None
    no_best: str
    reasons: tuple[str, ...]


def tiles_of(term: Term) -> dict[str, str]:
    """The tiles that have a name, with the axis of each."""
    return {label.tile.name: label.axis for label in term.labels if label.tile.is_Symbol and label.level == 1}


def formats_of(name: str) -> tuple[str, ...]:
    """The number formats whose matrix rate a machine states."""
    return tuple(kind for kind in FORMATS if kind not in SCALES and _stated(machine.load(name), kind))


def _stated(one: Machine, kind: str) -> bool:
    try:
        return one.peak(kind) > 0
    except MachineError:
        return False


@lru_cache(maxsize=64)
def in_format(term: Term, dtype: str | None) -> Term:
    """The diagram with its inputs in that format (None: as they are); accumulators keep at least fp32. Of a
    diagram on several levels it is the outermost that is turned."""
    outer = at_level(term, 1)
    return derive.formats(outer, dtype) if dtype else outer


@lru_cache(maxsize=64)
def ready(term: Term) -> Amounts:
    """The costs of a diagram, made ready once."""
    return cost.amounts(term)


@lru_cache(maxsize=256)
def best_or_why(term: Term, name: str, sizes: Pairs) -> tuple[LegalTile | None, str]:
    """The best legal tile within the fast memory of one block, or None and why there is none."""
    if not tiles_of(term):
        return None, "no tile has a name"
    try:
        room = machine.load(name).capacity("shared", per_block=True)
        given: dict[str, Any] = dict(sizes)
        return cost.legal_tile(term, room, unit="bytes", **given), ""
    except DiagkitError as error:
        return None, error.reason


def best_tile(term: Term, name: str, sizes: Pairs) -> LegalTile | None:
    """The best legal tile within the fast memory of one block, where there is one."""
    return best_or_why(term, name, sizes)[0]


def read(state: State) -> Reading:
    """The numbers of a state. Errors: InputError for a missing size, MachineError for an unknown machine."""
    one = machine.load(state.machine)
    amounts = {name: int(values[0]) for name, values in ready(state.term).at(**state.everything).items()}
    moved, held = amounts.pop("moved"), amounts.pop("held")
    room = one.capacity("shared", per_block=True)
    fetched = _together(replace(state, machine=""), one.multiprocessors) if state.shared else moved
    work = {unit: as_float(amount, unit) for unit, amount in amounts.items()}
    found = times(one, {"global": as_float(fetched, "moved")}, work, state.kind)
    best = best_or_why(state.term, state.machine, state.sizes)
    reasons = (*_refused(state), *_unlawful(state), *_too_large(state, held, room), *_unstated(state, found))
    intensity = amounts.get("tensor", 0) / max(fetched, 1)
    return Reading(state, moved, fetched, held, room, found, intensity, *best, reasons)


@lru_cache(maxsize=1024)
def _together(state: State, count: int) -> int:
    return moved_together(state.term, None, state.everything, count)


def best_state(state: State, best: LegalTile) -> State:
    """The same with the best tiles."""
    return replace(state, tiles=tuple(best.tiles.items()))


@lru_cache(maxsize=256)
def _refused(state: State) -> tuple[str, ...]:
    """Why there is no loop nest of these tiles, as lowering says."""
    try:
        program.lower(state.term, **state.everything)
    except DiagkitError as error:
        return (error.reason,)
    return ()


def _unlawful(state: State) -> Iterator[str]:
    """Why the matrix units or the rows of memory do not take these tiles."""
    multiples, lengths = _multiples(state.term), state.term.numbers(dict(state.sizes))
    for tile, axis in tiles_of(state.term).items():
        number = state.everything[tile]
        for step, why in multiples.get(axis, ()) if number != lengths[axis] else ():
            if number % step:
                yield f"{tile} = {number} is no multiple of {step}: {why}"


@lru_cache(maxsize=64)
def _multiples(term: Term) -> Mapping[str, tuple[tuple[int, str], ...]]:
    return cost.tile_multiples(term)


def _too_large(state: State, held: int, room: int) -> Iterator[str]:
    if held > room:
        yield f"it holds {held:,} bytes, and a block of {state.machine} has {room:,}"


def _unstated(state: State, found: Times) -> Iterator[str]:
    if "tensor" in found.unknown:
        yield f"{state.machine} states no matrix rate in {state.kind}"


Heights = tuple[dict[tuple[int, int], float], frozenset[tuple[int, int]]]


@lru_cache(maxsize=256)
def landscape(
    state: State, rows: tuple[str, tuple[int, ...]], columns: tuple[str, tuple[int, ...]], room: int
) -> Heights:
    """The bytes moved at every pair of tiles, and the pairs that hold more than `room`; a tile without a name
    is none."""
    pairs = list(product(rows[1], columns[1]))
    values = {rows[0]: [row for row, _ in pairs], columns[0]: [column for _, column in pairs]}
    at: dict[str, Any] = {**state.everything, **{name: several for name, several in values.items() if name}}
    found = ready(state.term).at(**at)
    moved, held = (found[name].tolist() for name in ("moved", "held"))
    unfit = frozenset(pair for pair, bytes_ in zip(pairs, held, strict=True) if bytes_ > room)
    return dict(zip(pairs, map(float, moved), strict=True)), unfit


def tile_choices(length: int, *also: int) -> tuple[int, ...]:
    """The tiles that a slider offers along an axis of that length: powers of two, the whole, those in use.

    >>> tile_choices(48, 24)
    (1, 2, 4, 8, 16, 24, 32, 48)
    """
    powers = {2**power for power in range(length.bit_length())}
    return tuple(sorted({one for one in (*powers, length, *also) if 1 <= one <= length}))
