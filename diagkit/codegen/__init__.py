"""Kernels as text: the loop nest of a program, written for one target.

A target is one function from a program to its `Source`; `TARGETS` says in which module it lies, so that
nothing of a target loads before it is asked for.
"""

from diagkit.codegen.scalars import Dialect, Text, position, scalar
from diagkit.codegen.source import Entry, Line, Source, cache_directory
from diagkit.codegen.targets import TARGETS, check_target, check_tiles, source
from diagkit.codegen.writer import Names, Writer, identifier

__all__ = [
    "TARGETS", "Dialect", "Entry", "Line", "Names", "Source", "Text", "Writer", "cache_directory", "check_target",
    "check_tiles", "identifier", "position", "scalar", "source",
]  # fmt: skip
