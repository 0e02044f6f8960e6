"""The book: records that chapters leave, and the commands that run, store and check the chapters.

`python -m diagkit.book walk` runs them all and writes the report; `store` and `check` are for authors.
"""

from diagkit.book.errors import BookError
from diagkit.book.lanes import lanes
from diagkit.book.plots import Plot, agreement, curves, landscape, roofline, scatter
from diagkit.book.record import RECORD_TYPE, Record, record
from diagkit.book.refusal import Refusal, refusal
from diagkit.book.timing import Timing, timed

__all__ = [
    "RECORD_TYPE",
    "BookError",
    "Plot",
    "Record",
    "Refusal",
    "Timing",
    "agreement",
    "curves",
    "landscape",
    "lanes",
    "record",
    "refusal",
    "roofline",
    "scatter",
    "timed",
]
