"""Number formats: how many bits each takes, and what other libraries call it."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from diagkit.term.errors import FormatError

FORMATS: dict[str, int] = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,
    "fp16": 16,
    "bf16": 16,
    "fp8e4m3": 8,
    "fp8e5m2": 8,
    "fp8e8m0": 8,
    "int64": 64,
    "int32": 32,
    "int8": 8,
    "int4": 4,
    "bool": 8,
}
"""Bits that one element of each number format takes in memory; fp8e8m0 is a power of two, for scales."""

_ELSEWHERE = {
    "fp64": "float64 double f64",
    "fp32": "float32 float single f32",
    "tf32": "tensorfloat32 tfloat32",
    "fp16": "float16 half f16",
    "bf16": "bfloat16",
    "fp8e4m3": "float8_e4m3fn float8_e4m3 fp8_e4m3 e4m3 fp8 float8",
    "fp8e5m2": "float8_e5m2 fp8_e5m2 e5m2",
    "fp8e8m0": "float8_e8m0fnu fp8_e8m0 e8m0",
    "int64": "long int i64",
    "int32": "i32",
    "int8": "i8 char",
    "int4": "i4",
    "bool": "bool_ boolean",
}
"""What numpy, torch and others call each format."""
_HERE = {other: here for here, others in _ELSEWHERE.items() for other in others.split()}


def check_format(dtype: Any) -> str:
    """`dtype`, if it is a number format; else a FormatError that lists them, and names the one that is meant.

    >>> check_format("bf16")
    'bf16'
    >>> check_format("torch.bfloat16")
    Traceback (most recent call last):
    ...
    diagkit.term.errors.FormatError: no number format 'torch.bfloat16'; write 'bf16' (all: fp64, fp32, tf32, fp16, \
bf16, fp8e4m3, fp8e5m2, fp8e8m0, int64, int32, int8, int4, bool)
    """
    if isinstance(dtype, str) and dtype in FORMATS:
        return dtype
    bare, every = _bare(dtype), ", ".join(FORMATS)
    meant, family = _meant(bare), [known for known in FORMATS if _stem(known) == _stem(bare)]
    kin = f"of {_stem(bare)} there are {', '.join(family)} (all: {every})" if family else f"use one of: {every}"
    raise FormatError(f"no number format {dtype!r}", remedy=f"write {meant!r} (all: {every})" if meant else kin)


def _bare(dtype: Any) -> str:
    """The name of a format as any library may hand it in, in small letters, without the library."""
    named = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype))
    return named.strip().lower().rpartition(".")[2]


def _stem(name: str) -> str:
    """The letters before the width, by our word for them: "int" of int3, "fp" of float4.

    >>> _stem("int3"), _stem("float4"), _stem("half")
    ('int', 'fp', 'half')
    """
    return re.split(r"\d", name, maxsplit=1)[0].replace("float", "fp")


def _meant(bare: str) -> str | None:
    """The format that goes by this name in another library, or is spelt nearly so; never one of another width."""
    near = [known for known in get_close_matches(bare, [*FORMATS, *_HERE], n=6) if _widths(known) == _widths(bare)]
    found = bare if bare in FORMATS else near[0] if near else None
    return None if found is None else _HERE.get(found, found)


def _widths(name: str) -> list[str]:
    return re.findall(r"\d+", name)
