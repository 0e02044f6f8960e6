"""Work: operations by the unit that does them, per column.

Units: "tensor" counts FLOP, two per multiply-add of a contraction; "fma" and "special" count results of
the multiply-add and special-function units. A multiply-add is one MAC and two FLOP: `mac` and `flop` are
different methods.

Conventional counts weigh functions instead: per point, exp or tanh 4, softmax 8, a norm 7. Here every
operation is one, of the unit that does it, so that each unit's time can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple, Self

import sympy

from diagkit.cost.exact import Number, evaluate, relax
from diagkit.cost.kernel import Kernel, amount_of, kernels, product, whole_elements
from diagkit.cost.masks import Mask, loop_mask
from diagkit.cost.show import Shown, Table
from diagkit.cost.transfers import masked_points
from diagkit.cost.visits import Bound
from diagkit.ops import BY_SYMBOL
from diagkit.term import Axes, Axis, Box, Contract, Index, Map, Reduce, Term, View, empty, names

UNITS = ("tensor", "fma", "special")


class Task(NamedTuple):
    """What is counted: the box of one kernel (by number), and the unit that does it.

    >>> import diagkit as dk
    >>> q, d = dk.axes("q d")
    >>> done = dk.Diagram(dk.total(dk.array("Q", q, d), over=d, name="T")).work()
    >>> next(iter(done)), done[0, "T", "fma"]
    (Task(kernel=0, box='T', unit='fma'), d*q)
    """

    kernel: int
    box: str
    unit: str


@dataclass(frozen=True, repr=False)
class Work(Shown, Mapping[Task, Any]):
    """A map from `Task` to a formula: FLOP for "tensor", operations for the other units.

    What a kernel does again in every tile, or in every chunk, is counted each time.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.exp(dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="AB"), name="C")
    >>> done = dk.Diagram(C).work()
    >>> done.flop(), done.mac(a=2, b=3, c=5), done.flop(a=2, b=3, c=5), done.total(a=2, b=3, c=5)
    (2*a*b*c, 30, 60, 70)
    >>> done.by_unit(), done.by_box()["C"]
    ({'tensor': 2*a*b*c, 'fma': 0, 'special': a*c}, {'special': a*c})
    >>> list(done.at(a=2, b=3, c=5).values()), done.relaxed() == done
    ([60, 10], True)
    """

    amounts: tuple[tuple[Task, Any], ...]

    def __getitem__(self, key: Task) -> Any:
        return amount_of(dict(self.amounts), key, "by_box")

    def __iter__(self) -> Iterator[Task]:
        return iter(key for key, _ in self.amounts)

    def __len__(self) -> int:
        return len(self.amounts)

    def by_unit(self) -> dict[str, Any]:
        """The operations of each unit: "tensor" in FLOP, "fma" and "special" in operations."""
        return {unit: self._sum(unit) for unit in UNITS}

    def by_box(self) -> dict[str, dict[str, Any]]:
        """Per box, its operations by unit."""
        found: dict[str, dict[str, Any]] = {}
        for key, amount in self.amounts:
            row = found.setdefault(key.box, {})
            row[key.unit] = row.get(key.unit, sympy.Integer(0)) + amount
        return found

    def mac(self, **sizes: Any) -> Any:
        """Multiply-adds of the contractions: (2x3)(3x5) has 30."""
        return _at(self._sum("tensor") / 2, sizes)

    def flop(self, **sizes: Any) -> Any:
        """FLOP of the contractions, two per multiply-add: (2x3)(3x5) has 60."""
        return _at(self._sum("tensor"), sizes)

    def total(self, **sizes: Any) -> Any:
        """FLOP of the contractions and all other operations, each as one."""
        return _at(self._sum(*UNITS), sizes)

    def at(self, **sizes: Any) -> dict[Task, Number]:
        """Each amount as a plain number at `sizes`."""
        return {key: evaluate(amount, sizes) for key, amount in self.amounts}

    def relaxed(self) -> Self:
        """The same without ceilings, sums over tiles closed."""
        return type(self)(tuple((key, relax(amount)) for key, amount in self.amounts))

    def _sum(self, *units: str) -> Any:
        return sympy.Add(*(amount for key, amount in self.amounts if key.unit in units))

    def _table(self) -> Table:
        rows = [(str(key.kernel), key.box, key.unit, amount) for key, amount in self.amounts]
        sums = [("", "total", unit, amount) for unit, amount in self.by_unit().items()]
        return Table([("kernel", "box", "unit", "FLOP or operations"), *rows, *sums])


def _at(amount: Any, sizes: Mapping[str, Any]) -> Any:
    return evaluate(amount, sizes) if sizes else amount


def work(term: Term) -> Work:
    """The operations of one run of the diagram, per kernel, box and unit.

    A mask made of positions lets a streamed kernel skip whole tiles; without a stream, or inside a tile
    that is not skipped, every pair is computed. The pairs that a mask shows are `visible_pairs`.

    >>> from diagkit.ops import array, axes, einsum, trace
    >>> a, b, c = axes("a=2 b=3 c=5")
    >>> C = einsum("a b, b c -> a c", array("A", a, b), array("B", b, c), name="C")
    >>> work(Term(*trace([C]))).mac(), work(Term(*trace([C]))).flop()
    (30, 60)
    """
    return Work(tuple(pair for kernel in kernels(term) for pair in kernel_work(kernel)))


def kernel_work(kernel: Kernel) -> Iterator[tuple[Task, Any]]:
    """The operations of all groups of one kernel."""
    mask = loop_mask(kernel)
    for phase, inside in ((kernel.fixed, False), (kernel.step, True), (kernel.tail, False)):
        for box in phase:
            for unit, each, axes in _tasks(kernel, box):
                yield Task(kernel.number, box.name, unit), each * points(kernel, axes, mask, inside=inside)


def points(kernel: Kernel, axes: Axes, mask: Mask, *, inside: bool) -> Any:
    """How often all groups do something that is done at every point of `axes`."""
    if inside and mask.bounds:
        return masked_points(kernel, axes, mask, chunks=kernel.streamed not in names(axes))
    again = [kernel.repeats(names(axes))]
    if inside and kernel.streamed not in names(axes):
        again.append(kernel.chunks)
    return product((whole_elements(axes), *again))


Tasks = list[tuple[str, Any, Axes]]


def _tasks(kernel: Kernel, box: Box) -> Tasks:
    """What a box does: (unit, operations at each point, the axes of the points)."""
    return _TASKS.get(type(box), _converted)(kernel, box)


def _joined(kernel: Kernel, box: Box) -> tuple[Axis, ...]:
    return tuple(dict.fromkeys(axis for wire in box.inputs for axis in kernel.wires[wire].axes))


def _contracted(kernel: Kernel, box: Box) -> Tasks:
    """Two operands: a multiply-add per point. Each further one is one more multiplication there."""
    axes, more = _joined(kernel, box), len(box.inputs) - 1
    summed = len(axes) > len(box.axes)
    tensor = [("tensor", 2, axes)] if summed and more else []
    others = more - 1 + (0 if more else 2) if summed else more
    return tensor + ([("fma", others, axes)] if others else [])


def _mapped(kernel: Kernel, box: Any) -> Tasks:
    return [(unit, count, box.axes) for unit, count in operations(box.expr)]


def _reduced(kernel: Kernel, box: Box) -> Tasks:
    return [("fma", 1, _joined(kernel, box))]


def _converted(kernel: Kernel, box: Box) -> Tasks:
    return [("fma", 1, box.axes)]


_TASKS: dict[type[Box], Callable[[Kernel, Any], Tasks]] = {
    Contract: _contracted,
    Map: _mapped,
    Reduce: _reduced,
    Index: lambda *_: [],
    View: lambda *_: [],
}


@lru_cache(maxsize=4096)
def operations(expr: Any) -> tuple[tuple[str, int], ...]:
    """The operations of one value of a scalar formula, by unit: sums and products are one "fma" each,
    quotients, roots and the functions of the table in `ops` what stands there.

    A part that occurs twice is computed once; what depends on sizes only is a constant; a sign is free.

    >>> from diagkit.term import arg
    >>> operations(sympy.exp(arg(0) - arg(1)))
    (('fma', 1), ('special', 1))
    """
    found = dict.fromkeys(("fma", "special"), 0)
    for part in sorted(_parts(expr), key=sympy.default_sort_key):
        unit, count = _operation(part)
        found[unit] += count
    return tuple((unit, count) for unit, count in found.items() if count)


def _parts(expr: Any) -> set[Any]:
    """The distinct parts of a formula that depend on an argument."""
    parts = {part for part in sympy.preorder_traversal(expr) if part.args}
    return {part for part in parts if any(not symbol.is_positive for symbol in part.free_symbols)}


def _operation(part: Any) -> tuple[str, int]:
    if part.func in BY_SYMBOL:
        row = BY_SYMBOL[part.func]
        return row.unit, row.slots * (len(part.args) - 1 if part.func in _FOLDED else 1)
    return _ARITHMETIC.get(part.func, lambda _: ("fma", 1))(part)


_FOLDED = (sympy.Max, sympy.Min)


def _power(part: Any) -> tuple[str, int]:
    """A small whole power is multiplications; an inverse, a root or another power is special."""
    exponent = part.args[1]
    if exponent.is_Integer and exponent > 0:
        return "fma", int(exponent).bit_length() + int(exponent).bit_count() - 2
    return "special", 1 if exponent.is_Rational and abs(exponent) in {1, sympy.S.Half} else 2


def _product(part: Any) -> tuple[str, int]:
    signs = sum(factor is sympy.S.NegativeOne for factor in part.args)
    return "fma", len(part.args) - 1 - signs


_ARITHMETIC: dict[Any, Callable[[Any], tuple[str, int]]] = {
    sympy.Add: lambda part: ("fma", sum(not isinstance(term, empty) for term in part.args) - 1),
    sympy.Mul: _product,
    sympy.Pow: _power,
    sympy.And: lambda part: ("fma", len(part.args) - 1),
    sympy.Or: lambda part: ("fma", len(part.args) - 1),
}


def visible_pairs(term: Term) -> Any:
    """The pairs of positions that the masks of streamed kernels show, whatever the tiles: n(n+1)/2 for
    causal attention over n; 0 where no kernel has a mask that bounds its loop.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q=64 x=64")
    >>> seen = dk.total(dk.select(dk.causal(q, x), dk.array("X", q, x), 0), over=x)
    >>> visible_pairs(dk.Diagram(seen).fuse().group(q="g_q").stream(x="s_x"))
    2080
    """
    return sympy.Add(*(_visible(kernel, loop_mask(kernel)) for kernel in kernels(term)))


def _visible(kernel: Kernel, mask: Mask) -> Any:
    """The pairs that a mask shows: those of each case, less those that two show, and so on."""
    several = [chosen for n in range(len(mask.cases)) for chosen in combinations(mask.cases, n + 1)]
    return sympy.Add(*((-1) ** (len(chosen) + 1) * _shown_by_all(kernel, mask, chosen) for chosen in several))


def _shown_by_all(kernel: Kernel, whole: Mask, cases: Sequence[tuple[Bound, ...]]) -> Any:
    """What is visited in tiles of one position. These always fit, so the closed form is exact where the
    bounds bend at positions, where their slopes are 1 or -1; of several cases nothing may be left."""
    mask = Mask(whole.axes, tuple(dict.fromkeys(bound for case in cases for bound in case)))
    ones = {**kernel.grouped, **dict.fromkeys(mask.axes, sympy.Integer(1))}
    single = replace(kernel, grouped=ones, chunk=sympy.Integer(1))
    axes = tuple(kernel.term.axis(str(axis)) for axis in (*mask.axes, kernel.streamed))
    rest = tuple(axis for axis in kernel.grouped if axis not in mask.axes)
    pairs = masked_points(
        replace(single, grouped={a: t for a, t in ones.items() if a not in rest}), axes, mask, chunks=False
    )
    even = len(cases) == 1 and all(abs(k) in {0, 1} for bound in mask.bounds for k in (bound.sign, *bound.slopes))
    return relax(pairs) if even else pairs
