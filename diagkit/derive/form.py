"""Writing a stream down: the step, tail and merge of what was found, as primitive boxes.

Boxes are written on demand, each once, so that nothing is computed that nobody needs. A value that waits
exists in several versions: before and after a chunk, or in the left, right and merged partial states.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import sympy

from diagkit.derive.algebra import NEW, ONE, after, gathered, guarded, is_positive, renewed, settled, settles
from diagkit.derive.partial import COMBINE, Accumulator
from diagkit.derive.sort import Sorted
from diagkit.derive.sums import Sums
from diagkit.derive.unseen import divided, ended
from diagkit.derive.zeros import by_choice
from diagkit.term import Axes, Box, Cast, Contract, Index, Map, Reduce, StreamError, arg, value, where

_LARGE = sympy.Float(1e308)
"""More than any number that a chunk holds, and less than infinity."""


@dataclass(frozen=True)
class Versions:
    """Suffixes of wires: of a state before and after a change, and of what is computed from these."""

    old: str
    new: str
    before: str
    later: str


CHUNK = Versions("", ".new", ".old", ".new")
SIDES = tuple(Versions(side, ".merged", side, ".merged") for side in (".left", ".right"))
END = Versions("", "", "", "")


class Writer:
    """Writes the boxes of one section of a form: the step, the tail or the merge."""

    def __init__(self, chain: Sorted, sums: Sums) -> None:
        self.chain, self.sums = chain, sums
        self.state = sums.by_name()
        self.boxes: list[Box] = []
        self.fixed: dict[str, None] = {}
        self.written: set[str] = set()
        self.held: dict[Any, Any] = {}

    def add(self, box: Box) -> str:
        """Write a box; the name of its wire."""
        self.boxes.append(box)
        self.chain.axes[value(box.name)] = box.axes
        return box.name

    def map(self, name: str, expr: Any) -> str:
        """The wire that holds `expr`, a formula over wires: one that is there, else a new map."""
        if expr.is_Symbol and expr in self.chain.axes:
            return str(expr.name)
        expr = expr.xreplace(self.held)
        if expr.is_Symbol:
            return str(expr.name)
        self.held[expr] = value(name)
        return self.hold(name, expr, self.chain.joined(expr))

    def hold(self, name: str, expr: Any, axes: Axes) -> str:
        """Write `expr`, a formula over wires, as a map over `axes`."""
        expr = expr.xreplace({held: wire for held, wire in self.held.items() if wire.name != name})
        inputs = tuple(_symbols(expr, self.chain.axes))
        formula = expr.xreplace({symbol: arg(place) for place, symbol in enumerate(inputs)})
        return self.add(Map(name, axes, tuple(symbol.name for symbol in inputs), formula))

    def over_wires(self, expr: Any, versions: Versions) -> Any:
        """A formula of values as one over wires in the wanted versions, these being written."""
        extremes = {s: sign for s in expr.free_symbols if versions is not END and (sign := self._extreme(s))}
        expr = expr if versions is END else guarded(expr, extremes, self._may_vanish)
        expr = gathered(expr)
        known = [s for s in _symbols(expr, expr.free_symbols) if _bare(s) in self.chain.axes]
        return expr.xreplace({symbol: value(self.wire(symbol, versions)) for symbol in known})

    def _extreme(self, symbol: Any) -> int:
        """1 for a maximum and -1 for a minimum as they are after the change, when they may be infinite; else 0."""
        return self._sign(_bare(symbol).name) if symbol.name.endswith(NEW) else 0

    def _sign(self, name: str) -> int:
        if name in self.state:
            return {"max": 1, "min": -1}.get(self.state[name].op, 0)
        box = self.chain.boxes.get(name)
        of_extremes = isinstance(box, Reduce) and self.chain.waits[name] and name not in self.sums.values
        return self._sign(box.inputs[0]) if isinstance(box, Reduce) and of_extremes and box.op in ("max", "min") else 0

    def _waits(self, symbol: Any) -> bool:
        return bool(_bare(symbol).name in self.state or self.chain.waits.get(_bare(symbol).name))

    def _may_vanish(self, below: Any) -> bool:
        """Whether a divisor may be an empty sum: it waits, and is not sure to be positive."""
        bare = below.xreplace({symbol: _bare(symbol) for symbol in below.free_symbols if not symbol.is_integer})
        return any(map(self._waits, bare.free_symbols)) and not is_positive(bare, self.sums.summand)

    def wire(self, symbol: Any, versions: Versions) -> str:
        """The wire that holds a value in the wanted version, written if need be."""
        name, new = _bare(symbol).name, symbol.name.endswith(NEW)
        if name in self.state:
            return self.advanced(name, versions) if new else self._old(name, versions)
        if _bare(symbol) in self.sums.moments.centres:
            return self._deviation(_bare(symbol))
        if self.chain.waits.get(name):
            return self._copy(name, new or self.chain.carries(name), versions)
        return self.known(name)

    def _old(self, name: str, versions: Versions) -> str:
        self.chain.axes[value(name + versions.old)] = self.state[name].axes
        return name + versions.old

    def known(self, name: str) -> str:
        """A wire that does not wait: fixed, or written here where it carries the axis."""
        box = self.chain.boxes.get(name)
        if box is None or not self.chain.carries(name):
            self.fixed[name] = None
        elif name not in self.written:
            self.written.add(name)
            for source in box.inputs:
                self.known(source)
            self.add(box)
        return name

    def _deviation(self, symbol: Any) -> str:
        """Deviations from the mean as it is after the chunk."""
        centre = self.sums.moments.centres[symbol]
        mean = self.map(centre.total.name + centre.suffix, self.over_wires(self._later(centre.mean), CHUNK))
        return self.map(symbol.name, self.over_wires(centre.of, CHUNK) - value(mean))

    def _later(self, expr: Any) -> Any:
        return after(expr, [*self.chain.waiting, *map(value, self.state)])

    def _copy(self, name: str, new: bool, versions: Versions) -> str:
        """A value that waits, in the version wanted; on a chunk there is the new one only."""
        suffix = "" if self.chain.carries(name) else versions.later if new else versions.before
        made, worth = name + suffix, self.sums.values.get(name)
        divisors = self.sums.divisors
        ends = divisors.get(getattr(worth, "name", name), divisors.get(name)) if versions is END else None
        if worth is not None and worth.is_Symbol and made not in self.chain.region.stores and not ends:
            return self.wire(renewed(worth) if new else worth, versions)
        if made not in self.written:
            self.written.add(made)
            if worth is None:
                self._again(made, self.chain.boxes[name], new, versions)
            else:
                begun = self._begun(worth, None, Sums.start_of(self.chain.boxes[name]))
                begun = self._ended(begun, name, ends or ()) if versions is END else begun
                formula = self.over_wires(self._later(begun) if new else begun, versions)
                self.hold(made, formula, self.chain.boxes[name].axes)
        return made

    def _ended(self, formula: Any, name: str, divisors: tuple[Any, ...]) -> Any:
        """What a reduction is worth at the end, every division as the diagram has it."""
        number = self.sums.number(tuple(self.chain.over(self.chain.boxes[name])))
        return divided(ended(formula, divisors, number), number, self._may_vanish, self.sums.only_unseen)

    def _again(self, made: str, box: Any, new: bool, versions: Versions) -> None:
        """The diagram's own box, reading the versions wanted."""
        marked = [renewed(value(w)) if new and self._waits(value(w)) else value(w) for w in box.inputs]
        changed: dict[str, Any] = {"name": made, "inputs": tuple(self.wire(symbol, versions) for symbol in marked)}
        if isinstance(box, Map) and versions is not END:
            fixed = [
                (place, symbol) for place, symbol in enumerate(marked) if not self.chain.carries(_bare(symbol).name)
            ]
            places = {arg(place): symbol for place, symbol in fixed}
            extremes = {place: sign for place, symbol in places.items() if (sign := self._extreme(symbol))}
            guard = guarded if self.chain.carries(box.name) else settled
            changed["expr"] = guard(box.expr, extremes, lambda below: self._may_vanish(below.xreplace(places)))
        self.add(replace(box, **changed))

    def operand(self, core: Any, source: str, owner: str) -> str:
        """The chunk of what is summed, with all that it waits for as it is after the chunk."""
        if core == self.chain.formula.get(source, value(source)):
            return self.wire(value(source), CHUNK)
        self._refuse_buried(core, source)
        held = self.map(f"{owner}.summand", self._summand(core, source, owner))
        box = self.chain.boxes.get(source)
        if isinstance(box, Cast) and self.chain.waits[source]:
            return self.add(replace(box, name=self.chain.fresh(f"{source}.chunk", box.axes), inputs=(held,)))
        return held

    def _summand(self, core: Any, source: str, owner: str) -> Any:
        """The formula of what is summed: 0 by choice, or by a factor that makes it 0 whatever the others are."""
        product, conditions = by_choice(core)
        weight = self.chain.zeros.weight(product, source, self.sums.moments.tops)
        made = self._on_chunk(product)
        if weight is not None:
            wire = self.map(self.chain.fresh(f"{owner}.factors"), self._on_chunk(weight))
            made = where(sympy.Eq(value(wire), 0), sympy.S.Zero, made)
        for condition in conditions:
            made = where(self._on_chunk(condition), made, sympy.S.Zero)
        return made

    def _on_chunk(self, expr: Any) -> Any:
        return self.over_wires(self._later(self._in_wires(expr)), CHUNK)

    def _in_wires(self, core: Any) -> Any:
        """`core` over the diagram's own wires where these hold a part of it, rounded ones first."""
        carried = [w for w, waits in self.chain.waits.items() if waits and self.chain.carries(w)]
        rounded = [w for w in carried if isinstance(self.chain.boxes[w], Cast)]
        return core.xreplace({self.chain.formula[w]: value(w) for w in (*reversed(carried), *rounded)})

    def _refuse_buried(self, core: Any, source: str) -> None:
        """A rounding that the summand can no longer pass through may not be dropped in silence."""
        todo = list(self.chain.boxes[source].inputs) if source in self.chain.boxes else []
        while todo:
            wire = todo.pop()
            if self.chain.waits.get(wire) and self.chain.carries(wire):
                if isinstance(self.chain.boxes[wire], Cast) and not core.has(self.chain.formula[wire]):
                    raise StreamError(
                        f"{wire!r} rounds what waits for {self.chain.waits[wire][-1]!r}, and more is computed from it",
                        axis=self.chain.axis,
                        box=wire,
                        remedy="round right before the sum or contraction, or stream with hoist=False",
                    )
                todo += self.chain.boxes[wire].inputs

    def advanced(self, name: str, versions: Versions) -> str:
        """A state after a change: one more chunk, or two partial states merged."""
        made = name + versions.new
        if made not in self.written and versions is not END:
            self.written.add(made)
            (self._step if versions is CHUNK else self._merge)(self.state[name], made)
        return made

    def _step(self, one: Accumulator, made: str) -> None:
        part = self._part(one)
        self.hold(made, COMBINE[one.op](self._carried(one, CHUNK), value(part)), one.axes)

    def _merge(self, one: Accumulator, made: str) -> None:
        sides = [self._carried(one, versions) for versions in SIDES]
        self.hold(made, COMBINE[one.op](*sides), one.axes)

    def _carried(self, one: Accumulator, versions: Versions) -> Any:
        """The old value as the change leaves it; a factor gets a wire of its own, shared by all it rescales."""
        own = value(one.name)
        factor = one.carry / own
        if one.carry == own or not one.carry.is_Mul or factor.has(own):
            begun = one.carry if one.sure else self._begun(one.carry, own, one.start)
            return self.over_wires(begun, versions)
        side = "" if versions is CHUNK else versions.old
        held = self.map(f"{one.name}.factor{side}", self.over_wires(self._begun(factor, own, sympy.S.Zero), versions))
        return value(held) * value(self._old(one.name, versions))

    def _begun(self, formula: Any, own: Any, start: Any) -> Any:
        """`formula`, or `start` while an extreme has seen nothing with which that is not the same. One that is no
        number has seen something."""
        conditions: dict[Any, None] = {}
        for symbol in _symbols(formula, formula.free_symbols - {own}):
            sign = 0 if symbol.name.endswith(NEW) else self._sign(symbol.name)
            if sign and not settles(formula, symbol, sign):
                conditions[sign * symbol <= -_LARGE] = None
            elif not sign and not symbol.name.endswith(NEW):
                conditions |= dict.fromkeys(
                    self._sign(m) * value(m) <= -_LARGE for m in self._extremes_behind(symbol.name)
                )
        for nothing in conditions:
            formula = where(nothing, start, formula)
        return formula

    def _extremes_behind(self, name: str) -> list[str]:
        """The maxima and minima that a value which is no state is computed from."""
        if name in self.state:
            return [name] if self._sign(name) else []
        if not self.chain.waits.get(name):
            return []
        worth = self.sums.values.get(name)
        sources = (
            self.chain.boxes[name].inputs
            if worth is None
            else [symbol.name for symbol in _symbols(worth, worth.free_symbols)]
        )
        return list(dict.fromkeys(m for source in sources for m in self._extremes_behind(source)))

    def _part(self, one: Accumulator) -> str:
        if not one.operands:
            return self._counted(one)
        wires = tuple(self.operand(*pair, one.name) for pair in zip(one.operands, one.sources, strict=True))
        part = self.chain.fresh(f"{one.name}.part", one.axes)
        if one.contracts:
            return self.add(Contract(part, one.axes, wires))
        return self.add(Reduce(part, one.axes, wires, one.op, one.over))

    def _counted(self, one: Accumulator) -> str:
        """How many positions the chunk has."""
        axis = self.chain.term.axis(self.chain.axis)
        place = self.add(Index(self.chain.fresh(f"#{axis.name}", (axis,)), (axis,), ()))
        ones = self.add(Map(self.chain.fresh(f"{one.name}.one", (axis,)), (axis,), (place,), ONE))
        return self.add(Reduce(self.chain.fresh(f"{one.name}.part"), (), (ones,), "sum", (axis.name,)))


def _bare(symbol: Any) -> Any:
    return value(symbol.name.removesuffix(NEW)) if symbol.name.endswith(NEW) else symbol


def _symbols(expr: Any, known: Iterable[Any]) -> list[Any]:
    """The known symbols of an expression, in the order in which it reads."""
    wanted = set(known)
    parts = sympy.preorder_traversal(expr, keys=sympy.default_sort_key)
    return list(dict.fromkeys(part for part in parts if part in wanted))
