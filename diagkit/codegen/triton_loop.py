"""The chunks of a Triton kernel's loop: how many there are, and which of them mask nothing."""

from __future__ import annotations

from itertools import groupby

from diagkit.codegen.source import Line
from diagkit.codegen.triton_frame import Frame
from diagkit.program import For

Statements = list[list[Line]]
"""Lines of several statements, kept apart."""


class Parts:
    """A loop in parts: chunks that are seen whole, and those before and after that may be masked.

    `begin` and `end` are its chunks, `last` the first chunk that is no longer whole.
    """

    def __init__(self, frame: Frame, loop: For, begin: str, end: str, last: str) -> None:
        self.frame, self.axis = frame, loop.axis
        self.lines: list[Line] = []
        end = self._named("end", end)
        if loop.full_lo == loop.lo and begin == "0":
            whole = self._named("whole", last if loop.hi == loop.full_hi else f"min({last}, {end})")
            part, count = self._name("edge"), 2
            self.start, self.stop = f"{whole} if {part} else 0", f"{end} if {part} else {whole}"
            self.condition = part
        else:
            first = ceiling(frame.bound(loop.full_lo), frame.tile(loop.axis))
            begin = self._named("begin", begin)
            seen = self._named("seen", f"min(max({first}, {begin}), {end})")
            whole = self._named("whole", f"max(min({last}, {end}), {seen})")
            part, count = self._name("part"), 3
            self.start = f"{begin} if {part} == 0 else ({seen} if {part} == 1 else {whole})"
            self.stop = f"{seen} if {part} == 0 else ({whole} if {part} == 1 else {end})"
            self.condition = f"{part} != 1"
        self.lines.append(Line(f"for {part} in tl.static_range({count}):", loop.axis))

    def _name(self, what: str) -> str:
        return self.frame.name.of((what, self.axis), what)

    def _named(self, what: str, text: str) -> str:
        """A chunk number as a variable, where it is not plain already."""
        if text.isdigit():
            return text
        name = self.frame.name.of((what, self.axis), f"{self.axis}_{what}")
        self.lines.append(Line(f"{name} = {text}", self.axis))
        return name


def merged(whole: Statements, edge: Statements, condition: str) -> Statements:
    """Statements that are the same in both parts, and the others under the condition that tells them apart."""
    found: Statements = []
    rows = [row for row in zip(whole, edge, strict=True) if row[0] or row[1]]
    for same, run in groupby(rows, key=lambda row: row[0] == row[1]):
        lines = list(run)
        if same:
            found += [row[0] for row in lines]
            continue
        masked, plain = ([line for row in lines for line in row[side]] for side in (1, 0))
        found.append([Line(f"if {condition}:"), *(Line(line.text, line.column, line.depth + 1) for line in masked)])
        if plain:
            found.append([Line("else:"), *(Line(line.text, line.column, line.depth + 1) for line in plain)])
    return found


def chunks(lo: str, hi: str, tile: int) -> tuple[str, str]:
    """The first chunk that meets positions from `lo` up to but without `hi`, and the end of them; there is
    none where lo >= hi, though one chunk may hold both."""
    begin, end = quotient(lo, tile), ceiling(hi, tile)
    if lo == "0":
        return begin, end
    if lo.isdigit() and hi.isdigit():
        return begin, end if int(lo) < int(hi) else begin
    return begin, f"({end} if {lo} < {hi} else {begin})"


def quotient(position: str, tile: int) -> str:
    """The chunk that holds a position."""
    if position.isdigit():
        return str(int(position) // tile)
    return position if tile == 1 else f"({position}) // {tile}"


def ceiling(position: str, tile: int) -> str:
    """The first chunk that begins at a position or after it."""
    if position.isdigit():
        return str(-(-int(position) // tile))
    return position if tile == 1 else f"tl.cdiv({position}, {tile})"
