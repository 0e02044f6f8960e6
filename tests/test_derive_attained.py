"""Where an extreme is attained: argmax and its kin in one pass, ties and rows that see nothing included."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import diagkit as dk

q, x = dk.axes("q x")
S, V = dk.array("S", q, x), dk.array("V", x)
MOST = dk.amax(S, over=x)
FIND = {"argmax": (dk.argmax, np.argmax), "argmin": (dk.argmin, np.argmin)}


def streamed(find):
    return dk.Diagram(find(S, over=x, name="A")).fuse().group(q="g_q").stream(x="s_x")


@pytest.mark.parametrize("name", FIND)
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4), st.integers(1, 11), st.integers(0, 10**6))
def test_the_first_position_of_any_chunks_is_numpys(name, rows, length, g, s, seed):
    """Whole numbers and infinities tie often, and some rows see nothing."""
    find, numpy_find = FIND[name]
    scores = np.random.default_rng(seed).choice([-np.inf, -1.0, 0.0, 1.0, np.inf], (rows, length))
    scores[0] = -np.inf
    found = streamed(find).lower(g_q=g, s_x=s).run(S=scores)
    np.testing.assert_array_equal(found, numpy_find(scores, axis=-1))


@pytest.mark.parametrize("target", ["numba", "triton"])
def test_kernels_find_it(target):
    scores = np.random.default_rng(0).choice([-np.inf, -2.0, 0.0, 3.0], (9, 23)).astype(np.float32)
    scores[0] = -np.inf
    kernel = streamed(dk.argmax).kernel(target, q=9, x=23, g_q=4, s_x=5)
    assert kernel.check(seed=0)
    np.testing.assert_array_equal(kernel(S=scores), scores.argmax(-1))
    assert kernel.count().total_bytes() == streamed(dk.argmax).transfers().bytes().total(q=9, x=23, g_q=4, s_x=5)


def test_of_nothing_it_is_no_position():
    assert np.isinf(dk.Diagram(dk.argmax(S, over=x))(S=np.zeros((2, 0)))).all()


def test_partial_results_of_parts_are_merged():
    scores = np.random.default_rng(2).integers(0, 3, (4, 17)) * 1.0
    parted = dk.Diagram(dk.argmax(S, over=x)).fuse().stream(x="s_x").split(x=3)
    np.testing.assert_array_equal(parted(S=scores), scores.argmax(-1))


REFUSED = {
    "elsewhere is not nothing": dk.amax(dk.where(dk.equal(S, MOST), dk.index(x), -1), over=x),
    "compared with another's maximum": dk.amin(dk.where(dk.equal(S * V, MOST), dk.index(x), np.inf), over=x),
    "not where it is equal": dk.amin(dk.where(S < MOST, dk.index(x), np.inf), over=x),
    "what is taken waits too": dk.total(dk.where(dk.equal(S, MOST), S * MOST**2 + MOST, 0), over=x),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_such_choice_is_refused(why):
    with pytest.raises(dk.StreamError, match="waits for"):
        dk.Diagram(REFUSED[why]).fuse().stream(x="s_x")


def test_a_position_is_along_one_axis():
    with pytest.raises(dk.AxisError, match="name one"):
        dk.argmax(S, over=[q, x])


def test_positions_of_halves_are_exact_beyond_2048():
    """They are fp32: in fp16 the position 2051 would be 2052."""
    half = dk.array("S", q, x, dtype="fp16")
    scores = np.zeros((3, 5001), np.float16)
    scores[[0, 1, 2], [4999, 2051, 4097]] = 1
    found = dk.Diagram(dk.argmax(half, over=x, name="A")).fuse().group(q="g_q").stream(x="s_x")
    assert found.wires["A"].dtype == "fp32"
    for made in (found(S=scores), found.lower(g_q=2, s_x=512).run(S=scores)):
        np.testing.assert_array_equal(made, [4999, 2051, 4097])


@pytest.mark.parametrize("target", ["numba", "triton"])
def test_kernels_store_positions_of_halves_exactly(target):
    half = dk.array("S", q, x, dtype="fp16")
    scores = np.zeros((3, 2100), np.float16)
    scores[[0, 1, 2], [2051, 2053, 2099]] = 1
    found = dk.Diagram(dk.argmax(half, over=x, name="A")).fuse().group(q="g_q").stream(x="s_x")
    kernel = found.kernel(target, q=3, x=2100, g_q=2, s_x=512)
    np.testing.assert_array_equal(kernel(S=scores), [2051, 2053, 2099])
