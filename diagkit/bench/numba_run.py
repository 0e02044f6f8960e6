"""Running the numba source of a program: compiled once per float type and layout, launched on arrays.

Arrays of the kernel's types pass without a copy, whatever their strides; fp16 and bf16 arrays are converted
on entry, and the result back. Workers are plain threads: kernels let go of Python's lock.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from diagkit.bench.blas import one_blas_thread
from diagkit.bench.launch import Key, Launch, packed, unpacked
from diagkit.codegen import Entry, Source
from diagkit.codegen.numba_source import write
from diagkit.program import Kernel, Load, Program, Store
from diagkit.term import FormatError, Wire, names

_ONE_AT_A_TIME = threading.Lock()
"""A kernel has every core to itself; and the BLAS is told once, not by two launches that meet."""

_NUMBERS = {"float32": np.float32, "float64": np.float64}


def launch(
    program: Program,
    sizes: Mapping[str, int],
    start: Mapping[str, Any],
    counted: bool = False,
    open_tiles: bool = False,
) -> Launch:
    """Bind `program` to the arrays `start` by name; `sizes` has every axis, in elements. Compiles what has
    not been compiled. With `counted` the kernels add up what they load and store; slower. With `open_tiles`
    what was compiled for other tiles serves again."""
    memory = {name: _plain(value) for name, value in start.items()}
    number = "float64" if any(value.dtype == np.float64 for value in memory.values()) else "float32"
    dense = all(_is_dense(value, number) for value in memory.values())
    code = load(program, number, counted, open_tiles, dense)
    slow = Slow(program, sizes, number, memory)
    bound = [_bind(code, kernel, sizes, slow) for kernel in program.kernels]
    moved: dict[Key, int] = {}

    def run() -> None:
        with _ONE_AT_A_TIME, one_blas_thread():
            for call in bound:
                _side_by_side(call.function, call.workers, call.arguments)
        slow.unpack()
        if counted:
            moved.update(_elements(bound))

    outputs = {name: memory[name] for name in program.term.outputs}
    return Launch(run, outputs, memory, moved)


def counting(program: Program, sizes: Mapping[str, int], start: Mapping[str, Any]) -> Launch:
    """As `launch`, with kernels that count."""
    return launch(program, sizes, start, counted=True)


def any_tile(program: Program, sizes: Mapping[str, int], start: Mapping[str, Any]) -> Launch:
    """As `launch`, with tiles as parameters: many tiles, one compilation."""
    return launch(program, sizes, start, open_tiles=True)


def _is_dense(value: Any, number: str) -> bool:
    """Whether an array lies in one piece, in order, and holds whole numbers, truth values or the kernel's numbers."""
    return bool(value.flags.c_contiguous and (value.dtype.kind != "f" or value.dtype.name == number))


@dataclass
class Slow:
    """Slow memory: `memory` holds every array by name, as the caller sees it; `pairs` those of int4 codes as
    kernels see them, two codes in a byte."""

    program: Program
    sizes: Mapping[str, int]
    number: str
    memory: dict[str, Any]
    pairs: dict[str, Any] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in (name for name in self.memory if self.program.term.wires[name].dtype == "int4"):
            self.pairs[name] = packed(self.memory[name]).view(np.int8)

    def make(self, wire: Wire, dtype: str) -> None:
        """Room for an array that a kernel stores in the format `dtype`, filled with no code that is likely."""
        shape = tuple(self.sizes[axis] for axis in names(wire.axes))
        self.memory[wire.name] = np.empty(shape, array_type(dtype, self.number))
        if dtype == "int4":
            self.pairs[wire.name] = np.full((*shape[:-1], shape[-1] // 2), -120, np.int8)
            self.made.append(wire.name)

    def array(self, name: str) -> Any:
        """What a kernel reads or writes."""
        value = self.pairs.get(name, self.memory[name])
        return value.reshape(1) if value.ndim == 0 else value

    def unpack(self) -> None:
        """The caller's view of the int4 arrays that kernels stored."""
        for name in self.made:
            self.memory[name][...] = unpacked(self.pairs[name])


@dataclass(frozen=True)
class _Call:
    """A kernel and its arguments; `counts` by move and worker, where it counts."""

    kernel: Kernel
    function: Any
    workers: int
    arguments: tuple[Any, ...]
    counts: Any


def _side_by_side(function: Any, workers: int, arguments: tuple[Any, ...]) -> None:
    """Run the workers, one of them here."""
    others = [_pool().submit(function, worker, workers, *arguments) for worker in range(1, workers)]
    function(0, workers, *arguments)
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), thread_name_prefix="diagkit")


def threads() -> int:
    """How many workers run side by side: NUMBA_NUM_THREADS, else the cores this process may use."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)


def _plain(value: Any) -> Any:
    """numpy's view of an array, aligned and in this machine's byte order."""
    value = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    value = np.require(value, requirements=["ALIGNED"])
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


@dataclass(frozen=True)
class Code:
    """Source and the module it compiles from."""

    source: Source
    module: ModuleType
    counted: bool


@lru_cache(maxsize=256)
def _written(program: Program, number: str, counted: bool, open_tiles: bool, dense: bool) -> Source:
    return write(program, number, counted, open_tiles, dense)


def load(program: Program, number: str, counted: bool, open_tiles: bool = False, dense: bool = True) -> Code:
    """The source of `program` and its module; an error that says so where numba or scipy is missing."""
    for package in ("numba", "scipy"):
        if importlib.util.find_spec(package) is None:
            raise FormatError(f"numba kernels need {package}", remedy=f"pip install {package}")
    source = _written(program, number, counted, open_tiles, dense)
    return Code(source, _module(source), counted)


@lru_cache(maxsize=256)
def _module(source: Source) -> ModuleType:
    path = source.path()
    spec = importlib.util.spec_from_file_location(f"diagkit_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba finds what it kept on disk by this name
    spec.loader.exec_module(module)
    return module


def _bind(code: Code, kernel: Kernel, sizes: Mapping[str, int], slow: Slow) -> _Call:
    """The compiled function of a kernel and its arguments; its stores get memory."""
    entry = code.source.entry(kernel.name)
    workers = max(1, min(threads(), groups(kernel, sizes)))
    for move in (s for s in kernel.statements if isinstance(s, Store)):
        slow.make(kernel.wire[move.wire], "int4" if move.dtype == "int4" else kernel.wire[move.wire].dtype)
    arrays = [slow.array(wire) for wire in (*entry.loads, *entry.stores)]
    counts = np.zeros((len(_moves(kernel)), workers), np.int64)
    extra = [counts] if code.counted else []
    tiles = {f"tile:{span.axis}": span.tile for span in kernel.spans if span.role != "whole"}
    arguments = (*arrays, *(int({**sizes, **tiles}[name]) for name in entry.parameters), *extra)
    function = _compiled(getattr(code.module, entry.function), entry, arguments)
    return _Call(kernel, function, workers, arguments, counts)


def _moves(kernel: Kernel) -> list[Load | Store]:
    return [s for s in kernel.statements if isinstance(s, Load | Store)]


def groups(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """How many groups the kernel has."""
    return prod(-(-sizes[loop.axis] // int(loop.tile)) for loop in kernel.groups)


def array_type(dtype: str, number: str) -> Any:
    """numpy's type for whole arrays of a wire of that format."""
    if dtype == "bool":
        return np.bool_
    return getattr(np, "int8" if dtype == "int4" else dtype) if dtype.startswith("int") else _NUMBERS[number]


def _compiled(function: Any, entry: Entry, arguments: tuple[Any, ...]) -> Any:
    """The machine code for these types: all arrays contiguous, or any strides; never for each mixture."""
    types = _signature(entry, arguments)
    function.compile(types)
    return function.overloads[types].entry_point


def _signature(entry: Entry, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    import numba

    arrays = arguments[: len(entry.loads)]
    layout = "C" if all(value.flags.c_contiguous for value in arrays) else "A"
    loads = [numba.types.Array(numba.from_dtype(v.dtype), v.ndim, layout, readonly=True) for v in arrays]
    rest = (numba.typeof(value) for value in arguments[len(entry.loads) :])
    return (numba.int64, numba.int64, *loads, *rest)


def _elements(bound: Iterable[_Call]) -> dict[Key, int]:
    """What the counting kernels counted, which then count anew."""
    found: dict[Key, int] = {}
    for call in bound:
        for move, count in zip(_moves(call.kernel), call.counts.sum(axis=1), strict=True):
            levels = (0, 1) if isinstance(move, Load) else (1, 0)
            key = (move.array, *levels, move.traffic)
            found[key] = found.get(key, 0) + int(count)
        call.counts.fill(0)
    return found
