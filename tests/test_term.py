"""The ground: names, sizes, errors, text that evaluates back, regions."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import diagkit as dk
import diagkit.term
from diagkit.term import (
    Array,
    Axis,
    AxisError,
    Contract,
    DiagkitError,
    FormatError,
    Label,
    Map,
    Term,
    TermError,
    arg,
    coordinate,
    exact,
    finite,
    plain,
    quotient,
    size,
    text,
)

q, x, d = dk.axes("q x d")
NAMESPACE = vars(dk)


def attention(**parts: object) -> dk.Diagram:
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    P = dk.softmax(S, over=x)
    O = dk.einsum("q x, x d -> q d", P, V)
    return dk.Diagram(O, name="attention", **parts)


def test_wires_take_the_names_of_the_variables() -> None:
    assert [box.name for box in attention().boxes] == ["QK", "S", "P", "O"]


def test_equal_text_is_an_equal_value() -> None:
    assert attention() == attention()
    assert hash(attention()) == hash(attention())
    assert attention() != attention(labels=(Label("group", "q", size("g_q")),))


@pytest.mark.parametrize("labels", [(), (Label("group", "q", size("g_q"), 16), Label("stream", "x", exact(32)))])
def test_repr_evaluates_back(labels: tuple[Label, ...]) -> None:
    whole = attention(labels=labels, levels=(("S", 1), ("P", 1)))
    assert eval(repr(whole), dict(NAMESPACE)) == whole


def test_sympy_names_are_only_names() -> None:
    for name in ("Q", "N", "S", "E", "I", "O", "beta", "gamma", "pi", "lambda", "oo"):
        assert size(name).name == name
        assert size(name).is_integer
        assert size(name).is_positive
        assert eval(text(size(name) + 1), dict(NAMESPACE)) == size(name) + 1


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_any_text_is_a_name(axis_name: str, array_name: str) -> None:
    one = Axis(axis_name)
    X = dk.array(array_name, one)
    whole = dk.Diagram(dk.total(X, over=one, name=array_name + "'"))
    assert whole.axis(axis_name).size == size(axis_name)
    assert eval(repr(whole), dict(NAMESPACE)) == whole


def test_a_positive_size_takes_the_right_branch() -> None:
    n, d_, b = size("N"), size("D"), size("B")
    stationary = sympy.solve(sympy.diff(n**2 / b + b * d_, b), b)
    assert stationary == [n / sympy.sqrt(d_)]


def test_errors_name_axis_sizes_box_and_remedy() -> None:
    with pytest.raises(AxisError, match=r"size 1 on 'A' and 3 on 'B'") as caught:
        Term(
            (Array("A", (Axis("i", 2), Axis("j", 1))), Array("B", (Axis("j", 3), Axis("k", 2)))),
            (Contract("C", (Axis("i", 2), Axis("k", 2)), ("A", "B")),),
            ("C",),
        )
    assert caught.value.axis == "j"
    assert "never stretches" in str(caught.value)


@pytest.mark.parametrize(
    ("boxes", "outputs", "match"),
    [
        ((Map("Y", (q,), ("Z",), arg(0)),), ("Y",), "unknown wire 'Z'"),
        ((Map("X", (q,), ("X",), arg(0)),), ("X",), "two wires are named 'X'"),
        ((), ("Y",), "nobody makes the output 'Y'"),
        ((), ("X", "X"), "named twice"),
        ((Map("Y", (q, d), ("X",), arg(0)),), ("Y",), "makes axis 'd'"),
        ((Map("Y", (), ("X",), arg(0)),), ("Y",), "loses axis 'q'"),
        ((Map("Y", (q, q), ("X",), arg(0)),), ("Y",), "axis 'q' twice"),
    ],
)
def test_what_is_no_diagram_is_refused(boxes: tuple[Map, ...], outputs: tuple[str, ...], match: str) -> None:
    with pytest.raises(DiagkitError, match=match):
        Term((Array("X", (q,)),), boxes, outputs)


def test_unknown_names_list_what_exists() -> None:
    with pytest.raises(AxisError, match="its axes are: q, d, x"):
        attention().axis("y")
    with pytest.raises(TermError, match="its boxes are: QK, S, P, O"):
        attention().box("Z")
    with pytest.raises(FormatError, match="fp16, bf16"):
        dk.array("X", q, dtype="float16")


def test_regions_follow_the_levels() -> None:
    naive = attention()
    assert [region.boxes for region in naive.regions] == [("QK",), ("S",), ("P",), ("O",)]
    fused = attention(levels=(("QK", 1), ("S", 1), ("P", 1)))
    (region,) = fused.regions
    assert (region.loads, region.stores, region.inner) == (("Q", "K", "V"), ("O",), ("QK", "S", "P"))
    half = attention(levels=(("QK", 1),))
    assert [region.stores for region in half.regions] == [("S",), ("P",), ("O",)]


def test_erasing_labels_gives_the_identical_columns() -> None:
    labelled = attention(labels=(Label("group", "q", size("g_q")),), levels=(("S", 1),))
    assert labelled.erase() == attention()
    assert labelled.boxes is labelled.replace(name="attention").boxes


def test_a_step_that_changes_nothing_returns_the_value_itself() -> None:
    whole = attention()
    assert whole.replace(name="attention") is whole


def test_positions_belong_to_every_region_that_reads_them() -> None:
    mask = dk.causal(q, x)
    A = dk.masked(dk.array("S", q, x), mask)
    B = dk.masked(dk.array("T", q, x), mask)
    first, second = dk.Diagram(A, B).regions
    assert "mask" in first.boxes
    assert "mask" in second.boxes
    assert (first.loads, second.loads) == (("S",), ("T",))


def test_regions_come_in_an_order_that_can_run() -> None:
    A = dk.exp(dk.array("X", q))
    B = dk.log(A)
    C = A + B
    whole = dk.Diagram(C, levels=(("B", 1),))
    assert [region.stores for region in whole.regions] == [("A",), ("C",)]


def test_regions_that_read_each_other_are_refused() -> None:
    """W, E and D are one kernel (W stays on chip); B outside reads E and is read by D."""
    boxes = (
        Map("W", (q,), ("X",), arg(0)),
        Map("E", (q,), ("W",), arg(0)),
        Map("B", (q,), ("E",), arg(0)),
        Map("D", (q,), ("W", "B"), arg(0) + arg(1)),
    )
    with pytest.raises(TermError, match="read each other"):
        _ = Term((Array("X", (q,)),), boxes, ("D",), levels=(("W", 1),)).regions


def test_scalar_functions_guard_and_yield_to_algebra() -> None:
    assert finite(-sympy.oo) == 0
    assert quotient(arg(0), exact(0)) == 0
    assert plain(quotient(arg(0), finite(arg(1)))) == arg(0) / arg(1)
    assert exact(-0.5) == sympy.Rational(-1, 2)


def test_what_chooses_is_true_or_false() -> None:
    """A mask of numbers would count as true wherever it is not 0: refused, and so are scores as a mask."""
    x = dk.axis("x")
    scores, numbers, seen = dk.array("S", q, x), dk.array("M", x), dk.array("B", x, dtype="bool")
    for wrong, wire in ((dk.masked(scores, numbers), "M"), (dk.masked(dk.causal(q, x), scores), "S"), (~scores, "S")):
        with pytest.raises(TermError, match=f"takes '{wire}' for true or false, and '{wire}' is fp32") as refused:
            dk.Diagram(wrong)
        assert refused.value.box and "a mask is boolean" in (refused.value.remedy or "")
    either = dk.Diagram(dk.masked(scores, dk.select(seen, dk.causal(q, x), ~seen, name="either")))
    assert either.wires["either"].dtype == "bool"
    assert dk.Diagram(dk.select(seen, 1, 0, name="number")).wires["number"].dtype == "fp32"


def scaled_sums() -> dk.Diagram:
    """One scale for each block of four positions: two kernels' worth of sums, times each other."""
    x, d = dk.axes("x d")
    X, scale = dk.array("X", x, d), dk.array("scale", x.blocks(4), d)
    both = dk.contract(dk.total(X, over="x"), dk.total(scale, over="x_block"), keep=["d"], name="y")
    return dk.Diagram(both, name="scaled").group(d="g_d")


def test_a_derived_axis_rebuilds_from_its_text():
    block = dk.axis("x").blocks(64)
    assert eval(repr(block), vars(diagkit.term)) == block
    assert block.derived
    assert not dk.axis("x").derived
    assert eval(repr(scaled_sums()), {**vars(diagkit.term), "Diagram": dk.Diagram}) == scaled_sums()


@pytest.mark.parametrize("n", [0, 1, 4, 10])
def test_a_derived_size_is_computed_and_never_asked_for(n):
    diagram, dice = scaled_sums(), np.random.default_rng(n)
    X, scale = dice.normal(size=(n, 5)), dice.normal(size=(-(-n // 4), 5))
    np.testing.assert_allclose(diagram(X=X, scale=scale), X.sum(0) * scale.sum(0), atol=1e-12)
    program = diagram.lower(g_d=2)
    assert program.missing == ("x", "d")
    sizes = {"x": n, "d": 5, "g_d": 2}
    counted = diagram.lower(**sizes).count()
    assert counted.transfers == program.count(X=X, scale=scale).transfers
    assert sum(counted.transfers.values()) == diagram.transfers().total(**sizes)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda: scaled_sums()(X=np.ones((10, 5)), scale=np.ones((2, 5))), r"ceiling\(x/4\) = 3 but 2 in 'scale'"),
        (lambda: scaled_sums().lower(x_block=3), r"'x_block' is derived: ceiling\(x/4\); give x alone"),
        (lambda: dk.axis("x").blocks(0), "blocks of 0 elements"),
        (lambda: dk.axis("half", dk.axis("x").size / 2), "cannot have size x/2"),
        (lambda: dk.axis("x", dk.axis("x").size + 1), "cannot have size"),
    ],
)
def test_derived_sizes_that_cannot_be_are_refused(act, says):
    with pytest.raises(dk.DiagkitError, match=says):
        act()


X8 = dk.array("X", dk.axis("x"), dtype="int8")
WHOLE = {
    "itself": (lambda: X8 + 0, "int8"),
    "a choice": (lambda: dk.maximum(X8, dk.array("Y", dk.axis("x"), dtype="int8")), "int8"),
    "a sum": (lambda: X8 + X8 * 3 - 1, "int32"),
    "a square": (lambda: X8**2, "int32"),
    "a fraction of it": (lambda: X8 * 0.5, "fp32"),
    "a quotient": (lambda: X8 / 2, "fp32"),
    "an inverse": (lambda: X8**-1, "fp32"),
    "an exponential": (lambda: dk.exp(X8), "fp32"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_what_is_made_of_whole_numbers_is_whole_only_where_it_must_be(case):
    """A wire of fractions in a format of whole numbers would be stored cut off."""
    node, wanted = WHOLE[case][0](), WHOLE[case][1]
    term = dk.Diagram(node)
    assert term.wires[term.outputs[0]].dtype == wanted


@pytest.mark.parametrize(
    "found", ["q", Axis("q"), {Axis("q"): 7}, size("q"), sympy.Symbol("q"), {"q": 7}, {size("q"): 7}]
)
def test_a_size_is_put_in_by_its_name_or_its_symbol(found):
    formula = size("q") ** 2 + sympy.ceiling(size("q") / size("g_q")) * sympy.Max(size("q"), 3)
    assert (formula.subs(found) if isinstance(found, dict) else formula.subs(found, 7)).subs("g_q", 2) == 49 + 4 * 7


def test_a_name_reaches_sizes_only():
    mixed = size("a0") + arg(0) + coordinate("a0")
    assert mixed.subs(arg(0), 5) == size("a0") + coordinate("a0") + 5
    assert mixed.subs(coordinate("a0"), 5) == size("a0") + arg(0) + 5
    assert mixed.subs("a0", 5) == arg(0) + coordinate("a0") + 5


def test_sizes_and_values_stand_in_the_order_of_their_names():
    assert str(diagkit.term.value("a") * size("b") * diagkit.term.value("c")) == "a*b*c"
