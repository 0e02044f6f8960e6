"""A thousand random diagrams: their numbers are those of plain loops, labels erase, text rebuilds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Labelled, arrays_for, chains, diagrams, labelled

import diagkit as dk
from diagkit import ops
from diagkit.term import Term

SMALL = st.fixed_dictionaries({name: st.sampled_from([1, 2, 3]) for name in "abcde"})


@settings(max_examples=1000)
@given(st.one_of(diagrams(), chains()), SMALL)
def test_evaluation_equals_plain_loops(term: Term, sizes: dict[str, int]) -> None:
    arrays = {name: np.asarray(value, np.float64) for name, value in arrays_for(term, sizes).items()}
    made = ops.evaluate(term, arrays)
    made = made if isinstance(made, dict) else {term.outputs[0]: made}
    for name, wanted in oracle.run(term, arrays, sizes).items():
        for at, value in wanted.items():
            assert made[name][at] == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True)


@settings(max_examples=1000)
@given(labelled())
def test_labels_erase_to_the_identical_columns(case: Labelled) -> None:
    plain = case.term.erase()
    assert plain.boxes == case.term.boxes
    assert plain == Term(case.term.inputs, case.term.boxes, case.term.outputs, case.term.name)


@settings(max_examples=1000)
@given(labelled())
def test_repr_evaluates_back(case: Labelled) -> None:
    rebuilt: Any = eval(repr(case.term), vars(dk))
    assert rebuilt == case.term
    assert hash(rebuilt) == hash(case.term)


def test_the_oracle_can_disagree() -> None:
    """Negative control: one changed coefficient is seen."""
    x = dk.axis("x")
    arrays = {"X": np.ones(3)}
    wrong = dk.Diagram(dk.array("X", x) * 1.0000001, name="d")
    (wanted,) = oracle.run(dk.Diagram(dk.array("X", x) * 1.0, name="d"), arrays, {"x": 3}).values()
    assert wrong(**arrays)[0] != pytest.approx(wanted[(0,)], rel=1e-9)
