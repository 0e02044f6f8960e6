"""A tile wider than its axis: every door takes it, as one tile that is short."""

from functools import cache

import numpy as np
import pytest

import diagkit as dk
from diagkit import derive

SIZES = {"q": 10, "x": 12, "d": 4}
WIDE, WHOLE = {"g_q": 16, "s_x": 32}, {"g_q": 10, "s_x": 12}
ENGINES = ["numba", "triton"]


@cache
def flash(known=False):
    """Attention, with the sizes among the axes or open."""
    q, x, d = (dk.axis(name, length if known else None) for name, length in SIZES.items())
    O = dk.attention(dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d), over=x, features=d, name="O")
    return dk.Diagram(O, name="attention").fuse()


def tiled():
    return flash().group(q="g_q").stream(x="s_x")


@cache
def arrays():
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal((SIZES[axis], 4)).astype(np.float32) for name, axis in zip("QKV", "qxx", strict=True)
    }


def test_amounts_are_those_of_the_whole_axis_and_memory_that_of_the_tile():
    wide, whole = ({**SIZES, **tiles} for tiles in (WIDE, WHOLE))
    moved = tiled().transfers().total()
    assert moved.subs(wide) == moved.subs(whole) == 2 * (10 + 12) * 4
    held = tiled().memory().peak
    assert held(**wide) > held(**whole)


def test_predictions_and_sweeps_agree_on_them():
    for one in (WIDE, WHOLE):
        found = tiled().on("T4", "fp16", **SIZES, **one)
        row = tiled().sweep("T4", "fp16", **SIZES, **one).row(0)
        assert (found.moved, found.held) == (row["moved"], row["held"]) and found.tiles == one
        assert dk.Diagram.across(tiled(), ["T4"], "fp16", **SIZES, **one).best() == "T4"
    assert tiled().on("T4", "fp16", **SIZES, **WIDE).times == tiled().on("T4", "fp16", **SIZES, **WHOLE).times


def test_labels_take_them_where_sizes_are_known():
    known = flash(known=True)
    assert known.group(q=16).stream(x=32).transfers().total() == known.group(q=10).stream(x=12).transfers().total()
    count = known.group(q=16).stream(x=32).lower().count()
    assert count.transfers == known.group(q=10).stream(x=12).lower().count().transfers
    assert derive.group(known, q=1000).labels[0].tile == 1000


def test_the_program_counts_and_computes_as_with_the_whole():
    wide, whole = (tiled().lower(**SIZES, **tiles) for tiles in (WIDE, WHOLE))
    assert wide.count().transfers == whole.count().transfers and wide.count().flops == whole.count().flops
    np.testing.assert_allclose(wide.run(**arrays()), whole.run(**arrays()), rtol=1e-6)


@pytest.mark.parametrize("target", ENGINES)
def test_kernels_check_and_count_them(target):
    pytest.importorskip(target, reason=f"the kernel is {target}'s")
    made = tiled().kernel(target, **SIZES, **(WIDE if target == "numba" else {"g_q": 16, "s_x": 16}))
    assert made.check(arrays=arrays())
    assert made.count().transfers == tiled().lower(**SIZES, **WHOLE).count().transfers
