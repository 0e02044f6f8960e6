"""Derivations: which labels are lawful, which rewrites preserve the numbers, and what a stream carries."""

from diagkit.derive.fuse import fuse
from diagkit.derive.group import group, ungroup

__all__ = ["fuse", "group", "ungroup"]
