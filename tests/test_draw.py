"""The doors of the draw room: SVG, PNG, PDF, strips, listings; what every picture promises."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import examples
import program_cases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_draw_gallery import GALLERY, check_svg, flash, flash_table, tiled

import diagkit as dk
from diagkit import derive, draw
from diagkit.draw import Row, Table
from diagkit.draw.scene import Mark, Run, Scene, Words
from diagkit.term import DiagkitError, Label, size

ANY_TEXT = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip()))

PROCESS = """
import sys; sys.path.insert(0, {tests!r})
import test_draw_gallery as gallery
from diagkit import derive, draw
for name in ("flash", "causal flash", "layer linear, streamed", "odd", "transformer"):
    sys.stdout.buffer.write(draw.svg(*gallery.GALLERY[name]()).encode())
"""


def in_process(code: str, seed: int = 0) -> bytes:
    """What a new process writes."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_same_bytes_whatever_the_hash_seed() -> None:
    code = PROCESS.format(tests=str(Path(__file__).parent))
    assert in_process(code, 1) == in_process(code, 2) != b""


def test_draws_without_matplotlib() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import diagkit as dk
from diagkit import derive, draw
q, d = dk.axes("q d")
row = dk.Diagram(dk.softmax(dk.array("X", q, d), over=d))
sys.stdout.buffer.write(draw.svg(row).encode())
try:
    draw.png(row)
except dk.term.DiagkitError as error:
    sys.stdout.buffer.write(str(error).encode())
"""
    assert in_process(code).endswith(b"install matplotlib, or take the SVG")


def test_matplotlib_keeps_its_backend() -> None:
    code = """
import sys
import matplotlib
matplotlib.use("svg")
import diagkit as dk
from diagkit import derive, draw
q, d = dk.axes("q d")
draw.png(dk.Diagram(dk.softmax(dk.array("X", q, d), over=d)))
assert matplotlib.get_backend() == "svg" and "matplotlib.pyplot" not in sys.modules
print("kept")
"""
    assert in_process(code).strip() == b"kept"


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_any_text_is_a_name(axis: str, other: str, array: str, title: str) -> None:
    a, b = dk.axis(axis), dk.axis(other + "'" if other == axis else other)
    X = dk.array(array, a, b)
    term = dk.Diagram(dk.softmax(X * 2, over=b, name=array + "!"), name=title)
    check_svg(draw.svg(term))
    assert draw.overlaps(draw.scene(term)) == []
    assert draw.listing(term)


def test_any_name_through_matplotlib(recwarn: pytest.WarningsRecorder) -> None:
    term, table = GALLERY["odd"]()
    assert draw.png(term, table).startswith(b"\x89PNG")
    assert draw.pdf(term, table).startswith(b"%PDF")
    assert not recwarn.list


def test_equal_diagrams_give_equal_files() -> None:
    assert draw.pdf(flash()) == draw.pdf(flash())
    assert draw.png(flash()) == draw.png(flash())


def test_save_by_suffix(tmp_path: Path) -> None:
    term = examples.attention()
    for suffix, start in ((".svg", b"<svg"), (".PNG", b"\x89PNG"), (".pdf", b"%PDF")):
        assert draw.save(term, tmp_path / f"picture{suffix}").read_bytes().startswith(start)
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8") == draw.svg(term)
    with pytest.raises(DiagkitError, match=r"picture\.gif.*\.svg, \.png, \.pdf"):
        draw.save(term, tmp_path / "picture.gif")


def test_themes() -> None:
    light, dark = draw.svg(tiled()), draw.svg(tiled(), theme="dark")
    assert 'fill="#ffffff"/>' in light and 'fill="#1e1e1e"/>' in dark
    assert light.count("<path") == dark.count("<path")
    with pytest.raises(DiagkitError, match="light, dark"):
        draw.svg(tiled(), theme="sepia")


def test_every_role_has_a_style() -> None:
    for make in GALLERY.values():
        scene = draw.scene(*make())
        roles = {mark.role for mark in scene.marks} | {line.role for line in scene.words}
        for theme in draw.THEMES.values():
            assert roles <= set(theme.styles)


# The published figure of scaled attention: what makes it recognisable.


def find(scene: Scene, owner: str, role: str) -> list[Mark]:
    return [mark for mark in scene.marks if mark.owner == owner and mark.role == role]


def arcs(scene: Scene, owner: str) -> Mark:
    """The semicircle of a contraction: the one curve that goes out to the right and comes back."""
    return next(m for m in find(scene, owner, "wire-0") if m.path[0][1][0] == m.path[-1][1][-2] and len(m.path) == 3)


def named(scene: Scene, text: str) -> list[Words]:
    return [line for line in scene.words if line.text == text]


def test_the_attention_figure_is_the_published_one() -> None:
    scene = draw.scene(examples.attention())
    first, second = arcs(scene, "QK").box, arcs(scene, "O").box
    (triangle,) = find(scene, "P", "glyph-0")
    assert first[2] < triangle.box[0] < triangle.box[2] < second[0]
    q_row, d_row, x_row = (line.y + 6 for line in sorted(named(scene, "q") + named(scene, "d"), key=lambda w: w.y)[:3])
    assert first[1] == pytest.approx(d_row) and q_row < first[1]
    middle = (triangle.box[1] + triangle.box[3]) / 2
    assert middle == pytest.approx(second[1])
    assert x_row == pytest.approx(second[1])


def test_keys_cross_before_the_first_arc() -> None:
    scene = draw.scene(examples.attention())
    arc = arcs(scene, "QK").box
    swings = [m for m in scene.marks if m.role == "wire-0" and any(c[0] == "C" for c in m.path[1:3]) and not m.owner]
    down = [m for m in swings if rise(m) > 0 and first_curve(m) < arc[0]]
    up = [m for m in swings if rise(m) < 0 and first_curve(m) < arc[0]]
    assert len(down) == len(up) == 1
    assert rise(down[0]) == -rise(up[0])


def rise(mark: Mark) -> float:
    """How far a wire goes down in its first curve."""
    at = next(n for n, (letter, _) in enumerate(mark.path) if letter == "C")
    return mark.path[at][1][-1] - mark.path[at - 1][1][-1]


def first_curve(mark: Mark) -> float:
    return next(numbers[-2] for letter, numbers in mark.path if letter == "C")


def test_the_query_wire_runs_down_to_the_output() -> None:
    scene = draw.scene(examples.attention())
    names = {line.text: line for line in scene.words if line.role == "name"}
    top = min(m.path[0][1][1] for m in scene.marks if m.role == "wire-0")
    (wire,) = [m for m in scene.marks if m.role == "wire-0" and m.path[0][1][1] == top and not m.owner]
    assert wire.path[-1][1][1] > names["K"].y
    assert wire.path[-1][1][0] < names["O"].box[0]


def test_shared_axes_meet_in_a_dot() -> None:
    scene = draw.scene(*GALLERY["heads"]())
    assert len([m for m in scene.marks if m.role == "solid-0" and len(m.path) == 6]) == 2


def test_wires_change_colour_where_they_change_level() -> None:
    roles = {mark.role for mark in draw.scene(*GALLERY["registers"]()).marks}
    assert {"wire-0", "wire-1", "wire-2", "wire-3", "load", "store"} <= roles
    plain = {mark.role for mark in draw.scene(examples.attention()).marks}
    assert "wire-1" not in plain and not plain & {"load", "store"}


def test_each_region_loads_and_stores() -> None:
    scene = draw.scene(*GALLERY["materialised"]())
    regions = examples.attention().replace(levels=(("QK", 1),)).regions
    for role in ("load", "store"):
        assert len({mark.owner for mark in scene.marks if mark.role == role}) == len(regions) == 3


def test_labels_change_with_the_level() -> None:
    words = [line.text for line in draw.scene(flash()).words]
    assert "gq(16)" in words and words.count("sx") >= 2


def test_tiles_of_tiles() -> None:
    labels = (Label("group", "q", size("g_q")), Label("group", "q", size("t_q"), level=2))
    words = [line.text for line in draw.scene(tiled().replace(levels=(("QK", 2),), labels=labels)).words]
    assert "gq" in words and "tq" in words


def test_a_stream_labels_its_own_region_only() -> None:
    q, x, y = dk.axes("q x y")
    S = dk.einsum("q x, x y -> q y", dk.array("A", q, x), dk.array("B", x, y), name="S")
    two = dk.Diagram(dk.einsum("q y, q x -> x y", S, dk.array("C", q, x), name="T"), name="two kernels")
    term = derive.stream(two, x="s_x", region="S")
    sheet = draw.plan(term)
    streamed = next(n for n, region in enumerate(term.regions) if region.boxes == ("S",))
    assert sheet.tile(streamed, "x") and not sheet.tile(1 - streamed, "x")
    assert draw.overlaps(draw.scene(term)) == []


def test_a_form_written_by_hand_draws_too() -> None:
    term = program_cases.flash_by_hand()
    check_svg(draw.svg(term))
    assert draw.overlaps(draw.scene(term)) == []
    names = {line.text for line in draw.scene(term).words if line.role == "name"}
    assert {"m", "z", "o", "m′", "z′", "o′"} <= names


def test_the_pictures_of_the_documentation_are_current() -> None:
    """Fails when a picture changed: look at it, then run ``python scripts/draw_docs.py``."""
    root = Path(__file__).resolve().parent.parent
    spec = importlib.util.spec_from_file_location("draw_docs", root / "scripts" / "draw_docs.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, text in script.pictures().items():
        assert (root / "docs" / name).read_text(encoding="utf-8") == text, f"docs/{name}"


def test_the_loop_shows_its_state() -> None:
    scene = draw.scene(flash())
    names = {line.text for line in scene.words if line.role == "name"}
    assert {"m", "z", "o", "m′", "z′", "o′"} <= names
    said = " ".join(line.text for line in scene.words)
    for part in ("from −∞", "δ = exp(m − m′)", "max(m, S)", "z\u2009δ + Σx p", "O = o/z", "m ← m′"):
        assert part in said


def test_cells_stand_over_their_columns() -> None:
    scene = draw.scene(tiled(), flash_table())
    heads = {line.owner: line.x for line in scene.words if line.role == "head"}
    cells = [line for line in scene.words if line.role in ("cell", "label-1") and line.size == 12]
    assert len(cells) >= 9
    assert all(line.x == heads[line.owner] for line in cells if line.owner != "total")


def test_neighbours_that_say_the_same_share_a_cell() -> None:
    q = size("q")
    table = Table((Row("M", 1, {"QK": 2 * q, "S": 2 * q, "P": 2 * q, "O": q}),))
    scene = draw.scene(examples.attention(), table)
    assert len(named(scene, "2\u2009q")) == 1
    heads = {line.owner: line.x for line in scene.words if line.role == "head"}
    assert named(scene, "2\u2009q")[0].x == pytest.approx((heads["QK"] + heads["P"]) / 2)


def test_wide_cells_make_room() -> None:
    term = examples.attention()
    long = Table((Row("work", 0, {name: f"words about {name} in one cell" for name in ("QK", "S", "P", "O")}),))
    assert draw.overlaps(draw.scene(term, long)) == []
    assert draw.scene(term, long).width > draw.scene(term).width


def test_wide_diagrams_wrap_and_grow_linearly() -> None:
    heights = []
    for layers in (2, 4, 8):
        scene = draw.scene(examples.transformer(layers))
        assert scene.width < 1000
        heights.append(scene.height)
    assert heights[2] - heights[1] == pytest.approx(2 * (heights[1] - heights[0]), rel=0.3)


def test_wires_have_their_names_on_both_sides_of_a_break() -> None:
    scene = draw.scene(examples.transformer(1))
    continued = [line.text for line in scene.words if line.role == "head" and line.size == 16]
    assert continued and all(continued.count(text) % 2 == 0 for text in continued)


def test_a_strip_says_why() -> None:
    text = draw.strip([examples.attention(), tiled()], [("group q", "every column is mapped over q")])
    check_svg(text)
    for part in ("≡", "group q", "every column is mapped over q"):
        assert part in text
    scene = draw.strip_scene([examples.attention(), tiled(), flash()], [("a", "b " * 200), ("c", "d")])
    assert draw.overlaps(scene) == []
    with pytest.raises(DiagkitError, match="one between each two"):
        draw.strip([tiled()], [("a", "b")])
    with pytest.raises(DiagkitError, match="one or more"):
        draw.strip([])


def test_listing() -> None:
    rows = draw.listing(flash(), flash_table()).splitlines()
    assert rows[0] == "attention"
    assert rows[1] == "inputs   Q(q, d), K(x, d), V(x, d)"
    assert any(row.split()[:4] == ["P", "softmax", "S", "(q,"] for row in rows)
    assert "group    q in tiles of g_q" in rows
    assert rows[-1] == "results  O"


def test_the_check_finds_what_overlaps() -> None:
    word = Words((Run("label"),), 50, 50, 12, "cell")
    wire = Mark((("M", (0.0, 48.0)), ("L", (100.0, 48.0))), "wire-0")
    glyph = Mark((("M", (55.0, 40.0)), ("L", (90.0, 40.0)), ("L", (90.0, 60.0)), ("Z", ())), "glyph-0")
    for marks, words in (((wire,), (word,)), ((glyph,), (word,)), ((), (word, word.shifted(5, 3)))):
        assert draw.overlaps(Scene(200, 100, marks, words))
    assert draw.overlaps(Scene(40, 100, (), (word,)))
    assert draw.overlaps(Scene(200, 100, (wire.shifted(0, 30),), (word,))) == []
    assert sum(map(len, (GALLERY,))) >= 25


def _loop_ends(scene: Scene) -> float:
    """How far right the way back of the last line reaches."""
    return [mark.box[2] for mark in scene.marks if mark.role == "loop"][-1]


def test_the_way_back_ends_before_what_comes_after_the_loop() -> None:
    q, x, d = dk.axes("q x d")
    Q, K, V, G = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d), dk.array("G", q, d)
    gated = G * dk.attention(Q, K, V, over=x, features=d, name="O")
    scene = draw.scene(dk.Diagram(gated, name="gated").fuse().group(q="g_q").stream(x="s_x"), loops=False)
    (times,) = [word.x for word in scene.words if word.text == "×"]
    assert _loop_ends(scene) < times


def test_parts_of_arrays_and_of_states_are_told_apart_and_moved_by_no_column_of_their_own() -> None:
    """A view of an array in slow memory is a hexagon in front of the one load; three partial results, three names."""
    split = examples.attention().fuse().group(q="g_q").stream(x="s_x").split(x=4)
    scene = draw.scene(split, loops=False)
    heads = [word.text for word in scene.words if word.role == "head"]
    assert heads.count("load") == 2  # of the kernel of the parts and of the one that combines them
    assert {"maxpart", "sumpart", "accpart"} <= {*heads}
    assert "part" not in heads
