"""Symbols and scalar functions: the only place where either is made.

A size is a positive integer symbol named after its axis or tile. A scalar argument ``arg(i)`` stands for
the i-th input of a map. Two symbols of one name but different assumptions are different to sympy, so
nothing outside this module calls ``sympy.Symbol``.
"""

# ruff: noqa: N801, N815, SLF001  (functions are classes to sympy, and printers have methods by its names)
from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from diagkit.term.errors import InputError

Expr = sympy.Basic
"""What a scalar expression is to the type checker: sympy's own classes are not annotated."""


class Size(sympy.Symbol):
    """The size of an axis or tile, in elements. `subs` finds it by its name too, which a plain symbol of sympy
    is taken for: without that ``formula.subs({"q": 1})`` would change nothing, and say nothing.

    >>> (size("q") * size("d")).subs({"q": 512, "d": 32})
    16384
    """

    __slots__ = ()

    @classmethod
    def class_key(cls) -> Any:
        """Sizes stand among other symbols by their names alone, in every formula that is shown."""
        return sympy.Symbol.class_key()

    def _eval_subs(self, old: Any, new: Any) -> Any:
        """`new` in place of a symbol of this name of which nothing else is known; None leaves it to sympy."""
        plain = type(old) is sympy.Symbol and old.name == self.name
        return new if plain and old.is_positive is None and old.is_real is None else None


@cache
def size(name: str) -> Any:
    """The size of the axis or tile `name`, in elements: a positive integer symbol.

    >>> size("q") == size("q"), size("q").is_positive
    (True, True)
    """
    return Size(name, integer=True, positive=True)


@cache
def arg(position: int) -> Any:
    """The scalar that stands for input number `position` of a map.

    >>> arg(0), arg(1).is_real
    (a0, True)
    """
    return value(f"a{position}")


@cache
def value(name: str) -> Any:
    """The scalar on the wire `name`, as it appears in the identities of a derivation.

    >>> value("m") - value("m.new")
    m - m.new
    """
    return sympy.Symbol(name, real=True)


@cache
def coordinate(name: str) -> Any:
    """The position along the axis `name`, as it appears in the coordinates of a view.

    >>> coordinate("t") + 1
    t + 1
    """
    return sympy.Symbol(name, integer=True, nonnegative=True)


class finite(sympy.Function):
    """A maximum used as a shift: the value itself, and 0 where it is -inf (a row that sees nothing).

    The shift cancels in softmax, so any finite value may stand for it; -inf - (-inf) never happens.

    >>> finite(sympy.S.NegativeInfinity), finite(sympy.Integer(3))
    (0, 3)
    """

    nargs = 1
    is_extended_real = True

    @classmethod
    def eval(cls, value: Any) -> Any:
        """What sympy may put in its place, or None."""
        if value.is_number:
            return sympy.S.Zero if value is sympy.S.NegativeInfinity else value
        return value if isinstance(value, finite) else None

    def _latex(self, printer: Any, exp: Any = None) -> str:
        text = printer.parenthesize(self.args[0], 50) if exp else printer._print(self.args[0])
        return f"{text}^{{{exp}}}" if exp else str(text)


class quotient(sympy.Function):
    """A quotient whose denominator may be an empty sum: a / b, and 0 where b is 0.

    What has no value before it is divided has none after.

    >>> quotient(sympy.Integer(6), sympy.Integer(3)), quotient(sympy.S.One, sympy.S.Zero)
    (2, 0)
    >>> quotient(1 / sympy.S.Zero, sympy.S.Zero)
    nan
    >>> quotient(size("n") + 1, size("d")) ** 2
    ((n + 1) / d)**2
    """

    nargs = 2
    precedence = PRECEDENCE["Mul"]
    is_extended_real = True

    @classmethod
    def eval(cls, above: Any, below: Any) -> Any:
        """What sympy may put in its place, or None."""
        if below.is_zero:
            return sympy.nan if above.has(sympy.zoo, sympy.nan) else sympy.S.Zero
        return above / below if below.is_number else None

    def _sympystr(self, printer: Any) -> str:
        return " / ".join(printer.parenthesize(part, PRECEDENCE["Mul"]) for part in self.args)

    def _latex(self, printer: Any, exp: Any = None) -> str:
        text = rf"\frac{{{printer._print(self.args[0])}}}{{{printer._print(self.args[1])}}}"
        return rf"\left({text}\right)^{{{exp}}}" if exp else text


class where(sympy.Function):
    """A choice: the second argument where the first (a comparison) holds, else the third.

    >>> where(sympy.true, arg(0), arg(1))
    a0
    """

    nargs = 3
    is_extended_real = True

    @classmethod
    def eval(cls, condition: Any, chosen: Any, other: Any) -> Any:
        """What sympy may put in its place, or None."""
        if condition in (sympy.true, sympy.false):
            return chosen if condition is sympy.true else other
        return None

    def _latex(self, printer: Any, exp: Any = None) -> str:
        condition, chosen, other = (printer._print(part) for part in self.args)
        return rf"\begin{{cases}}{chosen} & {condition}\\{other}\end{{cases}}"


def never_negative(expr: Any) -> bool:
    """Whether a formula of sizes is at least 0 wherever every size is 1 or more; False where that is not sure.

    >>> never_negative(size("p") + size("w") - 1), never_negative(size("p") - 2)
    (True, False)
    """
    more = {symbol: sympy.Dummy(integer=True, nonnegative=True) + 1 for symbol in expr.free_symbols}
    return expr.is_nonnegative is True or sympy.expand(expr.xreplace(more)).is_nonnegative is True


class empty(sympy.Function):
    """Whether there is nothing: 1 where a number of elements is 0, else 0. A constant once sizes are known.

    >>> empty(sympy.Integer(0)), empty(sympy.Integer(7)), empty(size("x"))
    (1, 0, [x = 0])
    """

    nargs = 1
    is_extended_real = True
    is_nonnegative = True

    @classmethod
    def eval(cls, count: Any) -> Any:
        """What sympy may put in its place, or None."""
        return sympy.Integer(count == 0) if count.is_number else None

    def _sympystr(self, printer: Any) -> str:
        return f"[{printer._print(self.args[0])} = 0]"

    def _latex(self, printer: Any, exp: Any = None) -> str:
        return f"[{printer._print(self.args[0])} = 0]"


def plain(expr: Any) -> Any:
    """`expr` for algebra: `finite` is what it wraps and `quotient` is a division.

    >>> plain(quotient(arg(0), finite(arg(1))))
    a0/a1
    """
    return expr.replace(finite, lambda a: a).replace(quotient, lambda a, b: a / b)


def exact(value: Any) -> Any:
    """A number as sympy takes it, floats of few digits as the fraction that was typed.

    >>> exact(0.5), exact(1e-5), exact(1e300) == sympy.Float(1e300), exact(float("-inf"))
    (1/2, 1/100000, True, -oo)
    """
    if isinstance(value, float):
        return _exact_float(float(value))
    value = _sympified(value)
    floats = {number: _exact_float(float(number)) for number in value.atoms(sympy.Float)}
    return value.xreplace(floats) if floats else value


def _sympified(value: Any) -> Any:
    try:
        found = sympy.sympify(value)
    except sympy.SympifyError:
        found = None
    if not isinstance(found, sympy.Basic):
        raise InputError(f"{value!r} is neither a number nor a formula", remedy='use a number, or a name such as "M"')
    return found


def apply(function: str, *parts: Any) -> Any:
    """sympy's `function` of that name (exp, Max, LessThan, And ...) applied, or `empty`: what a repr is written with.

    >>> apply("Max", arg(0), 2), apply("empty", size("x"))
    (Max(2, a0), [x = 0])
    """
    return (empty if function == empty.__name__ else getattr(sympy, function))(*parts)


def _exact_float(value: float) -> Any:
    if not math.isfinite(value):
        return sympy.sympify(value)
    typed = sympy.Rational(repr(value))
    short = typed.q <= 10**12 and abs(typed.p) < 2**63  # beyond 64 bits no engine has the whole number
    return typed if short else sympy.Float(value)


class _Text(StrPrinter):
    """sympy text that evaluates back: symbols by constructor, fractions exact."""

    printmethod = ""  # not as people read it

    def _print_Symbol(self, symbol: Any) -> str:
        if re.fullmatch(r"a\d+", symbol.name) and not symbol.is_integer:
            return f"arg({int(symbol.name[1:])})"
        kind = "size" if symbol.is_positive else "coordinate" if symbol.is_nonnegative else "value"
        return f"{kind}({symbol.name!r})"

    def _print_Rational(self, number: Any) -> str:
        return f"exact('{number.p}/{number.q}')"

    def _print_Half(self, number: Any) -> str:
        return self._print_Rational(number)

    def _print_Integer(self, number: Any) -> str:
        return str(number.p)

    def _print_NumberSymbol(self, number: Any) -> str:
        return f"exact({str(number)!r})"

    _print_Exp1 = _print_Pi = _print_Infinity = _print_NegativeInfinity = _print_NumberSymbol

    def _print_Float(self, number: Any) -> str:
        return f"exact({float(number)!r})"

    def _print_Pow(self, power: Any, rational: bool = False) -> str:
        base, exponent = (f"({self._print(part)})" for part in power.args)
        return f"{base}**{exponent}"

    def _print_Mul(self, product: Any) -> str:
        return "*".join(f"({self._print(factor)})" for factor in product.args)

    def _print_Relational(self, relation: Any) -> str:
        left, right = self._print(relation.lhs), self._print(relation.rhs)
        return f"apply({type(relation).__name__!r}, {left}, {right})"

    def _print_Function(self, call: Any) -> str:
        parts = ", ".join(self._print(part) for part in call.args)
        own = call.func in (finite, quotient, where)
        return f"{call.func.__name__}({parts})" if own else f"apply({call.func.__name__!r}, {parts})"

    _print_ExpBase = _print_Max = _print_Min = _print_Abs = _print_And = _print_Or = _print_Not = _print_Function


_PRINTER = _Text()


def text(expr: Any) -> str:
    """Text of a scalar expression that evaluates back to an equal one in diagkit's namespace.

    >>> text(arg(0) * size("d") ** exact(-0.5))
    "(arg(0))*((size('d'))**(exact('-1/2')))"
    """
    return str(_PRINTER.doprint(expr))
