"""Scalars on every engine: what is no number, and what is infinite, comes out as the reference has it."""

import importlib.util

import numpy as np
import pytest
from numba_cases import TERMS, d, e, normal, q, streamed, x
from triton_cases import whole

import diagkit as dk
from diagkit import ops
from diagkit.bench import Kernel
from diagkit.codegen import source
from diagkit.program import lower
from diagkit.term import Term

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed here")
nan, inf = np.nan, np.inf
ROWS = [
    [1, nan, 3, 2, 0, 5, 4],
    [inf, 0, 1, 2, 3, 4, 5],
    [nan] * 7,
    [-inf, nan, inf, 0, 0, 0, 0],
    [2, 1, 0, 7, -1, 3, -nan],
]
S = dk.array("S", q, x)


def term_of(node):
    return streamed(Term(*ops.trace([node], {}), "scalars"))


def engines(term, arrays):
    """What each engine makes of them, one after the other."""
    sizes = ops.open_arrays(term, arrays)[0].sizes
    yield lower(term, g_q=2, s_x=3, **sizes).run(**arrays)
    yield Kernel(lower(term, g_q=2, s_x=3))(**arrays)
    if importlib.util.find_spec("triton"):
        yield whole(term, arrays, g_q=2, s_x=3)(**arrays)


EXTREMES = {
    "max": lambda: dk.amax(S, over=x),
    "min": lambda: dk.amin(S, over=x),
    "argmax": lambda: dk.argmax(S, over=x),
    "argmin": lambda: dk.argmin(S, over=x),
    "the larger of two": lambda: dk.total(dk.maximum(S, 1), over=x),
    "the smaller of two": lambda: dk.total(dk.minimum(S, 1), over=x),
    "relu": lambda: dk.total(dk.relu(S), over=x),
    "log-sum-exp": lambda: dk.logsumexp(S, over=x),
    "the sum": lambda: dk.total(S, over=x),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_what_is_no_number_stays_none(name):
    term, arrays = term_of(EXTREMES[name]()), {"S": np.array(ROWS, np.float32)}
    wanted = ops.reference(term, arrays)
    assert np.isnan(wanted).any() or name.startswith("arg")
    for found in engines(term, arrays):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@needs_triton
@pytest.mark.parametrize("target", ["sm_75", "sm_90"])
def test_extremes_that_keep_nan_compile(target):
    term = term_of(dk.amax(S, over=x) - dk.amin(S, over=x))
    assert "tl.max(" not in (made := Kernel(lower(term, q=64, x=100, g_q=32, s_x=32), "triton")).source.text
    assert made.inspect(target).verdict("no spills").passed


# ---- masks of large numbers instead of infinities ----


LEAST = float(np.finfo(np.float32).min)
MASKS = {
    "added": lambda scores, big: scores + dk.array("B", q, x),
    "added and scaled": lambda scores, big: (scores + dk.array("B", q, x)) / 3,
    "chosen": lambda scores, big: dk.select(dk.array("M", q, x, dtype="bool"), scores, big),
}


@pytest.mark.parametrize("big", [-1e9, -1e30, LEAST])
@pytest.mark.parametrize("name", MASKS)
def test_masks_of_large_numbers(name, big):
    """A chunk of them before one that is seen, and rows of nothing else: those are the mean."""
    scores = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    P = dk.softmax(MASKS[name](scores, big), over=x)
    term = term_of(dk.einsum("q x, x e -> q e", P, dk.array("V", x, e)))
    seen = np.ones((3, 7), bool)
    seen[0, :4], seen[1, 4:], seen[2] = False, False, False
    arrays = normal(Q=(3, 4), K=(7, 4), V=(7, 2))
    arrays |= {"B": np.where(seen, 0, big).astype(np.float32)} if name != "chosen" else {"M": seen}
    wanted = ops.reference(term, arrays)
    if big == -1e9 and name != "chosen":  # float64 still tells these scores apart, fp32 no more
        wanted[2] = arrays["V"].mean(0)
    np.testing.assert_allclose(wanted[2], arrays["V"].mean(0), rtol=1e-6)
    for found in engines(term, arrays):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_scores_of_products_keep_one_multiply_add_for_each():
    plain = source(lower(TERMS["attention"](), d=64, e=64, g_q=32, s_x=16), "triton").text
    assert "tl.exp2(0.18033688011112042 * S_raw" in "".join(line.split("#")[0].strip() for line in plain.splitlines())
