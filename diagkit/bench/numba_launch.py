"""Running the numba source of a program: compiled once per float type and layout, launched on arrays.

Arrays of the kernel's types pass without a copy, whatever their strides; fp16 and bf16 arrays are converted
on entry, and the result back. Workers are plain threads: kernels let go of Python's lock.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from diagkit.bench.blas import one_blas_thread
from diagkit.codegen import Entry, Source
from diagkit.codegen.numba_source import write
from diagkit.program import Kernel, Load, Program, Store
from diagkit.term import FormatError, names

_ONE_AT_A_TIME = threading.Lock()
"""A kernel has every core to itself; and the BLAS is told once, not by two launches that meet."""

_NUMBERS = {"float32": np.float32, "float64": np.float64}


@dataclass(frozen=True)
class Launch:
    """A program's kernels bound to arrays: `run` runs them; `outputs` are written each time."""

    run: Callable[[], None]
    outputs: Mapping[str, Any]
    memory: Mapping[str, Any]
    moved: Mapping[str, Any]


def launch(
    program: Program, sizes: Mapping[str, int], start: Mapping[str, Any], number: str, counted: bool = False
) -> Launch:
    """Bind `program` to arrays by name, in the float type `number`; compiles what has not been compiled."""
    code = load(program, number, counted)
    memory = {name: _plain(value) for name, value in start.items()}
    moved: dict[str, Any] = {}
    calls = [_bind(code, kernel, sizes, memory, moved, number) for kernel in program.kernels]

    def run() -> None:
        with _ONE_AT_A_TIME, one_blas_thread():
            for function, workers, arguments in calls:
                _side_by_side(function, workers, arguments)

    outputs = {name: memory[name] for name in program.term.outputs}
    return Launch(run, outputs, memory, moved)


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
    value = np.require(value, requirements=["ALIGNED"])
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


@dataclass(frozen=True)
class Code:
    """Source and the module it compiles from."""

    source: Source
    module: ModuleType


@lru_cache(maxsize=256)
def _written(program: Program, number: str, counted: bool) -> Source:
    return write(program, number, counted)


def load(program: Program, number: str, counted: bool) -> Code:
    """The source of `program` and its module; an error that says so where numba or scipy is missing."""
    for package in ("numba", "scipy"):
        if importlib.util.find_spec(package) is None:
            raise FormatError(f"numba kernels need {package}", remedy=f"pip install {package}")
    source = _written(program, number, counted)
    return Code(source, _module(source))


@lru_cache(maxsize=256)
def _module(source: Source) -> ModuleType:
    path = source.path()
    spec = importlib.util.spec_from_file_location(f"diagkit_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _bind(
    code: Code, kernel: Kernel, sizes: Mapping[str, int], memory: dict[str, Any], moved: dict[str, Any], number: str
) -> tuple[Any, int, tuple[Any, ...]]:
    """The compiled function of a kernel, its workers and its arguments; its stores get memory."""
    entry = code.source.entry(kernel.name)
    workers = max(1, min(threads(), groups(kernel, sizes)))
    for wire in entry.stores:
        shape = tuple(sizes[axis] for axis in names(kernel.wire[wire].axes))
        memory[wire] = np.empty(shape, array_type(kernel.wire[wire].dtype, number))
    loads = [_at_least_1d(memory[wire]) for wire in entry.loads]
    stores = [_at_least_1d(memory[wire]) for wire in entry.stores]
    counts = []
    if "moved" in code.source.text:
        slots = [s for s in kernel.statements if isinstance(s, Load | Store)]
        moved[kernel.name] = np.zeros((len(slots), workers), np.int64)
        counts = [moved[kernel.name]]
    arguments = (*loads, *stores, *(int(sizes[axis]) for axis in entry.parameters), *counts)
    function = getattr(code.module, entry.function)
    _compiled(function, entry, arguments)
    return function, workers, arguments


def _at_least_1d(value: Any) -> Any:
    return value.reshape(1) if value.ndim == 0 else value


def groups(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """How many groups the kernel has."""
    return prod(-(-sizes[loop.axis] // int(loop.tile)) for loop in kernel.groups)


def array_type(dtype: str, number: str) -> Any:
    """numpy's type for whole arrays of a wire of that format."""
    if dtype == "bool":
        return np.bool_
    return getattr(np, "int8" if dtype == "int4" else dtype) if dtype.startswith("int") else _NUMBERS[number]


def _compiled(function: Any, entry: Entry, arguments: tuple[Any, ...]) -> None:
    """Compile for these types: all arrays contiguous, or any strides; never for each mixture."""
    types = _signature(entry, arguments)
    if types not in function.signatures:
        function.disable_compile(False)
        function.compile(types)
        function.disable_compile()


def _signature(entry: Entry, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    import numba

    arrays = arguments[: len(entry.loads)]
    layout = "C" if all(value.flags.c_contiguous for value in arrays) else "A"
    loads = [numba.types.Array(numba.from_dtype(v.dtype), v.ndim, layout, readonly=True) for v in arrays]
    rest = (numba.typeof(value) for value in arguments[len(entry.loads) :])
    return (numba.int64, numba.int64, *loads, *rest)


def elements(program: Program, moved: Mapping[str, Any]) -> dict[tuple[str, int, int, str], int]:
    """What the counting kernels counted: elements by (array, from level, to level, kind)."""
    found: dict[tuple[str, int, int, str], int] = {}
    for kernel in program.kernels:
        slots = [s for s in kernel.statements if isinstance(s, Load | Store)]
        for slot, count in zip(slots, moved[kernel.name].sum(axis=1), strict=True):
            levels = (0, 1) if isinstance(slot, Load) else (1, 0)
            key = (slot.wire, *levels, slot.traffic)
            found[key] = found.get(key, 0) + int(count)
    return found
