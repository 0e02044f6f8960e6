"""Fusing: which wires may stay on chip, who is named when one may not, and that nothing else changes."""

import numpy as np
import pytest
from derive_cases import attention, diamond, matmul, q, term, x

import diagkit as dk
from diagkit import ops
from diagkit.derive import fuse, group
from diagkit.term import FuseError, TermError


def test_everything_stays_on_chip():
    fused = fuse(attention())
    assert [region.boxes for region in fused.regions] == [("QK", "S", "P", "O")]
    assert fused.levels == (("P", 1), ("QK", 1), ("S", 1))
    assert fused.steps[-1].rule == "fuse" and fused.steps[-1].kind == "relabel"
    assert fused.steps[-1].reason == "QK, S and P stay in fast memory"


def test_the_columns_are_identical_and_the_numbers_too():
    plain = attention()
    rng = np.random.default_rng(0)
    arrays = {n: rng.normal(size=s) for n, s in (("Q", (3, 4)), ("K", (5, 4)), ("V", (5, 2)))}
    fused = fuse(plain)
    assert fused.boxes == plain.boxes and fused.erase() == plain
    np.testing.assert_array_equal(ops.reference(fused, arrays), ops.reference(plain, arrays))


def test_nothing_to_fuse_gives_the_value_itself():
    assert fuse(matmul()) is not None
    lone = matmul()
    assert fuse(lone) is lone
    fused = fuse(attention())
    assert fuse(fused) is fused and fuse(fused, "P", "O") is fused


def test_named_boxes_fuse_the_wires_between_them():
    part = fuse(attention(), "P", "O")
    assert part.levels == (("P", 1),)
    assert ("P", "O") in [region.boxes for region in part.regions]


def test_a_consumer_outside_is_named():
    with pytest.raises(FuseError, match="'C' reads it and is outside") as refused:
        fuse(diamond(), "A", "B")
    assert refused.value.box == "C" and "fuse 'C' too" in refused.value.remedy and "'A'" in refused.value.reason


def test_a_wire_that_is_also_an_output_is_stored_and_used_inside():
    S = dk.exp(dk.array("X", q, x))
    P = dk.softmax(S, over=x)
    fused = fuse(term(S, P, S=S, P=P))
    (region,) = fused.regions
    assert region.stores == ("S", "P") and region.loads == ("X",)


def test_a_path_that_leaves_and_comes_back_is_refused():
    A = dk.exp(dk.array("X", q, x))
    T = A + 1
    B = T * 2
    C = A * B
    detour = term(C, A=A, T=T, B=B, C=C)
    with pytest.raises(FuseError, match="leaves the region of 'A' through 'B' and comes back") as refused:
        fuse(detour, "A", "T", "C")
    assert refused.value.box == "B" and "leave 'A' in slow memory" in refused.value.remedy
    assert len(fuse(detour).regions) == 1


def test_two_regions_that_wait_for_each_other_are_refused():
    X = dk.array("X", q, x)
    A, U = X * 2, dk.exp(X)
    T, W = A + 1, U + 3
    B = T * U
    C = A * W
    both = fuse(term(B, C, A=A, U=U, T=T, W=W, B=B, C=C), "A", "T", "C")
    with pytest.raises(FuseError, match="leaves the region of 'U' through 'A' and comes back") as refused:
        fuse(both, "U", "W", "B")
    assert refused.value.box == "A"


def test_unknown_boxes_list_the_known_ones():
    with pytest.raises(TermError, match="its boxes are: QK, S, P, O"):
        fuse(attention(), "nobody")


def test_a_group_must_stay_lawful():
    X = dk.array("X", q)
    A = dk.exp(X)
    B = A * dk.array("Y", q, x)
    grouped = group(term(A, B, A=A, B=B), x=None)
    with pytest.raises(FuseError, match="'A' lacks it") as refused:
        fuse(grouped)
    assert refused.value.axis == "x" and refused.value.box == "A" and "ungroup" in refused.value.remedy


def test_positions_are_never_levelled():
    S = dk.masked(dk.array("S", q, x), dk.causal(q, x))
    fused = fuse(term(dk.softmax(S, over=x), masked=S))
    assert [wire for wire, _ in fused.levels] == ["masked"]
