"""The additive model against the published figures: what it meets, and what it is far from."""

from __future__ import annotations

import csv
import math
import tomllib
from dataclasses import replace

import pytest

from diagkit.machine import ASSUMPTIONS, MachineError, additive_rate, anchors, balanced_d, compare, data_path, load
from diagkit.machine.additive import BARE, score_clocks
from diagkit.machine.anchors import sheet
from diagkit.machine.implementations import implementation


@pytest.fixture(scope="module")
def found():
    return compare()


@pytest.mark.parametrize(("d", "tflops"), [(64, 495), (128, 660), (256, 792)])
def test_fp16_on_an_h100_is_the_worked_arithmetic(d, tflops):
    assert round(additive_rate(load("H100-SXM"), "fp16", d) / 1e12) == tflops


def test_two_formats_are_that_of_each_product():
    h100 = load("H100-SXM")
    assert score_clocks(h100, "int8+fp16", 128) == 256 / 8192 + 256 / 4096 + 1 / 16
    assert score_clocks(h100, "fp8+fp8", 64) == score_clocks(h100, "fp8", 64)


@pytest.mark.parametrize(
    ("machine", "dtype", "d"),
    [("A100-SXM-80GB", "fp16", 32), ("RTX4090", "fp16", 8), ("H100-SXM", "fp16", 64), ("H100-SXM", "fp8", 128)],
)
def test_the_head_size_of_equal_times(machine, dtype, d):
    assert balanced_d(load(machine), dtype) == d


def test_the_published_speeds_are_met(found):
    """FA3 in fp16 and fp8 within a tenth, all rows within a fifth; no row is dropped to get there."""
    assert found.family("FA3").median_error <= 0.06
    assert found.family("FA3").only(dtype="fp16").median_error <= 0.06
    assert found.family("FA3").only(dtype="fp8").median_error <= 0.06
    assert found.median_error <= 0.08
    assert found.only(gpu="H100-SXM", impl="FA2").median_error <= 0.08
    assert found.only(gpu="A100", impl="FA2").median_error <= 0.06
    assert found.only(impl="cuDNN9.1", dtype="fp16").median_error <= 0.25
    assert "median absolute error over 136 speeds" in repr(found)


def test_the_bare_model_is_what_it_was(found):
    bare = found.without(*BARE)
    assert f"{bare.family('FA3').median_error:.1%} {bare.median_error:.1%}" == "10.4% 22.3%"
    assert bare.only(gpu="H100-SXM", impl="FA2").median_error > 0.70


def test_what_the_model_is_far_from_stays_said(found):
    """A head of 256 under a causal mask, cuDNN at 256, and a card slower than others of its name."""
    assert found.only(impl="FA3", d=256, dtype="fp16", causal=True).median_error > 0.15
    assert found.only(impl="cuDNN9.1", d=256, dtype="fp16").median_error > 0.25
    assert found.only(impl="FA3-fp16").median_error > 0.40
    assert any(each.error < 0 for each in found.anchors)


def test_assumptions_and_implementations_are_listed_with_their_sources(found):
    assert found.assumptions().column("assumption") == [each.name for each in ASSUMPTIONS]
    assert found.without("casts").assumptions().column("assumption") == [
        e.name for e in ASSUMPTIONS if e.name != "casts"
    ]
    listed = found.implementations()
    assert set(listed.column("implementation")) == {each.impl for each in found.anchors}
    assert all(listed.column("source"))


def test_each_assumption_can_be_switched_off(found):
    rows = {name: (fa3, everything) for name, fa3, everything in found.switched_off().rows}
    assert len(rows) == len(ASSUMPTIONS) + 2
    percent = {name: float(cells[1].rstrip("%")) for name, cells in rows.items()}
    assert all(percent[each.name] >= percent["(nothing)"] for each in ASSUMPTIONS)
    with pytest.raises(MachineError, match="no assumption 'fitting'"):
        found.without("fitting")


def test_every_forward_speed_of_the_file_is_there_or_named_as_left_out(found):
    rows = list(csv.DictReader(data_path("anchors.csv").read_text(encoding="utf-8").splitlines()))
    cells = [row for row in rows for n in ("4096", "8192", "16384") if row[n]]
    dropped = [row for row in cells if row["pass"] == "bwd" or row["gpu"] == "H100-500W"]
    assert len(found.anchors) == len(cells) - len(dropped)
    assert [count for _, count in found.left_out] == [sum(row["pass"] == "bwd" for row in rows), 1]
    assert len(anchors(512)) > len(anchors(8192)) > 0


def test_same_is_replaced_by_what_it_repeats():
    assert all("same" not in (row["conditions"], row["source"]) for row in sheet())
    assert anchors()[3].source == "flash-attention assets/flash3_fp16_fwd.png"


def test_the_summary_accounts_for_every_speed(found):
    assert sum(int(row[4]) for row in found.summary()) == len(found.anchors) == len(found.rows())
    first = found.anchors[0]
    assert first.row()[:6] == ("H100-SXM", "FA3", "fp16", "64", "full", "4096")
    assert first.error == pytest.approx(first.predicted / 476 - 1)
    assert [row[5:] for row in found.table().rows] == [row[5:] for row in found.summary()]


@pytest.mark.parametrize(
    ("conditions", "d", "length", "heads"),
    [
        ("16k tokens, hidden 2048, 1830 MHz", 64, 4096, 4 * 32),
        ("B*S=16k H=16, 2024-07", 128, 8192, 2 * 16),
        ("from microseconds; B4 H48 2026-09", 128, 4096, 192),
        ("GQA 64/8, sink attention", 128, 4096, None),
    ],
)
def test_the_heads_are_read_off_the_conditions(conditions, d, length, heads):
    assert replace(anchors()[0], conditions=conditions, d=d, length=length).heads == heads


def test_the_table_says_its_assumptions_as_text_and_as_html(found):
    for shown in (repr(found), found._repr_html_()):
        assert all(name in shown for name, _ in found.assumed)
    assert found._repr_html_().count("<tr>") == len(found.rows()) + len(found.summary()) + 2
    with pytest.raises(MachineError, match="no published speed"):
        found.only(impl="FA9")


def read_again(name):
    """The numbers of a machine's file, by section and field, without the library's reader."""
    table = tomllib.loads(data_path("machines", f"{name}.toml").read_text(encoding="utf-8"))
    sections = ("device", "tensor", "fma", "special")
    return {f"{part}.{key}": entry["value"] for part in sections for key, entry in table[part].items()}


def on_paper(each):
    """TFLOP/s of one published row, each assumption written out again in clocks of a score."""
    at, made, fma = read_again(each.machine.name), implementation(each.impl), "fma.fp32_flop_per_clk_per_sm"
    first, _, second = each.dtype.partition("+")
    kinds = [f"tensor.{kind}_{'op' if kind == 'int8' else 'flop'}_per_clk_per_sm" for kind in (first, second or first)]
    clocks = sum(2 * each.d / at[kind] for kind in kinds)
    clocks /= at["tensor.mma_sync_part"] if made.mma_sync and each.gpu.startswith("H") else 1
    clocks += 1 / at["special.exp_op_per_clk_per_sm"]
    clocks += 0 if made.pipelined else (3 + each.d / 64) / (at[fma] / 2)
    clocks += 2 / (at[fma] / 2) if "8" in (second or first) else 0
    steps, units = each.length / 128, at["device.multiprocessors"]
    steps = (steps + 1) / 2 if each.causal else steps
    clocks *= (steps + 1) / steps * ((each.length + 128) / (each.length + 1) if each.causal else 1)
    rounds = (each.heads or 0) * math.ceil(each.length / 128) / units
    clocks *= math.ceil(rounds) / rounds if rounds and not each.causal else 1
    return 4 * each.d / clocks * units * at["device.clock_hz"] / 1e12


def test_every_prediction_and_both_medians_are_what_paper_gives(found):
    again = [on_paper(each) for each in found.anchors]
    assert again == pytest.approx([each.predicted for each in found.anchors], rel=1e-12)
    errors = sorted(abs(mine / each.tflops - 1) for mine, each in zip(again, found.anchors, strict=True))
    assert found.median_error == pytest.approx((errors[67] + errors[68]) / 2)
    assert len(errors) == 136
