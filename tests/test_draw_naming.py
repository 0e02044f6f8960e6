"""Names in a picture: short, no two alike, cut in the middle where they are long, in full for whoever asks."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagkit as dk
from diagkit import draw
from diagkit.draw.naming import called, distinct, spelled
from diagkit.draw.typeset import short_name

SVG = "{http://www.w3.org/2000/svg}"
PAIRS = {
    "ends differ": ("a name that is much too long, first", "a name that is much too long, second"),
    "beginnings differ": ("first of two names that are much too long", "other of two names that are much too long"),
    "middles differ": (
        "a name that is much too long, one, as the other",
        "a name that is much too long, two, as the other",
    ),
    "subscripts differ": ("gradient_of_the_loss_by_queries", "gradient_of_the_loss_by_keys"),
    "Hebrew": ("מפתחות של השכבה הראשונה", "מפתחות של השכבה השנייה"),
    "Arabic": ("مفاتيح الطبقة الأولى الطويلة", "مفاتيح الطبقة الثانية الطويلة"),
    "Chinese": ("第一层的注意力键矩阵转置", "第二层的注意力键矩阵转置"),
    "marks": ('<tensor & "first"> of the layer', '<tensor & "second"> of the layer'),
    "letters of several code points": ("x\u0304y\u0302z\u0303" * 6, "x\u0304y\u0302z\u0303" * 6 + "!"),
}


def added(one: str, other: str) -> dk.Diagram:
    """A diagram that reads two arrays over axes with the same two names, and makes two wires from them."""
    first, second = dk.axis(f"{one} axis"), dk.axis(f"{other} axis")
    made = dk.absolute(dk.array(one, first, second)) + dk.array(other, first, second)
    return dk.Diagram(dk.exp(made, name=f"exp of {one}"), dk.tanh(made, name=f"tanh of {one}"), name=one)


def said(text: ET.Element) -> str:
    return "".join(text.itertext())


@pytest.mark.parametrize("pair", PAIRS)
def test_long_names_stay_apart_and_overlap_nothing(pair: str) -> None:
    term = added(*PAIRS[pair])
    scene = draw.scene(term)
    assert draw.overlaps(scene) == []
    shown: dict[tuple[str, str], set[str]] = {}
    for line in scene.words:
        if line.owner in term.wires or line.owner in term.axes:
            shown.setdefault((line.role, line.text), set()).add(line.owner)
    assert all(len(owners) == 1 for owners in shown.values()), shown


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_cut_says_its_whole_name_to_a_pointer(pair: str) -> None:
    root = ET.fromstring(draw.svg(added(*PAIRS[pair])))
    titles = [title.text for text in root.iter(f"{SVG}text") for title in text.iter(f"{SVG}title")]
    assert titles and all("…" not in (title or "") for title in titles)
    assert len([line for line in draw.scene(added(*PAIRS[pair])).words if line.about]) == len(titles)


def test_a_short_name_has_no_title() -> None:
    root = ET.fromstring(draw.svg(examples.attention()))
    assert not [title for text in root.iter(f"{SVG}text") for title in text.iter(f"{SVG}title")]


def test_parts_of_different_arrays_are_told_apart() -> None:
    term = examples.attention().quantize("K", "int8", over="d").quantize("V", "int8", over="d")
    names = called(term)
    assert len(set(names.values())) == len(names)
    assert (names["K.max(abs)"], names["V.max(abs)"]) == ("K.max(abs)", "V.max(abs)")
    one = examples.attention().quantize("K", "int8", over="d")
    assert called(one)["K.max(abs)"] == "max(abs)"


def test_forms_of_one_array_are_told_apart() -> None:
    assert [short_name(f"K.{form}") for form in ("zero", "zero.each", "each", "codes_2")] == [
        "K_zero", "K_zero_each", "K_each", "K_codes_2",
    ]  # fmt: skip


@given(st.lists(st.text("ab.", min_size=1, max_size=8), min_size=1, max_size=6, unique=True))
def test_different_wires_are_called_differently(wires: list[str]) -> None:
    names = distinct({wire: (*dict.fromkeys(short_name(wire, keep) for keep in (1, 2, 3)), wire) for wire in wires})
    alike = [wire for wire in wires if list(names.values()).count(names[wire]) > 1]
    assert all(names[wire] == wire or len(wire) > len(names[wire]) for wire in alike)
    assert len(set(names.values())) == len(wires) or any(names[wire] == wire for wire in alike)


@given(st.lists(st.text("abc", min_size=1, max_size=30), min_size=1, max_size=5, unique=True))
def test_names_in_type_are_told_apart_whatever_the_room(names: list[str]) -> None:
    shown = spelled(tuple(names), 30.0, 14.0)
    assert len({"".join(run.text for run in runs) for runs in shown.values()}) == len(names)
