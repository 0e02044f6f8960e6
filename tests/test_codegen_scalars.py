"""Scalars on every engine: what is no number, and what is infinite, comes out as the reference has it."""

import importlib.util

import numpy as np
import pytest
from numba_cases import q, streamed, x
from triton_cases import whole

import diagkit as dk
from diagkit import ops
from diagkit.bench import Kernel
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
    yield lower(term, g_q=2, s_x=3, q=len(arrays["S"]), x=7).run(**arrays)
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
