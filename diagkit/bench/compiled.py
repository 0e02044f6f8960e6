"""Kernels compiled for a target without having one: what the compiler made of them, kept on disk by content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from diagkit.bench import sass
from diagkit.bench.architectures import Architecture
from diagkit.bench.messages import Build, Built
from diagkit.bench.worker import compiler
from diagkit.codegen import Entry, Source, cache_directory
from diagkit.codegen.triton_boxes import dot_format
from diagkit.codegen.triton_frame import Frame
from diagkit.program import Compute, Kernel, Load, Program
from diagkit.term import FORMATS, Box, names

_LAYOUT = 3
"""Raised when what is kept on disk changes its meaning."""

TYPES: dict[str, str] = {
    "fp32": "fp32",
    "tf32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8e4m3": "fp8e4nv",
    "fp8e5m2": "fp8e5",
    "fp8e8m0": "u8",
    "int64": "i64",
    "int32": "i32",
    "int8": "i8",
    "int4": "i8",
    "bool": "i1",
}
"""Triton's short name for each number format."""


@dataclass(frozen=True)
class Compiled:
    """One kernel compiled for one target.

    * `shared_bytes` of a block, `registers` of a thread, `spilled_bytes` of a thread, `notes` (C75xx) of
      the assembler where it had to serialise; `formats` in which the kernel multiplies matrices.
    * `matrix`: matrix instructions in the whole kernel, by kind.
    * `crosswise`: loaded sides of 8-bit products whose last axis is not the one that is summed.
    * In the main loop (`looped`; else in the whole kernel): `counts` of instructions by kind, `waits` for
      matrix instructions, `exponentials` (while matrix instructions run, all), global loads `moves`.
    """

    kernel: str
    target: str
    warps: int
    stages: int
    shared_bytes: int
    registers: int
    spilled_bytes: int
    notes: tuple[str, ...]
    formats: tuple[str, ...]
    matrix: Mapping[str, int]
    counts: Mapping[str, int]
    waits: int
    exponentials: tuple[int, int]
    moves: Mapping[str, int]
    looped: bool
    crosswise: tuple[str, ...] = ()


def compiled(program: Program, kernel: Kernel, text: Source, row: Architecture, timeout_s: float) -> Compiled:
    """The kernel's compilation, from disk where it has been done before."""
    import triton

    entry = text.entry(kernel.name)
    request = build_request(program, kernel, text, entry, row)
    content = repr((_LAYOUT, triton.__version__, text.text, request.function, request.types, request.aligned))
    digest = hashlib.sha256(f"{content}{request.options}{row.name}".encode()).hexdigest()[:16]
    place = cache_directory() / f"compiled_{digest}.json"
    if not place.exists():
        found = read(kernel, program, row, entry, compiler().run(request, timeout_s))
        draft = place.with_suffix(".part")
        draft.write_text(json.dumps(asdict(found)), encoding="utf-8")
        draft.replace(place)
    return _restored(json.loads(place.read_text(encoding="utf-8")))


def _restored(kept: dict[str, Any]) -> Compiled:
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()}
    return Compiled(**plain)


def build_request(program: Program, kernel: Kernel, text: Source, entry: Entry, row: Architecture) -> Build:
    """What the compiler is asked for: contiguous arrays of the declared formats, on 16-byte boundaries."""
    wires = (*entry.loads, *entry.stores)
    kinds = [f"*{TYPES[program.term.wires[wire].dtype]}" for wire in wires]
    steps = [_step(program, kernel, name) for name in entry.parameters]
    types = (*kinds, *("1" if step == 1 else "i32" for step in steps))
    sixteen = [True] * len(wires) + [step != 1 and step % 16 == 0 for step in steps]
    aligned = tuple(place for place, yes in enumerate(sixteen) if yes)
    return Build(str(text.path()), entry.function, types, aligned, row.capability, entry.options)


def _step(program: Program, kernel: Kernel, parameter: str) -> int:
    """The value of a parameter as far as it is known; open sizes count as 16."""
    kind, *rest = parameter.split(":")
    known = dict(program.sizes)

    def length(axis: str) -> int:
        fixed = program.term.axes[axis].length
        return known.get(axis, 16) if fixed is None else fixed

    if kind == "size":
        return length(rest[0])
    axes = names(kernel.arrays[rest[1]].axes)
    return prod(length(axis) for axis in axes[axes.index(rest[2]) + 1 :])


_SHOWN = (*sass.MATRIX, "FFMA", "MUFU", "FMUL", "FADD", "FMNMX", "SHFL", "LDG", "LDGSTS", "LDSM", "LDS", "STS", "BAR")


def read(kernel: Kernel, program: Program, row: Architecture, entry: Entry, built: Built) -> Compiled:
    """What the log and the machine code say."""
    code, log = sass.parse(built.sass), sass.parse_log(built.log)
    main, options = code.main, dict(entry.options)
    counted = sass.count(main)
    every = sass.count(code.instructions)
    return Compiled(
        kernel.name,
        row.name,
        options["num_warps"],
        options["num_stages"],
        built.shared_bytes,
        log.registers,
        max(*log.spilled_bytes, log.stack_bytes),
        log.notes,
        product_formats(kernel, program),
        {kind: every[kind] for kind in sass.MATRIX if every[kind]},
        {kind: counted[kind] for kind in _SHOWN if counted[kind]},
        sass.waits(main),
        sass.exponentials_within(main),
        sass.loads(main),
        bool(code.loops),
        crosswise(kernel, program),
    )


def product_formats(kernel: Kernel, program: Program) -> tuple[str, ...]:
    """The formats in which the kernel multiplies matrices."""
    frame = Frame(kernel, program)
    return tuple(sorted({dot_format(frame, box) for box in products_of(kernel, frame)}))


def products_of(kernel: Kernel, frame: Frame) -> list[Box]:
    """The boxes that are products of matrices."""
    return [s.box for s in kernel.statements if isinstance(s, Compute) and s.box.name in frame.products]


def crosswise(kernel: Kernel, program: Program) -> tuple[str, ...]:
    """Arrays that 8-bit products want stored the other way round: what is summed is not their last axis."""
    frame = Frame(kernel, program)
    loads = {s.wire for s in kernel.statements if isinstance(s, Load)}
    narrow = [box for box in products_of(kernel, frame) if FORMATS[dot_format(frame, box)] == 8]
    found = [wire for box in narrow for wire in box.inputs if wire in loads]
    inner = {wire: frame.products[box.name].inner for box in narrow for wire in box.inputs}
    return tuple(wire for wire in found if frame.along(wire)[-1:] != inner[wire][-1:])
