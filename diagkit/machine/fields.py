"""Which fields a machine may state, section by section. Units live in the names and nowhere else."""

from __future__ import annotations

INTEGERS = ("int8", "int4")
FLOATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
LEVELS = ("network", "global", "L3", "L2", "cluster", "L1", "shared", "register", "fragment")
CACHES = ("L3", "L2", "L1")
PER_MULTIPROCESSOR = ("L1", "shared", "register", "fragment")
TEXTS = ("name", "vendor", "architecture", "target", "memory", "note")
REQUIRED = ("device.multiprocessors", "level.global.capacity_bytes", "level.global.bandwidth_bytes_per_s")

# Longest ending first: the first that fits a field is its unit.
UNITS = {
    "_bytes_per_clk": "B/clk",
    "_bytes_per_s": "B/s",
    "_flop_per_clk_per_sm": "FLOP/clk",
    "_op_per_clk_per_sm": "op/clk",
    "_flop_per_s": "FLOP/s",
    "_op_per_s": "op/s",
    "_j_per_byte": "J/B",
    "_j_per_flop": "J/FLOP",
    "_j_per_op": "J/op",
    "_bytes": "B",
    "_hz": "Hz",
    "_w": "W",
}


def rates(ending: str) -> tuple[str, ...]:
    """One field name per number format: floats count FLOP, integers count op."""
    return tuple(f"{name}_flop{ending}" for name in FLOATS) + tuple(f"{name}_op{ending}" for name in INTEGERS)


BANDWIDTHS = ("bandwidth_bytes_per_s", "bandwidth_bytes_per_clk")
"""Two ways to state one rate: that of the device, or that of one memory for each clock."""
LEVEL_FIELDS = ("capacity_bytes", "capacity_per_block_bytes", "count", *BANDWIDTHS, "energy_j_per_byte")
PART = "_part"
"""How the name of a field ends that states a part of something, at most 1."""
CLUSTERS = (1, 2, 4, 8, 16)
CLUSTER_FIELDS = tuple(f"bandwidth_of_{size}_bytes_per_s" for size in CLUSTERS)
"""What is read within a cluster of so many multiprocessors; of 1: what comes from above."""

FIELDS: dict[str, tuple[str, ...]] = {
    "device": ("multiprocessors", "clock_hz", "max_clock_hz", "power_w"),
    **{f"level.{level}": LEVEL_FIELDS for level in LEVELS},
    "level.cluster": (*LEVEL_FIELDS, *CLUSTER_FIELDS),
    "tensor": (*rates("_per_clk_per_sm"), "mma_sync_part"),
    "fma": rates("_per_clk_per_sm"),
    "special": ("exp_op_per_clk_per_sm",),
    "peak": rates("_per_s"),
    "energy": (
        *(f"{name}_j_per_flop" for name in FLOATS),
        *(f"{name}_j_per_op" for name in INTEGERS),
        "exp_j_per_op",
    ),
    "measured": ("copy_bytes_per_s", *(rate.replace("_flop", "_matmul_flop") for rate in rates("_per_s"))),
}
"""Section to the fields it may have; a section or field that is not here is refused when a file is read."""


def unit_of(field: str) -> str:
    """The unit that a field's name ends in; empty for a plain count.

    >>> unit_of("level.global.bandwidth_bytes_per_s"), unit_of("device.multiprocessors")
    ('B/s', '')
    """
    return next((unit for ending, unit in UNITS.items() if field.endswith(ending)), "")
