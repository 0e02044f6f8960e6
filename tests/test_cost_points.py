"""Formulas at many points against the same formulas one point at a time; nothing wraps, nothing is rounded."""

from __future__ import annotations

import cost_cases as cases
import numpy as np
import pytest
import sympy
from cost_cases import MASKS, masked, sizes
from hypothesis import given, settings
from hypothesis import strategies as st

import diagkit as dk
from diagkit.cost import amounts, evaluate, evaluate_at, memory, points, ragged, transfers, work
from diagkit.cost.points import point_columns
from diagkit.term import InputError, size

n, g, s = size("n"), size("g_q"), size("s_x")


def formulas(term, dtype):
    """Everything that is counted about a diagram."""
    held = memory(term).bytes(dtype).columns().values()
    return [transfers(term).bytes(dtype).total(), transfers(term).total(), *work(term).by_unit().values(), *held]


def check(term, dtype, at):
    """All formulas at all points, against `evaluate`; `at` is a list of sizes by name."""
    every = formulas(term, dtype)
    found = evaluate_at(every, {name: [point[name] for point in at] for name in at[0]})
    for formula, values in zip(every, found, strict=True):
        expected = [evaluate(formula, point) for point in at]
        assert values.tolist() == expected, formula
        assert [type(value) for value in values.tolist()] == [type(value) for value in expected]


@pytest.mark.parametrize("name", MASKS)
@given(st.lists(sizes(), min_size=1, max_size=12))
@settings(max_examples=12)
def test_points_are_those_of_the_slow_path(name, at):
    check(masked(name), "int4", at)


@given(st.lists(sizes(), min_size=1, max_size=12))
@settings(max_examples=12)
def test_points_under_a_mask_of_several_cases(at):
    i, j = (dk.index(axis) for axis in (cases.q, cases.x))
    prefixed = cases.flash(mask=((j <= i) & (i - j < 3)) | (j < 2))
    check(prefixed, "fp16", at)


@given(st.lists(sizes("abc", (("a", "g_a"), ("c", "g_c"), ("b", "s_b"))), min_size=1, max_size=8))
@settings(max_examples=12)
def test_points_of_a_matrix_product(at):
    check(cases.tiled_matmul("fp16", "fp8e4m3"), None, at)


@pytest.mark.parametrize("name", ["none", "top-left", "window"])
def test_random_points_of_usual_sizes(name):
    rng = np.random.default_rng(3)
    at = [
        {
            "q": int(q),
            "x": int(x),
            "d": 128,
            "e": 96,
            "g_q": int(rng.integers(1, 300)),
            "s_x": int(rng.integers(1, 300)),
        }
        for q, x in rng.integers(1, 20000, (25, 2))
    ]
    check(masked(name), "fp16", at)


@pytest.mark.parametrize("name", ["none", "top-left"])
def test_counts_beyond_64_bits_do_not_wrap(name):
    huge = {"q": 2**33, "x": 2**33 + 1, "d": 2**20, "e": 2**20, "g_q": 2**30, "s_x": 2**29}
    assert evaluate(work(masked(name)).flop(), huge) > 2**80
    check(masked(name), "fp16", [huge, {**huge, "q": 7, "g_q": 3}])


def test_the_reach_is_never_below_what_is_met():
    formula = n * sympy.ceiling(n / g) + 3 * n**2 - 5
    most = {n: 11, g: 4}
    assert points.reach(formula, most) >= max(
        evaluate(formula, {"n": a, "g_q": b}) for a in range(1, 12) for b in (1, 4)
    )
    assert evaluate_at([n**2], {"n": 2**31 - 1})[0].dtype == np.int64
    assert evaluate_at([n**2], {"n": 2**31})[0].dtype == object


def test_what_is_no_whole_number_is_a_float_by_itself():
    (values,) = evaluate_at([n / g], {"n": [6, 7, 10**30 + 1], "g_q": 2})
    assert values.tolist() == [3, 3.5, (10**30 + 1) / 2]
    (roots,) = evaluate_at([sympy.sqrt(n)], {"n": [4, 9]})
    assert roots.tolist() == [2.0, 3.0]
    assert evaluate_at([sympy.Integer(5)], {"n": [1, 2]})[0].tolist() == [5, 5]
    assert evaluate_at([sympy.Max(n, g) + sympy.floor(n / g)], {"n": [7, 2], "g_q": 3})[0].tolist() == [9, 3]


def test_batches_of_tiles_add_up(monkeypatch):
    at = [{"q": q, "x": 50, "d": 2, "e": 2, "g_q": 3, "s_x": 4} for q in (40, 1, 9, 17, 40, 33)]
    monkeypatch.setattr(ragged, "BATCH", 5)
    check(masked("top-left"), "fp16", at)


def test_what_is_missing_or_no_size_is_named():
    with pytest.raises(InputError, match="'g_q' is not given"):
        evaluate_at([n / g], {"n": 1})
    with pytest.raises(InputError, match="n has a value that is no size"):
        evaluate_at([n], {"n": [1.5]})
    with pytest.raises(InputError, match="different numbers of points: n 2, g_q 3"):
        evaluate_at([n / g], {"n": [1, 2], "g_q": [1, 2, 3]})
    with pytest.raises(InputError, match="tile is 0"):
        evaluate_at([sympy.ceiling(n / g)], {"n": 1, "g_q": 0})


def test_amounts_are_those_of_the_diagram():
    ready = amounts(masked("window"), "fp16")
    at = {"q": 1000, "x": 777, "d": 64, "e": 32, "g_q": 128, "s_x": 64}
    found = {name: values.tolist() for name, values in ready.at(**at).items()}
    term = masked("window")
    assert found["moved"] == [transfers(term).bytes("fp16").total(**at)]
    assert found["held"] == [memory(term).bytes("fp16").peak(**at)]
    assert found["tensor"] == [work(term).flop(**at)]
    assert set(found) <= set(ready.units)


def test_a_size_that_follows_from_another_is_computed():
    x = dk.axes("x")
    scales = dk.array("scale", x.blocks(64))
    diagram = dk.Diagram(dk.total(scales, over=x.blocks(64)))
    assert amounts(diagram, "fp32").at(x=[64, 65])["moved"].tolist() == [8, 12]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_size(value):
    with pytest.raises(InputError, match="q has a value that is no size"):
        point_columns({"q": [1, value]})
