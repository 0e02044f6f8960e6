"""Quantizers bit for bit against ml_dtypes: every format of codes and scales, every way to share a scale, and every
number that is awkward; as a diagram on numpy and on torch, and as a program in tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import diagkit as dk

x, d = dk.axes("x d")
Array = np.ndarray
FLOATS = {"fp8e4m3": ml_dtypes.float8_e4m3fn, "fp8e5m2": ml_dtypes.float8_e5m2, "fp16": np.float16}
FLOATS |= {"fp32": np.float32, "fp8e8m0": ml_dtypes.float8_e8m0fnu}
LARGEST = {"int4": 7, "int8": 127, "fp8e4m3": 448, "fp8e5m2": 57344}
SHARED: dict[str, tuple[Any, Any]] = {"tensor": (None, {}), "token": ("d", {}), "channel": ("x", {})}
SHARED |= {"block": ("d", {"x": 4}), "micro": (None, {"d": 4})}
TILED = {"token", "micro"}
ODD = [-0.0, 1e-30, 1e-44, 449, -1e6, 3e38, -np.inf, np.nan]


def peaks(values: Array, shared: str) -> Array:
    """The largest magnitude of all that share a scale, at every place."""
    over, blocks = SHARED[shared]
    whole = {"x", "d"} if shared == "tensor" else {over}
    step = [n if axis in whole else blocks.get(axis, 1) for axis, n in zip("xd", values.shape, strict=True)]
    found = np.empty_like(values)
    for begin in product(*(range(0, n, max(s, 1)) for n, s in zip(values.shape, step, strict=True))):
        place = tuple(slice(at, at + s) for at, s in zip(begin, step, strict=True))
        found[place] = np.abs(values[place]).max()
    return found


def rounded(values: Array, dtype: str) -> Array:
    if dtype.startswith("int"):
        return np.clip(np.nan_to_num(np.rint(values)) + 0.0, -LARGEST[dtype] - 1, LARGEST[dtype])  # one zero
    ends = {"fp8e8m0": (2.0**-127, 2.0**127)}.get(dtype, (-LARGEST.get(dtype, np.inf), LARGEST.get(dtype, np.inf)))
    return np.clip(values, *np.float32(ends)).astype(FLOATS[dtype]).astype(np.float32)


def by_hand(values: Array, dtype: str, scale: str, shared: str) -> tuple[Array, Array]:
    """Codes, and what they stand for."""
    wanted = peaks(values, shared) / np.float32(LARGEST[dtype])
    scales = rounded(wanted, scale)
    if scale == "fp8e8m0":
        scales = rounded(np.where(scales < wanted, 2 * scales, scales), scale)
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = rounded(np.where(scales == 0, np.float32(0), values / safe), dtype).astype(np.float32)
    return codes, codes * scales


def awkward() -> list[Array]:
    random = np.random.default_rng(0)
    some = [random.normal(size=(9, 6)).astype(np.float32) for _ in ODD]
    for array, odd in zip(some, ODD, strict=True):
        array[5, 3] = odd
    some += [np.full((9, 6), odd, np.float32) for odd in (0, *ODD)]
    some += [np.zeros(shape, np.float32) for shape in ((0, 6), (6, 0))]
    some += [random.normal(size=shape).astype(np.float32) for shape in ((1, 6), (6, 1), (1, 1), (3, 3))]
    ties = (np.arange(54, dtype=np.float32).reshape(9, 6) - 26) / 2
    return [*some, ties, random.integers(0, 2**32, 54, dtype=np.uint32).view(np.float32).reshape(9, 6)]


def engines(diagram: dk.Diagram, shared: str) -> list[Callable[[Array], dict[str, Any]]]:
    """The diagram on numpy, on torch, and as a program in tiles."""
    import torch

    tiled = diagram.fuse().group(x="g_x") if shared in TILED else diagram.fuse()
    tiles = {"g_x": 4} if shared in TILED else {}
    programs = cache(lambda n, m: tiled.lower(x=n, d=m, **tiles))
    return [
        lambda values: diagram(X=values),
        lambda values: diagram(X=torch.from_numpy(values.copy())),
        lambda values: programs(*values.shape).run(X=values),
    ]


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("scale", ["fp32", "fp16", "fp8e8m0"])
@pytest.mark.parametrize("dtype", LARGEST)
def test_codes_and_what_they_stand_for_are_right_to_the_bit(dtype: str, scale: str, shared: str) -> None:
    over, blocks = SHARED[shared]
    codes, scales = dk.quantize(dk.array("X", x, d), dtype, over, scale=scale, name="codes", **blocks)
    diagram = dk.Diagram(codes, dk.dequantize(codes, scales, name="back", **blocks), name="quantizer")
    several = engines(diagram, shared)
    for values in awkward():
        with np.errstate(all="ignore"):
            wanted = by_hand(values, dtype, scale, shared)
        for found in (run(values) for run in several):
            for name, one in zip(("codes", "back"), wanted, strict=True):
                made = np.asarray(found[name], np.float32)
                np.testing.assert_array_equal(made, one)
                np.testing.assert_array_equal(np.signbit(made) & ~np.isnan(made), np.signbit(one) & ~np.isnan(one))
