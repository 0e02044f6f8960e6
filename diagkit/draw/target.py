"""Where pictures are written to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diagkit.term import DiagkitError


def writable(path: Any, suffixes: Iterable[str]) -> Path:
    """`path`, if a picture of one of these kinds can be written there; else a DiagkitError that says what can.

    >>> writable("flash.svg", [".svg"]).name
    'flash.svg'
    """
    kinds = ", ".join(suffixes)
    if not isinstance(path, str | Path):
        raise DiagkitError(f"{path!r} is no path", remedy=f"write for example 'flash.svg'; kinds: {kinds}")
    target = Path(path)
    if target.suffix.lower() not in suffixes:
        raise DiagkitError(f"cannot draw into {target.name!r}", remedy=f"use a suffix of: {kinds}")
    if not target.parent.is_dir():
        raise DiagkitError(f"there is no folder {str(target.parent)!r}", remedy="make it first, or name another")
    return target
