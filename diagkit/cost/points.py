"""Formulas at many points at once: the same whole numbers as `evaluate`, array by array.

A formula becomes numpy source once. Where every number on the way is sure to stay below 2**62 it runs
in 64 bits, else on Python's own whole numbers, which have any length; nothing ever wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from math import isfinite, prod
from typing import Any

import numpy as np
import sympy

from diagkit.cost.exact import PythonText, evaluate
from diagkit.cost.memory import memory
from diagkit.cost.ragged import count_at
from diagkit.cost.transfers import transfers
from diagkit.cost.upper import undominated
from diagkit.cost.visits import visited
from diagkit.cost.work import work
from diagkit.term import InputError, Term, at_level

Array = np.ndarray[Any, Any]
LIMIT = 1 << 62
"""Numbers that are sure to stay below this are held in 64 bits."""


class _Arrays(PythonText):
    """A formula of whole numbers as numpy source; what has no such form is an error that `array_form` catches."""

    def _print_Mul(self, product: Any) -> str:
        return "(" + "*".join(map(self._print, product.args)) + ")"

    def _print_Pow(self, power: Any, rational: bool = False) -> str:
        base, exponent = power.args
        if not (exponent.is_Integer and exponent > 0):
            raise NotImplementedError(power)
        return f"{self._print(base)}**{exponent.p}"

    def _print_Max(self, node: Any) -> str:
        return self._folded("maximum", node)

    def _print_Min(self, node: Any) -> str:
        return self._folded("minimum", node)

    def _folded(self, name: str, node: Any) -> str:
        first, *rest = map(self._print, node.args)
        for other in rest:
            first = f"{name}({first}, {other})"
        return str(first)

    def _print_visited(self, node: Any) -> str:
        return str(self.places[node])

    def emptyPrinter(self, expr: Any) -> str:
        """What is neither a number, a sum, a product nor one of the functions above."""
        raise NotImplementedError(expr)

    def _print_Rational(self, number: Any) -> str:
        raise NotImplementedError(number)

    _print_Float = _print_Half = _print_Function = _print_Rational  # noqa: N815 - sympy's names


@dataclass(frozen=True)
class _Form:
    """A formula as a quotient of two array functions of whole numbers: of `symbols`, then of `sums`."""

    symbols: tuple[Any, ...]
    sums: tuple[Any, ...]
    above: Callable[..., Any]
    below: Callable[..., Any]
    parts: tuple[Any, Any]


@lru_cache(maxsize=2048)
def _array_form(expr: Any) -> _Form | None:
    """The formula as array functions, or None where it is not made of whole numbers."""
    symbols = tuple(sorted(expr.free_symbols, key=lambda symbol: symbol.name))
    sums = tuple(sorted(expr.atoms(visited), key=sympy.default_sort_key))
    above, below = sympy.fraction(sympy.together(expr))
    places = {symbol: f"v{n}" for n, symbol in enumerate(symbols)} | {node: f"s{n}" for n, node in enumerate(sums)}
    head = f"lambda {', '.join(places.values())}: "
    known = {"maximum": np.maximum, "minimum": np.minimum}
    try:
        texts = [_Arrays(places).doprint(part) for part in (above, below)]
    except NotImplementedError:
        return None
    # The text is ours: symbols became v0, v1, ..., everything else is a number or an operator.
    top, bottom = (eval(head + text, dict(known)) for text in texts)  # noqa: S307
    return _Form(symbols, sums, top, bottom, (above, below))


def evaluate_at(exprs: Iterable[Any], sizes: Mapping[str, Any]) -> list[Array]:
    """The numbers of several formulas at many points: `sizes` gives each name an array of whole numbers, or
    one for all points. Each result is an array of 64-bit or of Python's whole numbers, floats only where
    a value is no whole number. A missing size is an InputError.

    >>> from diagkit.term import size
    >>> evaluate_at([size("n") ** 3], {"n": [2, 10**7]})[0].tolist()
    [8, 1000000000000000000000]
    """
    columns, known = point_columns(sizes), dict[Any, Array]()
    return [_evaluated(sympy.sympify(expr), columns, known) for expr in exprs]


def point_columns(sizes: Mapping[str, Any]) -> dict[str, Array]:
    """The sizes as whole-number arrays of one length. Errors: InputError naming the size that is none."""
    arrays = {name: _whole(name, values) for name, values in sizes.items()}
    lengths = {len(array) for array in arrays.values()} - {1}
    if len(lengths) > 1:
        told = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise InputError(f"sizes of different numbers of points: {told}", remedy="give one, or one for each point")
    return {name: np.broadcast_to(array, (*lengths, 1)[:1]) for name, array in arrays.items()}


def _whole(name: str, values: Any) -> Array:
    """Whole numbers of any length as a flat array, of 64 bits where they fit."""
    given = values.tolist() if hasattr(values, "tolist") else values
    flat = list(given) if isinstance(given, Iterable) else [given]
    numbers = [int(value) for value in flat if isinstance(value, int | float | sympy.Integer) and _is_whole(value)]
    if len(numbers) != len(flat) or min(numbers, default=0) < 0:
        raise InputError(f"{name} has a value that is no size", axis=name, remedy="give whole numbers from 0 up")
    return np.array(numbers, dtype=np.int64 if max(numbers, default=0) < LIMIT else object)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isfinite(value) and value == int(value))


def _evaluated(expr: Any, columns: Mapping[str, Array], known: dict[Any, Array]) -> Array:
    form = _array_form(expr)
    _need(form.symbols if form else expr.free_symbols, columns)
    if form is None:
        return _one_by_one(expr, columns)
    given = [columns[symbol.name] for symbol in form.symbols] + [_summed(node, columns, known) for node in form.sums]
    most = {symbol: int(columns[symbol.name].max(initial=0)) for symbol in form.symbols}
    if max(reach(part, most) for part in form.parts) >= LIMIT:
        given = [array.astype(object) for array in given]
    length = max(map(len, columns.values()), default=1)
    try:
        with np.errstate(divide="raise"):
            above, below = (np.asarray(part(*given)) for part in (form.above, form.below))
            return _divided(np.broadcast_to(above, length), np.broadcast_to(below.astype(above.dtype), length))
    except (FloatingPointError, ZeroDivisionError):
        raise InputError(f"{expr} is no number where a tile is 0", remedy="give tiles from 1 up") from None


def _need(symbols: Iterable[Any], columns: Mapping[str, Array]) -> None:
    missing = sorted(symbol.name for symbol in symbols if symbol.name not in columns)
    if missing:
        remedy = f"give also: {', '.join(missing)}"
        raise InputError(f"the size of {missing[0]!r} is not given", axis=missing[0], remedy=remedy)


def _summed(node: Any, columns: Mapping[str, Array], known: dict[Any, Array]) -> Array:
    """A sum over tiles at every point; a node that several formulas hold is summed once."""
    if node not in known and not _even(node):
        known[node] = _one_by_one(node, columns)
    if node not in known:
        (x, s, positions), others, bounds, _ = node.args
        cut = [(*(_evaluated(part, columns, known) for part in (size, tile)), int(kind)) for size, tile, kind in others]
        shifts = [_evaluated(shift, columns, known) for _, _, shift, _ in bounds]
        lines = [(int(b[0]), tuple(map(int, b[1])), shift, int(b[3])) for b, shift in zip(bounds, shifts, strict=True)]
        stream = (*(_evaluated(part, columns, known) for part in (x, s)), int(positions))
        known[node] = count_at(stream, cut, lines)
    return known[node]


def _even(node: Any) -> bool:
    """Whether a sum counts positions or tiles alone, all of them, and no tiles inside others."""
    stream, others, _, clips = node.args
    return not clips and all(len(cut) == 3 and cut[2] in (0, 1) for cut in (stream, *others))


def _divided(above: Array, below: Array) -> Array:
    """Whole where it divides, else a float; each value by itself."""
    quotient = above // below
    if np.array_equal(quotient * below, above):
        return np.asarray(quotient)
    pairs = zip(above.tolist(), below.tolist(), strict=True)
    return np.array([a // b if a % b == 0 else float(Fraction(a, b)) for a, b in pairs], dtype=object)


def _one_by_one(expr: Any, columns: Mapping[str, Array]) -> Array:
    """What has no array form (roots, say), point by point, each point once."""
    names = sorted(symbol.name for symbol in expr.free_symbols)
    length = max(map(len, columns.values()), default=1)
    points = list(zip(*(columns[name].tolist() for name in names), strict=True)) or [()] * length
    found = {point: evaluate(expr, dict(zip(names, point, strict=True))) for point in dict.fromkeys(points)}
    return np.array([found[point] for point in points], dtype=object)


def reach(node: Any, most: Mapping[Any, int]) -> int:
    """What no number met while a formula is computed exceeds, its sizes being at most `most`.

    >>> from diagkit.term import size
    >>> reach(size("q") * sympy.ceiling(size("x") / size("s")), {size("q"): 10, size("x"): 7, size("s"): 2})
    80
    """
    if node.is_Symbol:
        return most[node]
    return abs(int(node)) if node.is_Integer else _REACH[node.func](node, lambda part: reach(part, most))


_quotient = lru_cache(maxsize=4096)(lambda expr: sympy.fraction(sympy.together(expr)))


def _reach_rounded(node: Any, top: Callable[[Any], int]) -> int:
    return max(map(top, _quotient(node.args[0]))) + 1


def _reach_visited(node: Any, top: Callable[[Any], int]) -> int:
    (x, *_), others, *_ = node.args
    return prod(top(size) + 1 for size in (x, *(size for size, *_ in others)))


_REACH: dict[Any, Callable[[Any, Callable[[Any], int]], int]] = {
    sympy.Add: lambda node, top: sum(map(top, node.args)),
    sympy.Mul: lambda node, top: prod(map(top, node.args)),
    sympy.Pow: lambda node, top: max(1, top(node.args[0])) ** int(node.args[1]),
    sympy.Max: lambda node, top: max(map(top, node.args)),
    sympy.Min: lambda node, top: max(map(top, node.args)),
    sympy.ceiling: _reach_rounded,
    sympy.floor: _reach_rounded,
    visited: _reach_visited,
}
"""How far each kind of formula reaches; denominators are at least 1."""


@dataclass(frozen=True)
class Amounts:
    """The costs of one diagram, made ready once, for any number of points: `formulas` by name, in `units`.

    A name with several formulas is the largest of them at each point (what is held, column by column).
    """

    formulas: Mapping[str, tuple[Any, ...]]
    units: Mapping[str, str]

    def at(self, **sizes: Any) -> dict[str, Array]:
        """Every amount at many points: `sizes` in elements, arrays or one number for all (see `evaluate_at`), from
        1 up; an InputError names one that is 0."""
        empty = next((name for name, column in point_columns(sizes).items() if (column == 0).any()), None)
        if empty:
            raise InputError(f"{empty} is 0 somewhere", axis=empty, remedy="give sizes and tiles from 1 up")
        every = [formula for several in self.formulas.values() for formula in several]
        numbers = iter(evaluate_at(every, sizes))
        return {name: reduce(np.maximum, (next(numbers) for _ in few)) for name, few in self.formulas.items()}


def amounts(term: Term, dtype: str | None = None) -> Amounts:
    """What a diagram moves and holds in bytes (in the formats of its wires, or all in `dtype`) and what it
    computes: "tensor" in FLOP, "fma" and "special" in operations, those that occur.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> ready = amounts(dk.Diagram(C).group(a="g_a", c="g_c"), "fp16")
    >>> {name: numbers.tolist() for name, numbers in ready.at(a=64, b=64, c=64, g_a=[16, 32], g_c=32).items()}
    {'moved': [57344, 40960], 'held': [7168, 10240], 'tensor': [524288, 524288]}
    """
    term = at_level(term, 1)
    held = undominated(memory(term).bytes(dtype).columns().values())
    units = {unit: amount for unit, amount in work(term).by_unit().items() if amount != 0}
    found = {"moved": (transfers(term).bytes(dtype).total(),), "held": tuple(held) or (sympy.Integer(0),)}
    said = {"moved": "bytes", "held": "bytes", "tensor": "FLOP", "fma": "operations", "special": "operations"}
    return Amounts(found | {unit: (amount,) for unit, amount in units.items()}, said)
