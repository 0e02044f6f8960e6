"""Central moments that stream: no digits are lost where the mean is large, whatever the weights."""

from functools import reduce
from operator import mul
from types import SimpleNamespace

import numpy as np
import pytest
from derive_cases import e, q, x
from fold import Fold
from strategies import Labelled
from test_counted_equals_formula import agree
from test_derive_stream import random_cuts, tree

import diagkit as dk
from diagkit import ops
from diagkit.derive import fuse, split, stream
from diagkit.derive.moments import LEMMA
from diagkit.derive.tops import TOPPED

OFFSETS = (0.0, 1e4, 1e8)
SIZES = {"q": 3, "x": 23, "e": 2}
S, X, Y = dk.array("S", q, x), dk.array("X", q, x), dk.array("Y", q, x)
R, V = dk.array("R", x, e), dk.array("V", x, e)


def softmax_weights(power=2, S=S):
    """The central moment of X under a softmax of S."""
    P = dk.softmax(S, over=x, name="P")
    mean = dk.total(P * X, x, name="mean")
    return dk.total(P * (X - mean) ** power, x, name="M")


def contracted_weights():
    """The spread of the values around what attention answers."""
    P = dk.softmax(S, over=x, name="P")
    O = dk.einsum("q x, x e -> q e", P, V, name="O")
    return dk.einsum("q x, q x e -> q e", P, (V - O) ** 2, name="M")


def mapped_weights(weigh, near=X):
    """The variance of X under weights that are made of data, divided by their sum at the end."""
    weight = weigh(near)
    sum_ = dk.total(weight, x, name="W")
    mean = dk.total(weight * X, x) / sum_
    return (dk.total(weight * (X - mean) ** 2, x, name="moment") / sum_).named("M")


def written_twice():
    """The same map of the data in the mean and in the deviation, once each."""
    P = dk.softmax(S, over=x, name="P")
    mean = dk.total(P * (X * 2 + Y), x, name="mean")
    return dk.total(P * (2 * X + Y - mean) ** 2, x, name="M")


def comoment():
    """The covariance of X and Y under a softmax."""
    P = dk.softmax(S, over=x, name="P")
    mean, other = (dk.total(P * one, x) for one in (X, Y))
    return dk.total(P * (X - mean) * (Y - other), x, name="M")


def comoments():
    """Every feature of V against every row of X: a contraction of two deviations."""
    centred = X - dk.mean(X, over=x, name="mean")
    return dk.einsum("q x, x e -> q e", centred, V - dk.mean(V, over=x, name="other"), name="M")


def masked(chosen):
    """The variance of what a mask lets through."""
    C = dk.array("C", q, x, dtype="bool")
    seen = dk.where(C, 1.0, 0.0)
    n = dk.total(seen, x, name="n")
    mean = dk.total(dk.where(C, X, 0.0) if chosen else seen * X, x, name="sum") / n
    squares = dk.where(C, (X - mean) ** 2, 0.0) if chosen else seen * (X - mean) ** 2
    return (dk.total(squares, x, name="squares") / n).named("M")


def given_weights(power=2):
    """A central moment under weights of either sign."""
    w = dk.array("w", q, x)
    W = dk.total(w, x, name="W")
    mean = dk.einsum("q x, q x -> q", w, X, name="sum") / W
    return (dk.einsum("q x, q x -> q", w, (X - mean) ** power, name="moment") / W).named("M")


def given_comoments():
    """Covariances under weights of either sign: a contraction of three."""
    w = dk.array("w", q, x)
    W = dk.total(w, x, name="W")
    mean = dk.einsum("q x, q x -> q", w, X, name="sum") / W
    other = dk.einsum("q x, x e -> q e", w, V, name="sums") / W
    moment = dk.einsum("q x, q x, q x e -> q e", w, X - mean, V - other, name="moment")
    return (moment / W).named("M")


def normalised():
    """Given weights that sum to 1, so that their sum with the values is the mean at the end, and at the end only."""
    p = dk.array("p", q, x)
    return dk.total(p * (X - dk.total(p * X, x, name="mean")) ** 2, x, name="M")


def around_the_largest():
    """A second moment around the maximum, under the softmax."""
    m = dk.amax(X, x, name="m")
    weight = dk.exp(X - m)
    return (dk.total(weight * (X - m) ** 2, x, name="T") / dk.total(weight, x, name="Z")).named("M")


def around_another_mean():
    """Under a softmax, around the mean that knows nothing of it."""
    P = dk.softmax(S, over=x, name="P")
    return dk.total(P * (X - dk.mean(X, over=x, name="mean")) ** 2, x, name="M")


def equal_weights(power):
    """A central moment, all weights alike."""
    return dk.total((X - dk.mean(X, over=x, name="mean")) ** power, x, name="M")


def softmax_of(scores):
    """The weights, in the precision of the scores."""
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def exact(weight, *factors):
    """sum w (a - mean a) (b - mean b) ... in two passes."""
    weight = weight / weight.sum(-1, keepdims=True)
    return (weight * reduce(mul, (one - (weight * one).sum(-1, keepdims=True) for one in factors))).sum(-1)


def around(weight, values, middle):
    """sum w (a - r)^2."""
    return (weight * (values - middle(values, -1, keepdims=True)) ** 2).sum(-1)


ALIKE = np.ones(SIZES["x"])
CASES = {
    "softmax": (softmax_weights, lambda at: exact(softmax_of(at.S), at.X, at.X)),
    "softmax, third": (lambda: softmax_weights(3), lambda at: exact(softmax_of(at.S), at.X, at.X, at.X)),
    "softmax, fourth": (lambda: softmax_weights(4), lambda at: exact(softmax_of(at.S), at.X, at.X, at.X, at.X)),
    "softmax of itself": (lambda: softmax_weights(2, X), lambda at: exact(softmax_of(at.X), at.X, at.X)),
    "softmax, contracted": (
        contracted_weights,
        lambda at: exact(softmax_of(at.S)[:, None], at.V.T[None], at.V.T[None]),
    ),
    "written twice": (written_twice, lambda at: exact(softmax_of(at.S), 2 * at.X + at.Y, 2 * at.X + at.Y)),
    "squares": (lambda: mapped_weights(lambda X: X * X), lambda at: exact(at.X * at.X, at.X, at.X)),
    "magnitudes": (lambda: mapped_weights(dk.absolute), lambda at: exact(abs(at.X), at.X, at.X)),
    "exponentials": (lambda: mapped_weights(dk.exp, S), lambda at: exact(np.exp(at.S), at.X, at.X)),
    "softmax, covariance": (comoment, lambda at: exact(softmax_of(at.S), at.X, at.Y)),
    "covariances": (comoments, lambda at: 23 * exact(ALIKE, at.X[:, None], at.V.T[None])),
    "third": (lambda: equal_weights(3), lambda at: 23 * exact(ALIKE, at.X, at.X, at.X)),
    "fourth": (lambda: equal_weights(4), lambda at: 23 * exact(ALIKE, at.X, at.X, at.X, at.X)),
    "masked": (lambda: masked(True), lambda at: exact(at.C, at.X, at.X)),
    "masked by a product": (lambda: masked(False), lambda at: exact(at.C, at.X, at.X)),
    "given": (given_weights, lambda at: exact(at.w, at.X, at.X)),
    "given, third": (lambda: given_weights(3), lambda at: exact(at.w, at.X, at.X, at.X)),
    "given, covariances": (given_comoments, lambda at: exact(at.w[:, None], at.X[:, None], at.V.T[None])),
    "weights that sum to 1": (normalised, lambda at: exact(at.p, at.X, at.X)),
    "around the largest": (around_the_largest, lambda at: around(softmax_of(at.X), at.X, np.max)),
    "around another mean": (
        around_another_mean,
        lambda at: around(softmax_of(at.S), at.X, np.mean),
    ),
}


def diagram(name):
    made = CASES[name][0]()
    return dk.Diagram(made, name=name)


DRAWN = {
    "S": lambda drawn: 3 * drawn,
    "C": lambda drawn: drawn > -0.5,
    "w": lambda drawn: np.resize([1.0, -1, 2, 0, 3], drawn.shape),  # partial sums of 0 among them
    "p": softmax_of,
}
"""What is made of random numbers; values around an offset where nothing is said."""


def data(made, offset, rng):
    arrays = {}
    for one in made.inputs:
        drawn = rng.standard_normal([SIZES[axis.name] for axis in one.axes])
        arrays[one.name] = DRAWN[one.name](drawn) if one.name in DRAWN else drawn + offset
    return arrays


def wanted(name, arrays):
    """The moment in long double."""
    return CASES[name][1](SimpleNamespace(**{n: np.asarray(v, np.longdouble) for n, v in arrays.items()}))


def error(found, right):
    return float(np.max(np.abs(found - right) / max(1, np.max(np.abs(right)))))


@pytest.mark.parametrize("name", CASES)
def test_no_split_and_no_merge_tree_loses_digits(name):
    """A mean that is known to its last digit leaves offset * 1e-16 of a moment; power sums leave nothing at 1e8."""
    made, rng = diagram(name), np.random.default_rng(7)
    flash = stream(fuse(made), x="s_x")
    assert flash.forms[0].method in (LEMMA, TOPPED)
    for offset in OFFSETS:
        arrays = data(made, offset, rng)
        right = wanted(name, arrays)
        fold = Fold(flash, flash.forms[0], arrays, SIZES)
        for _ in range(6):
            for state in (fold.fold(random_cuts(23, rng)), tree(fold, random_cuts(23, rng), rng)):
                (found,) = fold.finish(state).values()
                assert error(found, right) < 300 * np.finfo(float).eps * (1 + offset), (offset, name)


def test_power_sums_lose_every_digit():
    """What the lemma is for, and that the test above can fail."""
    made, rng = diagram("softmax"), np.random.default_rng(7)
    flash = stream(fuse(made), x="s_x", lemma=False)
    arrays = data(made, 1e8, rng)
    fold = Fold(flash, flash.forms[0], arrays, SIZES)
    (found,) = fold.finish(fold.fold([0, 7, 23])).values()
    assert error(found, wanted("softmax", arrays)) > 0.1


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("softmax", ["P.max", "P.sum", "mean.acc", "M.acc"]),
        ("softmax, third", ["P.max", "P.sum", "mean.acc", "M.acc", "M.acc.weight"]),
        ("exponentials", ["W", "sum(f(f(S), X))", "moment"]),
    ],
)
def test_the_state_is_the_sum_of_weights_the_mean_and_the_moments(name, states):
    assert sorted(state.name for state in stream(fuse(diagram(name)), x="s_x").forms[0].state) == sorted(states)


@pytest.mark.parametrize("name", CASES)
def test_nothing_and_dead_chunks(name):
    """An axis without positions, rows whose scores are all hidden, and a first chunk that is."""
    made, rng = diagram(name), np.random.default_rng(3)
    flash = stream(fuse(made), x="s_x")
    arrays = data(made, 1e4, rng)
    if "S" in arrays:
        arrays["S"][0], arrays["S"][1, :9] = -np.inf, -np.inf
    for length in (0, 23):
        cut = {n: v[:length] if n == "V" else v[..., :length] for n, v in arrays.items()}
        right = ops.reference(made, cut)
        fold = Fold(flash, flash.forms[0], cut, {**SIZES, "x": length})
        for cuts in ([0, length], [0, 0, min(length, 9), length]):
            (found,) = fold.finish(fold.fold(cuts)).values()
            np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-9)


def test_parts_keep_the_digits():
    """Split: two kernels, the second merges what is left of each part."""
    made, rng = diagram("softmax"), np.random.default_rng(5)
    arrays = data(made, 1e8, rng)
    found = ops.reference(split(fuse(made), x=4), arrays)
    assert error(found, wanted("softmax", arrays)) < 1e-6


def grouped(name):
    """A case as it runs: fused, in groups of q, in chunks of x."""
    return diagram(name).fuse().group(q="g_q").stream(x="s_x")


def sizes_of(made, **tiles):
    return {name: n for name, n in SIZES.items() if name in made.axes} | tiles


@pytest.mark.parametrize("name", CASES)
def test_a_program_keeps_the_digits_and_moves_what_the_formula_says(name):
    made, rng = grouped(name), np.random.default_rng(11)
    program = made.lower(**sizes_of(made, g_q=2, s_x=5))
    for offset in OFFSETS:
        arrays = data(made, offset, rng)
        assert error(program.run(**arrays), wanted(name, arrays)) < 300 * np.finfo(float).eps * (1 + offset)
    agree(Labelled(made, sizes_of(made, g_q=2, s_x=5)))


def narrow(made, offset):
    """Arrays in the format that kernels read."""
    arrays = data(made, offset, np.random.default_rng(13))
    return {n: v if v.dtype == bool else v.astype(np.float32) for n, v in arrays.items()}


@pytest.mark.parametrize(
    ("target", "name"),
    [("numba", "softmax, contracted"), ("numba", "masked")]
    + [("triton", name) for name in ("softmax, third", "softmax, covariance", "masked", "given, covariances", "third")],
)
def test_kernels_keep_the_digits(target, name):
    """In fp32 around 1000, where power sums keep one digit of a variance."""
    made = grouped(name)
    tiles = {"g_q": 2, "s_x": 5} if target == "numba" else {"g_q": 16, "s_x": 16}
    kernel, arrays = made.kernel(target, **sizes_of(made, **tiles)), narrow(made, 1e3)
    assert error(kernel(**arrays), wanted(name, arrays)) < 20 * np.finfo(np.float32).eps * 1e3
    assert kernel.count().transfers == made.transfers().at(**sizes_of(made, **tiles))


@pytest.mark.parametrize("target", ["program", "triton"])
def test_a_mask_may_hide_what_is_no_number(target):
    """A choice stays a choice: what is infinite or no number where the mask is false does not count."""
    made = grouped("masked")
    arrays = narrow(made, 10.0)
    arrays["X"] = np.where(arrays["C"], arrays["X"], np.where(np.arange(SIZES["x"]) % 2, np.nan, np.inf))
    tiles = {"g_q": 2, "s_x": 5} if target == "numba" else {"g_q": 16, "s_x": 16}
    runs = (
        made.lower(**sizes_of(made, **tiles)).run
        if target == "program"
        else made.kernel(target, **sizes_of(made, **tiles))
    )
    np.testing.assert_allclose(runs(**arrays), made.reference(**arrays), rtol=1e-4)


NO_WEIGHT = {
    "divided once more": lambda weight, W, squares: squares / W,
    "as it is": lambda weight, W, squares: squares,
    "in a sum": lambda weight, W, squares: squares + 1,
}


@pytest.mark.parametrize("weigh", [dk.relu, lambda w: dk.where(w > 0, 1.0, 0.0), dk.exp])
@pytest.mark.parametrize("name", NO_WEIGHT)
def test_a_mean_without_weight_is_no_number_where_the_diagram_has_none(name, weigh):
    weight = weigh(dk.array("w", q, x))
    W = dk.total(weight, x)
    squares = dk.total(weight * (X - dk.total(weight * X, x) / W) ** 2, x)
    made = dk.Diagram(NO_WEIGHT[name](weight, W, squares)).fuse()
    arrays = {"X": np.arange(12.0).reshape(2, 6), "w": np.full((2, 6), -2000.0)}
    arrays["w"][1, 3:] = 1
    for runs in (made.stream(x="s_x").lower(s_x=2).run, made.split(x=2).reference):
        np.testing.assert_allclose(runs(**arrays), made.reference(**arrays), rtol=1e-12)
    assert np.isnan(made.reference(**arrays)[0])
