"""Positions in a picture: written out where they are read, one box of positions for all that read them."""

from __future__ import annotations

import diagkit as dk
from diagkit import draw
from diagkit.draw.equations import equations
from diagkit.draw.loop import unfold


def alibi() -> dk.Diagram:
    """Causal attention with a bias that grows with the distance: two readers of the positions of each axis."""
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.einsum("q d, x d -> q x", Q, K) - (dk.index(q) - dk.index(x)) / 4
    P = dk.softmax(dk.masked(S, dk.causal(q, x), name="M"), over=x)
    return dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O"), name="alibi")


def said(term: dk.Diagram) -> list[str]:
    return [line.text for line in draw.scene(term).words]


def test_readers_of_the_same_positions_share_one_box() -> None:
    assert [box.name for box in alibi().boxes if box.kind == "index"] == ["#q", "#x"]


def test_positions_with_names_of_their_own_and_results_stay() -> None:
    x = dk.axis("x")
    both = dk.Diagram(dk.index(x) + dk.index(x, name="i"), name="both")
    assert [box.name for box in both.boxes if box.kind == "index"] == ["#x", "i"]
    result = dk.Diagram(dk.index(x) + 1, dk.index(x), name="result")
    assert len(set(result.outputs)) == 2


def test_a_loop_writes_positions_out() -> None:
    loop = unfold(alibi().fuse().group(q="g_q").stream(x="s_x"), 0)
    assert loop is not None
    lines = ["".join(run.text for run in runs) for _, runs in equations(loop.step, {})]
    assert any(line.endswith("+ x/4 − q/4") for line in lines) and "M = S where x ≤ q" in lines
    assert not any("#" in line for line in lines)


def test_numbers_made_of_positions_are_a_formula_and_conditions_a_mask() -> None:
    q, x = dk.axes("q x")
    numbers, mask = dk.Diagram(dk.index(x) * 3, name="steps"), dk.Diagram(dk.causal(q, x), name="mask")
    shapes = [{mark.role for mark in draw.scene(term).marks} for term in (numbers, mask)]
    assert "mask-hidden" not in shapes[0] and "mask-hidden" in shapes[1]
    assert any("3" in line for line in said(numbers))
