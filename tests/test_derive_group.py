"""Grouping: lawful exactly where every box maps over the axis; each refusal says box, axis, reason, remedy."""

import pytest
import sympy
from derive_cases import attention, d, matmul, q, softmax_alone, term, x

import diagkit as dk
from diagkit.derive import fuse, group, stream, ungroup
from diagkit.term import AxisError, GroupError, Label, coordinate, size


def test_the_forms_a_tile_may_take():
    one = fuse(attention())
    labels = [group(one, q=tile).labels for tile in ("g_q", None, size("g_q"), sympy.Symbol("g_q"))]
    assert set(labels) == {(Label("group", "q", size("g_q")),)}
    assert group(one, q=64).labels == (Label("group", "q", sympy.Integer(64)),)
    assert group(one, q=("g_q", 16)).labels == (Label("group", "q", size("g_q"), 16),)
    assert group(one, q="g_q", e="g_e").labels == group(group(one, e="g_e"), q="g_q").labels


def test_a_group_is_a_label_and_a_step():
    plain = attention()
    grouped = group(plain, q="g_q")
    assert grouped.boxes == plain.boxes and grouped.erase() == plain
    assert grouped.steps[-1].call == ("group", (("q", "g_q"),)) and grouped.steps[-1].before is plain
    assert group(grouped, q="g_q") is grouped
    assert group(grouped, q=8).labels == (Label("group", "q", sympy.Integer(8)),)


def test_the_softmax_needs_the_whole_row():
    with pytest.raises(GroupError, match="softmax 'P' needs the whole of x") as refused:
        group(fuse(attention()), x=None)
    error = refused.value
    assert (error.axis, error.box) == ("x", "P") and "takes the max over x" in error.reason
    assert "stream 'x' instead" in error.remedy and "group another axis (q)" in error.remedy


def test_a_contraction_needs_the_whole_of_what_it_sums():
    with pytest.raises(GroupError, match="'C' needs the whole of x: it sums over x") as refused:
        group(matmul(), x=8)
    assert refused.value.box == "C" and "(q, e)" in refused.value.remedy
    assert group(matmul(), q=8, e=4).labels[0].axis == "e"


def test_softmax_alone_groups_over_rows():
    assert group(softmax_alone(), q=4).label("group", "q").tile == 4


def test_a_store_without_the_axis_is_refused():
    A = dk.exp(dk.array("X", q))
    B = A * dk.array("Y", q, x)
    with pytest.raises(GroupError, match="'A' lacks it, and each group would store it again") as refused:
        group(fuse(term(A, B, A=A, B=B)), x=4)
    assert refused.value.box == "A" and "kernel of its own" in refused.value.remedy


def test_views_map_where_they_keep_positions():
    t, w = dk.axes("t w=3")
    X = dk.array("X", t, x)
    kept = term(dk.view(X, {"x": coordinate("x")}, (x, t)))
    assert group(kept, x=4).labels
    windows = term(dk.view(X, {"t": coordinate("t") + coordinate("w")}, (t, x, w)))
    with pytest.raises(GroupError, match="reads other positions of t") as refused:
        group(windows, t=4)
    assert refused.value.axis == "t"
    assert group(windows, x=4).labels


def test_positions_do_not_stand_in_the_way():
    S = dk.masked(dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)), dk.causal(q, x))
    P = dk.softmax(S, over=x)
    assert group(fuse(term(P, S=S, P=P)), q=4).labels


def test_positions_are_made_again_on_every_tile():
    """What reduces or moves positions sees one tile of them only: it needs the whole axis too."""
    square = dk.axes("q x", q=5, x=5)
    beyond = dk.rename(dk.index(square[0]), q=square[1]) <= dk.index(square[0])
    weighed = term(dk.array("X", x) * dk.total(dk.index(x), x))
    hidden = fuse(term(dk.total(dk.select(beyond, dk.array("X", *square), 0), square[1])))
    for plain, axis, said in ((weighed, "x", "takes the sum over x"), (hidden, "q", "reads other positions of q")):
        with pytest.raises(GroupError, match=said) as refused:
            group(plain, **{axis: 2})
        assert refused.value.axis == axis
    counts = dk.total(dk.select(dk.causal(q, x), 1, 0), over=x)
    assert group(term(dk.array("X", q) * counts), x=2, q=2).labels


def test_unknown_axes_list_the_known_ones():
    with pytest.raises(AxisError, match="has no axis 'y'; its axes are: q, d, x, e"):
        group(attention(), y=4)


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        (0, "cannot be 0"),
        (-3, "cannot be -3"),
        (2.5, "cannot be 2.5"),
        (True, "cannot be True"),
        ((10, 16), "no multiple of 16"),
        (("g", 0), "a multiple of 0"),
        ("d", "named like an axis"),
        (" ", "needs a name"),
        ("", "needs a name"),
        (size("g") * 2, "cannot be 2*g"),
    ],
)
def test_tiles_that_are_none(tile, said):
    with pytest.raises(GroupError, match=said.replace("*", r"\*")) as refused:
        group(attention(), q=tile)
    assert refused.value.axis == "q" and "q='g_q'" in refused.value.remedy


def test_a_tile_is_not_named_like_an_axis_even_by_default():
    clash = dk.axis("g_q")
    with pytest.raises(GroupError, match="tile 'g_q' of axis 'q' is named like an axis"):
        group(term(dk.array("X", q, clash) * 2), q=None)
    with pytest.raises(dk.StreamError, match="tile 's_x' of axis 'x' is named like an axis"):
        stream(term(dk.total(dk.array("X", x, dk.axis("s_x")), x)), x=None)


def test_ungroup_gives_back_the_value():
    plain = fuse(attention())
    both = group(plain, q=None, e=None)
    assert ungroup(both) == plain and ungroup(both, "e") == group(plain, q=None)
    with pytest.raises(GroupError, match="'d' is not grouped; grouped axes: e, q"):
        ungroup(both, "d")
