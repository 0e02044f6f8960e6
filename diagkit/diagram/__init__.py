"""The front hall: the class users hold. Each method is a door of a line or two into one room."""

from diagkit.diagram.diagram import Diagram
from diagkit.diagram.table import cost_table

__all__ = ["Diagram", "cost_table"]
