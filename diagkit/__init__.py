"""diagkit: draw the algorithm once; the same value runs, counts its transfers and becomes a kernel."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from diagkit.diagram import Diagram
from diagkit.ops import *
from diagkit.ops import __all__ as _operations
from diagkit.ops.foreign import missing
from diagkit.term import *
from diagkit.term import __all__ as _ground

if TYPE_CHECKING:
    from diagkit import machine
    from diagkit.book.lanes import lanes
    from diagkit.book.plots import agreement, curves, landscape, roofline, scatter
    from diagkit.book.record import record
    from diagkit.book.refusal import refusal
    from diagkit.book.timing import timed
    from diagkit.diagram.errors import rmse
    from diagkit.diagram.ladder import ladder
    from diagkit.explore import Explorer
    from diagkit.machine import activations

__version__ = "0.1.0"

_LATER = {"activations": "diagkit.machine", "Explorer": "diagkit.explore"}
_LATER |= {"ladder": "diagkit.diagram.ladder", "rmse": "diagkit.diagram.errors"}
_BOOK = ("agreement", "curves", "landscape", "lanes", "record", "refusal", "roofline", "scatter", "timed")
_LATER |= dict.fromkeys(_BOOK, "diagkit.book")

__all__ = ["Diagram", "Explorer", "activations", "agreement", "curves", "landscape", "lanes", "machine", "record"]
__all__ += ["ladder", "refusal", "rmse", "roofline", "scatter", "timed", *_operations, *_ground]


def __getattr__(name: str) -> Any:
    """What chapters use is loaded when it is first asked for."""
    if name == "machine":
        return import_module("diagkit.machine")
    if name not in _LATER:
        raise missing(name, __all__)
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    """What algorithms are written with, for completion; the ground under it stays reachable by name."""
    ground = [name for name in _ground if name[0].isupper() and name.isascii() and not name.isupper()]
    return sorted({*__all__} - {*_ground} | {*ground, "__all__", "__doc__", "__version__"})
