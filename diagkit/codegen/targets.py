"""The targets: one row each. A new target is a module with `write(program) -> Source`, and its row here."""

from __future__ import annotations

from importlib import import_module

from diagkit.codegen.source import Source
from diagkit.program import Program
from diagkit.term import InputError

TARGETS: dict[str, str] = {
    "numba": "diagkit.codegen.numba_source",
    "triton": "diagkit.codegen.triton_source",
}
"""The module that writes each target's source."""


def source(program: Program, target: str = "numba") -> Source:
    """The kernels of `program` as source text for `target`.

    Every tile needs a number; sizes of axes may stay open and are then read from the arrays. Raises
    InputError for an unknown target or an open tile, FormatError for what the target cannot hold.
    """
    check_target(target)
    check_tiles(program)
    written: Source = import_module(TARGETS[target]).write(program)
    return written


def check_target(target: str) -> None:
    """Refuse a target that has no row."""
    if target not in TARGETS:
        raise InputError(f"no target {target!r}", remedy=f"use one of: {', '.join(TARGETS)}")


def check_tiles(program: Program) -> None:
    """Refuse a program in which the size of a tile is open."""
    open_tiles = [name for name in program.missing if name not in program.term.open_sizes]
    if open_tiles:
        raise InputError(
            f"tile {open_tiles[0]!r} has no number yet",
            axis=open_tiles[0],
            remedy=f"give {', '.join(f'{name}=...' for name in open_tiles)} in elements",
        )
