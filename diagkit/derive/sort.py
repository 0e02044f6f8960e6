"""Sorting the boxes of a region by their relation to one axis.

*Fixed* boxes see neither the axis nor a reduction over it; *carried* boxes map over it; *reductions* take
it away; the *tail* comes after. A value *waits* for the reductions that must be complete before it is
known. Every wire that waits gets its formula over wires that do not, and over the reductions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diagkit.derive.algebra import Symbols, factored, product
from diagkit.derive.group import not_mapped
from diagkit.derive.logs import Signs, opened
from diagkit.derive.partial import op_of
from diagkit.derive.zeros import Zeros
from diagkit.term import (
    Axes,
    Axis,
    Box,
    Cast,
    Index,
    Map,
    Reduce,
    Region,
    StreamError,
    Term,
    View,
    arg,
    names,
    plain,
    value,
)


class Sorted:
    """What a region computes, seen from one axis.

    * `boxes`: its primitives by wire; `axes`: the axes of every wire, by symbol.
    * `reductions`: the wires made by reductions over the axis, in order.
    * `waits`: for every wire the reductions it waits for; `formula`: what it is in terms of them.
    * `signs`: what each sum sums, which says whether it may be negative; `zeros`: choices that were left out.
    """

    def __init__(self, term: Term, region: Region, axis: str) -> None:
        self.term, self.region, self.axis = term, region, axis
        self.boxes: dict[str, Box] = {box.name: box for box in term.primitives(region)}
        self.axes: dict[Any, Axes] = {value(name): wire.axes for name, wire in term.wires.items()}
        self.waits: dict[str, tuple[str, ...]] = {}
        self.formula: dict[str, Any] = {}
        self.reductions: list[str] = []
        self.signs = Signs({}, self.full)
        self.zeros = Zeros(self.signs)
        self.taken = set(term.wires)
        for box in self.boxes.values():
            self._sort(box)

    def carries(self, wire: str) -> bool:
        """Whether the wire carries the axis."""
        return self.axis in names(self.axes[value(wire)])

    def over(self, box: Box) -> frozenset[str]:
        """The axes that a reduction takes away."""
        return frozenset(axis.name for wire in box.inputs for axis in self.axes[value(wire)]) - set(names(box.axes))

    def fresh(self, name: str, axes: Axes = ()) -> str:
        """A wire of that name, or of one like it where the name is taken."""
        while name in self.taken:
            name += "'"
        self.taken.add(name)
        self.axes[value(name)] = axes
        return name

    def joined(self, expr: Any) -> Axes:
        """The axes of a formula: those of its wires, in order of the diagram's axes."""
        found = {axis for symbol in expr.free_symbols for axis in self.axes.get(symbol, ())}
        return tuple(axis for axis in self.known if axis in found)

    @property
    def known(self) -> Iterable[Axis]:
        """Every axis of the diagram, in order."""
        return self.term.axes.values()

    def inside(self, exprs: Iterable[Any], over: frozenset[str]) -> Symbols:
        """The values in `exprs` that carry one of the axes `over`."""
        symbols = {symbol for expr in exprs for symbol in expr.free_symbols}
        return frozenset(s for s in symbols if over & set(names(self.axes.get(s, ()))))

    @property
    def waiting(self) -> Symbols:
        """The values that wait, and that are no formula of others."""
        waiting = (wire for wire, waits in self.waits.items() if waits)
        return frozenset(value(wire) for wire in waiting if self.formula[wire] == value(wire))

    def alias(self, name: str, other: Any) -> None:
        """Read `name` as `other`, which is equal to it, in every formula."""
        self.formula = {w: formula.xreplace({value(name): other}) for w, formula in self.formula.items()}

    def full(self, expr: Any) -> Any:
        """`expr` with every map that does not wait written out."""
        found = {s: self._full(s.name) for s in expr.free_symbols if s in self.axes and self._plain_map(s.name)}
        return self.full(expr.xreplace(found)) if found else expr

    def _plain_map(self, wire: str) -> bool:
        return not self.waits.get(wire, ()) and isinstance(self.boxes.get(wire), Map)

    def _full(self, wire: str) -> Any:
        box: Any = self.boxes[wire]
        return box.expr.xreplace({arg(place): value(source) for place, source in enumerate(box.inputs)})

    def _sort(self, box: Box) -> None:
        waits = tuple(dict.fromkeys(w for wire in box.inputs for w in self.waits.get(wire, ())))
        enters = any(self.carries(wire) for wire in box.inputs)
        self.waits[box.name], self.formula[box.name] = waits, value(box.name)
        if isinstance(box, Index):  # positions along one axis are the same whoever asks for them
            self.formula[box.name] = value(next(o.name for o in self.boxes.values() if _same_positions(o, box)))
        if isinstance(box, View):
            self._check_view(box)
        elif enters and not self.carries(box.name):
            self.reductions.append(box.name)
            self.waits[box.name] = (box.name,)
            if op_of(box) == "sum":
                summed = product(self.formula.get(wire, value(wire)) for wire in box.inputs)
                self.signs.summand[value(box.name)] = plain(self.full(summed))
        elif waits:
            self.formula[box.name] = self._formula(box, waits)

    def _check_view(self, box: View) -> None:
        reason = not_mapped(self.term, box, self.axis)
        if reason is not None or (self.carries(box.name) and self.waits[box.name]):
            why = reason or f"waits for {self.waits[box.name][-1]!r}"
            raise StreamError(
                f"{box.name!r} {why}: a chunk of {self.axis} is not enough",
                axis=self.axis,
                box=box.name,
                remedy=f"leave {box.name!r} outside the region: do not fuse what reads it",
            )

    def _formula(self, box: Any, waits: tuple[str, ...]) -> Any:
        if isinstance(box, Map):
            parts = {arg(place): self.formula.get(wire, value(wire)) for place, wire in enumerate(box.inputs)}
            formula = self.zeros.read(box, parts, self.waiting)
            return opened(factored(formula, self.waiting), self.waiting, self.signs)
        if not self.carries(box.name):
            return value(box.name)
        if isinstance(box, Cast):
            return self.formula[box.inputs[0]]
        gone = ", ".join(sorted(self.over(box)) or ("other axes",))
        late = next((wire for wire in box.inputs if self.waits.get(wire)), box.inputs[0])
        raise StreamError(
            f"{box.name!r} mixes {gone} of {late!r}, which waits for {waits[-1]!r} over the whole of {self.axis}",
            axis=self.axis,
            box=box.name,
            remedy=f"end the kernel before {box.name!r} (fuse only those before it), or stream another axis",
        )


def _same_positions(one: Box, other: Box) -> bool:
    return isinstance(one, Index) and one.axes == other.axes


def halves(chain: Sorted, name: str, extra: frozenset[str]) -> str:
    """Take a reduction in two: first all axes but `extra`, then `extra` in the tail; the first's name."""
    box: Any = chain.boxes[name]
    kept = tuple(axis for axis in chain.known if axis in box.axes or axis.name in extra)
    first = chain.fresh(f"{name}.rows", kept)
    over = tuple(sorted(chain.over(box) - extra))
    op = box.op if isinstance(box, Reduce) else "sum"
    changed = {"over": over} if isinstance(box, Reduce) else {}
    chain.boxes[first] = type(box)(**{**vars(box), **changed, "name": first, "axes": kept})
    chain.boxes[name] = Reduce(name, box.axes, (first,), op, tuple(sorted(extra)))
    chain.waits[first], chain.formula[first] = (first,), value(first)
    chain.reductions[chain.reductions.index(name)] = first
    return first
