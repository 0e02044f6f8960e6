"""What a division is at the end of a stream: the diagram's own, where something was seen.

On the way a divisor that is 0 for now divides nothing: what was seen so far counts for 0. At the end ``a / b`` is
what it is in the diagram, no number for 0 / 0, and ``quotient(a, b)`` is 0 there, as everywhere. Two cases have seen
nothing even at the end. Of an axis without positions a sum is 0, whatever is multiplied on. And where each s is -inf,
the sum of exp(s - max s) is that of nothing, since -inf counts as what is not there: what is divided by it is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy

from diagkit.derive.algebra import ONE, is_shifted
from diagkit.term import Map, Reduce, arg, empty, finite, names, plain, quotient, value, where


def only_unseen(summand: Any, extremes: Mapping[Any, Any]) -> bool:
    """Whether a sum of `summand` is 0 only where nothing was seen: its largest term is exp(0), that of the extreme.

    `extremes` says of each maximum or minimum what it is the extreme of.

    >>> from diagkit.term import value
    >>> s, m = value("s"), value("m")
    >>> only_unseen(sympy.exp(s - m), {m: s}), only_unseen(sympy.exp(s), {m: s}), only_unseen(s**2, {m: s})
    (True, False, False)
    """
    if not is_shifted(summand):
        return False
    exponent = plain(summand.exp)
    return any(
        m in exponent.free_symbols and sympy.expand(exponent.xreplace({of: m})) == 0 for m, of in extremes.items()
    )


def divided(
    expr: Any, number: Any, may_vanish: Callable[[Any], bool], unseen: Callable[[Any], bool] = lambda below: False
) -> Any:
    """A result of a stream with its divisions as the diagram has them, and 0 where nothing was seen: by a divisor
    that is 0 only there (`unseen`), or as none of the `number` elements is there.

    >>> from diagkit.term import value, size
    >>> divided(1 / value("z"), size("x"), lambda below: True).subs({size("x"): 0, value("z"): 0})
    1
    >>> divided(1 / value("z"), size("x"), lambda below: True, lambda below: True)
    1 / z
    """
    return _counted(expr, number, may_vanish).replace(
        lambda part: bool(part.is_Pow and part.exp.is_number and part.exp.is_negative and may_vanish(part.base)),
        lambda part: quotient(ONE, 1 / part) if unseen(part.base) else (part.base + empty(number)) ** part.exp,
    )


def _counted(expr: Any, number: Any, may_vanish: Callable[[Any], bool]) -> Any:
    """`expr` with the log of an empty sum as 0 where none of the `number` elements is there."""
    kept = {part: value(f"\0log{place}") for place, part in enumerate(expr.atoms(finite))}
    counted = expr.xreplace(kept).replace(
        lambda part: isinstance(part, sympy.log) and may_vanish(part.args[0]),
        lambda part: sympy.log(part.args[0] + empty(number)),
    )
    return counted.xreplace({symbol: part for part, symbol in kept.items()})


def ended(summed: Any, divisors: tuple[Any, ...], number: Any) -> Any:
    """A sum of what was divided by `divisors` all along: what 0 / 0 is where one of them is 0 at the end.

    >>> from diagkit.term import value, size
    >>> str(ended(value("o"), (value("z"),), sympy.Integer(2)))
    'where(Eq(z, 0), o/z, o)'
    """
    for divisor in divisors:
        below = divisor + empty(number)
        summed = where(sympy.Eq(below, 0), summed / below, summed)
    return summed


def bare_shift(boxes: Mapping[str, Any], axis: str) -> str | None:
    """The first wire that carries `axis` and from which an extreme over it is taken off in an exponent, with nothing
    standing for the extreme where it is infinite; None where there is none."""
    formula: dict[str, Any] = {}
    for name, box in boxes.items():
        if isinstance(box, Map) and axis in names(box.axes):
            parts = {arg(place): formula.get(wire, value(wire)) for place, wire in enumerate(box.inputs)}
            shown = formula[name] = box.expr.xreplace(parts)
            used = {symbol.name for part in _exponents(shown) for symbol in part.free_symbols}
            if any(_is_extreme(boxes.get(wire), axis) for wire in used):
                return name
    return None


def _exponents(formula: Any) -> list[Any]:
    """The exponents in a formula, without what is guarded in them."""
    bare = formula.replace(finite, lambda inner: sympy.S.Zero)
    return [part for part in bare.atoms(sympy.exp, sympy.Pow) if is_shifted(part)]


def _is_extreme(box: Any, axis: str) -> bool:
    return isinstance(box, Reduce) and box.op in ("max", "min") and axis in box.over
