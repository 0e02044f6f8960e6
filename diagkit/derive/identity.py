"""The equations of a stream, in short symbols: m for a maximum, z for a sum, o for what ends in O."""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.derive.algebra import NEW, gathered, renewed
from diagkit.derive.attained import ATTAINED
from diagkit.derive.history import Identity
from diagkit.derive.moments import LEMMA
from diagkit.derive.partial import COMBINE, Accumulator
from diagkit.derive.ranked import RANKED
from diagkit.derive.sort import Sorted
from diagkit.derive.sums import Sums
from diagkit.derive.tops import TOPPED
from diagkit.term import plain, quotient, value

_SHORT = {"max": "m", "sum": "z", "min": "n", "product": "p"}
_STRENGTH = (LEMMA, TOPPED, RANKED, ATTAINED, "power sums", "normalised", "hoisted", "corrected")


def method(sums: Sums) -> str:
    """The strongest means that the derivation needed; "plain" where the partial results simply add up."""
    used = set(sums.methods.values())
    return next((means for means in _STRENGTH if means in used), "plain")


def identities(chain: Sorted, sums: Sums) -> Identity:
    """Pairs of equal expressions: for each state the ratio that was found, and how it is updated; then
    what each hoisted reduction is in terms of the states."""
    short = short_names(chain, sums)
    pairs: list[tuple[Any, Any]] = []
    for one in sums.by_name().values():
        pairs += _state(one, short)
    whole = {name: worth for name, worth in sums.values.items() if not worth.is_Symbol}
    pairs += [(short(value(name)), short(gathered(worth))) for name, worth in whole.items()]
    return tuple(dict.fromkeys(pairs))


def _state(one: Accumulator, short: Any) -> list[tuple[Any, Any]]:
    own = value(one.name)
    factor = one.carry / own
    pairs = []
    if one.op == "sum" and one.carry != own and not factor.has(own):
        later = {_before(s): s for s in one.carry.free_symbols if s.name.endswith(NEW)}
        factors = sympy.Mul.make_args(plain(sympy.Mul(*one.operands)))
        changing = sympy.Mul(*(part for part in factors if part.free_symbols & set(later)))
        pairs.append((short(quotient(changing.xreplace(later), changing)), short(gathered(factor))))
    part = value(f"{short(own).name}_chunk")
    pairs.append((short(renewed(own)), COMBINE[one.op](short(gathered(one.carry)), part)))
    return pairs


def _before(symbol: Any) -> Any:
    """The value before the chunk, of a value after it."""
    return value(symbol.name.removesuffix(NEW))


def short_names(chain: Sorted, sums: Sums) -> Any:
    """A function that rewrites an expression in short symbols, distinct and made from the wires' names."""
    table: dict[str, str] = {}
    shown = (*sums.by_name(), *sums.values)
    others = {_bare(wire) for wire in chain.term.wires if wire not in shown}
    for name in shown:
        table[name] = _distinct(_short(name, name in sums.values), {*table.values(), *others})

    def short(expr: Any) -> Any:
        values = [symbol for symbol in expr.free_symbols if not symbol.is_integer]
        return expr.xreplace({symbol: value(_said(symbol.name, table)) for symbol in values})

    return short


def _said(name: str, table: dict[str, str]) -> str:
    bare = name.removesuffix(NEW)
    said = table.get(bare, _bare(bare))
    return f"{said}_new" if name.endswith(NEW) else said


def _bare(wire: str) -> str:
    """The last part of a name: what a wire inside a block is called there."""
    return wire.rpartition(".")[2] or wire


def _short(name: str, whole: bool) -> str:
    stem, _, hint = name.rpartition(".")
    if hint == "acc":
        return _short(stem, False).lower() if len(_short(stem, False)) == 1 else f"{_short(stem, True)}_acc"
    if hint.isdigit():
        return f"{_short(stem, True)}_{hint}"
    return _SHORT.get(hint, hint) if stem else name


def _distinct(name: str, taken: set[str]) -> str:
    count, made = 1, name
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    return made


__all__ = ["identities", "method", "short_names"]
