"""Exponentials of s - r, r being any reduction but the maximum of s: no partial result overflows where the whole is
finite."""

import numpy as np
import pytest
import sympy
from derive_cases import e, q, term, x
from fold import Fold
from test_derive_stream import LENGTH, TRIALS, close, outputs, random_cuts, tree

import diagkit as dk
from diagkit.derive import fuse, stream


def scores(name="S"):
    return dk.array(name, q, x)


def around(reference, weigh=lambda E: dk.total(E, over=x)):
    """A sum of exponentials of scores, counted from what `reference` makes of them."""
    S = scores()
    return term(weigh(dk.exp(S - reference(S))), name="exponentials")


def values(E):
    return dk.einsum("q x, x e -> q e", E, dk.array("V", x, e))


def weights(E):
    return values(dk.quotient(E, dk.total(E, over=x)))


def entropy(E):
    P = dk.quotient(E, dk.total(E, over=x))
    return -dk.total(dk.where(P > 0, P * dk.log(P), 0), over=x)


def mean(S):
    return dk.mean(S, over=x)


def both_ways():
    S = scores()
    return term(mean(S) + dk.log(dk.total(dk.exp(S - mean(S)), over=x)), name="log of a sum")


def powers(base):
    S = scores()
    return term(dk.total(base ** (S - mean(S)), over=x), name=f"powers of {base}")


CASES = {
    "mean": lambda: around(mean),
    "mean, values": lambda: around(mean, values),
    "mean, weights": lambda: around(mean, weights),
    "mean, entropy": lambda: around(mean, entropy),
    "total": lambda: around(lambda S: dk.total(S, over=x) / x.size),
    "variance": lambda: around(lambda S: mean(S) + dk.variance(S, over=x)),
    "another's maximum": lambda: around(lambda S: dk.amax(scores("R"), over=x)),
    "largest magnitude": lambda: around(lambda S: dk.amax(dk.absolute(S), over=x)),
    "minimum": lambda: around(lambda S: dk.amin(S, over=x)),
    "the other way": lambda: term(dk.total(dk.exp(mean(scores()) - scores()), over=x), name="falling"),
    "squares": lambda: around(mean, lambda E: dk.total(E**2, over=x)),
    "log of a sum": both_ways,
    "powers of two": lambda: powers(2),
    "powers of a half": lambda: powers(0.5),
}
OFFSETS = {"near 0": 0.0, "far up": 1e4, "far down": -1e4}


def _arrays(plain, offset, rng):
    made = {"V": lambda: rng.normal(size=(LENGTH, 2)), "R": lambda: offset + rng.normal(size=(3, LENGTH)) * 3}
    return {one.name: made.get(one.name, made["R"])() for one in plain.inputs}


def _sizes(plain):
    return {name: {"q": 3, "x": LENGTH, "e": 2}[name] for name in plain.axes}


@pytest.mark.parametrize("hoist", [True, False])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", CASES)
def test_any_split_and_any_merge_tree_gives_the_whole(name, offset, hoist):
    """All scores lie near 1e4: the mean of a part of them, over the whole number, lies thousands below."""
    plain, rng = CASES[name](), np.random.default_rng(len(name))
    flash = stream(fuse(plain), x="s_x", hoist=hoist)
    arrays = _arrays(plain, OFFSETS[offset], rng)
    fold, whole = Fold(flash, flash.forms[0], arrays, _sizes(plain)), outputs(plain, arrays)
    assert np.isfinite(whole[plain.outputs[0]]).all()
    for _ in range(TRIALS if offset == "near 0" else 20):
        cuts = random_cuts(LENGTH, rng)
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


def test_scores_around_their_mean_are_scores_around_their_maximum():
    """What is divided by a sum of the same exponentials: no factor is left at the end."""
    (form,) = stream(fuse(CASES["mean, weights"]()), x="s_x").forms
    assert len(form.state) == 4
    assert [box.expr for box in form.tail] == [
        dk.quotient(sympy.Symbol("a0", real=True), sympy.Symbol("a1", real=True))
    ]


def test_the_factor_that_is_kept_apart_is_said_in_the_step():
    flash = stream(fuse(CASES["mean"]()), x="s_x")
    (whole,) = [right for left, right in flash.steps[-1].identity if "exp" in str(right) and "new" not in str(right)]
    assert any(isinstance(factor, sympy.exp) for factor in sympy.Mul.make_args(whole))


@pytest.mark.parametrize("make", [lambda S: S * dk.total(S, over=x), lambda S: dk.tanh(S - mean(S))])
def test_what_an_element_and_a_sum_enter_together_is_refused_by_name(make):
    plain = term(dk.total(dk.exp(make(scores())), over=x, name="T"), name="bound")
    with pytest.raises(dk.StreamError, match="two passes") as refusal:
        stream(fuse(plain), x="s_x")
    assert (refusal.value.box, refusal.value.axis) == ("T", "x")
