"""Costs: what a diagram moves, holds and computes, as formulas; nothing here runs anything."""

from diagkit.cost.exact import evaluate, relax
from diagkit.cost.memory import Column, Memory, memory
from diagkit.cost.roofline import Point, intensity, roofline_point
from diagkit.cost.table import CostRow, columns
from diagkit.cost.transfers import Transfer, Transfers, transfers, visits
from diagkit.cost.work import Task, Work, visible_pairs, work

__all__ = [
    "Column", "CostRow", "Memory", "Point", "Task", "Transfer", "Transfers", "Work", "columns", "evaluate", "intensity",
    "memory", "relax", "roofline_point", "transfers", "visible_pairs", "visits", "work",
]  # fmt: skip
