"""Names and formulas as runs of text: italic letters, subscripts, superscripts, fractions on one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sympy

from diagkit.draw.fonts import ELLIPSIS, SERIF, clean, fit, letters, width
from diagkit.draw.scene import Run, Runs, runs_width
from diagkit.term import FORMATS, empty, finite, quotient, where

THIN = "\u2009"
TIMES = "\u2009·\u2009"
SUB = (-0.17, 0.7)
SUP = (0.34, 0.7)
_LETTERS = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau
phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"""
_GREEK = dict(zip(_LETTERS.split(), "αβγδεζηθικλμνξπρστφχψωΓΔΘΛΞΠΣΦΨΩ", strict=True))


def roman(text: str, bold: bool = False) -> Runs:
    """Upright text."""
    return (Run(text, bold=bold),) if text else ()


def italic(text: str) -> Runs:
    """Italic text."""
    return (Run(text, italic=True),) if text else ()


def lowered(runs: Runs) -> Runs:
    """The runs as a subscript."""
    return tuple(replace(run, rise=run.rise * 0.7 + SUB[0], scale=run.scale * SUB[1]) for run in runs)


def raised(runs: Runs) -> Runs:
    """The runs as a superscript."""
    return tuple(replace(run, rise=run.rise * 0.7 + SUP[0], scale=run.scale * SUP[1]) for run in runs)


@lru_cache(maxsize=4096)
def name_runs(name: str, room: float = 1e9, size: float = 15.0, bold: bool = False) -> Runs:
    """A name as it is set: italic, what follows its first underscore lowered, primes for ".new", cut
    short where it would be wider than `room`.

    >>> [run.text for run in name_runs("g_q")], [run.text for run in name_runs("gamma")]
    (['g', 'q'], ['γ'])
    """
    base, primes = _primes(clean(name).strip() or "□")
    head, _, tail = base.partition("_")
    if not head or not tail.strip("_"):
        head, tail = base, ""
    main = (Run(_GREEK.get(head, head), italic=True, bold=bold),)
    below = lowered(_letters(tail.replace("_", ","))) if tail else ()
    runs = main + below + ((Run(primes, italic=True),) if primes else ())
    return _within(runs, room, size)


def _letters(text: str) -> Runs:
    return (Run(_GREEK.get(text, text), italic=not text.isdecimal()),)


def _primes(name: str) -> tuple[str, str]:
    primes = ""
    while name.endswith(".new") and len(name) > len(".new"):
        name, primes = name[: -len(".new")], primes + "′"
    return name, primes


def _within(runs: Runs, room: float, size: float) -> Runs:
    """The runs, cut in the middle where they are too wide: what is lowered keeps its place if it leaves room enough."""
    over = runs_width(runs, size) - room
    if over <= 0:
        return runs
    first, rest = runs[0], runs[1:]
    own = width(first.text, size, SERIF, first.bold)
    if own - over >= SHARE * room or not rest:
        return (replace(first, text=fit(first.text, own - over, size, SERIF, first.bold)), *rest)
    half = room / (2 if own > room / 2 else 1)
    head = replace(first, text=fit(first.text, half, size, SERIF, first.bold))
    left = (room - runs_width((head,), size)) / len(rest)
    return (head, *(replace(run, text=fit(run.text, left, size * run.scale, SERIF, run.bold)) for run in rest))


SHARE = 0.4
"""The least part of its room that a name keeps for what is not lowered."""

FORMS = {
    *FORMATS, "part", "parts", "inside", "log", "carried", "codes", "scale", "scaled", "rotated", "permuted",
    "reversed", "smooth", "zero", "each", "values", "abs",
}  # fmt: skip
"""Last parts of names that say in what form something is, not what."""


def short_name(wire: str, keep: int = 1) -> str:
    """The last `keep` parts of a wire's dotted name: "O.m" inside O is m; a trailing ".new" stays with it, and what
    only says in what form (a number format, a part of a whole) goes below the name that it was given to.

    >>> short_name("O.m.new"), short_name("S"), short_name("O.K.int8"), short_name("O.max.part.log")
    ('m.new', 'S', 'K_int8', 'max_part_log')
    >>> short_name("O.m.new", 2)
    'O.m.new'
    """
    base, primes = _primes(wire)
    parts = [part for part in base.split(".") if part]
    named = [place for place, part in enumerate(parts) if part.partition("_")[0] not in FORMS]
    last = named[-1] + 1 if named else len(parts)
    kept = ".".join(parts[max(last - keep, 0) : last])
    return "_".join((kept or wire, *parts[last:])) + ".new" * len(primes)


class _Formula:
    """Sets a sympy expression; `order` ranks the names of symbols, `names_of` says what arguments are called."""

    def __init__(self, order: Sequence[str] = (), names_of: Callable[[str], Runs] = name_runs) -> None:
        self.rank = {name: place for place, name in enumerate(order)}
        self.name = names_of

    def set(self, expr: Any, tight: int = 0) -> Runs:
        """The runs; in brackets where the expression binds less than `tight` (1 sum, 2 product, 3 power)."""
        for kind, (binds, case) in _CASES.items():
            if isinstance(expr, kind):
                runs = case(self, expr)
                loose = (binds if isinstance(binds, int) else binds(expr)) < tight
                return roman("(") + runs + roman(")") if loose else runs
        return roman(str(expr))

    def key(self, factor: Any) -> tuple[int, str]:
        """Where a factor stands in a product: numbers, then symbols by rank, then the rest."""
        ranks = [self.rank.get(symbol.name.partition("_")[2] or symbol.name, 99) for symbol in factor.free_symbols]
        own = self.rank.get(str(factor))
        plain = factor.is_Symbol or (factor.is_Pow and factor.base.is_Symbol)
        return (own if own is not None else min(ranks, default=-1) + (0 if plain else 200)), str(factor)


def _sum(f: _Formula, expr: Any) -> Runs:
    runs: Runs = ()
    for place, term in enumerate(sorted(expr.args, key=lambda t: _sum_key(f, t))):
        negative = bool(term.could_extract_minus_sign())
        sign = (" − " if negative else " + ") if place else ("−" if negative else "")
        runs += roman(sign) + f.set(-term if negative else term, 2)
    return runs


def _sum_key(f: _Formula, term: Any) -> tuple[bool, bool, int, tuple[int, ...], str]:
    over = sympy.fraction(term)[1] != 1 or term.has(sympy.ceiling)
    ranks = tuple(sorted(f.rank.get(symbol.name.partition("_")[2] or symbol.name, 99) for symbol in term.free_symbols))
    return bool(term.could_extract_minus_sign()), bool(term.is_number) or over, -len(ranks), ranks, str(term)


def _product(f: _Formula, expr: Any) -> Runs:
    if expr.could_extract_minus_sign():
        return roman("−") + f.set(-expr, 2)
    above, below = [], []
    for factor in sympy.Mul.make_args(expr):
        down = factor.is_Pow and factor.exp.is_number and factor.exp.is_negative and factor.exp.is_integer
        if isinstance(factor, quotient):
            above += [factor.args[0]] if factor.args[0] != 1 else []
            below.append(factor.args[1])
        elif factor.is_Rational and factor.q != 1:
            above += [sympy.Integer(factor.p)] if factor.p != 1 else []
            below.append(sympy.Integer(factor.q))
        elif down or _root_below(factor):
            below.append(1 / factor)
        else:
            above.append(factor)
    top = _factors(f, above) if above else roman("1")
    return top + roman("/") + _bracketed(f, below) if below else top


def _root_below(factor: Any) -> bool:
    """Whether a factor is one over the root of more than a single symbol."""
    return bool(factor.is_Pow and factor.exp == -sympy.Rational(1, 2) and not factor.base.is_Symbol)


def _bracketed(f: _Formula, below: list[Any]) -> Runs:
    if len(below) == 1:
        return f.set(below[0], 3)
    return roman("(") + _factors(f, below) + roman(")")


def _factors(f: _Formula, factors: list[Any]) -> Runs:
    ordered = sorted(factors, key=lambda factor: (not factor.is_number, *f.key(factor)))
    runs: Runs = ()
    for place, factor in enumerate(ordered):
        between = TIMES if place and (_wordy(factor) or _wordy(ordered[place - 1])) else THIN
        runs += (roman(between) if place else ()) + f.set(factor, 2)
    return runs


def _wordy(factor: Any) -> bool:
    """Whether a factor is a name of several letters, next to which a thin blank would not be seen."""
    head = factor.name.partition("_")[0] if factor.is_Symbol and factor.is_integer else ""
    return len(head) > 1 and head not in _GREEK


def _power(f: _Formula, expr: Any) -> Runs:
    base, exponent = expr.args
    if base is sympy.E:
        return _call("exp")(f, sympy.exp(exponent))
    if exponent == sympy.Rational(1, 2):
        return roman("√") + f.set(base, 3)
    if (exponent.is_Integer and exponent.is_negative) or _root_below(expr):
        return roman("1/") + f.set(1 / expr, 3)
    return f.set(base, 3) + raised(_Formula(tuple(f.rank), f.name).set(exponent))


def _rational(f: _Formula, expr: Any) -> Runs:
    digits = str(expr.q)
    if expr.p == 1 and len(digits) > 3 and digits.strip("0") == "1":
        return roman("10") + raised(roman(f"−{len(digits) - 1}"))
    sign = "−" if expr.is_negative else ""
    return roman(f"{sign}{abs(expr.p)}" + (f"/{expr.q}" if expr.q != 1 else ""))


def _decimal(f: _Formula, expr: Any) -> Runs:
    return roman(f"{float(expr):.4g}".replace("-", "−"))


def _call(shown: str, ordered: bool = True) -> Callable[[_Formula, Any], Runs]:
    def case(f: _Formula, expr: Any) -> Runs:
        inside: Runs = ()
        for place, part in enumerate(expr.args if ordered else sorted(expr.args, key=_last_number)):
            inside += (roman(", ") if place else ()) + f.set(part)
        return roman(f"{shown}(") + inside + roman(")")

    return case


def _last_number(part: Any) -> tuple[bool, str]:
    """Numbers after everything else: max(a, 0)."""
    return bool(part.is_number), str(part)


def _around(left: str, right: str) -> Callable[[_Formula, Any], Runs]:
    return lambda f, expr: roman(left) + f.set(expr.args[0]) + roman(right)


def _ceiling(f: _Formula, expr: Any) -> Runs:
    return roman("⌈") + f.set(expr.args[0]) + roman("⌉")


def _between(sign: str) -> Callable[[_Formula, Any], Runs]:
    return lambda f, expr: f.set(expr.args[0], 1) + roman(f" {sign} ") + f.set(expr.args[1], 1)


def _choice(f: _Formula, expr: Any) -> Runs:
    condition, chosen, other = expr.args
    if other is sympy.S.NegativeInfinity:
        return f.set(chosen) + roman(" where ") + f.set(condition)
    return f.set(chosen) + roman(" if ") + f.set(condition) + roman(" else ") + f.set(other)


def _joined(sign: str) -> Callable[[_Formula, Any], Runs]:
    def case(f: _Formula, expr: Any) -> Runs:
        runs: Runs = ()
        for place, part in enumerate(sorted(expr.args, key=str)):
            runs += (roman(f" {sign} ") if place else ()) + f.set(part, 1)
        return runs

    return case


_CASES: dict[Any, tuple[Any, Callable[[_Formula, Any], Runs]]] = {
    sympy.Symbol: (9, lambda f, expr: f.name(expr.name)),
    sympy.core.numbers.Infinity: (9, lambda f, expr: roman("∞")),
    sympy.core.numbers.NegativeInfinity: (9, lambda f, expr: roman("−∞")),
    sympy.core.numbers.Exp1: (9, lambda f, expr: italic("e")),
    sympy.Rational: (lambda e: 9 if e.q == 1 and not e.is_negative else 2, _rational),
    sympy.Float: (9, _decimal),
    sympy.Add: (1, _sum),
    sympy.Mul: (2, _product),
    sympy.exp: (9, _call("exp")),
    sympy.Pow: (lambda e: 2 if e.exp.is_Integer and e.exp.is_negative else 3, _power),
    sympy.ceiling: (9, _ceiling),
    sympy.floor: (9, _around("⌊", "⌋")),
    sympy.Abs: (9, _around("|", "|")),
    sympy.Max: (9, _call("max", ordered=False)),
    sympy.Min: (9, _call("min", ordered=False)),
    finite: (9, lambda f, expr: f.set(expr.args[0], 9)),
    quotient: (2, lambda f, expr: f.set(expr.args[0], 2) + roman("/") + f.set(expr.args[1], 3)),
    empty: (9, lambda f, expr: roman("[") + f.set(expr.args[0], 1) + roman(" = 0]")),
    where: (0, _choice),
    sympy.Eq: (0, _between("=")),
    sympy.Ne: (0, _between("≠")),
    sympy.Le: (0, _between("≤")),
    sympy.Lt: (0, _between("<")),
    sympy.Ge: (0, _between("≥")),
    sympy.Gt: (0, _between(">")),
    sympy.And: (0, _joined("∧")),
    sympy.Or: (0, _joined("∨")),
    sympy.Not: (0, lambda f, expr: roman("¬") + f.set(expr.args[0], 2)),
    sympy.Function: (9, lambda f, expr: _call(type(expr).__name__)(f, expr)),
}


def formula(expr: Any, order: Sequence[str] = (), names_of: Callable[[str], Runs] = name_runs, tight: int = 0) -> Runs:
    """A sympy expression (or a text, taken as it is) as runs; `order` says which names stand first;
    in brackets where it binds less than `tight` (1 sum, 2 product, 3 power).

    >>> from diagkit.term import size
    >>> "".join(run.text for run in formula(2 * size("q") / size("g_q")))
    '2\u2009q/gq'
    """
    if isinstance(expr, str):
        return roman(clean(expr))
    return joined(_Formula(order, names_of).set(sympy.sympify(expr), tight))


def joined(runs: Runs) -> Runs:
    """The same runs, neighbours of one style put together."""
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if last is not None and replace(last, text=run.text) == run:
            merged[-1] = replace(last, text=last.text + run.text)
        else:
            merged.append(run)
    return tuple(merged)


def cut(runs: Runs, room: float, size: float, family: str = SERIF) -> Runs:
    """The runs, cut in the middle with … where they are wider than `room`."""
    if runs_width(runs, size, family) <= room:
        return runs
    pieces = [replace(run, text=letter) for run in runs for letter in letters(run.text)]
    left, head, tail = room - width(ELLIPSIS, size, family), list[Run](), list[Run]()
    while pieces:
        ahead = len(tail) >= len(head)
        piece = pieces.pop(0 if ahead else -1)
        left -= runs_width((piece,), size, family)
        if left < 0:
            break
        head, tail = ([*head, piece], tail) if ahead else (head, [piece, *tail])
    return joined((*head, Run(ELLIPSIS), *tail))
