"""Records of GPU speeds: the newest is shown with its device and date, none is said to be none."""

from __future__ import annotations

import json

import pytest

from diagkit.bench import KernelError, Recorded, recorded

ROWS = [
    {"kind": "ceiling", "name": "gemm fp16", "rate_flop_per_s": 7.5e14},
    {"kind": "attention", "d": 128, "causal": False, "time_s": 0.00125, "rate_flop_per_s": 4.6e14},
    {"kind": "attention", "d": 64, "causal": True, "time_s": 0.002, "share_of_gemm": None},
]


def write(folder, date, rows):
    content = {"device": "Test <GPU>", "date": date, "versions": {"torch": "2.11"}, "results": rows}
    (folder / f"gpu-{date}.json").write_text(json.dumps(content), encoding="utf-8")


def test_the_newest_record_is_shown_with_its_device_and_date(tmp_path):
    write(tmp_path, "2026-01-02", ROWS)
    write(tmp_path, "2025-12-31", ROWS[:1])
    found = recorded(tmp_path)
    assert isinstance(found, Recorded)
    assert (found.device, found.date, len(found.results)) == ("Test <GPU>", "2026-01-02", 3)
    assert str(found).startswith("recorded on Test <GPU>, 2026-01-02 (torch 2.11)\n")
    assert "Test &lt;GPU&gt;" in found._repr_html_()


def test_rows_are_chosen_by_their_values_and_shown_in_units(tmp_path):
    write(tmp_path, "2026-01-02", ROWS)
    assert recorded(tmp_path, kind="attention", d=128).table() == [
        ["causal", "time, ms", "rate, TFLOP/s"],
        ["False", "1.25", "460"],
    ]
    assert recorded(tmp_path, d=64).table()[1][-1] == ""


def test_without_records_it_says_so(tmp_path):
    assert str(recorded(tmp_path)).startswith("No GPU speed is recorded yet")
    assert str(recorded(tmp_path / "absent")).startswith("No GPU speed is recorded yet")


@pytest.mark.parametrize("text", ["{", "[]", '{"device": "a"}'])
def test_what_is_no_record_is_refused_by_name(tmp_path, text):
    (tmp_path / "odd.json").write_text(text, encoding="utf-8")
    with pytest.raises(KernelError, match=r"odd\.json is no record of measurements"):
        recorded(tmp_path)
