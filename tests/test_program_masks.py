"""Masks of positions as loop bounds, and the rows of the field's known faults, on programs."""

import numpy as np
import oracle
import pytest
import sympy
from derive_cases import attention, q, x
from hypothesis import given
from hypothesis import strategies as st
from program_cases import flash, grouped_heads
from strategies import AXES, masks_over

import diagkit as dk
from diagkit import derive, ops
from diagkit.program import first, last, lower
from diagkit.term import Term, size


def run(term, tiles, **arrays):
    return lower(term, **tiles).run(**{name: np.asarray(value, float) for name, value in arrays.items()})


def zeros(rows, cols, values):
    """q = k = 0, so that every row is the mean of the values it sees."""
    return {"Q": np.zeros((rows, 1)), "K": np.zeros((cols, 1)), "V": np.reshape(values, (cols, 1))}


@pytest.mark.parametrize("tile", [1, 2, 3, 64])
def test_causal_names_its_alignment(tile):
    tiles = {"g_q": tile, "s_x": tile}
    arrays = zeros(2, 4, [1, 2, 3, 4])
    assert run(flash(mask=dk.causal(q, x)), tiles, **arrays).ravel().tolist() == [1, 1.5]
    assert run(flash(mask=dk.causal(q, x, "bottom-right")), tiles, **arrays).ravel().tolist() == [2, 2.5]


def test_padding_is_never_counted():
    made = run(flash(), {"g_q": 128, "s_x": 128}, **zeros(192, 192, np.arange(192)))
    np.testing.assert_allclose(made, 95.5)


def test_a_row_that_sees_nothing_is_zero():
    term = flash(mask=dk.array("M", q, x, dtype="bool"))
    see = np.array([[False] * 4, [True] * 4])
    made = lower(term, g_q=2, s_x=2).run(**zeros(2, 4, [1.0, 2, 3, 4]), M=see)
    assert made.ravel().tolist() == [0, 2.5]


def test_a_dead_tile_before_a_live_one():
    term = flash(mask=dk.array("M", q, x, dtype="bool"))
    see = np.array([[False, False, True, True]])
    made = lower(term, g_q=1, s_x=2).run(**zeros(1, 4, [1.0, 2, 3, 5]), M=see)
    assert made.tolist() == [[4.0]]


def test_logsumexp_of_a_row_that_sees_nothing_is_minus_infinity():
    L = dk.logsumexp(dk.masked(dk.array("S", q, x), dk.array("M", q, x, dtype="bool")), over=x)
    term = derive.stream(derive.fuse(Term(*ops.trace([L], {"L": L}), "lse")), x="s_x")
    see = np.array([[False] * 3, [True] * 3])
    made = lower(term, s_x=2).run(S=np.array([[1.0, 2, 3]] * 2), M=see)
    np.testing.assert_allclose(made, [-np.inf, 3.407606], rtol=1e-6)


@pytest.mark.parametrize("mask", [None, dk.causal(q, x), dk.causal(q, x, "bottom-right"), dk.window(q, x, 2)])
@pytest.mark.parametrize(("rows", "cols"), [(2, 0), (0, 3), (0, 0)])
def test_empty_axes(mask, rows, cols):
    program = lower(flash(mask=mask), g_q=2, s_x=2)
    arrays = {"Q": np.ones((rows, 3)), "K": np.ones((cols, 3)), "V": np.ones((cols, 2))}
    made = program.run(**arrays)
    assert made.shape == (rows, 2)
    assert not made.any()
    assert program.count(**arrays).transfers["K", 0, 1, "input"] == 0


def test_an_empty_axis_in_several_kernels():
    arrays = {"Q": np.ones((0, 3)), "K": np.ones((4, 3)), "V": np.ones((4, 2))}
    assert lower(attention()).run(**arrays).shape == (0, 2)


def test_logits_far_beyond_half_precision():
    term = flash()
    arrays = {
        "Q": np.full((4, 128), 256, "float16"),
        "K": np.full((6, 128), 256, "float16"),
        "V": np.ones((6, 2), "float16"),
    }
    assert (lower(term, g_q=2, s_x=4).run(**arrays) == 1).all()


def test_grouped_heads_read_their_own_keys():
    random = np.random.default_rng(0)
    arrays = {"Q": random.normal(size=(2, 2, 1, 3)), "K": random.normal(size=(2, 5, 3)), "V": np.ones((2, 5, 3))}
    arrays["V"] *= np.array([10, 20])[:, None, None]
    made = lower(grouped_heads(), g_q=1, s_x=2).run(**arrays)
    np.testing.assert_allclose(made[0, :, :, 0], [[10, 10], [20, 20]])


@pytest.mark.parametrize(
    ("mask", "lo", "hi"),
    [
        (dk.causal(q, x), 0, sympy.Min(size("x"), last("q") + 1)),
        (dk.causal(q, x, "bottom-right"), 0, sympy.Min(size("x"), last("q") + size("x") - size("q") + 1)),
        (dk.window(q, x, 8), sympy.Max(0, first("q") - 7), sympy.Min(size("x"), last("q") + 1)),
        (dk.causal(q, x) | (dk.index(x) < 4), 0, sympy.Min(size("x"), sympy.Max(last("q") + 1, 4))),
        (dk.causal(q, x) | (dk.index(q) < 4), 0, size("x")),
        (dk.causal(q, x) & dk.window(q, x, 3), sympy.Max(0, first("q") - 2), sympy.Min(size("x"), last("q") + 1)),
    ],
)
def test_the_bounds_of_the_usual_masks(mask, lo, hi):
    loop = lower(flash(mask=mask)).kernels[0].loop
    assert (loop.lo, loop.hi) == (lo, hi)


def test_causal_visits_36_of_64_tiles():
    count = lower(flash(mask=dk.causal(q, x)), q=1024, x=1024, d=64, e=64, g_q=128, s_x=128).count()
    assert count.transfers["K", 0, 1, "input"] == 36 * 128 * 64


def test_keys_and_values_are_read_again_for_each_of_8_tiles_not_7_8():
    full = lower(flash(), q=1000, x=1000, d=64, e=64, g_q=128, s_x=128).count()
    assert full.transfers["K", 0, 1, "input"] + full.transfers["V", 0, 1, "input"] == 2 * 8 * 64000
    assert full.total() == 1_152_000


def test_a_mask_that_is_added_instead_bounds_nothing():
    """Where a hidden score still counts, no chunk may be left out."""
    S = dk.select(dk.causal(q, x), dk.array("S", q, x), 0)
    P = dk.total(dk.exp(S), over=x)
    term = derive.stream(derive.fuse(Term(*ops.trace([P], {"P": P}), "visible")), x="s_x")
    loop = lower(term).kernels[0].loop
    assert (loop.lo, loop.hi) == (0, size("x"))


def test_a_mask_of_given_numbers_bounds_nothing():
    loop = lower(flash(mask=dk.array("M", q, x, dtype="bool"))).kernels[0].loop
    assert (loop.lo, loop.hi, loop.masks) == (0, size("x"), ())


@given(st.data(), st.sampled_from([1, 2, 3, 7]), st.sampled_from([1, 2, 5, 9]), st.sampled_from([1, 2, 4]))
def test_bounds_leave_out_dead_positions_only_and_full_ones_are_full(data, rows, cols, tile):
    """Against the mask itself, position by position."""
    a, b = AXES[:2]
    mask = data.draw(masks_over(a, b))
    S = dk.masked(dk.array("S", a, b), mask)
    out = dk.logsumexp(S, over=b)
    seen = _seen(mask, rows, cols)
    term = derive.stream(derive.group(derive.fuse(Term(*ops.trace([out], {}), "seen")), a=tile), b="s_b")
    loop = lower(term, a=rows, b=cols).kernels[0].loop
    for start in range(0, rows, tile):
        stop = min(start + tile, rows)
        here = {first("a"): sympy.Integer(start), last("a"): sympy.Integer(stop - 1)}
        lo, hi, full_lo, full_hi = (int(p.xreplace(here)) for p in (loop.lo, loop.hi, loop.full_lo, loop.full_hi))
        live = seen[start:stop].any(0).nonzero()[0]
        assert all(lo <= position < hi for position in live)
        assert seen[start:stop, max(full_lo, 0) : max(full_hi, 0)].all() or not loop.masks


def _seen(mask, rows, cols):
    """The mask as an array over (a, b), by the oracle; one that lacks an axis says the same all along it."""
    plain = Term(*ops.trace([mask], {}), "mask")
    made = oracle.run(plain, {}, {"a": rows, "b": cols})[plain.outputs[0]]
    names = [axis.name for axis in plain.wires[plain.outputs[0]].axes]
    seen = np.zeros((rows, cols), bool)
    for i, j in np.ndindex(rows, cols):
        seen[i, j] = made[tuple({"a": i, "b": j}[name] for name in names)]
    return seen


def test_a_loop_that_never_runs_holds_no_chunk():
    """Its formula says what a kernel must have room for: chunks and scores beyond what such a run holds."""
    hidden = flash(mask=dk.index(x) > dk.index(q) + 100)
    sizes = {"q": 8, "x": 8, "d": 3, "e": 2, "g_q": 4, "s_x": 4}
    count = lower(hidden, **sizes).count()
    assert count.transfers["K", 0, 1, "input"] == count.transfers["V", 0, 1, "input"] == 0
    queries, results, statistics = 4 * 3, 4 * 2, 2 * 4
    assert count.peak == queries + results + statistics
    shown = lower(flash(mask=dk.index(x) >= dk.index(q)), **sizes).count()
    assert shown.peak == count.peak + 4 * (3 + 2) + 4 * 4
