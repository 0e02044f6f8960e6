"""The front hall: the class users hold. Each method is a door of a line or two into one room."""

from diagkit.diagram.diagram import Diagram

__all__ = ["Diagram"]
