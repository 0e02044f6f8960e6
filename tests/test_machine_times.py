"""Time by resource: against arithmetic done by hand."""

from __future__ import annotations

import examples
import pytest

from diagkit.machine import load
from diagkit.machine.times import Times, times


def test_each_resource_takes_its_amount_over_its_rate() -> None:
    h100 = load("H100-SXM")
    found = dict(times(h100, {"global": 3.35e12}, {"tensor": 989.4e12, "special": 16 * 132 * 1.83e9}, "fp16").seconds)
    assert found == pytest.approx({"global": 1, "tensor": 1, "special": 1}, rel=1e-3)
    fma = dict(times(h100, {}, {"fma": 128 * 132 * 1.83e9}, "fp16").seconds)
    assert fma["fma"] == pytest.approx(1)


def test_serial_adds_and_overlapped_takes_the_slowest() -> None:
    both = Times((("global", 1.0), ("tensor", 3.0)), 12.0)
    assert (both.serial, both.overlapped, both.bottleneck, both.rate()) == (4, 3, "tensor", (3, 4))


def test_a_rate_that_is_not_stated_is_named_and_not_guessed() -> None:
    found = times(examples.silent(load("B200"), "fma"), {"global": 8e12}, {"fma": 1.0}, "fp16")
    assert found.unknown == ("fma",)
    assert dict(found.seconds) == {"global": 1.0}


def test_a_worked_case_of_the_sheet() -> None:
    """q = x = 4096, d = 128, 32 heads, tiles of 128, fp16: 0.46 ms of transfers at 4.8 TB/s against 0.278 ms."""
    moved = 32 * 2 * (2 * 4096 * 128 + 2 * 4096 * 4096 * 128 / 128)
    found = times(load("H200-SXM"), {"global": moved}, {"tensor": 4 * 32 * 4096 * 4096 * 128}, "fp16")
    assert dict(found.seconds) == pytest.approx({"global": 0.46e-3, "tensor": 0.278e-3}, rel=0.01)


SAME_IN_FP16 = [("H100-SXM", 295), ("A100-SXM-80GB", 153), ("H200-SXM", 206), ("B200", 281)]
FORMATS = {"fp16": 2, "fp8": 1}


@pytest.mark.parametrize(
    ("name", "dtypes", "rows"),
    [(name, ("fp16", "fp16"), rows) for name, rows in SAME_IN_FP16]
    + [(name, ("fp8", "fp16"), rows) for name, rows in SAME_IN_FP16 if not name.startswith("A100")]  # it has no fp8
    + [("H100-SXM", ("fp8", "fp8"), 295)],
)
def test_the_rows_at_which_attention_stops_waiting_for_memory(name, dtypes, rows):
    """Keys and values of so many bytes, read once for every group of rows: equal times, in whatever formats."""
    machine = load(name)
    moved = sum(FORMATS[dtype] for dtype in dtypes) / machine.bandwidth("global")
    assert round(moved / sum(2 / machine.peak(dtype) for dtype in dtypes)) == rows
