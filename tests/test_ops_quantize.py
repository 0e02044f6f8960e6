"""Rounding to narrow formats bit for bit, and quantizers made of primitives."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import diagkit as dk
from diagkit.term import AxisError, FormatError, InputError

q, x, d = dk.axes("q x d")
ML = {"fp8e4m3": ml_dtypes.float8_e4m3fn, "fp8e5m2": ml_dtypes.float8_e5m2, "fp8e8m0": ml_dtypes.float8_e8m0fnu}
ML |= {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
LIMITS = {"fp8e4m3": (-448, 448), "fp8e5m2": (-57344, 57344), "fp8e8m0": (2.0**-127, 2.0**127)}
EIGHT = pytest.mark.parametrize("dtype", LIMITS)


def to_torch(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))


ENGINES = pytest.mark.parametrize("make", [np.asarray, to_torch])


def rounded(values: np.ndarray, dtype: str, make: Any) -> np.ndarray:
    return np.asarray(dk.Diagram(dk.cast(dk.array("X", x), dtype))(X=make(values.astype(np.float32))))


def every_code(dtype: str) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(ML[dtype]).astype(np.float32)


@ENGINES
@EIGHT
def test_all_codes_of_fp8_are_themselves(dtype: str, make: Any) -> None:
    codes = every_code(dtype)
    kept = np.isfinite(codes)
    np.testing.assert_array_equal(rounded(codes[kept], dtype, make), codes[kept])
    assert np.isnan(rounded(codes[np.isnan(codes)], dtype, make)).all()


def awkward(dtype: str) -> np.ndarray:
    """Ties between neighbours and their sides, subnormals among them; random bits; the ends."""
    codes = np.unique(every_code(dtype)[np.isfinite(every_code(dtype))]) if dtype in LIMITS else np.arange(9.0)
    ties = ((codes[1:].astype(np.float64) + codes[:-1]) / 2).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 2**32, 20000, dtype=np.uint32).view(np.float32)
    ends = np.float32([449, 464, 500, 1e6, np.inf, -np.inf, 1e-30, -1e-44, 0.0, -0.0])
    near = [np.nextafter(ties, np.float32(side)) for side in (np.inf, -np.inf)]
    return np.concatenate([ties, *near, bits[~np.isnan(bits)], ends]).astype(np.float32)


@ENGINES
@pytest.mark.parametrize("dtype", ML)
def test_casts_are_those_of_ml_dtypes_after_the_clamp(dtype: str, make: Any) -> None:
    values = awkward(dtype)
    with np.errstate(over="ignore"):
        wanted = np.clip(values, *LIMITS.get(dtype, (-np.inf, np.inf))).astype(ML[dtype]).astype(np.float32)
    found = rounded(values, dtype, make)
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@ENGINES
@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -128, 127), ("int4", -8, 7)])
def test_whole_numbers_round_to_even_and_saturate(dtype: str, low: int, high: int, make: Any) -> None:
    halves = np.arange(2 * low - 5, 2 * high + 6) / 2
    wanted = [min(max(round(half), low), high) for half in halves.tolist()]  # Python rounds ties to even
    np.testing.assert_array_equal(rounded(halves, dtype, make), wanted)
    ends = rounded(np.array([1e30, -1e30, np.inf, -np.inf, np.nan]), dtype, make)
    np.testing.assert_array_equal(ends, [high, low, high, low, 0])


SHARED = {"tensor": "x d", "token": "d", "channel": "x"}


def both(dtype: str, over: str, scale: str, values: np.ndarray, make: Any) -> dict[str, np.ndarray]:
    codes, scales = dk.quantize(dk.array("X", x, d), dtype, over=over.split(), scale=scale)
    back = dk.dequantize(codes, scales)
    made = dk.Diagram(codes, scales, back)(X=make(values.astype(np.float32)))
    return {name: np.asarray(value) for name, value in made.items()}


@ENGINES
@pytest.mark.parametrize("scale", ["fp32", "fp8e8m0"])
@pytest.mark.parametrize("over", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize(("dtype", "largest"), [("int8", 127), ("int4", 7), ("fp8e4m3", 448)])
def test_quantizers_err_by_half_a_step_at_most(dtype: str, largest: int, over: str, scale: str, make: Any) -> None:
    values = np.random.default_rng(1).normal(size=(13, 8)) * np.geomspace(1e-3, 1e3, 13)[:, None]
    made = both(dtype, over, scale, values, make)
    peaks = np.abs(values).max(axis=tuple(["x", "d"].index(axis) for axis in over.split()), keepdims=True)
    scales = made["scales"].reshape(peaks.shape)
    if scale == "fp8e8m0":
        np.testing.assert_array_equal(scales, 2.0 ** np.ceil(np.log2(peaks / largest)))
    else:
        np.testing.assert_allclose(scales, peaks / largest, rtol=1e-6)
    assert np.abs(made["codes"]).max() <= largest
    steps = scales / 2 if dtype.startswith("int") else np.maximum(np.abs(values) / 16, scales * 2.0**-10)
    assert (np.abs(made["back"] - values) <= steps * (1 + 1e-5)).all()


@ENGINES
@pytest.mark.parametrize("dtype", ["int8", "int4", "fp8e4m3", "fp8e5m2"])
@pytest.mark.parametrize("scale", ["fp32", "fp16", "fp8e8m0"])
def test_blocks_of_nothing_and_of_almost_nothing(dtype: str, scale: str, make: Any) -> None:
    values = np.zeros((3, 4))
    values[1, 2], values[2, 1] = 1e-30, 3.0
    made = both(dtype, "d", scale, values, make)
    assert not made["codes"][0].any() and not made["back"][0].any()
    assert np.isfinite(made["scales"]).all()
    tiny = 0 if scale == "fp16" else 1e-30
    np.testing.assert_allclose(made["back"][1], [0, 0, tiny, 0], rtol=0.3)
    np.testing.assert_allclose(made["back"][2], [0, 3.0, 0, 0], rtol=0.3)


@ENGINES
@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_an_infinity_or_nan_spoils_what_shares_its_scale_and_no_more(odd: float, make: Any) -> None:
    values = np.ones((2, 4))
    values[0, 1] = odd
    back = both("int8", "d", "fp32", values, make)["back"]
    assert np.isnan(back[0]).all()
    np.testing.assert_allclose(back[1], 1, rtol=1e-6)


@pytest.mark.parametrize("scale", ["fp32", "fp16", "bf16", "fp64", "fp8e8m0"])
@pytest.mark.parametrize("declared", ["fp16", "bf16", "fp32", "fp64", "tf32"])
def test_scales_have_the_format_that_was_asked_for_whatever_is_quantized(declared: str, scale: str) -> None:
    for first, then in ((declared, None), ("fp32", declared)):
        codes, scales = dk.quantize(dk.array("X", x, d, dtype=first), "int8", d, scale=scale, scale_name="s")
        made = dk.Diagram(codes, scales, name="codes").formats(then)
        assert made.wires["s"].dtype == scale
        moved = made.fuse().transfers().bytes().at(x=6, d=8)
        assert moved["s", 1, 0, "output"] == 6 * dk.FORMATS[scale] // 8


def test_a_format_without_codes_is_refused() -> None:
    with pytest.raises(FormatError, match="no codes in 'fp16'.*int8"):
        dk.quantize(dk.array("X", x), "fp16", over=x)


def test_products_of_short_numbers_add_up_in_wide_ones() -> None:
    for dtype, wanted in [
        ("int8", "int32"),
        ("int4", "int32"),
        ("fp8e4m3", "fp32"),
        ("fp8e5m2", "fp32"),
        ("fp16", "fp16"),
    ]:
        A, B = dk.array("A", q, d, dtype=dtype), dk.array("B", x, d, dtype=dtype)
        assert dk.Diagram(dk.einsum("q d, x d -> q x", A, B, name="S")).wires["S"].dtype == wanted


@ENGINES
@pytest.mark.parametrize("scale", ["fp32", "fp8e8m0"])
def test_a_scale_per_block_serves_its_block_and_the_short_one_at_the_end(scale: str, make: Any) -> None:
    values = np.random.default_rng(3).normal(size=(11, 4)) * np.geomspace(1e-2, 1e3, 11)[:, None]
    values = values.astype(np.float32)
    codes, scales = dk.quantize(dk.array("X", x, d), "fp8e4m3", over=d, scale=scale, x=4)
    made = dk.Diagram(codes, scales, dk.dequantize(codes, scales, x=4), name="blocks")
    found = [np.asarray(one) for one in made(X=make(values)).values()]
    assert [one.shape for one in found] == [(11, 4), (3,), (11, 4)]
    peaks = np.array([np.abs(values[at : at + 4]).max() for at in (0, 4, 8)]) / np.float32(448)
    wanted = 2.0 ** np.ceil(np.log2(peaks)) if scale == "fp8e8m0" else peaks
    np.testing.assert_allclose(found[1], wanted, rtol=0 if scale == "fp8e8m0" else 2e-7)
    spread = np.repeat(found[1], 4)[:11, None]
    kept = np.clip(values / spread, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(found[0], kept)
    np.testing.assert_array_equal(found[2], kept * spread)


def test_microscaling_costs_a_byte_per_32_elements() -> None:
    codes, scales = dk.quantize(dk.array("X", x, d), "fp8e4m3", scale="fp8e8m0", name="codes", scale_name="s", d=32)
    moved = dk.Diagram(codes, scales, name="mx").fuse().transfers().bytes().at(x=10, d=64)
    assert moved["codes", 1, 0, "output"] == 640 == 32 * moved["s", 1, 0, "output"]


def test_an_outlier_under_one_scale_hides_the_small_values_and_under_blocks_only_its_neighbours() -> None:
    values = np.float32([1e-3, 2e-3, 1e4, 3.0, 1e-3, 2e-3, 3e-3, 4e-3])
    X = dk.array("X", x)
    back = [dk.Diagram(dk.dequantize(*dk.quantize(X, "int8", **w), **w))(X=values) for w in ({}, {"x": 4})]
    np.testing.assert_array_equal(back[0][[0, 1, 3, 4, 5, 6, 7]], 0)
    np.testing.assert_allclose(back[1][4:], values[4:], rtol=0.02)
    assert not back[1][[0, 1, 3]].any()


def test_what_cannot_share_a_scale_is_refused() -> None:
    X = dk.array("X", x, d)
    with pytest.raises(AxisError, match="'d' is shared whole and in blocks"):
        dk.quantize(X, "int8", over=d, d=32)
    with pytest.raises(AxisError, match="'q'"):
        dk.quantize(X, "int8", over="q")
    with pytest.raises(InputError, match="no Hadamard matrix of 24 rows"):
        dk.hadamard(24)


@pytest.mark.parametrize("seed", [None, 3])
def test_hadamard_turns(seed: int | None) -> None:
    made = dk.hadamard(32, seed)
    np.testing.assert_allclose(made @ made.T, np.eye(32), atol=1e-14)
    np.testing.assert_allclose(np.abs(made), 32**-0.5)


@ENGINES
def test_products_of_short_whole_numbers_do_not_wrap(make: Any) -> None:
    codes = dk.array("X", x, dtype="int8")
    np.testing.assert_array_equal(dk.Diagram(codes * codes)(X=make(np.int8([100, -128]))), [10000, 16384])


@ENGINES
def test_codes_times_scales_stay_in_single_precision(make: Any) -> None:
    codes, scale = dk.array("X", x, dtype="int8"), dk.array("s", x)
    given = {"X": make(np.int8([100, -128])), "s": make(np.float32([0.1, 0.2]))}
    for value in (codes * scale, codes + scale, codes / scale, scale / (1 + codes)):
        assert "float32" in str(dk.Diagram(value)(**given).dtype)


@ENGINES
@EIGHT
def test_bytes_are_no_numbers_of_eight_bits_and_taken_as_what_they_are_said_to_be(dtype: str, make: Any) -> None:
    """A byte 127 may be the number 127, or the code of another; as a view of the format it is the code."""
    read = dk.Diagram(dk.cast(dk.array("X", x, dtype=dtype), "fp32"))
    codes = np.arange(1, 120, dtype=np.uint8)
    name = ML[dtype].__name__
    with pytest.raises(
        InputError, match=rf"'X' is {dtype} and cannot be uint8: bytes .*\.view\(\w+\.{name}\), .*float"
    ):
        read(X=make(codes))
    import torch

    as_codes = codes.view(ML[dtype]) if make is np.asarray else make(codes).view(getattr(torch, name))
    np.testing.assert_array_equal(np.asarray(read(X=as_codes)), codes.view(ML[dtype]).astype(np.float32))
    np.testing.assert_array_equal(np.asarray(read(X=make(np.float32([2, 4])))), [2, 4])


@ENGINES
def test_codes_may_come_as_whole_numbers_in_a_float_array(make: Any) -> None:
    codes = dk.Diagram(dk.array("X", x, dtype="int8") * 2)
    np.testing.assert_array_equal(codes(X=make(np.float32([3, -4]))), [6, -8])
    with pytest.raises(InputError, match="'X' is int8 and cannot be"):
        codes(X=make(np.float32([0.5, 1])))
