"""What is no number: a stream that waits for an extreme gives what the whole gives, NaN where NaN was seen."""

import numpy as np
import pytest

import diagkit as dk

q, x = dk.axes("q x")


WAITING = {
    "min-max": lambda S: dk.total((S - dk.amin(S, over=x)) / (dk.amax(S, over=x) - dk.amin(S, over=x)), over=x),
    "largest magnitude": lambda S: dk.total(S / dk.amax(dk.absolute(S), over=x), over=x),
    "cross-entropy": lambda S: dk.total(S - dk.logsumexp(S, over=x), over=x),
    "attention sink": lambda S: dk.total(dk.exp(S - dk.maximum(dk.amax(S, over=x), 0)), over=x),
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("place", [0, 4, 6])
def test_what_is_no_number_stays_none(name, place):
    streamed = dk.Diagram(WAITING[name](dk.array("S", q, x))).fuse().group(q="g_q").stream(x="s_x")
    scores = np.random.default_rng(0).normal(size=(2, 7))
    scores[1, place] = np.nan
    whole = streamed.reference(S=scores)
    assert np.isnan(whole).tolist() == [False, True]
    np.testing.assert_allclose(streamed.lower(g_q=2, s_x=3).run(S=scores), whole, rtol=1e-12)
