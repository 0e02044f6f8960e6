"""The largest in order: values and positions of any chunks and merges are numpy's, ties and dead rows included."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

import diagkit as dk
from diagkit.derive.ranked import RANKED
from diagkit.ops import combine
from diagkit.term import where

q, x = dk.axes("q x")
X = dk.array("X", q, x)
TIES = [-np.inf, -1.0, 0.0, 1.0, np.inf]


def both(k):
    """Values and positions of the same scores, in one kernel."""
    S = X * 1
    return dk.Diagram(dk.topk(S, over="x", k=k, name="T"), dk.argtopk(S, over="x", k=k, name="I"), name="top")


def wanted(scores, k):
    """numpy's, and nothing where there are fewer."""
    more = np.concatenate([scores, np.full((len(scores), k), -np.inf)], 1)
    order = np.argsort(-more, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(more, order, 1), np.where(order < scores.shape[1], order, np.inf)


def agrees(found, scores, k):
    values, places = wanted(scores, k)
    np.testing.assert_array_equal(found["T"], values)
    np.testing.assert_array_equal(found["I"], places)


STREAMED = {k: both(k).fuse().group(q="g_q").stream(x="s_x") for k in (1, 2, 3)}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 11), st.integers(0, 10**6))
def test_any_chunks_give_what_numpy_gives(k, length, s, seed):
    """Whole numbers and infinities tie often; some rows see nothing; some have fewer than k elements."""
    scores = np.random.default_rng(seed).choice(TIES, (4, length))
    scores[0] = -np.inf
    agrees(both(k)(X=scores), scores, k)
    agrees(STREAMED[k].lower(g_q=3, s_x=s).run(X=scores), scores, k)


@pytest.mark.parametrize("k", STREAMED)
def test_any_merge_tree_and_parts(k):
    scores = np.random.default_rng(k).choice(TIES, (4, 17))
    scores[0] = -np.inf
    assert both(k).fuse().stream(x="s_x").law(trials=100, X=scores).error == 0
    agrees(both(k).fuse().stream(x="s_x").split(x=3)(X=scores), scores, k)


@pytest.mark.parametrize("target", ["numba", "triton"])
def test_kernels_find_them_and_move_what_is_counted(target):
    scores = np.random.default_rng(0).choice([*TIES, 2.0, 3.0], (9, 23)).astype(np.float32)
    scores[0] = -np.inf
    tile = {"q": 9, "x": 23, "g_q": 4, "s_x": 5}
    kernel = STREAMED[3].kernel(target, **tile)
    assert kernel.check(seed=0)
    agrees(kernel(X=scores), scores, 3)
    assert kernel.count().total_bytes() == STREAMED[3].transfers().bytes().total(**tile)


def test_k_pairs_are_carried_and_no_more():
    for k, made in STREAMED.items():
        (form,) = made.forms
        assert sorted(str(state.start) for state in form.state) == ["-oo"] * k + ["oo"] * k
        assert form.method == (RANKED if k > 1 else "lemma: where an extreme is attained")
    (alone,) = dk.Diagram(dk.topk(X, over="x", k=3, name="T")).fuse().stream(x="s_x").forms
    assert len(alone.state) == 5  # nobody asks for the last position


def test_scores_that_are_computed_and_never_stored():
    d = dk.axis("d")
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d), name="S")
    made = dk.Diagram(dk.argtopk(S, over="x", k=2, name="I")).fuse().group(q="g_q").stream(x="s_x")
    rng = np.random.default_rng(1)
    Q, K = rng.normal(size=(5, 4)), rng.normal(size=(13, 4))
    found = made.lower(g_q=2, s_x=3).run(Q=Q, K=K)
    np.testing.assert_array_equal(found, np.argsort(-Q @ K.T, axis=1)[:, :2])
    assert "S" not in made.transfers().by_array()


def test_what_is_no_number_is_first_and_nothing_comes_after():
    scores = np.array([[1.0, np.nan, 2.0, 3.0]])
    for found in (both(3)(X=scores), STREAMED[3].lower(g_q=1, s_x=2).run(X=scores)):
        np.testing.assert_array_equal(found["T"], [[np.nan, -np.inf, -np.inf]])
        np.testing.assert_array_equal(found["I"], [[np.inf] * 3])


def chain(after=None, elsewhere=-sympy.oo, place=None, first=None):
    """The second largest as a reader may write it, with one thing changed."""
    S, j = X * 1, dk.index(x)
    m = dk.amax(S, over="x")
    i = first(S, m, j) if first else dk.amin(dk.where(dk.equal(S, m), j, np.inf), over="x")
    test = after or (lambda s, m, i, j: sympy.Or(s < m, sympy.And(sympy.Eq(s, m), j > i)))
    places = j if place is None else place
    rest = combine(lambda s, m, i, j: where(test(s, m, i, j), s, elsewhere), S, m, i, places)
    return dk.Diagram(dk.amax(rest, over="x", name="R"))


def test_written_by_hand_it_streams_too():
    S = X * 1
    j, m = dk.index(x), dk.amax(S, over="x")
    i = dk.amin(dk.where(dk.equal(S, m), j, np.inf), over="x")
    other = dk.amax(dk.where((m > S) | (dk.equal(m, S) & (i < j)), S, -np.inf), over="x", name="R")
    scores = np.random.default_rng(3).choice(TIES, (4, 9))
    for made in (chain(), dk.Diagram(other)):
        found = made.fuse().stream(x="s_x").lower(s_x=2).run(X=scores)
        np.testing.assert_array_equal(found, wanted(scores, 2)[0][:, 1])


REFUSED = {
    "equal ones again": {"after": lambda s, m, i, j: sympy.Or(s < m, sympy.And(sympy.Eq(s, m), j >= i))},
    "the smaller ones": {"after": lambda s, m, i, j: sympy.Or(s > m, sympy.And(sympy.Eq(s, m), j > i))},
    "smaller and later": {"after": lambda s, m, i, j: sympy.And(s < m, sympy.Or(sympy.Eq(s, m), j > i))},
    "equal ones of a kind": {"after": lambda s, m, i, j: sympy.Or(s < m, sympy.And(sympy.Eq(s, m), j > i, j < 5))},
    "elsewhere is not nothing": {"elsewhere": 0},
    "other places": {"place": dk.array("J", x)},
    "the last of equal ones": {"first": lambda S, m, j: dk.amax(dk.where(dk.equal(S, m), j, -np.inf), over="x")},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_such_order_is_refused(why):
    with pytest.raises(dk.StreamError, match="waits for"):
        chain(**REFUSED[why]).fuse().stream(x="s_x")


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_there_is_no_such_top(k):
    with pytest.raises(dk.InputError, match="no top"):
        dk.topk(X, over="x", k=k)
