"""Optima in closed form, found from the shape of the two sums and from nothing else.

Given transfers ``H = c + sum(a_t * product(g ** e_t))`` and memory ``m_0 + sum(m_u * product(g ** f_u)) <= M``,
the memory is used up at the optimum. Each function returns the tiles, or None where its shape is not met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.cost.posynomial import Posynomial

Tiles = dict[Any, Any]


@dataclass(frozen=True)
class Shape:
    """A way to solve: its name, and the tiles it finds with the exponent of M in each term of H."""

    name: str
    solve: Callable[[Posynomial, Posynomial, Any], tuple[Tiles, list[Any]] | None]


def one_tile(transfers: Posynomial, memory: Posynomial, limit: Any) -> tuple[Tiles, list[Any]] | None:
    """One tile: the largest that fits. Memory of one power of it, or of a power and its square."""
    if len(transfers.variables) != 1:
        return None
    powers = sorted(power for (power,), _ in memory.active)
    factors = {power: factor for (power,), factor in memory.active}
    room = limit - memory.constant
    if len(powers) == 1:
        tile = (room / factors[powers[0]]) ** (1 / powers[0])
    elif len(powers) == 2 and powers[1] == 2 * powers[0]:
        tile = _root(factors[powers[1]], factors[powers[0]], room) ** (1 / powers[0])
    else:
        return None
    return {transfers.variables[0]: tile}, [-power / powers[-1] for (power,), _ in transfers.active]


def _root(square: Any, linear: Any, room: Any) -> Any:
    """The positive y with square * y**2 + linear * y = room."""
    half = linear / (2 * square)
    return sympy.sqrt(room / square + half**2) - half


def as_many_terms_as_tiles(transfers: Posynomial, memory: Posynomial, limit: Any) -> tuple[Tiles, list[Any]] | None:
    """Memory is one product, and transfers have one active term per tile: each term has a fixed share.

    The shares d_t and the exponent b solve ``sum(d_t * e_t) = -b * f``, ``sum(d_t) = 1``; then the active
    part is ``product((a_t / d_t) ** d_t) * (m / M) ** b`` (a geometric program of difficulty zero).
    """
    count = len(transfers.variables)
    if len(memory.active) != 1 or len(transfers.active) != count:
        return None
    (capacity, weight), room = memory.active[0], limit - memory.constant
    exponents = sympy.Matrix([powers for powers, _ in transfers.active])
    if exponents.det() == 0:
        return None
    system = exponents.T.row_join(sympy.Matrix(capacity)).col_join(sympy.Matrix([[1] * count + [0]]))
    if system.det() == 0:
        return None
    *shares, beta = system.LUsolve(sympy.Matrix([0] * count + [1]))
    if any(share <= 0 for share in shares):
        return None
    factors = [factor for _, factor in transfers.active]
    parts = ((factor / share) ** share for factor, share in zip(factors, shares, strict=True))
    whole = sympy.Mul(*parts) * (weight / room) ** beta
    back = exponents.inv()
    logs = [share * whole / factor for factor, share in zip(factors, shares, strict=True)]
    tiles = [sympy.Mul(*(one**power for one, power in zip(logs, back.row(n), strict=True))) for n in range(count)]
    return dict(zip(transfers.variables, map(sympy.powsimp, tiles), strict=True)), [beta] * count


def two_tiles_in_proportion(transfers: Posynomial, memory: Posynomial, limit: Any) -> tuple[Tiles, list[Any]] | None:
    """``H = c + a/g + b/h`` and ``M = m g h + k g + l h + m_0`` with ``b l = a k``: h = (b/a) g.

    Matmul with a stream tile s has this shape: a = abc b_B, b = abc b_A, k = s b_A, l = s b_B.
    """
    moved, held = dict(transfers.active), dict(memory.active)
    if set(moved) != {(-1, 0), (0, -1)} or not {(1, 1)} <= set(held) <= {(1, 1), (1, 0), (0, 1)}:
        return None
    a, b = moved[-1, 0], moved[0, -1]
    k, l = held.get((1, 0), 0), held.get((0, 1), 0)
    if sympy.expand(b * l - a * k) != 0:
        return None
    aspect = sympy.cancel(b / a)
    first = _root(held[1, 1] * aspect, k + l * aspect, limit - memory.constant)
    half = sympy.Rational(1, 2)
    return dict(zip(transfers.variables, (first, aspect * first), strict=True)), [half, half]


SHAPES: tuple[Shape, ...] = (
    Shape("one tile, as large as fits", one_tile),
    Shape("one term per tile, each with its share", as_many_terms_as_tiles),
    Shape("two tiles in proportion", two_tiles_in_proportion),
)


def closed_form(transfers: Posynomial, memory: Posynomial, limit: Any) -> tuple[str, Tiles, list[Any]] | None:
    """The name of the shape that fits, the tiles, and the exponents of the active terms; None if none does."""
    for shape in SHAPES:
        found = shape.solve(transfers, memory, limit)
        if found is not None:
            return shape.name, *found
    return None
