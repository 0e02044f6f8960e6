"""The ground: the value as plain data, labels, sizes, errors. Imports nothing of diagkit."""

from diagkit.term.boxes import (
    FORMATS,
    KINDS,
    PRIMITIVES,
    Array,
    Axes,
    Axis,
    Block,
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    View,
    check_format,
    elements,
    names,
    rename_box,
)
from diagkit.term.check import promote, wire_format
from diagkit.term.errors import (
    AxisError,
    DiagkitError,
    FormatError,
    FuseError,
    GroupError,
    InputError,
    LabelError,
    StreamError,
    TermError,
)
from diagkit.term.labels import LEVEL_NAMES, Label, State, Step, StreamForm, tile_size
from diagkit.term.levels import CLUSTERS, GPU, NETWORK, Level, LevelGraph, at_level, depth, outer_tiles
from diagkit.term.symbols import Expr, apply, arg, coordinate, exact, finite, plain, quotient, size, text, value, where
from diagkit.term.term import Region, Term, Wire, flatten

__all__ = [
    "CLUSTERS", "FORMATS", "GPU", "KINDS", "LEVEL_NAMES", "NETWORK", "PRIMITIVES", "Array", "Axes", "Axis", "AxisError",
    "Block", "Box", "Cast", "Contract", "DiagkitError", "Expr", "FormatError", "FuseError", "GroupError", "Index",
    "InputError", "Label", "LabelError", "Level", "LevelGraph", "Map", "Reduce", "Region", "State", "Step",
    "StreamError", "StreamForm", "Term", "TermError", "View", "Wire", "apply", "arg", "at_level", "check_format",
    "coordinate", "depth", "elements", "exact", "finite", "flatten", "names", "outer_tiles", "plain", "promote",
    "quotient", "rename_box", "size", "text", "tile_size", "value", "where", "wire_format",
]  # fmt: skip
