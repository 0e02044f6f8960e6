"""Formulas in which sizes have no value: a size that divides and is 0, the root of one that is less than 0.

One rule, for the diagram alone and therefore on every engine and in every stream of it: where the formula of a box
has no value at the sizes at hand, running it is refused, even if the box makes no elements. `quotient` divides by a
size as by every other number: it is 0 where the size is 0, and so is `mean` of nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from diagkit.term import InputError, Map, Term, size

_NO_NUMBER = (sympy.zoo, sympy.nan, sympy.I)
_TRIED = range(1, 9)


def check_formulas(term: Term, sizes: Mapping[str, int]) -> None:
    """Refuse sizes at which the formula of a box has no value; those that are still open have one.

    >>> import diagkit as dk
    >>> x = dk.axis("x")
    >>> mean = dk.Diagram(dk.total(dk.array("X", x), over=x) / x.size)
    >>> mean(X=[])
    Traceback (most recent call last):
    ...
    diagkit.term.errors.InputError: 'f(sum(X))' divides by or takes a root of what is no positive number at x = 0; \
give x at least 1 element, or divide with dk.quotient, which is 0 there
    """
    for box in term.flat:
        if isinstance(box, Map) and (here := _used(box, sizes)) and not _has_value(box.expr, here):
            raise _refusal(box, here)


def _used(box: Any, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a formula speaks of, where they are known."""
    named = {symbol.name for symbol in box.expr.free_symbols if symbol.is_positive}
    return {name: sizes[name] for name in sorted(named & set(sizes))}


def _has_value(expr: Any, sizes: Mapping[str, int]) -> bool:
    """Whether a formula is one of real numbers at these sizes."""
    try:
        return not expr.xreplace({size(name): sympy.Integer(n) for name, n in sizes.items()}).has(*_NO_NUMBER)
    except TypeError:  # sympy does not compare with what is no real number
        return False


def _refusal(box: Any, sizes: Mapping[str, int]) -> InputError:
    guilty = next((n for n in sizes if _least(box.expr, sizes, n)), next(iter(sizes)))
    least = _least(box.expr, sizes, guilty) or 1
    there = ", ".join(f"{name} = {n}" for name, n in sizes.items())
    wanted = f"give {guilty} at least {least} element{'s' * (least > 1)}"
    return InputError(
        f"{box.name!r} divides by or takes a root of what is no positive number at {there}",
        axis=guilty,
        box=box.name,
        remedy=f"{wanted}, or divide with dk.quotient, which is 0 there" if sizes[guilty] == 0 else wanted,
    )


def _least(expr: Any, sizes: Mapping[str, int], name: str) -> int | None:
    """The fewest elements of an axis with which the formula has a value, the other sizes as they are."""
    return next((n for n in _TRIED if n > sizes[name] and _has_value(expr, {**sizes, name: n})), None)
