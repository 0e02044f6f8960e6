"""A diagram on a machine: amounts are those of its costs, tiles are legal, what is missing is named."""

from __future__ import annotations

import examples
import pytest

from diagkit.term import DiagkitError

SIZES = {"q": 4096, "x": 4096, "d": 128}


def test_the_tile_fits_and_the_amounts_are_those_of_the_costs() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    found = flash.on("H100-SXM", dtype="fp16", **SIZES)
    sizes = {**SIZES, **found.tiles}
    assert found.fits
    assert found.chosen is not None
    assert found.tiles["g_q"] % 16 == found.tiles["s_x"] % 16 == 0
    assert found.moved == flash.transfers().bytes("fp16").total(**sizes)
    assert found.held == flash.memory().bytes("fp16").peak(**sizes) <= 232448
    assert found.times.flop == 4 * 4096 * 4096 * 128


def test_tiles_that_are_given_are_taken() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    found = flash.on("A100-SXM-80GB", dtype="fp16", **SIZES, g_q=64, s_x=32)
    assert (found.tiles, found.chosen) == ({"g_q": 64, "s_x": 32}, None)
    part = flash.on("A100-SXM-80GB", dtype="fp16", **SIZES, s_x=32)
    assert part.tiles["s_x"] == 32


def test_naive_attention_does_not_fit_and_says_so() -> None:
    found = examples.attention().on("T4", dtype="fp16", **SIZES)
    assert not found.fits
    assert "does not fit" in repr(found)
    assert found.times.bottleneck == "global"


def test_what_is_missing_is_named() -> None:
    naive = examples.attention()
    with pytest.raises(DiagkitError, match="needs a size for axis 'x'"):
        naive.on("T4", q=16, d=16)
    with pytest.raises(DiagkitError, match="H100-SXM"):
        naive.on("H100", **SIZES)
    assert "not stated by the machine" in repr(naive.on("B200", **SIZES, dtype="fp16"))


def test_it_shows_itself_as_a_table_with_units() -> None:
    found = examples.attention().on("H100-SXM", dtype="fp16", **SIZES)
    assert "TFLOP/s" in repr(found)
    assert found._repr_html_().startswith("<table")
