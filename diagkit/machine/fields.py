"""Which fields a machine may state, section by section. Units live in the names and nowhere else."""

from __future__ import annotations

INTEGERS = ("int8", "int4")
FLOATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
LEVELS = ("network", "global", "L3", "L2", "cluster", "L1", "shared", "register", "fragment")
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
    "_bytes": "B",
    "_hz": "Hz",
    "_w": "W",
}


def rates(ending: str) -> tuple[str, ...]:
    """One field name per number format: floats count FLOP, integers count op."""
    return tuple(f"{name}_flop{ending}" for name in FLOATS) + tuple(f"{name}_op{ending}" for name in INTEGERS)


LEVEL_FIELDS = (
    "capacity_bytes", "capacity_per_block_bytes", "count", "bandwidth_bytes_per_s", "bandwidth_bytes_per_clk",
)  # fmt: skip

FIELDS: dict[str, tuple[str, ...]] = {
    "device": ("multiprocessors", "clock_hz", "max_clock_hz", "power_w"),
    **{f"level.{level}": LEVEL_FIELDS for level in LEVELS},
    "tensor": rates("_per_clk_per_sm"),
    "fma": rates("_per_clk_per_sm"),
    "special": ("exp_op_per_clk_per_sm",),
    "peak": rates("_per_s"),
    "measured": ("copy_bytes_per_s", *(rate.replace("_flop", "_matmul_flop") for rate in rates("_per_s"))),
}
"""Section to the fields it may have; a section or field that is not here is refused when a file is read."""


def unit_of(field: str) -> str:
    """The unit that a field's name ends in; empty for a plain count.

    >>> unit_of("level.global.bandwidth_bytes_per_s"), unit_of("device.multiprocessors")
    ('B/s', '')
    """
    return next((unit for ending, unit in UNITS.items() if field.endswith(ending)), "")
