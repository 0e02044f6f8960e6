"""The formulas against the counted run, to the element: two implementations that share no code."""

import cost_cases as cases
import derive_cases
import pytest
from cost_cases import MASKS, heads, masked, sizes, tiled_matmul
from derive_cases import attention
from hypothesis import given, settings

import diagkit as dk
from diagkit.cost import memory, transfers, work
from diagkit.derive import fuse, group, stream
from diagkit.program import lower


def agree(term, at):
    """Transfers, peak per kernel in elements and bytes, and FLOP of the contractions."""
    counted = lower(term, **at).count()
    assert {tuple(key): amount for key, amount in transfers(term).at(**at).items()} == counted.transfers
    assert transfers(term).bytes().total(**at) == counted.total_bytes()
    held = memory(term)
    assert held.peak(**at) == counted.peak
    assert held.bytes().peak(**at) == counted.peak_bytes
    assert work(term).flop(**at) == counted.flops


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=25)
@given(s=sizes())
def test_flash(mask, s):
    agree(masked(mask), s)


@settings(max_examples=25)
@given(s=sizes("abc", (("a", "g_a"), ("b", "s_b"), ("c", "g_c"))))
def test_matmul(s):
    agree(tiled_matmul(), s)
    agree(tiled_matmul("fp8e4m3", "fp16"), s)


@settings(max_examples=15)
@given(s=sizes("krqxd", (("k", "g_k"), ("r", "g_r"), ("q", "g_q"), ("x", "s_x"))))
def test_heads(s):
    agree(heads(), s)
    agree(heads("x d"), s)


@settings(max_examples=15)
@given(s=sizes())
def test_attention_in_mixed_formats(s):
    """fp16 queries, fp8 keys, 4-bit values, statistics and accumulator in fp32, a cast at the end."""
    q, x, d, e = cases.q, cases.x, cases.d, cases.e
    Q, K, V = dk.array("Q", q, d, dtype="fp16"), dk.array("K", x, d, dtype="fp8e4m3"), dk.array("V", x, e, dtype="int4")
    P = dk.cast(dk.softmax(dk.masked(dk.einsum("q d, x d -> q x", Q, K), dk.causal(q, x)), over=x), "fp8e4m3")
    O = dk.cast(dk.einsum("q x, x e -> q e", P, V), "fp16")
    term = derive_cases.term(O, P=P, O=O)
    agree(term, {name: s[name] for name in "qxde"})
    agree(group(fuse(term), q="g_q"), {name: s[name] for name in ("q", "x", "d", "e", "g_q")})
    Y = dk.cast(dk.einsum("q x, x e -> q e", dk.softmax(dk.einsum("q d, x d -> q x", Q, K), over=x), V), "bf16")
    agree(stream(group(fuse(derive_cases.term(Y, Y=Y)), q="g_q"), x="s_x"), s)


def layer():
    """RMSNorm, then two projections, a gate and a residual; weights shared by all rows."""
    t, m, f = dk.axes("t m f")
    X, U, G, D = dk.array("X", t, m), dk.weight("U", m, f), dk.weight("G", m, f), dk.weight("D", f, m)
    N = dk.rms_norm(X, over=m)
    H = dk.silu(dk.einsum("t m, m f -> t f", N, G)) * dk.einsum("t m, m f -> t f", N, U)
    Y = X + dk.einsum("t f, f m -> t m", H, D)
    return derive_cases.term(Y, N=N, H=H, Y=Y)


@settings(max_examples=15)
@given(s=sizes("tmf", (("t", "g_t"),)))
def test_a_layer_unfused_fused_and_grouped(s):
    plain = {name: s[name] for name in "tmf"}
    agree(layer(), plain)
    agree(fuse(layer()), plain)
    agree(group(fuse(layer()), t="g_t"), s)


@settings(max_examples=15)
@given(s=sizes())
def test_unfused_attention(s):
    agree(attention(), {name: s[name] for name in "qxde"})


@settings(max_examples=15)
@given(s=sizes("qxe", (("x", "s_x"),)))
def test_other_streams(s):
    q, x, e = cases.q, cases.x, cases.e
    X, W = dk.array("X", q, x), dk.weight("W", x, e)
    norms = (dk.rms_norm(X, over=x), dk.layer_norm(X, over=x), dk.spherical(X, over=x))
    for N in norms:
        Y = dk.einsum("q x, x e -> q e", N, W)
        agree(stream(fuse(derive_cases.term(Y, N=N, Y=Y)), x="s_x"), s)
    L = dk.logsumexp(X, over=x)
    agree(stream(derive_cases.term(L, L=L), x="s_x"), {name: s[name] for name in ("q", "x", "s_x")})
