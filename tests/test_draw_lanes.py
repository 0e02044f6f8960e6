"""Lanes: boxes as wide as they take, nothing on top of anything, the same bytes each time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_draw_gallery import check_svg

import diagkit as dk
from diagkit import draw
from diagkit.book.lanes import lane_boxes
from diagkit.draw import LaneBox
from diagkit.draw.lanes import HATCH, hatching
from diagkit.machine import load, pipeline
from diagkit.term import DiagkitError

H100 = load("H100-SXM")
CASES = [("fp16", "intra"), ("fp8e4m3", "inter"), ("fp16", "inter")]


@pytest.mark.parametrize(("dtype", "overlap"), CASES)
def test_golden(dtype, overlap, golden):
    shown = dk.lanes(pipeline(H100, dtype, overlap), 4)
    check_svg(shown.svg)
    golden(f"lanes-{dtype}-{overlap}.svg", shown.svg)
    assert f"{pipeline(H100, dtype, overlap).tensor_busy:.1%}" in str(shown)


@pytest.mark.parametrize(("dtype", "overlap"), CASES)
def test_boxes_are_as_wide_as_they_take_and_no_label_touches_another(dtype, overlap):
    model = pipeline(H100, dtype, overlap)
    scene = draw.lanes_scene(lane_boxes(model, 4))
    assert draw.overlaps(scene) == []
    widths = {mark.about.split(": ")[1].split(" ")[0]: mark.box[2] - mark.box[0] for mark in scene.marks if mark.owner}
    assert widths["QK"] == pytest.approx(widths["PV"])
    assert widths["softmax"] / (widths["QK"] + widths["PV"]) == pytest.approx(float(model.sigma))


def test_rows_by_unit_only_where_a_worker_does_two_things_at_once():
    apart = [LaneBox("a", "tensor", "x", 0, 1), LaneBox("a", "special", "y", 1, 2)]
    beside = [*apart, LaneBox("a", "special", "z", 0, 1)]
    assert draw.lanes_scene(beside).height > draw.lanes_scene(apart).height


def test_overhead_is_hatched_and_barriers_are_dotted():
    box = LaneBox("a", "special", "softmax", 0, 2, overhead=1)
    roles = [mark.role for mark in draw.lanes_scene([box], [1.0]).marks]
    assert roles.count("barrier") == 2  # one on the lanes, one in the legend
    assert "hatch" in roles
    assert not {"barrier", "hatch"} & {mark.role for mark in draw.lanes_scene([LaneBox("a", "fma", "x", 0, 2)]).marks}


@settings(max_examples=50, deadline=None)
@given(st.floats(1, 200), st.floats(1, 60))
def test_hatching_stays_inside(wide, high):
    for start, end in hatching((0, 0, wide, high)):
        assert all(-1e-9 <= x <= wide + 1e-9 and -1e-9 <= y <= high + 1e-9 for x, y in (start, end))
        assert end[0] - start[0] == pytest.approx(start[1] - end[1])  # rising at 45 degrees
    assert len(hatching((0, 0, wide, high))) >= (wide + high) / HATCH - 2


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(DiagkitError, match="need boxes"):
        draw.lanes_scene([])
    with pytest.raises(DiagkitError, match="cannot be drawn"):
        draw.lanes_scene([LaneBox("a", "tensor", "x", 2, 1)])
    with pytest.raises(DiagkitError, match="unit one of"):
        draw.lanes_scene([LaneBox("a", "gears", "x", 0, 1)])


def test_dark_and_strange_names():
    boxes = [LaneBox("<warp> & co", "memory", "load <K>", 0, 1)]
    assert draw.lanes(boxes, theme="dark") != draw.lanes(boxes)
    check_svg(draw.lanes(boxes, title="a & b", theme="dark"))


@pytest.mark.parametrize(("start", "end", "said"), [(0, 0, "takes any time"), (-1, 1, "start at 0 or later")])
def test_boxes_that_take_no_time_or_begin_before_it_are_refused(start, end, said):
    with pytest.raises(DiagkitError, match=said):
        draw.lanes([LaneBox("a", "tensor", "x", start, end)])
