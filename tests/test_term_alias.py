"""Views of arrays in slow memory: no kernels; which array they read, where, and within what bounds."""

import pytest
import view_cases as cases
from sympy import ceiling, floor
from view_cases import d, e, q, x

import diagkit as dk
from diagkit.term import Run, Term, at_least, coordinate, shifted, size

X = dk.array("X", x, d)


def aliases(node):
    return dk.Diagram(dk.exp(node, name="Y"), name="one").aliases


def test_a_renamed_input_is_the_array_itself():
    (alias,) = aliases(dk.rename(dk.array("X", dk.axis("n", 5)), n=dk.axis("m", 5), name="V")).values()
    assert (alias.array, alias.whole, alias.bounds, alias.read) == ("X", True, (), ("m",))


def test_views_of_views_lead_to_the_array():
    first = dk.view(X, {"x": coordinate("x") - 1}, (x, d), name="A")
    second = dk.view(first, {"x": 2 * coordinate("q")}, (q, d), name="B")
    alias = aliases(second)["B"]
    assert alias.array == "X" and alias.coordinates == (2 * coordinate("q") - 1, coordinate("d"))
    assert set(alias.bounds) == {(2 * coordinate("q") - 1, size("x")), (2 * coordinate("q"), size("x"))}


def test_a_kernel_loads_the_alias_and_no_kernel_makes_it():
    made = cases.gram()
    (region,) = made.regions
    assert region.loads == ("X'", "X") and region.boxes == ("G",) and made.array("X'") == "X"


def test_what_is_written_or_on_chip_is_no_alias():
    V = dk.rename(X, x=q, name="V")
    both = dk.Diagram(V, dk.exp(V, name="Y"))
    assert both.aliases == {} and [region.stores for region in both.regions] == [("V",), ("Y",)]
    chip = dk.Diagram(dk.exp(dk.rename(dk.tanh(X, name="T"), x=q, name="V"), name="Y"))
    assert list(chip.aliases) == ["V"] and chip.fuse().aliases == {}
    assert [r.stores for r in chip.regions] == [("T",), ("Y",)] and len(chip.fuse().regions) == 1


def test_what_cannot_be_counted_is_made_by_a_kernel():
    t, w = dk.axes("t w=3")
    windows = dk.view(dk.array("X", t), {"t": 2 * coordinate("t") + coordinate("w")}, (t, w), name="V")
    diagonal = dk.view(dk.array("X", x, q), {"x": coordinate("t"), "q": coordinate("t")}, (t,), name="V")
    uneven = dk.view(dk.array("X", x), {"x": floor((coordinate("t") + 1) / 4)}, (t,), name="V")
    for view in (windows, diagonal, uneven):
        assert aliases(view) == {}


def test_regions_that_wait_for_themselves_are_refused():
    A = dk.exp(X, name="A")
    B = dk.contract(A, dk.rename(A, x=q, name="V"), over=d, name="B")
    with pytest.raises(dk.DiagkitError, match="V"):
        dk.Diagram(B, name="loop").fuse("A", "B")
    assert len(dk.Diagram(B, name="loop").regions) == 2


def test_bounds_that_surely_hold_are_left_out():
    blocks = aliases(dk.blocked(dk.array("K", x, d), name="V", x=64))["V"]
    assert blocks.bounds == ((64 * coordinate("x_block") + coordinate("x_in"), size("x")),)
    assert blocks.at(lambda expr: expr.xreplace({size("x"): 128 * size("x") / size("x")})).bounds == ()
    assert aliases(dk.spread(dk.array("s", x.blocks(64)), x, 64, name="V"))["V"].bounds == ()


def test_runs():
    alias = aliases(dk.blocked(dk.array("K", x, d), name="V", x=64))["V"]
    count = 64 * ceiling(size("x") / 64)
    assert alias.runs == (Run(("x_block", "x_in"), 0, 1, count), Run(("d",), 0, 1, size("d")))
    assert Run(("x",), 6, -1, size("x")).ends == (7 - size("x"), 6)


def test_windows_next_to_each_other_read_a_run():
    p, w = dk.axes("p w")
    X = dk.array("X", dk.axis("t", p.size + w.size - 1))
    alias = aliases(dk.view(X, {"t": coordinate("p") + coordinate("w")}, (p, w), name="V"))["V"]
    assert alias.bounds == () and alias.runs == (Run(("p", "w"), 0, 1, p.size + w.size - 1, signs=(1, 1)),)
    past = aliases(dk.view(dk.array("X", p), {"p": coordinate("p") - coordinate("w")}, (p, w), name="V"))["V"]
    assert past.bounds == ((coordinate("p") - coordinate("w"), p.size),) and past.runs[0].signs == (1, -1)
    assert past.runs[0].ends == (1 - w.size, p.size - 1)


def test_at_least():
    n, b = size("n"), ceiling(size("n") / 8)
    assert at_least(8 * b, n) and at_least(n + 7, 8 * b) and at_least(n, 1) and at_least(3, 3)
    assert not at_least(n, 8 * b) and not at_least(n + 6, 8 * b) and not at_least(n, 2)
    assert shifted(coordinate("x") + n, coordinate("x")) == n and shifted(2 * coordinate("x"), coordinate("x")) is None


def test_an_array_may_be_read_under_several_names_at_once():
    made = cases.gram()
    moved = made.transfers()
    assert moved.at(q=5, x=5, d=3, g_q=2, g_x=2)[("X", 0, 1, "input")] == 2 * 3 * 5 * 3


def test_fusing_leaves_views_of_inputs_where_they_are():
    made = dk.Diagram(dk.contract(dk.rename(X, x=q, name="V"), X, over=d, name="G"), name="gram").fuse()
    assert list(made.aliases) == ["V"] and made.levels == ()


def test_a_slice_of_what_is_loaded_anyway_is_taken_on_chip():
    latent, m, c = dk.array("L", x, e), e, d
    S = dk.contract(dk.array("Q", q, m), latent, over=m)
    V = dk.view(latent, {"e": coordinate("d")}, (x, c), name="V")
    made = dk.Diagram(dk.contract(dk.softmax(S, over=x), V, over=x), name="latent")
    assert list(made.aliases) == ["V"] and made.fuse().aliases == {}
    assert made.fuse().regions[0].loads == ("Q", "L")


def test_merging_kernels_hold_the_axis_whole():
    made = cases.split_attention()
    parts, merge = made.regions
    assert set(made.grouped(parts)) == {"k", "x_part"} and set(made.grouped(merge)) == {"k"}
    assert made.merges(merge, "x_part") and not made.merges(parts, "x_part") and not made.merges(merge, "k")


def test_an_axis_that_is_read_off_an_input_is_not_merged():
    with pytest.raises(dk.GroupError, match="takes the sum over x"):
        dk.Diagram(dk.total(X, x, name="Y")).group(x=2)
    blocks = dk.total(dk.blocked(X, x=4), "x_block", name="Y")
    with pytest.raises(dk.GroupError, match="takes the sum over x_block"):
        dk.Diagram(blocks).group(x_block=1)


def test_terms_are_still_plain_data():
    made = Term(cases.gram().inputs, cases.gram().boxes, ("G",), "gram")
    assert made.aliases == cases.gram().aliases
