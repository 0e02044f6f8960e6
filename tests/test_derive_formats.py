"""Formats of the inputs change bytes and nothing else."""

from __future__ import annotations

import examples
import pytest

import diagkit as dk
from diagkit import cost
from diagkit.derive import stream
from diagkit.derive.formats import formats
from diagkit.term import FormatError, InputError, size


def flash() -> dk.Diagram:
    return examples.attention().fuse().group(q="g_q").stream(x="s_x")


def test_one_format_for_all_halves_the_bytes() -> None:
    half = formats(flash(), "fp16")
    assert half.boxes == flash().boxes
    assert cost.transfers(half).bytes().total() * 2 == cost.transfers(flash()).bytes().total()
    assert half.steps[-1].kind == "relabel"


def test_formats_by_name() -> None:
    q, x, d, g = (size(name) for name in ("q", "x", "d", "g_q"))
    mixed = formats(flash(), K="fp8e4m3", V="fp8e4m3", Q="fp16")
    moved = {key.array: amount for key, amount in cost.transfers(mixed).bytes().relaxed().items()}
    assert moved["K"] == q * x * d / g
    assert moved["Q"] == 2 * q * d


def test_masks_keep_their_format() -> None:
    q, x = dk.axes("q x")
    masked = dk.Diagram(dk.masked(dk.array("S", q, x), dk.array("M", q, x, dtype="bool")))
    assert [array.dtype for array in formats(masked, "fp16").inputs] == ["bool", "fp16"]


def test_accumulators_follow_to_fp64_and_never_below_fp32() -> None:
    assert {state.dtype for state in formats(flash(), "fp16").forms[0].state} == {"fp32"}
    wide = formats(flash(), "fp64")
    assert wide.forms == stream(formats(examples.attention().fuse().group(q="g_q"), "fp64"), x="s_x").forms


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(FormatError, match="bf16"):
        formats(flash(), "half")
    with pytest.raises(InputError, match="its inputs are: K, Q, V"):
        formats(flash(), W="fp16")


def test_nothing_changes_nothing() -> None:
    whole = flash()
    assert formats(whole) is whole
