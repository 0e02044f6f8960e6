"""Loads through views: what is counted is what the formula says, to the element, at awkward sizes."""

from itertools import product

import numpy as np
import pytest
import view_cases as cases
from view_cases import d, e, q, x

import diagkit as dk
from diagkit import cost, ops
from diagkit.cost.points import evaluate_at
from diagkit.program import lower, nested
from diagkit.term import coordinate, size

AWKWARD = (1, 2, 3, 4, 5, 7, 8, 11, 13)


def agree(made, arrays=None, **sizes):
    """The walk, and the run on arrays, count what the formulas say; the run gives the right numbers."""
    program, moved, held = lower(made, **sizes), cost.transfers(made), cost.memory(made)
    count = program.count()
    assert count.transfers == moved.at(**sizes), (sizes, count.transfers, moved.at(**sizes))
    if arrays is not None:
        assert program.count(**arrays).transfers == moved.at(**sizes)
        np.testing.assert_allclose(program.run(**arrays), ops.reference(made, arrays), rtol=1e-6, atol=1e-9)
    if made.forms == ():
        assert (count.peak, count.peak_bytes) == (held.peak(**sizes), held.bytes().peak(**sizes))


@pytest.mark.parametrize("name", cases.VIEWS)
def test_each_view_moves_what_it_reads(name):
    made = cases.VIEWS[name]()
    grouped = made.group(**{axis.name: 4 if axis.length is None else 2 for axis in made.box("Y").axes})
    for n in AWKWARD:
        sizes = {"x": n} if "x" in made.open_sizes else {}
        arrays = None if name == "blocks" else cases.numbers(made, x=n)  # nothing says how long the blocks' axis is
        agree(made, arrays, **sizes)
        agree(grouped, arrays, **sizes)


@pytest.mark.parametrize(("name", "moved"), [
    ("shifted", 9), ("ahead", 8), ("backwards", 7), ("every third", 4), ("one row", 3), ("beyond", 0), ("repeated", 11),
    ("blocks", 3), ("parts", 11), ("twice", 8),
])  # fmt: skip
def test_what_is_read_of_11_positions(name, moved):
    made = cases.VIEWS[name]()
    sizes = {"x": 11} if "x" in made.open_sizes else {}
    assert made.transfers().at(**sizes)[("X", 0, 1, "input")] == moved


def test_an_array_under_another_name_costs_what_it_holds():
    n, m, g, c = (size(name) for name in ("x", "q", "g_q", "g_x"))
    moved = cases.gram().transfers()
    assert moved.relaxed().total() == d.size * m * n / c + d.size * m * n / g + m * n
    for rows, tile in product((1, 2, 5, 7), (1, 2, 3)):
        agree(cases.gram(), {"X": np.ones((rows, 2))}, q=rows, x=rows, d=2, g_q=min(tile, rows), g_x=min(2, rows))


@pytest.mark.parametrize("parts", [1, 3, 4])
def test_split_attention_moves_each_key_once(parts):
    made = cases.split_attention(parts)
    for n in (0, 1, 3, 4, 5, 8, 13):
        for chunk in (1, 3):
            sizes = {"k": 2, "r": 2, "q": 1, "x": n, "d": 2}
            arrays = cases.numbers(made, **sizes)
            agree(made, arrays, **sizes, s_x=chunk)


def test_the_mask_and_the_end_of_the_keys_at_once():
    """Known sizes: the rule of the last part is one of whole numbers, and skips chunks."""
    n = dk.axis("n", 13)
    K, V = dk.array("K", n, d), dk.array("V", n, e)
    for mask in (None, dk.causal(q, n), dk.window(q, n, 3)):
        O = dk.attention(dk.array("Q", q, d), K, V, over=n, features=d, mask=mask, name="O")
        made = dk.Diagram(O, name="masked").fuse().split(n=4).stream(n_in="s_n")
        for groups, rows, chunk in product(({"n_part": 1}, {"n_part": 3, "q": 2}, {}), (1, 5), (1, 3)):
            at = {"q": rows, "d": 2, "e": 3}
            agree(made.group(**groups) if groups else made, cases.numbers(made, **at), **at, s_n=chunk)


def test_a_scale_per_block_is_loaded_once_per_block_and_tile():
    made = cases.scaled(4)
    found = made.transfers()[("K.scale", 0, 1, "input")]
    assert str(found) == "ceiling(q/g_q)*ceiling(x/Min(4, s_x))"
    for n, chunk, rows in product((1, 4, 5, 11), (2, 4, 8), (1, 3)):
        sizes = {"q": 3, "x": n, "d": 2, "e": 3}
        agree(made, cases.numbers(made, **sizes), **sizes, g_q=rows, s_x=chunk)


def test_a_scale_per_block_under_a_causal_mask():
    made = cases.scaled(4, mask=dk.causal(q, x))
    for n, chunk, rows in product((1, 5, 11), (2, 8), (1, 3)):
        sizes = {"q": 7, "x": n, "d": 2, "e": 3}
        agree(made, cases.numbers(made, **sizes), **sizes, g_q=rows, s_x=chunk)


def test_what_one_group_moves():
    made = cases.split_attention(4)
    one = made.transfers().per_group()
    assert one[("K", 0, 1, "input")].subs({size("x"): 8, size("d"): 3}) == 6
    scaled = cases.scaled(4).transfers().per_group()
    assert str(scaled[("K.scale", 0, 1, "input")]) == "ceiling(x/Min(4, s_x))"


def test_two_levels_read_through_the_view_once():
    made = cases.gram().group(level=2, q="w_q", x="w_x")
    sizes = {"q": 11, "x": 11, "d": 3, "g_q": 4, "g_x": 6, "w_q": 2, "w_x": 3}
    moved, ran = cost.level_transfers(made), nested(made, **sizes)
    assert ran.count().transfers == moved.at(**sizes)
    arrays = cases.numbers(made, q=11, x=11, d=3)
    assert ran.count(**arrays).transfers == moved.at(**sizes)
    np.testing.assert_allclose(ran.run(**arrays), ops.reference(made, arrays))


def test_sums_with_clips_at_many_points():
    n = dk.axis("n", 13)
    O = dk.attention(
        dk.array("Q", q, d), dk.array("K", n, d), dk.array("V", n, e), over=n, features=d, mask=dk.causal(q, n)
    )
    made = dk.Diagram(O, name="masked").fuse().split(n=4).stream(n_in="s_n").group(q="g_q")
    total = made.transfers().total()
    points = {"q": [5, 7], "d": [2, 2], "e": [3, 3], "g_q": [2, 3], "s_n": [2, 3]}
    found = evaluate_at([total], points)[0].tolist()
    each = [made.transfers().total(**{name: values[at] for name, values in points.items()}) for at in range(2)]
    assert found == each


def test_bounds_that_the_loop_has_too():
    shifted = dk.view(dk.array("X", x), {"x": coordinate("x") - 1}, (x,), name="V")
    made = dk.Diagram(dk.total(shifted * dk.array("W", q, x), over=x, name="Y")).fuse().group(q="g_q").stream(x="s_x")
    for n, chunk, rows in product((1, 2, 7), (1, 3), (1, 2)):
        agree(made, cases.numbers(made, q=3, x=n), q=3, x=n, g_q=rows, s_x=chunk)
