"""Running the Triton source of a program: on a GPU where there is one, else in the interpreter's process.

Kernel runs after kernel, with the spilled intermediates in between. Arrays are rounded to the formats that
the diagram declares. Strides are kept, broadcasts (stride 0) too; an array with a negative stride is
copied, since torch has none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from diagkit.bench.architectures import check_formats, check_shared, nearest
from diagkit.bench.launch import Key, Launch, packed, pairs, unpacked
from diagkit.bench.messages import TORCH, Request, Tensor, stored
from diagkit.bench.resources import check_needs
from diagkit.bench.worker import Worker, interpreter
from diagkit.codegen import Entry, Source, source
from diagkit.program import Kernel, Load, Program, Store
from diagkit.term import FormatError, InputError, names

DEVICE = "cuda"
"""What torch calls the device on which kernels run."""


def on_gpu() -> bool:
    """Whether kernels run on a GPU: torch finds one."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def need_triton() -> None:
    """A FormatError that says what is missing where Triton cannot run."""
    for package in ("triton", "torch"):
        if importlib.util.find_spec(package) is None:
            raise FormatError(
                f"Triton kernels need {package}",
                remedy=f"pip install {package}; triton has wheels for Linux only, numba kernels run everywhere",
            )


def launch(program: Program, sizes: Mapping[str, int], start: Mapping[str, Any], timeout_s: float = 120.0) -> Launch:
    """Bind `program` to the arrays `start` by name; `sizes` has every axis, in elements.

    On a GPU the arrays become its own and `run` only launches; in the interpreter each run may take
    `timeout_s` seconds per kernel. Raises FormatError where Triton or torch is missing, WorkerError where
    the interpreter fails.
    """
    bound, calls = _bound(program, sizes, start, timeout_s)

    def run() -> None:
        bound.moved.clear()
        for call in calls:
            call()
        bound.finish()

    outputs = {name: bound.memory[name] for name in program.term.outputs}
    return Launch(run, outputs, bound.memory, bound.moved)


def queued(program: Program, sizes: Mapping[str, int], start: Mapping[str, Any]) -> Callable[[], None]:
    """As `launch`, but a run returns as soon as its kernels are queued on the GPU: for timing many in a row."""
    calls = _bound(program, sizes, start, 120.0)[1]

    def run() -> None:
        for call in calls:
            call()

    return run


def _bound(
    program: Program, sizes: Mapping[str, int], start: Mapping[str, Any], timeout_s: float
) -> tuple[_Gpu | _Interpreted, list[Callable[[], None]]]:
    need_triton()
    text = written(program)
    bound = _Gpu(program, sizes) if on_gpu() else _Interpreted(program, sizes, timeout_s)
    for name, value in start.items():
        bound.memory[name] = bound.take(name, value)
    return bound, [bound.bind(text, kernel) for kernel in program.kernels]


@lru_cache(maxsize=256)
def written(program: Program) -> Source:
    """The program's Triton source."""
    return source(program, "triton")


MOST_BESIDE = 65_535
"""What a launch takes at most along its second dimension."""


def grid(kernel: Kernel, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The launch: tiles of the last grouped axis, then those of all others together.

    Raises InputError where there are more of the others than a launch takes.
    """
    counts = [-(-sizes[loop.axis] // int(loop.tile)) for loop in kernel.groups]
    if len(counts) < 2:
        return tuple(counts) or (1,)
    beside = prod(counts[:-1])
    if beside > MOST_BESIDE:
        axes = [loop.axis for loop in kernel.groups[:-1]]
        raise InputError(
            f"kernel {kernel.name!r} has {beside:,} groups along {', '.join(axes)}: a launch takes {MOST_BESIDE:,}",
            axis=axes[0],
            remedy=f"use larger tiles along {', '.join(axes)}",
        )
    return counts[-1], beside


@dataclass
class _Interpreted:
    """Arrays in numpy, sent to the interpreter's process kernel by kernel."""

    program: Program
    sizes: Mapping[str, int]
    timeout_s: float
    worker: Worker = field(default_factory=interpreter)
    memory: dict[str, Any] = field(default_factory=dict)
    moved: dict[Key, int] = field(default_factory=dict)

    def finish(self) -> None:
        """Nothing is under way when a run returns."""

    def take(self, name: str, value: Any) -> Any:
        """The array as numpy's; torch's narrow floats come as fp32, which holds them exactly."""
        if isinstance(value, np.ndarray):
            return value
        value = value.detach().cpu()
        narrow = value.is_floating_point() and value.element_size() <= 2
        return value.float().numpy() if narrow else value.numpy()

    def bind(self, text: Source, kernel: Kernel) -> Callable[[], None]:
        """What runs one kernel."""
        entry = text.entry(kernel.name)
        for wire in entry.stores:
            self.memory[wire] = np.empty(_shape(kernel, wire, self.sizes), _host_type(kernel.wire[wire].dtype))
        path, shape = str(text.path()), grid(kernel, self.sizes)

        def call() -> None:
            tensors = [self._tensor(kernel, wire) for wire in (*entry.loads, *entry.stores)]
            steps = [tensor.strides for tensor in tensors]
            numbers = parameters(entry, kernel, self.sizes, steps)
            request = Request(path, entry.function, tuple(tensors), len(entry.stores), tuple(numbers), shape)
            reply = self.worker.run(request, self.timeout_s)
            for wire, value in zip(entry.stores, reply.outputs, strict=True):
                self.memory[wire][...] = fetched(value, kernel.wire[wire].dtype)
            self._count(kernel, entry, reply.moved)

        return call

    def _tensor(self, kernel: Kernel, wire: str) -> Tensor:
        value, dtype = self.memory[wire], kernel.arrays[wire].dtype
        if dtype == "int4":
            value = packed((value.astype(np.int8) + 8) % 16 - 8).view(np.int8)
        strides = tuple(step // value.itemsize for step in value.strides)
        if min(strides, default=0) < 0 or any(step % value.itemsize for step in value.strides):
            value = value.copy(order="C")
            strides = tuple(step // value.itemsize for step in value.strides)
        return Tensor(np.asarray(value, order="C"), strides, dtype)

    def _count(self, kernel: Kernel, entry: Entry, moved: tuple[tuple[int, int], ...]) -> None:
        traffic = {s.array: s.traffic for s in kernel.statements if isinstance(s, Load | Store)}
        for wire, (loaded, kept) in zip((*entry.loads, *entry.stores), moved, strict=True):
            key = (wire, 0, 1, traffic[wire]) if wire in entry.loads else (wire, 1, 0, traffic[wire])
            each = 2 if kernel.arrays[wire].dtype == "int4" else 1
            self.moved[key] = self.moved.get(key, 0) + each * (loaded + kept)


@dataclass
class _Gpu:
    """Arrays on the GPU, launched in this process."""

    program: Program
    sizes: Mapping[str, int]
    memory: dict[str, Any] = field(default_factory=dict)
    moved: dict[Key, int] = field(default_factory=dict)
    bytes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import torch

        self.row = nearest(torch.cuda.get_device_capability())
        if self.row is None:
            raise FormatError("Triton needs a GPU of compute capability 7.5 or newer", remedy="use numba kernels")
        check_formats(self.program, self.row)
        check_needs(self.program, self.row)

    def finish(self) -> None:
        """Wait for the GPU."""
        import torch

        torch.cuda.synchronize()
        for wire, found in self.bytes.items():
            self.memory[wire].copy_(torch.from_numpy(fetched(found.cpu().numpy(), self.program.term.wires[wire].dtype)))

    def take(self, name: str, value: Any) -> Any:
        """The array on the GPU, in the format of its wire, strides kept where there is nothing to convert."""
        import torch

        wire = self.program.term.wires[name]
        if wire.dtype == "int4":
            codes = torch.from_numpy(value.astype(np.int8)) if isinstance(value, np.ndarray) else value.detach()
            return pairs(codes.to(DEVICE, torch.int8))
        if isinstance(value, np.ndarray):
            negative = min(value.strides, default=0) < 0
            value = torch.from_numpy(value.copy(order="C") if negative else value)
        return stored(value.to(DEVICE), wire.dtype)

    def bind(self, text: Source, kernel: Kernel) -> Callable[[], None]:
        """What launches one kernel."""
        import torch

        entry = text.entry(kernel.name)
        for wire in entry.stores:
            shape, dtype = _shape(kernel, wire, self.sizes), kernel.wire[wire].dtype
            numbers = torch.float32 if dtype == "fp8e8m0" else getattr(torch, TORCH[dtype])
            self.memory[wire] = torch.empty(shape, dtype=numbers, device=DEVICE)
            if dtype == "int4":
                half = (*shape[:-1], shape[-1] // 2)
                self.bytes[wire] = torch.full(half, -120, dtype=torch.int8, device=DEVICE)
            if dtype == "fp8e8m0":
                self.bytes[wire] = torch.full(shape, 255, dtype=torch.uint8, device=DEVICE)
        tensors = [self.bytes.get(wire, self.memory[wire]) for wire in (*entry.loads, *entry.stores)]
        numbers = parameters(entry, kernel, self.sizes, [tuple(tensor.stride()) for tensor in tensors])
        function, shape = getattr(_module(text), entry.function), grid(kernel, self.sizes)
        options = dict(entry.options)
        made = function.warmup(*tensors, *numbers, grid=(1,), **options)
        limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
        check_shared(kernel, int(made.metadata.shared), torch.cuda.get_device_name(), int(limit))

        def call() -> None:
            if all(shape):
                function[shape](*tensors, *numbers, **options)

        return call


def parameters(entry: Entry, kernel: Kernel, sizes: Mapping[str, int], steps: list[tuple[int, ...]]) -> list[int]:
    """The whole numbers of a launch: sizes and strides (`steps`: per array, in elements) as the entry lists them."""
    by_wire = dict(zip((*entry.loads, *entry.stores), steps, strict=True))
    found = []
    for name in entry.parameters:
        kind, *rest = name.split(":")
        if kind == "size":
            found.append(int(sizes[rest[0]]))
        else:
            _, wire, axis = rest
            found.append(int(by_wire[wire][names(kernel.arrays[wire].axes).index(axis)]))
    return found


def fetched(values: Any, dtype: str) -> Any:
    """The numbers of an array that a kernel stored, as numpy has them: codes out of their bytes, powers of two
    out of their exponents.

    >>> import numpy as np
    >>> fetched(np.array([126, 127, 130, 255], np.uint8), "fp8e8m0").tolist()
    [0.5, 1.0, 8.0, nan]
    """
    if dtype == "fp8e8m0":
        powers = np.ldexp(np.float32(1), np.minimum(values, 254).astype(int) - 127)
        return np.where(values == 255, np.float32(np.nan), powers)
    return unpacked(values) if dtype == "int4" else values


def _shape(kernel: Kernel, wire: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(sizes[axis]) for axis in names(kernel.wire[wire].axes))


def _host_type(dtype: str) -> Any:
    """numpy's type for an array that comes back: fp32 for floats that numpy lacks."""
    return np.dtype(
        {"bool": "bool", "int4": "int8", "fp16": "float16", "fp64": "float64"}.get(
            dtype, dtype if "int" in dtype else "float32"
        )
    )


@lru_cache(maxsize=256)
def _module(text: Source) -> Any:
    path = text.path()
    spec = importlib.util.spec_from_file_location(f"diagkit_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
