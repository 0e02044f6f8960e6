"""The front hall: the class users hold. Each method is a door of a line or two into one room."""

from diagkit.diagram.diagram import Diagram
from diagkit.diagram.prediction import need_sizes
from diagkit.diagram.shown import Picture
from diagkit.diagram.table import cost_table
from diagkit.diagram.together import moved_together

__all__ = ["Diagram", "Picture", "cost_table", "moved_together", "need_sizes"]
