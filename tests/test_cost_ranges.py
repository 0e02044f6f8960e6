"""Bounds of wires: they hold for every run, and say before it what a format cannot hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from test_derive_transforms import attention

import diagkit as dk
from diagkit.cost.intervals import within
from diagkit.derive import RECIPES
from diagkit.ops import evaluate, format_range
from diagkit.term import FORMATS, InputError, Term, arg, coordinate, quotient

SIZES = {"q": 6, "x": 40, "d": 16}


def test_probabilities_of_many_equal_keys_are_said_to_vanish_before_they_do() -> None:
    plain, lifted = attention().cast(P="fp8e4m3"), attention().scale(P=448).cast(P="fp8e4m3")
    found = {keys: plain.ranges(q=1, x=keys, d=4)["P.fp8e4m3"].trouble for keys in (1023, 1024, 4096)}
    assert found == {1023: "", 1024: "vanishes: 0.0009766 rounds to 0", 4096: "vanishes: 0.0002441 rounds to 0"}
    for keys, trouble in found.items():
        equal = {"Q": np.zeros((1, 4)), "K": np.zeros((keys, 4)), "V": np.ones((keys, 4))}
        assert bool(trouble) == (not plain.reference(**equal).any())
    assert not lifted.ranges(q=1, x=4096, d=4).flagged


def test_scores_of_large_queries_are_said_to_overflow_in_fp16() -> None:
    Q, K = (dk.array(name, *dk.axes(f"{axis} d"), dtype="fp16") for name, axis in (("Q", "q"), ("K", "x")))
    scores = dk.Diagram(dk.einsum("q d, x d -> q x", Q, K, name="S"))
    assert not scores.ranges(**{**SIZES, "d": 128}).flagged
    (row,) = scores.ranges({"Q": 30.0, "K": 30.0}, **{**SIZES, "d": 128}).flagged
    assert (row.wire, row.trouble) == ("S", "overflows: 1.152e+05 is beyond 6.55e+04")


def test_codes_without_a_scale_are_said_to_saturate() -> None:
    codes = dk.Diagram(dk.cast(dk.array("X", dk.axis("x")), "int8", name="c"))
    assert codes.ranges({"X": 200.0}, x=3)["c"].trouble == "saturates: 200 is beyond 127"
    assert not codes.ranges({"X": (-1.0, 127.0)}, x=3).flagged
    tiny = dk.Diagram(dk.cast(dk.array("X", dk.axis("x")), "fp8e4m3", name="c"))
    assert tiny.ranges({"X": 1e-4}, x=3)["c"].trouble == "vanishes: 0.0001 rounds to 0"


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("kind", ["normal", "outliers"])
def test_no_run_leaves_its_bounds(name: str, kind: str) -> None:
    made = attention().recipe(name)
    arrays = dk.samples(kind, n=40, d=16, queries=6, seed=1) | {"H": dk.hadamard(16)}
    arrays = {array.name: arrays[array.name] for array in made.inputs}
    bounds = made.ranges({wire: float(np.abs(value).max()) for wire, value in arrays.items()}, **SIZES)
    outputs = [box.name for box in made.flat]
    everything: Any = evaluate(Term(made.inputs, made.flat, tuple(outputs)), arrays)
    for wire, value in everything.items():
        bound, slack = bounds[wire].bound, 1e-5 * np.abs(value).max()
        assert bound.low - slack <= value.min() and value.max() <= bound.high + slack, wire
        assert np.abs(value).max() >= bound.peak - slack, wire
        assert math.isfinite(bound.largest), wire


def test_a_bound_is_no_larger_than_it_must_be() -> None:
    """Weights that add up to 1 make no result larger than the largest value; without softmax 40 of them may."""
    assert attention().ranges({"V": 2.0}, **SIZES)["O"].bound.interval == (-2.0, 2.0)
    P, V = dk.array("P", *dk.axes("q x")), dk.array("V", *dk.axes("x d"))
    assert dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O")).ranges({"P": (0.0, 1.0), "V": 2.0}, **SIZES)[
        "O"
    ].bound.interval == (-80.0, 80.0)


def _spread(value: Any, width: int) -> Any:
    return dk.spread(value, dk.axis("x"), width)


def _blocks(S: Any) -> Any:
    return dk.amax(dk.absolute(dk.blocked(S, x=4)), over="x_in")


WHOLES: dict[str, Callable[[Any, Any], Any]] = {
    "by the mean": lambda e, S: e / dk.mean(e, over="x"),
    "by the sum over the other axis": lambda e, S: e / dk.total(e, over="q"),
    "less twice the maximum": lambda e, S: S - 2 * dk.amax(S, over="x"),
    "less minus the maximum": lambda e, S: S - -1 * dk.amax(S, over="x"),
    "less the maximum over the other axis": lambda e, S: S - dk.amax(S, over="q"),
    "by the least magnitude": lambda e, S: S / (dk.amin(dk.absolute(S), over="x") + 1e-3),
    "by the least magnitude alone": lambda e, S: S / dk.amin(dk.absolute(S), over="x"),
    "sums of tops of rows": lambda e, S: dk.total(dk.exp(S - dk.amax(S, over="x")), over="q"),
    "tops of rows, reduced": lambda e, S: dk.amin(dk.exp(S - dk.amax(S, over="x")), over="q"),
    "the maximum of a slice": lambda e, S: S - dk.amax(
        dk.view(S, {"x": coordinate("y")}, (dk.axis("q"), dk.axis("y", 3))), over="y"
    ),
    "the maximum of the transposed": lambda e, S: S - dk.amax(
        dk.view(S, {"q": coordinate("x"), "x": coordinate("q")}, dk.axes("q x")), over="x"
    ),
    "by its block's": lambda e, S: dk.combine(quotient, S, _spread(_blocks(S), 4)),
    "by half its block's": lambda e, S: dk.combine(quotient, S, 0.5 * _spread(_blocks(S), 4)),
    "by another block's": lambda e, S: dk.combine(quotient, S, dk.view(
        _blocks(S), {"x_block": sympy.floor((coordinate("x") + 2) / 4)}, dk.axes("q x")
    )),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLES)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_taken_of_the_whole_binds_only_what_it_is_taken_of(name: str, seed: int) -> None:
    """Every wire of a run lies in its bounds, and its largest magnitude is as large as is said."""
    S = dk.array("S", *dk.axes("q x"))
    made = dk.Diagram(WHOLES[name](dk.exp(S), S), name="bounded")
    given = np.random.default_rng(seed).normal(size=(8, 8)) * 3.0**seed
    bounds = made.ranges({"S": float(np.abs(given).max())}, q=8, x=8)
    with np.errstate(all="ignore"):
        everything: Any = evaluate(Term(made.inputs, made.flat, tuple(box.name for box in made.flat)), {"S": given})
    for wire, value in everything.items() if isinstance(everything, dict) else [(made.flat[0].name, everything)]:
        bound, slack = bounds[wire].bound, 1e-9 * np.abs(value).max()
        assert bound.low - slack <= value.min() and value.max() <= bound.high + slack, wire
        assert np.abs(value).max() >= bound.peak - slack, wire


def test_a_scale_for_each_block_bounds_its_codes() -> None:
    S = dk.array("S", *dk.axes("q x"))
    found = {name: dk.Diagram(WHOLES[name](S, S), name="b").ranges(q=8, x=8) for name in WHOLES if "block" in name}
    assert [f"{ranged.rows[-1].bound.high:g}" for ranged in found.values()] == ["1", "2", "inf"]


def test_a_product_is_bounded_and_its_overflow_said() -> None:
    product = dk.Diagram(dk.product(dk.array("X", *dk.axes("q x"), dtype="fp16"), over="x", name="P"))
    assert product.ranges({"X": (-3.0, 2.0)}, q=2, x=2)["P"].trouble == ""
    (row,) = product.ranges({"X": 2.0}, q=2, x=16).flagged
    assert (row.wire, row.trouble) == ("P", "overflows: 6.554e+04 is beyond 6.55e+04")
    assert not product.ranges({"X": 2.0}, q=2, x=15).flagged


def test_what_is_missing_is_said() -> None:
    with pytest.raises(InputError, match="ranges need a size of d, x; give d="):
        attention().ranges(q=3)
    with pytest.raises(InputError, match="has no input 'W'"):
        attention().ranges({"W": 1.0}, **SIZES)


def test_the_table() -> None:
    text = str(attention().cast(P="fp8e4m3").ranges(q=1, x=4096, d=4))
    row = next(line for line in text.splitlines() if line.startswith("P.fp8e4m3"))
    assert row.split(maxsplit=8)[-1] == "vanishes: 0.0002441 rounds to 0"
    assert row.split()[:8] == ["P.fp8e4m3", "fp8e4m3", "0", "to", "1", "0.001953", "to", "448"]


FORMULAS = [
    lambda a, b: a + b,
    lambda a, b: a * b - a,
    lambda a, b: dk.exp(a) / (1 + b**2),
    lambda a, b: dk.maximum(a, b) * dk.tanh(b),
    lambda a, b: dk.sqrt(a**2 + 1) * dk.floor(b),
    lambda a, b: dk.absolute(a) ** 3 + dk.sign(b),
    lambda a, b: dk.sin(a) - dk.erf(b),
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(range(len(FORMULAS))), *[st.lists(st.floats(-4, 4), min_size=3, max_size=3)] * 2)
def test_intervals_hold_their_formulas(which: int, left: list[float], right: list[float]) -> None:
    expr = FORMULAS[which](arg(0), arg(1))
    low, high = within(expr, {arg(0): (min(left), max(left)), arg(1): (min(right), max(right))})
    for a in left:
        for b in right:
            value = float(expr.subs({arg(0): a, arg(1): b}))
            assert low - 1e-9 <= value <= high + 1e-9


@pytest.mark.parametrize("dtype", [dtype for dtype in FORMATS if dtype not in ("bool", "tf32")])
def test_ranges_of_formats_are_those_of_their_numbers(dtype: str) -> None:
    smallest, largest = format_range(dtype)
    kept = dk.Diagram(dk.cast(dk.array("X", dk.axis("x")), dtype)) if dtype not in ("int32", "int64") else None
    if kept is not None:
        np.testing.assert_array_equal(kept(X=np.float64([smallest, largest])), [smallest, largest])


def _streamed() -> dk.Diagram:
    return attention().fuse().stream(x="s_x")


def test_what_a_stream_carries_is_bounded_in_the_format_it_is_gathered_in() -> None:
    """Unscaled sums grow with the keys: 100,000 of them overflow fp16, and 60,000 do only with values above 1."""
    narrow, few, many = _streamed().accumulate("fp16"), {"q": 1, "x": 10_000, "d": 4}, {"q": 1, "x": 100_000, "d": 4}
    assert not _streamed().ranges(**many).flagged
    flagged = {row.wire: row.trouble for row in narrow.ranges(**many).flagged}
    assert flagged["P.sum"] == "overflows: 1e+05 is beyond 6.55e+04"
    assert set(flagged) == {state.name for state in narrow.forms[0].state} - {"P.max"}
    assert not narrow.ranges({"V": 1.0}, **few).flagged
    bf16 = _streamed().accumulate("bf16", "P.sum").ranges(**many)
    assert (bf16["P.sum"].dtype, bf16["P.sum"].trouble, bf16["O.acc"].dtype) == ("bf16", "", "fp32")


@pytest.mark.parametrize("keys", [1, 7, 40])
def test_no_state_leaves_its_bounds(keys: int) -> None:
    made, rng = _streamed(), np.random.default_rng(2)
    sizes = {"q": 3, "x": keys, "d": 4}
    arrays = {array.name: rng.uniform(-2, 2, [sizes[axis.name] for axis in array.axes]) for array in made.inputs}
    bounds, form = made.ranges(dict.fromkeys(arrays, 2.0), **sizes), made.forms[0]
    logits = arrays["Q"] @ arrays["K"].T
    weights = np.exp(logits - logits.max(1, keepdims=True))
    whole = {"P.max": logits.max(1), "P.sum": weights.sum(1), "O.acc": weights @ arrays["V"]}
    assert {state.name for state in form.state} == set(whole)
    for name, held in whole.items():
        assert bounds[name].bound.low <= held.min() and held.max() <= bounds[name].bound.high


def test_a_written_infinity_is_no_overflow_and_rows_that_see_nothing_stay_in_bounds() -> None:
    q, x = dk.axes("q x")
    hidden = dk.masked(dk.array("S", q, x), dk.array("seen", q, x, dtype="bool"))
    shared = dk.softmax(hidden, over=x, name="P")
    made = dk.Diagram(shared, dk.logsumexp(hidden, over=x, name="L"), dk.argmax(hidden, over=x, name="A"))
    found = made.ranges(q=3, x=5)
    assert not found.flagged
    seen = np.array([[True] * 5, [False] * 5, [False, True, True, False, False]])
    arrays = {"S": np.linspace(-6, 6, 15).reshape(3, 5), "seen": seen}
    everything: Any = evaluate(Term(made.inputs, made.flat, tuple(box.name for box in made.flat)), arrays)
    for wire, value in everything.items():
        low, high = found[wire].bound.interval
        assert low - 1e-9 <= value.min() and value.max() <= high + 1e-9, wire
        beside = value[np.isfinite(value)]
        least, most = found[wire].bound.finite
        assert value.dtype == bool or (least - 1e-9 <= beside[beside != 0].min() and beside.max() <= most + 1e-9), wire
    codes = dk.Diagram(dk.cast(hidden, "fp8e5m2", name="c")).ranges(q=3, x=5)
    assert codes["c"].trouble == "saturates: inf is beyond 5.734e+04"
