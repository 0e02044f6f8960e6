"""Pseudocode: readable, tied to boxes, the same bytes every time."""

import pytest
from derive_cases import attention, q, x
from program_cases import flash, grouped_heads

import diagkit as dk
from diagkit import derive, ops
from diagkit.program import lower
from diagkit.program.pseudocode import formula
from diagkit.term import Term, finite, quotient, value


def normed():
    W = dk.array("W", x, dk.axis("e"))
    Y = dk.contract(dk.rms_norm(dk.array("X", q, x), over=x), W, over=x)
    return derive.stream(derive.group(derive.fuse(Term(*ops.trace([Y], {"Y": Y}), "normed")), q="g_q"), x="s_x")


CASES = {
    "attention": lambda: lower(attention()),
    "flash": lambda: lower(flash()),
    "window": lambda: lower(flash(mask=dk.window(q, x, 100)), q=1000, x=777, d=64, e=64, g_q=64, s_x=32),
    "heads": lambda: lower(grouped_heads()),
    "rms-norm": lambda: lower(normed(), x=4096),
}


@pytest.mark.parametrize("name", CASES)
def test_pseudocode(name, golden):
    golden(f"program-{name}.txt", CASES[name]().pseudocode())


def test_a_program_shows_its_pseudocode_escaped_in_html():
    program = lower(flash())
    assert str(program) == program.pseudocode() == repr(program)
    assert "&lt;-" in program._repr_html_()
    assert "<-" not in program._repr_html_()


def test_comments_stand_in_one_column():
    lines = [line for line in lower(flash()).pseudocode().splitlines()[2:] if "#" in line]
    assert len({line.index("# ") for line in lines}) == 1


def test_every_box_of_the_diagram_is_named_in_a_comment():
    text = lower(flash(mask=dk.causal(q, x))).pseudocode()
    for box in flash(mask=dk.causal(q, x)).boxes:
        assert f"# {box.name} · " in text


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        (quotient(1, quotient(1, value("x"))), "1 / (1 / x)"),
        (1 / quotient(1, value("x")), "1/(1 / x)"),
        (value("a") * finite(value("m") + 1), "a*(m + 1)"),
        (quotient(value("o"), value("z")) + 1, "o / z + 1"),
    ],
)
def test_formulas_have_the_brackets_that_they_need(expr, said):
    assert formula(expr) == said


def test_an_axis_whose_size_is_known_is_not_asked_whether_it_is_empty():
    x, d = dk.axes("x d")
    S, V = dk.array("S", x), dk.array("V", x, d)
    weights = dk.relu(S) / dk.total(dk.relu(S), over=x)
    made = dk.Diagram(dk.contract(weights, V, over=x, name="R")).fuse().stream(x="s")
    assert "[x = 0]" in made.lower().pseudocode()
    assert "= 0]" not in made.lower(x=8, d=2, s=2).pseudocode()
