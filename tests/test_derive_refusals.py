"""What cannot be streamed: each refusal names the axis, the box, the reason and what would help."""

import pytest
from derive_cases import attention, e, h, layer_alone, q, softmax_alone, term, x

import diagkit as dk
from diagkit.derive import fuse, group, split, stream, unstream
from diagkit.term import AxisError, FuseError, StreamError, TermError, coordinate


def refused(made, **tiles):
    """The refusal of a stream along x, or as `tiles` say; the diagram is fused unless told."""
    with pytest.raises(StreamError) as found:
        stream(made, **(tiles or {"x": "s_x"}))
    return found.value


def says(error, axis, box, reason, remedy):
    assert (error.axis, error.box) == (axis, box)
    assert reason in error.reason and remedy in error.remedy
    assert str(error) == f"{error.reason}; {error.remedy}"


def scores():
    return dk.array("S", q, x)


def test_softmax_alone():
    says(
        refused(fuse(softmax_alone())), "x", "P",
        "'P' keeps x and needs the whole row: 'P.sum' is known only after the last chunk",
        "run two passes (first 'P.sum', then 'P'), or contract 'P' with something first",
    )  # fmt: skip


def test_naive_attention_names_who_to_fuse_with():
    error = refused(attention())
    says(error, "x", "P", "'P' keeps x and needs the whole row", "or fuse it with 'O'")
    assert "or stream another region (region='O')" in error.remedy


def test_layer_norm_alone():
    says(refused(fuse(layer_alone())), "x", "N", "'N' keeps x and needs the whole row: 'N.sum' is known", "two passes")


def test_softmax_of_softmax():
    P = dk.softmax(dk.softmax(scores(), over=x, name="inner"), over=x, name="P")
    plain = term(dk.einsum("q x, x e -> q e", P, dk.array("V", x, e), name="O"))
    says(
        refused(fuse(plain)), "x", "P.max",
        "'P.max' waits for 'inner.sum': each chunk of x changes what it takes the max of, and not by a shift",
        "run two passes: end a kernel at 'inner.sum', then stream the rest",
    )  # fmt: skip


@pytest.mark.parametrize(
    "function",
    [
        lambda S, mu: dk.absolute(S - mu),
        lambda S, mu: dk.select(mu > S, 1, 0),
        dk.maximum,
        lambda S, mu: dk.tanh(S - mu),
        lambda S, mu: 1 / (S - mu),
    ],
    ids=["distance", "rank", "clip", "tanh", "inverse"],
)
def test_median_like_functions(function):
    S = dk.array("X", q, x) * 1
    plain = term(dk.total(function(S, dk.mean(S, over=x, name="mu")), over=x, name="T"), S=S)
    says(refused(fuse(plain)), "x", "T", "'T' waits for 'mu.sum'", "end a kernel at 'mu.sum'")


def test_a_maximum_of_distances():
    S = dk.array("X", q, x) * 1
    plain = term(dk.amax(dk.absolute(S - dk.amax(S, x, name="top")), x, name="A"), S=S)
    says(refused(fuse(plain)), "x", "A", "'A' waits for 'top'", "two passes")


def test_mixing_other_axes_of_what_waits():
    P = dk.softmax(dk.array("S", h, q, x), over=x, name="P")
    g = dk.axis("g")
    T = dk.einsum("g h, h q x -> g q x", dk.array("W", g, h), P, name="T")
    plain = term(dk.einsum("g q x, x e -> g q e", T, dk.array("V", x, e), name="O"))
    says(
        refused(fuse(plain)),
        "x",
        "T",
        "'T' mixes h of 'P', which waits for 'P.sum' over the whole of x",
        "end the kernel before 'T'",
    )


def test_reading_other_positions():
    w = dk.axis("w", 3)
    windows = dk.view(dk.exp(scores()), {"x": coordinate("x") + coordinate("w")}, (q, x, w), name="windows")
    plain = term(dk.total(windows, over=(x, w), name="R"))
    says(refused(fuse(plain)), "x", "windows", "reads other positions of x", "leave 'windows' outside the region")


def test_a_rounding_that_would_be_lost():
    P = dk.cast(dk.softmax(scores(), over=x, name="P"), "fp16", name="half")
    plain = term(dk.total(P * dk.array("k", x), x, name="R"))
    says(refused(fuse(plain)), "x", "half", "'half' rounds what waits for 'P.sum'", "hoist=False")
    assert stream(fuse(plain), x=None, hoist=False).forms[0].method == "normalised"


def test_an_axis_that_is_only_mapped_over():
    says(refused(fuse(attention()), q=None), "q", "O", "'O' only maps over 'q'", "use group(q=...)")


def test_an_unknown_axis_lists_the_known():
    with pytest.raises(AxisError, match="no axis 'y'; its axes are: q, d, x, e"):
        stream(fuse(attention()), y=None)


def test_an_axis_that_the_named_region_lacks():
    first = dk.total(dk.array("A", q, x), x, name="first")
    second = dk.total(dk.array("B", q, e), e, name="second")
    both = term(first, second)
    says(
        refused(both, e=None, region="first"),
        "e",
        "first",
        "no box of the region of 'first' carries 'e'",
        "name another",
    )
    with pytest.raises(TermError, match="no box 'third'"):
        stream(both, e=None, region="third")


def test_a_second_stream_on_one_region():
    flash = stream(fuse(attention()), x="s_x")
    says(refused(flash, x="s_x"), "x", "O", "streamed along 'x' already: it holds one stream", "unstream 'x' first")
    says(refused(flash, d="s_d"), "d", "O", "streamed along 'x' already", "unstream 'x' first")
    assert unstream(flash) == fuse(attention()) and stream(unstream(flash, "x"), x="s_x") == flash


def test_one_axis_at_a_time():
    says(refused(fuse(attention()), x=4, q=4), "x", None, "one axis at a time, not x, q", 'stream(x="s_x")')
    with pytest.raises(StreamError, match="not none"):
        stream(fuse(attention()))


def test_one_tile_for_one_axis():
    A, B = dk.total(dk.array("X", q, x), x, name="A"), dk.amax(dk.array("Y", q, x), x, name="B")
    both = term(A, B)
    says(refused(both, x=4), "x", "A", "several regions reduce over 'x': those of 'A', 'B'", "region='A' or region='B'")
    first = stream(both, x=4, region="A")
    says(refused(first, x=8, region="B"), "x", None, "streamed already, in chunks of 4", "use the same chunk")
    assert [form.axis for form in stream(first, x=4, region="B").forms] == ["x", "x"]


@pytest.mark.parametrize(
    ("tile", "said"),
    [("d", "named like an axis"), (0, "cannot be 0"), ((6, 4), "no multiple of 4"), (1.5, "cannot be 1.5")],
)
def test_tiles_that_are_none(tile, said):
    error = refused(fuse(attention()), x=tile)
    assert said in error.reason and error.axis == "x" and "x='s_x'" in error.remedy


def test_fusing_into_a_stream_is_refused():
    with pytest.raises(FuseError, match="fuse first, then stream") as found:
        fuse(stream(attention(), x=None, region="O"), "P", "O")
    assert found.value.axis == "x" and found.value.box == "O"


def test_grouping_and_streaming_in_either_order():
    one = stream(group(fuse(attention()), q="g_q"), x="s_x")
    other = group(stream(fuse(attention()), x="s_x"), q="g_q")
    assert one == other


def test_splits_that_are_none():
    fused = fuse(attention())
    for parts, said in ((0, "cannot have 0 parts"), (True, "cannot have True parts"), ("k", "cannot have 'k' parts")):
        with pytest.raises(StreamError, match=said) as found:
            split(fused, x=parts)
        assert found.value.axis == "x" and "whole number" in found.value.remedy
    with pytest.raises(StreamError, match="one axis at a time, not none"):
        split(fused)
    with pytest.raises(StreamError, match="keeps x and needs the whole row"):
        split(fuse(softmax_alone()), x=2)
    with pytest.raises(AxisError, match="has an axis 'x_part' already"):
        split(term(dk.total(dk.array("X", x, dk.axis("x_part")), x)), x=2)
