"""The largest elements in order: what comes next after an element that a chunk may move.

Elements are pairs of a value c and its position j, the larger value first and of equal values the earlier one.
After (m, i) come those with ``c < m``, or ``c = m`` and ``j > i``. The next value is the maximum r of c over these
and -inf elsewhere, the next position the minimum of j over those of them where ``c = r``.

A chunk moves the n - 1 first pairs up, never down, and at most n - 1 earlier pairs are not after the last of them.
So the first of the n earlier pairs that is after it is what the earlier elements still have to offer: the state is
n pairs, and begins as pairs (-inf, inf), which every element comes before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import sympy

from diagkit.derive.algebra import renewed
from diagkit.derive.partial import STARTS, Accumulator
from diagkit.term import where

RANKED = "lemma: the largest in order"
Known = Mapping[str, Accumulator]


class After(NamedTuple):
    """That the element `value` at the position `place` comes after the pair of `top` and `first`."""

    value: Any
    place: Any
    top: Any
    first: Any


class Pick(NamedTuple):
    """Of the elements after a pair (all where `after` is None) those that equal `top`, or all where that is None."""

    after: After | None
    top: Any


def ranked(op: str, own: Any, core: Any, known: Known) -> Any | None:
    """What the partial result `own` of `core`, a next value or its position, becomes as a chunk moves the pairs before
    it; None where `core` is no such choice. `known` are the accumulators over the same axes.

    >>> from diagkit.term import value
    >>> s, j, m, i, own = map(value, ("s", "j", "m", "i", "own"))
    >>> most = Accumulator("m", (), "max", ("x",), (s,), ("s",), m, False)
    >>> first = Accumulator("i", (), "min", ("x",), (where(sympy.Eq(s, m), j, sympy.oo),), ("p",), i, False)
    >>> core = where(sympy.Or(s < m, sympy.Eq(s, m) & (j > i)), s, -sympy.oo)
    >>> carry = ranked("max", own, core, {"m": most, "i": first})
    >>> carry.args[1] == m, str(carry.args[2])
    (True, 'where(own <= m\\x00new, own, -oo)')
    """
    pick = _pick(op, core)
    pairs = _pairs(pick.after, known) if pick and pick.after else None
    if pick is None or pick.after is None or pairs is None:
        return None
    if pick.top is None:
        carry = where(own <= renewed(pick.after.top), own, STARTS[op])
        return _first_after(pick.after, [(pair, pair[0]) for pair in pairs], carry)
    if not _is_value(known.get(str(pick.top)), pick.after):
        return None
    met = [(pair, _where_met(pair, pick.top)) for pair in pairs]
    return _first_after(pick.after, met, _where_met((pick.top, own), pick.top))


def _first_after(after: After, offers: list[tuple[Any, Any]], last: Any) -> Any:
    """What the first of the earlier pairs offers that comes after the new one; else the `last`."""
    top, first = renewed(after.top), renewed(after.first)
    for (one, place), offer in reversed(offers):
        last = where(sympy.Or(one < top, sympy.Eq(one, top) & (place > first)), offer, last)
    return last


def _where_met(pair: tuple[Any, Any], top: Any) -> Any:
    """The position of an earlier pair where its value is the new one."""
    return where(sympy.Eq(pair[0], renewed(top)), pair[1], STARTS["min"])


def _pairs(after: After, known: Known) -> list[tuple[Any, Any]] | None:
    """The pairs up to the one that elements come after, from the first on; None where it is no such pair."""
    top, first = known.get(str(after.top)), known.get(str(after.first))
    if top is None or first is None or not _is_position(first, after):
        return None
    before = _before(top, after)
    if before is None:
        is_first = top.op == "max" and top.operands == (after.value,) and top.carry == after.top
        return [(after.top, after.first)] if is_first and _core(first).after is None else None
    earlier = _pairs(before, known) if _core(first).after == before else None
    return None if earlier is None else [*earlier, (after.top, after.first)]


def _before(one: Accumulator, after: After) -> After | None:
    """The pair that a next value comes after, where its elements are those of `after`."""
    pick = _core(one)
    same = pick.after is not None and pick.after[:2] == after[:2] and one.op == "max" and pick.top is None
    return pick.after if same else None


def _is_value(one: Accumulator | None, after: After) -> bool:
    """Whether this is the value that comes next after that pair."""
    return one is not None and one.op == "max" and _core(one) == Pick(after, None)


def _is_position(one: Accumulator, after: After) -> bool:
    """Whether this is a position of elements that equal `after.top`."""
    pick = _core(one)
    return one.op == "min" and pick.top == after.top and _here(one) == after.place


def _here(one: Accumulator) -> Any:
    return one.operands[0].args[1] if len(one.operands) == 1 and isinstance(one.operands[0], where) else None


def _core(one: Accumulator) -> Pick:
    found = _pick(one.op, one.operands[0]) if len(one.operands) == 1 else None
    return found or Pick(None, None)


def _pick(op: str, core: Any) -> Pick | None:
    """What a choice picks: values after a pair, positions of those that equal a value, or both."""
    if op not in ("max", "min") or not isinstance(core, where) or core.args[2] != STARTS[op]:
        return None
    met, here, _ = core.args
    if op == "max":
        after = _after(met)
        return Pick(after, None) if after and after.value == here else None
    return _positions(met, here)


def _positions(met: Any, here: Any) -> Pick | None:
    if isinstance(met, sympy.Eq):
        return Pick(None, met.rhs)
    parts = met.args if isinstance(met, sympy.And) and len(met.args) == 2 else ()
    equal = _parts(parts, lambda part: isinstance(part, sympy.Eq))
    after = next((found for found in map(_after, parts) if found), None)
    if after is None or not equal or after.value not in equal[0].args or after.place != here:
        return None
    return Pick(after, next(side for side in equal[0].args if side != after.value))


def _after(condition: Any) -> After | None:
    """The pair that a condition compares elements with: ``c < m``, or ``c = m`` and ``j > i``."""
    parts = condition.args if isinstance(condition, sympy.Or) else ()
    less, ties = _parts(parts, _is_strict), _parts(parts, lambda part: isinstance(part, sympy.And))
    if len(parts) != 2 or not less or not ties or len(ties[0].args) != 2:
        return None
    equal, later = _parts(ties[0].args, lambda part: isinstance(part, sympy.Eq)), _parts(ties[0].args, _is_strict)
    if not equal or not later or {*equal[0].args} != {less[0].lts, less[0].gts}:
        return None
    return After(less[0].lts, later[0].gts, less[0].gts, later[0].lts)


def _parts(parts: Iterable[Any], kind: Callable[[Any], bool]) -> list[Any]:
    return [part for part in parts if kind(part)]


def _is_strict(part: Any) -> bool:
    return isinstance(part, sympy.StrictLessThan | sympy.StrictGreaterThan)


__all__ = ["RANKED", "ranked"]
