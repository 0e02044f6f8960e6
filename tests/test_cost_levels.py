"""Costs level by level, and the rules for hierarchies, against brute force and the published figures."""

from itertools import product

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import masked_streams

import diagkit as dk
from diagkit import cost, derive, machine
from diagkit.program import nested
from diagkit.term import DiagkitError, Level, LevelGraph

q, x, d = dk.axes("q x d")
a, b, c = dk.axes("a b c")


def attention(mask=False):
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d, dtype="fp16"), dk.array("K", x, d, dtype="fp16"))
    P = dk.softmax(dk.masked(S, dk.causal(q, x)) if mask else S, over=x, name="P")
    O = dk.einsum("q x, x d -> q d", P, dk.array("V", x, d, dtype="fp16"))
    return dk.Diagram(O, name="attention").fuse().group(q="g_q").stream(x="s_x")


def matmul():
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    return dk.Diagram(C, name="matmul").group(a="g_a", c="g_c").stream(b="s_b")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_nested_tiles_are_the_tiles_that_there_are(whole, cuts):
    *outer, inner = sorted(cuts, reverse=True)
    pieces = [whole] if whole else []
    for cut in (*outer, inner):
        pieces = [min(cut, piece - at) for piece in pieces for at in range(0, piece, cut)]
    assert cost.nested_tiles(sympy.Integer(whole), tuple(map(sympy.Integer, outer)), sympy.Integer(inner)) == len(
        pieces
    )


def test_matmul_and_attention_at_awkward_sizes_are_counted_to_the_element():
    flash = attention().group(level=2, q="w_q").stream(level=2, x="u_x")
    tiled = matmul().group(level=2, a="w_a", c="w_c").stream(level=2, b="u_b")
    cases = [
        (flash, {"q": 37, "x": 29, "d": 5, "g_q": 11, "s_x": 7, "w_q": 4, "u_x": 3}),
        (flash, {"q": 1, "x": 13, "d": 3, "g_q": 8, "s_x": 5, "w_q": 8, "u_x": 1}),
        (tiled, {"a": 23, "b": 17, "c": 19, "g_a": 7, "g_c": 10, "s_b": 5, "w_a": 3, "w_c": 4, "u_b": 2}),
    ]
    for term, sizes in cases:
        count = nested(term, **sizes).count()
        assert count.transfers == cost.level_transfers(term).at(**sizes)
        assert count.peaks == {level: held.peak(**sizes) for level, held in cost.level_memory(term).items()}


def test_under_a_mask_any_tiles_are_exact():
    """Tiles that divide, that do not, and that are longer than what they cut, on two levels and on three."""
    flash = attention(mask=True).group(level=2, q="w_q").stream(level=2, x="u_x")
    deeper = flash.group(level=3, q="t_q").stream(level=3, x="v_x")
    sizes = {"q": 37, "x": 37, "d": 3, "g_q": 12, "s_x": 6}
    for term, inner in product((flash, deeper), product((4, 5, 13, 40), (3, 4, 7, 40))):
        tiles = {**dict(zip(("w_q", "u_x"), inner, strict=True)), **({"t_q": 3, "v_x": 2} if term is deeper else {})}
        count, moved = nested(term, **sizes, **tiles).count(), cost.level_transfers(term)
        assert count.transfers == moved.at(**sizes, **tiles)
        assert count.flops == cost.level_work(term).flop(**sizes, **tiles)
        below = moved.between(2).bytes().total(**sizes, **tiles)
        assert below == count.total_bytes(2)


def grouped_heads(mask=False):
    """Two query heads r for each of k key heads, tiles of both."""
    k, r = dk.axes("k r")
    Q, K, V = dk.array("Q", k, r, q, d), dk.array("K", k, x, d), dk.array("V", k, x, d)
    masks = {"mask": dk.causal(q, x, "bottom-right")} if mask else {}
    O = dk.attention(Q, K, V, over=x, features=d, **masks)
    return dk.Diagram(O, name="heads").fuse().group(q="g_q", k=1, r="g_r").stream(x="s_x")


@pytest.mark.parametrize("mask", [False, True])
def test_grouped_heads_are_counted_to_the_element_on_two_levels(mask):
    term = grouped_heads(mask).group(level=2, q="w_q", r=1).stream(level=2, x="u_x")
    for q_size, x_size, heads in [(1, 13, 3), (7, 5, 2), (11, 11, 1), (0, 5, 2), (7, 0, 2), (7, 5, 0)]:
        sizes = {"q": q_size, "x": x_size, "d": 3, "k": 2, "r": heads}
        sizes |= {"g_q": 5, "s_x": 4, "g_r": 2, "w_q": 3, "u_x": 7}
        count = nested(term, **sizes).count()
        assert count.transfers == cost.level_transfers(term).at(**sizes)
        found = {level: held.peak(**sizes) for level, held in cost.level_memory(term).items()}
        assert {level: count.peaks.get(level, 0) for level in found} == found


def test_along_an_empty_axis_nothing_is_held_but_what_a_loop_begins_with():
    """The known case: with no queries no tile runs; with no keys Q and the states m, z, o are there."""
    term = attention().group(level=2, q="w_q").stream(level=2, x="u_x")
    sizes = {"q": 5, "x": 4, "d": 2, "g_q": 3, "s_x": 2, "w_q": 2, "u_x": 1}
    for empty, expected in (("q", [0, 0]), ("x", [6, 12])):
        held = [one.peak(**sizes | {empty: 0}) for one in cost.level_memory(term).values()]
        assert held == expected
        assert list(nested(term, **sizes | {empty: 0}).count().peaks.values()) == expected
    (_, inner) = cost.level_memory(term).values()
    assert inner.where(**sizes | {"x": 0}) == ((0, "begin"),)
    assert {inner.at(**sizes | {"q": 0})[0, "load"], inner.at(**sizes)[0, "load"]} == {0, 4}


def test_bytes_and_levels_of_transfers_are_views_of_the_same_map():
    moved = cost.level_transfers(attention().group(level=2, q="w_q"))
    assert moved.between(1).amounts == cost.transfers(attention()).amounts
    assert moved.between(1).total() + moved.between(2).total() == moved.total()
    assert moved.bytes().between(2).amounts == moved.between(2).bytes().amounts


def test_the_optimum_of_all_levels_is_the_weighted_sum_of_the_bounds():
    graph = LevelGraph((Level("global", 0), Level("shared", 1, "M_1", "B_1"), Level("register", 2, "M_2", "B_2")))
    A, B, C, M1, M2, B1, B2 = map(dk.size, ("a", "b", "c", "M_1", "M_2", "B_1", "B_2"))
    expected = (2 * A * B * C / sympy.sqrt(M1) + A * C) / B1 + (2 * A * B * C / sympy.sqrt(M2) + A * C) / B2
    assert sympy.simplify(cost.level_optimum(matmul(), graph).time - expected) == 0


def test_a_cache_counts_as_the_memory_of_all_its_children():
    chip = LevelGraph((Level("global", 0), Level("L2", 1, "M_L2", "B_1"), Level("shared", 1, "M", "B_2", "N")))
    best = cost.level_optimum(attention(), chip, caches=["L2"])
    B1, B2 = dk.size("B_1"), dk.size("B_2")
    expected = attention().caching("M", "N").formula / B1 + attention().optimum("M").transfers / B2
    assert sympy.simplify(best.time - expected) == 0 and dk.size("M_L2") not in best.time.free_symbols
    with pytest.raises(DiagkitError, match="shared caches for nobody"):
        cost.level_optimum(attention(), chip, caches=["shared"])
    with pytest.raises(DiagkitError, match="no level 'L3'"):
        cost.level_optimum(attention(), chip, caches=["L3"])


@pytest.mark.parametrize(("large", "small", "lost"), [(40, 12, 0), (33, 33, 0), (60, 20, 24)])
def test_levels_chosen_by_themselves_are_as_good_as_levels_chosen_together(large, small, lost):
    """All tiles of both levels at once, inner inside outer, exactly counted: the best pair is the best of
    each level alone, but for what is lost where those do not fit into each other (3 x 4 in 6 x 6); the
    bound of all levels lies below."""
    sizes = {"a": 12, "b": 8, "c": 12, "s_b": 1}
    term = matmul().group(level=2, a="w_a", c="w_c")
    above, below = (cost.level_transfers(term).between(level).total() for level in (1, 2))
    tiles = list(product((1, 2, 3, 4, 6, 12), repeat=2))
    outer, inner = ([t for t in tiles if t[0] * t[1] + t[0] + t[1] <= room] for room in (large, small))

    def time(o, i):
        at = {**sizes, "g_a": o[0], "g_c": o[1], "w_a": i[0], "w_c": i[1]}
        return cost.evaluate(above, at) + cost.evaluate(below, at) / 4

    together = min(time(o, i) for o in outer for i in inner if o[0] >= i[0] and o[1] >= i[1])
    alone = {t: 12 * 8 * (-(-12 // t[0]) - (-12 // t[1])) + 144 for t in tiles}
    apart = min(alone[t] for t in outer) + min(alone[t] for t in inner) / 4
    graph = LevelGraph((Level("global", 0), Level("shared", 1, large, 1), Level("register", 2, small, 4)))
    assert cost.level_optimum(term, graph, **sizes, napkin=False).at() <= apart
    assert together - apart == lost


powers = st.integers(0, 6)


@given(powers, powers, st.sampled_from([1, 3, 8]), st.sampled_from([2, 16]))
@settings(max_examples=40, deadline=None)
def test_the_sum_over_levels_is_the_joint_optimum_of_attention(first, second, fast, wide):
    """Every pair of tiles, inner inside outer, counted on paper: whichever level has more memory. The memories are
    those of tiles that are powers of two, so that nothing is lost to whole numbers."""
    queries, keys, rooms = 64, 48, [2 * wide * 2**power for power in (first, second)]
    moved = {2**power: 2 * queries * wide + 2 * keys * wide * queries // 2**power for power in range(7)}
    pairs = [(g, w) for g in moved for w in moved if w <= g and 2 * g * wide <= rooms[0] and 2 * w * wide <= rooms[1]]
    best = min(sympy.Integer(moved[g]) + sympy.Rational(moved[w], fast) for g, w in pairs)
    graph = LevelGraph((Level("global", 0), Level("shared", 1, rooms[0], 1), Level("register", 2, rooms[1], fast)))
    found = cost.level_optimum(attention(), graph, q=queries, x=keys, d=wide)
    assert found.time == best


@given(powers, powers, st.sampled_from([1, 3, 8]))
@settings(max_examples=25, deadline=None)
def test_the_sum_over_levels_is_the_joint_optimum_of_a_matrix_product(first, second, fast):
    size, rooms = 64, (4**first, 4**second)
    sides = [2**power for power in range(7)]
    moved = {(a, c): size**3 // a + size**3 // c + size**2 for a in sides for c in sides}
    fits = [[tile for tile in moved if tile[0] * tile[1] <= room] for room in rooms]
    pairs = [(g, w) for g in fits[0] for w in fits[1] if w[0] <= g[0] and w[1] <= g[1]]
    best = min(sympy.Integer(moved[g]) + sympy.Rational(moved[w], fast) for g, w in pairs)
    graph = LevelGraph((Level("global", 0), Level("shared", 1, rooms[0], 1), Level("register", 2, rooms[1], fast)))
    assert cost.level_optimum(matmul(), graph, a=size, b=size, c=size).time == best


def test_what_is_no_memory_no_bandwidth_and_no_count_is_refused():
    flash = attention()
    for memory in (0, -5):
        for rule in (lambda m: flash.caching(m, 2), lambda m: flash.cross_transfer(m, 2, 1, 2)):
            with pytest.raises(DiagkitError, match=f"{memory} is no amount of memory"):
                rule(memory)
    for rates in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(DiagkitError, match="is no bandwidth"):
            flash.cross_transfer("M", 2, *rates)
        with pytest.raises(DiagkitError, match="is no bandwidth"):
            cost.cross_saving(1, 2, *rates)
    with pytest.raises(DiagkitError, match="reading across at 1 is slower than from above at 10"):
        flash.cross_transfer("M", 2, 10, 1)
    for ask in (lambda n: flash.network(q=n), lambda n: flash.caching("M", n), lambda n: cost.cross_saving(1, n, 1, 2)):
        for count in (0, -1, 2.5):
            with pytest.raises(DiagkitError, match="share nothing"):
                ask(count)


def test_caching_is_the_bound_at_the_memory_of_all_children():
    rule = attention().caching("M", "N")
    M, N = dk.size("M"), dk.size("N")
    assert sympy.simplify(rule.formula - attention().optimum(M * N).transfers) == 0
    assert "Theorem 2" in str(rule)


def test_caching_is_what_a_counted_run_shows():
    """N children share each chunk: it comes from above once and is handed on N times; what comes from above is
    the bound at N M, and the middle memory holds a chunk, however large the children."""
    sizes = {"q": 96, "x": 40, "d": 4, "s_x": 5, "w_q": 8, "u_x": 1}
    flash = attention().group(level=2, q="w_q").stream(level=2, x="u_x")
    for children in (1, 2, 3, 4):
        count = nested(flash, **sizes, g_q=8 * children).count()
        above, below = (count.transfers["K", level, level + 1, "input"] for level in (0, 1))
        assert below == above * children
        memory = 2 * 8 * 4  # of one child: its Q and O
        moved = sum(count.between(1).values())
        assert moved == attention().caching(memory, children).at(q=96, x=40, d=4)


def test_cross_transfer_is_what_a_counted_run_shows():
    """A cluster of N: what is new to it comes from above, the rest from a neighbour."""
    sizes = {"q": 96, "x": 40, "d": 4, "s_x": 5, "w_q": 8}
    term = attention().group(level=2, q="w_q")
    for children in (1, 2, 4):
        count = nested(term, **sizes, g_q=8 * children).count()
        above, own = sum(count.between(1).values()), sum(count.between(2).values())
        time = sympy.Rational(above, 3) + sympy.Rational(own - above, 7)
        assert (
            attention().cross_transfer(2 * 8 * 4, children, 3, 7).formula.subs({q.size: 96, x.size: 40, d.size: 4})
            == time
        )


def saving(term, children, across, above=2.04):
    """How much of the time of the terms that fall with memory a cluster saves."""
    alone, together = (term.cross_transfer("M", n, above, across) for n in (1, children))
    parts = [(one, two) for (one, beta), (two, _) in zip(alone.parts, together.parts, strict=True) if beta]
    (saved,) = {round(float(sympy.simplify(1 - two / one)), 6) for one, two in parts}
    return saved


def test_the_published_savings_of_clusters():
    """Section 4.5, with the H800's 2.04, 3.27 and 2.65 TB/s for clusters of 1, 2 and 4."""
    assert saving(attention(), 2, 3.27) == pytest.approx(0.188, abs=5e-4)
    assert saving(attention(), 4, 2.65) == pytest.approx(0.173, abs=5e-4)
    assert saving(matmul(), 2, 3.27) == pytest.approx(0.110, abs=5e-4)
    assert saving(matmul(), 4, 2.65) == pytest.approx(0.115, abs=5e-4)
    assert float(cost.cross_saving(attention().optimum("M").beta, 2, 2.04, 3.27)) == pytest.approx(0.188, abs=5e-4)


def test_the_worked_example_without_and_with_caching():
    """q = x = 4096, d = 128, 32 heads, fp16, 128 queries a tile on an H200."""
    found = machine.load("H200-SXM")
    sizes = {"q": 4096, "x": 4096, "d": 128, "g_q": 128, "s_x": 64}
    moved = attention().transfers().bytes().total(**sizes) * 32
    slow = moved / found.bandwidth("global")
    work = cost.work(attention()).flop(**sizes) * 32 / found.peak("fp16")
    assert (slow, work) == (pytest.approx(0.461e-3, abs=1e-6), pytest.approx(0.278e-3, abs=1e-6))
    together = attention().caching(2 * 128 * 128, 4096 // 128).at(q=4096, x=4096, d=128) * 2 * 32
    assert together / found.bandwidth("global") < work < slow


def test_rules_are_refused_where_the_bound_is_no_sum_of_powers():
    with pytest.raises(DiagkitError, match="no power of memory"):
        matmul().caching("M", "N", s_b=4)


def test_the_network_gathers_for_a_group_and_merges_a_stream():
    flash, n, sizes = attention(), dk.size("N"), {"q": 8, "x": 6, "d": 4, "N": 3}
    assert flash.network(q="N").moved == {(w, "gather"): x.size * d.size * (n - 1) for w in "KV"}
    assert flash.network(x="N").total(**sizes) == (8 * 4 + (8 * 4 + 8 + 8)) * 2
    assert set(flash.network(x="N").moved) == {("Q", "gather"), *((s.name, "reduce") for s in flash.forms[0].state)}
    with pytest.raises(DiagkitError, match="neither grouped nor streamed"):
        flash.network(d=2)
    with pytest.raises(DiagkitError, match="one axis at a time"):
        flash.network(q=2, x=2)


def test_the_table_over_a_picture_has_rows_for_every_level():
    rows = cost.columns(matmul().group(level=2, a="w_a", c="w_c"))
    assert [(row.name, row.level) for row in rows[:4]] == [("H", 0), ("M", 1), ("H", 1), ("M", 2)]
    assert set(rows[2].cells) == {("load", 0, 2), ("store", 0, 2)}
    assert sum(rows[0].cells.values()) == cost.transfers(matmul()).total()


@settings(max_examples=60, deadline=None)
@given(masked_streams(), st.sampled_from([1, 2, 3, 7, 15]), st.sampled_from([1, 2, 3, 7, 15]))
def test_masks_at_two_levels_are_counted_whatever_the_tiles(case, rows, chunk):
    term, sizes = case.term, dict(case.sizes)
    for label in case.term.labels:
        inner = {label.axis: f"inner_{label.axis}"}
        term = (derive.group if label.kind == "group" else derive.stream)(term, level=2, **inner)
        sizes[f"inner_{label.axis}"] = rows if label.kind == "group" else chunk
    assert nested(term, **sizes).count().transfers == cost.level_transfers(term).at(**sizes)
