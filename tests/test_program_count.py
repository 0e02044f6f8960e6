"""What a program counts, against numbers enumerated here by hand or position by position."""

import numpy as np
import oracle
import pytest
from derive_cases import attention, matmul, q, x
from hypothesis import given
from hypothesis import strategies as st
from program_cases import flash
from strategies import masks_over

import diagkit as dk
from diagkit import derive, ops
from diagkit.program import lower
from diagkit.term import Term

SIZES = {"q": 7, "x": 11, "d": 3, "e": 5}


def test_attention_on_chip_holds_query_keys_values_scores_accumulator_and_statistics():
    count = lower(flash(), **SIZES, g_q=2, s_x=4).count()
    scores, accumulator, statistics = 2 * 4, 2 * 5, 2 * 2
    assert count.peak == 2 * 3 + 4 * 3 + 4 * 5 + scores + accumulator + statistics
    assert count.peak_bytes == 4 * count.peak


def test_matmul_holds_two_chunks_and_the_accumulator():
    term = derive.stream(derive.group(matmul(), q="g_q", e="g_e"), x="s_x")
    assert lower(term, q=7, x=11, e=5, g_q=2, g_e=3, s_x=4).count().peak == 2 * 3 + 4 * (2 + 3)


def test_a_result_takes_over_the_storage_of_an_input_that_nobody_reads_again():
    X = dk.array("X", q, x)
    chain = Term(*ops.trace([dk.exp(dk.tanh(X))], {}), "chain")
    assert lower(derive.fuse(chain), q=3, x=4).count().peak == 12
    twice = Term(*ops.trace([dk.exp(X) + X], {}), "twice")
    assert lower(derive.fuse(twice), q=3, x=4).count().peak == 24


def test_storage_is_as_wide_as_the_wider_of_two_formats():
    X = dk.array("X", q, dtype="fp16")
    wide = Term(*ops.trace([dk.cast(X, "fp32")], {}), "wide")
    count = lower(wide, q=8).count()
    assert (count.peak, count.peak_bytes) == (8, 32)
    assert list(count.bytes().values()) == [16, 32]


def test_half_bytes_of_a_four_bit_format():
    Y = dk.array("X", q, dtype="fp32") * 2
    narrow = Term(*ops.trace([dk.cast(Y, "int4")], {}), "narrow")
    assert lower(derive.fuse(narrow), q=3).count().total_bytes() == 3 * 4 + 1.5


def test_everything_is_given_back():
    """The meter itself refuses a kernel that ends with live storage; here, that each buffer is freed once."""
    for kernel in lower(attention()).kernels + lower(flash()).kernels:
        freed = [wire for s in kernel.statements if s.kind == "free" for wire in s.wires]
        assert len(freed) == len(set(freed))


def test_flop_of_contractions_are_two_per_multiply_add():
    count = lower(matmul(), q=2, x=3, e=5).count()
    assert count.flops == 60


def test_big_sizes_are_counted_by_walking():
    count = lower(flash(), q=10**6, x=10**6, d=128, e=128, g_q=64, s_x=32).count()
    assert count.total() == 2 * 128 * 10**6 + 2 * 128 * 10**6 * 15625


@given(st.data(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_chunks_loaded_are_those_with_a_live_position_between_them(data, rows, cols, tile, chunk):
    """K and V, group by group, against the mask position by position."""
    mask = data.draw(masks_over(q, x))
    term = flash(mask=mask)
    moved = lower(term, q=rows, x=cols, d=1, e=1, g_q=tile, s_x=chunk).count().transfers
    plain = Term(*ops.trace([mask], {}), "mask")
    seen = _seen(plain, rows, cols)
    live, hull = 0, 0
    for start in range(0, rows, tile):
        chunks = np.array([seen[start : start + tile, at : at + chunk].any() for at in range(0, cols, chunk)])
        extents = np.array([min(chunk, cols - at) for at in range(0, cols, chunk)])
        live += int(extents[chunks].sum())
        reached = chunks.nonzero()[0]
        hull += int(extents[reached[0] : reached[-1] + 1].sum()) if reached.size else 0
    assert moved["K", 0, 1, "input"] >= live
    if len(plain.flat) == 3:  # one rule of two positions: the bounds are exact
        assert moved["K", 0, 1, "input"] == live == hull


def _seen(plain, rows, cols):
    wire = plain.wires[plain.outputs[0]]
    made = oracle.run(plain, {}, {"q": rows, "x": cols})[plain.outputs[0]]
    names = [axis.name for axis in wire.axes]
    seen = np.zeros((rows, cols), bool)
    for i, j in np.ndindex(rows, cols):
        seen[i, j] = made[tuple({"q": i, "x": j}[name] for name in names)]
    return seen


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
@pytest.mark.parametrize(("rows", "cols"), [(7, 11), (11, 7), (1, 5), (5, 1)])
def test_causal_loads_exactly_the_live_chunks(align, rows, cols):
    moved = lower(flash(mask=dk.causal(q, x, align)), q=rows, x=cols, d=1, e=1, g_q=2, s_x=3).count().transfers
    shift = 0 if align == "top-left" else cols - rows
    tops = [min(start + 2, rows) - 1 + shift for start in range(0, rows, 2)]
    chunks = [min(-(-(min(top, cols - 1) + 1) // 3) * 3, cols) if top >= 0 else 0 for top in tops]
    assert moved["V", 0, 1, "input"] == sum(chunks)


def test_causal_attention_moves_3nd_and_n2d_over_g():
    """Where chunks divide tiles and tiles the length: 3nd + n^2 d / g."""
    n, g, s, d = 64, 16, 8, 4
    assert (
        lower(flash(mask=dk.causal(q, x)), q=n, x=n, d=d, e=d, g_q=g, s_x=s).count().total()
        == 3 * n * d + n * n * d // g
    )


def test_a_window_moves_a_band():
    """Attention: about 4nd + 2nd(W - 1)/g; the first tiles have less in front of them."""
    n, g, d, width = 64, 16, 4, 9
    moved = lower(flash(mask=dk.window(q, x, width)), q=n, x=n, d=d, e=d, g_q=g, s_x=1).count().total()
    assert moved == 4 * n * d + 2 * d * (width - 1) * (n // g - 1)


def test_counts_show_themselves_as_a_table():
    count = lower(matmul(), q=2, x=3, e=5).count()
    assert str(count).splitlines() == [
        "array         kind    level  elements  bytes",
        "A             input   0 → 1         6     24",
        "B             input   0 → 1        15     60",
        "C             output  1 → 0        10     40",
        "total                              31    124",
        "peak of C     at C    1            31    124",
        "contractions  FLOP                 60",
    ]
    assert count._repr_html_().count("<tr>") == 7
