"""What arrays of numpy and torch are taken, and what is refused before anything runs."""

import warnings

import numpy as np
import pytest

import diagkit as dk
from diagkit.term import InputError

torch = pytest.importorskip("torch", reason="torch is not installed here")
X = dk.array("X", dk.axis("x", 4))
DOUBLED = dk.Diagram(2 * X, name="doubled").fuse().group(x="g_x")
NUMBERS = np.array([1, -2, 3, 5], np.float32)


def engines():
    """By name, what runs the diagram."""
    return {
        "reference": DOUBLED,
        "program": DOUBLED.lower(g_x=3).run,
        "numba": DOUBLED.kernel("numba", g_x=3),
        "triton": DOUBLED.kernel("triton", g_x=3),
    }


def _quantized():
    with warnings.catch_warnings():  # torch gives this kind up
        warnings.simplefilter("ignore")
        return torch._empty_affine_quantized([4], scale=0.1, zero_point=0, dtype=torch.qint8)


REFUSED = {
    "hidden": (lambda: np.ma.masked_array(NUMBERS, mask=NUMBERS > 2), "hidden elements would count.*filled"),
    "meta": (lambda: torch.empty(4, device="meta"), "no numbers.*one that is filled"),
    "sparse": (lambda: torch.tensor(NUMBERS).to_sparse(), "to_dense"),
    "quantized": (_quantized, "dequantize"),
}


@pytest.mark.parametrize("engine", ["reference", "program", "numba", "triton"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_holds_no_plain_numbers_is_refused_by_name(name, engine):
    make, match = REFUSED[name]
    with pytest.raises(InputError, match=f"'X'.*{match}"):
        engines()[engine](X=make())


@pytest.mark.parametrize("engine", ["reference", "program", "numba"])
def test_views_with_the_sign_pending_and_masked_arrays_that_hide_nothing_are_numbers(engine):
    run = engines()[engine]
    np.testing.assert_array_equal(run(X=torch._neg_view(torch.tensor(NUMBERS))), -2 * NUMBERS)
    np.testing.assert_array_equal(run(X=np.ma.masked_array(NUMBERS)), 2 * NUMBERS)
