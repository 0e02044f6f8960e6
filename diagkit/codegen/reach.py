"""How far numbers reach: which wires may come near the ends of their format.

Masks that are added hold -1e30, or the least float there is. An exponential of a difference may be written as a power
of two of ``log2(e) s - log2(e) m``, one multiply-add for each element; but that rounds off the difference of numbers
beyond 1e9 with an error above 1, so that a row's largest element no longer gives 1, and beyond 2e38 both are infinite.
For what reaches far the difference is taken first. What is loaded may reach far, and sums with it; products with
what was made here are taken for moderate, as are sums over an axis: scores that a
product of inputs brings beyond 1e9 are not protected, and numba gives 0 or NaN for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy

from diagkit.program import Compute, Kernel, Load
from diagkit.term import Cast, Map, View, arg, where

MODERATE = 2.0**20
"""A multiply-add loses 1/8 in the exponent here."""


def far(kernel: Kernel) -> frozenset[str]:
    """The wires of a kernel that may hold finite numbers beyond `MODERATE`."""
    found = {s.wire for s in kernel.statements if isinstance(s, Load)}
    for compute in (s for s in kernel.statements if isinstance(s, Compute)):
        case = _CASES.get(type(compute.box))
        if case and case(compute.box, found):
            found.add(compute.box.name)
    return frozenset(found)


def far_inputs(kernel: Kernel, box: Any) -> frozenset[Any]:
    """The symbols of a formula whose wires may reach far."""
    reach = far(kernel)
    return frozenset(arg(place) for place, wire in enumerate(box.inputs) if wire in reach)


def moderate(expr: Any, reach: frozenset[Any]) -> bool:
    """Whether a formula stays moderate where the symbols `reach` may not.

    >>> s, b, seen = arg(0), arg(1), arg(2)
    >>> moderate(s / 8, frozenset([b])), moderate(s * b, frozenset([b])), moderate(s + b, frozenset([b]))
    (True, True, False)
    >>> moderate(where(seen, s, -sympy.oo), frozenset()), moderate(where(seen, s, -1e30), frozenset())
    (True, False)
    """
    if expr.is_number:
        return bool(expr.is_infinite or abs(float(expr)) <= MODERATE)
    if expr.is_Symbol:
        return expr not in reach
    parts = expr.args[1:] if expr.func == where else expr.args
    if expr.is_Mul:
        return any(not part.is_number and moderate(part, reach) for part in parts)
    return expr.func in _BOUNDED or all(moderate(part, reach) for part in parts)


_BOUNDED = (sympy.tanh, sympy.erf, sympy.sin, sympy.cos, sympy.sign)


def _map(box: Any, found: set[str]) -> bool:
    return not moderate(box.expr, frozenset(arg(i) for i, wire in enumerate(box.inputs) if wire in found))


def _same(box: Any, found: set[str]) -> bool:
    return not found.isdisjoint(box.inputs)


_CASES: dict[type[Any], Callable[[Any, set[str]], bool]] = {Map: _map, Cast: _same, View: _same}
