"""Sums of p log p and of exp(s - mean s) on the engines: the program, numba and Triton's interpreter give what log
space gives, hidden keys and all, and move what the formulas say; and so do the kernels of a split."""

import numpy as np
import pytest
import test_derive_exponents as exponents
import test_derive_logs as logs
from strategies import Labelled
from test_counted_equals_formula import agree
from triton_cases import run as run_on_triton

from diagkit import ops
from diagkit.bench import Kernel
from diagkit.derive import fuse, group, split, stream
from diagkit.program import lower

LENGTH = logs.LENGTH
MADE = {
    "guarded entropy": logs.guarded_entropy,
    "guarded divergence": logs.guarded_divergence,
    "guarded targets": logs.guarded_targets,
    "powers": logs.powers,
    "mean": exponents.CASES["mean"],
    "mean, weights": exponents.CASES["mean, weights"],
}


def hidden_arrays(plain, rng):
    """Scores of which rows, first chunks and single keys are hidden; of scores around a mean, none."""
    hides = any("softmax" in getattr(box, "title", "") for box in plain.boxes)
    hidden = (rng.random((4, LENGTH)) < 0.4) & hides
    hidden[1], hidden[2, :4] = hides, hides
    made = {"V": rng.normal(size=(LENGTH, 2)), "Y": np.where(hidden, 0, rng.random((4, LENGTH)))}
    scores = {name: np.where(hidden, -np.inf, rng.normal(size=(4, LENGTH)) + 100 * (not hides)) for name in "SR"}
    return {one.name: (made | scores)[one.name].astype(np.float32) for one in plain.inputs}


def streamed(plain):
    return stream(group(fuse(plain), q="g_q"), x="s_x")


ENGINES = {
    "program": lambda term, arrays: lower(term, g_q=2, s_x=3).run(**arrays),
    "numba": lambda term, arrays: Kernel(lower(term, g_q=2, s_x=3), "numba")(**arrays),
    "triton": run_on_triton,
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", MADE)
def test_engines_give_what_the_reference_gives(name, engine):
    plain = MADE[name]()
    arrays = hidden_arrays(plain, np.random.default_rng(3))
    wanted = ops.reference(plain, arrays)
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(ENGINES[engine](streamed(plain), arrays), wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["guarded entropy", "guarded divergence", "guarded targets"])
def test_scores_of_ten_thousand(name, engine):
    """Single precision holds such scores to 1e-3, and so the results."""
    plain, rng = MADE[name](), np.random.default_rng(5)
    arrays = {n: v.astype(np.float32) for n, v in logs._arrays(plain, "of either sign", rng).items()}
    wanted = logs.CASES[name][1](**{n: v.astype(float) for n, v in arrays.items()})
    np.testing.assert_allclose(ENGINES[engine](streamed(plain), arrays), wanted, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("name", MADE)
def test_the_kernels_of_a_split(name):
    plain = MADE[name]()
    arrays = hidden_arrays(plain, np.random.default_rng(4))
    cut = split(fuse(plain), x=3)
    np.testing.assert_allclose(ops.reference(cut, arrays), ops.reference(plain, arrays), rtol=1e-6, atol=1e-9)
    found = lower(cut).run(**arrays)
    np.testing.assert_allclose(found, ops.reference(plain, arrays), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", MADE)
def test_counts_equal_formulas(name):
    term = streamed(MADE[name]())
    for length in (0, 1, LENGTH):
        sizes = {"q": 5, "x": length, "e": 2, "g_q": 2, "s_x": 3}
        agree(Labelled(term, {n: v for n, v in sizes.items() if n in term.axes or n[:2] in ("g_", "s_")}))
