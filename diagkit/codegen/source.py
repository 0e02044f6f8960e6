"""`Source`: the text of kernels as a value, each line with the box it comes from; and the file it lies in.

Compilers read kernels from real files. The file's name is a digest of its content, so that a file never
changes once it is written, and what a compiler keeps beside it stays true.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

_COMMENT_AT = 72


@dataclass(frozen=True)
class Line:
    """One line of source: `text` at nesting `depth`, made by the box (or moved wire) `column`, if any."""

    text: str
    column: str | None = None
    depth: int = 0

    def __str__(self) -> str:
        code = "    " * self.depth + self.text
        return f"{code:<{_COMMENT_AT}}  # {self.column}" if self.column and code.strip() else code.rstrip()


@dataclass(frozen=True)
class Entry:
    """What a caller needs to know of one kernel in a source.

    * `kernel`: name of the program's kernel; `function`: name of the function that runs it.
    * `loads`, `stores`: wires, in the order of the function's array parameters (loads first).
    * `parameters`: further parameters after the arrays, by name, in order.
    * `options`: what the compiler is told when it runs (name, number), where the target has such.

    >>> import diagkit as dk
    >>> made = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").kernel("numba").source
    >>> made.entry("E").loads, made.entry("E").stores
    (('X',), ('E',))
    """

    kernel: str
    function: str
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    options: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Source:
    """Kernels as text: `lines` in order, one `entry` per kernel of the program, for one `target`.

    It displays as its own text. `text` is what is compiled, `path()` the file that holds it.

    >>> import diagkit as dk
    >>> made = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").kernel("numba").source
    >>> made.text.splitlines()[2]
    'import math'
    >>> sorted(made.provenance()), made.entry("E").kernel, len(made.key), made.path().suffix
    (['E', 'X'], 'E', 16, '.py')
    """

    target: str
    name: str
    lines: tuple[Line, ...]
    entries: tuple[Entry, ...]

    @cached_property
    def text(self) -> str:
        """The source, ready to be compiled."""
        return "\n".join(map(str, self.lines)) + "\n"

    @property
    def key(self) -> str:
        """A digest of the text."""
        return hashlib.sha256(self.text.encode("utf-8")).hexdigest()[:16]

    def entry(self, kernel: str) -> Entry:
        """The entry that runs the program's kernel of that name."""
        return next(entry for entry in self.entries if entry.kernel == kernel)

    def provenance(self) -> dict[str, tuple[int, ...]]:
        """Line numbers (from 1) by the box that each line comes from."""
        found: dict[str, tuple[int, ...]] = {}
        for number, line in enumerate(self.lines, 1):
            if line.column:
                found[line.column] = (*found.get(line.column, ()), number)
        return found

    def path(self) -> Path:
        """The file that holds the text, written the first time it is asked for."""
        place = cache_directory() / f"{self.target}_{self.key}.py"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            draft = place.with_suffix(f".{os.getpid()}.part")
            draft.write_text(self.text, encoding="utf-8", newline="\n")
            draft.replace(place)
        return place

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<pre style="font-family: monospace; overflow-x: auto; line-height: 1.3">{escape(self.text)}</pre>'


def cache_directory() -> Path:
    """Where generated files lie: DIAGKIT_CACHE, else the user's cache directory (XDG_CACHE_HOME)."""
    if chosen := os.environ.get("DIAGKIT_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return Path(base or Path.home() / ".cache") / "diagkit" / "kernels"
