"""Best tiles: the known formulas found from the shape of the sums, and numerics against search."""

import time

import cost_cases as cases
import derive_cases
import pytest
import sympy
from cost_cases import flash, heads, masked, tiled_matmul
from hypothesis import given, settings
from hypothesis import strategies as st

import diagkit as dk
from diagkit.cost import memory, optimum, transfers
from diagkit.cost.exponents import exponents
from diagkit.cost.numeric import minimise
from diagkit.cost.posynomial import posynomial
from diagkit.derive import fuse, group, stream
from diagkit.term import DiagkitError, InputError, size

q, x, d, e, a, b, c, M, s = map(size, ("q", "x", "d", "e", "a", "b", "c", "M", "s"))
g_q, g_a, g_c = map(size, ("g_q", "g_a", "g_c"))


def same(left, right):
    return sympy.simplify(left - right) == 0


def test_attention_on_a_napkin():
    """Attention: g_q = M / 2d, H* = 2qd + 4xqd^2 / M, beta 1; here with d_k != d_v."""
    best = optimum(flash(), M)
    assert same(best.tiles[g_q], M / (d + e))
    assert same(best.transfers, q * (d + e) + x * q * (d + e) ** 2 / M)
    assert same(best.transfers.subs(e, d), 2 * q * d + 4 * x * q * d**2 / M)
    assert best.beta == 1
    assert [beta for _, beta in best.terms] == [0, 1]


def test_attention_with_everything_that_is_held():
    """Attention: g_q = (M - 2 s d) / (2d + s + 2)."""
    best = optimum(flash(), M, napkin=False, s_x=s)
    assert same(best.tiles[g_q].subs(e, d), (M - 2 * s * d) / (2 * d + s + 2))
    assert same(best.transfers.subs(e, d), 2 * q * d + 2 * x * d * q * (2 * d + s + 2) / (M - 2 * s * d))


def test_larger_chunks_only_cost():
    """Attention: M = 116224, d = 128: the broadcast term against that of chunks of one."""
    sizes = {"q": 4096, "x": 4096, "d": 128, "e": 128}

    def broadcast(chunk):
        return float(optimum(flash(), 116_224, napkin=False, s_x=chunk, **sizes).terms[-1][0])

    costs = [round(broadcast(chunk) / broadcast(1), 2) for chunk in (16, 32, 64, 128, 176)]
    assert costs == [1.09, 1.20, 1.44, 2.07, 2.73]


def test_mixed_precision_attention():
    """Attention in bytes: H* = qd(b_Q + b_O) + x q d^2 (b_K + b_V)(b_Q + b_acc) / M."""
    Q, K, V = (
        dk.array("Q", cases.q, cases.d, dtype="fp16"),
        dk.array("K", cases.x, cases.d, dtype="fp8e4m3"),
        dk.array("V", cases.x, cases.d, dtype="int4"),
    )
    O = dk.cast(dk.einsum("q x, x d -> q d", dk.softmax(dk.einsum("q d, x d -> q x", Q, K), over=cases.x), V), "fp16")
    term = stream(group(fuse(derive_cases.term(O, O=O)), q="g_q"), x="s_x")
    best = optimum(term, M, napkin=False, unit="bytes")
    half = sympy.Rational(1, 2)
    broadcast = x * q * d * (1 + half) * (2 * d + 4 * d + 8) / M  # the two statistics in fp32
    assert same(best.transfers, 4 * q * d + broadcast)


def test_matmul():
    """Matrix product: square tiles sqrt(M), H* = 2abc / sqrt(M) + ac, beta 1/2."""
    best = optimum(tiled_matmul(), M)
    assert best.tiles == {g_a: sympy.sqrt(M), g_c: sympy.sqrt(M)}
    assert same(best.transfers, 2 * a * b * c / sympy.sqrt(M) + a * c)
    assert best.beta == sympy.Rational(1, 2)


def test_matmul_with_a_finite_chunk():
    """Matrix product: g = sqrt(M + s^2) - s."""
    best = optimum(tiled_matmul(), "M", s_b=s)
    g = sympy.sqrt(M + s**2) - s
    assert same(best.tiles[g_a], g)
    assert same(best.tiles[g_c], g)
    assert same(best.transfers, 2 * a * b * c / g + a * c)
    assert {beta for _, beta in best.terms[1:]} == {sympy.Rational(1, 2)}


@pytest.mark.parametrize(
    ("b_A", "b_B", "formats"), [(1, 2, ("fp8e4m3", "fp16")), (4, 4, ("fp32", "fp32")), (4, 1, ("fp32", "fp8e5m2"))]
)
def test_matmul_in_bytes(b_A, b_B, formats):
    """Matrix product: H* = 2abc sqrt(b_A b_B b_acc / M) + b_out ac; aspect g_c / g_a = b_A / b_B."""
    best = optimum(tiled_matmul(*formats), M, unit="bytes", napkin=False)
    b_out, b_acc = 4, 4  # a product with an 8-bit float in it adds up in fp32
    assert same(best.transfers, 2 * a * b * c * sympy.sqrt(sympy.Integer(b_A * b_B * b_acc) / M) + b_out * a * c)
    assert same(best.tiles[g_c] / best.tiles[g_a], sympy.Rational(b_A, b_B))
    finite = optimum(tiled_matmul(*formats), M, unit="bytes", napkin=False, s_b=s)
    assert same(finite.tiles[g_c] / finite.tiles[g_a], sympy.Rational(b_A, b_B))


def test_three_way_product_has_beta_two_thirds():
    """With k grouped output axes, each input carrying one: beta = (k - 1) / k."""
    i, j, k, l = dk.axes("i j k l")
    T = dk.contract(dk.array("A", i, l), dk.array("B", j, l), dk.array("C", k, l), over=l)
    term = stream(group(derive_cases.term(T, T=T), i="g_i", j="g_j", k="g_k"), l="s_l")
    best = optimum(term, M)
    assert best.beta == sympy.Rational(2, 3)
    assert same(best.tiles[size("g_i")], sympy.cbrt(M))
    i, j, k, l = map(size, "ijkl")
    assert same(best.transfers, i * j * k + 3 * i * j * k * l / sympy.cbrt(M) ** 2)


def test_heads():
    """Attention: the bound is 2hqd + 4hxqd^2 / M either way; a head tile only costs in MHA."""
    k, r = size("k"), size("r")
    bound = 2 * k * r * q * d + 4 * k * r * x * q * d**2 / M
    grouped, multi_query = optimum(heads(), M), optimum(heads("x d"), M)
    assert same(grouped.transfers, bound)
    assert same(multi_query.transfers, bound)
    assert grouped.tiles[size("g_k")] == 1
    assert same(grouped.tiles[g_q * size("g_r")], M / (2 * d))
    assert same(multi_query.tiles[g_q * size("g_r") * size("g_k")], M / (2 * d))


def test_causal():
    n = size("n")
    best = optimum(masked("top-left"), M)
    H = best.transfers.subs({q: n, x: n, e: d})
    assert same(H, 3 * n * d + 2 * n**2 * d**2 / M)


def test_one_pass_has_nothing_to_choose():
    """Elementwise alone: beta = 0."""
    X = dk.exp(dk.array("X", cases.q, cases.x))
    best = optimum(group(derive_cases.term(X), q="g_q"), M)
    assert (best.beta, best.transfers) == (0, 2 * q * x)
    assert any("transfers do not depend on it" in note for note in best.relaxations)


def test_a_tile_is_never_longer_than_its_axis():
    best = optimum(flash(), 10**6, q=100, x=1000, d=64, e=64)
    assert best.tiles[g_q] == 100
    assert best.transfers == 2 * 100 * 64 + 2 * 1000 * 64
    wide = optimum(tiled_matmul(), 4096, a=10, b=10**4, c=10**4, s_b=1)
    assert wide.tiles[g_a] == 10
    assert float(wide.tiles[g_c]) == pytest.approx(4086 / 11, rel=1e-6)


def test_several_kernels_share_one_limit():
    """Two products, unfused: a tile of a holds a row of both; each kernel stays within M by itself."""
    A, B, C = dk.array("A", cases.q, cases.x), dk.array("B", cases.x, cases.d), dk.array("C", cases.d, cases.e)
    AB = dk.contract(A, B, over=cases.x)
    E = dk.contract(AB, C, over=cases.d)
    term = group(derive_cases.term(E, AB=AB, E=E), q="g_q")
    sizes = {"q": 1000, "x": 10, "d": 20, "e": 30}
    tile = float(optimum(term, 2000, napkin=False, **sizes).tiles[g_q])
    assert tile == pytest.approx((2000 - 600) / 50, rel=1e-5)  # x d + g(x + d), and d e + g(d + e)


def test_what_has_no_closed_form_needs_numbers():
    """A bias over c makes the two tiles uneven: g_c costs memory that g_a does not."""
    A, B, D = dk.array("A", cases.q, cases.x), dk.array("B", cases.x, cases.e), dk.array("D", cases.e)
    C = dk.einsum("q x, x e -> q e", A, B)
    term = fuse(derive_cases.term(C + D, C=C))
    term = stream(group(term, q="g_q", e="g_e"), x="s_x")
    with pytest.raises(DiagkitError, match="which g_e, g_q make .* <= M; give numbers for: M, e, q, x"):
        optimum(term, M, s_x=4)
    best = optimum(term, 500, s_x=4, q=100, x=10, e=100)
    assert best.method == "numerically, in logarithms"
    assert best.tiles[size("g_e")] < best.tiles[g_q]
    assert [beta for _, beta in best.terms] == [0, sympy.Rational(1, 2), sympy.Rational(1, 2)]


def test_nothing_fits():
    with pytest.raises(DiagkitError, match="tiles of one element need"):
        optimum(tiled_matmul(), 2, a=10, b=10, c=10, s_b=1)


def test_a_solve_is_bounded_in_time():
    start = time.perf_counter()
    for chunk in (None, 1):
        for term in (flash(), tiled_matmul(), heads()):
            sizes = dict.fromkeys(term.axes, 4096) | {"d": 64, "e": 64}
            given = {axis: n for axis, n in sizes.items() if axis in term.axes}
            chunks = (
                {} if chunk is None else {label.tile.name: chunk for label in term.labels if label.kind == "stream"}
            )
            optimum(term, 10**5, napkin=False, **given, **chunks)
    assert time.perf_counter() - start < 20


def test_it_shows_its_working():
    shown = str(optimum(flash(), M))
    for part in ("minimise", "such that", "g_q*(d + e) <= M", "least transfers", "beta", "s_x -> 0"):
        assert part in shown
    assert r"\beta = 1" in optimum(flash(), M)._repr_latex_()
    assert optimum(flash(), M)._repr_html_() == optimum(flash(), M)._repr_html_()


def test_at_numbers():
    best = optimum(flash(), M)
    assert best.at(q=100, x=100, d=8, e=8, M=1600) == 2 * 800 + 100 * 100 * 256 / 1600


powers = st.integers(0, 2)
positive = st.integers(1, 50)


@st.composite
def problems(draw):
    """Transfers that fall with every tile, memory that grows with every tile."""
    count = draw(st.integers(1, 3))
    tiles = [size(f"t{n}") for n in range(count)]
    terms = [draw(positive) * sympy.Mul(*(t ** -draw(powers) for t in tiles)) for _ in range(draw(st.integers(1, 3)))]
    moved = draw(positive) + sum(terms) + sum(draw(positive) / t for t in tiles)
    held = draw(st.integers(0, 9)) + sum(
        draw(positive) * sympy.Mul(*(t ** draw(powers) for t in tiles)) for _ in range(2)
    )
    held = held + draw(positive) * sympy.Mul(*tiles)
    return tiles, moved, held, draw(st.integers(200, 10**5)), [draw(st.integers(1, 40)) for _ in tiles]


@settings(max_examples=40)
@given(problems())
def test_numerics_beat_every_tile_of_whole_numbers(problem):
    tiles, moved, held, limit, most = problem
    best = minimise(posynomial(moved, tiles), [posynomial(held, tiles)], limit, most)
    assert all(1 - 1e-9 <= best[t] <= top + 1e-9 for t, top in zip(tiles, most, strict=True))
    assert float(held.subs(best)) <= limit * (1 + 1e-9)
    reached = float(moved.subs(best))
    run = sympy.lambdify(tiles, [moved, held])
    for point in points(most):
        transfers_there, memory_there = run(*point)
        assert memory_there > limit or transfers_there >= reached * (1 - 1e-6)


def points(most):
    """Some whole-number tiles: corners, and a coarse grid between."""
    from itertools import product

    return product(*(sorted({1, 2, 3, 5, 8, 13, 21, 34, top} & {*range(1, top + 1)}) for top in most))


@settings(max_examples=25)
@given(st.integers(10, 500), st.integers(10, 500), st.integers(1, 9), st.integers(50, 5000))
def test_closed_forms_equal_numerics(rows, cols, chunk, limit):
    term = tiled_matmul()
    if limit <= 1 + 2 * chunk:
        return
    sizes = {"a": rows, "b": 100, "c": cols, "s_b": chunk}
    best = optimum(term, limit, **sizes)
    moved = transfers(term).relaxed().total().subs({size(n): v for n, v in sizes.items()})
    held = memory(term).peak().subs({size(n): v for n, v in sizes.items()})
    found = minimise(posynomial(moved, [g_a, g_c]), [posynomial(held, [g_a, g_c])], limit, [rows, cols])
    assert float(best.transfers) == pytest.approx(float(moved.subs(found)), rel=1e-5)


def test_exponents_are_those_of_large_memory():
    t, u = size("t"), size("u")
    moved = posynomial(3 / t + 5 / u + 7 / (t * u) + 1, [t, u])
    held = posynomial(t * u + 9 * t, [t, u])
    assert dict(zip([powers for powers, _ in moved.active], exponents(moved, [held]), strict=True)) == {
        (-1, 0): sympy.Rational(1, 2), (0, -1): sympy.Rational(1, 2), (-1, -1): 1,
    }  # fmt: skip


def test_numerics_find_an_uneven_optimum():
    """3/t + 50/u + 40/(t u) with 2 t u + t <= 1000: where the gradients are parallel."""
    t, u = size("t"), size("u")
    moved, held = 3 / t + 50 / u + 40 / (t * u), 2 * t * u + t
    best = minimise(posynomial(moved, [t, u]), [posynomial(held, [t, u])], 1000, [1e6, 1e6])
    slopes = [[float(sympy.diff(one, v).subs(best)) for v in (t, u)] for one in (moved, held)]
    assert slopes[0][0] * slopes[1][1] == pytest.approx(slopes[0][1] * slopes[1][0], rel=1e-5)
    assert float(held.subs(best)) == pytest.approx(1000, rel=1e-7)


def test_newtons_step_uses_the_slope_of_the_barrier():
    """In one dimension: minus the first derivative over the second, by differences of the barrier itself."""
    import numpy as np

    from diagkit.cost import numeric

    t = size("t")
    goal, bound = numeric.log_sum(posynomial(5 / t + 1, [t])), numeric.log_sum(posynomial(t + 3, [t]), 50.0)
    setup = (goal, [bound], np.array([4.0]), np.array([True]))
    step, _ = numeric._newton(*setup, np.array([1.3]), 2.0)
    left, here, right = (numeric._barrier(*setup, np.array([y]), 2.0) for y in (1.3 - 1e-4, 1.3, 1.3 + 1e-4))
    first, second = (right - left) / 2e-4, (right - 2 * here + left) / 1e-8
    assert step[0] == pytest.approx(-first / second, rel=1e-4)


def test_unknown_sizes_are_refused():
    with pytest.raises(InputError, match="no axis or tile 's'"):
        optimum(flash(), M, s=4)


@pytest.mark.parametrize("call", [lambda t: t.optimum(M=100), lambda t: t.optimum(), lambda t: t.legal_tile(M=100)])
def test_a_memory_that_is_not_given_is_asked_for(call):
    q, x = dk.axes("q x")
    rows = dk.Diagram(dk.total(dk.array("X", q, x), over="x", name="T")).group(q="g").stream(x="s")
    with pytest.raises(InputError, match="no memory is given; say how much: memory=65536"):
        call(rows)
