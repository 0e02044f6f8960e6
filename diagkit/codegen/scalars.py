"""Scalar expressions as source text: one printer, one `Dialect` (a table of text) per target.

Every piece of text carries its kind, "int", "float" or "bool", so that an integer position enters a
formula as a number of the kernel's own float type and never widens it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce as chain
from typing import Any

import sympy
from sympy.printing.pycode import PythonCodePrinter

from diagkit.ops import BY_SYMBOL, divides
from diagkit.term import FormatError, empty, where


@dataclass(frozen=True)
class Text:
    """Source text of a scalar and its kind: "int", "float" or "bool"."""

    text: str
    kind: str = "float"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Dialect:
    """How one target writes scalars.

    * `functions`: by the name of the row in `ops.SCALARS` (and "sqrt", "power"), a format of the
      arguments: {"exp": "tl.exp({0})"}. maximum and minimum take two.
    * `number`: a float literal; `floated`: an integer as the kernel's float.
    * `conjunction`, `disjunction`, `negation`: logic; `infinity`: the number +oo; `over`: a division.
    """

    name: str
    functions: Mapping[str, str]
    number: str = "{0}"
    floated: str = "{0}"
    conjunction: str = "({0} and {1})"
    disjunction: str = "({0} or {1})"
    negation: str = "(not {0})"
    infinity: str = "float('inf')"
    over: str = "{0} / {1}"


def scalar(expr: Any, values: Mapping[Any, Text], dialect: Dialect, number: bool = False) -> Text:
    """`expr` in `dialect`; `values` holds the text of every symbol in it. A `number` is of the kernel's
    own float type; else the text may be a whole number or a truth value.

    >>> from diagkit.term import arg, quotient, size
    >>> plainly = Dialect("python", {"quotient": "quotient({0}, {1})", "sqrt": "sqrt({0})"}, floated="float({0})")
    >>> here = {arg(0): Text("s"), arg(1): Text("z"), size("d"): Text("d", "int")}
    >>> print(scalar(quotient(arg(0), arg(1)) / sympy.sqrt(size("d")), here, plainly))
    (quotient(s, z) / sqrt(float(d)))
    """
    printer = _Printer(values, dialect)
    return printer.number(expr) if number else printer.print(expr)


@dataclass(frozen=True)
class _Printer:
    values: Mapping[Any, Text]
    dialect: Dialect

    def print(self, expr: Any) -> Text:
        if expr.is_Symbol:
            return self.values[expr]
        if expr in (sympy.true, sympy.false):
            return Text(str(bool(expr)), "bool")
        if expr.is_number:
            return self._number(expr)
        case = _CASES.get(expr.func)
        return case(self, expr) if case else self._function(expr)

    def number(self, expr: Any) -> Text:
        """As `print`, a number of the kernel's float type."""
        if expr.is_Integer:
            return self._literal(float(expr))
        made = self.print(expr)
        return made if made.kind == "float" else Text(self.dialect.floated.format(made), "float")

    def _number(self, expr: Any) -> Text:
        return Text(str(int(expr)), "int") if expr.is_Integer else self._literal(float(expr))

    def _literal(self, number: float) -> Text:
        if number in (float("inf"), float("-inf")):
            return Text(self.dialect.infinity if number > 0 else f"(-{self.dialect.infinity})")
        return Text(self.dialect.number.format(repr(number)))

    def same(self, parts: tuple[Any, ...]) -> tuple[list[Text], str]:
        """Parts of one kind: integers where all are, else numbers."""
        kinds = {self.print(part).kind for part in parts}
        if kinds == {"int"}:
            return [self.print(part) for part in parts], "int"
        return [self.number(part) for part in parts], "float"

    def call(self, name: str, *operands: Text) -> Text:
        """The target's text for a function of numbers."""
        if name not in self.dialect.functions:
            known = ", ".join(sorted(self.dialect.functions))
            raise FormatError(f"{self.dialect.name} kernels have no {name!r}", remedy=f"they have: {known}")
        return Text(self.dialect.functions[name].format(*operands))

    def _function(self, expr: Any) -> Text:
        row = BY_SYMBOL[expr.func]
        operands = [self.number(part) for part in expr.args]
        if row.name in ("maximum", "minimum"):
            return chain(lambda a, b: self.call(row.name, a, b), operands)
        return self.call(row.name, *operands)


def _add(printer: _Printer, expr: Any) -> Text:
    ordered = sorted(expr.args, key=lambda term: term.could_extract_minus_sign())
    signs = ["-" if term.could_extract_minus_sign() else "+" for term in ordered[1:]]
    plus = tuple(-t if s == "-" else t for t, s in zip(ordered[1:], signs, strict=True))
    texts, kind = printer.same((ordered[0], *plus))
    rest = "".join(f" {sign} {text}" for sign, text in zip(signs, texts[1:], strict=True))
    return Text(f"({texts[0]}{rest})", kind)


def _multiply(printer: _Printer, expr: Any) -> Text:
    below = [factor for factor in expr.args if divides(factor)]
    above = [factor for factor in expr.args if factor not in below]
    if above == [-1] and not below:
        above = []
    texts, kind = printer.same(tuple(above)) if above else ([Text("1")], "int")
    product = " * ".join(map(str, texts))
    if not below:
        return Text(f"({product})", kind)
    product = " * ".join(str(printer.number(factor)) for factor in above or (sympy.S.One,))
    return Text(f"({chain(printer.dialect.over.format, (printer.number(1 / factor) for factor in below), product)})")


def _power(printer: _Printer, expr: Any) -> Text:
    base, exponent = expr.args
    if exponent == sympy.Rational(1, 2):
        return printer.call("sqrt", printer.number(base))
    if exponent.is_number and exponent.is_negative:
        return Text(f"({printer.dialect.over.format(printer.number(sympy.S.One), printer.number(1 / expr))})")
    if exponent.is_Integer and exponent <= 4:
        (once,), kind = printer.same((base,))
        return Text(f"({' * '.join([str(once)] * int(exponent))})", kind)
    return printer.call("power", printer.number(base), printer.number(exponent))


def _compare(symbol: str) -> Callable[[_Printer, Any], Text]:
    def case(printer: _Printer, expr: Any) -> Text:
        (left, right), _ = printer.same(expr.args)
        return Text(f"({left} {symbol} {right})", "bool")

    return case


def _logic(word: str) -> Callable[[_Printer, Any], Text]:
    def case(printer: _Printer, expr: Any) -> Text:
        pattern = getattr(printer.dialect, word)
        parts = [str(printer.print(part)) for part in sympy.ordered(expr.args)]
        return Text(chain(pattern.format, parts), "bool")

    return case


def _not(printer: _Printer, expr: Any) -> Text:
    return Text(printer.dialect.negation.format(printer.print(expr.args[0])), "bool")


def _where(printer: _Printer, expr: Any) -> Text:
    condition, chosen, other = expr.args
    return printer.call("where", printer.print(condition), printer.number(chosen), printer.number(other))


def _empty(printer: _Printer, expr: Any) -> Text:
    none = Text(f"({printer.print(expr.args[0])} == 0)", "bool")
    return printer.call("where", none, printer.number(sympy.S.One), printer.number(sympy.S.Zero))


def _ceiling(printer: _Printer, expr: Any) -> Text:
    """Whole parts of a size, the last maybe short: sizes divided by a whole number, rounded up."""
    above, below = expr.args[0].as_numer_denom()
    if not below.is_Integer or not all(symbol.is_positive for symbol in above.free_symbols):
        raise FormatError(
            f"{printer.dialect.name} kernels round up sizes alone, not {expr}", remedy="divide by a number"
        )
    return Text(f"({printer.print(above + below - 1)} // {below})", "int")


_CASES: dict[Any, Callable[[_Printer, Any], Text]] = {
    sympy.Add: _add,
    sympy.Mul: _multiply,
    sympy.Pow: _power,
    sympy.StrictLessThan: _compare("<"),
    sympy.LessThan: _compare("<="),
    sympy.StrictGreaterThan: _compare(">"),
    sympy.GreaterThan: _compare(">="),
    sympy.Equality: _compare("=="),
    sympy.Unequality: _compare("!="),
    sympy.ceiling: _ceiling,
    sympy.And: _logic("conjunction"),
    sympy.Or: _logic("disjunction"),
    sympy.Not: _not,
    where: _where,
    empty: _empty,
}


def position(expr: Any, values: Mapping[Any, str]) -> str:
    """A loop bound (whole numbers; Min, Max and floor allowed) as Python text.

    >>> from diagkit.term import coordinate, size
    >>> position(sympy.Min(coordinate("q.last") + 1, size("x")), {coordinate("q.last"): "last", size("x"): "n"})
    'min(n, last + 1)'
    """
    printer = _Positions(values)
    return str(printer.doprint(expr))


class _Positions(PythonCodePrinter):  # type: ignore[misc]
    def __init__(self, values: Mapping[Any, str]) -> None:
        super().__init__()
        self.values = values

    def _print_Symbol(self, symbol: Any) -> str:
        return self.values[symbol]

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(self._print(part) for part in sympy.ordered(expr.args))})"

    def _print_Max(self, expr: Any) -> str:
        return f"max({', '.join(self._print(part) for part in sympy.ordered(expr.args))})"

    def _print_floor(self, expr: Any) -> str:
        above, below = expr.args[0].as_numer_denom()
        return f"(({self._print(above)}) // ({self._print(below)}))"

    def _print_ceiling(self, expr: Any) -> str:
        above, below = expr.args[0].as_numer_denom()
        if all(symbol.is_positive for symbol in above.free_symbols):  # right also where division rounds to zero
            return f"(({self._print(above + below - 1)}) // ({self._print(below)}))"
        return f"-((-({self._print(above)})) // ({self._print(below)}))"
