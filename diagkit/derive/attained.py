"""Where an extreme is attained: what is reduced over the elements that equal a maximum or minimum of their own.

Sum, max or min of `v` where ``c = r`` and of nothing elsewhere, r being the maximum (minimum) of c over the same
axes: argmax is the min of positions where the score equals its maximum. A chunk that moves r leaves no earlier
element that equals it, since all of them were at most (at least) the old r; so the partial result begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from diagkit.derive.algebra import Symbols, renewed
from diagkit.derive.partial import STARTS, Accumulator
from diagkit.term import where

ATTAINED = "lemma: where an extreme is attained"


def attained(
    op: str, own: Any, core: Any, inside: Symbols, waiting: Symbols, known: Mapping[str, Accumulator]
) -> Any | None:
    """What the partial result `own` of `core` becomes as a chunk moves the extreme that `core` is compared with;
    None where `core` is no choice by such a comparison, or where elsewhere is not what `op` makes of nothing.

    >>> from diagkit.term import value
    >>> s, m, i, own = map(value, ("s", "m", "i", "own"))
    >>> most = Accumulator("m", (), "max", ("x",), (s,), ("s",), m, False)
    >>> hit = where(sympy.Eq(s, m), i, sympy.oo)
    >>> carry = attained("min", own, hit, frozenset([s, i]), frozenset([m]), {"m": most})
    >>> carry == where(sympy.Eq(renewed(m), m), own, sympy.oo)
    True
    """
    if not isinstance(core, where) or not isinstance(core.args[0], sympy.Eq):
        return None
    met, here, elsewhere = core.args
    extreme = next((side for side in met.args if side in waiting and str(side.name) in known), None)
    if extreme is None or elsewhere != STARTS[op] or (here.free_symbols | elsewhere.free_symbols) & waiting:
        return None
    compared: Any = next((side for side in met.args if side != extreme), None)
    if not _is_extreme_of(known[extreme.name], extreme, compared) or not compared.free_symbols & inside:
        return None
    return where(sympy.Eq(renewed(extreme), extreme), own, STARTS[op])


def _is_extreme_of(one: Accumulator, extreme: Any, compared: Any) -> bool:
    """Whether it is carried as the plain maximum or minimum of just what is compared with it."""
    return one.op in ("max", "min") and one.operands == (compared,) and one.carry == extreme
