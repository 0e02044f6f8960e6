"""Transfers against loops over tiles, and against the known closed forms."""

import re

import cost_cases as cases
import derive_cases
import pytest
import sympy
from cost_cases import MASKS, flash, heads, masked, sizes, tiled_matmul
from derive_cases import attention
from hypothesis import given, settings

import diagkit as dk
from diagkit import ops
from diagkit.cost import Transfer, evaluate, transfers, visits, work
from diagkit.derive import fuse, group, stream
from diagkit.term import FormatError, InputError, Term, coordinate, size

q, x, d, e = map(size, "qxde")
g, n = cases.g, cases.n


def same(left, right):
    return sympy.expand(left - right) == 0


def test_unfused_counts_every_wire_once_per_crossing():
    counted = transfers(attention())
    assert [str(key) for key in counted] == [
        "input Q", "input K", "spill QK", "refill QK", "spill S", "refill S", "spill P", "refill P", "input V",
        "output O",
    ]  # fmt: skip
    assert counted.by_kind() == {
        "input": d * q + d * x + e * x,
        "spill": 3 * q * x,
        "refill": 3 * q * x,
        "output": e * q,
    }


def test_fusing_removes_exactly_the_round_trips():
    before, after = transfers(attention()), transfers(fuse(attention()))
    assert set(before) - set(after) == {key for key in before if key.kind in {"spill", "refill"}}
    assert all(after[key] == before[key] for key in after)


def test_an_output_that_is_read_again_is_stored_once_and_refilled():
    A = dk.exp(dk.array("X", derive_cases.q))
    B = A * A
    counted = transfers(derive_cases.term(A, B, A=A, B=B))
    assert counted[Transfer("A", 1, 0, "output")] == counted[Transfer("A", 0, 1, "refill")] == q
    assert len(counted) == 4


def test_grouped_loads_repeat_for_what_lacks_the_axis():
    counted = transfers(group(fuse(attention()), q="g_q"))
    assert counted[("K", 0, 1, "input")] == d * x * sympy.ceiling(q / g)
    assert counted[("Q", 0, 1, "input")] == d * q
    assert same(counted.relaxed().total(), d * q + e * q + q * x * (d + e) / g)
    assert counted.per_group().total() == d * g + e * g + d * x + e * x


def test_ceilings_are_kept():
    """1000 queries in tiles of 128, d = 64: 8 passes over K and V, not 7.8125."""
    counted = transfers(flash())
    at = {"q": 1000, "x": 1000, "d": 64, "e": 64, "g_q": 128}
    assert counted.total(**at) == 1_152_000
    assert counted.relaxed().total(**at) == 1_128_000


def brute_attention(visible, s):
    """Loads of K and V by going through the tiles and looking at every pair of positions."""
    keys = tiles = 0
    for first in range(0, s["q"], s["g_q"]):
        rows = range(first, min(first + s["g_q"], s["q"]))
        for start in range(0, s["x"], s["s_x"]):
            chunk = range(start, min(start + s["s_x"], s["x"]))
            if any(visible(i, j, s) for i in rows for j in chunk):
                keys, tiles = keys + len(chunk), tiles + 1
    return keys, tiles


VISIBLE = {
    "none": lambda i, j, s: True,
    "top-left": lambda i, j, s: j <= i,
    "bottom-right": lambda i, j, s: j <= i + s["x"] - s["q"],
    "window": lambda i, j, s: i - 3 < j <= i,
    "own": lambda i, j, s: j == i,
    "later": lambda i, j, s: i <= j,
    "every other": lambda i, j, s: 2 * j <= i,
}


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=25)
@given(s=sizes())
def test_masked_streams_load_the_tiles_that_show_something(mask, s):
    term = masked(mask)
    keys, tiles = brute_attention(VISIBLE[mask], s)
    counted = transfers(term).at(**s)
    assert counted[Transfer("K", 0, 1, "input")] == keys * s["d"]
    assert counted[Transfer("V", 0, 1, "input")] == keys * s["e"]
    assert counted[Transfer("Q", 0, 1, "input")] == s["q"] * s["d"]
    assert evaluate(visits(term)["O"][0], s) == tiles


def test_causal_visits_36_of_64_tiles():
    run, all_tiles = visits(masked("top-left"))["O"]
    at = {"q": 1000, "x": 1000, "g_q": 128, "s_x": 128}
    assert (evaluate(run, at), evaluate(all_tiles, at)) == (36, 64)


def test_a_mask_without_a_rule_skips_nothing():
    scattered = dk.equal(ops.index(cases.q) * ops.index(cases.x), 6)
    assert transfers(flash(mask=scattered)).total() == transfers(flash()).total()
    given_mask = dk.array("M", cases.q, cases.x, dtype="bool")
    assert transfers(flash(mask=given_mask)).by_array()["K"] == transfers(flash()).by_array()["K"]


def test_a_mask_after_which_the_step_still_acts_skips_nothing():
    """Hidden scores that are 0 instead of -oo still weigh in the softmax."""
    S = dk.select(
        ops.causal(cases.q, cases.x),
        dk.einsum("q d, x d -> q x", dk.array("Q", cases.q, cases.d), dk.array("K", cases.x, cases.d)),
        0,
    )
    O = dk.einsum("q x, x e -> q e", dk.softmax(S, over=cases.x), dk.array("V", cases.x, cases.e))
    run, every = visits(stream(group(fuse(derive_cases.term(O, O=O)), q="g_q"), x="s_x"))["O"]
    assert run == every


def at_n(expr):
    return sympy.expand(expr.subs({q: n, x: n, e: d}))


@pytest.mark.parametrize("mask", ["top-left", "bottom-right"])
def test_causal_closed_form(mask):
    """Attention: q = x = n, s | g | n: H = 3nd + n^2 d / g."""
    assert same(at_n(transfers(masked(mask)).relaxed().total()), 3 * n * d + n**2 * d / g)


def test_window_closed_form():
    """About 4nd + 2nd(W-1)/g, as usually stated; counted runs have less at the corner,
    where early rows see fewer than W keys: d w (w + g) / g with w = W - 1."""
    window = flash(mask=ops.window(cases.q, cases.x, size("W")))
    w = size("W") - 1
    closed = at_n(transfers(window).relaxed().total()).replace(sympy.Max, lambda _, inner: inner)
    assert same(closed, 4 * n * d + 2 * n * d * w / g - d * w * (w + g) / g)
    at = {"q": 64, "x": 64, "d": 2, "e": 2, "W": 9, "g_q": 8, "s_x": 4}
    assert transfers(window).total(**at) == transfers(window).relaxed().total(**at)


@given(s=sizes(names="qde", tiles=(("q", "g_q"),)))
def test_closed_forms_equal_the_sums_where_tiles_fit(s):
    for mask in ("none", "top-left", "bottom-right", "later"):
        counted = transfers(masked(mask))
        at = s | {"q": s["q"] * s["g_q"] * 2, "g_q": s["g_q"] * 2, "s_x": 2, "x": s["q"] * s["g_q"] * 2}
        assert counted.total(**at) == counted.relaxed().total(**at)


def test_streaming_changes_memory_and_not_transfers():
    grouped = group(fuse(attention()), q="g_q")
    assert transfers(stream(grouped, x="s_x")) == transfers(grouped)


def test_matmul_table():
    """Matrix product: per group b(g_a + g_c) + g_a g_c; in all abc(1/g_a + 1/g_c) + ac; with formats."""
    a, b, c, g_a, g_c = map(size, ("a", "b", "c", "g_a", "g_c"))
    counted = transfers(tiled_matmul())
    assert same(counted.per_group().total(), b * (g_a + g_c) + g_a * g_c)
    assert same(counted.relaxed().total(), a * b * c * (1 / g_a + 1 / g_c) + a * c)
    mixed = transfers(tiled_matmul("fp8e4m3", "fp16")).bytes()
    assert same(mixed.relaxed().total(), a * b * c * (1 / g_c + 2 / g_a) + 4 * a * c)  # products of fp8 add up in fp32
    assert same(mixed.per_group().total(), b * (g_a + 2 * g_c) + 4 * g_a * g_c)


def test_head_table():
    """Heads: in MHA the head tile cancels; in MQA it counts like rows."""
    k, r, g_k, g_r = map(size, ("k", "r", "g_k", "g_r"))
    grouped = transfers(heads()).relaxed().total()
    assert same(grouped, 2 * q * k * r * d + 2 * x * q * k * r * d / (g * g_r))
    multi_query = transfers(heads("x d")).relaxed().total()
    assert same(multi_query, 2 * q * k * r * d + 2 * x * q * k * r * d / (g * g_r * g_k))


def test_decode_reads_keys_and_values_by_their_own_heads():
    """Attention: one query, r query heads together per KV head: 2hd + 2 x h_kv d."""
    at = {"q": 1, "g_q": 1, "k": 4, "g_k": 1, "r": 8, "g_r": 8, "x": 100, "d": 16}
    assert transfers(heads()).total(**at) == 2 * 32 * 16 + 2 * 100 * 4 * 16


def test_latent_attention_streams_keys_and_values_as_one():
    """Latent attention: V is a slice of the latent K: h(c+r) + hc + x(c+r) ceil(h/g_h), 2h(2c+r) FLOP a key."""
    h, x, m, c = dk.axes("h x m c")
    latent = dk.array("L", x, m)
    S = dk.einsum("h m, x m -> h x", dk.array("Q", h, m), latent)
    V = ops.view(latent, {"m": coordinate("c")}, (x, c))
    O = dk.einsum("h x, x c -> h c", dk.softmax(S, over=x), V)
    term = stream(group(fuse(derive_cases.term(O, S=S, V=V, O=O)), h="g_h"), x="s_x")
    at = {"h": 128, "x": 1, "m": 576, "c": 512, "g_h": 50}
    assert transfers(term).total(**at) == 128 * 576 + 128 * 512 + 576 * 3
    assert work(term).flop(**at) == 278_528


def test_bytes_by_wire_by_one_format_and_by_array():
    counted = transfers(flash())
    total = counted.total()
    assert counted.bytes("fp16").total() == sympy.expand(2 * total)
    assert same(counted.bytes().total(), 4 * total)
    assert counted.bytes({"K": "int4"}).by_array()["K"] == counted.by_array()["K"] / 2
    assert counted.bytes().bytes() == counted.bytes()
    with pytest.raises(FormatError, match="no number format"):
        counted.bytes("fp12")


def test_counts_past_two_to_the_63_are_exact():
    at = {"q": 10**9, "x": 10**9 + 1, "d": 10**6, "e": 10**6, "g_q": 7}
    passes = -(-at["q"] // 7)
    assert transfers(flash()).total(**at) == 2 * 10**15 + 2 * 10**6 * at["x"] * passes > 2**63


def test_numbers_are_plain():
    counted = transfers(flash()).at(q=5, x=5, d=2, e=2, g_q=2)
    assert {type(value) for value in counted.values()} == {int}


def test_a_missing_size_is_named():
    with pytest.raises(InputError, match="'g_q' is not given"):
        transfers(flash()).at(q=5, x=5, d=2, e=2)


def test_integer_axes_give_integers():
    a, b = dk.axes("a=10 b=7")
    B = dk.exp(dk.array("A", a, b))
    term = group(derive_cases.term(B, B=B), a=4)
    assert transfers(term).total() == 140


def test_virtual_outputs_are_stored():
    mask = ops.causal(cases.q, cases.x)
    assert transfers(derive_cases.term(mask, M=mask)).total() == q * x


def test_display_is_deterministic_and_takes_any_name():
    odd = dk.axis('S & <"E"> \u03b2_I')
    B = dk.exp(dk.array("A & <b>", odd), name="N")
    shown = transfers(Term(*ops.trace([B])))
    assert "&lt;b&gt;" in shown._repr_html_()
    assert "<b>" not in shown._repr_html_()
    assert r"\&" in shown._repr_latex_()
    assert str(shown) == repr(shown) == str(transfers(Term(*ops.trace([B]))))
    assert not re.search("0x[0-9a-f]{6}", repr(shown))


def test_text_of_a_table():
    A = dk.exp(dk.array("X", derive_cases.q))
    assert str(transfers(derive_cases.term(A, A=A))) == (
        "array  kind    levels  elements\n"
        "X      input   0 → 1   q\n"
        "A      output  1 → 0   q\n"
        "total                  2*q"
    )
