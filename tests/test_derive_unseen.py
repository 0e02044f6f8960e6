"""Divisions at the end of a stream: the diagram's own, in every engine, and 0 only where nothing was seen."""

import numpy as np
import pytest

import diagkit as dk
from diagkit.cost.work import operations

q, x, e = dk.axes("q x e")
S, V = dk.array("S", q, x), dk.array("V", x, e)


def over_its_sum(weights):
    """Weights divided by their sum, contracted with values."""
    return dk.einsum("q x, x e -> q e", weights / dk.total(weights, over=x), V)


def largest_and_smallest():
    """Scores between 0 and 1, contracted with values."""
    low, high = dk.amin(S, over=x), dk.amax(S, over=x)
    return dk.einsum("q x, x e -> q e", (S - low) / (high - low), V)


def standardised():
    """Scores less their mean, over their deviation, contracted with values."""
    centred = S - dk.mean(S, over=x)
    return dk.einsum("q x, x e -> q e", centred / dk.sqrt(dk.variance(S, over=x)), V)


DIVIDED = {
    "squared relu": lambda: over_its_sum(dk.relu(S) * dk.relu(S)),
    "squares": lambda: over_its_sum(S * S),
    "min-max": largest_and_smallest,
    "z-score": standardised,
    "guarded": lambda: dk.einsum("q x, x e -> q e", dk.quotient(dk.relu(S), dk.total(dk.relu(S), over=x)), V),
}
NAN = {"squared relu": [True, True], "squares": [True, False], "min-max": [True, True], "z-score": [True, True]}


def given(length):
    """A row of zeros and one of -1: nothing to divide by, whatever the weights are made of."""
    return {"S": np.repeat([[0.0], [-1.0]], length, 1), "V": np.arange(3.0 * length).reshape(length, 3) + 1}


@pytest.mark.parametrize("hoist", [True, False])
@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("name", DIVIDED)
def test_a_stream_divides_as_its_diagram_does(name, length, hoist):
    plain = dk.Diagram(DIVIDED[name]()).fuse().group(q="g_q")
    arrays = given(length)
    whole = plain.reference(**arrays)
    if length:
        assert np.isnan(whole).any(axis=1).tolist() == NAN.get(name, [False, False])
    streamed = plain.stream(x="s_x", hoist=hoist)
    for made in (streamed.lower(g_q=2, s_x=2).run(**arrays), plain.hoist().reference(**arrays)):
        np.testing.assert_allclose(made, whole, rtol=1e-12)


@pytest.mark.parametrize("name", ["squared relu", "min-max", "guarded"])
def test_numba_divides_as_the_diagram_does(name):
    streamed = dk.Diagram(DIVIDED[name]()).fuse().group(q="g_q").stream(x="s_x")
    for length in (0, 5):
        arrays = {n: v.astype(np.float32) for n, v in given(length).items()}
        kernel = streamed.kernel("numba", q=2, x=length, e=3, g_q=2, s_x=2)
        np.testing.assert_allclose(kernel(**arrays), streamed.reference(**arrays), rtol=1e-5)


@pytest.mark.parametrize("name", ["squared relu", "guarded"])
def test_triton_divides_as_the_diagram_does(name):
    streamed = dk.Diagram(DIVIDED[name]()).fuse().group(q="g_q").stream(x="s_x")
    for length in (0, 5):
        arrays = {n: v.astype(np.float32) for n, v in given(length).items()}
        kernel = streamed.kernel("triton", q=2, x=length, e=3, g_q=16, s_x=16)
        np.testing.assert_array_equal(kernel(**arrays), streamed.reference(**arrays).astype(np.float32))


def by_hand():
    """Softmax attention from primitives, without a guard."""
    E = dk.exp(S - dk.amax(S, over=x), name="E")
    return over_its_sum(E)


@pytest.mark.parametrize("hoist", [True, False])
def test_dead_rows_of_a_softmax_by_hand(hoist):
    """The diagram has no number there; its stream has 0, like the block, and says so."""
    made, block = (
        dk.Diagram(by_hand()).fuse(),
        dk.Diagram(dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), V)).fuse(),
    )
    arrays = {"S": np.array([[-np.inf] * 5, [0.0] * 5]), "V": np.ones((5, 3))}
    assert np.isnan(made.reference(**arrays)[0]).all() and (block.reference(**arrays)[0] == 0).all()
    streamed = made.group(q="g_q").stream(x="s_x", hoist=hoist)
    found = streamed.lower(g_q=2, s_x=2).run(**arrays)
    np.testing.assert_array_equal(found, [[0.0] * 3, [1.0] * 3])
    kernel = streamed.kernel("numba", q=2, x=5, e=3, g_q=2, s_x=2)
    np.testing.assert_array_equal(kernel(**{n: v.astype(np.float32) for n, v in arrays.items()}), found)
    assert "where all that enters 'E' is -inf, nothing counts and sums are 0, not nan" in streamed.steps[-1].reason
    assert "-inf" not in block.stream(x="s_x").steps[-1].reason


def test_an_empty_axis_is_shown_and_costs_nothing():
    made = dk.Diagram(DIVIDED["squares"]()).fuse().stream(x="s_x")
    assert "[x = 0]" in str(made.lower())
    assert operations(made.forms[0].tail[-1].expr) == operations(dk.term.arg(0) / dk.term.arg(1))
    assert eval(repr(made.forms[0]), vars(dk.term).copy()) == made.forms[0]
