"""Scales and zeros are thin wires: found from what the boxes do, whatever they are called; formats beside names."""

from __future__ import annotations

import examples
import pytest

import diagkit as dk
from diagkit import derive, draw
from diagkit.diagram.table import cost_table
from diagkit.draw.scales import scales
from diagkit.draw.scene import Scene
from diagkit.term import Term, rename_box


def roles(scene: Scene) -> set[str]:
    return {mark.role.rpartition("-")[0] for mark in scene.marks if mark.role[-1].isdecimal()}


def coded(**how: object) -> dk.Diagram:
    return examples.attention().quantize("K", "int8", **how)


FOUND = {
    "per token": (lambda: coded(over="d"), {"K.scale"}),
    "per tensor": (coded, {"K.scale"}),
    "codes and scales handed in": (lambda: coded(over="d").part("O"), {"K.scale"}),
    "split": (
        lambda: coded(over="d").part("O").fuse().group(q="g_q").stream(x="s_x").split(x=4),
        {"K.scale", "K.scale.parts"},
    ),
    "a quantizer": (lambda: coded(over="d").part("K.codes", "K.scale"), {"K.scale"}),
    "in blocks, read through a view": (lambda: coded(over="d", x=64).part("O"), {"K.scale", "K.each"}),
    "probabilities": (lambda: examples.attention().quantize("P", "int8", "x"), {"P.scale"}),
    "with a zero": (
        lambda: examples.attention().recipe("int4 keys per channel, with zeros").part("O"),
        {f"{wire}.{kind}" for wire in "KV" for kind in ("scale", "each", "zero", "zero.each")},
    ),
    "no codes": (examples.attention, set()),
    "codes without a scale": (lambda: examples.attention().cast(P="fp8e4m3").open(), set()),
    "half precision": (lambda: examples.attention().formats("fp16"), set()),
    "the mean that smoothing takes off": (lambda: examples.attention().smooth(K="x").cast(K="int8"), set()),
}


@pytest.mark.parametrize("case", FOUND)
def test_scales_are_found_from_structure(case: str) -> None:
    made, wanted = FOUND[case]
    assert scales(made()) == wanted


def test_no_name_is_asked() -> None:
    term = coded(over="d").part("O")
    called = {wire: f"w{place}" for place, wire in enumerate(term.wires)}
    arrays = tuple(dk.array(called[a.name], *a.axes, dtype=a.dtype).source for a in term.inputs)
    boxes = tuple(rename_box(box, called) for box in term.boxes)
    other = Term(arrays, boxes, tuple(called[wire] for wire in term.outputs), "renamed")
    assert scales(other) == {called["K.scale"]}


def test_a_gain_is_no_scale() -> None:
    x, d = dk.axes("x d")
    normed = dk.rms_norm(dk.array("X", x, d), d, dk.weight("gamma", d))
    assert scales(dk.Diagram(dk.cast(normed, "fp8e4m3", name="N")).open()) == set()


@pytest.mark.parametrize("stream", [False, True])
def test_they_are_drawn_thin_and_the_legend_says_so(stream: bool) -> None:
    term = coded(over="d").part("O")
    term = term.fuse().group(q="g_q").stream(x="s_x") if stream else term
    scene = draw.scene(term)
    assert {"wire", "thin-wire"} <= roles(scene)
    assert any("scales and zeros" in line.text for line in scene.words)
    assert "thin-wire" not in roles(draw.scene(examples.attention()))
    assert draw.overlaps(scene) == []


@pytest.mark.parametrize("recipe", derive.RECIPES)
def test_no_recipe_makes_labels_overlap(recipe: str) -> None:
    whole = examples.attention().recipe(recipe)
    stream = whole.part("O").fuse().group(q="g_q").stream(x="s_x")
    for term in (whole, stream):
        warnings = dict.fromkeys(list(term.wires)[:9], "overflows: 1e+06 is beyond 448")
        assert draw.overlaps(draw.scene(term, cost_table(term), warnings=warnings)) == []


def test_one_scale_for_all_is_a_thin_dotted_wire() -> None:
    assert "thin-item" in roles(draw.scene(coded().part("O")))


def test_a_wire_becomes_thin_behind_the_box_that_makes_the_scale() -> None:
    scene = draw.scene(coded(over="d").part("K.codes", "K.scale"))
    thin = [mark for mark in scene.marks if mark.role == "thin-wire-0"]
    divided = next(line for line in scene.words if "127" in line.text)
    wires = [mark for mark in thin if len(mark.path) > 2 or mark.box[0] > 30]
    assert wires and all(mark.box[2] > divided.box[2] for mark in wires)


def test_formats_stand_beside_names_that_go_on() -> None:
    words = [line.text for line in draw.scene(coded(over="d")).words]
    assert words.count("int8") >= 3


def test_what_is_carried_in_another_format_says_so() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    said = [line.text for line in draw.scene(flash.accumulate("fp16", "O.acc")).words]
    assert "from 0 in fp16" in said
    assert any(line.startswith("the loop over x") and "o from 0 in fp16;" in line for line in said)
    assert not any("fp16" in line.text for line in draw.scene(flash).words)


def test_a_sum_of_whole_numbers_names_its_format() -> None:
    both = coded(over="d").quantize("Q", "int8", over="d")
    assert any(line.text == "contract, int32" for line in draw.scene(both).words)
