"""How costs show themselves, and how formulas become numbers."""

import math

import pytest
import sympy
from cost_cases import masked

from diagkit.cost import evaluate, relax, transfers
from diagkit.cost.show import Table, formula, latex
from diagkit.term import InputError, size

q, g, x = size("q"), size("g_q"), size("x")


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (sympy.ceiling(q / g), 4),
        (sympy.floor(q / g) + 1, 4),
        (q / g, 10 / 3),
        (q * x / g, 20),
        (sympy.sqrt(q), math.sqrt(10)),
        (q**-2, 0.01),
        (sympy.Max(q, g, 7) - sympy.Min(q, g), 7),
        (sympy.Rational(5, 2) * q, 25),
        (sympy.Integer(3) ** 100 * q, 3**100 * 10),
        (-q, -10),
    ],
)
def test_formulas_become_numbers(expr, value):
    found = evaluate(expr, {"q": 10, "g_q": 3, "x": 6})
    assert found == value
    assert type(found) is type(value)


def test_missing_sizes_are_listed():
    with pytest.raises(InputError, match="give also: g_q, x") as refused:
        evaluate(q * x / g, {"q": 1})
    assert refused.value.axis == "g_q"


def test_relaxing_what_has_no_ceiling_changes_nothing():
    assert relax(q * x) is relax(q * x)
    assert relax(sympy.ceiling(q / g) * sympy.ceiling(x / 4)) == q * x / (4 * g)


def test_sums_over_tiles_have_text_and_latex():
    total = transfers(masked("top-left")).by_array()["K"]
    assert formula(total) == "d*Sum(visited x, q/g_q tiles)"
    assert latex(total) == r"d \left[\sum^{\frac{q}{g_{q}}} \text{visited }x\right]"


def test_tables():
    table = Table([("array", "elements"), ("A_1 & <b>", q / g)])
    assert table.text() == "array      elements\nA_1 & <b>  q/g_q"
    assert "&lt;b&gt;" in table.html()
    assert r"\text{A\_1 \& <b>} & \frac{q}{g_{q}}" in table.latex()


def test_large_masked_counts_are_exact():
    """2^21 queries in tiles of one and keys beyond 2^40: sums past 64 bits stay exact."""
    counted = transfers(masked("none")).total(q=1 << 40, x=1 << 40, d=1, e=1, g_q=1)
    assert counted == 2 * (1 << 80) + 2 * (1 << 40)
    one = transfers(masked("bottom-right")).by_array()["K"]
    tiles, keys = 4, 1 << 62
    sizes = {"q": tiles, "x": keys, "d": 1, "g_q": 1, "s_x": 1}
    assert evaluate(one, sizes) == sum(keys - tiles + i + 1 for i in range(tiles))
