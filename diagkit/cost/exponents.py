"""How each term of the optimum falls with memory, when memory is large and axes are long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import sympy

from diagkit.cost.posynomial import Posynomial


def exponents(transfers: Posynomial, memory: Sequence[Posynomial]) -> list[Any]:
    """beta of each active term, as fractions.

    Tiles grow like powers ``M ** theta``: no memory term may outgrow M, and the slowest falling term of
    the transfers falls as fast as it can. That is a small linear program, solved by going through corners.
    """
    moved = [tuple(map(float, powers)) for powers, _ in transfers.active]
    held = list(dict.fromkeys(tuple(map(float, powers)) for one in memory for powers, _ in one.active))
    growth = min(_corners(moved, held), key=lambda corner: (corner[-1], tuple(corner)), default=None)
    if growth is None:
        return [sympy.Integer(0)] * len(moved)
    falls = (-sum(e * theta for e, theta in zip(powers, growth, strict=False)) for powers in moved)
    return [sympy.nsimplify(sympy.Float(round(fall, 9)), rational=True).limit_denominator(60) for fall in falls]


Row = tuple[list[float], float]


def _corners(moved: list[tuple[float, ...]], held: list[tuple[float, ...]]) -> Iterator[np.ndarray[Any, Any]]:
    """The corners of: e.theta <= tau for every term moved, f.theta <= 1 for every term held, theta >= 0."""
    count = len((moved or held or [()])[0])
    rows: list[Row] = [([*e, -1.0], 0.0) for e in moved] + [([*f, 0.0], 1.0) for f in held]
    rows += [([-float(n == place) for n in range(count)] + [0.0], 0.0) for place in range(count)]
    sides, tops = np.array([side for side, _ in rows]), np.array([top for _, top in rows])
    for chosen in _chosen(len(rows), count + 1):
        square = sides[chosen]
        if abs(np.linalg.det(square)) > 1e-9:
            corner = np.linalg.solve(square, tops[chosen])
            if (sides @ corner <= tops + 1e-9).all():
                yield corner


def _chosen(rows: int, size: int) -> Iterable[list[int]]:
    return (list(one) for one in combinations(range(rows), size))
