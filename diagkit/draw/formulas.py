"""What stands in a map: a sign, the name of a known function, a short formula, else the name of its wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import sympy

from diagkit.draw.masks import placed
from diagkit.draw.naming import label
from diagkit.draw.scene import Runs, runs_width
from diagkit.draw.typeset import formula, name_runs, roman
from diagkit.term import Box, Map, Term, arg

_A, _B = arg(0), arg(1)
_KNOWN: dict[Any, str] = {
    sympy.Max(_A, 0): "relu",
    1 / (1 + sympy.exp(-_A)): "sigmoid",
    _A / (1 + sympy.exp(-_A)): "silu",
    _A * (1 + sympy.erf(_A / sympy.sqrt(2))) / 2: "gelu",
    sympy.exp(_A): "exp",
    sympy.log(_A): "log",
    sympy.tanh(_A): "tanh",
}
_JOINS: dict[Any, str] = {
    _A + _B: "+", _A * _B: "×", sympy.Max(_A, _B): "max", sympy.Min(_A, _B): "min",
}  # fmt: skip


def unary_text(term: Term, box: Map, wire: str) -> Runs:
    """What a map of one drawn wire is labelled: "× c", "+ c", a known function's name, a short formula."""
    own = arg(box.inputs.index(wire))
    if box.expr in _KNOWN:
        return roman(_KNOWN[box.expr])
    for kind, sign in ((sympy.Mul, "×"), (sympy.Add, "+")):
        rest = [part for part in kind.make_args(box.expr) if part != own]
        if isinstance(box.expr, kind) and len(rest) == len(kind.make_args(box.expr)) - 1 and not _reads(rest, own):
            return short(_signed(term, box, sign, kind(*rest)), term, box)
    return short(_named(term, box, box.expr), term, box)


def _reads(parts: list[Any], own: Any) -> bool:
    return any(own in part.free_symbols for part in parts)


def _signed(term: Term, box: Map, sign: str, rest: Any) -> Runs:
    """ "× c", "/ c", "+ c" or "− c"."""
    if sign == "+" and rest.could_extract_minus_sign():
        return roman("− ") + _named(term, box, -rest, 2)
    if sign == "×" and rest.is_Rational and rest.p == 1 and rest.q != 1:
        return roman(f"/ {rest.q}")
    return roman(f"{sign} ") + _named(term, box, rest, 2 if sign == "×" else 1)


def _named(term: Term, box: Map, expr: Any, tight: int = 0) -> Runs:
    """The formula, arguments under the names of their wires, positions written out."""
    expr = placed(term, replace(box, expr=expr))
    called = {f"a{place}": label(term, wire, 70, 14) for place, wire in enumerate(box.inputs)}
    return formula(expr, tuple(term.axes), lambda name: called.get(name) or name_runs(name), tight)


def short(runs: Runs, term: Term, box: Box, room: float = 150.0) -> Runs:
    """The runs where they are short enough for a glyph, else the box's own name."""
    return runs if runs_width(runs, 14) <= room else label(term, box.name, room, 14)


def join_text(term: Term, box: Map) -> Runs:
    """What a map of several drawn wires is labelled: a sign or a short formula."""
    if box.expr in _JOINS:
        return roman(_JOINS[box.expr], bold=True)
    return short(_named(term, box, box.expr), term, box)
