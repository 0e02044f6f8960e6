"""Derivations: which labels are lawful, which rewrites preserve the numbers, and what a stream carries."""

from diagkit.derive.fuse import fuse
from diagkit.derive.group import group, ungroup
from diagkit.derive.stream import stream, unstream

__all__ = ["fuse", "group", "stream", "ungroup", "unstream"]
