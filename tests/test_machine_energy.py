"""Energy: amounts times stated joules, nothing guessed."""

from __future__ import annotations

import pytest

from diagkit.machine import Energy, energy, load


def test_each_resource_is_charged_what_the_file_states():
    machine = load("H100-SXM")
    found = energy(machine, {"global": 1e9, "L2": 2e9, "shared": 4e9}, {"tensor": 1e12, "fma": 1e10}, "fp16")
    assert dict(found.moving) == pytest.approx({"global": 31.2e-3, "L2": 3.5e-3, "shared": 4.24e-3})
    assert dict(found.computing) == pytest.approx({"tensor": 0.36, "fma": 8.45e-3})
    assert found.moving_share == pytest.approx((31.2 + 3.5 + 4.24) / (31.2 + 3.5 + 4.24 + 360 + 8.45))


def test_what_is_not_stated_is_named_and_left_out():
    found = energy(load("RTX4090"), {"global": 1e9}, {"tensor": 1e12, "special": 1e9}, "fp8e4m3")
    assert found.unknown == ("global", "tensor", "special")
    assert (found.total, found.moving_share) == (0, 0)
    assert "not stated" in repr(energy(load("T4"), {"global": 1e9}, {"tensor": 1.0}, "fp16"))


def test_the_table_ends_in_the_share_of_moving():
    found = Energy((("global", 1e-3),), (("tensor", 3e-3),))
    assert found.table().rows[-1] == ("all", "", "4", "25.0% moving")
    assert found._repr_html_().startswith("<table")


def test_nothing_moved_and_nothing_computed_takes_no_energy():
    none = energy(load("A100-SXM-80GB"), {"global": 0.0}, {"tensor": 0.0}, "fp16")
    assert (none.total, none.moving_share) == (0, 0)
    assert "0.0%" in repr(none)


def test_a_byte_of_device_memory_costs_as_much_as_87_flop():
    """31.2 pJ a byte over 0.36 pJ a FLOP in fp16, as chapter 11 says in words."""
    h100 = load("H100-SXM")
    assert round(h100.energy("global") / h100.work_energy("fp16")) == 87
