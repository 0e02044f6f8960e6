"""Two levels and more, run tile inside tile: what is counted is what the formulas of every level say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import arrays_for, nested_labels
from test_counted_equals_formula import every_loop_runs, hides

import diagkit as dk
from diagkit import cost, ops
from diagkit.program import nested
from diagkit.term import InputError


def agree(term, sizes, count):
    """Counts of all levels against formulas of all levels; where masks hide whole loops, a run holds less."""
    moved = cost.level_transfers(term).at(**sizes)
    assert count.transfers == {tuple(key): amount for key, amount in moved.items()}
    assert count.flops == cost.level_work(term).flop(**sizes)
    for level, held in cost.level_memory(term).items():
        found, room = count.peaks.get(level, 0), held.peak(**sizes)
        assert found == room if every_loop_runs(term, count) or not hides(term) else found <= room, level


@settings(max_examples=80, deadline=None)
@given(nested_labels())
def test_counts_equal_the_formulas_of_every_level(case):
    agree(case.term, case.sizes, nested(case.term, **case.sizes).count())


@settings(max_examples=25, deadline=None)
@given(nested_labels(deepest=3))
def test_three_levels_too(case):
    agree(case.term, case.sizes, nested(case.term, **case.sizes).count())


@settings(max_examples=25, deadline=None)
@given(nested_labels())
def test_a_run_on_arrays_counts_and_computes_the_same(case):
    arrays, program = arrays_for(case.term, case.sizes), nested(case.term, **case.sizes)
    agree(case.term, case.sizes, program.count(**arrays))
    whole, tiled = ops.evaluate(case.term, arrays), program.run(**arrays)
    for name in case.term.outputs:
        expected, found = (got[name] if isinstance(got, dict) else got for got in (whole, tiled))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def flash(**tiles):
    q, x, d = dk.axes("q x d")
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)) * d.size**-0.5
    O = dk.einsum("q x, x d -> q d", dk.softmax(S, over=x, name="P"), dk.array("V", x, d))
    term = dk.Diagram(O, name="attention").fuse().group(q="g_q").stream(x="s_x")
    return term.group(level=2, q="w_q").stream(level=2, x="u_x").nested(**tiles)


def test_pseudocode_shows_the_sub_loops(golden):
    golden("program-two-levels.txt", flash().pseudocode())


def test_masks_skip_chunks_at_every_level():
    """The inner tiles of a causal program skip what their own rows do not see; nothing is computed twice."""
    q, x, d = dk.axes("q x d")
    S = dk.masked(dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)), dk.causal(q, x))
    O = dk.einsum("q x, x d -> q d", dk.softmax(S, over=x, name="P"), dk.array("V", x, d))
    term = dk.Diagram(O, name="causal").fuse().group(q="g_q").stream(x="s_x")
    nested_term = term.group(level=2, q="w_q").stream(level=2, x="u_x")
    sizes = {"q": 23, "x": 23, "d": 3, "g_q": 9, "s_x": 7, "w_q": 4, "u_x": 2}
    arrays = arrays_for(nested_term, sizes)
    program = nested(nested_term, **sizes)
    np.testing.assert_allclose(program.run(**arrays), ops.evaluate(term, arrays), rtol=1e-9, atol=1e-12)
    skipped, whole = program.count(), flash(**sizes).count()
    assert program.count(**arrays).transfers == skipped.transfers
    for level in (1, 2):
        key = "K", level - 1, level, "input"
        assert skipped.transfers[key] < whole.transfers[key]


def test_a_tile_that_nobody_writes_shows():
    """Slow memory and every level begin as NaN: a store that is left out cannot go unseen."""
    program = flash(q=5, x=4, d=2, g_q=3, s_x=2, w_q=2, u_x=1)
    arrays = arrays_for(program.term, {"q": 5, "x": 4, "d": 2})
    assert np.isfinite(program.run(**arrays)).all()
    (nest,) = program.nests
    inner = nest[1]
    lost = tuple(s for s in inner.groups[0].body if s.kind != "store")
    broken = replace(nest[1], body=(replace(inner.body[0], body=lost),))
    assert np.isnan(replace(program, nests=((nest[0], broken),)).run(**arrays)).all()


def test_an_empty_axis_moves_nothing():
    count = flash(q=0, x=4, d=2, g_q=3, s_x=2, w_q=2, u_x=1).count()
    assert count.peaks == {1: 0, 2: 0}
    assert set(count.transfers.values()) == {0} and len(count.transfers) == 8


def test_missing_and_unknown_sizes_are_refused():
    with pytest.raises(InputError, match="needs a number for.*u_x"):
        flash(q=5, x=4, d=2, g_q=3, s_x=2, w_q=2).count()
    with pytest.raises(InputError, match="no open size or tile 't_q'.*it takes: q, d, x, g_q, s_x, w_q, u_x"):
        flash(t_q=1)


def test_a_count_shows_itself():
    shown = repr(flash(q=5, x=4, d=2, g_q=3, s_x=2, w_q=2, u_x=1).count())
    assert shown.splitlines()[0].split() == ["array", "kind", "level", "elements"]
    assert "1 → 2" in shown and "peak" in shown
