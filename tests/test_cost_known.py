"""The published rows, one test each: what the costs of a diagram say, as equal formulas.

Where a row is a view of the same diagram (napkin, with score tile and statistics, double-buffered, K and V one
after the other) the test says which view it is.
"""

import numpy as np
import pytest
import sympy
from cost_cases import flash, heads, masked, tiled_matmul
from derive_cases import term

import diagkit as dk
from diagkit import ops
from diagkit.cost import memory, optimum, transfers, work
from diagkit.derive import fuse, group, stream
from diagkit.term import coordinate, size

q, x, d, e, a, b, c, M = map(size, ("q", "x", "d", "e", "a", "b", "c", "M"))
g, s, g_a, g_c, s_b = map(size, ("g_q", "s_x", "g_a", "g_c", "s_b"))


def same(left, right):
    difference = sympy.expand(left - right)
    return difference == 0 or sympy.simplify(difference) == 0


ROWS = {
    "napkin": (lambda held: held.napkin(), 2 * g * d + 2 * s * d),
    "with score tile and statistics": (lambda held: held, 2 * g * d + 2 * s * d + g * s + 2 * g),
    "double-buffered": (lambda held: held.buffered(), 2 * g * d + 4 * s * d + g * s + 2 * g),
    "double-buffered napkin": (lambda held: held.napkin().buffered(), 2 * g * d + 4 * s * d),
    "one after the other": (lambda held: held.napkin(together=False), 2 * g * d + s * d),
}


@pytest.mark.parametrize("row", ROWS)
def test_memory_of_attention(row):
    view, formula = ROWS[row]
    assert same(view(memory(flash())).peak().subs(e, d), formula)


def test_keys_and_values_one_after_the_other_take_the_larger():
    apart = memory(flash()).napkin(together=False)
    assert apart.peak() == sympy.Max(*(sympy.expand(g * (d + e)) + s * width for width in (d, e)))
    assert apart.peak(q=9, x=9, d=4, e=10, g_q=2, s_x=3) == 2 * 14 + 3 * 10


def test_tiles_of_a_double_buffered_stream():
    """What holds with s holds with 2 s: g = (M - 4 s d) / (2 d + s + 2); g = sqrt(M + 4 s^2) - 2 s."""
    best = optimum(flash(), M, napkin=False, buffers=2, s_x=s)
    assert same(best.tiles[g].subs(e, d), (M - 4 * s * d) / (2 * d + s + 2))
    tile = sympy.sqrt(M + 4 * s**2) - 2 * s
    product = optimum(tiled_matmul(), M, buffers=2, s_b=s)
    assert same(product.tiles[g_a], tile) and same(product.transfers, 2 * a * b * c / tile + a * c)
    assert "every chunk has 2 buffers" in product.relaxations


def mixed_attention():
    """Queries in fp16, keys in fp8, values in int4, results in fp16, sums and scores in fp32."""
    Q = dk.array("Q", *dk.axes("q d"), dtype="fp16")
    K, V = dk.array("K", *dk.axes("x d"), dtype="fp8e4m3"), dk.array("V", *dk.axes("x d"), dtype="int4")
    O = dk.einsum("q x, x d -> q d", dk.softmax(dk.einsum("q d, x d -> q x", Q, K), over="x"), V)
    return stream(group(fuse(term(dk.cast(O, "fp16", name="R"), O=O)), q="g_q"), x="s_x")


def test_bytes_of_attention_in_mixed_formats():
    """H = qd(b_Q + b_O) + (q/g) x d (b_K + b_V); M = g d (b_Q + b_acc) + s d (b_K + b_V) + g s b_S + 2 g b_stat."""
    b_Q, b_O, b_K, b_V, b_acc, b_S, b_stat = 2, 2, 1, sympy.Rational(1, 2), 4, 4, 4
    moved, held = transfers(mixed_attention()).bytes(), memory(mixed_attention()).bytes()
    assert same(moved.relaxed().total(), q * d * (b_Q + b_O) + q / g * x * d * (b_K + b_V))
    assert same(held.peak(), g * d * (b_Q + b_acc) + s * d * (b_K + b_V) + g * s * b_S + 2 * g * b_stat)
    assert same(held.napkin().peak(), g * d * (b_Q + b_O) + s * d * (b_K + b_V))


def test_bytes_of_a_matrix_product_in_mixed_formats():
    b_A, b_B, b_C = 1, 2, 4
    tiled = tiled_matmul("fp8e4m3", "fp16")
    assert same(transfers(tiled).bytes().relaxed().total(), a * b * c * (b_A / g_c + b_B / g_a) + b_C * a * c)
    assert same(memory(tiled).bytes().peak(), b_C * g_a * g_c + s_b * (b_A * g_a + b_B * g_c))


HEADS = {
    "multi-head": ("x k d", lambda h: 2 * g * h * d + 2 * s * h * d, lambda h: g),
    "multi-query": ("x d", lambda h: 2 * g * h * d + 2 * s * d, lambda h: g * h),
}


@pytest.mark.parametrize("variant", HEADS)
def test_heads(variant):
    """H = 2hqd + 2xqhd / g (g_h cancels), / (g g_h) where K and V are shared; and what a group holds."""
    over, held, rows = HEADS[variant]
    k, g_k = size("k"), size("g_k")
    single = {size("r"): 1, size("g_r"): 1}
    grouped = heads(over)
    assert same(transfers(grouped).relaxed().total().subs(single), 2 * q * k * d + 2 * x * q * k * d / rows(g_k))
    assert same(memory(grouped).napkin().peak().subs(single), held(g_k))


def test_grouped_heads_share_keys_up_to_r_times():
    r, k, g_r = size("r"), size("k"), size("g_r")
    moved = transfers(heads()).relaxed().total()
    assert same(moved, 2 * q * k * r * d + 2 * x * q * k * r * d / (g * g_r))


def test_one_query_reads_keys_by_their_heads():
    """Decoding: 2hd + 2x h_kv d with r query heads in one group; 4 r x d FLOP for each KV head: 2 r / b FLOP a byte."""
    k, r = size("k"), size("r")
    one = {q: 1, g: 1, size("g_k"): 1, size("g_r"): r}
    moved = transfers(heads()).relaxed().total().subs(one)
    assert same(moved, 2 * k * r * d + 2 * x * k * d)
    flop = work(heads()).flop().subs(one)
    assert same(flop / (2 * x * k * d * size("b")), 2 * r / size("b"))


def latent():
    """Queries over c + r features against a latent key, whose first c features are the value too."""
    h, keys = dk.axes("h x")
    narrow, whole = dk.axis("c"), dk.axis("m", size("c") + size("r"))
    L, Q = dk.array("L", keys, whole), dk.array("Q", h, whole)
    S = dk.einsum("h m, x m -> h x", Q, L)
    V = ops.view(L, {"m": coordinate("c")}, (keys, narrow))
    O = dk.einsum("h x, x c -> h c", dk.softmax(S, over=keys), V)
    return stream(group(fuse(term(O, S=S, V=V, O=O)), h="g_h"), x="s_x")


def test_latent_attention_decodes_from_one_stream():
    """h(c + r) + hc + x(c + r) ceil(h / g_h) elements; 2h(2c + r) FLOP for each key."""
    h, r = size("h"), size("r")
    passes = sympy.ceiling(h / size("g_h"))
    assert same(transfers(latent()).total(), h * (c + r) + h * c + x * (c + r) * passes)
    assert same(work(latent()).flop(), x * 2 * h * (2 * c + r))


def backward():
    """The gradients of attention, keys outside: n groups of g keys; their shares of dQ are kept apart."""
    n, part, rows, width = dk.axes("n g q d")
    K, V = dk.array("K", n, part, width), dk.array("V", n, part, width)
    Q, dO = dk.array("Q", rows, width), dk.array("dO", rows, width)
    L, D = dk.array("L", rows), dk.array("D", rows)
    P = dk.exp(dk.einsum("q d, n g d -> n q g", Q, K) - L)
    dS = P * (dk.einsum("q d, n g d -> n q g", dO, V) - D)
    dV = dk.einsum("n q g, q d -> n g d", P, dO)
    dK = dk.einsum("n q g, q d -> n g d", dS, Q)
    dQ = dk.einsum("n q g, n g d -> n q d", dS, K)
    return dk.Diagram(dQ, dK, dV, name="gradients").fuse().group(n=1).stream(q="s_q")


def test_backward_moves_and_computes():
    """H = 4xd + qx(3d + 2) / g_x, five products of 2qxd; the row sums D = sum(dO O): 2qd + q."""
    tile = size("g")
    at = {size("n"): x / tile}
    moved = transfers(backward()).total()
    assert same(moved.subs(at), 4 * x * d + q * x * (3 * d + 2) / tile)
    assert same(work(backward()).flop().subs(at), 5 * 2 * q * x * d)
    rows, width = dk.axes("q d")
    D = dk.total(dk.array("dO", rows, width) * dk.array("O", rows, width), over=width)
    assert same(transfers(fuse(term(D, D=D))).total(), 2 * q * d + q)


def test_recomputing_costs_one_product_in_five():
    """One of the five products makes the scores again: 25 % more than four, and 1/6 more than six with forward."""
    products = _flop(backward())
    scores = products.pop("QK")
    others = sum(products.values())
    assert len(products) == 4
    assert scores / others == 1 / 4
    assert scores / (others + 2 * scores) == pytest.approx(1 / 6)


def _flop(diagram):
    sizes = {"n": 2, "g": 3, "q": 5, "d": 2, "s_q": 5}
    return {key.box: n for key, n in work(diagram).at(**sizes).items() if key.unit == "tensor"}


def test_backward_counts_what_it_says_and_gives_the_slopes():
    sizes = {"n": 3, "g": 2, "q": 5, "d": 4, "s_q": 2}
    rng = np.random.default_rng(0)
    Q, dO = rng.normal(size=(2, 5, 4))
    K, V = rng.normal(size=(2, 6, 4))

    def forward(Q, K, V):
        scores = Q @ K.T
        weights = np.exp(scores - scores.max(1, keepdims=True))
        return weights @ V / weights.sum(1, keepdims=True)

    L = np.log(np.exp(Q @ K.T).sum(1))
    arrays = {"Q": Q, "K": K.reshape(3, 2, 4), "V": V.reshape(3, 2, 4), "dO": dO, "L": L}
    arrays["D"] = (dO * forward(Q, K, V)).sum(1)
    program = backward().lower(**sizes)
    made = program.run(**arrays)
    assert program.count().total() == transfers(backward()).total(**sizes)
    assert program.count().peak == memory(backward()).peak(**sizes)
    slopes = {"dQ": made["dQ"].sum(0), "dK": made["dK"].reshape(6, 4), "dV": made["dV"].reshape(6, 4)}
    for place, name in enumerate(("dQ", "dK", "dV")):
        given = [Q, K, V]
        for at in [(0, 0), (4, 3), (2, 1)]:
            moved = [one.copy() for one in given]
            moved[place][at] += 1e-6
            slope = ((forward(*moved) - forward(*given)) * dO).sum() / 1e-6
            assert slopes[name][at] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_two_grouped_axes_in_general():
    """H = abx(1/g_b + 1/g_a) + aby with x elements for each slice of each input, y for each pair."""
    rows, cols, inner, out = dk.axes("a b x y")
    T = dk.einsum("a x, b x y -> a b y", dk.array("A", rows, inner), dk.array("B", cols, inner, out))
    moved = transfers(group(term(T, T=T), a="g_a", b="g_b")).relaxed().total()
    y, g_b = size("y"), size("g_b")
    assert same(moved, a * b * x / g_b + a * b * x * y / g_a + a * b * y)


def test_causal_work_by_tiles():
    """FLOP of causal attention, tile by tile with s | g | n: 2n^2 d + 2ngd."""
    n = size("n")
    flop = sympy.expand(work(masked("top-left")).relaxed().flop().subs({q: n, x: n, e: d}))
    assert same(flop, 2 * n**2 * d + 2 * n * g * d)


@pytest.mark.parametrize(
    ("diagram", "beta"), [(tiled_matmul, sympy.Rational(1, 2)), (flash, 1)], ids=["matmul", "attention"]
)
def test_ten_times_the_memory(diagram, beta):
    """The falling term divides by 10^beta: 3.2 for a matrix product, 10 for attention."""
    best = optimum(diagram(), M)
    term_of = {one: power for one, power in best.terms if power}
    assert set(term_of.values()) == {beta}
    falling = sympy.Add(*term_of)
    assert same(falling / falling.subs(M, 10 * M), sympy.Integer(10) ** beta)


def test_intensity_of_the_broadcast_term():
    """2 g_q / b FLOP for each byte of K and V read; a square matrix product moves M^(-1/2) + 1/(2b) for each FLOP."""
    broadcast = transfers(flash()).relaxed().by_array()
    read = (broadcast["K"] + broadcast["V"]).subs(e, d) * size("b")
    assert same(work(flash()).flop().subs(e, d) / read, 2 * g / size("b"))
    product = optimum(tiled_matmul(), M)
    assert same(product.transfers / work(tiled_matmul()).flop(), 1 / sympy.sqrt(M) + 1 / (2 * b))
