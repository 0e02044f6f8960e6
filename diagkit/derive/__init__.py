"""Derivations: which labels are lawful, which rewrites preserve the numbers, and what a stream carries."""

from diagkit.derive.derivation import Derivation, Difference, derivation, diff, replay
from diagkit.derive.formats import accumulate, formats
from diagkit.derive.fuse import fuse
from diagkit.derive.group import group, ungroup
from diagkit.derive.part import part
from diagkit.derive.quantize import cast, quantize
from diagkit.derive.recipes import RECIPES, recipe
from diagkit.derive.rewrite import hoist, open_blocks
from diagkit.derive.split import split
from diagkit.derive.stream import stream, unstream
from diagkit.derive.transforms import permute, rotate, scale, smooth

__all__ = [
    "RECIPES", "Derivation", "Difference", "accumulate", "cast", "derivation", "diff", "formats", "fuse", "group",
    "hoist", "open_blocks", "part", "permute", "quantize", "recipe", "replay", "rotate", "scale", "smooth", "split",
    "stream", "ungroup", "unstream",
]  # fmt: skip
