"""A sweep as a numba function: one loop nest in which maps make elements and reductions gather them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import sympy

from diagkit.codegen.numba_frame import Frame
from diagkit.codegen.numba_scalars import NUMBA, ROUNDING
from diagkit.codegen.numbers import covered, folded
from diagkit.codegen.passes import Sweep
from diagkit.codegen.reach import far_inputs
from diagkit.codegen.scalars import Text, scalar
from diagkit.codegen.source import Line
from diagkit.term import Box, Cast, FormatError, Index, Map, Reduce, arg


def write_sweep(frame: Frame, sweep: Sweep, kept: Collection[str], masks: Collection[str] = ()) -> str:
    """Write the function of a sweep; the call to it. `kept` are the wires that others read; the `masks`
    hold throughout."""
    nest = _Nest(frame, _order(frame, sweep), kept, masks)
    for compute in sweep.computes:
        _CASES[type(compute.box)](nest, compute.box, compute.column)
    ends = dict.fromkeys([sweep.computes[0].box.name, sweep.computes[-1].box.name])
    return frame.function(f"make_{'_to_'.join(ends)}{'_unmasked' if masks else ''}", nest.lines())


def _order(frame: Frame, sweep: Sweep) -> tuple[str, ...]:
    box = sweep.computes[0].box
    return frame.order(box.inputs[0] if isinstance(box, Reduce) else box.name)


@dataclass
class _Nest:
    """Loops over the axes `order`; `heads` and `feet` are the lines at each depth, before and after what
    is deeper; `equal` has the first local that each equals, `lying` the one that a tile
    holds."""

    frame: Frame
    order: tuple[str, ...]
    kept: Collection[str]
    masks: Collection[str]
    heads: list[list[Line]] = field(init=False)
    feet: list[list[Line]] = field(init=False)
    known: set[str] = field(default_factory=set)
    extents: dict[str, str] = field(default_factory=dict)
    equal: dict[str, str] = field(default_factory=dict)
    lying: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heads = [[] for _ in range(len(self.order) + 1)]
        self.feet = [[] for _ in range(len(self.order) + 1)]

    def depth(self, wire: str) -> int:
        """How many loops stand around the places of `wire`."""
        return max((self.order.index(axis) + 1 for axis in self.frame.order(wire)), default=0)

    def add(self, text: str, column: str | None, depth: int | None = None, after: bool = False) -> None:
        """A line at a depth (innermost unless given)."""
        depth = len(self.order) if depth is None else depth
        (self.feet if after else self.heads)[depth].append(Line(text, column, depth))

    def value(self, wire: str, column: str) -> Text:
        """The element of `wire`: written out, made before in the sweep, or read from its tile."""
        frame = self.frame
        box = frame.inlined.get(wire)
        if isinstance(box, Map):
            return scalar(box.expr, self.values(box, column), NUMBA)
        if box is None and wire not in self.known:
            self.known.add(wire)
            self.see(wire)
            self.add(f"{frame.here(wire)} = {frame.at(wire)}", column, self.depth(wire))
            self.equal[frame.here(wire)] = self.lying.setdefault(frame.tile(wire), frame.here(wire))
        return frame.text(wire)

    def values(self, box: Box, column: str) -> dict[Any, Text]:
        """Texts of the symbols in the formula of a map."""
        inputs = {
            arg(place): self.value(wire, column) for place, wire in enumerate(box.inputs) if wire not in self.masks
        }
        return self.frame.numbers() | inputs

    def see(self, wire: str) -> None:
        """Loops run as far as a tile that they touch."""
        for axis in self.frame.order(wire):
            self.extents.setdefault(axis, self.frame.extent(wire, axis))

    def keep(self, wire: str, text: str, column: str) -> None:
        """An element of `wire` is made; it goes to its tile if others read it and it does not lie there already."""
        here, tile = self.frame.here(wire), self.frame.tile(wire)
        self.known.add(wire)
        self.add(f"{here} = {text}", column)
        self.equal[here] = self.equal.get(text, here)
        if wire in self.kept and self.lying.get(tile) != self.equal[here]:
            self.see(wire)
            self.add(f"{self.frame.at(wire)} = {here}", column)
            self.lying[tile] = self.equal[here]

    def lines(self) -> list[Line]:
        """The loop nest."""
        found = list(self.heads[0])
        for depth, axis in enumerate(self.order):
            column = found[0].column if found else self.heads[-1][0].column
            extent = self.extents.get(axis) or self.frame.count(axis)
            found.append(Line(f"for {self.frame.axis(axis)} in range({extent}):", column, depth))
            found += self.heads[depth + 1]
        for feet in reversed(self.feet):
            found += feet
        return found


def _map(nest: _Nest, box: Any, column: str) -> None:
    seen = {arg(place): sympy.true for place, wire in enumerate(box.inputs) if wire in nest.masks}
    expr, values = nest.frame.formula(box).xreplace(seen), nest.values(box, column)
    if nest.frame.number == "float32":
        expr = _powers_of_two(nest, box, expr, values)
    number = nest.frame.element(box.name) == "number"
    nest.keep(box.name, str(scalar(expr, values, NUMBA, number)), column)


def _powers_of_two(nest: _Nest, box: Any, expr: Any, values: dict[Any, Text]) -> Any:
    """The formula with an exponential as a power of two where a number times a wire varies along more axes than the
    other terms, whose sum is made once for many."""
    axes = {arg(place): set(nest.frame.order(wire)) for place, wire in enumerate(box.inputs)}
    far = far_inputs(nest.frame.kernel, box)

    def power(part: Any) -> Any:
        inside = folded(part, axes, far).args[0]
        many = max(sympy.Add.make_args(inside), key=lambda term: len(covered(term, axes)))
        rest = inside - many
        if covered(rest, axes) >= covered(many, axes) or len(many.args) != 2 or many.args[1] not in axes:
            return part
        terms = (scalar(one, values, NUMBA, number=True) for one in (*many.args, rest))
        made = arg(len(box.inputs) + len(values))
        values[made] = Text(f"exp2(fused({', '.join(map(str, terms))}))")
        return made

    return expr.replace(lambda part: part.func == sympy.exp and part.args[0].is_Add, power)


def _cast(nest: _Nest, box: Any, column: str) -> None:
    if box.dtype not in ROUNDING:
        raise FormatError(
            f"numba kernels cannot round {box.name!r} to {box.dtype}",
            box=box.name,
            remedy=f"use one of: {', '.join(ROUNDING)}",
        )
    value = scalar(arg(0), nest.values(box, column), NUMBA, number=True)
    nest.keep(box.name, ROUNDING[box.dtype].format(value), column)


def _index(nest: _Nest, box: Any, column: str) -> None:
    nest.keep(box.name, nest.frame.position(box.axes[0].name), column)


@dataclass(frozen=True)
class _Gather:
    """How a reduction gathers: a local that starts at `start`, meets each `value`, and is `read` at the
    end; and what gathers straight into a tile."""

    start: str
    meet: str
    read: str
    into: str


_GATHER = {
    "sum": _Gather("number(0.0)", "{0} + {1}", "{0}", "{0} + {1}"),
    "product": _Gather("number(1.0)", "{0} * {1}", "{0}", "{0} * {1}"),
    "max": _Gather("order(number(-np.inf))", "max({0}, order({1}))", "ordered({0})", "larger({0}, {1})"),
    "min": _Gather("order(number(-np.inf))", "max({0}, order(-({1})))", "-ordered({0})", "smaller({0}, {1})"),
}
_STARTS = {
    "sum": "number(0.0)",
    "product": "number(1.0)",
    "max": "number(-np.inf)",
    "min": "number(np.inf)",
}


def _reduce(nest: _Nest, box: Any, column: str) -> None:
    frame, gather = nest.frame, _GATHER[box.op]
    value = scalar(arg(0), nest.values(box, column), NUMBA, number=True)
    nest.see(box.name)
    kept = frame.order(box.name)
    depth = len(kept)
    if set(nest.order[:depth]) == set(kept):
        local = frame.here(box.name)
        nest.add(f"{local} = {gather.start}", column, depth)
        nest.add(f"{local} = {gather.meet.format(local, value)}", column)
        read = gather.read.format(local)
        number = frame.waiting.get(box.inputs[0])
        read = read if number is None else f"number({float(number)!r}) * {read}"
        nest.add(f"{frame.at(box.name)} = {read}", column, depth, after=True)
    else:
        nest.heads[0].insert(0, Line(f"{frame.tile(box.name)}[...] = {_STARTS[box.op]}", column))
        nest.add(f"{frame.at(box.name)} = {gather.into.format(frame.at(box.name), value)}", column)


_CASES: dict[type[Box], Callable[[_Nest, Any, str], None]] = {Map: _map, Cast: _cast, Index: _index, Reduce: _reduce}
