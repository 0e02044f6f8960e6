"""The explorer: its numbers are those of the diagram, its controls move the figure, what is wrong is said."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any
from xml.etree import ElementTree

import examples
import ipywidgets
import pytest

import diagkit as dk
from diagkit.explore import VIEW, Explorer
from diagkit.explore.widget import Controls
from diagkit.term import DiagkitError

LIMIT_S = 1.0
"""Aim: 0.2 s for a step; a loaded machine gets five times that. `make bench` measures the aim."""


def flash() -> dk.Diagram:
    return examples.attention().fuse().group(q="g_q").stream(x="s_x")


def explorer(**changes: Any) -> Explorer:
    return Explorer(flash(), **{"machine": "H100-SXM", "q": 4096, "x": "q", "d": 128, **changes})


def words(svg: str) -> list[str]:
    """Every line of words in the figure."""
    root = ElementTree.fromstring(svg)
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_its_numbers_are_those_of_the_diagram() -> None:
    shown = explorer(g_q=128, s_x=64)
    one = flash().formats("fp16").on("H100-SXM", q=4096, x=4096, d=128, g_q=128, s_x=64)
    assert (shown.reading.moved, shown.reading.held) == (one.moved, one.held)
    assert shown.reading.times == one.times
    assert shown.reading.best == flash().formats("fp16").legal_tile(232448, unit="bytes", q=4096, x=4096, d=128)
    assert f"Held: {one.held:,} of 232,448 bytes of a block. Moved: {one.moved:,} bytes." in words(shown.svg())


def test_groups_that_share_fetch_together_what_on_says() -> None:
    alone = explorer(g_q=128, s_x=64)
    shared = alone.at(shared=True)
    one = flash().formats("fp16").on("H100-SXM", q=4096, x=4096, d=128, g_q=128, s_x=64).but("unshared")
    assert (shared.reading.fetched, shared.reading.times) == (one.moved, one.times)
    assert shared.reading.moved == alone.reading.moved == alone.reading.fetched > shared.reading.fetched
    assert any(f"Fetched together: {one.moved:,} bytes." in text for text in words(shared.svg()))
    controls = Controls(alone)
    controls.shared.value = True
    assert controls.figure.value == shared.svg()


def test_tiles_start_at_the_best_and_stay_within_their_axes() -> None:
    shown = explorer()
    assert shown.reading.best is not None
    assert dict(shown.state.tiles) == shown.reading.best.tiles
    assert not shown.reading.reasons
    small = shown.at(g_q=1024).at(q=64)
    assert dict(small.state.tiles)["g_q"] == 64
    assert dict(small.at(q=4096).state.tiles)["g_q"] == 1024


def test_everything_in_the_figure_moves_together() -> None:
    one, other = explorer(g_q=128, s_x=64), explorer(g_q=64, s_x=64)
    gone, came = set(words(one.svg())) - set(words(other.svg())), set(words(other.svg())) - set(words(one.svg()))
    held = "H ℓ0↔ℓ1, elements" in set(words(one.svg()))
    assert held and any("M" in text for text in came)
    for start in ("Held:", "Waits for", "Best legal tile:"):
        assert any(text.startswith(start) for text in gone) and any(text.startswith(start) for text in came)
    assert any("FLOP per byte," in text for text in came)
    marks = [[mark.path for mark in shown.scene().marks if mark.role == "chart-here"] for shown in (one, other)]
    assert len(marks[0]) == 2 and marks[0] != marks[1]


def test_the_figure_is_the_same_in_every_process_and_opens_alone() -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; import test_explore; print(test_explore.explorer().svg())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, encoding="utf-8", timeout=120)
    svg = explorer().svg()
    assert done.stdout.strip() == svg.strip()
    assert all(part not in svg for part in ("<style", "<script", "href", " id=", "url("))


def test_what_cannot_run_says_why() -> None:
    odd = explorer(g_q=8, s_x=64)
    assert odd.reading.reasons == ("g_q = 8 is no multiple of 16: matrix instructions",)
    assert "Cannot run: g_q = 8 is no multiple of 16: matrix instructions." in words(odd.svg())
    large = explorer(g_q=1024, s_x=64)
    assert large.reading.reasons[0].endswith("and a block of H100-SXM has 232,448")
    none = explorer(machine="T4", dtype="fp8e4m3")
    assert "T4 states no matrix rate in fp8e4m3" in none.reading.reasons
    said = words(none.svg())
    assert any(line.startswith("Without the products: ") for line in said)
    assert not any("FLOP/s" in line and "Waits" in line for line in said)
    naive = explorer(form="attention")
    assert naive.reading.best is None and "it holds" in naive.reading.reasons[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": "H100"}, "no machine 'H100'"),
        ({"dtype": "fp7"}, "fp7"),
        ({"form": "none"}, "no form 'none'"),
        ({"g_x": 16}, "no size or tile 'g_x'"),
        ({"x": "y"}, "x follows 'y'"),
        ({"d": 0}, "d = 0 is no size"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DiagkitError, match=said):
        explorer(**changes)
    with pytest.raises(DiagkitError, match="needs a size for axis 'd'"):
        Explorer(flash(), q=16, x=16)
    with pytest.raises(DiagkitError, match="an explorer of no diagram"):
        Explorer()


def test_a_matrix_product_one_tile_and_none() -> None:
    matmul = examples.matmul().fuse().group(a="g_a", c="g_c").stream(b="s_b")
    shown = Explorer(matmul, machine="A100-SXM-80GB", a=4096, b="a", c="a")
    assert [name for name, _ in shown.state.tiles] == ["g_a", "g_c", "s_b"]
    assert len([mark for mark in shown.scene().marks if mark.role == "chart-best"]) == 2
    row = dk.axes("n m")
    sums = dk.Diagram(dk.total(dk.array("X", *row), over=row[1]), name="sums").fuse().group(n="g_n")
    alone = Explorer(sums, machine="T4", dtype="fp32", n=1000, m=64)
    assert "0 FLOP/s to 0 FLOP/s" in " ".join(words(alone.svg()))  # no matrix work, no roofline
    assert not [mark for mark in alone.scene().marks if mark.role == "chart-roof"]


def test_of_several_levels_the_outermost_is_turned() -> None:
    deep = flash().group(level=2, q="w_q").stream(level=2, x="u_x")
    shown = Explorer(deep, q=512, x="q", d=64)
    assert [name for name, _ in shown.state.tiles] == ["g_q", "s_x"]
    assert shown.reading.moved == Explorer(flash(), q=512, x="q", d=64).reading.moved


def test_what_lowering_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DiagkitError("a tile of 48 positions cuts a block of 64", remedy="use 64")

    monkeypatch.setattr("diagkit.program.lower", refuse)
    assert explorer(g_q=48, s_x=48).reading.reasons == ("a tile of 48 positions cuts a block of 64",)


def test_forms_are_the_steps_or_what_was_given() -> None:
    assert list(explorer().forms) == [
        "attention", "attention, fused", "attention, fused, grouped over q",
        "attention, fused, grouped over q, streamed over x",
    ]  # fmt: skip
    two = Explorer(examples.attention("first"), examples.attention("second"), q=64, x=64, d=16)
    assert (list(two.forms), two.form) == (["first", "second"], "second")


def test_the_controls_turn_the_explorer_and_follow_it() -> None:
    controls = Controls(explorer(g_q=64, s_x=64))
    before = controls.figure.value
    controls.tiles["g_q"].value = 128
    assert dict(controls.explorer.state.tiles)["g_q"] == 128
    assert controls.figure.value == controls.explorer.svg() != before
    assert 'role="status"' in controls.said.value
    controls.menus["machine"].value = "T4"
    assert "fp8e4m3" not in dict(controls.menus["dtype"].options)
    controls.sizes["q"].value = 64
    assert controls.tiles["g_q"].value == 64 == max(controls.tiles["g_q"].options)
    controls.menus["form"].value = "attention"
    assert [slider.description for slider in controls.sliders.children] == ["q", "d"]  # x follows q
    assert all(menu.description for menu in controls.menus.values())


def test_a_step_makes_no_controls() -> None:
    controls = Controls(explorer(g_q=64, s_x=64))
    sliders = [id(one) for one in controls.sliders.children]
    counted: list[Any] = []
    ipywidgets.Widget.on_widget_constructed(counted.append)
    try:
        for tile in (16, 32, 64):
            controls.tiles["g_q"].value = tile
    finally:
        ipywidgets.Widget.on_widget_constructed(None)
    assert counted == []
    assert [id(one) for one in controls.sliders.children] == sliders


def test_an_error_is_shown_and_leaves_the_figure() -> None:
    controls = Controls(explorer(g_q=64, s_x=64))
    before = controls.figure.value
    controls.change("machine", "<none>")
    assert 'role="alert"' in controls.said.value and "no machine &#x27;&lt;none&gt;&#x27;" in controls.said.value
    assert controls.figure.value == before


def test_its_display_has_a_static_twin() -> None:
    shown = explorer()
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/svg+xml", VIEW}
    assert bundle["image/svg+xml"] == shown.svg()
    assert bundle["text/plain"] == repr(shown)
    assert set(shown._repr_mimebundle_(include=("text/plain",))) == {"text/plain"}


def test_without_ipywidgets_the_figure_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "diagkit.explore.widget", None)
    assert set(explorer()._repr_mimebundle_()) == {"text/plain", "image/svg+xml"}
    with pytest.raises(DiagkitError, match="sliders need ipywidgets; install"):
        explorer().widget()


def test_a_step_is_quick() -> None:
    controls = Controls(explorer(g_q=64, s_x=64))
    took = []
    for tile in (16, 32, 64, 128, 256, 512):
        begun = time.perf_counter()
        controls.tiles["g_q"].value = tile
        took.append(time.perf_counter() - begun)
    assert min(took[1:]) < LIMIT_S


def test_where_there_is_no_best_tile_the_figure_says_why() -> None:
    tiny = Explorer(flash(), machine="T4", q=16, x=16, d=65536)
    assert tiny.reading.best is None
    assert tiny.reading.no_best in tiny.svg()
    assert "No best tile: " in tiny.svg()


def test_a_tile_that_cannot_run_is_not_compared_with_the_best() -> None:
    wide = Explorer(flash(), machine="T4", q=4096, x="q", d=128, g_q=128, s_x=8)
    assert wide.reading.reasons
    assert "Best legal tile: " in wide.svg()
    assert "this one" not in wide.svg()
    assert "this one" in wide.at(g_q=32, s_x=16).svg()


def test_the_figure_is_saved_as_it_is_shown(tmp_path: Any) -> None:
    q, x = dk.axes("q x")
    rows = dk.Diagram(dk.total(dk.array("X", q, x), over="x", name="T")).group(q="g").stream(x="s")
    shown = Explorer(rows, q=64, x=64)
    assert shown.save(tmp_path / "rows.svg").read_text(encoding="utf-8") == shown.svg()
    with pytest.raises(DiagkitError, match="svg"):
        shown.save(tmp_path / "rows.txt")
