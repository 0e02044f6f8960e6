"""Derivations: which labels are lawful, which rewrites preserve the numbers, and what a stream carries."""

from diagkit.derive.derivation import Derivation, Difference, derivation, diff, replay
from diagkit.derive.formats import formats
from diagkit.derive.fuse import fuse
from diagkit.derive.group import group, ungroup
from diagkit.derive.rewrite import hoist, open_blocks
from diagkit.derive.split import split
from diagkit.derive.stream import stream, unstream

__all__ = [
    "Derivation", "Difference", "derivation", "diff", "formats", "fuse", "group", "hoist", "open_blocks", "replay",
    "split", "stream", "ungroup", "unstream",
]  # fmt: skip
