"""The additive model, assumption by assumption: against counts of the diagram and arithmetic done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import diagkit as dk
from diagkit.machine import (
    ASSUMPTIONS,
    IMPLEMENTATIONS,
    Case,
    MachineError,
    anchors,
    case_clocks,
    gains,
    implementation,
    load,
)
from diagkit.machine.additive import BARE, NAMES, ROWS, old_instructions

H100 = load("H100-SXM")
FULL = Case(H100, "FA3", "fp16", 128, False, 4096, 128)
CAUSAL = replace(FULL, causal=True)


def only(case, *names):
    """The clocks with all assumptions that kernels differ by off, but those named."""
    return case_clocks(case, [name for name in BARE if name not in names])


def gain(case, name):
    return only(case, name) / only(case)


@pytest.mark.parametrize("length", [512, 4096, 16384])
def test_the_diagonal_is_what_the_diagram_computes_over_exact_pairs(length):
    """2 n^2 d + 2 n g d against 2 n (n + 1) d, from the tile-level count of the causal diagram."""
    q, x, d = dk.axes("q x d")
    arrays = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    O = dk.attention(*arrays, over=x, features=d, mask=dk.causal(q, x), name="O")
    flash = dk.Diagram(O).fuse().group(q=ROWS).stream(x=ROWS)
    computed = flash.work().flop(q=length, x=length, d=128)
    assert computed == 2 * length**2 * 128 + 2 * length * ROWS * 128
    exact = 4 * 128 * length * (length + 1) // 2
    assert gain(replace(CAUSAL, length=length), "diagonal") == pytest.approx(computed / exact)
    assert gain(FULL, "diagonal") == 1


def test_ends_are_one_step_of_those_that_a_tile_has():
    assert gain(FULL, "ends") == pytest.approx(33 / 32)
    assert gain(CAUSAL, "ends") == pytest.approx(17.5 / 16.5)  # from 1 to 32 steps: 16.5 on average


def test_waves_are_whole_rounds():
    assert gain(FULL, "waves") == pytest.approx(32 / (128 * 32 / 132))
    assert gain(CAUSAL, "waves") == gain(replace(FULL, heads=None), "waves") == 1


def test_old_instructions_slow_the_products_on_hopper_alone():
    fa2 = replace(FULL, impl="FA2")
    assert only(fa2, "mma.sync") == pytest.approx(0.125 / 0.629 + 1 / 16)
    assert gain(replace(fa2, machine=load("A100-SXM-80GB")), "mma.sync") == gain(FULL, "mma.sync") == 1


def test_the_rest_of_softmax_costs_those_that_do_not_hide_it():
    assert only(replace(FULL, impl="FA2"), "other") - only(FULL) == pytest.approx((3 + 2) / 128)
    assert only(FULL, "other") == only(FULL)


def test_casts_cost_where_pv_is_in_8_bits():
    added = {dtype: only(replace(FULL, dtype=dtype), "casts") - only(replace(FULL, dtype=dtype)) for dtype in
             ("fp16", "fp8", "int8+fp8", "int8+fp16")}  # fmt: skip
    assert added == pytest.approx({"fp16": 0, "fp8": 2 / 128, "int8+fp8": 2 / 128, "int8+fp16": 0})


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(anchors()), st.sets(st.sampled_from(NAMES)))
def test_no_assumption_makes_a_kernel_faster(anchor, without):
    for name in without:
        assert case_clocks(anchor.case, without) <= case_clocks(anchor.case, without - {name}) * (1 + 1e-12)


def test_more_of_a_unit_gains_what_its_share_of_the_clocks_allows():
    for dtype, products in (("fp16", 2 / 3), ("fp8", 1 / 2)):
        found = gains(replace(FULL, dtype=dtype), without=BARE)
        assert found["tensor cores"] == pytest.approx(1 / (products / 2 + 1 - products))
        assert found["exponentials"] == pytest.approx(1 / (products + (1 - products) / 2))
        assert (found["FMA units"], found["clock"], found["multiprocessors"]) == pytest.approx((1, 2, 2))
    assert gains(replace(FULL, impl="FA2"), without=("waves",))["FMA units"] > 1


def test_every_assumption_has_a_text_and_a_source():
    assert len(set(NAMES)) == len(ASSUMPTIONS)
    assert all(len(each.text) > 20 and each.source for each in ASSUMPTIONS)


def test_every_published_implementation_is_known_with_a_source():
    assert {each.impl for each in anchors()} <= set(IMPLEMENTATIONS)
    assert all(each.source for each in IMPLEMENTATIONS.values())
    with pytest.raises(MachineError, match="nothing is known of the implementation 'FA9'"):
        implementation("FA9")


def test_a_machine_with_instructions_of_its_own_states_what_mma_sync_reaches():
    """On Ampere mma.sync is what there is; a B200 states no part, and none is guessed."""
    on = {name: Case(load(name), "FA2", "fp16", 128, False, 8192) for name in ("A100-SXM-80GB", "H100-SXM", "B200")}
    assert old_instructions(on["A100-SXM-80GB"]) == 1
    assert old_instructions(on["H100-SXM"]) > 1
    with pytest.raises(MachineError, match="mma_sync_part"):
        old_instructions(on["B200"])
