"""Numbers that a loop need not multiply by: a wire is made without its constant factor where every box that
reads it takes the factor in for nothing.

A box takes a number in for nothing where it multiplies by one anyway: in an exponential (log2(e) is there),
beside another number, as one term of a sum (a multiply-add). A sum, a maximum or a minimum over an axis
takes it in once for its result. So the scale of scores waits until their exponential, and a factor on an
exponential becomes a term of its argument.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sympy

from diagkit.program import Compute, Kernel, Store, Update
from diagkit.term import Box, Map, Reduce, arg, quotient, where

LOG2_E = sympy.Float("1.4426950408889634", 17)
Axes = Mapping[Any, set[str]]
"""By symbol, the axes along which it varies."""

Numbers = dict[str, Any]
"""By wire: the positive number that what is held must be multiplied by."""


def waiting(kernel: Kernel, sizes: Mapping[Any, Any]) -> Numbers:
    """The wires of the kernel's loop that are held without a number, and the number; `sizes` are known."""
    loop = [s.box for s in kernel.part("loop") if isinstance(s, Compute)]
    maps = {box.name: box for box in loop if _is_plain(kernel, box)}
    kept = {s.wire for s in kernel.statements if isinstance(s, Store)}
    kept |= {s.new for s in kernel.statements if isinstance(s, Update)}
    readers = {name: [box for box in loop if name in box.inputs] for name in maps}
    taken: dict[str, bool] = {}
    for name in reversed(maps):
        taken[name] = name not in kept and all(_takes(box, name, taken, sizes) for box in readers[name])
    found: Numbers = {}
    for name, box in maps.items():
        if taken[name]:
            own = factor(with_numbers(box, found, sizes))
            number = _asked_for(box, readers[name], sizes) if own == 1 else own
            found |= {name: number} if number not in (1, None) else {}
    return found


def _is_plain(kernel: Kernel, box: Box) -> bool:
    """Whether a box makes numbers, element by element, along the axis of the loop."""
    wire = kernel.wire[box.name]
    streamed = kernel.loop is not None and kernel.loop.axis in {axis.name for axis in box.axes}
    number = not (wire.virtual or wire.dtype == "bool" or wire.dtype.startswith("int"))
    return isinstance(box, Map) and streamed and number


def with_numbers(box: Any, numbers: Numbers, sizes: Mapping[Any, Any]) -> Any:
    """The formula of a map over what its inputs hold."""
    expr = box.expr.xreplace(dict(sizes))
    return expr.xreplace({arg(i): numbers[w] * arg(i) for i, w in enumerate(box.inputs) if w in numbers})


def factor(expr: Any) -> Any:
    """The positive number by which a formula multiplies the rest of it; None where any would do (0, oo).

    >>> from diagkit.term import where
    >>> s, seen = arg(0), arg(1)
    >>> factor(-3 * s), factor(where(seen, s / 4, -sympy.oo)), factor(s + 2)
    (3, 1/4, 1)
    """
    if expr.is_number:
        return None if expr in (0, sympy.oo, -sympy.oo) else sympy.S.One
    if expr.is_Mul:
        return abs(sympy.Mul(*(part for part in expr.args if part.is_number)))
    if expr.func == where:
        parts = {factor(part) for part in expr.args[1:]} - {None}
        return parts.pop() if len(parts) == 1 else sympy.S.One
    return sympy.S.One


def without(expr: Any, number: Any) -> Any:
    """A formula divided by a positive number, inside its choices.

    >>> from diagkit.term import where
    >>> s, seen = arg(0), arg(1)
    >>> without(where(seen, s / 4, -sympy.oo), sympy.Rational(1, 4))
    where(a1, a0, -oo)
    """
    if number == 1:
        return expr
    if expr.is_number and factor(expr) is None:
        return expr
    if expr.func == where:
        condition, *parts = expr.args
        return where(condition, *(without(part, number) for part in parts))
    return expr / number


def folded(expr: Any, axes: Axes, far: Collection[Any] = ()) -> Any:
    """The formula with each product's numbers as one, and exponentials ready for powers of two: their argument times
    log2(e). Where its terms are along different `axes` (of each symbol), log2(e) joins the numbers that they have,
    and a term is added as it is multiplied. A difference along the same axes stays one: of equals it must be 0. So does
    one of a symbol that reaches `far` (see `reach`).

    >>> from sympy import exp, sqrt, symbols
    >>> s, m = symbols("s m")
    >>> folded(exp(s - m), {s: {"q", "x"}, m: {"q"}})
    exp(-1.4426950408889634*m + 1.4426950408889634*s)
    >>> folded(exp(s - m), {s: {"q"}, m: {"q"}})
    exp(1.4426950408889634*(-m + s))
    >>> folded(exp(s - m), {s: {"q", "x"}, m: {"q"}}, far={s})
    exp(1.4426950408889634*(-m + s))
    >>> folded(symbols("s") / sqrt(128), {})
    0.088388347648318441*s
    """

    def power(inside: Any) -> Any:
        several = len({frozenset(covered(term, axes)) for term in sympy.Add.make_args(inside)}) > 1
        spread = several and inside.free_symbols.isdisjoint(far)
        product = sympy.expand_mul(LOG2_E * inside) if spread else sympy.Mul(LOG2_E, inside, evaluate=False)
        return sympy.exp(product, evaluate=False)

    return expr.replace(sympy.exp, power).replace(lambda part: part.is_Mul, _one_number)


def covered(expr: Any, axes: Axes) -> set[str]:
    """The axes along which a formula varies."""
    return set().union(*(axes[one] for one in expr.free_symbols & axes.keys()))


def _one_number(product: Any) -> Any:
    numbers = [factor for factor in product.args if factor.is_number]
    if len(numbers) < 2:
        return product
    rest = [factor for factor in product.args if not factor.is_number]
    return sympy.Mul(sympy.Mul(*numbers).evalf(17), *rest)


def _asked_for(box: Any, readers: list[Box], sizes: Mapping[Any, Any]) -> Any:
    """The number that spares an exponential's readers their own: its inverse, where they agree on it."""
    asked = {factor(reader.expr.xreplace(dict(sizes))) for reader in readers if isinstance(reader, Map)}
    return 1 / asked.pop() if box.expr.func == sympy.exp and len(asked) == 1 else None


def _takes(box: Any, name: str, taken: Mapping[str, bool], sizes: Mapping[Any, Any]) -> bool:
    """Whether a box that reads `name` takes a number in for nothing, or hands it on to those that do."""
    if isinstance(box, Reduce):
        return bool(box.op != "product")
    if not isinstance(box, Map):
        return False
    expr = box.expr.xreplace(dict(sizes))
    read = [arg(i) for i, wire in enumerate(box.inputs) if wire == name]
    handed_on = len(read) == 1 and taken.get(box.name, False) and _is_multiple(expr, read[0])
    return handed_on or all(_is_free(expr, one) for one in read)


def _is_multiple(expr: Any, one: Any) -> bool:
    """Whether the formula grows as `one` does: a product with it, or a choice between such and 0 or oo."""
    if expr == one:
        return True
    if expr.func == where:
        condition, *parts = expr.args
        rest = [part for part in parts if not (part.is_number and factor(part) is None)]
        return not condition.has(one) and all(_is_multiple(part, one) for part in rest)
    within = [part for part in expr.args if part.has(one)] if expr.is_Mul else []
    return len(within) == 1 and _is_multiple(within[0], one)


def _is_free(expr: Any, one: Any) -> bool:
    """Whether a number in front of `one` costs nothing in this formula."""
    if not expr.has(one):
        return True
    if expr.func == sympy.exp:
        return not expr.args[0].diff(one).has(one)
    if expr.is_Mul:
        return factor(expr) != 1 and _is_multiple(expr, one)
    return expr.is_Add and all(term == one or _is_free(term, one) for term in expr.args)


def nonnegative(expr: Any, known: frozenset[Any]) -> bool:
    """Whether a formula is never below 0 (it may be NaN) where the symbols `known` are not.

    >>> s, e = arg(0), arg(1)
    >>> nonnegative(256 * sympy.exp(s), frozenset()), nonnegative(s * e, frozenset([e]))
    (True, False)
    """
    if expr.is_number:
        return bool(expr.is_nonnegative)
    if expr in known or expr.func in (sympy.exp, sympy.Abs):
        return True
    if expr.is_Pow:
        return bool(expr.exp.is_even) or (expr.exp.is_number and nonnegative(expr.base, known))
    parts = expr.args[1:] if expr.func == where else expr.args
    grows = expr.is_Add or expr.is_Mul or expr.func in (where, quotient)
    return bool(grows and all(nonnegative(part, known) for part in parts))
