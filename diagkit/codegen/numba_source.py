"""The numba target: a kernel is a function that each of several workers runs, dealing the groups out
among them; it lets go of Python's lock, so that workers run side by side as plain threads.

Plain threads, not numba's own parallel loop: that compiles everything three times over, and its threads
quarrel with those of other libraries. A worker allocates its tiles once. Each step of the nest is a
function of its own, because loops compile to vector instructions there and not inside a larger body.
Floats are never assumed to be free of NaN or infinity; sums may be reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diagkit.codegen.layout import check_sums, sized
from diagkit.codegen.numba_boxes import buffer_length, tile_view, write_move, write_view
from diagkit.codegen.numba_frame import Frame
from diagkit.codegen.numba_products import read_in_place, write_contract
from diagkit.codegen.numba_scalars import RESERVED, prelude
from diagkit.codegen.numba_sweeps import write_sweep
from diagkit.codegen.passes import Step, Sweep, sweeps
from diagkit.codegen.scalars import position
from diagkit.codegen.source import Entry, Source
from diagkit.codegen.writer import Names, Writer, identifier
from diagkit.program import Compute, For, Init, Kernel, Load, Program, Store, Update
from diagkit.term import Contract, View, names, size


def write(
    program: Program, number: str = "float32", counted: bool = False, open_tiles: bool = False, dense: bool = True
) -> Source:
    """The source of `program` for numba, in the float type `number`; `counted` makes the kernels add up
    the elements that they load and store; with `open_tiles` one text serves all tiles, as parameters
    ("tile:q" for the axis q). `dense` arrays of numbers lie in one piece, and are of that type."""
    for kernel in program.kernels:
        check_sums(kernel, "numba")
    taken = Names(RESERVED)
    sizes = {size(axis): whole for axis, whole in program.sizes}
    title = identifier(program.term.name)
    frames = [
        Frame(k, taken.of(("kernel", k.name), f"{title}_{k.name}"), taken, number, counted, open_tiles, sizes, dense)
        for k in program.kernels
    ]
    body = Writer()
    entries = tuple(_kernel(frame, body) for frame in frames)
    head = Writer()
    _header(head, program, number)
    for line in prelude(number, "\n".join(line.text for line in body.lines)):
        head.add(line)
    return Source("numba", program.term.name, (*head.lines, *body.lines), entries)


def _header(head: Writer, program: Program, number: str) -> None:
    head.add(f'"""{program.term.name} in numba. The comment at the end of a line names the box that it comes from."""')
    head.blank()
    for line in ("import math", "", "import numpy as np", "from numba import njit", ""):
        head.add(line)
    head.add(f"number = np.{number}")
    head.add('KERNEL = {"error_model": "numpy", "nogil": True, "cache": True}')
    head.add('EXACT = {"error_model": "numpy", "fastmath": {"contract"}, "no_cpython_wrapper": True}')
    head.add('FAST = {**EXACT, "fastmath": {"contract", "nsz", "reassoc"}}')


def _kernel(frame: Frame, body: Writer) -> Entry:
    """The functions of one kernel: its steps, and what a worker runs."""
    worker = _Worker(frame)
    worker.write()
    body.lines += frame.functions.lines
    body.lines += worker.writer.lines
    loads, stores = _moved(frame.kernel)
    parameters = (*sized(frame.kernel), *(f"tile:{axis}" for axis in frame.open))
    return Entry(frame.kernel.name, worker.name, loads, stores, parameters)


def _moved(kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The arrays that it loads from, each once, and those that it stores."""
    found = kernel.statements
    loads = dict.fromkeys(s.array for s in found if isinstance(s, Load))
    return tuple(loads), tuple(s.wire for s in found if isinstance(s, Store))


def _parameters(frame: Frame) -> list[str]:
    loads, stores = _moved(frame.kernel)
    moved = ["moved"] if frame.counted else []
    numbers = [*map(frame.size, sized(frame.kernel)), *map(frame.step, frame.open)]
    return [*map(frame.array, (*loads, *stores)), *numbers, *moved]


@dataclass
class _Worker:
    """What one worker does: allocate, then for each of its groups the nest."""

    frame: Frame
    writer: Writer = field(default_factory=Writer)
    seen: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.frame.names.of((self.frame.title, "entry"), f"{self.frame.title}_kernel")

    def write(self) -> None:
        writer, kernel = self.writer, self.frame.kernel
        parameters = ", ".join(_parameters(self.frame))
        writer.blank(2)
        writer.add("@njit(**KERNEL)")
        with writer.nested(f"def {self.name}(worker, workers, {parameters}):"):
            self.allocate()
            groups = " * ".join(self.groups(loop.axis) for loop in kernel.groups) or "1"
            with writer.nested(f"for turn in range(-(-({groups}) // workers)):"):
                self.deal(groups)
                self.place()
                self.tiles(streamed=False)
                self.body()

    def deal(self, groups: str) -> None:
        """The worker's group of a turn. Every other turn deals backwards: where masks make later groups
        longer, nobody gets the longer one of every pair."""
        self.writer.add("group = turn * workers + (workers - 1 - worker if turn % 2 else worker)")
        with self.writer.nested(f"if group >= {groups}:"):
            self.writer.add("break")

    def groups(self, axis: str) -> str:
        """How many tiles there are along a grouped axis."""
        return self.frame.names.of(("groups", axis), f"groups_{axis}")

    def allocate(self) -> None:
        """Group counts, and one buffer for each tile that does not overwrite another."""
        frame, writer = self.frame, self.writer
        for loop in frame.kernel.groups:
            writer.add(f"{self.groups(loop.axis)} = {self.ceiling(loop.axis)}", loop.axis)
        for wire in self.buffers:
            writer.add(f"{self.buffer(wire)} = np.empty({buffer_length(frame, wire)}, {frame.elements(wire)})", wire)

    def ceiling(self, axis: str) -> str:
        """The size of an axis in tiles, rounded up."""
        tile, size = self.frame.step(axis), self.frame.size(axis)
        rest = f"{tile} - 1" if axis in self.frame.open else str(int(tile) - 1)
        return size if tile == "1" else f"({size} + {rest}) // {tile}"

    @property
    def buffers(self) -> list[str]:
        """The wires that own a buffer which some step uses."""
        used = self.used
        return [
            w.name for w in self.frame.kernel.wires if self.frame.layout.buffer[w.name] == w.name and w.name in used
        ]

    @cached_property
    def in_place(self) -> set[str]:
        """Loaded tiles that are parts of their arrays, not copies."""
        return read_in_place(self.frame)

    @property
    def used(self) -> set[str]:
        """The owners of the buffers that are used between steps."""
        frame = self.frame
        wires = ({move.wire for move in frame.moves} | kept(frame)) - self.in_place
        for statement in frame.kernel.statements:
            wires |= {statement.wire} if isinstance(statement, Init) else set()
        return {frame.layout.buffer[wire] for wire in wires}

    def buffer(self, wire: str) -> str:
        return self.frame.names.of((self.frame.title, "buffer", wire), f"{wire}_buffer")

    def place(self) -> None:
        """Which tile of each grouped axis this group is."""
        frame, writer, loops = self.frame, self.writer, self.frame.kernel.groups
        for number, loop in enumerate(loops):
            inner = " * ".join(self.groups(later.axis) for later in loops[number + 1 :])
            index = f"group // ({inner})" if inner else "group"
            index = f"{index} % {self.groups(loop.axis)}" if number else index
            tile = frame.step(loop.axis)
            writer.add(f"{frame.first(loop.axis)} = {index}" + (f" * {tile}" if tile != "1" else ""), loop.axis)
            self.measure(loop.axis)

    def measure(self, axis: str) -> None:
        """How many positions the tile at hand covers."""
        frame = self.frame
        self.writer.add(
            f"{frame.count(axis)} = min({frame.step(axis)}, {frame.size(axis)} - {frame.first(axis)})", axis
        )

    def tiles(self, streamed: bool) -> None:
        """Shape the buffers: those along the streamed axis anew for each chunk."""
        frame, loop = self.frame, self.frame.kernel.loop
        for wire in self.buffers:
            along = loop is not None and loop.axis in names(frame.kernel.wire[wire].axes)
            if along == streamed:
                self.writer.add(f"{frame.tile(wire)} = {tile_view(frame, wire, self.buffer(wire))}", wire)

    def body(self) -> None:
        kernel = self.frame.kernel
        self.steps(kernel.part("before"))
        if kernel.loop:
            self.loop(kernel.loop)
            self.steps(kernel.part("after"))

    def loop(self, loop: For) -> None:
        """The chunks of the streamed axis that the masks leave."""
        frame, writer = self.frame, self.writer
        places, tile, first = frame.places(), frame.step(loop.axis), frame.first(loop.axis)
        low, high = (position(bound, places) for bound in (loop.lo, loop.hi))
        if low != "0":
            begin, end = (frame.names.of((part, loop.axis), f"{loop.axis}_{part}") for part in ("begin", "end"))
            writer.add(f"{begin}, {end} = {low}, {high}", loop.axis)
            low, high = f"{begin} // {tile} * {tile}", f"{end} if {begin} < {end} else 0"
        with writer.nested(f"for {first} in range({low}, {high}, {tile}):", column=loop.axis):
            self.measure(loop.axis)
            self.tiles(streamed=True)
            masks = set(loop.masks) & set(frame.inlined)
            if masks:
                full = [position(bound, places) for bound in (loop.full_lo, loop.full_hi)]
                inside = f"{first} >= {full[0]} and {first} + {frame.count(loop.axis)} <= {full[1]}"
                writer.add(f"{self.whole} = {inside}", loop.axis)
            self.steps(loop.body, masks)

    @property
    def whole(self) -> str:
        return self.frame.names.of((self.frame.title, "whole"), "all_seen")

    def steps(self, part: Iterable[Any], masks: Collection[str] = ()) -> None:
        for step in sweeps(self.frame.kernel, part, self.frame.layout, needed(self.frame)):
            _CASES[type(step.box) if isinstance(step, Compute) else type(step)](self, step, masks)

    def sweep(self, step: Sweep, masks: Collection[str]) -> None:
        frame, writer, column = self.frame, self.writer, step.computes[-1].column
        read = kept(frame)
        call = write_sweep(frame, step, read)
        direct = {mask for mask in masks if any(mask in c.box.inputs for c in step.computes)}
        if not direct:
            writer.add(call, column)
            return
        with writer.nested(f"if {self.whole}:", column=column):
            writer.add(write_sweep(frame, step, read, direct), column)
        with writer.nested("else:", column=column):
            writer.add(call, column)

    def move(self, step: Load | Store, _: Collection[str]) -> None:
        if step.wire in self.in_place:
            self.writer.add(f"{self.frame.tile(step.wire)} = {self.frame.part(step.wire)}", step.column)
            return
        call = write_move(self.frame, step)
        slot = self.frame.moves.index(step)
        self.writer.add(f"moved[{slot}, worker] += {call}" if self.frame.counted else call, step.column)

    def init(self, step: Init, _: Collection[str]) -> None:
        start = float(step.start)
        text = f"number({start!r})" if start - start == 0 else f"number({'-' if start < 0 else ''}np.inf)"
        self.writer.add(f"{self.frame.tile(step.wire)}[...] = {text}", step.column)

    def update(self, step: Update, _: Collection[str]) -> None:
        """The new state becomes the state: two tiles change names, where it was not renewed in place."""
        state, new = self.frame.tile(step.wire), self.frame.tile(step.new)
        if state != new:
            self.writer.add(f"{state}, {new} = {new}, {state}", step.column)

    def contract(self, step: Compute, _: Collection[str]) -> None:
        self.writer.add(write_contract(self.frame, step), step.column)

    def view(self, step: Compute, _: Collection[str]) -> None:
        self.writer.add(write_view(self.frame, step), step.column)


def needed(frame: Frame) -> set[str]:
    """Wires that are read as tiles, not element by element: by products, views and stores."""
    tiled = {s.wire for s in frame.kernel.statements if isinstance(s, Store)}
    boxes = [s.box for s in frame.kernel.statements if isinstance(s, Compute)]
    return tiled.union(*(box.inputs for box in boxes if isinstance(box, Contract | View)))


def kept(frame: Frame) -> set[str]:
    """Wires that leave the sweep in which they are made."""
    found = needed(frame)
    kernel = frame.kernel
    for part in ("before", "loop", "after"):
        for step in sweeps(kernel, kernel.part(part), frame.layout, found):
            found |= _leaving(step)
    boxes = [s.box for s in kernel.statements if isinstance(s, Compute)]
    found |= {box.name for box in boxes if isinstance(box, Contract | View)}
    return found | {w for s in kernel.statements if isinstance(s, Update) for w in (s.wire, s.new)}


def _leaving(step: Step) -> set[str]:
    """What a sweep reads from elsewhere, and the reductions that it finishes."""
    if not isinstance(step, Sweep):
        return set()
    read = {wire for compute in step.computes for wire in compute.box.inputs}
    return (read - step.made) | step.reduced


_CASES: dict[Any, Callable[[_Worker, Any, Collection[str]], None]] = {
    Sweep: _Worker.sweep,
    Load: _Worker.move,
    Store: _Worker.move,
    Init: _Worker.init,
    Update: _Worker.update,
    Contract: _Worker.contract,
    View: _Worker.view,
}
