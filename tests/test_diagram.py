"""The front hall: the tour that must work, displays, names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import examples
import numpy as np
import pytest
import sympy

import diagkit as dk
from diagkit.diagram.table import cost_table
from diagkit.term import DiagkitError, StreamError, TermError, size

RNG = np.random.default_rng(0)


def arrays(q: int, x: int, d: int) -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal((n, d)) for name, n in {"Q": q, "K": x, "V": x}.items()}


def test_the_tour() -> None:
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    P = dk.softmax(S, over=x)
    O = dk.einsum("q x, x d -> q d", P, V)
    naive = dk.Diagram(O, name="attention")

    given = arrays(1000, 777, 64)
    scores = given["Q"] @ given["K"].T / 8
    weights = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True) @ given["V"]
    assert naive(**given) == pytest.approx(wanted, abs=1e-12)

    with pytest.raises(StreamError, match="'P' keeps x and needs the whole row") as caught:
        naive.stream(x="s_x")
    assert "fuse it with 'O'" in str(caught.value.remedy)

    flash = naive.fuse().group(q="g_q").stream(x="s_x")
    assert "m_new = Max(m, m_chunk)" in str(flash.derivation)
    assert "= exp(m - m_new)" in str(flash.derivation)
    n, m, w, g, memory = (size(name) for name in ("q", "x", "d", "g_q", "M"))
    assert sympy.expand(flash.transfers().relaxed().total() - (2 * w * n + 2 * w * n * m / g)) == 0
    assert flash.memory().where() is not None

    best = flash.optimum(memory="M")
    assert sympy.simplify(best.transfers - (2 * w * n + 4 * w**2 * n * m / memory)) == 0
    assert best.beta == 1

    sizes = {"q": 1000, "x": 777, "d": 64, "g_q": 64, "s_x": 32}
    program = flash.lower(**sizes)
    assert program.run(**given) == pytest.approx(wanted, abs=1e-12)
    kernel = flash.kernel("numba", **sizes)
    assert kernel.check(seed=0).passed
    assert kernel.count().transfers == flash.transfers().at(**sizes) == program.count().transfers


def test_wires_are_named_after_the_variables_where_the_diagram_is_made() -> None:
    def inside() -> dk.Diagram:
        score = dk.array("A", dk.axis("i")) * 2
        return dk.Diagram(score + 1)

    assert [box.name for box in inside().boxes] == ["score", "f(score)"]


def test_an_array_and_a_variable_may_share_a_name() -> None:
    X = dk.array("X", dk.axis("i"))
    X = X * 2
    assert dk.Diagram(X).outputs == ("f(X)",)


def test_a_name_given_wins_and_must_be_free() -> None:
    i = dk.axis("i")
    Y = dk.exp(dk.array("X", i), name="Z")
    assert dk.Diagram(Y).outputs == ("Z",)
    with pytest.raises(TermError, match="two wires are named 'X'"):
        dk.Diagram(dk.exp(dk.array("X", i), name="X"))


def test_what_a_notebook_shows_is_a_picture_and_a_listing() -> None:
    bundle = examples.attention()._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    assert bundle["image/svg+xml"].startswith("<svg")
    assert "QK" in bundle["text/plain"]


def test_sums_over_tiles_take_few_letters_in_a_cell() -> None:
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    O = dk.attention(Q, K, V, over=x, features=d, mask=dk.causal(q, x))
    listing = str(dk.Diagram(O).fuse().group(q="g_q").stream(x="s_x"))
    assert "2*d*q + 2*d*visits_x" in listing
    assert "Sum(" not in listing


def test_a_png_is_made_on_request() -> None:
    whole = examples.attention()
    assert whole._repr_mimebundle_(include={"image/png"})["image/png"][:4] == b"\x89PNG"
    assert set(whole._repr_mimebundle_(exclude={"image/svg+xml"})) == {"text/plain"}


DRAW = """
import sys; sys.path.insert(0, {tests!r})
import examples, hashlib
forms = [examples.attention(), examples.attention().fuse().group(q="g_q").stream(x="s_x"), examples.transformer(1)]
text = "".join(form.svg() + str(form) + repr(form) for form in forms) + str(forms[1].derivation)
print(hashlib.sha256(text.encode()).hexdigest())
"""


def test_everything_shown_is_the_same_in_every_process() -> None:
    code = DRAW.format(tests=str(Path(__file__).parent))
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_pictures_are_saved(tmp_path: Path, suffix: str) -> None:
    path = examples.attention().save(tmp_path / f"a.{suffix}")
    assert path.read_bytes()[:4] in (b"<svg", b"\x89PNG", b"%PDF")


def test_an_unknown_suffix_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(DiagkitError, match=r"\.svg, \.png, \.pdf"):
        examples.attention().save(tmp_path / "a.bmp")
    with pytest.raises(DiagkitError, match=r"\.svg"):
        examples.attention().fuse().strip().save(tmp_path / "a.gif")


def test_a_strip_shows_every_stage(tmp_path: Path) -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    strip = flash.strip()
    assert strip.save(tmp_path / "strip.svg").read_text(encoding="utf-8") == strip.svg
    assert strip.svg.count("fused") >= 3
    assert repr(strip) == str(flash.derivation)


def test_a_comparison_says_what_came_and_went() -> None:
    naive = examples.attention()
    change = repr(naive.diff(naive.fuse()))
    assert "S: level 0 -> 1" in change
    assert "- spill S (1 → 0): q*x elements" in change
    assert not naive.diff(naive)
    assert repr(naive.diff(naive)) == "no difference"


def test_a_comparison_sees_the_same_array_move_in_another_amount() -> None:
    grouped = examples.attention().fuse().group(q="g_q")
    change = repr(grouped.diff(grouped.ungroup().group(q=64)))
    assert "- input K (0 → 1): d*x*ceiling(q/g_q) elements" in change
    assert "+ input K (0 → 1): d*x*ceiling(q/64) elements" in change
    assert "input Q" not in change


def test_a_column_without_loads_drawn_states_all_that_its_kernel_moves() -> None:
    Y = dk.exp(dk.array("X", dk.axis("q")), name="Y")
    moved = cost_table(dk.Diagram(Y)).rows[0]
    assert dict(moved.cells) == {"Y": 2 * size("q")}
    assert moved.total == 2 * size("q")


def test_a_derivation_is_replayed_on_another_diagram() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    assert examples.attention().replay(flash.derivation) == flash
    other = examples.attention(name="other").replay(flash.derivation)
    assert other.forms == flash.forms


def test_what_is_no_diagram_derivation_or_memory_is_refused() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    with pytest.raises(TermError, match="of nothing"):
        dk.Diagram()
    with pytest.raises(DiagkitError, match="no derivation"):
        flash.replay(None)  # type: ignore[arg-type]
    with pytest.raises(DiagkitError, match="no diagram"):
        flash.diff(None)  # type: ignore[arg-type]
    for memory in (0, -5, float("nan"), "1000", None):
        with pytest.raises(DiagkitError, match="no amount of memory" if memory is not None else "no memory is given"):
            flash.optimum(memory)
    with pytest.raises(DiagkitError, match="the memory is 10"):
        flash.optimum(10, q=64, x=64, d=64)


def test_rewrites_keep_the_numbers() -> None:
    given = arrays(5, 7, 4)
    naive = examples.attention()
    forms = [naive.open(), naive.open().hoist(), naive.fuse().stream(x="s_x").split(x=3)]
    for form in forms:
        assert form.boxes != naive.boxes
        assert form(**given) == pytest.approx(naive(**given), abs=1e-12)


def test_the_two_forms_of_attention() -> None:
    fused = examples.attention().fuse().group(q="g_q")
    late, always = fused.stream(x="s_x"), fused.stream(x="s_x", hoist=False)
    assert {form.method for form in late.forms + always.forms} == {"hoisted", "normalised"}
    z_ratio = "z / z_new"
    assert z_ratio not in str(late.derivation)
    given = arrays(9, 11, 4)
    for form in (late, always):
        assert form.lower(g_q=4, s_x=3).run(**given) == pytest.approx(fused(**given), abs=1e-12)


def test_order_of_labels_does_not_matter() -> None:
    fused = examples.attention().fuse()
    assert fused.stream(x="s_x").group(q="g_q") == fused.group(q="g_q").stream(x="s_x")


def test_twelve_layers_are_one_diagram() -> None:
    whole = examples.transformer(12)
    assert len(whole.boxes) == 16 * 12 + 2  # positions of two axes are made once for all layers
    sizes: dict[str, Any] = {"n": 3, "x": 3, "e": 4, "f": 5, "h": 2, "d": 2}
    given = {a.name: RNG.standard_normal([sizes[axis.name] for axis in a.axes]) for a in whole.inputs}
    assert whole(**given).shape == (3, 4)
    assert whole.transfers().total() != 0
    assert whole.svg().startswith("<svg")
