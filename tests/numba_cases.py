"""Kernels that the tests of the numba target share: few texts, each compiled once and kept on disk."""

from functools import cache

import numpy as np

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel
from diagkit.program import lower
from diagkit.term import Term

q, x, d, e, h, k, r = dk.axes("q x d e h k r")


def scores():
    """Q K / sqrt(d)."""
    return dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)) * d.size**-0.5


def attended(S, *more):
    """softmax(S) V and further outputs, fused, q grouped, x streamed."""
    O = dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), dk.array("V", x, e))
    return streamed(Term(*ops.trace([O, *more], {"S": S, "O": O}), "attention"))


def streamed(term, stream="x", **groups):
    """Fused, grouped (over q unless told) and streamed."""
    groups = groups or {"q": "g_q"}
    term = derive.group(derive.fuse(term), **groups)
    return derive.stream(term, **{stream: f"s_{stream}"})


def _grouped_heads():
    Q, K, V = dk.array("Q", k, r, q, d), dk.array("K", k, x, d), dk.array("V", k, x, d)
    O = dk.attention(Q, K, V, over=x, features=d, mask=dk.causal(q, x, "bottom-right"))
    return streamed(Term(*ops.trace([O], {"O": O}), "heads"), q="g_q", k=1)


def _seasoned():
    """Soft-capped, with slopes per head, in a window."""
    Q, K, V = dk.array("Q", h, q, d), dk.array("K", h, x, d), dk.array("V", h, x, d)
    bias = dk.array("slope", h) * (dk.index(x) - dk.index(q))
    O = dk.attention(Q, K, V, over=x, features=d, softcap=5, bias=bias, mask=dk.window(q, x, 5))
    return streamed(Term(*ops.trace([O], {"O": O}), "seasoned"), q="g_q", h=2)


def _scaled():
    """Causal attention whose scale is an input."""
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)) * dk.array("scale")
    return attended(dk.masked(S, dk.causal(q, x)))


def _masked():
    S = dk.masked(scores() + dk.array("B", x), dk.array("M", q, x, dtype="bool"))
    return attended(S, dk.logsumexp(S, over=x, name="L"))


def _normed():
    N = dk.rms_norm(dk.array("X", q, x), over=x, gain=dk.weight("G", x))
    Y = dk.einsum("q x, x e -> q e", N, dk.weight("W", x, e))
    return streamed(Term(*ops.trace([Y], {"N": N, "Y": Y}), "RMSNorm;linear"))


def _spherical():
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    O = dk.einsum("q x, x e -> q e", dk.spherical(S, over=x), dk.array("V", x, e))
    return streamed(Term(*ops.trace([O], {"S": S, "O": O}), "spherical attention"))


def _cross_entropy():
    L = dk.cross_entropy(dk.array("S", q, x), dk.array("t", q, dtype="int64"), over=x)
    return streamed(Term(*ops.trace([L], {"L": L}), "cross-entropy"))


def _matmul():
    C = dk.einsum("q x, x e -> q e", dk.array("A", q, x), dk.array("B", x, e))
    return streamed(Term(*ops.trace([C], {"C": C}), "matmul"), q="g_q", e="g_e")


def _softmax():
    P = dk.softmax(dk.array("S", q, x), over=x)
    return derive.group(derive.fuse(Term(*ops.trace([P], {"P": P}), "softmax")), q="g_q")


def _unfused():
    S = scores()
    O = dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), dk.array("V", x, e))
    return Term(*ops.trace([O], {"S": S, "O": O}), "naive")


TERMS = {
    "attention": lambda: attended(scores()),
    "causal": lambda: attended(dk.masked(scores(), dk.causal(q, x))),
    "scaled": _scaled,
    "masked": _masked,
    "grouped heads": _grouped_heads,
    "seasoned": _seasoned,
    "RMSNorm;linear": _normed,
    "spherical": _spherical,
    "cross-entropy": _cross_entropy,
    "matmul": _matmul,
    "softmax": _softmax,
    "naive": _unfused,
}
TILES = {"g_q": 32, "s_x": 16, "g_e": 24}


@cache
def kernel(name):
    """The kernel of that name, sizes open, tiles as in TILES."""
    term = TERMS[name]()
    tiles = {str(label.tile): TILES[str(label.tile)] for label in term.labels if label.tile.is_Symbol}
    return Kernel(lower(term, **tiles))


def normal(seed=0, dtype=np.float32, **shapes):
    """Normal arrays of those shapes."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
