"""Scalar algebra for streams: factors, terms, and the correction that carries a partial sum forward.

Expressions are over wires, one ``value(name)`` each. A value that changes from chunk to chunk is written
as it was before the chunk; ``renewed`` gives the same value after it. Exponentials stay whole throughout:
exp(s - m) is never pulled apart, since exp(s) alone overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

import sympy

from diagkit.term import finite, plain, quotient, value, where

ONE, ZERO = sympy.S.One, sympy.S.Zero
Symbols = frozenset[Any]
NEW = "\0new"
_OPAQUE = "\0part"


def renewed(symbol: Any) -> Any:
    """The value of a wire after the chunk, where `symbol` is its value before it."""
    return value(symbol.name + NEW)


def after(expr: Any, changing: Iterable[Any]) -> Any:
    """`expr` as it is after the chunk: every one of the `changing` values renewed."""
    return expr.xreplace({symbol: renewed(symbol) for symbol in changing})


def product(factors: Iterable[Any]) -> Any:
    """The product of expressions, 1 of none."""
    return reduce(lambda a, b: a * b, factors, ONE)


def factored(expr: Any, waiting: Symbols) -> Any:
    """`expr` with quotients as products, a / b = a * (1 / b), and choices between a value and 0 likewise.

    >>> factored(quotient(value("e"), value("z")), frozenset())
    e*(1 / z)
    """
    expr = expr.replace(quotient, lambda a, b: a * quotient(ONE, b))

    def chosen(condition: Any, a: Any, b: Any) -> Any:
        product_form = b == 0 and a.free_symbols & waiting
        return a * where(condition, ONE, ZERO) if product_form else where(condition, a, b)

    return expr.replace(where, chosen)


def gathered(expr: Any) -> Any:
    """The products of `expr` with each 1 / b taken back into one quotient, and each choice of 1 or 0 into a choice of
    the product or 0: how a formula is written.

    >>> gathered(value("o") * quotient(sympy.S.One, value("z")))
    o / z
    >>> gathered(value("v") * where(value("c") > 0, ONE, ZERO))
    where(c > 0, v, 0)
    """
    expr = expr if not expr.args else expr.func(*map(gathered, expr.args))
    factors = sympy.Mul.make_args(expr)
    chosen = [factor for factor in factors if isinstance(factor, where) and factor.args[1:] == (ONE, ZERO)]
    if chosen and len(factors) > 1:
        return where(sympy.And(*(one.args[0] for one in chosen)), gathered(_without(factors, chosen)), ZERO)
    below = [factor.args[1] for factor in factors if isinstance(factor, quotient)]
    above = [factor.args[0] if isinstance(factor, quotient) else factor for factor in factors]
    sign = -ONE if -ONE in above else ONE
    return sign * quotient(sign * product(above), product(below)) if below else expr


def _without(factors: Iterable[Any], gone: list[Any]) -> Any:
    return product(factor for factor in factors if factor not in gone)


def split_factors(expr: Any, inside: Symbols, waiting: Symbols) -> tuple[Any, Any]:
    """Factors that wait for a reduction and see nothing that is summed, and all the others.

    >>> e, z = value("e"), value("z")
    >>> split_factors(e * quotient(sympy.S.One, z), frozenset([e]), frozenset([z]))
    (1 / z, e)
    """
    outside = [f for f in sympy.Mul.make_args(expr) if f.free_symbols & waiting and not f.free_symbols & inside]
    rest = [f for f in sympy.Mul.make_args(expr) if f not in outside]
    return product(outside), product(rest)


def split_terms(expr: Any, inside: Symbols, waiting: Symbols) -> tuple[Any, Any]:
    """Terms that wait for a reduction and see nothing that is reduced, and the sum of all the others."""
    outside = [t for t in sympy.Add.make_args(expr) if t.free_symbols & waiting and not t.free_symbols & inside]
    rest = [t for t in sympy.Add.make_args(expr) if t not in outside]
    return sympy.Add(*outside), sympy.Add(*rest)


def hide(expr: Any, hidden: dict[Any, Any] | None = None) -> tuple[Any, dict[Any, Any]]:
    """`expr` as a polynomial: every part that is none (a function, a root, 1 / n) behind a symbol of its
    own, and what each of these symbols hides. Symbols that are `hidden` already are used again."""
    hidden = {} if hidden is None else hidden
    return _hide(expr, hidden), hidden


def _hide(expr: Any, hidden: dict[Any, Any]) -> Any:
    if expr.is_Add or expr.is_Mul or (expr.is_Pow and expr.exp.is_Integer and expr.exp > 0):
        return expr.func(*(_hide(part, hidden) for part in expr.args))
    if expr.is_Symbol or expr.is_number:
        return expr
    symbol = next((known for known, part in hidden.items() if part == expr), value(f"{_OPAQUE}{len(hidden)}"))
    hidden[symbol] = expr
    return symbol


def terms(polynomial: Any, hidden: Mapping[Any, Any]) -> list[list[Any]]:
    """A hidden polynomial as a sum of products, each a list of factors, nothing hidden any more."""
    products = sympy.Add.make_args(sympy.expand(polynomial))
    return [[f.xreplace(hidden) for f in sympy.Mul.make_args(term)] for term in products if term != 0]


def correction(expr: Any, inside: Symbols, waiting: Symbols, sound: Callable[[Any], bool]) -> Any | None:
    """The factor `expr` after the chunk / `expr` before it, where nothing summed enters it; else None.

    `sound` says of a value that it is 0 only where the partial sum is 0 too: only then may it be
    divided out again.

    >>> s, m = value("s"), value("m")
    >>> correction(sympy.exp(s - m), frozenset([s]), frozenset([m]), lambda below: True) == sympy.exp(m - renewed(m))
    True
    """
    ratio = ONE
    for factor in sympy.Mul.make_args(expr):
        if factor.free_symbols & waiting:
            part = _ratio(factor, inside, waiting, sound)
            if part is None:
                return None
            ratio = ratio * part
    return ratio


def _ratio(factor: Any, inside: Symbols, waiting: Symbols, sound: Callable[[Any], bool]) -> Any | None:
    if isinstance(factor, sympy.exp):
        return _exponential(sympy.exp, factor.args[0], inside, waiting)
    if _is_power(factor):
        return _exponential(lambda u: factor.base**u, factor.exp, inside, waiting)
    if not factor.free_symbols & inside:
        return _alone(factor, waiting, sound)
    if factor.is_Pow and factor.exp.is_number:
        part = correction(factor.base, inside, waiting, sound)
        return None if part is None else part**factor.exp
    if isinstance(factor, quotient):
        part = correction(factor.args[1], inside, waiting, sound)
        return None if part is None else quotient(ONE, part)
    return None


def _exponential(power: Callable[[Any], Any], exponent: Any, inside: Symbols, waiting: Symbols) -> Any | None:
    moved = shift(exponent, inside, waiting)
    return None if moved is None else power(moved)


def _alone(factor: Any, waiting: Symbols, sound: Callable[[Any], bool]) -> Any | None:
    """The ratio of a factor in which nothing is summed."""
    below = factor.args[1] if isinstance(factor, quotient) else 1 / factor
    upside = below if isinstance(factor, quotient) or (factor.is_Pow and factor.exp.is_negative) else None
    if upside is not None and sound(upside):
        return quotient(upside, after(upside, waiting))
    return quotient(after(factor, waiting), factor) if upside is None and sound(factor) else None


def shift(expr: Any, inside: Symbols, waiting: Symbols) -> Any | None:
    """The difference `expr` after the chunk - `expr` before it, where nothing reduced enters it; else None."""
    difference = sympy.expand(after(plain(expr), waiting) - plain(expr))
    return None if difference.free_symbols & inside else _by_sizes(difference, expr)


def _by_sizes(difference: Any, expr: Any) -> Any:
    """`difference` with the sizes that divide `expr` in a quotient, 0 where they are, dividing it so too."""
    sizes = {s for part in expr.atoms(quotient) for s in part.args[1].free_symbols if s.is_positive}
    return difference.replace(_divides(lambda below: bool(below.free_symbols & sizes)), lambda p: quotient(ONE, 1 / p))


def guarded(expr: Any, extremes: Mapping[Any, Any], may_vanish: Callable[[Any], bool]) -> Any:
    """`expr` safe on chunks that see nothing, and a division by what may be an empty sum 0.

    `extremes` are maxima (1) and minima (-1) that are still infinite where nothing was seen. One that is
    taken off, in an exponent or by a box of its own, counts as 0 there: exp(-inf - (-inf)) never happens.
    """
    if extremes:
        expr = _finite_shifts(expr, extremes) if expr.is_Add else expr
        expr = expr.replace(sympy.exp, lambda exponent: sympy.exp(_finite_shifts(exponent, extremes)))
        expr = expr.replace(_is_power, lambda power: power.base ** _finite_shifts(power.exp, extremes))
    return expr.replace(_divides(may_vanish), lambda power: quotient(ONE, 1 / power))


def settled(expr: Any, extremes: Mapping[Any, Any], may_vanish: Callable[[Any], bool]) -> Any:
    """As `guarded`, for what sees no element of the chunk: there an extreme that has seen nothing is 0 wherever
    it stands, since what is made of it shifts elements that are infinite themselves, or is begun anew.

    >>> m, c = value("m"), value("c")
    >>> settled(c * m, {m: 1}, lambda below: False)
    c*finite(m)
    """
    shifts = {m: sign * finite(sign * m) for m, sign in extremes.items()}
    return guarded(expr.xreplace(shifts), {}, may_vanish)


def is_shifted(expr: Any) -> bool:
    """Whether `expr` is an exponential, of e or of a number: what a shift of its exponent rescales."""
    return isinstance(expr, sympy.exp) or _is_power(expr)


def _is_power(expr: Any) -> bool:
    return bool(expr.is_Pow and expr.base.is_number and not expr.exp.is_number)


def _finite_shifts(exponent: Any, extremes: Mapping[Any, Any]) -> Any:
    kept = {finite(m): value(f"{m.name}{_OPAQUE}") for m in extremes}
    bare = exponent.xreplace(kept)
    wrapped = {m: sign * finite(sign * m) for m, sign in extremes.items() if _taken_off(bare, m, sign)}
    return bare.xreplace(wrapped).xreplace({symbol: shift for shift, symbol in kept.items()})


def _taken_off(exponent: Any, extreme: Any, sign: Any) -> bool:
    """Whether a maximum is subtracted or a minimum added, or might be."""
    slope = sign * sympy.expand(exponent).coeff(extreme)
    return bool(slope != 0 and not slope.is_nonnegative)


def settles(carry: Any, extreme: Any, sign: Any) -> bool:
    """Whether a correction vanishes by itself while `extreme`, as it was, has seen nothing: where it enters
    exponents only, and there as a maximum (-inf) that is added or a minimum (+inf) that is taken off; or where
    the correction only asks whether it has moved, and begins anew if it has. What `finite` wraps is a number."""
    carry = carry.xreplace({finite(sign * extreme): ONE})
    carry = carry.xreplace({part: sympy.true for part in carry.atoms(sympy.Eq) if extreme in part.args})
    exponents = [part.args[0] for part in carry.atoms(sympy.exp)] + [
        p.exp for p in carry.atoms(sympy.Pow) if _is_power(p)
    ]
    slopes = [(sympy.expand(exponent), sympy.expand(exponent).coeff(extreme)) for exponent in exponents]
    good = {part for part, (e, slope) in zip(exponents, slopes, strict=True) if _drops(e, slope, extreme, sign)}
    return not carry.xreplace(dict.fromkeys(good, ZERO)).has(extreme)


def _drops(exponent: Any, slope: Any, extreme: Any, sign: Any) -> bool:
    linear = not (exponent - slope * extreme).expand().has(extreme)
    return bool(linear and (sign * slope).is_positive)


def _divides(may_vanish: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def divides(expr: Any) -> bool:
        return bool(expr.is_Pow and expr.exp.is_number and expr.exp.is_negative and may_vanish(expr.base))

    return divides


def is_positive(expr: Any, summand: Mapping[Any, Any]) -> bool:
    """Whether `expr` is sure to be > 0; `summand` gives what a partial sum sums."""
    if expr.is_Add:
        parts = expr.args
        return any(is_positive(p, summand) for p in parts) and all(is_nonnegative(p, summand) for p in parts)
    if expr.is_Mul:
        return all(is_positive(part, summand) for part in expr.args)
    if expr.is_Pow and expr.exp.is_number:
        return is_positive(expr.base, summand)
    return bool(expr.is_positive) and not isinstance(expr, sympy.exp)


def is_nonnegative(expr: Any, summand: Mapping[Any, Any]) -> bool:
    """Whether `expr` is sure to be >= 0; `summand` gives what a partial sum sums."""
    if expr in summand:
        return is_nonnegative(summand[expr], summand)
    if expr.is_Add or expr.is_Mul:
        return all(is_nonnegative(part, summand) for part in expr.args)
    if isinstance(expr, quotient | where):
        return all(is_nonnegative(part, summand) for part in expr.args[-2:])
    if expr.is_Pow and expr.exp.is_number:
        return bool(expr.exp.is_even) or is_nonnegative(expr.base, summand)
    return bool(expr.is_nonnegative) or isinstance(expr, sympy.exp) or bool(_is_power(expr) and expr.base.is_positive)


def bases(expr: Any) -> set[Any]:
    """What must vanish for the product `expr` to vanish: its factors without their powers."""
    factors = (f.base if f.is_Pow else f for f in sympy.Mul.make_args(expr))
    return {factor for factor in factors if not factor.is_number}
