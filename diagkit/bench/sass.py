"""Machine code read as text: which instructions there are, where the loops lie, what the assembler said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

MATRIX = ("HMMA", "IMMA", "QMMA", "HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA")
"""Instructions that multiply matrices: per warp, per warpgroup (GMMA), per block (UTC)."""

_WARPGROUP = ("HGMMA", "QGMMA", "IGMMA")

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_LABEL = re.compile(r"^(\.L_[\w.]+):")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its address in bytes, its name with modifiers, its operands as text."""

    address: int
    name: str
    operands: str = ""

    @property
    def kind(self) -> str:
        """The name without modifiers."""
        return self.name.split(".")[0]


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel, in order, and the address of each label."""

    instructions: tuple[Instruction, ...]
    labels: tuple[tuple[str, int], ...]

    @cached_property
    def loops(self) -> tuple[tuple[Instruction, ...], ...]:
        """The bodies of the innermost loops: from where a branch backwards leads, to the branch."""
        spans = [(at, i.address) for i in self.instructions if (at := self._target(i)) is not None and at < i.address]
        inner = [s for s in spans if not any(s != t and s[0] <= t[0] and t[1] <= s[1] for t in spans)]
        return tuple(tuple(i for i in self.instructions if a <= i.address <= b) for a, b in sorted(set(inner)))

    def _target(self, instruction: Instruction) -> int | None:
        found = re.search(r"`\((\.L_[\w.]+)\)", instruction.operands) if instruction.kind == "BRA" else None
        return dict(self.labels).get(found[1]) if found else None

    @property
    def main(self) -> tuple[Instruction, ...]:
        """The loop with the most matrix instructions, else the longest; all instructions where there is none."""
        return max(self.loops, key=lambda loop: (matrix_count(loop), len(loop)), default=self.instructions)


def parse(text: str) -> Code:
    """The machine code that nvdisasm writes.

    >>> code = parse(".L_x_1:\\n /*0010*/ HMMA.16816.F32 R4, R8 ;\\n /*0020*/ @P0 BRA `(.L_x_1) ;")
    >>> [instruction.kind for instruction in code.loops[0]]
    ['HMMA', 'BRA']
    """
    found: list[Instruction] = []
    labels: list[tuple[str, int]] = []
    waiting: list[str] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            waiting.append(label[1])
        elif match := _INSTRUCTION.match(line):
            found.append(Instruction(int(match[1], 16), match[2], match[3].strip()))
            labels += [(name, found[-1].address) for name in waiting]
            waiting = []
    return Code(tuple(found), tuple(labels))


def count(instructions: Iterable[Instruction]) -> Counter[str]:
    """How many of each kind."""
    return Counter(instruction.kind for instruction in instructions)


def matrix_count(instructions: Iterable[Instruction]) -> int:
    """How many multiply matrices."""
    return sum(instruction.kind in MATRIX for instruction in instructions)


def waits(instructions: Iterable[Instruction]) -> int:
    """How often a warpgroup waits for its matrix instructions."""
    return sum(i.name.startswith("WARPGROUP.DEPBAR") for i in instructions)


def exponentials_within(loop: Iterable[Instruction]) -> tuple[int, int]:
    """(exponentials that run while matrix instructions do, all exponentials) of a loop.

    A warpgroup's matrix instructions run on until it waits for them; those of one warp or one block count
    from the first to the last.

    >>> wait = Instruction(32, "WARPGROUP.DEPBAR.LE", "gsb0, 0x0")
    >>> power = Instruction(48, "MUFU.EX2", "R1, R2")
    >>> exponentials_within([Instruction(16, "HGMMA.64x128x16.F32"), wait, power])
    (0, 1)
    """
    listed = list(loop)
    powers = [place for place, i in enumerate(listed) if i.name.startswith("MUFU.EX2")]
    busy = _until_waits(listed) if any(i.kind in _WARPGROUP for i in listed) else _first_to_last(listed)
    return sum(place in busy for place in powers), len(powers)


def _first_to_last(loop: list[Instruction]) -> set[int]:
    places = [place for place, i in enumerate(loop) if i.kind in MATRIX]
    return set(range(places[0], places[-1])) if places else set()


def _until_waits(loop: list[Instruction]) -> set[int]:
    """Places at which matrix instructions are under way; what the end of the loop leaves goes on at its start."""
    under_way, found = False, set()
    for place, i in [*enumerate(loop), *enumerate(loop)]:
        if i.kind in _WARPGROUP:
            under_way = True
        elif i.name.startswith("WARPGROUP.DEPBAR") and i.operands.endswith("0x0"):
            under_way = False
        if under_way:
            found.add(place)
    return found


def loads(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Global loads: "plain" through registers, "async" straight to shared memory, "wide" 16 bytes a thread."""
    moves = [i for i in instructions if i.kind in ("LDG", "LDGSTS", "UTMALDG", "UBLKCP")]
    plain = sum(i.kind == "LDG" for i in moves)
    wide = sum(".128" in i.name or i.kind in ("UTMALDG", "UBLKCP") for i in moves)
    return {"plain": plain, "async": len(moves) - plain, "wide": wide}


@dataclass(frozen=True)
class Log:
    """What the assembler said: registers per thread, bytes spilled (stores, loads) and of stack, and its
    notes on matrix instructions that it had to serialise (C75xx)."""

    registers: int
    spilled_bytes: tuple[int, int]
    stack_bytes: int
    notes: tuple[str, ...]


def parse_log(text: str) -> Log:
    """The assembler's log, as ``ptxas -v`` writes it."""

    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        return int(found[1]) if found else 0

    spilled = number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes spill loads")
    notes = tuple(sorted(set(re.findall(r"\(?(C75\d\d)\)?", text))))
    return Log(number(r"Used (\d+) registers"), spilled, number(r"(\d+) bytes stack frame"), notes)
