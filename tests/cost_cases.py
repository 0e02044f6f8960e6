"""Labelled diagrams whose costs are tested, and sizes at which they are awkward."""

from functools import cache

import derive_cases as cases
from hypothesis import strategies as st

import diagkit as dk
from diagkit import ops
from diagkit.derive import fuse, group, stream
from diagkit.term import size

q, x, d, e = cases.q, cases.x, cases.d, cases.e
AWKWARD = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17)

MASKS = {
    "none": {},
    "top-left": {"mask": ops.causal(q, x)},
    "bottom-right": {"mask": ops.causal(q, x, "bottom-right")},
    "window": {"mask": ops.window(q, x, 3)},
    "own": {"mask": ops.window(q, x, 1)},
    "later": {"mask": ops.index(q) <= ops.index(x)},
    "every other": {"mask": 2 * ops.index(x) <= ops.index(q)},
}


@cache
def masked(name):
    """`flash` under the mask of that name."""
    return flash(**MASKS[name])


def flash(**options):
    """Attention, fused, grouped over q and streamed over x, derived."""
    return stream(group(fuse(cases.attention(**options)), q="g_q"), x="s_x")


def tiled_matmul(dtype_a="fp32", dtype_b="fp32"):
    """C = A B over a x b x c, grouped over a and c, streamed over b."""
    a, b, c = dk.axes("a b c")
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b, dtype=dtype_a), dk.array("B", b, c, dtype=dtype_b))
    return stream(group(cases.term(C, name="matmul", C=C), a="g_a", c="g_c"), b="s_b")


def heads(keys="x k d", groups=("k", "r", "q")):
    """Attention of k x r query heads; keys and values over the axes `keys`: (k x d) grouped, (x d) multi-query."""
    k, r, x, d = dk.axes("k r x d")
    over = {"k": k, "x": x, "d": d}
    kv = tuple(over[name] for name in keys.split())
    Q, K, V = dk.array("Q", k, r, q, d), dk.array("K", *kv), dk.array("V", *kv)
    S = dk.contract(Q, K, over=d)
    P = dk.softmax(S, over=x)
    O = dk.contract(P, V, keep=(k, r, q, d))
    made = fuse(cases.term(O, name="heads", S=S, P=P, O=O))
    return stream(group(made, **{axis: f"g_{axis}" for axis in groups}), x="s_x")


@st.composite
def sizes(draw, names="qxde", tiles=(("q", "g_q"), ("x", "s_x"))):
    """Sizes of the axes, and tiles no larger than their axes."""
    found = {name: draw(st.sampled_from(AWKWARD)) for name in names}
    return found | {tile: draw(st.integers(1, found[axis])) for axis, tile in tiles}


n, g, s = size("n"), size("g_q"), size("s_x")
