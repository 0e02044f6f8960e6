"""Inputs for kernels that are checked, counted or timed: random, in the formats that the diagram declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from diagkit.ops import largest_number, numpy_dtype
from diagkit.program import Program
from diagkit.term import Array, InputError, check_whole

USUAL = 24
"""Size of an axis, in elements, that nobody named: not a power of two."""


def sizes_for(program: Program, given: Mapping[str, int]) -> dict[str, int]:
    """A size for every axis: as lowered or `given`; what is left open gets two tiles and a short edge."""
    open_axes = [name for name in program.missing if name in program.term.open_sizes]
    for name in given:
        if name not in open_axes:
            known = ", ".join(open_axes) or "none, all sizes are bound"
            raise InputError(f"{program.term.name} has no open size {name!r}", axis=name, remedy=f"open sizes: {known}")
    tiles = {s.axis: int(s.tile) for k in program.kernels for s in k.spans if s.role != "whole"}
    usual = {name: 2 * tiles[name] + (tiles[name] + 1) // 2 if name in tiles else USUAL for name in open_axes}
    return program.term.numbers({**usual, **program.known, **given})


def random_inputs(program: Program, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Arrays for every input: normal floats, whole numbers below the largest size (of classes, below
    their number), masks three quarters true."""
    generator = np.random.default_rng(check_whole(seed, "seed"))
    most = {array.name: largest_number(program.term, array, sizes) for array in program.term.inputs}
    return {array.name: _random(array, sizes, generator, most[array.name]) for array in program.term.inputs}


def _random(array: Array, sizes: Mapping[str, int], generator: np.random.Generator, largest: int) -> Any:
    shape = tuple(sizes[axis.name] for axis in array.axes)
    if array.dtype == "bool":
        return generator.random(shape) < 0.75
    if array.dtype == "fp8e8m0":
        return np.exp2(generator.integers(-4, 5, shape)).astype(numpy_dtype(array.dtype))
    if array.dtype.startswith("int"):
        low, high = {"int8": (-127, 128), "int4": (-7, 8)}.get(array.dtype, (0, largest))
        return generator.integers(low, high, shape).astype(numpy_dtype(array.dtype))
    return generator.standard_normal(shape).astype(numpy_dtype(array.dtype))
