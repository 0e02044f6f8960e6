"""What the parts of a numba kernel share: the names in its text, its tiles, and functions under way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import Any

import sympy

from diagkit.codegen.layout import Layout, Order, element, layout, paired_axis, single, sized
from diagkit.codegen.numbers import Numbers, waiting, with_numbers, without
from diagkit.codegen.passes import inlined
from diagkit.codegen.scalars import Text
from diagkit.codegen.source import Line
from diagkit.codegen.writer import Names, Writer
from diagkit.program import Kernel, Load, Store, first, last
from diagkit.term import Box, Index, coordinate, names, size

ELEMENTS = {"bool": "np.bool_", "number": "number", "int4": "np.int8"}
KINDS = {"bool": "bool", "number": "float"}


@dataclass
class Frame:
    """One kernel on its way to text. `number` is the float type, `counted` asks for counting code, `open_tiles`
    makes tiles parameters instead of numbers; `sizes` are those that are known; arrays are `dense` where each lies in
    one piece, in order, and its numbers are of the float type."""

    kernel: Kernel
    title: str
    names: Names
    number: str
    counted: bool
    open_tiles: bool = False
    sizes: Mapping[Any, int] = field(default_factory=dict)
    dense: bool = True
    functions: Writer = field(default_factory=Writer)

    @cached_property
    def layout(self) -> Layout:
        """Where the tiles lie."""
        return layout(self.kernel)

    @cached_property
    def inlined(self) -> dict[str, Box]:
        """Boxes of positions, written out where they are read."""
        return inlined(self.kernel)

    @cached_property
    def waiting(self) -> Numbers:
        """The wires that are held without a number, and the number."""
        return waiting(self.kernel, self.sizes)

    def formula(self, box: Box) -> Any:
        """What a map computes, of what its inputs hold for what its result holds."""
        if not self.waiting.keys() & {box.name, *box.inputs}:
            return box.expr  # type: ignore[attr-defined]
        expr, number = with_numbers(box, self.waiting, self.sizes), self.waiting.get(box.name, sympy.S.One)
        if expr.func == sympy.exp and number != 1:
            return sympy.exp(expr.args[0] - sympy.Float(log(number), 17), evaluate=False)
        return without(expr, number)

    @cached_property
    def moves(self) -> tuple[Load | Store, ...]:
        """Loads and stores, in order."""
        return tuple(s for s in self.kernel.statements if isinstance(s, Load | Store))

    def array(self, wire: str) -> str:
        """A whole array that is loaded from or stored to."""
        return self.names.of(("array", wire), wire)

    def tile(self, wire: str) -> str:
        """The tile that holds `wire`."""
        root = self.layout.buffer[wire]
        return self.names.of((self.title, "tile", root), f"{root}_tile")

    def here(self, wire: str) -> str:
        """One element of `wire`."""
        return self.names.of((self.title, "here", wire), f"{wire}_at")

    def axis(self, axis: str) -> str:
        """The place along an axis inside the tile."""
        return self.names.of(("axis", axis), axis)

    def first(self, axis: str) -> str:
        """The first position of the tile along a grouped or streamed axis."""
        return self.names.of(("first", axis), f"{axis}_first")

    def count(self, axis: str) -> str:
        """How many positions of an axis the tile covers."""
        whole = self.kernel.span[axis].role == "whole"
        return self.size(axis) if whole else self.names.of(("count", axis), f"{axis}_count")

    @cached_property
    def open(self) -> tuple[str, ...]:
        """The axes whose tiles are parameters. A tile of one stays: it has no such axis at all."""
        axes = [span.axis for span in self.kernel.spans if span.role != "whole" and not single(self.kernel, span.axis)]
        return tuple(axes) if self.open_tiles else ()

    def step(self, axis: str) -> str:
        """The tile of a grouped or streamed axis: its number, or the parameter that says it."""
        if axis in self.open:
            return self.names.of(("step", axis), f"tile_{axis}")
        return str(int(self.kernel.span[axis].tile))

    def size(self, axis: str) -> str:
        """The size of an axis."""
        return self.names.of(("size", axis), f"size_{axis}")

    def order(self, wire: str) -> Order:
        """The axes of the wire's tile, in the order in which it lies."""
        return self.layout.orders[wire]

    def element(self, wire: str) -> str:
        """What the wire's tile holds: "number", "bool" or an integer format."""
        return element(self.kernel, wire)

    def at(self, wire: str, places: Mapping[str, str] | None = None) -> str:
        """An element of the tile of `wire`, at the places of the loops around, or at `places` by axis."""
        found = [(places or {}).get(axis) or self.axis(axis) for axis in self.order(wire)]
        return f"{self.tile(wire)}[{', '.join(found) or '0'}]"

    def extent(self, wire: str, axis: str) -> str:
        """The length of the wire's tile along an axis."""
        return f"{self.tile(wire)}.shape[{self.order(wire).index(axis)}]"

    def position(self, axis: str) -> str:
        """The position, along the whole axis, of the place in the tile."""
        if self.kernel.span[axis].role == "whole":
            return self.axis(axis)
        return self.first(axis) if single(self.kernel, axis) else f"({self.first(axis)} + {self.axis(axis)})"

    def in_array(self, wire: str, places: Mapping[str, str] | None = None) -> str:
        """The element of the whole array that belongs to the place in the tile; at `places` by axis where given."""
        axes = names(self.kernel.wire[wire].axes)
        found = [(places or {}).get(axis) or self.position(axis).strip("()") for axis in axes]
        return f"{self.array(wire)}[{', '.join(found) or '0'}]"

    def part(self, wire: str) -> str:
        """The part of the whole array that is the tile."""
        found = [self._span(axis) for axis in names(self.kernel.wire[wire].axes)]
        while found and found[-1] == ":":
            found.pop()
        return f"{self.array(wire)}[{', '.join(found)}]" if found else self.array(wire)

    def _span(self, axis: str) -> str:
        """What the tile covers of an axis, as an index."""
        if self.kernel.span[axis].role == "whole":
            return ":"
        first = self.first(axis)
        return first if single(self.kernel, axis) else f"{first} : {first} + {self.count(axis)}"

    def paired(self, wire: str) -> str | None:
        """The axis along which a wire has two codes in a byte in slow memory: the last of an int4 array."""

        def even(axis: str) -> bool:
            span = self.kernel.span[axis]
            return span.role == "whole" or int(span.tile) % 2 == 0

        return paired_axis(self.kernel.wire[wire], self.slow[wire], even)

    @cached_property
    def slow(self) -> dict[str, str]:
        """The format in slow memory of each wire that moves."""
        return {move.wire: move.dtype for move in self.moves}

    def text(self, wire: str) -> Text:
        """The element of `wire` as a scalar: positions written out, else the local that holds it."""
        box = self.inlined.get(wire)
        if isinstance(box, Index):
            return Text(self.position(box.axes[0].name), "int")
        return Text(self.here(wire), KINDS.get(self.element(wire), "int"))

    def numbers(self) -> dict[Any, Text]:
        """Sizes of axes, as they stand in formulas."""
        return {size(axis): Text(self.size(axis), "int") for axis in sized(self.kernel)}

    def places(self) -> dict[Any, str]:
        """Texts for loop bounds and coordinates: sizes, ends of the group's tiles, positions."""
        found = {size(axis): self.size(axis) for axis in sized(self.kernel)}
        for axis, span in self.kernel.span.items():
            grouped = span.role == "group"
            found[first(axis)] = self.first(axis) if grouped else "0"
            end = f"{self.first(axis)} + {self.count(axis)}" if grouped else self.size(axis)
            found[last(axis)] = f"({end} - 1)"
            found[coordinate(axis)] = self.position(axis)
        return found

    def function(self, wish: str, lines: Iterable[Line], returns: str = "") -> str:
        """Write a function whose body is `lines`; the call to it. It takes what its body names."""
        body = tuple(lines)
        text = "\n".join(line.text for line in body)
        parameters = [name for name in self._shareable() if re.search(rf"\b{name}\b", text)]
        name = self.names.of((self.title, "function", wish, text), wish)
        column = body[0].column if body else None
        self.functions.blank(2)
        self.functions.add("@njit(**FAST)")
        with self.functions.nested(f"def {name}({', '.join(parameters)}):", column=column):
            self.functions.lines += [Line(line.text, line.column, line.depth + 1) for line in body]
            if returns:
                self.functions.add(f"return {returns}")
        return f"{name}({', '.join(parameters)})"

    def _shareable(self) -> list[str]:
        arrays = [self.array(move.array) for move in self.moves]
        tiles = [self.tile(wire.name) for wire in self.kernel.wires]
        spans = self.kernel.spans
        ends = [name(span.axis) for span in spans if span.role != "whole" for name in (self.first, self.count)]
        return list(dict.fromkeys([*arrays, *tiles, *ends, *map(self.size, sized(self.kernel))]))

    def elements(self, wire: str) -> str:
        """numba's name for what the wire's tile holds."""
        kind = self.element(wire)
        return ELEMENTS.get(kind, f"np.{kind}")
