"""What is changed in Triton's interpreter: loads and stores are counted, narrow floats are numbers, and
blocks are reduced whole.

The interpreter keeps bf16 and fp8 as bit patterns; its dot multiplies those of bf16, its casts round half
away and wrap beyond the range. Here every cast and product of narrow floats goes through fp32, rounds to
nearest even, and fp8 saturates as the hardware's own conversion does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from diagkit.bench.messages import LARGEST


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
    """Change the interpreter's builder: see the head of this file."""
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps

    _count_moves(InterpreterBuilder, meter)
    _narrow_as_numbers(InterpreterBuilder)
    _reduce_whole_blocks(ReduceOps)


def _count_moves(builder: Any, meter: Meter) -> None:
    load, store = builder.create_masked_load, builder.create_masked_store

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        meter.add(meter.loaded, pointers.data, mask.data)
        return load(self, pointers, mask, *rest)

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        meter.add(meter.stored, pointers.data, mask.data)
        return store(self, pointers, value, mask, *rest)

    builder.create_masked_load, builder.create_masked_store = counted_load, counted_store


_WHOLE = {"larger": np.max, "smaller": np.min, "times": np.prod}
"""What numpy does at once with the functions that kernels reduce by; NaN stays NaN in all of them."""


def _reduce_whole_blocks(reduction: Any) -> None:
    """The interpreter calls such a function element by element, a thousand times slower."""
    one_by_one = reduction.apply_impl

    def apply(self: Any, blocks: Any) -> Any:
        whole = _WHOLE.get(self.combine_fn.fn.__name__)
        return self.min_max(blocks[0], whole) if whole else one_by_one(self, blocks)

    reduction.apply_impl = apply


def _narrow_as_numbers(builder: Any) -> None:
    cast, convert, dot = builder.cast_impl, builder.create_fp_to_fp, builder.create_dot

    def numbers_cast(self: Any, source: Any, wanted: Any) -> Any:
        return _converted(source, wanted) if _is_narrow(source, wanted) else cast(self, source, wanted)

    def numbers_convert(self: Any, source: Any, wanted: Any, rounding: Any) -> Any:
        return _converted(source, wanted) if _is_narrow(source, wanted) else convert(self, source, wanted, rounding)

    def numbers_dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        return dot(self, _widened(left), _widened(right), *rest)

    builder.cast_impl, builder.create_fp_to_fp, builder.create_dot = numbers_cast, numbers_convert, numbers_dot


_NARROW = {"bf16": ("bfloat16", "bf16"), "fp8e4nv": ("float8_e4m3fn", "fp8e4m3"), "fp8e5": ("float8_e5m2", "fp8e5m2")}
"""By Triton's name: torch's type, and ours."""


def _widened(handle: Any) -> Any:
    """The same numbers in fp32 where they are narrow."""
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    names = _NARROW.get(str(handle.dtype.scalar))
    if names is None:
        return handle
    bits = torch.from_numpy(np.asarray(handle.data, order="C"))
    numbers = bits.view(getattr(torch, names[0])).to(torch.float32)
    return TensorHandle(numbers.numpy(), tl.float32)


def _is_narrow(source: Any, wanted: Any) -> bool:
    return str(source.dtype.scalar) in _NARROW or str(wanted.scalar) in _NARROW


def _converted(source: Any, wanted: Any) -> Any:
    """The cast, where one of the two formats is narrow."""
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    target, numbers = wanted.scalar, _widened(source).data
    if str(target) in _NARROW:
        return TensorHandle(_bits(numbers, *_NARROW[str(target)]), target)
    return TensorHandle(numbers.astype(_get_np_dtype(target)), target)


def _bits(numbers: Any, torch_type: str, dtype: str) -> Any:
    """Numbers rounded to nearest even, as bit patterns; fp8 saturates."""
    import torch

    values = torch.from_numpy(np.asarray(numbers, np.float32, order="C"))
    if dtype in LARGEST:
        values = values.clamp(-LARGEST[dtype], LARGEST[dtype])
    rounded = values.to(getattr(torch, torch_type))
    return rounded.view(torch.uint8 if rounded.element_size() == 1 else torch.uint16).numpy()
