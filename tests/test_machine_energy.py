"""Energy: amounts times stated joules, nothing guessed."""

from __future__ import annotations

import pytest

from diagkit.machine import Energy, energy, load, names


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


PER_BYTE = {"HBM2e": 3.9 * 8, "HBM3": 3.9 * 8, "HBM3e": 3.9 * 8, "GDDR6": 415 / 8}
"""What the sources say of a memory, in pJ: 3.9 for a bit of HBM2, 350 to 480 for 64 bits of GDDR6."""
ON_CHIP = {"L2": 14 / 8, "shared": 8.5 / 8}
"""64 bits of an SRAM of 1 MB and of 32 KB, in pJ."""
PER_OPERATION = {"fp16": (0.34 + 0.38) / 2, "int8": (0.07 + 0.03) / 2, "fp32": (1.31 + 0.38) / 2}
"""Half a multiplication and an addition, in pJ."""


@pytest.mark.parametrize("name", names())
def test_energies_are_the_figures_of_their_sources_in_joules_for_a_byte_and_an_operation(name):
    machine, level = load(name), "level.{}.energy_j_per_byte"
    if level.format("global") in machine:
        assert machine.energy("global") == pytest.approx(PER_BYTE[machine.text("memory")] * 1e-12, rel=2e-3)
        assert "J/B" in str(machine.number(level.format("global")).row())
    for cache, picojoules in ON_CHIP.items():
        if level.format(cache) in machine:
            assert machine.energy(cache) == pytest.approx(picojoules * 1e-12, rel=5e-3)
    stated = [field for field in machine.fields() if field.startswith("energy.")]
    for field in stated:
        dtype = field.removeprefix("energy.").split("_")[0]
        assert machine[field] == pytest.approx(PER_OPERATION[dtype] * 1e-12)
        assert "pJ" in machine.source(field)
