"""Triton: the loop nest with tiles as blocks.

Each group is one program instance. Loads and stores name their masks and fills, offsets are 64-bit, sums
are in fp32, products are ``tl.dot``. Where only some chunks of a loop can be masked or reach beyond the
axis, the loop runs in parts, and the part whose chunks are seen whole masks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

from diagkit.codegen.layout import check_sums, sized
from diagkit.codegen.lines import broken, tidy
from diagkit.codegen.source import Entry, Line, Source
from diagkit.codegen.triton_boxes import made
from diagkit.codegen.triton_frame import Frame
from diagkit.codegen.triton_loop import Parts, Statements, chunks, merged, quotient
from diagkit.codegen.triton_scalars import ELEMENT, LARGEST, prelude
from diagkit.codegen.triton_through import WHOLE_NUMBERS, Through, read
from diagkit.codegen.writer import Writer
from diagkit.program import Compute, For, Free, Init, Load, Program, Statement, Store, Update
from diagkit.term import FORMATS, FormatError, Index
from diagkit.term import names as names_of

WIDTH = 110
_WAITS = " What is named _raw lacks a factor, which its readers multiply by."
_IN_FLIGHT = 160 * 1024
_LARGE_TILE = 128 * 128
_LOADS = ("before", "loop")


def write(program: Program) -> Source:
    """The kernels of `program` in Triton.

    Axes that a kernel holds whole need a size (blocks have fixed shapes); grouped and streamed ones may
    stay open. Raises InputError for an open whole axis, FormatError for what Triton cannot hold: fp64,
    gathers, blocks beyond its limit.
    """
    body: list[Line] = []
    entries = []
    waits = ""
    for kernel in program.kernels:
        check_sums(kernel, "Triton")
        for wire in kernel.wires:
            _check_format(wire.name, wire.dtype)
        writer = _Kernel(Frame(kernel, program))
        entries.append(writer.write())
        body += writer.lines
        waits = _WAITS if writer.frame.numbers else waits
    head = Writer()
    head.add(f'"""{program.term.name}: kernels for Triton.{waits}"""'.replace("\\", "\\\\"))
    for line in ("", "import triton", "import triton.language as tl", *prelude("\n".join(line.text for line in body))):
        head.add(line)
    return Source("triton", program.term.name, (*head.lines, *body), tuple(entries))


def _check_format(wire: str, dtype: str) -> None:
    if dtype not in ELEMENT:
        raise FormatError(
            f"Triton kernels hold no {dtype}, the format of {wire!r}",
            box=wire,
            remedy=f"use one of: {', '.join(ELEMENT)}",
        )


class _Kernel:
    """One kernel under way."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.kernel = frame, frame.kernel
        self.lines: list[Line] = []
        moved = [s for s in self.kernel.statements if isinstance(s, Load | Store)]
        self.loads = tuple(dict.fromkeys(s.array for s in moved if isinstance(s, Load)))
        self.stores = tuple(dict.fromkeys(s.wire for s in moved if isinstance(s, Store)))

    def write(self) -> Entry:
        """Write the whole function and say how to call it."""
        function = self.frame.name.of("function", f"kernel_{self.kernel.name}")
        body = [Line(line.text, line.column, line.depth + 1) for line in self._body()]
        body = _without_unused([_tidied(line) for line in body])
        text = "\n".join(line.text for line in body)
        pointers = [self.frame.pointer(wire, wire in self.stores) for wire in (*self.loads, *self.stores)]
        wanted = [(key, name) for key, name in self._parameters() if re.search(rf"\b{name}\b", text)]
        names = [*pointers, *(name for _, name in wanted)]
        self.lines += [Line(""), Line(""), Line("@triton.jit")]
        self.lines += [Line(line) for line in broken(f"def {function}({', '.join(names)}):", WIDTH)]
        self.lines += [short for line in body for short in _broken(line)]
        parameters = tuple(key for key, _ in wanted)
        return Entry(self.kernel.name, function, self.loads, self.stores, parameters, options(self.frame))

    def _parameters(self) -> list[tuple[str, str]]:
        sizes = [(f"size:{axis}", self.frame.size_of(axis)) for axis in sized(self.kernel)]
        steps = []
        for wire in (*self.loads, *self.stores):
            stored = wire in self.stores
            for axis in names_of(self.kernel.arrays[wire].axes):
                key = f"stride:{'out' if stored else 'in'}:{wire}:{axis}"
                steps.append((key, self.frame.step(wire, axis, stored)))
        return [(key, name) for key, name in (*sizes, *steps) if not name.isdigit()]

    # The frame: groups, positions, pointers, parts.

    def _body(self) -> list[Line]:
        found = [*self._groups(), *self._positions(), *self._places()]
        found += _lines(self._part("before"))
        if self.kernel.loop:
            found += self._loop(self.kernel.loop)
        return found + _lines(self._part("after"))

    def _groups(self) -> list[Line]:
        """Which tile of each grouped axis this instance is: the last along the launch's first dimension, the
        others along its second. (With all in one dimension and a remainder for the last, ptxas serialises
        the products of masked attention on sm_90: note C7515.)"""
        frame, found = self.frame, []
        *others, last = self.kernel.groups or (None,)
        if last is not None:
            found.append(self._first(last.axis, "tl.program_id(0)"))
        if len(others) > 1:
            found.append(Line("group = tl.program_id(1)"))
        rest = "group" if len(others) > 1 else "tl.program_id(1)"
        for place, group in reversed(list(enumerate(others))):
            tile = frame.tile(group.axis)
            count = f"tl.cdiv({frame.size_of(group.axis)}, {tile})" if tile > 1 else frame.size_of(group.axis)
            found.append(self._first(group.axis, f"{rest} % {count}" if place else rest))
            if place:
                found.append(Line(f"group = group // {count}"))
        return found

    def _first(self, axis: str, number: str) -> Line:
        tile = self.frame.tile(axis)
        return Line(f"{self.frame.first(axis)} = {number}{f' * {tile}' if tile > 1 else ''}", axis)

    def _positions(self) -> list[Line]:
        frame, found = self.frame, []
        for axis in frame.block:
            found.append(Line(f"{frame.lane(axis)} = tl.arange(0, {frame.block[axis]})", axis))
            found.append(Line(f"{frame.pair_lane(axis)} = tl.arange(0, {max(frame.block[axis] // 2, 1)})", axis))
            if frame.spans[axis].role != "stream":
                found += _lines(self._position(axis))
        return found

    def _position(self, axis: str) -> Statements:
        """Where the tile lies along an axis, and which of its positions exist; one list of lines for each."""
        frame = self.frame
        where: list[Line] = []
        exist: list[Line] = []
        if axis in frame.block and frame.spans[axis].role != "whole":
            where.append(Line(f"{frame.at(axis)} = {frame.first(axis)} + {frame.lane(axis)}", axis))
        if axis in frame.block and frame.open(axis):
            exist.append(Line(f"{frame.inside(axis)} = {frame.inside_text(axis)}", axis))
        return [where, exist]

    def _places(self) -> list[Line]:
        """Pointers to the tiles of every array, as far as they are known before the loop."""
        loads = [s.wire for s in self.kernel.statements if isinstance(s, Load) and s.through is None]
        return [self._place(wire, wire in self.stores) for wire in (*dict.fromkeys(loads), *self.stores)]

    def _place(self, wire: str, stored: bool) -> Line:
        frame = self.frame
        order, terms = frame.along(wire), [frame.pointer(wire, stored)]
        for axis in names_of(self.kernel.wire[wire].axes):
            step = frame.step(wire, axis, stored)
            if axis == frame.paired(wire):
                grouped = frame.spans[axis].role == "group"
                known = f"{frame.first(axis)} // 2 + {frame.pair_lane(axis)}" if grouped else frame.pair_lane(axis)
                terms.append(frame.aligned(f"offset({known}, {step})", (axis,), order))
            elif axis in order:
                known = frame.lane(axis) if frame.spans[axis].role == "stream" else frame.at(axis)
                terms.append(frame.aligned(f"offset({known}, {step})", (axis,), order))
            elif frame.spans[axis].role == "group":
                terms.append(f"offset({frame.first(axis)}, {step})")
        return Line(f"{frame.place(wire, stored)} = {' + '.join(terms)}", wire)

    def _part(self, part: str, sure: tuple[str, ...] = ()) -> Statements:
        return [_STATEMENTS[type(s)](self, s, sure) for s in self.kernel.part(part)]

    # The loop.

    def _loop(self, loop: For) -> list[Line]:
        """The chunks: in one loop, or in parts of which one masks nothing."""
        edge, whole = self._chunk(loop, True), self._chunk(loop, False)
        tile = self.frame.tile(loop.axis)
        begin, end = chunks(self.frame.bound(loop.lo), self.frame.bound(loop.hi), tile)
        last = quotient(self.frame.bound(loop.full_hi), tile)
        if edge == whole or last == "0":
            return self._run(loop, begin, end, _lines(edge), 0)
        parts = Parts(self.frame, loop, begin, end, last)
        body = _lines(merged(whole, edge, parts.condition))
        return [*parts.lines, *self._run(loop, parts.start, parts.stop, body, 1)]

    def _run(self, loop: For, begin: str, end: str, body: list[Line], depth: int) -> list[Line]:
        chunk = self.frame.name.of(("chunk", loop.axis), f"{loop.axis}_tile")
        head = Line(f"for {chunk} in range({begin}, {end}):", loop.axis, depth)
        return [head, *(Line(line.text, line.column, line.depth + depth + 1) for line in body)]

    def _chunk(self, loop: For, edge: bool) -> Statements:
        """The statements of one chunk; where it is no `edge`, its masks hold and it lies inside."""
        frame, axis = self.frame, loop.axis
        chunk = frame.name.of(("chunk", axis), f"{axis}_tile")
        frame.edge = edge
        tile = frame.tile(axis)
        first = [Line(f"{frame.first(axis)} = {chunk}{f' * {tile}' if tile > 1 else ''}", axis)]
        found = [first, *self._position(axis), *self._part("loop", () if edge else loop.masks)]
        frame.edge = True
        return found

    # Statements.

    def load(self, statement: Load, sure: tuple[str, ...]) -> list[Line]:
        """Read a tile; lanes that do not exist are filled with 0."""
        frame, wire = self.frame, statement.wire
        dtype, order = self.kernel.wire[wire].dtype, frame.along(wire)
        nothing = "0" if dtype in WHOLE_NUMBERS else "0.0"
        test = " != 0" if dtype == "bool" else ""
        frame.order[wire], frame.held[wire] = order, _HELD.get(dtype, dtype)
        frame.zeroed.add(wire)
        if statement.through is not None:
            text = Through(frame, statement, statement.through).text(nothing)
            return [Line(f"{frame.name[wire]} = {f'({text}{test})' if test else text}", wire)]
        mask = self._mask(wire)
        guard = f", mask={mask}, other={nothing}" if mask else ""
        text = f"tl.load({self._pointers(wire, False)}{guard}){test}"
        return [Line(f"{frame.name[wire]} = {read(dtype, text, mask)}", wire)]

    def _mask(self, wire: str) -> str:
        """Which lanes of a tile in slow memory exist; empty where all do."""
        frame, order, last = self.frame, self.frame.along(wire), self.frame.paired(wire)
        mask = frame.masks([axis for axis in order if axis != last], order)
        inside = frame.pairs_inside(last) if last else ""
        found = frame.aligned(f"({inside})", (last,), order) if last and inside else ""
        return " & ".join(part for part in (mask, found) if part)

    def store(self, statement: Store, sure: tuple[str, ...]) -> list[Line]:
        """Write the lanes of a tile that exist, in the format of the array; fp8 saturates."""
        frame, wire = self.frame, statement.wire
        order = frame.along(wire)
        text = frame.aligned(frame.variable(wire), frame.order[wire], order)
        dtype = frame.program.term.wires[wire].dtype
        held = {"float": "fp32"}.get(frame.held[wire], frame.held[wire])
        if dtype == "fp8e8m0":
            text = f"power_codes({text})"
        elif dtype in LARGEST and held != dtype:
            text = f"clamp({text}.to(tl.float32), {LARGEST[dtype]})"
        if ELEMENT.get(held) != ELEMENT[dtype]:
            text = f"{text}.to({ELEMENT[dtype]})"
        mask = self._mask(wire)
        if frame.paired(wire):
            halves = [frame.block[axis] for axis in order]
            shape = ", ".join(map(str, [*halves[:-1], halves[-1] // 2, 2]))
            text = f"pairs(tl.reshape({text}, ({shape})))"
        return [Line(f"tl.store({self._pointers(wire, True)}, {text}{f', mask={mask}' if mask else ''})", wire)]

    def _pointers(self, wire: str, stored: bool) -> str:
        """Where the tile lies now: in the loop the streamed axis moves on."""
        frame, place = self.frame, self.frame.place(wire, stored)
        streamed = [a for a in names_of(self.kernel.wire[wire].axes) if frame.spans[a].role == "stream"]
        half = {a: " // 2" if a == frame.paired(wire) else "" for a in streamed}
        moved = (f"offset({frame.first(a)}{half[a]}, {frame.step(wire, a, stored)})" for a in streamed)
        return " + ".join([place, *moved])

    def init(self, statement: Init, sure: tuple[str, ...]) -> list[Line]:
        """Begin a state at its start value."""
        frame, wire = self.frame, statement.wire
        order = frame.along(wire)
        number = {"-oo": 'float("-inf")', "oo": 'float("inf")'}.get(str(statement.start), f"{float(statement.start)!r}")
        frame.order[wire], frame.held[wire] = order, "float"
        shape = frame.shape(order)
        return [Line(f"{frame.name[wire]} = tl.full({shape}, {number}, tl.float32)", statement.column)]

    def update(self, statement: Update, sure: tuple[str, ...]) -> list[Line]:
        """The state takes its new value, in the order in which it was begun."""
        frame, new = self.frame, statement.new
        text = frame.aligned(frame.variable(new), frame.order[new], frame.order[statement.wire])
        return [Line(f"{frame.name[statement.wire]} = {text}", statement.column)]

    def compute(self, statement: Compute, sure: tuple[str, ...]) -> list[Line]:
        """One primitive on blocks; a mask that holds everywhere is not made."""
        frame, box = self.frame, statement.box
        if box.name in sure:
            return []
        found = made(frame, box, sure)
        frame.order[box.name], frame.held[box.name] = found.order, found.held
        if isinstance(box, Index):
            frame.alias[box.name] = found.text
            return []
        return [Line(f"{frame.name[box.name]} = {found.text}", statement.column)]

    def free(self, statement: Free, sure: tuple[str, ...]) -> list[Line]:
        """Blocks are freed by the compiler."""
        return []


def options(frame: Frame) -> tuple[tuple[str, int], ...]:
    """What the compiler is told. 8 warps for tiles of 128 x 128 results and more, else 4; 3 stages of loads
    where they fit 160 KiB beside what is loaded once, else 2."""
    results = [prod(frame.block[a] for a in frame.along(name)) for name in frame.products]
    warps = 8 if max(results, default=0) >= _LARGE_TILE else 4
    once, chunk = (
        sum(_bytes(frame, s.wire) for s in frame.kernel.part(part) if isinstance(s, Load)) for part in _LOADS
    )
    return (("num_warps", warps), ("num_stages", 3 if once + 3 * chunk <= _IN_FLIGHT else 2))


def _bytes(frame: Frame, wire: str) -> int:
    elements = prod(frame.block[axis] for axis in frame.along(wire))
    return elements * FORMATS[frame.kernel.wire[wire].dtype] // 8


def _lines(statements: Statements) -> list[Line]:
    return [line for lines in statements for line in lines]


def _without_unused(lines: list[Line]) -> list[Line]:
    """The lines without positions and masks that nobody reads; what is loaded is loaded."""
    while True:
        text = "\n".join(line.text for line in lines)
        kept = [line for line in lines if _is_used(line.text, text)]
        if len(kept) == len(lines):
            return lines
        lines = kept


def _is_used(line: str, text: str) -> bool:
    made_here = re.match(r"(\w+) = ", line)
    return made_here is None or "tl.load(" in line or len(re.findall(rf"\b{made_here[1]}\b", text)) > 1


def _tidied(line: Line) -> Line:
    """A line without needless brackets; headers of loops and branches have none."""
    return line if line.text.endswith(":") else Line(tidy(line.text), line.column, line.depth)


def _broken(line: Line) -> list[Line]:
    """A line in several where it is long; the box is named on the first."""
    room = WIDTH - 4 * line.depth - (len(line.column) + 4 if line.column else 0)
    first, *rest = broken(line.text, room)
    return [Line(first, line.column, line.depth), *(Line(text, None, line.depth) for text in rest)]


_HELD = {"fp32": "float", "tf32": "float", "fp8e8m0": "float", "int32": "int", "int64": "int", "int4": "int8"}
"""What is held of numbers loaded in a format, where that is another."""

_STATEMENTS: dict[type[Statement], Callable[[_Kernel, Any, tuple[str, ...]], list[Line]]] = {
    Load: _Kernel.load,
    Store: _Kernel.store,
    Init: _Kernel.init,
    Compute: _Kernel.compute,
    Update: _Kernel.update,
    Free: _Kernel.free,
}
