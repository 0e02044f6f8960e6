"""What a program moves and holds, counted while its loops run, is what the formulas say: to the element."""

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Labelled, arrays_for, labelled, masked_streams

from diagkit import cost
from diagkit.program import lower


def agree(case):
    """Counts against formulas, elements and bytes. Formulas for memory are about loops that run."""
    count = lower(case.term, **case.sizes).count()
    moved = cost.transfers(case.term)
    assert count.transfers == moved.at(**case.sizes)
    assert count.bytes() == moved.bytes().at(**case.sizes)
    assert count.flops == cost.work(case.term).flop(**case.sizes)
    held = cost.memory(case.term)
    peaks = held.peak(**case.sizes), held.bytes().peak(**case.sizes)
    if every_loop_runs(case.term, count) or not hides(case.term):
        assert (count.peak, count.peak_bytes) == peaks
    else:
        assert count.peak <= peaks[0] and count.peak_bytes <= peaks[1]


def hides(term):
    """Whether anything is masked."""
    return any(wire.dtype == "bool" for wire in term.wires.values())


def every_loop_runs(term, count):
    """Whether each streamed array was loaded at all: a mask may hide every chunk of it."""
    streamed = {form.axis for form in term.forms}
    chunks = [w.name for w in term.wires.values() if streamed & {axis.name for axis in w.axes}]
    return all(moved for (array, *_), moved in count.transfers.items() if array in chunks)


@settings(max_examples=1000, deadline=None)
@given(labelled())
def test_counts_equal_formulas(case):
    agree(case)


@settings(max_examples=200, deadline=None)
@given(masked_streams())
def test_counts_equal_formulas_where_masks_skip_chunks(case):
    agree(case)


@settings(max_examples=100, deadline=None)
@given(labelled() | masked_streams(), st.data())
def test_counts_equal_formulas_where_an_axis_is_empty(case, data):
    empty = data.draw(st.sampled_from(list(case.term.axes)))
    agree(Labelled(case.term, case.sizes | {empty: 0}))


@settings(max_examples=100, deadline=None)
@given(labelled())
def test_counts_of_a_run_on_arrays_equal_formulas(case):
    count = lower(case.term, **case.sizes).count(**arrays_for(case.term, case.sizes))
    assert count.transfers == cost.transfers(case.term).at(**case.sizes)
