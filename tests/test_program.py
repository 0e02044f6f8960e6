"""Programs run as the diagrams they came from, whatever the tiles."""

import numpy as np
from hypothesis import given, settings
from strategies import arrays_for, labelled

from diagkit import ops
from diagkit.program import lower


def outputs_of(term, result):
    """Outputs by name, also where there is only one."""
    return result if len(term.outputs) > 1 else {term.outputs[0]: result}


@settings(max_examples=300, deadline=None)
@given(labelled())
def test_a_program_computes_what_the_diagram_means(case):
    arrays = arrays_for(case.term, case.sizes)
    made = outputs_of(case.term, lower(case.term, **case.sizes).run(**arrays))
    wanted = outputs_of(case.term, ops.reference(case.term, arrays))
    for name, value in wanted.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-10, atol=1e-10)


@settings(max_examples=200, deadline=None)
@given(labelled())
def test_the_walk_counts_what_the_run_touches(case):
    program = lower(case.term, **case.sizes)
    assert program.count() == program.count(**arrays_for(case.term, case.sizes))
