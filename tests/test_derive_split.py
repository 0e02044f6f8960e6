"""Splitting a streamed axis into parts: two kernels, the same numbers for any length."""

import numpy as np
import pytest
import sympy
import view_cases
from derive_cases import FORMS, arrays_for, attention, e, matmul, q, term, variance, x

import diagkit as dk
from diagkit import ops
from diagkit.derive import fuse, group, split, stream
from diagkit.program import lower
from diagkit.term import StreamError, size


def same_numbers(made, plain, length):
    _, arrays = arrays_for(plain, "x", length, np.random.default_rng(length))
    found, whole = ops.reference(made, arrays), ops.reference(plain, arrays)
    for name in plain.outputs:
        one, other = (v[name] if isinstance(v, dict) else v for v in (found, whole))
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_are_preserved_for_any_length(name):
    made, _, options = FORMS[name]
    plain = made()
    parted = split(stream(fuse(plain), x="s_x", **options), x=3)
    for length in (0, 1, 2, 7, 9) if name != "entropy" else (1, 2, 7, 9):
        same_numbers(parted, plain, length)


def kernels(made):
    return [(region.loads, region.stores) for region in made.regions]


def test_attention_becomes_partials_and_a_merge():
    parted = split(stream(group(fuse(attention()), q="g_q"), x="s_x"), x=4)
    partials, merge = kernels(parted)[-2:]
    states = ("P.sum.part.log", "O.acc.part.mean")
    assert partials == (("Q", "K.parts", "V.parts"), states) and merge == (states, ("O",))
    assert parted.outputs == ("O",) and parted.forms == () and [label.axis for label in parted.labels] == ["q"]
    assert parted.steps[-1].call == ("split", (("x", 4),)) and parted.steps[-1].kind == "rewrite"
    assert [parted.axes[name].length for name in ("x_part", "x_in")] == [4, x.blocks(4).length]


def test_the_first_kernel_streams_again():
    parted = stream(split(fuse(attention()), x=4), x_in="s_x")
    assert [state.name for state in parted.forms[0].state] == ["P.max.part", "P.sum.part", "O.acc.part"]
    assert [box.name for box in parted.forms[0].tail] == ["P.sum.part.log", "O.acc.part.mean"]
    assert [axis.name for axis in parted.forms[0].state[0].axes] == ["q", "x_part"]


def test_split_k():
    parted = split(matmul(), x=2)
    assert [box.name for box in parted.boxes] == ["A.parts", "B.parts", "C.part", "C"]
    same_numbers(parted, matmul(), 5)


def test_exact_parts_need_no_mask():
    n = dk.axis("n", 12)
    plain = term(dk.amax(dk.exp(dk.array("X", q, n)), n, name="M"))
    assert not any("valid" in box.name for box in split(plain, n=3).boxes)
    assert any("valid" in box.name for box in split(plain, n=5).boxes)
    assert split(plain, n=5).axes["n_in"].length == 3
    X = np.random.default_rng(0).normal(size=(4, 12))
    for parts in (1, 3, 5, 12, 13):
        np.testing.assert_array_equal(ops.reference(split(plain, n=parts), {"X": X}), np.exp(X).max(axis=1))


def test_masks_see_positions_along_the_whole_axis():
    plain = FORMS["causal mask"][0]()
    parted = split(fuse(plain), x=3)
    for length in (3, 4, 8):
        same_numbers(parted, plain, length)


def test_dead_parts():
    P = dk.softmax(dk.array("S", q, x), over=x)
    plain = term(dk.einsum("q x, x e -> q e", P, dk.array("V", x, e), name="O"), P=P)
    S = np.array([[-np.inf] * 5, [-np.inf, -np.inf, -1e4, 1e4, 0]])
    arrays = {"S": S, "V": np.arange(1.0, 6)[:, None]}
    for parts in (1, 2, 3, 5, 7):
        np.testing.assert_array_equal(ops.reference(split(fuse(plain), x=parts), arrays), [[0.0], [4.0]])


def test_a_large_mean_survives_the_merge():
    X = 1e8 + np.arange(9.0)[None]
    (found,) = ops.reference(split(variance(), x=4), {"X": X})
    assert abs(found - np.var(np.arange(9))) < 1e-10


def test_other_regions_are_as_they_were():
    B = dk.exp(dk.array("X", q, x))
    C = dk.total(B, x, name="C")
    plain = term(B, C, B=B)
    parted = split(plain, x=2, region="C")
    assert parted.outputs == ("B", "C") and parted.box("B") == plain.box("B")
    same_numbers(parted, plain, 5)


def test_a_stored_wire_along_the_axis_is_refused():
    B = dk.exp(dk.array("X", q, x))
    plain = fuse(term(B, dk.total(B, x, name="C"), B=B))
    with pytest.raises(StreamError, match="'B' carries x and is stored") as refused:
        split(plain, x=2)
    assert refused.value.box == "B" and "kernel of its own" in refused.value.remedy


def test_parts_read_their_keys_where_they_lie():
    parted = split(fuse(attention()), x=4)
    assert {parted.array(name) for name in ("K.parts", "V.parts")} == {"K", "V"}
    assert not {"K.parts", "V.parts"} & {name for region in parted.regions for name in region.boxes}


def test_split_decoding_moves_what_the_table_says():
    """H = 2 x h_kv d + h d (1 + S) + 2 S h (d + 1) for one query, its heads h = k r in groups."""
    k, r, d = map(size, ("k", "r", "d"))
    for parts in (1, 2, 4, 7):
        moved = view_cases.split_attention(parts).transfers()
        h, S = k * r, parts
        wanted = 2 * x.size * k * d + h * d * (1 + S) + 2 * S * h * (d + 1)
        assert sympy.expand(moved.total().subs(size("q"), 1) - wanted) == 0
        at = {"k": 2, "r": 3, "d": 5, "x": 11}
        count = lower(view_cases.split_attention(parts), **at, q=1, s_x=2).count()
        assert count.total() == wanted.subs({size(name): number for name, number in at.items()})


def test_partial_states_that_something_can_tell_apart_are_stored_whole():
    S = dk.array("S", q, x)
    top = dk.amax(S, x, name="m")
    z = dk.total(dk.exp(S - top), x, name="z")
    both = split(fuse(term(top, z)), x=3)
    assert kernels(both)[-1][0] == ("m.part.stored", "z.part")
    alone = split(fuse(term(dk.logsumexp(S, over=x, name="L"))), x=3)
    assert kernels(alone)[-1][0] == ("L.sum.part.log",)
    s, t = (dk.total(dk.exp(S - top) * dk.array(f"w_{name}", x), x, name=name) for name in "st")
    signed = s / t
    assert kernels(split(fuse(term(signed)), x=3))[-1][0] == ("m.part.stored", "s.part", "t.part")


def test_each_part_is_a_group_and_the_merge_comes_second():
    made = view_cases.split_attention(4)
    partials, merge = made.regions
    assert set(made.grouped(partials)) == {"k", "x_part"} and set(made.grouped(merge)) == {"k"}
    assert merge.loads == partials.stores
