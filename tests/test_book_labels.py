"""Names of points cover neither points nor each other."""

from __future__ import annotations

from itertools import combinations

import pytest

from diagkit.book import scatter
from diagkit.book.labels import REACH, broken

pytest.importorskip("matplotlib", reason="the lab extra is not installed")

NAMES = ["fp8 per tensor", "fp8 per block, rotated and smoothed", "int8 scores", "int4 keys and values"]


def crowded() -> dict[str, list[tuple[float, float, str]]]:
    """Points of four groups close to each other, those of one to be named."""
    named = [(4.0 + place, 1e-3 * 1.6**place, name) for place, name in enumerate(NAMES)]
    others = [(4.4 + step / 4, 1e-3 * 1.2**step, "") for step in range(16)]
    return {"named": named, "others": others, "far": [(16.0, 1e-5, "")]}


def test_names_keep_clear_of_all_points_of_the_legend_and_of_each_other() -> None:
    from matplotlib.text import Text

    plot = scatter(crowded(), "bits", "error")
    (axes,) = plot.figure.axes
    plot.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text).extents for text in axes.texts]
    dots = [axes.transData.transform(point[:2]) for points in crowded().values() for point in points]
    assert len(boxes) == len(NAMES)
    for left, bottom, right, top in boxes:
        assert not any(left - REACH < x < right + REACH and bottom - REACH < y < top + REACH for x, y in dots)
    walls = [*boxes, axes.get_legend().get_window_extent().extents]
    assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for a, b in combinations(walls, 2))


def test_a_name_that_stands_off_is_led_to() -> None:
    (axes,) = scatter(crowded(), "bits", "error").figure.axes
    assert any(text.arrow_patch is not None for text in axes.texts)
    (alone,) = scatter({"one": [(1.0, 1.0, "here")]}, "x", "y").figure.axes
    assert [text.arrow_patch for text in alone.texts] == [None]


def test_long_names_are_broken_behind_commas_only() -> None:
    assert broken("a name that is long and has none") == "a name that is long and has none"
    assert broken("one name; another name, longer") == "one name;\nanother name,\nlonger"
