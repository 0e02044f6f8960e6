"""Numbers as users give them: sizes of axes and tiles by name, counts, seeds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import index
from typing import Any

from diagkit.term.errors import InputError
from diagkit.term.term import Term


def check_whole(value: Any, name: str, least: int = 0) -> int:
    """`value` as a whole number of at least `least`; else an InputError under that name.

    >>> check_whole(3, "trials", 1)
    3
    >>> check_whole(0, "trials", 1)
    Traceback (most recent call last):
    ...
    diagkit.term.errors.InputError: trials cannot be 0; use a whole number >= 1
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or index(value) < least:
        raise InputError(f"{name} cannot be {value!r}", axis=name, remedy=f"use a whole number >= {least}")
    return index(value)


def as_float(amount: Any, name: str) -> float:
    """An exact amount as a float, for what is divided by a rate; an InputError where no float is so large.

    >>> as_float(10**20, "moved")
    1e+20
    >>> as_float(10**400, "moved")
    Traceback (most recent call last):
    ...
    diagkit.term.errors.InputError: moved is a number of 1329 bits, and a float holds 1024; use smaller sizes
    """
    try:
        return float(amount)
    except OverflowError:
        reason = f"{name} is a number of {int(amount).bit_length()} bits, and a float holds 1024"
        raise InputError(reason, remedy="use smaller sizes") from None


def memory_bytes() -> int:
    """Physical memory, or 0 where the system does not tell (Windows)."""
    wanted = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    if not all(name in getattr(os, "sysconf_names", {}) for name in wanted):
        return 0
    return os.sysconf(wanted[0]) * os.sysconf(wanted[1])


def accepted(term: Term, deepest: int = 1) -> tuple[str, ...]:
    """What takes a number: the symbolic axes, then the symbolic tiles down to level `deepest`.

    >>> from diagkit.term.boxes import Array, Axis
    >>> from diagkit.term.labels import Label, tile_size
    >>> row = Term((Array("X", (Axis("x"),)),), (), ("X",), labels=(Label("group", "x", tile_size("g_x", "x", "g")),))
    >>> accepted(row)
    ('x', 'g_x')
    """
    labels = (label for label in term.labels if label.level <= deepest)
    tiles = [str(symbol) for label in labels for symbol in sorted(label.tile.free_symbols, key=str)]
    return tuple(dict.fromkeys([*term.open_sizes, *tiles]))


def check_sizes(term: Term, sizes: Mapping[str, Any], deepest: int = 1) -> dict[str, int]:
    """`sizes`, if each names an axis or a tile of `term` and is a whole number that it can be.

    Errors: InputError that names the axis or tile and says what is accepted.
    """
    known = ", ".join(accepted(term, deepest)) or "none"
    for name, value in sizes.items():
        if name in term.axes and term.axes[name].length == value:
            continue
        if name in term.axes and term.axes[name].derived:
            rule, bases = term.axes[name].size, sorted(s.name for s in term.axes[name].size.free_symbols)
            reason = f"the size of {name!r} is derived: {rule}"
            raise InputError(reason, axis=name, remedy=f"give {', '.join(bases)} alone")
        if name not in accepted(term, deepest):
            formats = '; a number format is set before: .formats("fp16")' if name in ("dtype", "format") else ""
            reason = f"{term.name} has no open size or tile {name!r}"
            raise InputError(reason, axis=name, remedy=f"it takes: {known}{formats}")
        check_whole(value, name, 0 if name in term.open_sizes else 1)
    return {name: index(value) for name, value in sizes.items()}
