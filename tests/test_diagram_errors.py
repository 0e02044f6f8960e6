"""Errors of recipes side by side, and the ladder: what they show is what was run."""

from __future__ import annotations

import numpy as np
import pytest
from test_derive_transforms import attention

import diagkit as dk
from diagkit.diagram.errors import with_matrices
from diagkit.term import InputError

DATA = {kind: dk.samples(kind, n=64, d=16, queries=8) for kind in ("normal", "outliers")}
RECIPES = ["fp16", "int8 scores, fp8 values", "int4 keys and values"]


def test_errors_are_root_mean_squares_against_float64() -> None:
    found = attention().errors(RECIPES, DATA)
    arrays = DATA["outliers"]
    made = attention().recipe(RECIPES[1]).reference(**arrays, H=dk.hadamard(16))
    wanted = np.sqrt(np.mean((made - attention().reference(**arrays)) ** 2))
    assert found.error[RECIPES[1], "outliers"] == pytest.approx(wanted)
    assert found.error["fp16", "normal"] < found.error[RECIPES[1], "normal"] < found.error[RECIPES[2], "normal"]
    assert found.ratio(RECIPES[2], "fp16", "normal") > 10


def test_bits_count_the_scales() -> None:
    """64 keys and values of 16: a scale of 32 bits per key and value, or per feature of the values."""
    found = attention().errors(RECIPES, DATA).bits
    assert found["fp16", "normal"] == 16
    assert found["int4 keys and values", "normal"] == 4 + 32 / 16
    assert found["int8 scores, fp8 values", "normal"] == 8 + (64 * 32 + 16 * 32) / (2 * 64 * 16)


def test_the_table_and_the_points() -> None:
    found = attention().errors(RECIPES[:1], DATA)
    head, row = str(found).splitlines()
    assert head.split() == ["recipe", "bits", "normal", "outliers"]
    assert row.split()[:2] == ["fp16", "16"]
    assert found.points("normal") == [(16.0, found.error["fp16", "normal"], "fp16")]
    assert "<table" in found._repr_html_()


def test_what_a_kernel_is_handed() -> None:
    whole = attention().recipe("int8 scores, fp8 values")
    arrays = DATA["normal"]
    handed = whole.prepared(**arrays)
    assert set(handed) == {f"{name}.{part}" for name in "QKV" for part in ("codes", "scale")}
    found = whole.part("O").reference(**handed)
    np.testing.assert_allclose(found, whole.reference(**arrays, H=dk.hadamard(16)), atol=1e-12)
    assert attention().prepared(**arrays) == arrays


def test_missing_arrays_are_named() -> None:
    with pytest.raises(InputError, match="attention needs the input 'V'"):
        with_matrices(attention(), {"Q": np.ones((2, 16)), "K": np.ones((3, 16))})


def test_rungs_count_what_they_predict_and_make_up_no_time() -> None:
    arrays = {name: value.astype(np.float32) for name, value in DATA["normal"].items()}
    tiled = attention().fuse().group(q="g_q")
    steps = {"naive": attention(), "tiled": tiled, "streamed": tiled.stream(x="s_x")}
    tiles = {"naive": {}, "tiled": {"g_q": 8}, "streamed": {"g_q": 8, "s_x": 10}}
    kernels = {name: one.kernel("numba", q=8, x=64, d=16, **tiles[name]) for name, one in steps.items()}
    exact = attention().reference(**arrays)
    found = dk.ladder(kernels, dict.fromkeys(steps, arrays), exact, gpu_s={"tiled": 2e-3})
    for name, rung in zip(steps, found.rungs, strict=True):
        wanted = steps[name].transfers().bytes().total(q=8, x=64, d=16, **tiles[name])
        assert rung.predicted == rung.counted == wanted
        assert rung.error < 1e-6 and rung.cpu_s is None
    assert found["naive"].counted > 2 * found["streamed"].counted
    text = repr(found).splitlines()
    assert text[1].endswith("not measured  none recorded") and text[2].endswith("2 ms")
    assert found._repr_html_().count("data:image/svg+xml;base64,") == 3


def test_a_rung_is_timed_once_it_has_been_checked() -> None:
    arrays = {name: value.astype(np.float32) for name, value in DATA["normal"].items()}
    kernel = attention().fuse().group(q="g_q").kernel("numba", q=8, x=64, d=16, g_q=4)
    (rung,) = dk.ladder({"tiled": kernel}, {"tiled": arrays}, attention().reference(**arrays), repeats=2).rungs
    assert rung.cpu_s is not None and 0 < rung.cpu_s < 10
    assert kernel.checks[-1].passed
