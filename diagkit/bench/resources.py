"""What a kernel will take of a GPU at least, known before it is compiled: compiling what is far beyond a
multiprocessor takes minutes, and would end in a kernel that cannot run or lives in slow memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from diagkit.bench.architectures import Architecture, tiles_of
from diagkit.bench.buffers import buffers_of, total
from diagkit.bench.compiled import products_of
from diagkit.codegen.triton_boxes import dot_format
from diagkit.codegen.triton_frame import Frame
from diagkit.codegen.triton_source import options
from diagkit.program import Compute, Init, Kernel, Program, lower
from diagkit.term import FORMATS, Contract, DiagkitError, FormatError

REGISTERS = 255
"""What a thread may have, of 4 bytes each."""
FAR = 2
"""How many times its registers a thread's numbers may take: a little more is spilled, and a verdict says so."""
WRITTEN_OUT = 16_384
"""Multiply-adds of one thread that a compiler writes out in about 20 s; matrix instructions take thousands each."""
LEAST_TILE = 16


@dataclass(frozen=True)
class Needs:
    """What one block of a kernel takes at least.

    * `shared_bytes`: the loaded sides of products of one chunk, each once;
    * `registers` a thread: all states and the largest tile beside them, which is `largest`;
    * `written_out`: multiply-adds a thread, of products for which there is no matrix instruction.
    """

    shared_bytes: int
    registers: int
    largest: str
    written_out: int

    def reason(self, row: Architecture, far: int = FAR) -> str | None:
        """Why such a kernel is not compiled, numbers `far` beyond a thread's registers; None where it is."""
        most = row.shared_bytes
        shared = f"takes {self.shared_bytes:,} bytes of shared memory a chunk, of {most:,} that a block may have"
        held = (
            f"takes {self.registers:,} registers a thread, most for {self.largest!r}, of {REGISTERS} that it may have"
        )
        slow = f"more than {WRITTEN_OUT:,} take minutes to compile,"
        written = f"writes out {self.written_out:,} multiply-adds a thread, {slow}"
        cases = (
            (shared, self.shared_bytes > most),
            (held, self.registers > far * REGISTERS),
            (written, FAR * self.written_out > far * WRITTEN_OUT),
        )
        return next((text for text, beyond in cases if beyond), None)


def needs(kernel: Kernel, program: Program, row: Architecture) -> Needs:
    """What the kernel takes at least on that generation."""
    frame, buffers = Frame(kernel, program), buffers_of(kernel, program)
    threads = 32 * dict(options(frame))["num_warps"]
    sides = {name for name, _ in (*buffers.once, *buffers.chunk)}
    states = {s.wire for s in kernel.statements if isinstance(s, Init)}
    held = {w.name: _words(frame, w.name) for w in kernel.wires if not w.virtual and w.name not in sides | states}
    held |= _summed(frame)
    largest = max(held, key=lambda name: held[name], default="")
    words = sum(_words(frame, name) for name in states) + held.get(largest, 0)
    written_out = _multiply_adds(frame, row) // threads
    return Needs(total(buffers.chunk), words // threads, largest, written_out)


def _words(frame: Frame, wire: str) -> int:
    """Registers that a tile takes, all threads together: its bytes by fours."""
    return prod(frame.block[axis] for axis in frame.along(wire)) * FORMATS[frame.kernel.wire[wire].dtype] // 32


def _summed(frame: Frame) -> dict[str, int]:
    """Contractions that are no products of matrices: every product is there before it is summed."""
    boxes = [s.box for s in frame.kernel.statements if isinstance(s, Compute) and isinstance(s.box, Contract)]
    found = {}
    for box in (box for box in boxes if box.name not in frame.products):
        axes = {axis for wire in box.inputs for axis in frame.along(wire)}
        found[box.name] = prod(frame.block[axis] for axis in axes)
    return found


def _multiply_adds(frame: Frame, row: Architecture) -> int:
    """Of the products that the generation has no matrix instruction for."""
    found = 0
    for box in products_of(frame.kernel, frame):
        if dot_format(frame, box) not in row.matrix:
            found += prod(frame.block[axis] for axis in {a for wire in box.inputs for a in frame.along(wire)})
    return found


def check_needs(program: Program, row: Architecture) -> None:
    """Refuse a kernel that is far beyond what a block of that generation may have, before it is compiled.

    Raises FormatError with what it takes, what there is, and tiles that fit.
    """
    for kernel in program.kernels:
        reason = needs(kernel, program, row).reason(row)
        if reason is not None:
            raise FormatError(
                f"kernel {kernel.name!r} at {tiles_of(kernel)} {reason} on {row.name}",
                box=kernel.name,
                remedy=_remedy(program, row),
            )


def _remedy(program: Program, row: Architecture) -> str:
    """Tiles that fit, found by halving the largest of those that have a name; else what to do instead."""
    sizes = dict(program.sizes)
    while tiles := {name: n for name, n in sizes.items() if name not in program.known and n > LEAST_TILE}:
        largest = max(tiles, key=lambda name: tiles[name])
        sizes[largest] = max(sizes[largest] // 2, LEAST_TILE)
        try:
            smaller = lower(program.term, **sizes)
            if all(needs(kernel, smaller, row).reason(row, far=1) is None for kernel in smaller.kernels):
                named = [f"{name}={n}" for name, n in sizes.items() if name not in program.known]
                return f"use smaller tiles: {', '.join(named)}"
        except DiagkitError:
            continue
    return "use smaller tiles, or group or stream an axis that is held whole"
