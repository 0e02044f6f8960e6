"""What every target offers: a program bound to arrays, ready to run, to count and to be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from diagkit.ops import Engine, close_arrays, open_arrays
from diagkit.program import Load, Program, Store
from diagkit.term import InputError, Term

Key = tuple[str, int, int, str]
"""(array, from level, to level, kind), as in `Program.count`."""


@dataclass(frozen=True)
class Launch:
    """A program's kernels bound to arrays: `run` runs them all and writes `outputs` each time.

    `memory` holds every array in slow memory by name, intermediates too; `moved` counts elements by
    (array, from level, to level, kind) of the latest run, where the launch counts.
    """

    run: Callable[[], None]
    outputs: Mapping[str, Any]
    memory: Mapping[str, Any]
    moved: Mapping[Key, int]


@dataclass(frozen=True)
class Target:
    """Where a target's launches lie: `launch` runs fast, `counting` counts what it moves."""

    module: str
    launch: str
    counting: str


ENGINES: dict[str, Target] = {
    "numba": Target("diagkit.bench.numba_run", "launch", "counting"),
    "triton": Target("diagkit.bench.triton_run", "launch", "launch"),
}
"""The targets, one row each."""


@dataclass(frozen=True)
class Bound:
    """A launch together with the arrays as the caller gave them."""

    engine: Engine
    launch: Launch
    term: Term

    def results(self) -> Any:
        """The outputs as the caller's kind of array: one alone, several by name."""
        made = {name: self._given_kind(value) for name, value in self.launch.outputs.items()}
        return close_arrays(self.engine, self.term, made)

    def _given_kind(self, value: Any) -> Any:
        if self.engine.xp.name == "numpy":
            return np.array(value if isinstance(value, np.ndarray) else _from_device(value))
        torch = self.engine.xp.torch
        return torch.as_tensor(value, device=getattr(self.engine.like, "device", None)).clone()


def _from_device(value: Any) -> Any:
    """A torch tensor as numpy's array; floats that numpy lacks become fp32, which holds them."""
    value = value.detach().cpu()
    narrow = value.is_floating_point() and str(value.dtype) not in ("torch.float16", "torch.float32", "torch.float64")
    return (value.float() if narrow else value).numpy()


def bind(
    program: Program,
    target: str,
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None,
    counting: bool = False,
) -> Bound:
    """Check the arrays and bind the program to them; `sizes` where no array tells them. Raises InputError as
    `Program.run` does."""
    engine, start = open_arrays(program.term, arrays, sizes={**(sizes or {}), **program.known})
    check_bound(program, engine.sizes)
    check_pairs(program, engine.sizes)
    row = ENGINES[target]
    function = getattr(import_module(row.module), row.counting if counting else row.launch)
    return Bound(engine, function(program, engine.sizes, start), program.term)


def check_bound(program: Program, sizes: Mapping[str, int]) -> None:
    """Refuse arrays whose sizes are not those that the program was lowered for."""
    for name, lowered in program.sizes:
        if name in sizes and sizes[name] != lowered:
            raise InputError(
                f"the arrays have {sizes[name]} along {name!r}, the kernel was made for {lowered}",
                axis=name,
                remedy=f"make it again with {name}={sizes[name]}, or leave {name} open",
            )


def packed(codes: Any) -> Any:
    """int4 codes as they lie in slow memory: two per byte along the last axis, the even position in the low
    half, two's complement. Raises InputError for an odd last axis and for codes beyond -8..7.

    >>> packed(np.array([[1, -2], [-8, 7]], np.int8)).tolist()
    [[225], [120]]
    """
    return pairs(np.asarray(codes).astype(np.int8)).view(np.uint8)


def pairs(codes: Any) -> Any:
    """As `packed`, of an int8 array or tensor, as such."""
    if not codes.ndim or codes.shape[-1] % 2:
        raise InputError(f"int4 codes of shape {tuple(codes.shape)} do not fill whole bytes", remedy=_EVEN)
    if 0 not in codes.shape and (codes.min() < -8 or codes.max() > 7):
        raise InputError("int4 codes lie in -8..7", remedy="quantize first: dk.cast(X / scale, 'int4')")
    return (codes[..., ::2] & 15) | (codes[..., 1::2] << 4)


def unpacked(pairs: Any) -> Any:
    """What `packed` packed, as int8.

    >>> unpacked(np.array([[225], [120]], np.uint8)).tolist()
    [[1, -2], [-8, 7]]
    """
    pairs = np.ascontiguousarray(pairs).view(np.int8)
    return np.stack([(pairs << 4) >> 4, pairs >> 4], axis=-1).reshape(*pairs.shape[:-1], 2 * pairs.shape[-1])


_EVEN = "two int4 codes share a byte along the last axis: make it even, or put an even axis last"


def check_pairs(program: Program, sizes: Mapping[str, int]) -> None:
    """Refuse an int4 array in slow memory whose last axis does not fill whole bytes."""
    moved = {s.array: s for kernel in program.kernels for s in kernel.statements if isinstance(s, Load | Store)}
    for name in (name for name, move in moved.items() if move.dtype == "int4"):
        axes = program.term.wires[name].axes
        if not axes or sizes[axes[-1].name] % 2:
            found = f"{sizes[axes[-1].name]} along {axes[-1].name!r}" if axes else "one element"
            raise InputError(f"{name!r} is int4 and has {found}", box=name, remedy=_EVEN)
