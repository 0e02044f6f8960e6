"""Widgets: machine, format, sizes and tiles to turn; picture, costs, roofline and times move together."""

from diagkit.explore.explorer import VIEW, Explorer

__all__ = ["VIEW", "Explorer"]
