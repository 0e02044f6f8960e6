"""The process in which Triton interprets kernels: run as ``python -m diagkit.bench.interpreter``.

Triton reads at import whether it interprets, so one process cannot both interpret and compile. This one is
started by `worker` with the switch set, answers requests on its standard streams, and counts the lanes
that every load and store really moves. It multiplies bf16 as numbers, which Triton's own does not.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import Any

import numpy as np

from diagkit.bench.messages import TORCH, Reply, Request, Tensor, receive, send


def place(tensor: Tensor) -> Any:
    """The torch tensor, laid out with the caller's strides."""
    import torch

    shape = tensor.values.shape
    values = torch.from_numpy(np.ascontiguousarray(tensor.values)).to(getattr(torch, TORCH[tensor.dtype]))
    if values.numel() == 0:
        return values
    reach = 1 + sum((n - 1) * step for n, step in zip(shape, tensor.strides, strict=True))
    store = torch.zeros(reach, dtype=values.dtype)
    at = np.zeros(shape, np.int64)
    for axis, step in enumerate(tensor.strides):
        at += (np.arange(shape[axis]) * step).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    store[torch.from_numpy(at.ravel())] = values.reshape(-1)
    return store.as_strided(shape, tensor.strides)


class Meter:
    """Counts lanes that loads and stores move, per tensor, by the address each pointer holds."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.loaded: list[int] = []
        self.stored: list[int] = []

    def begin(self, tensors: list[Any]) -> None:
        """Start afresh for these tensors."""
        self.ranges = [(t.data_ptr(), t.data_ptr() + t.untyped_storage().nbytes()) for t in tensors]
        self.loaded, self.stored = [0] * len(tensors), [0] * len(tensors)

    def add(self, counts: list[int], pointers: Any, mask: Any) -> None:
        """Count the lanes of one access; an access outside every tensor is an error."""
        every = np.broadcast_to(pointers, np.broadcast(pointers, mask).shape)
        used = every[np.broadcast_to(mask, every.shape).astype(bool)]
        if used.size == 0:
            return
        low, high = int(used.min()), int(used.max())
        for number, (start, end) in enumerate(self.ranges):
            if start <= low and high < end:
                counts[number] += int(used.size)
                return
        raise IndexError(f"{used.size} lanes reach outside every array of the kernel")


def instrument(meter: Meter) -> None:
    """Count in Triton's interpreter, and multiply bf16 as the numbers they are, not as bit patterns."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    load, store, dot = builder.create_masked_load, builder.create_masked_store, builder.create_dot

    def create_masked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        meter.add(meter.loaded, pointers.data, mask.data)
        return load(self, pointers, mask, *rest)

    def create_masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        meter.add(meter.stored, pointers.data, mask.data)
        return store(self, pointers, value, mask, *rest)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return dot(self, _widened(a), _widened(b), d, *rest)

    def _widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        wide = (handle.data.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return interpreter.TensorHandle(wide, tl.float32)

    for function in (create_masked_load, create_masked_store, create_dot):
        setattr(builder, function.__name__, function)


_MODULES: dict[str, Any] = {}


def module(path: str) -> Any:
    """The kernels of a file; a file never changes once it is written."""
    if path not in _MODULES:
        spec = importlib.util.spec_from_file_location(f"kernels_{len(_MODULES)}", path)
        assert spec is not None and spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        _MODULES[path] = made
    return _MODULES[path]


def answer(request: Request, meter: Meter) -> Reply:
    """Run one launch and say what it wrote and moved."""
    import torch

    tensors = [place(tensor) for tensor in request.tensors]
    meter.begin(tensors)
    with np.errstate(all="ignore"):
        if request.grid:
            getattr(module(request.path), request.function)[(request.grid,)](*tensors, *request.parameters)
    written = tensors[len(tensors) - request.outputs :]
    outputs = tuple(t.to(torch.float64 if t.is_floating_point() else t.dtype).numpy() for t in written)
    return Reply(outputs, tuple(zip(meter.loaded, meter.stored, strict=True)))


def main() -> None:
    """Answer requests until the input ends; what goes wrong is an answer too."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    meter = Meter()
    instrument(meter)
    send(replies, Reply())
    while (request := receive(requests)) is not None:
        try:
            reply = answer(request, meter)
        except Exception as error:  # noqa: BLE001  (whatever it is, the caller shall read it)
            reply = Reply(error=f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}")
        send(replies, reply)


if __name__ == "__main__":
    main()
