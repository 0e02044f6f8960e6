"""Logs of what waits: entropies, divergences and cross-entropies of a softmax stream, also where it underflows."""

import numpy as np
import pytest
import sympy
from derive_cases import q, term, x
from fold import Fold
from test_derive_stream import LENGTH, TRIALS, close, outputs, random_cuts, tree

import diagkit as dk
from diagkit import ops
from diagkit.derive import fuse, stream
from diagkit.derive.algebra import factored
from diagkit.derive.logs import Signs, opened
from diagkit.term import finite, quotient, value


def softmax(name):
    return dk.softmax(dk.array(name, q, x), over=x)


def log_softmax(scores):
    """log softmax, the exponential never taken back by a log."""
    shifted = scores - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def entropy():
    P = softmax("S")
    return term(-dk.total(P * dk.log(P), over=x, name="H"), name="entropy")


def contracted():
    P = softmax("S")
    return term(dk.einsum("q x, q x -> q", P, dk.log(P), name="H"), name="contracted entropy")


def perplexity():
    P = softmax("S")
    return term(dk.exp(-dk.total(P * dk.log(P), over=x)), name="perplexity")


def divergence():
    P, R = softmax("S"), softmax("R")
    return term(dk.total(P * (dk.log(P) - dk.log(R)), over=x), name="divergence")


def guarded_entropy():
    P = softmax("S")
    return term(-dk.total(dk.where(P > 0, P * dk.log(P), 0), over=x, name="H"), name="guarded entropy")


def powers():
    P = softmax("S")
    return term(dk.total(dk.where(dk.equal(P, 0), 0, P**2 * dk.log(P)), over=x), name="powers")


def spread_of_logs():
    P = softmax("S")
    return term(dk.total(dk.where(P > 0, P * dk.log(P) ** 2, 0), over=x), name="second moment of logs")


def guarded_divergence():
    P, R = softmax("S"), softmax("R")
    each = dk.where(P > 0, P * dk.log(P), 0) - dk.where(P > 0, P * dk.log(R), 0)
    return term(dk.total(each, over=x), name="guarded divergence")


def guarded_targets():
    Y = dk.array("Y", q, x)
    return term(-dk.total(dk.where(Y > 0, Y * dk.log(softmax("S")), 0), over=x), name="guarded targets")


def guarded_mean():
    S = dk.array("S", q, x)
    P = dk.softmax(S, over=x)
    return term(dk.total(dk.where(P > 0, P * S, 0), over=x), name="mean score")


def unguarded_magnitudes():
    X = dk.absolute(dk.array("S", q, x))
    P = X / dk.total(X, over=x)
    return term(dk.total(P * dk.log(P), over=x), name="entropy of magnitudes, by hand")


def magnitudes():
    X = dk.absolute(dk.array("S", q, x))
    P = X / dk.total(X, over=x)
    return term(dk.total(dk.where(P > 0, P * dk.log(P), 0), over=x), name="entropy of magnitudes")


def ratio():
    P, R = softmax("S"), softmax("R")
    return term(dk.total(P * dk.log(P / R), over=x), name="log of a ratio")


def soft_targets():
    return term(-dk.total(dk.array("Y", q, x) * dk.log(softmax("S")), over=x), name="soft targets")


def all_logs():
    return term(dk.total(dk.log(softmax("S")), over=x), name="all logs")


def hard_target():
    hit = dk.equal(dk.index(x), dk.array("t", q, dtype="int64"))
    P = dk.softmax(dk.array("S", q, x) / dk.array("T"), over=x)
    return term(-dk.total(dk.where(hit, dk.log(P), 0), over=x), name="hard target, with a temperature")


def largest_log():
    return term(dk.amax(dk.log(softmax("S")), over=x), name="largest log")


def tempered():
    P = dk.softmax(dk.array("S", q, x) / dk.array("T"), over=x)
    return term(-dk.total(dk.array("Y", q, x) * dk.log(P), over=x), name="tempered")


def _p_log(S, R=None):
    P = np.exp(log_softmax(S))
    return np.sum(P * log_softmax(S if R is None else R), -1)


def _magnitudes(S):
    return abs(S) / abs(S).sum(-1, keepdims=True)


CASES = {
    "entropy": (entropy, lambda S: -_p_log(S)),
    "contracted": (contracted, _p_log),
    "perplexity": (perplexity, lambda S: np.exp(-_p_log(S))),
    "divergence": (divergence, lambda S, R: _p_log(S) - _p_log(S, R)),
    "guarded entropy": (guarded_entropy, lambda S: -_p_log(S)),
    "powers": (powers, lambda S: np.sum(np.exp(log_softmax(S)) ** 2 * log_softmax(S), -1)),
    "spread of logs": (spread_of_logs, lambda S: np.sum(np.exp(log_softmax(S)) * log_softmax(S) ** 2, -1)),
    "guarded divergence": (guarded_divergence, lambda S, R: _p_log(S) - _p_log(S, R)),
    "guarded targets": (guarded_targets, lambda S, Y: -np.sum(Y * log_softmax(S), -1)),
    "guarded mean": (guarded_mean, lambda S: np.sum(np.exp(log_softmax(S)) * S, -1)),
    "magnitudes": (magnitudes, lambda S: np.sum(_magnitudes(S) * np.log(_magnitudes(S)), -1)),
    "unguarded magnitudes": (unguarded_magnitudes, lambda S: np.sum(_magnitudes(S) * np.log(_magnitudes(S)), -1)),
    "ratio": (ratio, lambda S, R: _p_log(S) - _p_log(S, R)),
    "soft targets": (soft_targets, lambda S, Y: -np.sum(Y * log_softmax(S), -1)),
    "all logs": (all_logs, lambda S: np.sum(log_softmax(S), -1)),
    "hard target": (hard_target, lambda S, T, t: -np.take_along_axis(log_softmax(S / T), t[:, None], -1)[:, 0]),
    "largest log": (largest_log, lambda S: np.max(log_softmax(S), -1)),
    "tempered": (tempered, lambda S, T, Y: -np.sum(Y * log_softmax(S / T), -1)),
}
SCORES = {
    "small": lambda rng: rng.normal(size=(3, LENGTH)) * 3,
    "of either sign": lambda rng: np.where(rng.random((3, LENGTH)) < 0.5, -1e4, 1e4) + rng.normal(size=(3, LENGTH)),
    "rising": lambda rng: np.linspace(-1e4, 1e4, LENGTH) + rng.normal(size=(3, LENGTH)),
    "falling": lambda rng: np.linspace(1e4, -1e4, LENGTH) + rng.normal(size=(3, LENGTH)),
    "far off": lambda rng: 1e4 + rng.normal(size=(3, LENGTH)),
}


def _arrays(plain, scores, rng):
    made = {"Y": lambda: rng.random((3, LENGTH)), "T": lambda: np.array(1.7), "t": lambda: np.array([0, 3, 6])}
    return {one.name: made.get(one.name, lambda: SCORES[scores](rng))() for one in plain.inputs}


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("name", CASES)
def test_any_split_and_any_merge_tree_gives_what_log_space_gives(name, scores):
    """At scores of 1e4 the probabilities are 0 and their logs, taken one by one, are not finite: the stream is."""
    make, wanted = CASES[name]
    plain_term, rng = make(), np.random.default_rng(len(name) + len(scores))
    flash = stream(fuse(plain_term), x="s_x")
    arrays = _arrays(plain_term, scores, rng)
    fold = Fold(flash, flash.forms[0], arrays, {"q": 3, "x": LENGTH})
    whole = {plain_term.outputs[0]: wanted(**arrays)}
    for _ in range(TRIALS if scores == "small" else 10):
        cuts = random_cuts(LENGTH, rng)
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


@pytest.mark.parametrize("name", ["all logs", "largest log", "soft targets"])
def test_a_row_that_sees_nothing_has_the_log_of_zero(name):
    make, _ = CASES[name]
    plain_term = make()
    flash = stream(fuse(plain_term), x="s_x")
    arrays = {one.name: np.full((3, LENGTH), -np.inf if one.name == "S" else 1.0) for one in plain_term.inputs}
    fold = Fold(flash, flash.forms[0], arrays, {"q": 3, "x": LENGTH})
    whole = outputs(plain_term, arrays)
    assert np.isinf(whole[plain_term.outputs[0]]).all()
    for cuts in ([0, LENGTH], [0, 3, LENGTH], [0, 0, 5, LENGTH]):
        close(fold.finish(fold.fold(cuts)), whole)


HIDDEN = ["guarded entropy", "powers", "spread of logs", "guarded targets", "guarded mean", "guarded divergence"]


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_hidden_counts_for_nothing_where_the_diagram_says_so(name):
    """Rows and first chunks that see nothing, single hidden keys, weights of 0: as the reference, 0 log 0 being 0."""
    make, _ = CASES[name]
    plain_term, rng = make(), np.random.default_rng(len(name))
    flash = stream(fuse(plain_term), x="s_x")
    hidden = rng.random((4, LENGTH)) < 0.4
    hidden[1], hidden[2, :4], hidden[3, 4:] = True, True, True
    arrays = {one.name: np.where(hidden, 0.0 if one.name == "Y" else -np.inf, rng.normal(size=(4, LENGTH)) * 3)
              for one in plain_term.inputs}  # fmt: skip
    fold, whole = Fold(flash, flash.forms[0], arrays, {"q": 4, "x": LENGTH}), outputs(plain_term, arrays)
    assert np.isfinite(whole[plain_term.outputs[0]]).all()
    for cuts in ([0, LENGTH], [0, 4, LENGTH], [0, 0, 3, 5, LENGTH], [0, 1, 2, 3, 4, 5, 6, LENGTH]):
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


def test_what_the_other_hides_and_this_one_sees_is_infinitely_far():
    plain_term = guarded_divergence()
    flash = stream(fuse(plain_term), x="s_x")
    arrays = {"S": np.zeros((1, 4)), "R": np.array([[0.0, -np.inf, 0.0, 0.0]])}
    fold = Fold(flash, flash.forms[0], arrays, {"q": 1, "x": 4})
    assert (
        outputs(plain_term, arrays)[plain_term.outputs[0]]
        == fold.finish(fold.fold([0, 1, 2, 4]))[plain_term.outputs[0]]
        == np.inf
    )


@pytest.mark.parametrize("name", CASES)
def test_the_shortest_axes(name):
    make, _ = CASES[name]
    plain_term, rng = make(), np.random.default_rng(0)
    flash = stream(fuse(plain_term), x="s_x")
    for length in (0, 1):
        arrays = {one.name: rng.integers(0, 1, 3) if one.dtype == "int64" else rng.random((3, length)[: len(one.axes)])
                  for one in plain_term.inputs}  # fmt: skip
        sizes = {"q": 3, "x": length}
        whole = {plain_term.outputs[0]: ops.reference(plain_term, arrays)}
        fold = Fold(flash, flash.forms[0], arrays, sizes)
        for cuts in ([0, length], [0, 0, length]):
            close(fold.finish(fold.fold(cuts)), whole)


s, m, z, y, t = map(value, "smzyt")
WAITING = frozenset([m, z, y, t])


@pytest.mark.parametrize(
    ("inside", "wanted"),
    [
        (quotient(sympy.exp(s - m), 1), s - m),
        (sympy.exp(s - m) / (z**2 + 1), s - m - sympy.log(z**2 + 1)),
        (2 ** (s - m), (s - m) * sympy.log(2)),
        (s**2 / t, 2 * sympy.log(sympy.Abs(s)) - sympy.log(t)),
        (sympy.Abs(s) ** 3 * quotient(1, t), 3 * sympy.log(sympy.Abs(s)) - finite(sympy.log(t))),
        (quotient(sympy.exp(s - m), z), None),
        (s * sympy.exp(s - m), None),
        (s / t, None),
        (sympy.exp(s - m) + 1, None),
        (-sympy.exp(s - m) * t, None),
    ],
)
def test_a_log_is_opened_where_no_factor_is_negative_and_stays_whole_elsewhere(inside, wanted):
    """t sums magnitudes of s, so that nothing is divided by it but where it is 0; of z and y nothing is known."""
    signs = Signs({t: sympy.Abs(s)}, lambda expr: expr)
    whole = sympy.log(factored(inside, WAITING), evaluate=False)
    assert opened(whole, WAITING, signs) == (whole if wanted is None else wanted)
