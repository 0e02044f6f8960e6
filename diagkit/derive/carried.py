"""The book of what a stream carries: accumulators, each once, and what every reduction is worth in terms of them."""

from __future__ import annotations

from typing import Any

import sympy

from diagkit.derive.algebra import bases, correction, is_nonnegative, is_positive, product
from diagkit.derive.partial import Accumulator, op_of
from diagkit.derive.sort import Sorted
from diagkit.term import Axes, Contract, plain, value


class Carried:
    """The accumulators of a sorted region.

    * `found`: the accumulators; `values`: what a reduction is in terms of them; `summand`: what it sums, written out.
    * `methods`: the means by which a reduction was found; `divisors`: by what its sum was divided all along.
    * `over`: the axes that the reduction at hand takes away.
    """

    def __init__(self, chain: Sorted) -> None:
        self.chain = chain
        self.found: dict[Any, Accumulator] = {}
        self.values: dict[str, Any] = {}
        self.summand: dict[Any, Any] = {}
        self.methods: dict[str, str] = {}
        self.divisors: dict[str, tuple[Any, ...]] = {}
        self.over: frozenset[str] = frozenset()

    def by_name(self) -> dict[str, Accumulator]:
        """The accumulators by the wire that carries them."""
        return {accumulator.name: accumulator for accumulator in self.found.values()}

    def correction(self, cores: list[Any]) -> Any | None:
        """The factor that carries a sum of the product of `cores` past a chunk; None where an element enters it."""
        inside, waiting = self.chain.inside(cores, self.over), self.chain.waiting
        vanishing = bases(plain(self.chain.full(product(cores))))

        def sound(below: Any) -> bool:
            return is_positive(below, self.summand) or all(
                base in self.summand
                and is_nonnegative(self.summand[base], self.summand)
                and {b for b in bases(self.summand[base]) if not b.is_positive or b.has(sympy.exp)} <= vanishing
                for base in bases(below)
            )

        return correction(product(cores), inside, waiting, sound)

    def worth(self, name: str, worth: Any) -> None:
        """Say what a reduction is, in terms of what is carried; one that is carried already is that one."""
        if worth != value(name):
            self.values[name] = worth
        if worth.is_Symbol:
            self.chain.alias(name, worth)

    def named(self, name: str, box: Any, cores: tuple[Any, ...]) -> str:
        """A wire for a partial result: the reduction's own where that is all it needs."""
        return name if name == box.name else self.chain.fresh(name, self._left(cores, box))

    def number(self, over: tuple[str, ...]) -> Any:
        """How many elements are summed."""
        return product(self.chain.term.axis(name).size for name in over)

    def _count(self) -> Any:
        """The number of positions seen so far, counted once for all who ask."""
        if "count" not in self.found:
            name = self.chain.fresh(f"{self.chain.axis}.count")
            self.found["count"] = Accumulator(name, (), "sum", (self.chain.axis,), (), (), value(name), False)
        return value(self.found["count"].name)

    def seen(self, over: tuple[str, ...]) -> Any:
        """How many elements have been summed so far."""
        return self._count() * self.number(tuple(axis for axis in over if axis != self.chain.axis))

    def _left(self, cores: tuple[Any, ...], box: Any) -> Axes:
        """The axes of a sum of `cores`: those of the reduction that they carry."""
        carried = {axis for core in cores for axis in self._axes(core, box)}
        return tuple(axis for axis in box.axes if axis in carried)

    def _axes(self, core: Any, box: Any) -> Axes:
        """The axes of a summed factor: those of the wire that it is read from, where it is one."""
        for source in box.inputs:
            if core == self.chain.formula.get(source, value(source)):
                return self.chain.axes[value(source)]
        return self.chain.joined(core)

    def known(self, cores: tuple[Any, ...]) -> Any | None:
        """The value that carries the sum of the product of `cores`, where one does."""
        same = self.found.get(self._key("sum", cores))
        return None if same is None else value(same.name)

    def written(self, expr: Any) -> Any:
        """`expr` with every reduction in terms of what is carried."""
        return expr.xreplace({value(name): worth for name, worth in self.values.items()})

    def _key(self, op: str, cores: tuple[Any, ...]) -> Any:
        return op, self.over, plain(self.chain.full(product(cores)))

    def partial(self, name: str, box: Any, cores: tuple[Any, ...], sources: tuple[str, ...], ratio: Any) -> Any | None:
        """A partial sum that is rescaled by `ratio`, times the sizes of summed axes that it lacks."""
        known = self.known(cores)
        summed = {axis.name for core in cores for axis in self._axes(core, box)}
        if self.chain.axis not in summed:
            return None
        if known is None:
            name = self.named(name, box, cores)
            self.add(name, box, cores, sources, ratio * value(name))
            known = value(name)
        return known * self.number(tuple(sorted(self.over - summed)))

    def add(self, name: str, box: Any, cores: Any, sources: Any, carry: Any, sure: bool = False) -> Any:
        """Carry one more thing, unless it is carried already; the value that carries it."""
        axes = self._left(cores, box)
        summed = {axis.name for core in cores for axis in self._axes(core, box)}
        over = tuple(axis for axis in self.chain.term.axes if axis in self.over & summed)
        self.chain.axes[value(name)] = axes
        kept = tuple((core, source) for core, source in zip(cores, sources, strict=True) if core != 1)
        made = Accumulator(
            name, axes, op_of(box), over, tuple(c for c, _ in kept), tuple(s for _, s in kept), carry,
            isinstance(box, Contract) and len(kept) > 1, sure,
        )  # fmt: skip
        known = self.found.setdefault(self._key(op_of(box), cores), made)
        self.worth(name, value(known.name))
        return value(known.name)

    def extreme(self, box: Any, of: Any) -> Any:
        """The value that carries the maximum or minimum of `of`, which the diagram does not ask for; `box` says how
        it is reduced, from a wire that it is made of."""
        known = self.found.get(self._key(box.op, (of,)))
        if known is None:
            name = self.chain.fresh(box.name, box.axes)
            self.add(name, box, (of,), box.inputs, value(name))
            self.follow({value(name)})
        return value(known.name if known else name)

    def follow(self, symbols: set[Any]) -> None:
        """Take those of the symbols that are carried for what changes from chunk to chunk."""
        for name in (one for one in self.by_name() if value(one) in symbols):
            self.chain.waits.setdefault(name, (name,))
            self.chain.formula.setdefault(name, value(name))
