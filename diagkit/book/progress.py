"""A progress bar on standard error: it moves on a terminal, and is one line per chapter elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

BAR = 24


class Progress:
    """How many cells of all chapters have run. ASCII only: a terminal may know no other letters."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.done = max(total, 1), 0
        self.stream = stream or sys.stderr

    def line(self, text: str) -> str:
        """The bar as it stands, with a text behind it.

        >>> Progress(4).line("01 Naive attention")
        '[------------------------]   0% 01 Naive attention'
        """
        share = min(self.done / self.total, 1.0)
        filled = round(BAR * share)
        return f"[{'#' * filled}{'-' * (BAR - filled)}] {share:4.0%} {text}"

    def step(self, text: str) -> None:
        """One more cell has run."""
        self.done += 1
        if self.stream.isatty():
            self._write(text, "")

    def end(self, text: str, cells: int) -> None:
        """A chapter of so many cells has ended after the cells up to `cells` in all."""
        self.done = cells
        self._write(text, "\n")

    def _write(self, text: str, ending: str) -> None:
        """Write the line; on a terminal over the one before, all of it."""
        width = shutil.get_terminal_size().columns - 1
        shown = f"\r{self.line(text)[:width]:<{width}}" if self.stream.isatty() else self.line(text)
        self.stream.write(shown + ending)
        self.stream.flush()
