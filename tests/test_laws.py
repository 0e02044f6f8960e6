"""The law of a stream on real forms, and forms made wrong on purpose."""

from dataclasses import replace

import numpy as np
import pytest
from derive_cases import attention, matmul, softmax_alone, term

import diagkit as dk
from diagkit import derive
from diagkit.derive.stream import stream
from diagkit.program import law
from diagkit.term import InputError, StreamError, arg, coordinate

q, x, d, e = dk.axes("q x d e")


def data(made, **sizes):
    """Random arrays for the inputs of a diagram."""
    dice = np.random.default_rng(3)
    return {array.name: dice.standard_normal([sizes[axis.name] for axis in array.axes]) for array in made.inputs}


def streamed(made, **options):
    return stream(derive.fuse(made), x="s_x", **options)


def rows(name, function):
    made = function(dk.array("S", q, x), over=x)
    return term(made, name=name)


CASES = {
    "attention": streamed(attention()),
    "normalised": streamed(attention(), hoist=False),
    "masked": streamed(attention(mask=dk.causal(q, x))),
    "matmul": streamed(matmul()),
    "logsumexp": streamed(rows("logsumexp", dk.logsumexp)),
    "variance": streamed(rows("variance", dk.variance)),
    "power sums": streamed(rows("variance", dk.variance), lemma=False),
    "max": streamed(rows("max", dk.amax)),
}


@pytest.mark.parametrize("name", CASES)
def test_any_split_and_any_merge_tree_gives_the_whole(name):
    found = law(CASES[name], trials=25, seed=1, **data(CASES[name], q=5, x=41, d=4, e=3))
    assert found.error < 1e-13
    assert found.merged > 0


def test_a_convolution_adds_up_over_channels():
    """Offsets are an axis of a view; along the channels it is a contraction like any other."""
    t, p, w, c = dk.axes("t p=5 w c")
    windows = dk.view(dk.array("X", t, c), {"t": coordinate("p") + coordinate("w")}, (p, w, c))
    Y = dk.einsum("p w c, w c e -> p e", windows, dk.weight("W", w, c, e))
    made = stream(derive.fuse(term(Y, Y=Y)), c="s_c")
    found = law(made, trials=25, seed=1, **data(made, t=7, c=11, w=3, e=2))
    assert found.error < 1e-13 and found.merged > 0
    with pytest.raises(StreamError, match="reads overlapping windows along 't'"):
        stream(derive.fuse(term(Y, Y=Y)), t="s_t")


def test_an_axis_of_nothing_is_a_split_too():
    assert law(CASES["logsumexp"], **data(CASES["logsumexp"], q=2, x=0)).error == 0


def broken(made, section, wire, expr):
    """The diagram with one map of its form replaced."""
    form = made.forms[0]
    boxes = tuple(replace(box, expr=expr) if box.name == wire else box for box in getattr(form, section))
    assert boxes != getattr(form, section)
    return made.replace(forms=(replace(form, **{section: boxes}),))


@pytest.mark.parametrize(("section", "wire"), [("step", "P.sum.factor"), ("merge", "P.sum.factor.left")])
def test_a_forgotten_correction_is_noticed(section, wire):
    made = broken(CASES["attention"], section, wire, arg(0) * 0 + 1)
    assert law(made, **data(made, q=5, x=41, d=4, e=3)).error > 1e-3


def test_nan_is_no_agreement():
    arrays = data(CASES["max"], q=2, x=9)
    arrays["S"][1, 3] = np.nan
    assert not law(CASES["max"], **arrays).error < 1


def test_what_is_not_streamed_has_no_law():
    with pytest.raises(InputError, match="stream the axis"):
        law(softmax_alone(), S=np.zeros((2, 3)))
