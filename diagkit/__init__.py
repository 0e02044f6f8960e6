"""diagkit: draw the algorithm once; the same value runs, counts its transfers and becomes a kernel."""

from diagkit.book import curves, landscape, record, refusal, roofline, timed
from diagkit.diagram import Diagram
from diagkit.machine import activations
from diagkit.ops import *
from diagkit.ops import __all__ as _operations
from diagkit.term import *
from diagkit.term import __all__ as _ground

__version__ = "0.1.0"
__all__ = ["Diagram", "activations", "curves", "landscape", "record", "refusal", "roofline", "timed"]
__all__ += [*_operations, *_ground]
