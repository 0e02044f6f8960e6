"""Two levels and more, run tile inside tile: what is counted is what the formulas of every level say."""

import numpy as np
from hypothesis import given, settings
from strategies import arrays_for, nested_labels

from diagkit import cost, ops
from diagkit.program import nested


def agree(term, sizes, count):
    """Counts of all levels against formulas of all levels."""
    moved = cost.level_transfers(term).at(**sizes)
    assert count.transfers == {tuple(key): amount for key, amount in moved.items()}
    assert count.flops == cost.level_work(term).flop(**sizes)
    for level, held in cost.level_memory(term).items():
        assert count.peaks.get(level, 0) == held.peak(**sizes), level


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
