"""Warnings in a picture: marked on the wire that they speak of, said in words, only where somebody asked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import examples
import pytest

import diagkit as dk
from diagkit import draw
from diagkit.draw.scene import Scene
from diagkit.term import DiagkitError, InputError

SIZES = {"q": 1, "x": 4096, "d": 32}


def alarms(scene: Scene) -> list[str]:
    """What the marks warn of."""
    return [mark.about for mark in scene.marks if mark.role == "alarm"]


def bare() -> dk.Diagram:
    """Attention whose probabilities are rounded to 8 bits without a scale."""
    return examples.attention().cast(P="fp8e4m3")


def test_a_P_that_vanishes_is_marked_before_anything_has_run() -> None:
    shown = bare().draw(ranges=True, **SIZES)
    assert "<title>P.fp8e4m3 vanishes: 0.0002441 rounds to 0</title>" in shown.svg
    assert "P.fp8e4m3 vanishes" in shown.svg.partition("</desc>")[0]
    assert "warning  P.fp8e4m3 vanishes" in shown.caption


def test_with_a_scale_nothing_is_marked_and_the_picture_says_so() -> None:
    shown = examples.attention().scale(P=448).cast(P="fp8e4m3").draw(ranges=True, **SIZES)
    assert "vanishes" not in shown.svg and draw.FINE in shown.svg and draw.FINE in shown.caption


def test_nobody_asked_nothing_is_said() -> None:
    assert bare().draw().svg == bare().svg()
    assert alarms(draw.scene(bare())) == [] and draw.FINE not in bare().svg()


def test_the_mark_stands_on_the_wire_that_the_column_makes() -> None:
    scene = draw.scene(bare(), warnings={"P.fp8e4m3": "vanishes"})
    (mark, below) = [mark for mark in scene.marks if mark.role == "alarm"]
    wires = [other for other in scene.marks if other.role.startswith("wire-")]
    straight = [ends for wire in wires for ends in pairwise(wire.outline())]
    left, top, right, bottom = mark.box
    assert any(a[1] == b[1] and top < a[1] < bottom and a[0] < left and right < b[0] for a, b in straight)
    assert below.box[1] > max(wire.box[3] for wire in wires)


def test_inputs_and_what_is_inside_a_block_are_marked_too() -> None:
    scene = draw.scene(examples.attention(), warnings={"V": "overflows", "P.max": "overflows"})
    assert alarms(scene) == ["V overflows", "P.max overflows", "V overflows", "P.max overflows"]
    assert draw.overlaps(scene) == []


@pytest.mark.parametrize("theme", list(draw.THEMES))
def test_a_streamed_picture_with_every_wire_marked_stays_legible(theme: str) -> None:
    term = bare().fuse().group(q="g_q").stream(x="s_x")
    scene = draw.scene(term, warnings=dict.fromkeys(term.wires, "overflows: 1e+06 is beyond 448"))
    assert draw.overlaps(scene) == []
    assert "overflows" in draw.as_svg(scene, theme)


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_a_marked_picture_is_saved_like_any_other(tmp_path: Path, suffix: str) -> None:
    path = bare().draw("dark", ranges=True, **SIZES).save(tmp_path / f"a.{suffix}")
    assert path.read_bytes()[:4] in (b"<svg", b"\x89PNG", b"%PDF")


def test_bounds_come_in_by_input() -> None:
    shown = examples.attention().formats("fp16").draw(ranges={"V": 1e6}, **SIZES)
    assert "V overflows: 1e+06 is beyond 6.55e+04" in shown.caption
    assert "Q overflows" not in shown.caption


def test_sizes_without_ranges_and_ranges_without_sizes_are_refused() -> None:
    with pytest.raises(DiagkitError, match="without ranges"):
        bare().draw(x=4096)
    with pytest.raises(InputError, match="size of"):
        bare().draw(ranges=True)


def test_a_loop_that_is_written_as_equations_marks_them() -> None:
    """In each chunk, and behind it; a state where it is renewed."""
    made = examples.attention().recipe("int8 scores, fp8 values").part("O").fuse().group(q="g_q").stream(x="s_x")
    warned = dict.fromkeys(("P.fp8e4m3", "O.acc", "O"), "saturates")
    plain, scene = draw.scene(made), draw.scene(made, warnings=warned)
    written = [line for line in scene.words if " = " in "".join(run.text for run in line.runs)]
    assert len(written) > 4, "the loop is written as equations"
    first = min(line.y for line in written) - 20
    marks = [mark for mark in scene.marks if mark.role == "alarm" and mark.box[0] > 40 and mark.box[1] > first]
    assert [mark.about for mark in marks] == ["fp8e4m3 saturates", "acc saturates", "O saturates"]
    assert all(any(mark.box[1] < line.y - 5 < mark.box[3] for line in written) for mark in marks)
    assert draw.overlaps(scene) == [] and alarms(plain) == []
