"""Charts beside a picture: what they show is where the numbers say, no words overlap, any name is escaped."""

from __future__ import annotations

from itertools import product
from typing import Any
from xml.etree import ElementTree

import examples
import pytest
from test_draw_gallery import check_svg

import diagkit as dk
from diagkit import draw
from diagkit.draw import (
    Bars,
    Roof,
    Row,
    Table,
    TileMap,
    as_svg,
    bars_scene,
    board,
    filled,
    map_scene,
    overlaps,
    roof_scene,
)

BARS = Bars("Time", (("global", 2e-6), ("tensor", 1e-6), ("fma", None)), (("serial", 3e-6),), "global")
ROOF = Roof("Roof", 1e12, 1e14, (10.0, 5e12, 1e13), (200.0, 5e13, 1e14))


def tiles(**changes: Any) -> TileMap:
    heights = {(row, column): 1e6 / row for row, column in product((16, 32), (16, 32, 64))}
    given: dict[str, Any] = {
        "rows": ("g_q", (16, 32)), "columns": ("s_x", (16, 32, 64)), "heights": heights,
        "unfit": frozenset({(32, 64)}), "here": (16, 32), "best": (24, 16),
    }  # fmt: skip
    return TileMap("Bytes", "B", **{**given, **changes})


def boxes(scene: draw.Scene, role: str) -> list[Any]:
    return [mark.box for mark in scene.marks if mark.role == role]


def test_bars_are_as_long_as_their_times() -> None:
    scene = bars_scene(BARS)
    ((left, _, slow, _),), ((_, _, other, _),) = boxes(scene, "chart-slow"), boxes(scene, "chart-bar")
    ((_, _, total, _),) = boxes(scene, "chart-total")
    assert slow - left == pytest.approx(2 * (other - left)) == pytest.approx(2 / 3 * (total - left))
    said = [line.text for line in scene.words]
    assert "not stated" in said and "2 µs" in said


def test_a_point_on_the_roof_is_drawn_on_it() -> None:
    scene = roof_scene(ROOF)
    (roof,) = [mark.outline() for mark in scene.marks if mark.role == "chart-roof"]
    (x, y), (ridge, top) = roof[0], roof[1]
    (here,), (best,) = boxes(scene, "chart-here"), boxes(scene, "chart-best")
    at = ((here[0] + here[2]) / 2, (here[1] + here[3]) / 2)
    assert at[1] == pytest.approx(y + (top - y) * (at[0] - x) / (ridge - x), abs=0.5)  # 10 FLOP/B by 1 TB/s
    assert (best[1] + best[3]) / 2 == pytest.approx(top, abs=0.1) and (best[0] + best[2]) / 2 > ridge


def test_the_map_is_dark_where_there_is_more_and_empty_where_nothing_fits() -> None:
    scene = map_scene(tiles())
    roles = [mark.role for mark in scene.marks if mark.role.startswith("heat")]
    assert roles.count("heat-6") == 3 and roles.count("heat-0") == 2 and roles.count("heat-none") == 1
    (dark, _, _), (light, _) = boxes(scene, "heat-6"), boxes(scene, "heat-0")
    assert dark[1] > light[1]  # small tiles below
    ((left, high, right, low),) = boxes(scene, "chart-best")
    assert light[1] + light[3] < high + low < dark[1] + dark[3]  # 24 lies between 16 and 32
    assert left + right == pytest.approx(dark[0] + dark[2])
    assert any("g_q=32, s_x=64: 31.25 kB, does not fit" in mark.about for mark in scene.marks)


def test_a_map_of_one_tile_and_one_without_a_best() -> None:
    one = tiles(
        rows=("", (1,)), heights={(1, 16): 5.0, (1, 32): 5.0, (1, 64): 5.0}, unfit=frozenset(), here=(1, 64), best=None
    )
    scene = map_scene(one)
    assert not boxes(scene, "chart-best") and len(boxes(scene, "heat-0")) == 3
    assert overlaps(scene) == []


def test_marks_in_cells_become_words_and_no_words_overlap() -> None:
    term = examples.matmul()
    scene = draw.scene(term, Table((Row("H", 0, {"C": "#000001"}, "#000002"),)), loops=False)
    said = filled(scene, {"#000001": "12.5 M", "#000002": ""})
    assert {"12.5 M"} == {line.text for line in said.words} - {line.text for line in scene.words}
    assert not any(line.text.startswith("#") for line in said.words)
    whole = board(
        said, [bars_scene(BARS), roof_scene(ROOF), map_scene(tiles())], [("wrong", True), ("plain " * 80, False)]
    )
    assert overlaps(whole) == []
    assert max(line.box[2] for line in whole.words) <= whole.width


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("sizes", [{"q": 131072, "d": 512}, {"q": 48, "d": 16}, {"q": 4096, "d": 128, "g_q": 8}])
def test_no_words_of_an_explorer_overlap(form: int, sizes: dict[str, int]) -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    names = list(dk.Explorer(flash, x="q", **sizes).forms)
    scene = dk.Explorer(flash, x="q", form=names[form], **sizes).scene()
    assert overlaps(scene) == []
    assert max(line.box[2] for line in scene.words) <= scene.width


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_name_is_escaped_in_both_themes(theme: str) -> None:
    name = 'a<b>&"c"$\x00'
    charts = [
        bars_scene(Bars(name, ((name, 1.0),), slowest=name)), roof_scene(Roof(name, 1.0, 1.0, (1.0, 0.0, 1.0))),
        map_scene(tiles(rows=(name, (16, 32)))),
    ]  # fmt: skip
    svg = as_svg(board(draw.scene(examples.matmul()), charts, [(name, True)]), theme)
    check_svg(svg)
    assert ElementTree.fromstring(svg) is not None and "\x00" not in svg
