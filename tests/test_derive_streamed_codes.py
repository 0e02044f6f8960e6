"""Attention on codes, streamed: every way to share a scale runs in chunks, moves and holds what its formulas say."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from test_derive_transforms import attention

import diagkit as dk
from diagkit.term import DiagkitError, FormatError

BLOCK = 4
WAYS: dict[str, tuple[tuple[str, str, Any, dict[str, Any]], ...]] = {
    "tensor": (("K", "int8", None, {}), ("V", "fp8e4m3", None, {})),
    "token": (("K", "int8", "d", {}), ("V", "int4", "d", {})),
    "channel": (("K", "int4", "x", {}), ("V", "fp8e5m2", "x", {})),
    "block of keys": (("K", "int8", "d", {"x": BLOCK}), ("V", "fp8e4m3", "d", {"x": BLOCK})),
    "block of a channel": (("K", "int4", None, {"x": BLOCK}), ("V", "int8", None, {"x": BLOCK})),
    "block of queries": (("Q", "int8", "d", {"q": BLOCK}), ("K", "int8", "d", {"x": BLOCK})),
    "microscaling": tuple((n, "fp8e4m3", None, {"scale": "fp8e8m0", "d": BLOCK}) for n in "QKV"),
    "microscaling of keys": (("V", "fp8e4m3", None, {"scale": "fp8e8m0", "x": BLOCK}),),
    "zeros": tuple((n, "int4", None, {"scale": "fp16", "zero": True, axis: BLOCK}) for n, axis in ("Kx", "Vd")),
}
FITTING = [(5, 13, 8, 4, 4), (5, 13, 8, 4, 8), (5, 13, 8, 4, 2), (5, 3, 8, 4, 4), (1, 16, 6, 1, 1), (6, 17, 6, 4, 16)]


@cache
def coded(way: str) -> dk.Diagram:
    made = attention()
    for wire, dtype, over, how in WAYS[way]:
        made = made.quantize(wire, dtype, over, **how)
    return made


@cache
def streamed(way: str) -> dk.Diagram:
    return coded(way).part("O", name=way).fuse().group(q="g_q").stream(x="s_x")


def arrays(q: int, x: int, d: int) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(5)
    return {name: random.normal(size=(q if name == "Q" else x, d)).astype(np.float32) for name in "QKV"}


@pytest.mark.parametrize("sizes", FITTING, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_chunks_give_the_whole_and_count_as_predicted(way: str, sizes: tuple[int, ...]) -> None:
    at = dict(zip(("q", "x", "d", "g_q", "s_x"), sizes, strict=True))
    given = arrays(*sizes[:3])
    program = streamed(way).lower(**at)
    found = program.run(**coded(way).prepared(**given))
    np.testing.assert_allclose(found, coded(way)(**given), atol=2e-6)
    counted = program.count()
    assert {k: n for k, n in counted.bytes().items() if n} == {
        k: n for k, n in streamed(way).transfers().bytes().at(**at).items() if n
    }
    assert counted.peak_bytes == streamed(way).memory().bytes().peak(**at)


@pytest.mark.parametrize("way", [way for way, steps in WAYS.items() if any("x" in step[3] for step in steps)])
@pytest.mark.parametrize("tile", [3, 6, 7])
def test_a_tile_that_cuts_a_block_is_refused_in_words(way: str, tile: int) -> None:
    with pytest.raises(
        DiagkitError, match=rf"tile of {tile} along 'x' cuts the blocks of 4 .*multiple of 4, or one of"
    ):
        streamed(way).lower(q=5, x=16, d=8, g_q=4, s_x=tile)


@pytest.mark.parametrize("memory", [150, 260, 333, 420, 600])
def test_a_legal_tile_cuts_no_block(memory: int) -> None:
    found = streamed("block of queries").legal_tile(memory, multiples={}, q=22, x=50, d=8).tiles
    tiles = {name: int(n) for name, n in found.items()}
    streamed("block of queries").lower(q=22, x=50, d=8, **tiles)


x, d = dk.axes("x d")


def affine(values: Any, dtype: str = "int4", **how: Any) -> list[np.ndarray[Any, Any]]:
    made = dk.quantize_affine(dk.array("X", x, d), dtype, **how)
    return [np.asarray(one) for one in dk.Diagram(*made, name="zeros")(X=np.float32(values)).values()]


def test_a_zero_makes_use_of_all_codes() -> None:
    codes, scales, zeros = affine([[5, 12.5, 20, 5], [-1, 2, 0, -1]], over="d")
    np.testing.assert_array_equal(codes, [[-8, 0, 7, -8], [-8, 7, -3, -8]])
    np.testing.assert_allclose(scales, [1, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(zeros, [5, -1])


def test_equal_numbers_come_back_exactly_and_what_is_not_finite_stays_in_its_block() -> None:
    values = np.float32([[3, 3, 3, 3], [0, 0, 0, 0], [1, np.inf, 1, 1], [1, np.nan, 1, 1], [1, 2, 3, 16]])
    codes, scales, zeros = affine(values, over="d")
    with np.errstate(invalid="ignore"):
        back = (codes + 8) * scales[:, None] + zeros[:, None]
    np.testing.assert_array_equal(back[[0, 1, 4]], values[[0, 1, 4]])
    assert not np.isfinite(back[[2, 3]]).any()


def test_floats_have_no_zero() -> None:
    with pytest.raises(FormatError, match="no zero in 'fp8e4m3'.*int8 or int4"):
        affine([[1.0]], "fp8e4m3")
