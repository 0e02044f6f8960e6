"""Steps in any order: what is lawful is the same diagram in numbers and in cost, what is not says what to do first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

import diagkit as dk
from diagkit.term import DiagkitError

q, x, d = dk.axes("q x d")
Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
P = dk.softmax(dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5, over=x, name="P")
attention = dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O"), name="attention")
RANDOM = np.random.default_rng(0)
ARRAYS = {name: RANDOM.normal(size=(n, 4)) for name, n in {"Q": 5, "K": 9, "V": 9}.items()}

STEPS: dict[str, Callable[[dk.Diagram], dk.Diagram]] = {
    "fuse": lambda term: term.fuse(),
    "group": lambda term: term.group(q="g_q"),
    "stream": lambda term: term.stream(x="s_x"),
    "hoist": lambda term: term.hoist("O"),
    "smooth": lambda term: term.smooth(K="x"),
    "cast": lambda term: term.cast(P="fp16"),
    "split": lambda term: term.split(x=2),
}


def outcome(order: tuple[str, ...]) -> dk.Diagram | DiagkitError:
    term = attention
    try:
        for step in order:
            term = STEPS[step](term)
    except DiagkitError as refused:
        return refused
    return term


@pytest.mark.parametrize("beside", [("hoist",), ("smooth",), ("cast",), ("hoist", "smooth"), ("split",)], ids="+".join)
def test_lawful_orders_agree(beside: tuple[str, ...]) -> None:
    made = {order: outcome(order) for order in permutations(("fuse", "group", "stream", *beside))}
    lawful = {order: term for order, term in made.items() if isinstance(term, dk.Diagram)}
    assert len(lawful) >= 2
    assert len({term.transfers().total() for term in lawful.values()}) == 1
    for order, term in lawful.items():
        tiles = {str(label.tile): 2 + len(str(label.tile)) for label in term.labels if label.tile.is_Symbol}
        near = 1e-3 if "cast" in beside else 1e-12  # a chunk rounds beside the maximum that is known by then
        found = term.lower(**tiles).run(**ARRAYS)
        np.testing.assert_allclose(found, term.reference(**ARRAYS), rtol=0, atol=near, err_msg=str(order))
    for refused in (one for one in made.values() if isinstance(one, DiagkitError)):
        assert "; " in str(refused)


def test_the_wires_of_an_opened_block_can_be_fused_still() -> None:
    (region,) = attention.hoist("O").fuse().regions
    assert region.stores == ("O",)
