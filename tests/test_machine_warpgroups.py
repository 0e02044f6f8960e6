"""Warpgroups: the figures of the FlashAttention-3 reading, and the two forms of the model against each other."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagkit.machine import MachineError, load
from diagkit.machine.warpgroups import ASSUMED, HALF, UNITS, Pipeline, pipeline, softmax_time
from diagkit.term import DiagkitError

H100 = load("H100-SXM")
# format, overlap, overhead, time of a step in its products, share of the peak reached in percent
READING = [
    ("fp16", "intra", Fraction(2, 3), Fraction(4, 3), 75.0),
    ("fp8e4m3", "inter", Fraction(2, 3), Fraction(5, 3), 60.0),
    ("fp8e4m3", "intra", Fraction(0), Fraction(3, 2), 66.7),
    ("fp16", "inter", Fraction(1), Fraction(1), 100.0),
    ("fp8e4m3", "intra", Fraction(2, 3), Fraction(13, 6), 46.2),
]


@pytest.mark.parametrize(("dtype", "overlap", "overhead", "time", "percent"), READING)
def test_the_reading_of_flash_attention_3(dtype, overlap, overhead, time, percent):
    found = pipeline(H100, dtype, overlap, overhead=overhead)
    assert found.time == found.scheduled_time() == time
    assert round(100 * found.tensor_busy, 1) == percent


def test_barriers_are_where_products_wait_for_a_softmax():
    found = pipeline(H100, "fp16", "intra")
    assert found.barriers(3) == [Fraction(4, 3), Fraction(8, 3), Fraction(4)]
    assert len(pipeline(H100, "fp16", "inter").barriers(20)) == 2  # at the start and at the end
    ends = {slot.end for slot in found.schedule(3) if slot.kind == "softmax"}
    assert set(found.barriers(3)) <= ends


def test_the_overhead_is_the_last_part_of_a_softmax():
    found = pipeline(H100, "fp16", "intra")
    softmax = next(slot for slot in found.schedule(1) if slot.kind == "softmax")
    assert found.exponentials_end(softmax) - softmax.start == Fraction(1, 2)  # the exponentials alone
    assert pipeline(H100, "fp16", "intra", overhead=Fraction(0)).exponentials_end(softmax) is None


def test_fp8_within_a_warpgroup_leaves_a_third_of_the_special_units_idle():
    assert pipeline(H100, "fp8e4m3", "intra", overhead=Fraction(0)).softmax_busy == pytest.approx(2 / 3)


def test_inter_hides_an_overhead_of_one_in_fp16_and_no_more():
    over = pipeline(H100, "fp16", "inter", overhead=Fraction(11, 10))
    assert over.time == over.scheduled_time() == Fraction(21, 20)


def test_sigma_follows_the_head_and_the_machine():
    assert softmax_time(H100, "fp16", 128, Fraction(0)) == Fraction(1, 2)
    assert softmax_time(H100, "fp16", 64, Fraction(0)) == 1
    assert softmax_time(load("A100-SXM-80GB"), "fp16", 128, Fraction(0)) == Fraction(1, 4)


sigmas = st.fractions(min_value=Fraction(1, 16), max_value=4, max_denominator=16)


@settings(max_examples=25, deadline=None)
@given(sigmas, st.integers(1, 4))
def test_the_schedule_takes_the_time_of_the_closed_form(sigma, warpgroups):
    for model in (Pipeline(sigma, "inter", warpgroups), Pipeline(sigma, "intra", 1)):
        # Only whole periods of the pattern would give equality; a start or an end cut off is below a step's worth.
        assert abs(model.scheduled_time(30) - model.time) <= (1 + sigma) / 30


@settings(max_examples=10, deadline=None)
@given(sigmas, st.integers(1, 3), st.sampled_from([Fraction(1, 3), Fraction(2, 3)]))
def test_no_schedule_beats_the_closed_form_where_products_are_unequal(sigma, warpgroups, first):
    """First come first served may fall short of what turns can reach, and never beats it."""
    for overlap, count in (("inter", warpgroups), ("intra", 1)):
        model = Pipeline(sigma, overlap, count, first=first)
        assert model.scheduled_time(20) >= model.time - (1 + sigma) / 20
    assert model.scheduled_time(20) <= model.time + (1 + sigma) / 20  # one warpgroup has no turns to lose


@settings(max_examples=25, deadline=None)
@given(sigmas, st.integers(1, 3), st.sampled_from(["inter", "intra"]))
def test_no_unit_does_two_things_and_no_softmax_precedes_its_scores(sigma, warpgroups, overlap):
    slots = Pipeline(sigma, overlap, warpgroups).schedule(6)
    assert len(slots) == 3 * 6 * warpgroups
    for unit in set(UNITS.values()):
        mine = sorted((slot.start, slot.end) for slot in slots if UNITS[slot.kind] == unit)
        assert all(end <= start for (_, end), (start, _) in pairwise(mine))
    at = {(slot.kind, slot.step, slot.warpgroup): slot for slot in slots}
    for (kind, step, group), slot in at.items():
        before = {"softmax": "QK", "PV": "softmax"}.get(kind)
        assert before is None or at[before, step, group].end <= slot.start


def test_every_assumption_has_a_name_and_unknown_overlaps_are_refused():
    assert pipeline(H100, "fp16", "intra").assumed == ASSUMED
    assert {"softmax", "overhead", "units"} <= {name for name, _ in ASSUMED}
    with pytest.raises(MachineError, match="no overlap 'both'; one of: intra, inter"):
        pipeline(H100, "fp16", "both")
    with pytest.raises(MachineError, match=r"tensor\.fp8"):
        pipeline(load("A100-SXM-80GB"), "fp8e4m3", "intra")


WRONG = [{"warpgroups": n} for n in (0, -1, 2.5, "2", True)] + [{"d": n} for n in (0, -4, "128", 1.5)]
WRONG += [{"overhead": part} for part in (-1, "x", float("nan"), float("inf"), None, True)]


@pytest.mark.parametrize("options", WRONG, ids=str)
@pytest.mark.parametrize("overlap", ["intra", "inter"])
def test_what_no_pipeline_has_is_refused(overlap, options):
    with pytest.raises(DiagkitError, match=next(iter(options))):
        pipeline(H100, "fp16", overlap, **options)


def test_a_pipeline_needs_a_machine():
    with pytest.raises(MachineError, match="'H100-SXM' is no machine"):
        pipeline("H100-SXM", "fp16", "inter")


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
@pytest.mark.parametrize("warpgroups", [1, 2, 3, 4])
@pytest.mark.parametrize("overlap", ["intra", "inter"])
def test_every_operation_comes_to_its_turn(overlap, warpgroups, steps):
    model = pipeline(H100, "fp16", overlap, warpgroups=warpgroups)
    slots = model.schedule(steps)
    assert len(slots) == len({(slot.kind, slot.step, slot.warpgroup) for slot in slots}) == 3 * steps * model.warpgroups
    assert len(model.barriers(steps)) <= steps * model.warpgroups


@pytest.mark.parametrize("steps", [-1, 2.5, "3", True])
def test_steps_are_counted(steps):
    for asked in (Pipeline(HALF, "intra", 1).schedule, Pipeline(HALF, "inter", 2).barriers):
        with pytest.raises(DiagkitError, match="steps cannot be"):
            asked(steps)
    with pytest.raises(DiagkitError, match="steps cannot be 0"):
        Pipeline(HALF, "inter", 2).scheduled_time(0)
