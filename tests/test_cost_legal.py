"""Legal tiles: never worse than trying everything, never over the memory, with their reasons."""

from fractions import Fraction
from itertools import product

import pytest
from cost_cases import MASKS, flash, heads, masked, tiled_matmul
from derive_cases import attention
from hypothesis import given, settings
from hypothesis import strategies as st

from diagkit.cost import evaluate, legal_tile, memory, optimum, tile_multiples, transfers, work
from diagkit.derive import fuse, group, stream
from diagkit.term import DiagkitError, InputError

small = st.integers(1, 14)


def brute(term, limit, tiles, sizes, step, unit="elements"):
    """The least transfers over all legal tiles, by trying each of them."""
    moved, held = transfers(term), memory(term)
    moved, held = (moved.bytes(), held.bytes()) if unit == "bytes" else (moved, held)
    every = [sorted({*range(step.get(axis, 1), sizes[axis] + 1, step.get(axis, 1)), sizes[axis]}) for axis in tiles]
    found = []
    for choice in product(*every):
        at = sizes | dict(zip(tiles.values(), choice, strict=True))
        if held.peak(**at) <= limit:
            found.append(moved.total(**at))
    return min(found, default=None)


@settings(max_examples=25)
@given(small, small, small, st.integers(3, 200), st.sampled_from([{}, {"a": 2}, {"b": 3, "c": 4}]))
def test_matmul_is_never_worse_than_search(rows, inner, cols, limit, step):
    sizes, tiles = {"a": rows, "b": inner, "c": cols}, {"a": "g_a", "b": "s_b", "c": "g_c"}
    check(tiled_matmul(), limit, tiles, sizes, step)


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=12)
@given(small, small, st.integers(1, 4), st.integers(5, 300), st.sampled_from([{}, {"q": 4, "x": 2}, {"x": 3}]))
def test_attention_is_never_worse_than_search(mask, rows, keys, width, limit, step):
    sizes, tiles = {"q": rows, "x": keys, "d": width, "e": 2}, {"q": "g_q", "x": "s_x"}
    check(masked(mask), limit, tiles, sizes, step)


def check(term, limit, tiles, sizes, step):
    least = brute(term, limit, tiles, sizes, step)
    if least is None:
        with pytest.raises(DiagkitError, match="the smallest legal tiles hold"):
            legal_tile(term, limit, multiples=step, **sizes)
        return
    best = legal_tile(term, limit, multiples=step, **sizes)
    assert best.moved == least == transfers(term).total(**sizes, **best.tiles)
    assert best.held == memory(term).peak(**sizes, **best.tiles) <= limit
    assert all(
        best.tiles[tile] % step.get(axis, 1) == 0 or best.tiles[tile] == sizes[axis] for axis, tile in tiles.items()
    )
    if term in (tiled_matmul(), masked("none")):
        assert best.moved >= best.bound * (1 - 1e-9)


formats = st.sampled_from(["fp32", "fp16", "fp8e4m3", "int4"])


@settings(max_examples=25)
@given(small, small, small, st.integers(3, 300), formats, formats)
def test_mixed_formats_are_never_worse_than_search(rows, inner, cols, limit, left, right):
    """In bytes: no tile of whole numbers moves less than the legal one, and none less than the optimum."""
    sizes, tiles = {"a": rows, "b": inner, "c": cols}, {"a": "g_a", "b": "s_b", "c": "g_c"}
    term = tiled_matmul(left, right)
    least = brute(term, limit, tiles, sizes, {}, "bytes")
    if least is None:
        with pytest.raises(DiagkitError, match="the smallest legal tiles hold"):
            legal_tile(term, limit, multiples={}, unit="bytes", **sizes)
        return
    best = legal_tile(term, limit, multiples={}, unit="bytes", **sizes)
    assert best.moved == least == transfers(term).bytes().total(**sizes, **best.tiles)
    assert best.held == memory(term).bytes().peak(**sizes, **best.tiles) <= limit
    assert optimum(term, limit, unit="bytes", **sizes).transfers <= least * (1 + 1e-9)


@settings(max_examples=10)
@given(small, small, small, st.integers(3, 200))
def test_divisors(rows, inner, cols, limit):
    sizes = {"a": rows, "b": inner, "c": cols}
    try:
        best = legal_tile(tiled_matmul(), limit, multiples={}, divisors=True, **sizes)
    except DiagkitError:
        assert limit < 3
        return
    assert (rows % best.tiles["g_a"], inner % best.tiles["s_b"], cols % best.tiles["g_c"]) == (0, 0, 0)
    assert best.edges == 0


def test_matmul_near_its_bound():
    """Matrix product: a = b = c = 1e4, M = 4096, s = 1: best tile 63 x 63, 1.6 % above the bound."""
    best = legal_tile(tiled_matmul(), 4096, multiples={}, a=10**4, b=10**4, c=10**4)
    assert best.tiles == {"g_a": 63, "g_c": 63, "s_b": 1}
    assert round(100 * best.loss, 1) == 1.6
    assert best.bound == pytest.approx(2e12 / 64 + 1e8)


def test_tiles_are_rounded_inward():
    """A tile that would just not fit is not taken: one row more is over the limit."""
    sizes, held = {"q": 500, "x": 100, "d": 4, "e": 4}, memory(masked("none"))
    for limit in range(40, 400, 17):
        best = legal_tile(masked("none"), limit, multiples={}, **sizes)
        more = next(g for g in range(1, 501) if -(-500 // g) < -(-500 // best.tiles["g_q"]))
        assert best.held <= limit < held.peak(**sizes, **best.tiles | {"g_q": more})


def test_multiples_of_matrix_instructions_and_rows():
    asked = tile_multiples(tiled_matmul())
    assert {axis: sorted(n for n, _ in why) for axis, why in asked.items()} == {"a": [16], "b": [16, 32], "c": [16, 32]}
    assert ("b", (32, "rows of 128 bytes of A")) in [(axis, one) for axis, why in asked.items() for one in why]
    eight = tile_multiples(tiled_matmul(), "fp8e4m3")
    assert {n for n, _ in eight["b"]} == {32, 128}
    assert {n for n, _ in eight["a"]} == {16}


def test_of_axes_in_the_same_operands_the_last_is_cut_by_16():
    """Of k heads in all operands none, of r x q rows the q."""
    assert set(tile_multiples(heads())) == {"q", "x"}


def test_multiples_of_labels_count_too():
    term = stream(group(fuse(attention()), q=("g_q", 48)), x="s_x")
    best = legal_tile(term, 50_000, q=4096, x=4096, d=64, e=64)
    assert best.tiles["g_q"] % 48 == 0
    assert (48, "the label") in best.reasons["q"]


def test_given_tiles_stay():
    best = legal_tile(flash(), 50_000, q=4096, x=4096, d=64, e=64, s_x=64)
    assert "s_x" not in best.tiles
    assert best.held <= 50_000


def test_hopper_sized_attention_in_bytes():
    best = legal_tile(flash(), 227 * 1024, unit="bytes", dtype="fp16", q=16384, x=16384, d=128, e=128)
    assert best.tiles == {"g_q": 400, "s_x": 16}
    assert best.held == 227_392 <= 227 * 1024 < best.held + 16 * (2 * 256 + 16 * 2 + 4 * 1)
    assert 0 < best.loss < 0.15


def test_masks_are_searched_exactly():
    best = legal_tile(masked("top-left"), 3000, q=256, x=256, d=8, e=8)
    assert best.tiles["s_x"] == 16
    assert best.moved == transfers(masked("top-left")).total(q=256, x=256, d=8, e=8, **best.tiles)


def test_display():
    best = legal_tile(flash(), 50_000, q=4096, x=4096, d=64, e=64)
    assert "matrix instructions" in str(best)
    assert "loss of shape" in best._repr_html_()
    assert best._repr_latex_().startswith("$")


def test_sizes_are_checked():
    with pytest.raises(InputError, match="the size of 'x' is not given; give also: x, e"):
        legal_tile(flash(), 1000, q=5, d=5)
    with pytest.raises(InputError, match="no axis or tile 'y'; it has: q, d, x, e, g_q, s_x"):
        legal_tile(flash(), 1000, q=5, d=5, x=5, e=5, y=5)


@pytest.mark.parametrize("mask", MASKS)
@settings(max_examples=6)
@given(small, small, st.integers(5, 300), st.sampled_from([0.1, 3, 50]))
def test_no_legal_tile_has_a_lower_price_than_the_one_chosen_for_it(mask, rows, keys, limit, ridge):
    term, sizes = masked(mask), {"q": rows, "x": keys, "d": 3, "e": 2}
    moved, flop, held = transfers(term).total(), work(term).flop(), memory(term)
    every = [{**sizes, "g_q": g, "s_x": s} for g, s in product(range(1, rows + 1), range(1, keys + 1))]

    def price(at):
        return evaluate(moved, at) + evaluate(flop, at) / ridge

    prices = [price(at) for at in every if held.peak(**at) <= limit]
    if prices:
        best = legal_tile(term, limit, multiples={}, price=price, **sizes)
        assert price({**sizes, **best.tiles}) == pytest.approx(min(prices))


def test_under_a_mask_arithmetic_asks_for_smaller_tiles_than_transfers_do():
    sizes = {"q": 512, "x": 512, "d": 16, "e": 16}
    causal = masked("top-left")
    moved, flop = transfers(causal).total(), work(causal).flop()
    prices = (None, lambda at: evaluate(moved, at) + evaluate(flop, at) / 4)
    least, quick = (legal_tile(causal, 2**15, multiples={}, price=price, **sizes) for price in prices)
    assert quick.tiles["g_q"] < least.tiles["g_q"] and quick.moved > least.moved
    assert work(causal).flop(**sizes, **quick.tiles) < work(causal).flop(**sizes, **least.tiles)


@settings(max_examples=10)
@given(small, small, st.integers(20, 300), st.integers(1, 40))
def test_a_legal_tile_leaves_no_core_without_a_group(rows, columns, limit, cores):
    """Of all tiles that fit and make enough groups none moves less on the busiest core; where none makes enough, all
    are 1."""
    term, sizes = tiled_matmul(), {"a": rows, "b": 3, "c": columns}
    moved, held = transfers(term).total(), memory(term)
    every = [{**sizes, "g_a": g, "g_c": k} for g, k in product(range(1, rows + 1), range(1, columns + 1))]
    many = {(at["g_a"], at["g_c"]): -(-rows // at["g_a"]) * -(-columns // at["g_c"]) for at in every}
    enough = [at for at in every if many[at["g_a"], at["g_c"]] >= min(cores, rows * columns)]

    def busiest(at):
        groups = many[at["g_a"], at["g_c"]]
        return evaluate(moved, {**at, "s_b": 1}) * Fraction(-(-groups // cores), groups)

    moves = [busiest(at) for at in enough if held.peak(**at, s_b=1) <= limit]
    if moves:
        best = legal_tile(term, limit, multiples={}, groups=cores, **sizes)
        assert busiest({**sizes, **best.tiles}) == min(moves)
        assert many[best.tiles["g_a"], best.tiles["g_c"]] >= min(cores, rows * columns)
    with pytest.raises(InputError, match="a count of groups cannot be 0"):
        legal_tile(term, limit, groups=0, **sizes)


def test_no_core_waits_for_the_last_group_of_another():
    """Of 9 rows of tiles on 2 cores the last would run alone: 10 take no longer."""
    sizes = {"q": 2304, "x": 2304, "d": 64, "e": 64}
    alone, together = (legal_tile(flash(), 40_000, multiples={"q": 16, "x": 16}, groups=n, **sizes) for n in (1, 2))
    counts = [-(-2304 // found.tiles["g_q"]) for found in (alone, together)]
    assert counts[0] % 2 == 1 and counts[1] % 2 == 0 and counts[1] <= counts[0] + 1


def test_a_large_memory_is_searched_as_quickly_as_a_small_one():
    """Of 2**26 tiles those are tried that differ in how many there are of them."""
    best = legal_tile(flash(), 10**12, multiples={}, q=2**30, x=2**30, d=128, e=128)
    assert best.tiles["g_q"] == 2**30


def test_axes_of_any_length_are_searched_in_bounded_memory():
    """Tiles that cannot fit are not listed: the tile of 2**14 queries and of 2**62 is one."""
    found = [legal_tile(flash(), 50_000, q=1 << n, x=1 << n, d=64, e=64).tiles for n in (14, 62)]
    assert found[0] == found[1]
