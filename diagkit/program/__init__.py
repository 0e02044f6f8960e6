"""Programs: the loop nest of a labelled diagram, shown as pseudocode, run in numpy, counting what it moves."""

from diagkit.program.laws import Law, law
from diagkit.program.levels import LevelCount
from diagkit.program.meter import Count, Held
from diagkit.program.nest import (
    Compute,
    For,
    Free,
    Init,
    Kernel,
    Load,
    ParFor,
    Span,
    Statement,
    Store,
    Update,
    first,
    last,
    walk,
)
from diagkit.program.nested import Nested, nested
from diagkit.program.program import Program, lower

__all__ = [
    "Compute", "Count", "For", "Free", "Held", "Init", "Kernel", "Law", "LevelCount", "Load", "Nested", "ParFor",
    "Program", "Span", "Statement", "Store", "Update", "first", "last", "law", "lower", "nested", "walk",
]  # fmt: skip
