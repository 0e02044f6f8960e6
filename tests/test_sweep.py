"""Sweeps over sizes, tiles and machines: each row is what `on` says, and the table says its units."""

from __future__ import annotations

from typing import Any

import examples
import numpy as np
import pytest

import diagkit as dk
from diagkit.explore import Explorer
from diagkit.machine import load
from diagkit.term import DiagkitError, InputError

SIZES: dict[str, Any] = {"q": [512, 1000], "x": "q", "d": 64}


def flash() -> Any:
    return examples.attention().fuse().group(q="g_q").stream(x="s_x")


def test_every_row_is_what_on_says() -> None:
    swept = flash().sweep(["A100-SXM-80GB", "B200"], "fp16", **SIZES, g_q=[48, 128], s_x=32)
    assert len(swept) == 8
    for row in (swept.row(number) for number in range(len(swept))):
        sizes = {name: row[name] for name in ("q", "x", "d", "g_q", "s_x")}
        one = flash().on(row["machine"], "fp16", **sizes)
        assert (row["moved"], row["held"], row["fits"]) == (one.moved, one.held, one.fits)
        times = {name.removeprefix("time "): v for name, v in row.items() if name.startswith("time ")}
        stated = {name: v for name, v in times.items() if not np.isnan(v)}
        assert stated == dict(one.times.seconds)
        assert row["overlapped"] == one.times.overlapped
        assert row["serial"] == pytest.approx(one.times.serial, rel=1e-15)
        assert (row["bottleneck"], row["rate"]) == (one.times.bottleneck, one.times.rate()[1])


def test_tiles_that_are_not_given_are_the_legal_ones() -> None:
    swept = flash().sweep("H100-SXM", "fp16", q=[512, 4096], x="q", d=64)
    for row in (swept.row(0), swept.row(1)):
        tiles = flash().on("H100-SXM", "fp16", q=row["q"], x=row["x"], d=64).tiles
        assert {name: row[name] for name in tiles} == tiles


def test_of_several_levels_the_outermost_is_swept() -> None:
    deep = flash().group(level=2, q="w_q").stream(level=2, x="u_x")
    swept, outer = (one.sweep("H100-SXM", "fp16", q=512, x="q", d=64) for one in (deep, flash()))
    assert [swept.row(0)[name] for name in outer.units] == [outer.row(0)[name] for name in outer.units]


def test_rows_are_chosen_sorted_and_the_best_fits() -> None:
    swept = flash().sweep(["T4", "H100-SXM"], "fp16", q=4096, x="q", d=128, g_q=[16, 128, 2048], s_x=[32, 64])
    assert set(swept.where(machine="T4")["machine"]) == {"T4"}
    assert np.all(np.diff(swept.sorted("moved")["moved"].astype(float)) >= 0)
    best = swept.best("moved")
    assert best["fits"] and best["moved"] == min(swept.where(fits=True)["moved"])
    assert not swept.where(g_q=2048)["fits"].any()
    with pytest.raises(DiagkitError, match="no point fits"):
        swept.where(g_q=2048).best()


def test_it_displays_its_units_and_only_the_first_rows() -> None:
    swept = flash().sweep(
        examples.silent(load("B200"), "fma"),
        "fp16",
        q=[2**k for k in range(6, 12)],
        x="q",
        d=64,
        g_q=[16, 32, 48, 64],
        s_x=16,
    )
    text = repr(swept)
    assert "24 points, the first 20 shown" in text
    assert all(
        f"{name}, {unit}" in text for name, unit in (("moved", "bytes"), ("tensor", "FLOP"), ("rate", "TFLOP/s"))
    )
    assert "not stated" in text  # the fused multiply-adds of a B200
    assert swept._repr_html_().count("<tr>") == 21
    assert swept.units["overlapped"] == "s"


def test_what_cannot_be_swept_is_named() -> None:
    with pytest.raises(DiagkitError, match="needs a size for axis 'd'"):
        flash().sweep("T4", "fp16", q=16, x=16)
    with pytest.raises(DiagkitError, match="x follows 'y', which has no values"):
        flash().sweep("T4", "fp16", q=16, x="y", d=8)
    with pytest.raises(DiagkitError, match="no column 'speed'; columns: machine, q"):
        flash().sweep("T4", "fp16", q=16, x=16, d=8, g_q=16, s_x=16)["speed"]
    with pytest.raises(DiagkitError, match="without values"):
        flash().sweep("T4", "fp16", q=[], x=16, d=8)


def test_a_machine_that_states_no_rate_of_products_is_never_the_best() -> None:
    at = {"q": 64, "x": 64, "d": 64, "g_q": 16, "s_x": 16}
    both = flash().sweep(["T4", "A100-SXM-80GB"], "bf16", **at)
    assert np.isnan(both.where(machine="T4")["overlapped"]).all()
    assert both.best()["machine"] == "A100-SXM-80GB"
    with pytest.raises(DiagkitError, match="no machine here states the rates of 'overlapped'"):
        flash().sweep("T4", "bf16", **at).best()
    assert np.isfinite(flash().sweep("B200", "fp16", **at)["overlapped"]).all()  # only its FMA rate is not stated


HUGE = [2**40, 2**62, 2**63 - 1, 2**63, 2**64 + 1, 10**30]


def causal() -> Any:
    q, x, d = dk.axes("q x d")
    S = dk.masked(dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)), dk.causal(q, x))
    O = dk.einsum("q x, x d -> q d", dk.softmax(S, over=x, name="P"), dk.array("V", x, d))
    return dk.Diagram(O, name="causal").fuse().group(q="g_q").stream(x="s_x")


@pytest.mark.parametrize("n", HUGE)
def test_no_count_wraps_however_large_the_sizes(n: int) -> None:
    """2 q d + 2 d x ceil(q / g) elements of 2 bytes, on every path that turns formulas into arrays."""
    tile = -(-n // 8)
    tiles, given = {"g_q": tile, "s_x": tile}, {"q": n, "x": n, "d": 128}
    moved = 2 * (2 * n * 128 + 2 * 128 * n * -(-n // tile))
    row = flash().sweep("H100-SXM", "fp16", **given, **tiles).row(0)
    assert (row["moved"], row["tensor"]) == (moved, 4 * n * n * 128)
    assert row["overlapped"] == pytest.approx(row["tensor"] / 989.4e12, rel=0.5) and not row["fits"]
    assert flash().formats("fp16").transfers().bytes().total(**given, **tiles) == moved
    assert Explorer(flash(), dtype="fp16", **given, **tiles).reading.moved == moved
    assert flash().sweep("H100-SXM", "fp16", **given).row(0)["moved"] == flash().on("H100-SXM", "fp16", **given).moved


@pytest.mark.parametrize("n", HUGE)
def test_sums_over_tiles_are_exact_however_large_the_sizes(n: int) -> None:
    """Eight tiles of a causal mask: tile i sees i + 1 chunks, the last of them short."""
    tile = -(-n // 8)
    last = n - 7 * tile
    seen = sum(i + 1 for i in range(7)) * tile + 7 * tile + last
    moved = 2 * (2 * n * 128 + 2 * 128 * seen)
    sizes = {"q": n, "x": n, "d": 128, "g_q": tile, "s_x": tile}
    assert causal().transfers().bytes("fp16").total(**sizes) == moved
    assert causal().sweep("H100-SXM", "fp16", **sizes).row(0)["moved"] == moved


def test_what_has_no_float_or_too_many_tiles_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="moved is a number of .* bits, and a float holds 1024"):
        flash().sweep("H100-SXM", "fp16", q=10**200, x="q", d=128, g_q=64, s_x=64)
    with pytest.raises(InputError, match="use smaller sizes"):
        flash().on("H100-SXM", "fp16", q=10**400, x=10**400, d=128)
    with pytest.raises(InputError, match="use smaller sizes"):
        _ = Explorer(flash(), q=10**200, x="q", d=128, g_q=64, s_x=64).reading
    for count in (lambda **at: causal().sweep("T4", "fp16", **at), lambda **at: causal().transfers().total(**at)):
        with pytest.raises(InputError, match="134,217,728 of them are more than"):
            count(q=2**34, x=2**34, d=8, g_q=128, s_x=128)


def test_a_tile_of_a_level_inside_is_refused_as_such() -> None:
    deep = flash().group(level=2, q="w_q")
    with pytest.raises(DiagkitError, match="'w_q' is a tile of a level inside; a sweep is about the outermost level"):
        deep.sweep("T4", "fp16", q=16, x=16, d=8, g_q=16, s_x=16, w_q=[4, 8])
