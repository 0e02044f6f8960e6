"""What a program moves and holds, counted while its loops run, is what the formulas say: to the element."""

from hypothesis import given, settings
from strategies import arrays_for, labelled

from diagkit import cost
from diagkit.program import lower


@settings(max_examples=1000, deadline=None)
@given(labelled())
def test_counts_equal_formulas(case):
    count = lower(case.term, **case.sizes).count()
    moved = cost.transfers(case.term)
    assert count.transfers == moved.at(**case.sizes)
    assert count.bytes() == moved.bytes().at(**case.sizes)
    held = cost.memory(case.term)
    assert count.peak == held.peak(**case.sizes)
    assert count.peak_bytes == held.bytes().peak(**case.sizes)


@settings(max_examples=100, deadline=None)
@given(labelled())
def test_counts_of_a_run_on_arrays_equal_formulas(case):
    count = lower(case.term, **case.sizes).count(**arrays_for(case.term, case.sizes))
    assert count.transfers == cost.transfers(case.term).at(**case.sizes)
