"""What the interpreter and its caller say to each other: plain data, one pickle per message.

The process is our own child on a private pipe, so its pickles can be trusted.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO, Any


@dataclass(frozen=True)
class Tensor:
    """An array on its way: `values` in C order, `strides` in elements as the caller's array lies, `dtype`
    a number format. An output has NaN (or a number nobody computes) for values: what stays is unwritten."""

    values: Any
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Request:
    """One launch: `function` of the file `path` on `tensors` (the last `outputs` of them written) and
    whole-number `parameters`, over a `grid` of instances."""

    path: str
    function: str
    tensors: tuple[Tensor, ...]
    outputs: int
    parameters: tuple[int, ...]
    grid: tuple[int, ...]


@dataclass(frozen=True)
class Reply:
    """What came of a launch: the outputs' values, and elements (loaded, stored) per tensor; or `error`."""

    outputs: tuple[Any, ...] = ()
    moved: tuple[tuple[int, int], ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Build:
    """One compilation without a GPU: `function` of the file `path` for the compute `capability` (90 is sm_90).

    `types` has Triton's type of each parameter, in order, or "1" where the number is known to be 1;
    `aligned` the places of those that are multiples of 16.
    """

    path: str
    function: str
    types: tuple[str, ...]
    aligned: tuple[int, ...]
    capability: int
    options: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Built:
    """What came of it: shared memory in bytes, the assembler's log, the machine code as text; or `error`."""

    shared_bytes: int = 0
    log: str = ""
    sass: str = ""
    error: str = ""


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message: its length, then its pickle."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; None where the stream has ended."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    return pickle.loads(stream.read(struct.unpack("<Q", head)[0]))  # noqa: S301  (our own child's)


TORCH: dict[str, str] = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4m3": "float8_e4m3fn",
    "fp8e5m2": "float8_e5m2",
    "fp8e8m0": "uint8",
    "int64": "int64",
    "int32": "int32",
    "int8": "int8",
    "int4": "int8",
    "bool": "bool",
}
"""torch's type for each number format, as kernels read it: powers of two are the bytes of their exponents."""

LARGEST: dict[str, float] = {"fp8e4m3": 448.0, "fp8e5m2": 57344.0}
"""Formats that saturate, and where."""
POWERS = (2.0**-127, 2.0**127)
"""The ends of fp8e8m0, whose numbers are powers of two; half way between two is the larger."""


def saturated(tensor: Any, dtype: str) -> Any:
    """A torch tensor clamped to what an fp8 format can hold: torch's own cast gives NaN beyond."""
    return tensor.float().clamp(-LARGEST[dtype], LARGEST[dtype]) if dtype in LARGEST else tensor


def stored(tensor: Any, dtype: str) -> Any:
    """A torch tensor in a number format as kernels read it."""
    import torch

    if dtype == "fp8e8m0":
        bits = tensor.float().clamp(*POWERS).contiguous().view(torch.int32)
        codes = ((bits + 0x400000) >> 23).masked_fill(bits < 0x600000, 0)
        return codes.masked_fill(tensor.isnan(), 255).to(torch.uint8)
    return saturated(tensor, dtype).to(getattr(torch, TORCH[dtype]))
