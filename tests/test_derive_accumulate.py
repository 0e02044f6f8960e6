"""The format that streams gather in: a label of the diagram that costs, runs and kernels all see."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import sympy

import diagkit as dk
from diagkit.term import DiagkitError, FormatError, StreamError

q, x, d = dk.axes("q x d")
a, b, c = dk.axes("a b c")
TILES = {"g_q": 4, "s_x": 4}


def flash(dtype: str = "fp16") -> dk.Diagram:
    Q, K, V = (dk.array(name, axis, d, dtype=dtype) for name, axis in (("Q", q), ("K", x), ("V", x)))
    O = dk.attention(Q, K, V, over=x, features=d, name="O")
    return dk.Diagram(O, name="attention").fuse().group(q="g_q").stream(x="s_x")


def product() -> dk.Diagram:
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    return dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b")


def given(n: int = 13) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {"Q": rng.normal(size=(5, 8)), "K": rng.normal(size=(n, 8)), "V": rng.normal(size=(n, 8))}


def test_the_columns_stay_and_the_step_is_remembered() -> None:
    narrow = flash().accumulate("fp16")
    assert narrow.boxes == flash().boxes and narrow != flash()
    assert narrow.steps[-1].kind == "relabel" and "accumulate('fp16')" in str(narrow.derivation)
    assert narrow.steps[0].before.replay(narrow.derivation) == narrow
    assert narrow.accumulate("fp16") is narrow and narrow.accumulate("fp32") == flash()
    assert "from 0 in fp16" in str(narrow) and "from 0 in fp16" not in str(flash())


def test_states_may_be_chosen_by_name_and_survive_other_formats() -> None:
    narrow = flash().accumulate("bf16", "O.acc").formats("bf16")
    assert [(s.name, s.dtype) for s in narrow.forms[0].state][-1] == ("O.acc", "bf16")
    assert {s.dtype for s in narrow.forms[0].state[:-1]} == {"fp32"}


def test_memory_counts_its_bytes_and_a_run_counts_the_same() -> None:
    sizes = {"q": 5, "x": 13, "d": 8, **TILES}
    wide, narrow = flash(), flash().accumulate("fp16")
    saved = wide.memory().bytes().peak(**sizes) - narrow.memory().bytes().peak(**sizes)
    assert saved == 2 * (4 * 8 + 4 + 4)
    for one in (wide, narrow):
        assert one.lower(**sizes).count().peak_bytes == one.memory().bytes().peak(**sizes)
    assert wide.transfers() == narrow.transfers()


def test_the_optimum_and_the_legal_tile_gain_room() -> None:
    both = flash(), flash().accumulate("fp16")
    found = [one.optimum(2**15, unit="bytes", napkin=False, d=64).transfers for one in both]
    moved = [float(one.subs(dict.fromkeys(one.free_symbols, 4096))) for one in found]
    assert moved[0] > 1.4 * moved[1]
    tiles = [one.legal_tile(2**15, unit="bytes", q=4096, x=4096, d=64) for one in both]
    assert tiles[0].moved > 1.3 * tiles[1].moved


def test_the_law_takes_the_format_that_the_diagram_gathers_in() -> None:
    assert flash().bits().gain("fp8e4m3") == sympy.Rational(12, 5)
    assert flash().accumulate("fp16").bits().gain("fp8e4m3") == 4
    assert flash().accumulate("fp16", "O.acc").bits().gain("fp8e4m3") == 4
    assert product().bits().gain("fp8e4m3") == 2
    assert product().accumulate("fp16").bits().gain("fp8e4m3") ** 2 == 8
    assert product().accumulate("fp16").bits().gain("fp8e4m3", accumulators="fp32") == 2


@pytest.mark.parametrize(("dtype", "kept"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_a_run_rounds_what_it_gathers_after_each_chunk(dtype: str, kept: type) -> None:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(3, 12)), rng.normal(size=(12, 2))
    found = product().accumulate(dtype).lower(a=3, b=12, c=2, g_a=2, g_c=2, s_b=4).run(A=A, B=B)
    total = np.zeros((3, 2))
    for at in (0, 4, 8):
        total = (total + A[:, at : at + 4] @ B[at : at + 4]).astype(kept).astype(np.float64)
    np.testing.assert_array_equal(found, total)


def test_sums_in_few_bits_stand_still() -> None:
    ones = {"A": np.ones((1, 4096)), "B": np.ones((4096, 1))}
    sizes = {"a": 1, "b": 4096, "c": 1, "g_a": 1, "g_c": 1, "s_b": 1}
    found = {dtype: product().accumulate(dtype).lower(**sizes).run(**ones).item() for dtype in ("fp32", "fp16", "bf16")}
    assert found == {"fp32": 4096, "fp16": 2048, "bf16": 256}


def test_attention_in_half_precision_sums_errs_more_and_stays_near() -> None:
    arrays = given()
    exact = flash().reference(**arrays)
    errors = [
        abs(one.lower(q=5, x=13, d=8, **TILES).run(**arrays) - exact).max()
        for one in (flash(), flash().accumulate("fp16"), flash().accumulate("bf16"))
    ]
    assert errors[0] < 1e-14
    assert 1e-5 < errors[1] < errors[2] < 0.03


@pytest.mark.parametrize("engine", ["numba", "triton"])
def test_kernels_refuse_by_name_what_they_would_not_round(engine: str) -> None:
    kernel = flash().accumulate("fp16").kernel(engine, q=16, x=16, d=16, g_q=16, s_x=16)
    with pytest.raises(FormatError, match=r"do not round 'O.*' to fp16"):
        str(kernel.source)


def test_what_cannot_be_gathered_in_is_refused() -> None:
    with pytest.raises(FormatError, match="no stream gathers in 'fp8e4m3'.*fp32, fp16, bf16"):
        flash().accumulate("fp8e4m3")
    with pytest.raises(StreamError, match="'O' is carried.*O.acc"):
        flash().accumulate("fp16", "O")
    with pytest.raises(DiagkitError, match="stream an axis first"):
        flash().unstream().accumulate("fp16")
