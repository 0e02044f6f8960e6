"""Checking a kernel: fresh inputs, every output element overwritten, compared with the diagram in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log10, prod, sqrt
from typing import Any

import numpy as np

from diagkit import ops
from diagkit.bench.launch import bind
from diagkit.bench.messages import TORCH
from diagkit.bench.show import Shown
from diagkit.program import Program
from diagkit.term import Box, Cast, Contract, Map, Reduce, Term, arg

UNITS: dict[str, float] = {
    "fp64": 2.0**-53,
    "fp32": 2.0**-24,
    "tf32": 2.0**-11,
    "fp16": 2.0**-11,
    "bf16": 2.0**-8,
    "fp8e4m3": 2.0**-4,
    "fp8e5m2": 2.0**-3,
    "fp8e8m0": 0.5,
    "int8": 2.0**-7,
    "int4": 2.0**-3,
}
"""The largest relative error of rounding to each format."""


@dataclass(frozen=True, repr=False)
class Check(Shown):
    """What a check found, over all outputs.

    * `error`: the largest difference from float64, as a fraction of the largest number in that output.
    * `tolerance`: what rounding explains; `unwritten`: elements that the kernel left as they were;
      `wrong`: elements that are NaN or infinite where float64 is not, or the other way round.
    * `sizes` and `seed`: what was run; `target`: where.

    >>> found = Check("numba", (("q", 8),), 0, error=3e-7, tolerance=1e-6, unwritten=0, wrong=0)
    >>> found.passed, bool(found), found.rows()[-1]
    (True, True, ('verdict', 'agrees with float64'))
    """

    target: str
    sizes: tuple[tuple[str, int], ...]
    seed: int | None
    error: float
    tolerance: float
    unwritten: int
    wrong: int

    @property
    def passed(self) -> bool:
        """Whether the kernel computes its diagram."""
        return self.error <= self.tolerance and not self.unwritten and not self.wrong

    def __bool__(self) -> bool:
        return self.passed

    def rows(self) -> list[tuple[str, str]]:
        """What the display shows: errors as powers of ten, so that it is the same on every machine."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes)
        inputs = "given inputs" if self.seed is None else f"random inputs, seed {self.seed}"
        found = [("check", f"{self.target}, {sizes}, {inputs}")]
        found.append(("error", self._error()))
        if self.unwritten or self.wrong:
            odd = f"{self.unwritten} never written, {self.wrong} wrongly finite or not"
            found.append(("elements", odd))
        return [*found, ("verdict", "agrees with float64" if self.passed else "DIFFERS from float64")]

    def _error(self) -> str:
        """The error below a power of ten, or below its tolerance where that says more."""
        power = int(np.floor(log10(self.error))) + 1 if 0 < self.error < np.inf else 0
        if self.passed and self.error > 0 and self.tolerance < 10.0**power:
            return f"below its tolerance, {self.tolerance:.0e} of the largest value"
        below = f"below 1e{power:+03d}" if 0 < self.error < np.inf else "0" if self.error == 0 else "not finite"
        return f"{below} of the largest value, tolerance {self.tolerance:.0e}"


def check(
    program: Program, target: str, arrays: Mapping[str, Any], sizes: Mapping[str, int], seed: int | None = None
) -> Check:
    """Run the kernels on `arrays` into poisoned memory and compare every output with float64.

    Whole numbers and truth values must be equal. Codes that are rounded may be one off where the number in
    float64 lies so near to the middle between two codes that rounding in the kernel explains it.
    """
    made = _by_name(program.term, ops.reference(program.term, arrays, sizes))
    wanted = {name: _host(value) for name, value in made.items()}
    bound = bind(program, target, arrays, sizes)
    for name, value in bound.launch.memory.items():
        if name not in arrays:
            _poison(value, wanted.get(name))
    bound.launch.run()
    found = {name: _host(value) for name, value in bound.launch.outputs.items()}  # not yet in the inputs' format
    tolerance = tolerance_of(program.term, arrays, wanted, sizes)
    compared = []
    for name in program.term.outputs:
        excused = near_ties(program.term, name, arrays, sizes, found[name], wanted[name])
        compared.append(_compare(found[name], wanted[name], excused))
    errors, unwritten, wrong = (list(column) for column in zip(*compared, strict=True))
    return Check(target, tuple(sorted(sizes.items())), seed, max(errors), tolerance, sum(unwritten), sum(wrong))


def _by_name(term: Term, outputs: Any) -> dict[str, Any]:
    return outputs if isinstance(outputs, dict) else {term.outputs[0]: outputs}


def _host(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()


def _poison(value: Any, wanted: Any) -> None:
    """NaN everywhere; where there is no NaN, anything but what is wanted."""
    floats = value.dtype.kind == "f" if isinstance(value, np.ndarray) else value.is_floating_point()
    if floats:
        value[...] = float("nan")
    elif wanted is not None:
        other = ~wanted if wanted.dtype == bool else np.where(wanted > 0, wanted - 1, wanted + 1)
        value[...] = other if isinstance(value, np.ndarray) else _like(other, value)


def near_ties(
    term: Term, name: str, arrays: Mapping[str, Any], sizes: Mapping[str, int], found: Any, wanted: Any
) -> Any:
    """Where the codes `found` of an output differ from those that are wanted by no more than rounding explains:
    both are neighbours of the number before it is rounded, in float64, which lies near the middle between them."""
    cast = next((box for box in term.flat if box.name == name), None)
    if not isinstance(cast, Cast) or cast.dtype not in _CODES or np.array_equal(found, wanted):
        return np.zeros((), bool)
    plain = tuple(Map(name, box.axes, box.inputs, arg(0)) if box is cast else box for box in term.flat)
    before = Term(term.inputs, plain, (name,), term.name)
    exact = _host(ops.reference(before, arrays, sizes)).astype(np.float64)
    tolerance = tolerance_of(before, arrays, {name: exact}, sizes) * np.max(
        np.abs(exact[np.isfinite(exact)]), initial=0
    )
    middle = np.floor(exact) + 0.5
    return (np.abs(exact - middle) <= tolerance) & (np.abs(found - middle) == 0.5) & (np.abs(wanted - middle) == 0.5)


def _compare(found: Any, wanted: Any, excused: Any = False) -> tuple[float, int, int]:
    """(error, elements left as poison, elements that are wrongly finite or not)."""
    if found.dtype.kind in "bi":
        return 0.0, int(np.sum((found != wanted) & ~np.asarray(excused))), 0
    found = found.astype(np.float64)
    finite = np.isfinite(wanted)
    unwritten = int(np.sum(np.isnan(found) & ~np.isnan(wanted)))
    same = np.where(finite, np.isfinite(found), (found == wanted) | (np.isnan(found) & np.isnan(wanted)))
    both = finite & np.isfinite(found)
    largest = float(np.max(np.abs(wanted[finite]), initial=0.0))
    error = float(np.max(np.abs(found[both] - wanted[both]), initial=0.0))
    return (error / largest if largest else error), unwritten, int(np.sum(~same)) - unwritten


def tolerance_of(term: Term, arrays: Mapping[str, Any], wanted: Mapping[str, Any], sizes: Mapping[str, int]) -> float:
    """What rounding explains, relative to the largest value of an output.

    One rounding of every input (of the coarsest format in which numbers are kept without a cast) moves the
    float64 result by some amount; sums of L terms, rounded at each addition, may move it sqrt(L) times as
    far. The diagram's own casts round the same way in float64, except where numbers lie next to a boundary or
    a streamed sum rounds before it is normalised: that moves a result no further than leaving them out does.
    Four times the larger of the two.
    """
    unit = max(UNITS[dtype] for dtype in _formats(term, arrays))
    signs = np.random.default_rng(1)
    fractions = [array.name for array in term.inputs if not array.dtype.startswith(("int", "bool"))]
    nudged = {**arrays, **{name: _nudged(arrays[name], unit, signs) for name in fractions}}
    spread = max(unit, _spread(term, nudged, term, wanted, sizes))
    cast = _spread(term, arrays, _without_casts(term), wanted, sizes)
    return float(f"{4 * max((1 + sqrt(_longest_sum(term, sizes))) * spread, cast):.1e}")


def _spread(
    term: Term, arrays: Mapping[str, Any], other: Term, wanted: Mapping[str, Any], sizes: Mapping[str, int]
) -> float:
    """How far the outputs of the `other` diagram on `arrays` lie from those that are wanted."""
    moved = _by_name(term, ops.reference(other, arrays, sizes))
    return max(_moved_by(_host(moved[name]), wanted[name]) for name in term.outputs)


def _without_casts(term: Term) -> Term:
    """The diagram with its narrow casts left out."""

    def kept(box: Box) -> Box:
        narrow = isinstance(box, Cast) and box.dtype in UNITS and box.dtype != "fp64"
        return Map(box.name, box.axes, box.inputs, arg(0)) if narrow else box

    return Term(term.inputs, tuple(map(kept, term.flat)), term.outputs, term.name)


_CODES = {"int8", "int4"}
_NARROW = {"fp16", "bf16", "fp8e4m3", "fp8e5m2", "fp8e8m0"}


def _formats(term: Term, arrays: Mapping[str, Any]) -> set[str]:
    """The compute format, and the narrow ones that numbers are rounded to without a cast: inputs that are not
    yet in theirs, what enters a product or leaves the diagram."""
    double = any(str(getattr(value, "dtype", "")).endswith("float64") for value in arrays.values())
    read = {wire for box in term.flat if isinstance(box, Contract) for wire in box.inputs} | set(term.outputs)
    made = {term.wires[box.name].dtype for box in term.flat if box.name in read and not isinstance(box, Cast)}
    inputs = {array.dtype for array in term.inputs if not _exact(arrays[array.name], array.dtype)}
    return {"fp64" if double else "fp32"} | ((made | inputs) & _NARROW)


def _exact(value: Any, dtype: str) -> bool:
    """Whether an array holds only numbers of a format."""
    if dtype not in _NARROW or str(value.dtype) == f"torch.{TORCH[dtype]}":
        return True
    value = _host(value) if not isinstance(value, np.ndarray) else value
    with np.errstate(all="ignore"):
        rounded = value.astype(ops.numpy_dtype(dtype))
    return bool(np.array_equal(value.astype(np.float64), rounded.astype(np.float64), equal_nan=True))


def _nudged(value: Any, unit: float, signs: np.random.Generator) -> Any:
    up_or_down = 1 + unit * signs.choice([-1.0, 1.0], value.shape)
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) * up_or_down
    return value.double() * _like(up_or_down, value)


def _like(numbers: Any, tensor: Any) -> Any:
    """A numpy array as a tensor where another lies."""
    import torch

    return torch.from_numpy(np.asarray(numbers)).to(tensor.device)


def _moved_by(moved: Any, wanted: Any) -> float:
    if wanted.dtype == bool:
        return 0.0
    finite = np.isfinite(wanted) & np.isfinite(moved)
    largest = float(np.max(np.abs(wanted[finite]), initial=0.0))
    return float(np.max(np.abs(moved[finite] - wanted[finite]), initial=0.0)) / (largest or 1.0)


def _longest_sum(term: Term, sizes: Mapping[str, int]) -> int:
    """The most terms that any one element sums."""
    longest = 1
    for box in (box for box in term.flat if isinstance(box, Contract | Reduce)):
        read = {axis.name for wire in box.inputs for axis in term.wires[wire].axes}
        longest = max(longest, prod(sizes[axis] for axis in read - {axis.name for axis in box.axes}))
    return longest
