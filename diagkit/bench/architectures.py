"""The GPU generations that kernels are compiled for, and what each cannot do: refused by name, before launch."""

from __future__ import annotations

from dataclasses import dataclass

from diagkit import machine
from diagkit.program import Kernel, Program
from diagkit.term import FormatError, InputError

_WARP = {"fp16": "HMMA", "bf16": "HMMA", "tf32": "HMMA", "int8": "IMMA"}
_GROUP = {"fp16": "HGMMA", "bf16": "HGMMA", "tf32": "HGMMA", "fp8e4m3": "QGMMA", "fp8e5m2": "QGMMA", "int8": "IGMMA"}
_BLOCK = {kind: f"UTC{name[0]}MMA" for kind, name in _GROUP.items()} | {"int8": "IMMA"}


@dataclass(frozen=True)
class Architecture:
    """One generation: `name` as compilers call it, the `machine` that stands for it, the formats that its
    kernels cannot hold (`lacks`), and the instruction that multiplies matrices of each format."""

    name: str
    machine: str
    lacks: tuple[str, ...]
    matrix: dict[str, str]

    @property
    def capability(self) -> int:
        """The number in the name: 90 for sm_90."""
        return int(self.name.removeprefix("sm_"))

    @property
    def shared_bytes(self) -> int:
        """The most shared memory that one block may take."""
        return machine.load(self.machine).capacity("shared", per_block=True)


ARCHITECTURES: dict[str, Architecture] = {
    row.name: row
    for row in (
        Architecture("sm_75", "T4", ("bf16", "fp8e4m3", "fp8e5m2"), {}),
        Architecture("sm_80", "A100-SXM-80GB", ("fp8e4m3", "fp8e5m2"), _WARP),
        Architecture("sm_89", "L40S", (), {**_WARP, "fp8e4m3": "QMMA", "fp8e5m2": "QMMA"}),
        Architecture("sm_90", "H100-SXM", (), _GROUP),
        Architecture("sm_100", "B200", (), _BLOCK),
    )
}
"""By name. Triton gives sm_75 no matrix instructions, and int8 on sm_100 those of single warps."""


def architecture(name: str) -> Architecture:
    """The row of that name, or of the machine of that name; an InputError that lists them else.

    >>> architecture("sm_90").machine, architecture("H200-SXM").name, architecture("h100").name
    ('H100-SXM', 'sm_90', 'sm_90')
    """
    targets = [name] if name in ARCHITECTURES else sorted(_targets_of_machines(str(name)))
    if len(targets) == 1 and targets[0] in ARCHITECTURES:
        return ARCHITECTURES[targets[0]]
    known = ", ".join(f"{row.name} ({row.machine})" for row in ARCHITECTURES.values())
    made_for = f"; it is a {targets[0]}, which no kernel is compiled for" if targets else ""
    raise InputError(f"no target {name!r}{made_for}", remedy=f"use one of: {known}, or another machine's name")


def _targets_of_machines(name: str) -> set[str]:
    """What the machines are called by compilers whose names begin so: all of one, or none is meant."""
    near = [known for known in machine.names() if name and known.lower().startswith(name.lower())]
    return {machine.load(known).text("target") for known in near}


def nearest(capability: tuple[int, int]) -> Architecture | None:
    """The newest generation that a device of that compute capability can run code for; None for older ones."""
    known = [row for row in ARCHITECTURES.values() if row.capability <= 10 * capability[0] + capability[1]]
    return max(known, key=lambda row: row.capability, default=None)


def check_formats(program: Program, row: Architecture) -> None:
    """Refuse a program that moves or makes a format which the generation lacks."""
    for kernel in program.kernels:
        for wire in kernel.wires:
            if wire.dtype in row.lacks:
                usable = [kind for kind in ("fp16", "bf16", "fp8e4m3", "fp32") if kind not in row.lacks]
                raise FormatError(
                    f"{row.name} has no {wire.dtype}, the format of {wire.name!r}",
                    box=wire.name,
                    remedy=f"there: {', '.join(usable)}",
                )


def check_shared(kernel: Kernel, shared_bytes: int, device: str, limit_bytes: int) -> None:
    """Refuse a kernel that takes more shared memory than one block on `device` may have."""
    if shared_bytes > limit_bytes:
        raise FormatError(
            f"kernel {kernel.name!r} takes {shared_bytes:,} bytes of shared memory, a block on {device} "
            f"may have {limit_bytes:,}",
            box=kernel.name,
            remedy=f"use smaller tiles than {tiles_of(kernel)}, or a narrower format",
        )


def tiles_of(kernel: Kernel) -> str:
    """The kernel's tiles as words."""
    spans = [span for span in kernel.spans if span.role != "whole"]
    return ", ".join(f"{span.axis} by {span.tile}" for span in spans) or "the whole axes"
