"""Sweeps over sizes, tiles and machines: each row is what `on` says, and the table says its units."""

from __future__ import annotations

from typing import Any

import examples
import numpy as np
import pytest

from diagkit.term import DiagkitError

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
    swept = flash().sweep("B200", "fp16", q=[2**k for k in range(6, 12)], x="q", d=64, g_q=[16, 32, 48, 64], s_x=16)
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
