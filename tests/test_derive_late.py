"""Roundings behind a division that waits: a stream rounds before it, which is a rewrite that its reader sees."""

import numpy as np
import pytest

import diagkit as dk

q, x, d = dk.axes("q x d")
Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
SIZES = {"q": 2, "x": 4096, "d": 4}


def attention(**formats: str) -> dk.Diagram:
    P = dk.softmax(dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5, over=x, name="P")
    return dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O"), name="attention").cast(**formats)


def flash(diagram: dk.Diagram, **how: bool) -> dk.Diagram:
    return diagram.fuse().group(q="g_q").stream(x="s_x", **how)


def equal_keys() -> dict[str, np.ndarray]:
    return {"Q": np.zeros((2, 4)), "K": np.zeros((4096, 4)), "V": np.ones((4096, 4))}


def test_a_stream_and_its_diagram_round_the_same_numbers():
    whole = attention(P="fp8e4m3")
    streamed = flash(whole)
    assert (whole.reference(**equal_keys()) == 0).all()  # 1 / 4096 rounds to 0
    assert (streamed.reference(**equal_keys()) == 1).all()
    assert (streamed.lower(g_q=2, s_x=32).run(**equal_keys()) == 1).all()
    assert (streamed.split(x=4).lower(g_q=2).run(**equal_keys()) == 1).all()


def test_the_rewrite_is_a_step_that_says_what_is_rounded():
    steps = flash(attention(P="fp8e4m3")).steps
    assert [step.rule for step in steps] == ["cast", "fuse", "group", "hoist", "stream"]
    assert "this changes rounding: 'P.fp8e4m3' rounds P.exp" in steps[3].reason
    assert steps[3].kind == "rewrite" and steps[4].kind == "relabel"


def test_ranges_speak_of_what_runs():
    whole = attention(P="fp8e4m3")
    assert [row.wire for row in whole.ranges(**SIZES).flagged] == ["P.fp8e4m3"]
    assert not flash(whole).ranges(**SIZES).flagged
    steep = flash(whole.fuse()).ranges({"Q": 0.0, "K": 0.0}, **SIZES)["P.fp8e4m3"]
    assert steep.bound.interval == (1.0, 1.0)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8e4m3", "fp8e5m2"])
@pytest.mark.parametrize("scale", [None, 448])
def test_by_hand_or_by_the_stream_is_the_same(dtype, scale):
    whole = attention() if scale is None else attention().scale(P=scale)
    whole = whole.cast(P=dtype)
    grouped = whole.fuse().group(q="g_q")
    by_hand = grouped.hoist(*(["O"] if scale is None else ["O.acc"]), past=f"P.{dtype}")
    assert by_hand.stream(x="s_x") == grouped.stream(x="s_x")
    random = np.random.default_rng(1)
    arrays = {name: random.normal(size=(3 if name == "Q" else 21, 4)) for name in "QKV"}
    run = by_hand.stream(x="s_x").lower(g_q=2, s_x=21).run(**arrays)
    np.testing.assert_allclose(run, by_hand.reference(**arrays), rtol=1e-12)  # one chunk: to the last digit


@pytest.mark.parametrize("hoist", [True, False])
def test_what_is_rounded_by_chunks_errs_as_its_format_does(hoist):
    whole = attention(P="bf16")
    random = np.random.default_rng(2)
    arrays = {name: random.normal(size=(3 if name == "Q" else 40, 4)) for name in "QKV"}
    run = flash(whole, hoist=hoist).lower(g_q=2, s_x=8).run(**arrays)
    np.testing.assert_allclose(run, attention().reference(**arrays), atol=2**-7)


def test_past_names_a_rounding():
    with pytest.raises(dk.TermError, match="has no rounding 'P' to pull past; name one of: P.fp16"):
        attention(P="fp16").hoist("O", past="P")
    with pytest.raises(dk.TermError, match="round something first"):
        attention().hoist("O", past="P")


def test_without_past_no_rounding_is_passed():
    whole = attention(P="fp16")
    assert whole.hoist() is whole


def test_another_reader_keeps_the_rounding_it_had():
    P = dk.cast(dk.softmax(dk.array("S", q, x), over=x, name="P"), "fp8e4m3", name="half")
    both = dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O"), P * 1, name="both")
    moved = both.hoist("O", past="half")
    assert {"half", "half.late"} <= {box.name for box in moved.boxes}
    S = np.zeros((1, 2048))
    whole, late = both.reference(S=S, V=np.ones((2048, 4))), moved.reference(S=S, V=np.ones((2048, 4)))
    assert (whole["O"] == 0).all() and (late["O"] == 1).all()
    other = next(name for name in both.outputs if name != "O")
    assert (whole[other] == late[other]).all()
