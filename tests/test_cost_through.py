"""Loads through views: what is counted is what the formula says, to the element, at awkward sizes."""

from itertools import product

import numpy as np
import pytest
import view_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st
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


@pytest.mark.parametrize("causal", [False, True])
def test_windows_read_each_position_once_per_tile(causal):
    """Tiles longer and shorter than the windows, edge tiles, windows that begin before the array."""
    made, tiles = cases.convolution(causal), (1, 2, 4, 5)
    for p, w, g in product((1, 5, 7, 12), (1, 2, 3, 9), tiles):
        sizes = {"p": p, "w": w, "c": 5, "m": 4, "g_p": min(g, p), "g_m": 3, "s_c": 2}
        agree(made, cases.numbers(made, p=p, w=w, c=5, m=4) if g == 4 else None, **sizes)
    X, W = np.random.default_rng(0).normal(size=(13, 5)), np.random.default_rng(1).normal(size=(3, 5, 4))
    found = made.lower(g_p=4, g_m=3, s_c=2).run(X=X, W=W)
    padded = np.concatenate([np.zeros((2, 5)), X]) if causal else X
    offsets = (2 - np.arange(3)) if causal else np.arange(3)
    wanted = sum(padded[start : start + len(found)] @ W[n] for n, start in enumerate(offsets))
    np.testing.assert_allclose(found, wanted)


def test_windows_of_rows_and_columns():
    made = cases.convolution_of_pictures()
    sizes = {"i": 5, "j": 7, "a": 3, "b": 2, "c": 3, "m": 2, "g_i": 2, "g_j": 3, "s_c": 2}
    agree(made, cases.numbers(made, **{name: n for name, n in sizes.items() if len(name) == 1}), **sizes)
    i, j, a, b, c, g, h = (size(name) for name in ("i", "j", "a", "b", "c", "g_i", "g_j"))
    moved = made.transfers().relaxed().by_array()["X"]
    assert (moved - c * (i / g) * (j / h) * (g + a - 1) * (h + b - 1)).expand() == 0


def test_streams_along_a_window_and_along_summed_positions():
    """Chunks of offsets, and chunks of positions that are summed, read what is around them again."""
    p, w, c = dk.axes("p w c")
    windows = dk.view(dk.array("X", p, c), {"p": coordinate("p") - coordinate("w")}, (p, w, c), name="windows")
    Y = dk.einsum("p w c, w c -> p", windows, dk.weight("W", w, c), name="Y")
    along = dk.Diagram(Y).fuse().group(p="g_p").stream(w="s_w")
    summed = dk.Diagram(dk.total(windows, over=("p", "w"), name="T")).fuse().group(c="g_c").stream(w="s_w")
    for n, width, g, s in product((1, 5, 8), (1, 3, 6), (2, 4), (2, 3)):
        sizes = {"p": n, "w": width, "c": 3}
        agree(along, cases.numbers(along, **sizes), **sizes, g_p=g, s_w=s)
        agree(summed, None, **sizes, g_c=2, s_w=s)


def overlapping(signs, shift, length, streamed, positions):
    """The sum over windows of up to three axes that move either way, from anywhere in or beside the array."""
    axes, c = (dk.axis("p", positions), dk.axis("w"), dk.axis("v"))[: len(signs)], dk.axis("c", 3)
    place = sum((sign * coordinate(axis.name) for sign, axis in zip(signs, axes, strict=True)), shift)
    windows = dk.view(dk.array("X", dk.axis("t", length), c), {"t": place}, (*axes, c), name="windows")
    Y = dk.contract(windows, dk.array("W", *axes[1:], c), over=(*axes[1:], c), name="Y")
    return dk.Diagram(Y, name="overlapping").fuse().group(p="g_p").stream(**{streamed: "s"})


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_windows_that_move_either_way(data):
    signs = data.draw(st.lists(st.sampled_from([1, -1]), min_size=2, max_size=3))
    shift, length = data.draw(st.integers(-4, 9)), data.draw(st.integers(1, 12))
    sizes = {name: data.draw(st.sampled_from((1, 2, 3, 5, 8))) for name in ("p", "w", "v")[: len(signs)]}
    streamed = data.draw(st.sampled_from(["c", *list(sizes)[1:]]))
    tiles = {"g_p": data.draw(st.integers(1, sizes["p"])), "s": data.draw(st.integers(1, ({"c": 3} | sizes)[streamed]))}
    made = overlapping(signs, shift, length, streamed, sizes["p"])
    agree(made, cases.numbers(made, **sizes), **sizes, **tiles)


def test_two_levels_read_windows_once():
    for causal, p, g, h in product((False, True), (7, 12), (3, 4), (1, 2)):
        made = cases.convolution(causal).group(p="h_p", m="h_m", level=2)
        sizes = {"p": p, "w": 3, "c": 4, "m": 4, "g_p": g, "g_m": 4, "s_c": 2, "h_p": h, "h_m": 2}
        assert nested(made, **sizes).count().transfers == cost.level_transfers(made).at(**sizes)


def test_windows_of_what_a_kernel_stored_are_read_there():
    p, w = dk.axes("p w")
    before = dk.exp(dk.array("X", p), name="E")
    windows = dk.view(before, {"p": coordinate("p") - coordinate("w")}, (p, w), name="windows")
    made = dk.Diagram(dk.contract(windows, dk.array("W", w), over=w, name="Y"), name="two").group(p="g_p")
    assert [region.loads for region in made.regions] == [("X",), ("windows", "W")]
    agree(made, cases.numbers(made, p=13, w=3), p=13, w=3, g_p=4)


def test_windows_that_reach_beyond_the_array_in_chunks_that_a_mask_skips_are_not_counted_by_a_formula():
    p, w = dk.axes("p w=3")
    windows = dk.view(dk.array("X", p), {"p": coordinate("p") - coordinate("w")}, (p, w), name="windows")
    seen = dk.select(dk.causal(q, p), dk.total(windows, over=w), 0)
    made = dk.Diagram(dk.total(seen, over=p, name="T")).fuse().group(q="g_q").stream(p="s_p", region="T")
    program = made.lower(q=6, g_q=2, s_p=2)
    assert program.run(X=np.ones(6)).tolist() == [1, 3, 6, 9, 12, 15]
    with pytest.raises(dk.InputError, match=r"windows of 'X' that are read in them may reach .*lower.*count"):
        made.transfers()
    followed = program.at(q=6, p=6, g_q=2, s_p=2).count()  # the remedy
    assert followed.transfers["X", 0, 1, "input"] == sum((2, 2 + 4, 2 + 4 + 4))


def masked_windows(kind, n, wide, x):
    """Windows of an array, read in the chunks that a mask lets run: along a group, along two, along the stream."""
    p, w, x, q = dk.axis("p", n), dk.axis("w", wide), dk.axis("x", x), dk.axis("q", 6)
    t = dk.axis("t", n + wide - 1)
    place = coordinate("p") - coordinate("w") + wide - 1 if kind == "backwards" else coordinate("p") + coordinate("w")
    if kind in ("one group", "two groups"):
        windows = dk.view(dk.array("X", t, x), {"t": place}, (p, w, x), name="windows")
        summed = windows if kind == "two groups" else dk.total(windows, over=w)
        made = dk.Diagram(dk.total(dk.select(dk.causal(p, x), summed, 0), over=x, name="Y"), name=kind).fuse()
        return made.group(p="g", **({"w": "h"} if kind == "two groups" else {})).stream(x="s")
    windows = dk.view(dk.array("X", t), {"t": place}, (p, w), name="windows")
    seen = dk.select(dk.causal(q, p), dk.total(windows, over=w), 0)
    return dk.Diagram(dk.total(seen, over=p, name="Y"), name=kind).fuse().group(q="g").stream(p="s")


@pytest.mark.parametrize("kind", ["one group", "two groups", "streamed", "backwards"])
@pytest.mark.parametrize("sizes", [(7, 3, 9), (5, 1, 6), (8, 4, 8), (1, 2, 3)], ids=str)
def test_windows_in_chunks_that_a_mask_skips_are_counted_exactly(kind, sizes):
    made = masked_windows(kind, *sizes)
    formulas, open_ = made.transfers(), made.lower().missing
    for g, s, h in ((2, 3, 1), (3, 2, 2), (4, 4, 4), (1, 1, 1), (7, 9, 2)):
        tiles = {tile: size for tile, size in {"g": g, "s": s, "h": h}.items() if tile in open_}
        assert made.lower(**tiles).count().transfers == formulas.at(**tiles), tiles


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("axis", ["p", "w"])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_a_split_along_the_positions_of_windows(sign, axis, parts):
    p, w, c = dk.axes("p w=3 c")
    place = coordinate("p") + sign * coordinate("w")
    windows = dk.view(dk.array("X", p, c), {"p": place}, (p, w, c), name="windows")
    whole = dk.Diagram(dk.total(windows, over=("p", "w"), name="T"), name="summed").fuse().group(c="g_c")
    made = whole.stream(**{axis: "s"}).split(**{axis: parts})
    X = np.random.default_rng(3).normal(size=(11, 4))
    program = made.lower(**{tile: 2 for tile in made.lower().missing if tile in ("s", "g_c")})
    np.testing.assert_allclose(program.run(X=X), whole.reference(X=X))
    at = {name: {"p": 11, "c": 4}.get(name, 2) for name in made.lower().missing}
    assert made.lower(**at).count().transfers == made.transfers().at(**at)
