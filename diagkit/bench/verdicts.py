"""Ten checks of a compiled kernel, each with what was found and whether it is as it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagkit.bench.architectures import Architecture
from diagkit.bench.compiled import Compiled

_REGISTER_FILE = 65_536
_WIDE = 0.9


@dataclass(frozen=True)
class Verdict:
    """One check: its name, what was found, and whether it passed (None: it does not apply here).

    >>> Verdict("no spills", "0 bytes a thread", True).mark, Verdict("few waits", "none of this kind", None).mark
    ('✓', '–')
    """

    name: str
    text: str
    passed: bool | None

    @property
    def mark(self) -> str:
        """A sign for the table."""
        return {True: "✓", False: "✗", None: "–"}[self.passed]


Found = tuple[str, bool | None]


def verdicts(one: Compiled, row: Architecture) -> tuple[Verdict, ...]:
    """Every check, in the order of `CHECKS`."""
    return tuple(Verdict(name, *check(one, row)) for name, check in CHECKS.items())


def _fits(one: Compiled, row: Architecture) -> Found:
    return f"{one.shared_bytes:,} of {row.shared_bytes:,} bytes", one.shared_bytes <= row.shared_bytes


def _registers(one: Compiled, row: Architecture) -> Found:
    taken = one.registers * 32 * one.warps
    return f"{taken:,} of {_REGISTER_FILE:,}", taken <= _REGISTER_FILE


def _spills(one: Compiled, row: Architecture) -> Found:
    return f"{one.spilled_bytes:,} bytes a thread", one.spilled_bytes == 0


def _kind(one: Compiled, row: Architecture) -> Found:
    """Every product on the matrix units of its format; fp32 in full precision has none."""
    wanted = {row.matrix[kind] for kind in one.formats if kind in row.matrix}
    found = ", ".join(f"{n} {kind}" for kind, n in one.matrix.items()) or "none"
    if not one.formats or (not wanted and row.matrix):
        return f"{found}; {', '.join(one.formats) or 'no product'} asks for none", None
    right = bool(one.matrix) and wanted == set(one.matrix)
    return f"{found}; {', '.join(one.formats)} wants {', '.join(sorted(wanted)) or 'some'}", right


def _waits(one: Compiled, row: Architecture) -> Found:
    matrix = sum(n for kind, n in one.counts.items() if kind in one.matrix)
    if not one.waits:
        return "no waits of this kind", None
    return f"{one.waits} for {matrix} matrix instructions", 2 * one.waits <= matrix


def _serial(one: Compiled, row: Architecture) -> Found:
    return ", ".join(one.notes) or "no notes", not one.notes


def _shadow(one: Compiled, row: Architecture) -> Found:
    inside, every = one.exponentials
    if not every or not one.matrix:
        return "no exponentials beside products", None
    return f"{inside} of {every} run while matrix instructions do", inside > 0


def _plain(one: Compiled, row: Architecture) -> Found:
    if not one.looped:
        return "no loop", None
    found = f"{one.moves['plain']} in the loop, {one.moves['async']} asynchronous"
    remedy = f": store {', '.join(one.crosswise)} transposed, 8-bit products sum along the last axis"
    right = one.moves["plain"] == 0
    return found + (remedy if one.crosswise and not right else ""), right


def _wide(one: Compiled, row: Architecture) -> Found:
    every = one.moves["plain"] + one.moves["async"]
    if not every:
        return "no loads there", None
    return f"{one.moves['wide']} of {every} move 16 bytes a thread", one.moves["wide"] >= _WIDE * every


def _threads(one: Compiled, row: Architecture) -> Found:
    blocks = min(_REGISTER_FILE // max(one.registers * 32 * one.warps, 1), row.shared_bytes // max(one.shared_bytes, 1))
    return f"{blocks} at once on a multiprocessor", blocks >= 1


CHECKS: dict[str, Callable[[Compiled, Architecture], Found]] = {
    "shared memory fits": _fits,
    "registers fit": _registers,
    "no spills": _spills,
    "right matrix instructions": _kind,
    "few waits": _waits,
    "nothing serialised": _serial,
    "exponentials among products": _shadow,
    "no plain loads in the loop": _plain,
    "wide loads": _wide,
    "a block finds room": _threads,
}
"""The ten checks by name."""
