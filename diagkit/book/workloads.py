"""The diagrams that a GPU is measured on: attention in many formats, what makes their codes, and others."""

from __future__ import annotations

from functools import cache

from diagkit import derive, ops
from diagkit.ops import Node
from diagkit.term import FORMATS, Term, quotient

_LARGEST = 256
"""What probabilities are multiplied by before they become 8-bit codes: they then use the range of e4m3."""


def _term(name: str, **outputs: Node) -> Term:
    return Term(*ops.trace(list(outputs.values()), outputs), name)


def _tiled(term: Term) -> Term:
    """One kernel: each head a group, queries grouped, keys streamed."""
    return derive.stream(derive.group(derive.fuse(term), h=1, q="g_q"), x="s_x")


def attention(dtype: str = "fp16", causal: bool = False) -> Term:
    """softmax(Q K / sqrt d) V over heads, each head a group; queries grouped, keys streamed."""
    h, q, x, d = ops.axes("h q x d")
    Q, K, V = (ops.array(name, h, axis, d, dtype=dtype) for name, axis in (("Q", q), ("K", x), ("V", x)))
    mask = ops.causal(q, x) if causal else None
    O = ops.attention(Q, K, V, over=x, features=d, mask=mask)
    return _tiled(_term("causal attention" if causal else "attention", O=O))


@cache
def streamed(dtype: str, causal: bool) -> Term:
    """`attention`, derived once."""
    return attention(dtype, causal)


@cache
def eight_bits(scores: str = "fp8e4m3", values: str = "fp8e4m3") -> Term:
    """Attention whose products are of codes, with a scale per query, key and feature.

    8-bit values lie transposed, as matrix instructions want them; with 16-bit `values` they do not.
    """
    h, q, x, d = ops.axes("h q x d")
    Q, K = ops.array("Q", h, q, d, dtype=scores), ops.array("K", h, x, d, dtype=scores)
    narrow = FORMATS[values] == 8
    V = ops.array("V", *((h, d, x) if narrow else (h, x, d)), dtype=values)
    S = ops.contract(Q, K, over=d) * ops.array("sq", h, q) * ops.array("sk", h, x) * d.size**-0.5
    P = ops.cast(ops.softmax(S, over=x) * (_LARGEST if narrow else 1), values)
    O = ops.contract(P, V, over=x) * ops.array("sv", h, d) / (_LARGEST if narrow else 1)
    return _tiled(_term(f"attention, {scores} scores and {values} values", O=ops.cast(O, "bf16")))


@cache
def cached(dtype: str, keys: str = "token", values: str = "token") -> Term:
    """fp16 queries on keys and values that are codes, one scale per "tensor", "token" or "channel" of each.

    Scales that do not lie along a product's sum are applied after it, the others to its smaller side.
    """
    h, q, x, d = ops.axes("h q x d")
    along = {"tensor": (h,), "token": (h, x), "channel": (h, d)}
    Q, K, V = ops.array("Q", h, q, d, dtype="fp16"), *(ops.array(name, h, x, d, dtype=dtype) for name in "KV")
    sk, sv = ops.array("sk", *along[keys]), ops.array("sv", *along[values])
    left = ops.cast(Q * sk, "fp16") if keys == "channel" else Q
    S = ops.contract(left, K, over=d) * d.size**-0.5
    P = ops.softmax(S if keys == "channel" else S * sk, over=x)
    O = ops.contract(ops.cast(P * sv if values == "token" else P, "fp16"), V, over=x)
    O = ops.cast(O if values == "token" else O * sv, "fp16")
    return _tiled(_term(f"attention, {dtype} keys per {keys} and values per {values}", O=O))


@cache
def codes_per_token(dtype: str) -> Term:
    """The codes of every token, over features, and one scale for them: one kernel, X read once."""
    h, x, d = ops.axes("h x d")
    X = ops.cast(ops.array("X", h, x, d, dtype="fp16"), "fp32")
    codes, scales = ops.quantize(X, dtype, d)
    made = _term(f"{dtype} codes per token", codes=codes, scales=scales)
    return derive.group(derive.fuse(made), h=1, x="g_x")


@cache
def scales_per_channel(dtype: str) -> Term:
    """The scale of every feature, over tokens: the first kernel of two."""
    h, x, d = ops.axes("h x d")
    _, scales = ops.quantize(ops.cast(ops.array("X", h, x, d, dtype="fp16"), "fp32"), dtype, x)
    made = _term(f"scales of {dtype} codes per channel", scales=scales)
    return derive.stream(derive.group(derive.fuse(made), h=1, d="g_d"), x="s_x")


@cache
def codes_per_channel(dtype: str, transposed: bool = False) -> Term:
    """The codes for given scales, one per feature: the second kernel; `transposed` writes tokens along rows."""
    h, x, d = ops.axes("h x d")
    X = ops.cast(ops.array("X", h, x, d, dtype="fp16"), "fp32")
    scaled = ops.combine(quotient, X, ops.array("scales", h, d))
    codes = ops.cast(ops.view(scaled, {}, (h, d, x)) if transposed else scaled, dtype)
    made = _term(f"{dtype} codes per channel{', transposed' if transposed else ''}", codes=codes)
    return derive.group(derive.fuse(made), h=1, x="g_x")


@cache
def others() -> dict[str, Term]:
    """Kernels beside attention: a matrix product, RMSNorm and a linear layer, cross-entropy."""
    q, x, e = ops.axes("q x e")
    A, W = ops.array("A", q, x, dtype="fp16"), ops.weight("W", x, e, dtype="fp16")
    N = ops.rms_norm(A, over=x, gain=ops.weight("G", x, dtype="fp16"))
    loss = ops.cross_entropy(ops.array("S", q, x), ops.array("t", q, dtype="int64"), over=x)
    outputs = {
        "matmul": ops.contract(A, W, over=x),
        "RMSNorm;linear": ops.contract(N, W, over=x),
        "cross-entropy": loss,
    }
    made = {name: _term(name, O=O) for name, O in outputs.items()}
    return {name: derive.stream(derive.group(derive.fuse(t), q="g_q"), x="s_x") for name, t in made.items()}
