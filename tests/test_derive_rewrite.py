"""Opening blocks and hoisting: other columns, the same numbers, nothing moved that was not moved before."""

import numpy as np
import pytest
from derive_cases import FORMS, arrays_for, attention, e, matmul, q, rms_linear, softmax_alone, spherical, term, x

import diagkit as dk
from diagkit import ops
from diagkit.derive import fuse, group, hoist, open_blocks, stream
from diagkit.term import Block, StreamError, TermError


def columns(made):
    return [box.name for box in made.boxes]


def same_numbers(made, plain, length, seed=0):
    _, arrays = arrays_for(plain, "x", length, np.random.default_rng(seed))
    found, whole = ops.reference(made, arrays), ops.reference(plain, arrays)
    for name in plain.outputs:
        one, other = (v[name] if isinstance(v, dict) else v for v in (found, whole))
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rewrite", [open_blocks, hoist])
@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_are_preserved(name, rewrite):
    plain = FORMS[name][0]()
    for length in (5, 1, 0) if name != "entropy" else (5, 1):
        same_numbers(rewrite(plain), plain, length)
        same_numbers(rewrite(fuse(plain)), plain, length)


def test_one_layer_is_opened():
    plain = FORMS["attention block"][0]()
    once = open_blocks(plain)
    assert columns(once)[-2:] == ["O.softmax", "O"] and isinstance(once.box("O.softmax"), Block)
    twice = open_blocks(once)
    assert not any(isinstance(box, Block) for box in twice.boxes) and open_blocks(twice) is twice
    assert twice.flat == plain.flat


def test_a_named_block_is_opened():
    opened = open_blocks(attention(), "P")
    assert columns(opened) == ["QK", "S", "P.max", "P.exp", "P.sum", "P", "O"]
    assert opened.steps[-1].call == ("open", (("*", ("P",)),)) and opened.steps[-1].kind == "rewrite"
    with pytest.raises(TermError, match="'S' is no block; the blocks are: P") as refused:
        open_blocks(attention(), "S")
    assert refused.value.box == "S"


def test_wires_inside_stay_in_fast_memory():
    opened = open_blocks(attention())
    assert dict(opened.levels) == dict.fromkeys(["P.max", "P.exp", "P.sum"], 1)
    assert [len(region.boxes) for region in opened.regions] == [1, 1, 4, 1]
    before = [(region.loads, region.stores) for region in attention().regions]
    assert [(region.loads, region.stores) for region in opened.regions] == before


def test_labels_and_streams_survive_opening():
    flash = stream(group(fuse(attention()), q="g_q"), x="s_x")
    opened = open_blocks(flash)
    assert opened.labels == flash.labels and opened.form(opened.regions[0]).step == flash.forms[0].step
    assert stream(group(fuse(open_blocks(attention())), q="g_q"), x="s_x") == opened


def test_division_waits_for_the_end():
    made = hoist(fuse(attention()))
    assert columns(made) == ["QK", "S", "P.max", "P.exp", "P.sum", "O.acc", "O"]
    assert made.box("O.acc").inputs == ("P.exp", "V") and made.box("O").inputs == ("O.acc", "P.sum")
    assert str(made.box("O").expr) == "a0 / a1"
    assert len(made.regions) == 1 and made.regions[0].stores == ("O",)
    (pair,) = made.steps[-1].identity
    assert [str(side) for side in pair] == ["O", "O.acc / P.sum"]
    assert hoist(made) is made


def test_factors_are_found_through_a_chain_of_maps():
    made = hoist(fuse(rms_linear()))
    assert columns(made) == ["N.square", "N.sum", "Y.summand", "Y.acc", "Y"]
    assert made.box("Y.summand").inputs == ("G", "X") or made.box("Y.summand").inputs == ("X", "G")


def test_terms_leave_a_maximum():
    S, shift = dk.array("S", q, x), dk.array("c", q)
    plain = term(dk.amax(S + shift, x, name="M"))
    made = hoist(plain)
    assert columns(made) == ["M.acc", "M"] and made.box("M.acc").inputs == ("S",)
    same_numbers(made, plain, 4)
    same_numbers(made, plain, 0)


def test_what_is_an_output_is_kept():
    P = dk.softmax(dk.array("S", q, x), over=x)
    plain = term(dk.einsum("q x, x e -> q e", P, dk.array("V", x, e), name="O"), P, P=P)
    made = hoist(plain)
    assert "P" in columns(made) and made.outputs == ("O", "P")
    same_numbers(made, plain, 4)


def test_nothing_to_hoist_gives_the_value_itself():
    for made in (matmul(), softmax_alone(), fuse(softmax_alone())):
        assert hoist(made) is made
    exponent = term(dk.total(dk.exp(dk.array("S", q, x) - dk.array("m", q)), x))
    assert hoist(exponent) is exponent


def test_named_sums_only():
    assert hoist(attention(), "P.sum") == attention()
    assert columns(hoist(spherical(), "O"))[-2:] == ["O.acc", "O"]
    with pytest.raises(TermError, match="no box 'Z'"):
        hoist(attention(), "Z")


def test_a_streamed_region_is_left_alone():
    with pytest.raises(StreamError, match="runs in a stream over 'x'; hoist first, then stream") as refused:
        hoist(stream(fuse(attention()), x=None))
    assert refused.value.axis == "x" and refused.value.box in ("O", "P")
