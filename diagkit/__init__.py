"""diagkit: draw the algorithm once; the same value runs, counts its transfers and becomes a kernel."""

from diagkit.book import curves, landscape, record, refusal, roofline, timed
from diagkit.diagram import Diagram
from diagkit.machine import activations
from diagkit.ops import *  # noqa: F403  (the public vocabulary is ops' own __all__)
from diagkit.ops import __all__ as _operations
from diagkit.term import *  # noqa: F403  (what a repr is made of, so that it evaluates back in `vars(diagkit)`)
from diagkit.term import __all__ as _ground

__version__ = "0.1.0"
__all__ = ["Diagram", "activations", "curves", "landscape", "record", "refusal", "roofline", "timed", *_operations, *_ground]
