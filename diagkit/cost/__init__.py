"""Costs: what a diagram moves, holds and computes, as formulas; nothing here runs anything."""

from diagkit.cost.exact import evaluate, relax
from diagkit.cost.legal import LegalTile, legal_tile, tile_multiples
from diagkit.cost.memory import Column, Memory, memory
from diagkit.cost.optimum import Optimum, optimum
from diagkit.cost.roofline import Point, intensity, roofline_point
from diagkit.cost.table import CostRow, columns, short
from diagkit.cost.transfers import Transfer, Transfers, transfers, visits
from diagkit.cost.work import Task, Work, visible_pairs, work

__all__ = [
    "Column", "CostRow", "LegalTile", "Memory", "Optimum", "Point", "Task", "Transfer", "Transfers", "Work", "columns",
    "evaluate", "intensity", "legal_tile", "memory", "optimum", "relax", "roofline_point", "short", "tile_multiples",
    "transfers", "visible_pairs", "visits", "work",
]  # fmt: skip
