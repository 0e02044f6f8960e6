"""Rows of the sheet's tables that stand nowhere else among the tests: what costs say, as equal formulas, and what a
counted run says where the sheet is not right.

The other rows are in `test_cost_known`, `test_cost_optimum`, `test_cost_transfers`, `test_cost_memory` and
`test_cost_work` (products and attention), `test_cost_bits` (formats), `test_derive_split` (parts), and for the
catalogue of streams in `derive_cases.FORMS`, each of which is folded and merged in `test_derive_stream`.
"""

import numpy as np
import pytest
import sympy
import view_cases
from cost_cases import flash, tiled_matmul

import diagkit as dk
from diagkit.cost import optimum, transfers
from diagkit.machine import load
from diagkit.term import names, size

q, x, d, e, a, b, c, M, m = map(size, ("q", "x", "d", "e", "a", "b", "c", "M", "m"))
g, s, g_a, g_c = map(size, ("g_q", "s", "g_a", "g_c"))


def same(left, right):
    return sympy.simplify(sympy.expand(left - right)) == 0


# --- section 2: the matrix product -----------------------------------------------------------------------------


def test_a_product_is_its_groups_times_what_one_moves():
    """(a / g_a)(c / g_c) groups of b (g_a + g_c) + g_a g_c; with room for everything ab + bc + ac are left."""
    moved = transfers(tiled_matmul())
    groups = (a / g_a) * (c / g_c)
    assert same(moved.relaxed().total(), groups * moved.per_group().total())
    assert same(moved.total().subs({g_a: a, g_c: c}), a * b + b * c + a * c)


def test_a_product_whose_results_are_stored_in_fewer_bytes_than_they_are_summed_in():
    """H* = 2abc sqrt(b_A b_B b_acc / M) + b_out ac, and the tiles of both sides, for b_acc = 4 and b_out = 2."""
    A = dk.array("A", *dk.axes("a b"), dtype="fp8e4m3")
    B = dk.array("B", *dk.axes("b c"), dtype="fp16")
    C = dk.cast(dk.einsum("a b, b c -> a c", A, B), "fp16", name="C")
    made = dk.Diagram(C).fuse().group(a="g_a", c="g_c").stream(b="s_b")
    best = optimum(made, M, unit="bytes", napkin=False)
    b_A, b_B, b_acc, b_out = 1, 2, 4, 2
    assert same(best.transfers, 2 * a * b * c * sympy.sqrt(sympy.Integer(b_A * b_B * b_acc) / M) + b_out * a * c)
    assert same(best.tiles[g_a], sympy.sqrt(M * sympy.Rational(b_B, b_acc * b_A)))
    assert same(best.tiles[g_c], sympy.sqrt(M * sympy.Rational(b_A, b_acc * b_B)))


def test_a_chunk_of_s_costs_s_over_m_more():
    """2abc / (sqrt(M + s^2) - s) is 2abc (M^(-1/2) + s / M) but for terms of M^(-3/2)."""
    best = optimum(tiled_matmul(), M, s_b=s)
    rest = (best.transfers - a * c) / (2 * a * b * c) - 1 / sympy.sqrt(M) - s / M
    assert sympy.limit(rest * M ** sympy.Rational(3, 2), M, sympy.oo) == s**2 / 2


# --- section 3: attention --------------------------------------------------------------------------------------


def test_keys_and_values_of_different_widths():
    """H = (q + xq / g)(d_k + d_v)."""
    assert same(transfers(flash()).relaxed().total(), (q + x * q / g) * (d + e))


def layer(groups):
    """Attention with its four projections, from tokens of m features; k heads of keys, `groups` times as many of
    queries."""
    queries, keys, model, width, k = dk.axes("q x m d k")
    r = dk.axis("r", groups)
    X, Y = dk.array("X", queries, model), dk.array("Y", keys, model)
    W_Q, W_O = (dk.weight(name, model, k, r, width) for name in ("W_Q", "W_O"))
    W_K, W_V = (dk.weight(name, model, k, width) for name in ("W_K", "W_V"))
    Q = dk.contract(X, W_Q, over=model)
    K, V = dk.contract(Y, W_K, over=model), dk.contract(Y, W_V, over=model)
    P = dk.softmax(dk.contract(Q, K, over=width), over=keys)
    return dk.Diagram(dk.contract(dk.contract(P, V, over=keys), W_O, over=(k, r, width), name="O"), name="layer")


@pytest.mark.parametrize("groups", [1, 4])
def test_shared_keys_save_projections_and_parameters(groups):
    """FLOP 4xmhd / g + 4qmhd + 4qxhd, parameters 2mhd + 2mhd / g, for g query heads per key head: h = k g.

    The sheet gives 2qxmhd for the products of attention itself. Counted they are two of 2qxhd: the width m of the
    model does not enter them.
    """
    made, h = layer(groups), size("k") * groups
    flop = 4 * x * m * h * d / groups + 4 * q * m * h * d + 4 * q * x * h * d
    assert same(made.work().flop(), flop)
    held = sum(sympy.Mul(*(axis.size for axis in one.axes)) for one in made.inputs if one.weight)
    assert same(held, 2 * m * h * d + 2 * m * h * d / groups)
    sizes = {"q": 3, "x": 5, "m": 7, "d": 2, "k": 2}
    assert made.lower(**sizes).count().flops == flop.subs({size(name): number for name, number in sizes.items()})


def test_decoding_waits_for_memory_until_295_heads_share_their_keys():
    """2r / b FLOP a byte reach the ridge of an H100 in fp16 at r = ridge b / 2 = 295; latent attention has 242
    FLOP a byte: below that ridge, above the 206 of an H200."""
    ridges = {name: load(name).ridge("fp16") for name in ("H100-SXM", "H200-SXM")}
    assert round(ridges["H100-SXM"] * 2 / 2) == 295 and round(ridges["H200-SXM"]) == 206
    latent = 278_528 / (2 * (512 + 64))
    assert round(latent) == 242 and ridges["H200-SXM"] < latent < ridges["H100-SXM"]


def test_weights_are_made_again_rather_than_stored():
    """4 bytes of a stored weight take an H100 the time of about 1200 FLOP; making it again takes 2d: 5 to 10 times
    fewer for d = 64 and 128."""
    machine = load("H100-SXM")
    stored = 4 * machine.peak("fp16") / machine.bandwidth("global")
    assert stored == pytest.approx(1200, rel=0.02)
    assert stored / (2 * 128) == pytest.approx(5, rel=0.1) and stored / (2 * 64) == pytest.approx(10, rel=0.1)


# --- section 7: the catalogue ----------------------------------------------------------------------------------

rows, keys, wide = dk.axes("q x d")
S = dk.array("S", rows, keys)


def test_softmax_alone_takes_two_passes():
    """The first streams (m, z), kept as one logarithm; the second maps. S is read twice."""
    L = dk.logsumexp(S, over=keys, name="L")
    made = dk.Diagram(dk.exp(S - L, name="E"), name="two passes").stream(x="s_x", region="L")
    (form,) = made.forms
    assert [state.name for state in form.state] == ["L.max", "L.sum"]
    with pytest.raises(dk.StreamError, match="keeps x and needs the whole row"):
        dk.Diagram(dk.softmax(S, over=keys, name="P")).stream(x="s_x")
    assert made.transfers().by_array()["S"] == 2 * q * x
    scores = np.random.default_rng(0).normal(size=(3, 11)) * 5
    weights = np.exp(scores - scores.max(1, keepdims=True))
    np.testing.assert_allclose(made.lower(s_x=4).run(S=scores), weights / weights.sum(1, keepdims=True))


def test_rms_norm_alone_is_refused():
    with pytest.raises(dk.StreamError, match="keeps x and needs the whole row"):
        dk.Diagram(dk.rms_norm(S, over=keys, name="N")).fuse().stream(x="s_x")


def test_a_deviation_is_the_tail_of_a_variance():
    made = dk.Diagram(dk.sqrt(dk.variance(S, over=keys), name="D")).fuse().stream(x="s_x")
    assert {box.name for box in made.forms[0].tail} >= {"D"} and made.law(S=_scores())
    np.testing.assert_allclose(made.lower(s_x=3).run(S=_scores()), _scores().std(1))


def test_averaging_softmax_by_blocks_is_wrong():
    """The negative control: what every chunk normalises by itself is no softmax of the whole."""
    V = dk.array("V", keys, wide)
    made = dk.Diagram(dk.einsum("q x, x d -> q d", dk.softmax(S, over=keys), V, name="O"))
    scores, values = _scores(), np.random.default_rng(2).normal(size=(11, 2))
    whole = made(S=scores, V=values)
    blocks = [made(S=scores[:, at], V=values[at]) for at in (slice(0, 6), slice(6, 11))]
    assert np.abs(sum(blocks) / 2 - whole).max() > 0.1
    streamed = made.fuse().stream(x="s_x").lower(s_x=6).run(S=scores, V=values)
    np.testing.assert_allclose(streamed, whole)


def _scores():
    return np.random.default_rng(1).normal(size=(3, 11)) * 3


FUSED = {
    "what comes before is part of the step": (lambda: dk.amax(dk.exp(S) * 2, over=keys, name="R"), ["R"], "q"),
    "a tail that does not need the axis": (lambda: dk.tanh(dk.total(S, over=keys, name="R")), ["R"], "q"),
    "another axis is one more axis of the state": (
        lambda: dk.einsum("q x, x d -> q d", S, dk.array("V", keys, wide), name="R"), ["R"], "q d",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", FUSED)
def test_rules_of_fusion(rule):
    make, states, axes = FUSED[rule]
    (form,) = dk.Diagram(make()).fuse().stream(x="s_x").forms
    assert [state.name for state in form.state] == states
    assert " ".join(names(form.state[0].axes)) == axes


def test_streams_side_by_side_have_the_states_of_both():
    A, B = dk.amax(S * 1, over=keys, name="A"), dk.total(S * 1, over=keys, name="B")
    both = dk.Diagram(A + B, name="both").fuse().stream(x="s_x")
    assert [state.name for state in both.forms[0].state] == ["A", "B"]


def test_after_the_axis_is_gone_nothing_may_need_it_again():
    centred = S - dk.mean(S, over=keys)
    with pytest.raises(dk.StreamError, match="keeps x and needs the whole row"):
        dk.Diagram(centred, name="centred").fuse().stream(x="s_x")


def test_linear_attention_without_an_order_is_two_products():
    """(phi(Q) (phi(K)^T V)) / (phi(Q) sum phi(K)): streamed over the keys, a state of d x e and one of d."""
    e_ = dk.axis("e")
    K, V = dk.relu(dk.array("K", keys, wide)), dk.array("V", keys, e_)
    kv, k = dk.einsum("x d, x e -> d e", K, V, name="kv"), dk.total(K, over=keys, name="k")
    states = dk.Diagram(kv, k, name="states").fuse().stream(x="s_x")
    assert [state.name for state in states.forms[0].state] == ["kv", "k"]
    assert states.law(K=np.ones((9, 2)), V=_scores().T[:9])


def test_a_convolution_is_a_contraction_over_channels_with_a_halo():
    """H = (p / g_p)(m / g_m)[(g_p + w - 1) c + w c g_m + g_p g_m], each group counted exactly."""
    p, w, m, g_p, g_m = map(size, ("p", "w", "m", "g_p", "g_m"))
    made = view_cases.convolution()
    moved = made.transfers()
    assert same(moved.relaxed().total(), (p / g_p) * (m / g_m) * ((g_p + w - 1) * c + w * c * g_m + g_p * g_m))
    assert same(moved.per_group().total(), (g_p + w - 1) * c + w * c * g_m + g_p * g_m)
    assert [state.name for state in made.forms[0].state] == ["Y"] and made.forms[0].method == "plain"
    sizes = {"p": 29, "w": 3, "c": 5, "m": 4, "g_p": 8, "g_m": 2, "s_c": 2}
    assert made.lower(**sizes).count().total() == moved.total(**sizes)


@pytest.mark.parametrize("causal", [False, True])
def test_positions_of_windows_are_the_ordered_class(causal):
    """The state would be the last w - 1 inputs, handed on in order: no merge. Positions are grouped instead."""
    naive = view_cases.convolution(causal).erase()
    with pytest.raises(dk.StreamError, match="handed on in order and has no merge") as refused:
        naive.fuse().stream(p="s_p")
    assert refused.value.axis == "p" and "group(p=...)" in refused.value.remedy
    assert naive.fuse().group(p="g_p").label("group", "p")
