"""The process in which Triton interprets kernels: run as ``python -m diagkit.bench.interpreter``.

Triton reads at import whether it interprets, so one process cannot both interpret and compile. This one is
started by `worker` with the switch set, answers requests on its standard streams, and counts the lanes
that every load and store really moves.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from typing import Any

import numpy as np

from diagkit.bench.instrument import Meter, instrument
from diagkit.bench.messages import Reply, Request, Tensor, receive, send, stored


def place(tensor: Tensor) -> Any:
    """The torch tensor, laid out with the caller's strides."""
    import torch

    shape = tensor.values.shape
    values = stored(torch.from_numpy(np.asarray(tensor.values, order="C")), tensor.dtype)
    if values.numel() == 0:
        return values
    reach = 1 + sum((n - 1) * step for n, step in zip(shape, tensor.strides, strict=True))
    # numpy's zeros take no memory until they are touched: a stride past 2^31 costs only what it reaches
    store = torch.from_numpy(np.zeros(reach * values.element_size(), np.uint8)).view(values.dtype)
    at = np.zeros(shape, np.int64)
    for axis, step in enumerate(tensor.strides):
        at += (np.arange(shape[axis]) * step).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    store[torch.from_numpy(at.ravel())] = values.reshape(-1)
    return store.as_strided(shape, tensor.strides)


_MODULES: dict[str, Any] = {}


def module(path: str) -> Any:
    """The kernels of a file; a file never changes once it is written."""
    if path not in _MODULES:
        spec = importlib.util.spec_from_file_location(f"kernels_{len(_MODULES)}", path)
        assert spec is not None
        assert spec.loader is not None
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
        if all(request.grid):
            getattr(module(request.path), request.function)[request.grid](*tensors, *request.parameters)
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
