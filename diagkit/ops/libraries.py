"""The two array libraries that diagrams run on, as one small set of functions each.

numpy is the core's own; torch is loaded only when a torch array comes in. Both have one way to
permute, multiply, reduce; what differs stands in a row of the tables below.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from math import erf
from typing import Any

import numpy as np

from diagkit.term import FORMATS, FormatError, InputError

_NUMPY = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bool": "bool_"}
_NUMPY |= {"int64": "int64", "int32": "int32", "int8": "int8"}
_NARROW = {"bf16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2", "int4": "int4"}
_NARROW |= {"fp8e8m0": "float8_e8m0fnu"}
_ENDS = {"fp8e4m3": (-448.0, 448.0), "fp8e5m2": (-57344.0, 57344.0), "fp8e8m0": (2.0**-127, 2.0**127)}
_ADDING = {"sum": "sum", "product": "prod"}
_NOTHING = {"max": -np.inf, "min": np.inf}
_SHORT = {"int4", "int8", "int16", "uint8", "uint16"}
_WHOLE = {"int4": (-8, 7), "int8": (-128, 127)}


class Numpy:
    """numpy arrays."""

    name = "numpy"
    float64, float32, int32 = np.dtype("float64"), np.dtype("float32"), np.dtype("int32")

    @staticmethod
    def owns(value: Any) -> bool:
        """Whether the library made this array."""
        return not Torch.owns(value)

    @staticmethod
    def array(value: Any) -> Any:
        """The value as an array of this library; short whole numbers become int32, in which products fit."""
        if np.ma.is_masked(value):
            filled = "hand in value.filled(0), and what it hides as a boolean input for dk.masked"
            raise InputError("a masked array, whose hidden elements would count", remedy=filled)
        value = np.asarray(value)
        return value.astype(np.int32) if str(value.dtype) in _SHORT else value

    @staticmethod
    def kind(value: Any) -> str:
        """What its elements are: "float", "int", "bool", or else the name of the type."""
        return {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(value.dtype.kind, _odd_kind(value))

    @staticmethod
    def is_whole(value: Any) -> bool:
        """Whether all elements are whole numbers."""
        return bool(np.all(np.rint(value) == value))

    @staticmethod
    def promote(dtypes: Sequence[Any]) -> Any:
        """The float type that holds them all."""
        return np.result_type(*dtypes)

    @staticmethod
    def astype(value: Any, dtype: Any) -> Any:
        """The array in another type."""
        return value.astype(dtype, copy=False)

    @staticmethod
    def permute(value: Any, order: Sequence[int]) -> Any:
        """The axes in another order."""
        return np.transpose(value, order)

    @staticmethod
    def arange(length: int, like: Any) -> Any:
        """0, 1, ... as integers."""
        return np.arange(length)

    @staticmethod
    def full(shape: Sequence[int], number: float, dtype: Any, like: Any) -> Any:
        """One number everywhere."""
        return np.full(shape, number, dtype)

    @staticmethod
    def reduce(op: str, value: Any, places: tuple[int, ...]) -> Any:
        """The sum, product, max or min over some axes; of nothing 0, 1, -inf, +inf."""
        if op in _ADDING:
            return np.asarray(getattr(np, _ADDING[op])(value, axis=places, dtype=value.dtype))
        return np.asarray(getattr(np, op)(value, axis=places, initial=_NOTHING[op]))

    @staticmethod
    def function(name: str) -> Any:
        """The scalar function of that name."""
        return _NUMPY_EXTRA.get(name) or getattr(np, name)

    @staticmethod
    def round_to(value: Any, dtype: str) -> Any:
        """`value` rounded to the format and back, half to even; fp8 saturates at its ends (fp8e8m0, of
        powers of two, at 2**-127 too), int8 and int4 at theirs, with 0 for what is no number and one zero."""
        if dtype in _WHOLE:
            return np.clip(np.nan_to_num(np.rint(value), nan=0.0) + 0.0, *_WHOLE[dtype]).astype(value.dtype)
        clipped = np.clip(value, *_ENDS[dtype]) if dtype in _ENDS else value
        with np.errstate(over="ignore", invalid="ignore"):
            return clipped.astype(numpy_dtype(dtype)).astype(value.dtype)

    matmul, reshape, where = staticmethod(np.matmul), staticmethod(np.reshape), staticmethod(np.where)
    broadcast, clip = staticmethod(np.broadcast_to), staticmethod(np.clip)


def _odd_kind(value: Any) -> str:
    """ml_dtypes' narrow floats have no numpy kind letter of their own."""
    return "float" if "float" in str(value.dtype) else str(value.dtype)


def numpy_dtype(dtype: str) -> Any:
    """numpy's dtype for a number format; the narrow ones come from ml_dtypes."""
    if dtype in _NUMPY:
        return np.dtype(getattr(np, _NUMPY[dtype]))
    try:
        import ml_dtypes
    except ImportError:
        raise FormatError(f"numpy has no {dtype}", remedy="pip install ml_dtypes") from None
    return np.dtype(getattr(ml_dtypes, _NARROW[dtype]))


def format_range(dtype: str) -> tuple[float, float]:
    """The smallest number above 0 and the largest that a format holds, subnormal numbers included.

    >>> format_range("fp8e4m3"), format_range("int8"), format_range("fp16")[1]
    ((0.001953125, 448.0), (1.0, 127.0), 65504.0)
    """
    if dtype == "bool" or dtype.startswith("int"):
        return 1.0, 2.0 ** (FORMATS[dtype] - 1) - 1 if dtype != "bool" else 1.0
    found = _finfo(dtype)
    return float(found.smallest_subnormal), float(found.max)


def format_step(dtype: str) -> float:
    """From 1 to the next number of a format of fractions.

    >>> format_step("fp8e4m3"), format_step("fp16")
    (0.125, 0.0009765625)
    """
    return float(_finfo(dtype).eps)


def _finfo(dtype: str) -> Any:
    if dtype in _NUMPY:
        return np.finfo(numpy_dtype(dtype))
    import ml_dtypes

    return ml_dtypes.finfo(numpy_dtype(dtype))


def rounded(number: float, dtype: str) -> float:
    """A number as a format has it; what is beyond the format becomes its end, or infinite.

    >>> rounded(0.3, "fp8e4m3"), rounded(1e6, "fp8e4m3"), rounded(-2.5, "int8")
    (0.3125, 448.0, -2.0)
    """
    return number if dtype in ("int32", "int64", "bool") else float(Numpy.round_to(np.float64(number), dtype))


def _np_erf(value: Any) -> Any:
    return np.vectorize(erf, otypes=[value.dtype])(value) if value.size else value


def _np_quotient(above: Any, below: Any) -> Any:
    below = np.asarray(below)
    empty = below == 0
    return np.where(empty, np.zeros((), below.dtype), above / np.where(empty, np.ones((), below.dtype), below))


def _np_finite(value: Any) -> Any:
    return np.where(value == -np.inf, np.zeros((), value.dtype), value)


_NUMPY_EXTRA: dict[str, Any] = {"erf": _np_erf, "quotient": _np_quotient, "finite": _np_finite}


class Torch:
    """torch tensors; results stay on the device of the inputs and can be differentiated."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.float64, self.float32, self.int32 = torch.float64, torch.float32, torch.int32
        self.matmul, self.reshape, self.where, self.clip = torch.matmul, torch.reshape, torch.where, torch.clamp
        self.broadcast = torch.broadcast_to

    @staticmethod
    def owns(value: Any) -> bool:
        """Whether the library made this array."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(value, torch.Tensor)

    @staticmethod
    def array(value: Any) -> Any:
        """The value as an array of this library; short whole numbers become int32, in which products fit."""
        if str(value.layout) != "torch.strided":
            raise InputError(f"a tensor laid out as {value.layout}", remedy="hand in value.to_dense()")
        if value.is_meta:
            raise InputError("a tensor of the device 'meta' has no numbers", remedy="hand in one that is filled")
        if value.is_quantized:
            raise InputError(f"a tensor of {value.dtype}", remedy="hand in value.dequantize()")
        value = value.resolve_neg()
        return value.int() if str(value.dtype).removeprefix("torch.") in _SHORT else value

    @staticmethod
    def kind(value: Any) -> str:
        """What its elements are: "float", "int", "bool", or else the name of the type."""
        if value.is_floating_point():
            return "float"
        return "bool" if str(value.dtype) == "torch.bool" else "complex" if value.is_complex() else "int"

    @staticmethod
    def is_whole(value: Any) -> bool:
        """Whether all elements are whole numbers."""
        return bool((value.round() == value).all())

    def promote(self, dtypes: Sequence[Any]) -> Any:
        """The float type that holds them all; torch itself promotes no 8-bit type, which float16 holds."""
        several = len(set(dtypes)) > 1
        widest, *rest = (self.torch.float16 if several and dtype.itemsize == 1 else dtype for dtype in dtypes)
        for dtype in rest:
            widest = self.torch.promote_types(widest, dtype)
        return widest

    @staticmethod
    def astype(value: Any, dtype: Any) -> Any:
        """The array in another type."""
        return value.to(dtype)

    @staticmethod
    def permute(value: Any, order: Sequence[int]) -> Any:
        """The axes in another order."""
        return value.permute(*order)

    def arange(self, length: int, like: Any) -> Any:
        """0, 1, ... as integers."""
        return self.torch.arange(length, device=getattr(like, "device", None))

    def full(self, shape: Sequence[int], number: float, dtype: Any, like: Any) -> Any:
        """One number everywhere."""
        return self.torch.full(tuple(shape), number, dtype=dtype, device=getattr(like, "device", None))

    def reduce(self, op: str, value: Any, places: tuple[int, ...]) -> Any:
        """As numpy's."""
        if op == "sum":
            return value.sum(dim=places)
        if op == "product":  # torch takes one axis at a time
            return reduce(lambda made, place: made.prod(dim=place), sorted(places, reverse=True), value)
        if any(value.shape[place] == 0 for place in places):
            kept = [n for place, n in enumerate(value.shape) if place not in places]
            return self.full(kept, _NOTHING[op], value.dtype, value)
        return getattr(self.torch, f"a{op}")(value, dim=places)

    def function(self, name: str) -> Any:
        """The scalar function of that name."""
        extra = {"quotient": self._quotient, "finite": self._finite, "maximum": self._larger, "minimum": self._smaller}
        return extra.get(name) or getattr(self.torch, name)

    def _quotient(self, above: Any, below: Any) -> Any:
        below = self.torch.as_tensor(below)
        empty = below == 0
        return self.torch.where(empty, self.torch.zeros_like(below), above / below.masked_fill(empty, 1))

    def _finite(self, value: Any) -> Any:
        return value.masked_fill(value == float("-inf"), 0)

    def _larger(self, left: Any, right: Any) -> Any:
        return self.torch.maximum(*self.torch.broadcast_tensors(*self._both(left, right)))

    def _smaller(self, left: Any, right: Any) -> Any:
        return self.torch.minimum(*self.torch.broadcast_tensors(*self._both(left, right)))

    def _both(self, left: Any, right: Any) -> tuple[Any, Any]:
        like = left if self.owns(left) else right
        return tuple(self.torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in (left, right))

    def round_to(self, value: Any, dtype: str) -> Any:
        """As numpy's."""
        if dtype in _WHOLE:
            rounded = value.double().round().nan_to_num(nan=0.0) + 0.0
            return rounded.clamp(*_WHOLE[dtype]).to(value.dtype)
        named = _NARROW.get(dtype) or _NUMPY[dtype].removesuffix("_")
        target = getattr(self.torch, named, None)
        if target is None:
            raise FormatError(f"torch has no {dtype}", remedy="hand in numpy arrays")
        clipped = value.clamp(*_ENDS[dtype]) if dtype in _ENDS else value
        if dtype == "fp8e8m0":  # below 2**-126 torch rounds everything up
            clipped = clipped.masked_fill(clipped < 1.5 * 2.0**-127, 2.0**-127)
        return clipped.to(target).to(value.dtype)


def library(arrays: dict[str, Any]) -> Any:
    """The library that all of the arrays belong to; mixing two is refused, naming one of each."""
    owned = {name: "torch" if Torch.owns(value) else "numpy" for name, value in arrays.items()}
    if len(set(owned.values())) > 1:
        first = {kind: name for name, kind in reversed(owned.items())}
        raise InputError(
            f"{first['torch']!r} is a torch tensor and {first['numpy']!r} is not",
            remedy="hand in one kind of array: all numpy or all torch",
        )
    return Torch() if "torch" in owned.values() else Numpy()
