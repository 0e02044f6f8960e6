"""Names and formulas as text: what they say, how wide they are, that nothing breaks them."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from diagkit.draw.fonts import CAUTION, clean, fit, width
from diagkit.draw.scene import Runs, runs_width
from diagkit.draw.table import CELL, ROOM, Row, Table, set_table
from diagkit.draw.typeset import cut, formula, name_runs, roman, short_name
from diagkit.term import arg, coordinate, exact, finite, quotient, size, where

q, x, d, g = map(size, ("q", "x", "d", "g_q"))
a, b = arg(0), arg(1)


def said(runs: Runs) -> str:
    """Runs as text: subscripts behind _, superscripts behind ^, thin blanks left out."""
    marks = {-1: "_", 0: "", 1: "^"}
    return "".join(marks[(run.rise > 0) - (run.rise < 0)] + run.text for run in runs).replace("\u2009", " ")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (2 * q * d + 2 * d * q * x / g, "2 q d + 2 q x d/g_q"),
        (q * d + 2 * x * d * sympy.ceiling(q / g), "q d + 2 x d ⌈q/g_q⌉"),
        (d ** exact(-0.5), "d^−1/2"),
        (a * d ** exact(-0.5), "d^−1/2 a0"),
        (sympy.exp(a - finite(b)), "exp(a0 − a1)"),
        (quotient(a, b), "a0/a1"),
        (a * quotient(1, b), "a0/a1"),
        (a / sympy.sqrt(quotient(b, d) + exact(1e-5)), "a0/√(a1/d + 10^−5)"),
        (-q, "−q"),
        (q - x, "q − x"),
        ((q + x) * d, "d (q + x)"),
        (sympy.Rational(1, 2), "1/2"),
        (sympy.oo, "∞"),
        (-sympy.oo, "−∞"),
        (sympy.Max(a, 0), "max(a0, 0)"),
        (q**2 / (x * g), "q^2/(g_q x)"),
        (sympy.Float(0.123456789), "0.1235"),
        (coordinate("t") + coordinate("w"), "t + w"),
        (where(sympy.Le(a, b), a, -sympy.oo), "a0 where a0 ≤ a1"),
        ("as it is", "as it is"),
    ],
)
def test_formulas(expr: object, text: str) -> None:
    assert said(formula(expr, ("q", "x", "d"))) == text


def test_names() -> None:
    assert said(name_runs("g_q")) == "g_q"
    assert said(name_runs("y_1_chunk")) == "y_1,chunk"
    assert said(name_runs("beta")) == "β" and said(name_runs("W_gamma")) == "W_γ"
    assert said(name_runs("m.new")) == "m′"
    assert said(name_runs("_private")) == "_private" and said(name_runs("end_")) == "end_"
    assert said(name_runs("\x00")) == "□"
    assert short_name("O.m.new") == "m.new" and short_name("1.5") == "5"


@given(st.text(max_size=40), st.floats(20, 300), st.sampled_from(("serif", "sans")))
def test_what_is_cut_fits(text: str, room: float, family: str) -> None:
    short = fit(clean(text), room, 15, family)
    assert width(short, 15, family) <= room
    if short != clean(text):
        ends = [(short[:at], short[at + 1 :]) for at, char in enumerate(short) if char == "…"]
        assert any(clean(text).startswith(head) and clean(text).endswith(tail) for head, tail in ends)
    assert runs_width(cut(roman(clean(text)), room, 15, family), 15, family) <= room


@given(st.text())
def test_clean_text_is_xml(text: str) -> None:
    kept = clean(text)
    kept.encode("utf-8")
    assert kept == clean(kept)
    assert all(char >= " " for char in kept)


def test_widths_are_cautious() -> None:
    """No table entry is narrower than DejaVu, the broadest font that viewers commonly fall back to."""
    font = pytest.importorskip("matplotlib.font_manager")
    files = {"serif": "DejaVu Serif", "sans": "DejaVu Sans"}
    from matplotlib.ft2font import FT2Font

    for family, name in files.items():
        face = FT2Font(font.findfont(font.FontProperties(family=name)))
        face.set_size(100, 72)
        text = "the quick brown fox jumps over a lazy dog QKV SPO 0123456789"
        real = sum(face.load_char(ord(char)).linearHoriAdvance / 65536 for char in text)
        assert width(text, 100, family) >= 0.97 * real
        assert width(text, 100, family) <= CAUTION[family] * real * 1.1


def test_long_sums_break_at_their_signs() -> None:
    total = sum(size(name) * size("length") for name in ("alpha", "beta", "gamma", "delta", "epsilon"))
    cells = set_table(Table((Row("H", 0, {}, total),)), (), ())
    (lines,) = cells.totals
    assert len(lines) > 1
    assert all(runs_width(line, CELL) <= ROOM for line in lines)
    assert all(said(line).startswith(" + ") for line in lines[1:])
