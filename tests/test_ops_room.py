"""A run that cannot fit is refused before anything is allocated, with the size."""

import numpy as np
import pytest

import diagkit as dk
from diagkit.ops import room

q, x, d = dk.axes("q x d")
S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
NAIVE = dk.einsum("q x, x d -> q d", dk.softmax(S, over=x), dk.array("V", x, d))
LONG = dict.fromkeys("QKV", np.broadcast_to(np.float32(0), (1 << 24, 4)))


@pytest.mark.parametrize("run", ["__call__", "reference"])
def test_scores_larger_than_memory_are_refused_with_their_size(run):
    with pytest.raises(dk.InputError, match=r"q = 16,777,216 x x = 16,777,216\) takes 1,048,576.0 GiB|2,097,152.0 GiB"):
        getattr(dk.Diagram(NAIVE), run)(**LONG)


def test_what_fits_runs_and_a_system_that_does_not_tell_refuses_nothing(monkeypatch):
    few = dict.fromkeys("QKV", np.ones((3, 2)))
    monkeypatch.setattr(room, "memory_bytes", lambda: 71)
    with pytest.raises(dk.InputError, match="this machine has"):
        dk.Diagram(NAIVE)(**few)
    for told in (72, 0):
        monkeypatch.setattr(room, "memory_bytes", lambda told=told: told)
        np.testing.assert_allclose(dk.Diagram(NAIVE)(**few), 1)
