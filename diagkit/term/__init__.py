"""The ground: the value as plain data, labels, sizes, errors. Imports nothing of diagkit."""

from diagkit.term.alias import Alias, Run, at_least, shifted
from diagkit.term.boxes import (
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
    elements,
    names,
    rename_box,
)
from diagkit.term.boxes import check_name as check_name
from diagkit.term.calls import nearest as nearest
from diagkit.term.calls import public as public
from diagkit.term.calls import speaking as speaking
from diagkit.term.calls import spoken as spoken
from diagkit.term.check import REDUCTIONS as REDUCTIONS
from diagkit.term.check import promote, wire_format
from diagkit.term.errors import (
    AxisError,
    CallError,
    DiagkitError,
    FormatError,
    FuseError,
    GroupError,
    InputError,
    LabelError,
    MissingKeyError,
    MissingNameError,
    StreamError,
    TermError,
)
from diagkit.term.formats import FORMATS, check_format
from diagkit.term.labels import LEVEL_NAMES, Label, State, Step, StreamForm, tile_size
from diagkit.term.levels import CLUSTERS, GPU, NETWORK, Level, LevelGraph, at_level, depth, outer_tiles
from diagkit.term.sizes import accepted as accepted
from diagkit.term.sizes import as_float as as_float
from diagkit.term.sizes import check_sizes as check_sizes
from diagkit.term.sizes import check_whole as check_whole
from diagkit.term.sizes import memory_bytes as memory_bytes
from diagkit.term.symbols import Expr, apply, arg, coordinate, exact, plain, size, text, value
from diagkit.term.symbols import empty as empty
from diagkit.term.symbols import finite as finite
from diagkit.term.symbols import quotient as quotient
from diagkit.term.symbols import where as where
from diagkit.term.term import Region, Term, Wire, flatten

__all__ = [
    "CLUSTERS",
    "FORMATS",
    "GPU",
    "KINDS",
    "LEVEL_NAMES",
    "NETWORK",
    "PRIMITIVES",
    "Alias",
    "Array",
    "Axes",
    "Axis",
    "AxisError",
    "Block",
    "Box",
    "CallError",
    "Cast",
    "Contract",
    "DiagkitError",
    "Expr",
    "FormatError",
    "FuseError",
    "GroupError",
    "Index",
    "InputError",
    "Label",
    "LabelError",
    "Level",
    "LevelGraph",
    "Map",
    "MissingKeyError",
    "MissingNameError",
    "Reduce",
    "Region",
    "Run",
    "State",
    "Step",
    "StreamError",
    "StreamForm",
    "Term",
    "TermError",
    "View",
    "Wire",
    "apply",
    "arg",
    "at_least",
    "at_level",
    "check_format",
    "coordinate",
    "depth",
    "elements",
    "exact",
    "flatten",
    "names",
    "outer_tiles",
    "plain",
    "promote",
    "rename_box",
    "shifted",
    "size",
    "text",
    "tile_size",
    "value",
    "wire_format",
]  # fmt: skip
