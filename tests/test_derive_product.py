"""Products over an axis: in the reference, in streams and their merges, in both kernels, counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import diagkit as dk

q, x = dk.axes("q x")
X = dk.array("X", q, x)
SPECIAL = [0.0, -2.0, 0.5, 3.0, np.inf, -np.inf, np.nan]


def streamed(value):
    return dk.Diagram(value).fuse().group(q="g_q").stream(x="s_x")


PLAIN = streamed(dk.product(X, over="x", name="P"))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 4), st.integers(1, 11), st.integers(0, 10**6))
def test_chunks_give_what_numpy_gives(rows, length, g, s, seed):
    """Zeros, infinities and what is no number included."""
    factors = np.random.default_rng(seed).choice(SPECIAL, (rows, length))
    np.testing.assert_array_equal(PLAIN.lower(g_q=g, s_x=s).run(X=factors), factors.prod(-1))


@pytest.mark.parametrize("target", ["numba", "triton"])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_kernels_multiply_every_kind_of_number_and_move_what_is_counted(target):
    """Powers of two, so that the order of factors does not matter; lengths that no tile divides."""
    tile = {"q": 9, "x": 23, "g_q": 4, "s_x": 5}
    kernel = PLAIN.kernel(target, **tile)
    assert kernel.check(seed=0)
    factors = np.random.default_rng(1).choice([0.5, -2.0, 1.0, 4.0], (9, 23)).astype(np.float32)
    factors[:4, 3] = 0, np.inf, -np.inf, np.nan
    factors[4, :2] = 0, np.inf
    np.testing.assert_array_equal(kernel(X=factors), factors.prod(-1))
    assert kernel.count().total_bytes() == PLAIN.transfers().bytes().total(**tile)


@pytest.mark.parametrize("target", ["numba", "triton"])
def test_several_axes_and_an_inner_one_at_once(target):
    """Over the first axis and a middle one: numba multiplies into a tile, Triton axis by axis."""
    a, b = dk.axes("a=3 b=5")
    diagram = dk.Diagram(dk.product(dk.array("A", a, q, b, x), over=(a, b), name="P")).fuse().group(q="g_q")
    kernel = diagram.kernel(target, q=7, x=2, g_q=4)
    numbers = np.random.default_rng(2).choice([0.5, -2.0, 1.0], (3, 7, 5, 2)).astype(np.float32)
    np.testing.assert_array_equal(kernel(A=numbers), numbers.prod((0, 2)))


def test_of_nothing_it_is_one_in_both_libraries():
    torch = pytest.importorskip("torch")
    naive = dk.Diagram(dk.product(X, over="x"))
    np.testing.assert_array_equal(naive(X=np.zeros((2, 0))), [1, 1])
    numbers = torch.tensor([[2.0, 3.0], [0.5, -1.0]])
    assert naive(X=numbers).tolist() == [6.0, -0.5] and naive(X=numbers[:, :0]).tolist() == [1.0, 1.0]


def test_partial_results_of_parts_multiply():
    numbers = np.random.default_rng(3).normal(size=(4, 17))
    parted = dk.Diagram(dk.product(X, over="x")).fuse().stream(x="s_x").split(x=3)
    np.testing.assert_allclose(parted(X=numbers), numbers.prod(-1))
    np.testing.assert_allclose(parted.lower().run(X=numbers), numbers.prod(-1))


def test_the_state_is_one_number_per_row_that_starts_at_one():
    (form,) = PLAIN.forms
    assert [(state.name, state.start) for state in form.state] == [("P", 1)] and form.method == "plain"
    assert (form.merge[-1].expr - dk.arg(0) * dk.arg(1)).expand() == 0


def test_masked_factors_skip_their_chunks():
    """A causal mask with 1 elsewhere leaves chunks out; with 0 elsewhere it cannot."""

    def loads(elsewhere):
        seen = dk.where(dk.causal(q, x), X, elsewhere)
        flash = streamed(dk.product(seen, over="x", name="P"))
        sizes = {"q": 12, "x": 12, "g_q": 4, "s_x": 4}
        program = flash.lower(**sizes)
        numbers = np.random.default_rng(4).normal(size=(12, 12))
        wanted = np.where(np.tri(12, dtype=bool), numbers, elsewhere).prod(-1)
        np.testing.assert_allclose(program.run(X=numbers), wanted)
        assert program.count().total() == flash.transfers().total(**sizes)
        return flash.transfers().total(**sizes)

    assert loads(1) < loads(0) == 12 * 12 + 12


def test_a_product_of_what_waits_is_refused():
    with pytest.raises(dk.StreamError, match=r"changes what it takes the product of") as refusal:
        dk.Diagram(dk.product(X / dk.amax(X, over="x"), over="x")).fuse().stream(x="s_x")
    assert "factor" not in refusal.value.reason


def test_where_the_largest_is_attained_products_begin_anew():
    """The lemma of argmax for products: of v where s is largest, and of 1 elsewhere."""
    V = dk.array("V", x)
    flash = streamed(dk.product(dk.where(dk.equal(X, dk.amax(X, over="x")), V, 1), over="x", name="P"))
    rng = np.random.default_rng(5)
    scores, values = rng.integers(0, 3, (5, 11)) * 1.0, rng.normal(size=11)
    wanted = np.where(scores == scores.max(-1, keepdims=True), values, 1).prod(-1)
    np.testing.assert_allclose(flash.lower(g_q=2, s_x=3).run(X=scores, V=values), wanted)


def test_the_picture_says_so():
    assert "Π" in dk.Diagram(dk.product(X, over="x", name="P"))._repr_mimebundle_()["image/svg+xml"]


def test_a_product_of_short_whole_numbers_takes_32_bits():
    short = dk.Diagram(dk.product(dk.array("X", q, x, dtype="int8"), over="x", name="P"))
    assert short.wires["P"].dtype == "int32"
