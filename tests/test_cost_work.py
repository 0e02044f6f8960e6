"""Work by unit: multiply-adds and FLOP, masks, what is done again in every tile and chunk."""

import cost_cases as cases
import derive_cases
import pytest
import sympy
from cost_cases import MASKS, flash, heads, masked, sizes, tiled_matmul
from derive_cases import attention
from hypothesis import given, settings
from test_cost_transfers import VISIBLE

import diagkit as dk
from diagkit.cost import Task, evaluate, intensity, roofline_point, visible_pairs, work
from diagkit.cost.work import operations
from diagkit.derive import fuse, group
from diagkit.term import arg, finite, quotient, size, where

q, x, d, e = map(size, "qxde")
g, s, n = cases.g, cases.s, cases.n


def test_mac_is_not_flop():
    """(2x3)(3x5): 30 multiply-adds, 60 FLOP."""
    a, b, c = dk.axes("a=2 b=3 c=5")
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    counted = work(derive_cases.term(C, C=C))
    assert (counted.mac(), counted.flop(), counted.total()) == (30, 60, 60)


def test_attention_has_4qxd():
    assert work(attention()).flop().subs(e, d) == 4 * q * x * d
    assert work(attention()).by_box()["P.exp"] == {"fma": 2 * q * x, "special": q * x}


def test_contractions_of_other_arities():
    A, B, C = (dk.array(name, cases.q, cases.x) for name in "ABC")
    three = dk.contract(A, B, C, over=cases.x, name="T")
    product = dk.contract(A, B, name="P")
    alone = dk.contract(A, over=cases.x, name="S")
    for node, unit in (
        (three, {"tensor": 2 * q * x, "fma": q * x}),
        (product, {"fma": q * x}),
        (alone, {"fma": q * x}),
    ):
        assert {key: v for key, v in work(derive_cases.term(node)).by_unit().items() if v != 0} == unit


@pytest.mark.parametrize(
    ("expr", "count"),
    [
        (arg(0) * size("d") ** sympy.Rational(-1, 2), {"fma": 1}),
        (arg(0) - arg(1), {"fma": 1}),
        (arg(0) * arg(1) + arg(2), {"fma": 2}),
        (arg(0) / arg(1), {"fma": 1, "special": 1}),
        (quotient(arg(0), arg(1)), {"special": 1}),
        (sympy.exp(arg(0) - finite(arg(1))), {"fma": 2, "special": 1}),
        (sympy.tanh(arg(0)) + sympy.tanh(arg(0)) ** 2, {"fma": 2, "special": 1}),
        (arg(0) ** 4, {"fma": 2}),
        (sympy.sqrt(arg(0)), {"special": 1}),
        (sympy.Max(arg(0), arg(1), 0), {"fma": 2}),
        (where(arg(1) <= arg(2), arg(0), 0), {"fma": 2}),
        (1 / (1 + sympy.exp(-arg(0))), {"fma": 1, "special": 2}),
        (size("d") ** 2, {}),
    ],
)
def test_operations_of_a_formula(expr, count):
    found = dict(operations(expr))
    assert found == count


def test_loop_bodies_are_counted_per_chunk():
    counted = work(flash()).by_box()
    chunks = sympy.ceiling(x / s)
    new = next(name for name in counted if name.endswith(".max.new"))
    assert counted[new] == {"fma": q * chunks}
    assert work(flash()).flop() == work(attention()).flop()


def test_what_lacks_the_grouped_axis_is_done_in_every_group():
    X, W = dk.array("X", cases.q), dk.array("W", cases.x)
    Y = dk.exp(W)
    Z = X * Y
    tiled = group(fuse(derive_cases.term(Z, Y=Y, Z=Z)), q="g_q")
    assert work(tiled)[Task(0, "Y", "special")] == x * sympy.ceiling(q / g)
    assert work(tiled)[Task(0, "Z", "fma")] == q * x


def test_grouped_heads_compute_by_query_heads():
    assert sympy.expand(work(heads()).flop() - 4 * size("k") * size("r") * q * x * d) == 0


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=20)
@given(s=sizes())
def test_masked_work_is_that_of_the_tiles_that_run(mask, s):
    pairs = 0
    for first in range(0, s["q"], s["g_q"]):
        rows = range(first, min(first + s["g_q"], s["q"]))
        for start in range(0, s["x"], s["s_x"]):
            chunk = range(start, min(start + s["s_x"], s["x"]))
            shown = any(VISIBLE[mask](i, j, s) for i in rows for j in chunk)
            pairs += shown * len(rows) * len(chunk)
    assert work(masked(mask)).mac(**s) == pairs * (s["d"] + s["e"])


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=10)
@given(s=sizes())
def test_visible_pairs_are_exact(mask, s):
    seen = sum(VISIBLE[mask](i, j, s) for i in range(s["q"]) for j in range(s["x"]))
    assert evaluate(visible_pairs(masked(mask)), s) == (0 if mask == "none" else seen)


def test_causal_pairs():
    """n(n + 1)/2 exactly: 64 -> 2080; by whole tiles 2n^2 d + 2ngd FLOP."""
    pairs = visible_pairs(masked("top-left")).subs({q: n, x: n})
    assert sympy.expand(pairs - n * (n + 1) / 2) == 0
    assert pairs.subs(n, 64) == 2080
    tiles = work(masked("top-left")).relaxed().flop().subs({q: n, x: n, e: d})
    assert sympy.expand(tiles - 2 * n**2 * d - 2 * n * g * d) == 0


def test_intensity():
    """Broadcast term of attention: 2g/b FLOP per byte of K and V."""
    at = {"q": 4096, "x": 1 << 22, "d": 128, "e": 128, "g_q": 128}
    assert intensity(flash(), "fp16", **at) == pytest.approx(128, rel=1e-4)
    assert intensity(tiled_matmul(), "fp16", a=64, b=64, c=64, g_a=64, g_c=64) == pytest.approx(64 / 3)


def test_roofline_point():
    at = {"q": 128, "x": 1 << 16, "d": 128, "e": 128, "g_q": 128}
    low = roofline_point(flash(), 1e12, 1e15, "fp16", **at)
    assert (low.bound, low.rate) == ("memory", pytest.approx(low.intensity * 1e12))
    assert roofline_point(flash(), 1e14, 1e15, "fp16", **at).rate == 1e15


def test_work_display():
    assert str(work(flash())).splitlines()[0].split() == ["kernel", "box", "unit", "FLOP", "or", "operations"]
    assert work(flash())._repr_html_() == work(flash())._repr_html_()


@pytest.mark.parametrize(
    "rule",
    [
        lambda i, j: (j <= i) | (j < 5),
        lambda i, j: ((j <= i) & (i - j < 3)) | (j < 2),
        lambda i, j: (j < 2) | ((j >= 6) & (j < 8)) | (j >= i + 7),
    ],
)
def test_pairs_that_one_case_or_another_shows_are_counted_once(rule):
    i, j = (dk.index(axis) for axis in dk.axes("q x"))
    seen = dk.total(dk.select(rule(i, j), dk.array("X", *dk.axes("q x")), 0), over="x")
    made = dk.Diagram(seen).fuse().group(q="g_q").stream(x="s_x")
    assert visible_pairs(made).subs({q: 13, x: 11}) == sum(rule(i, j) for i in range(13) for j in range(11))
