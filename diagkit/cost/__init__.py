"""Costs: what a diagram moves, holds and computes, as formulas; nothing here runs anything."""

from diagkit.cost.bits import BitsLaw, bits
from diagkit.cost.exact import evaluate, relax
from diagkit.cost.hierarchy import (
    LevelOptimum,
    Network,
    Rule,
    caching,
    cross_saving,
    cross_transfer,
    level_optimum,
    network,
)
from diagkit.cost.legal import LegalTile, NoTileError, Price, legal_tile, tile_multiples
from diagkit.cost.levels import LevelTransfers, level_memory, level_transfers, level_work, nested_tiles
from diagkit.cost.memory import Column, Memory, memory
from diagkit.cost.optimum import Optimum, optimum
from diagkit.cost.points import Amounts, amounts, evaluate_at
from diagkit.cost.ranges import Ranges, ranges
from diagkit.cost.roofline import Point, intensity, roofline_point
from diagkit.cost.show import Shown, Table
from diagkit.cost.table import CostRow, columns, short
from diagkit.cost.transfers import Transfer, Transfers, transfers, visits
from diagkit.cost.work import Task, Work, visible_pairs, work

__all__ = [
    "Amounts", "BitsLaw", "Column", "CostRow", "LegalTile", "LevelOptimum", "LevelTransfers", "Memory", "Network",
    "NoTileError", "Optimum", "Point", "Price", "Ranges", "Rule", "Shown", "Table", "Task", "Transfer", "Transfers",
    "Work", "amounts", "bits", "caching", "columns", "cross_saving", "cross_transfer", "evaluate", "evaluate_at",
    "intensity", "legal_tile", "level_memory", "level_optimum", "level_transfers", "level_work", "memory",
    "nested_tiles", "network", "optimum", "ranges", "relax", "roofline_point", "short", "tile_multiples", "transfers",
    "visible_pairs", "visits", "work",
]  # fmt: skip
