"""What the parts of a Triton kernel share: names, blocks, masks, pointers.

A tile is a block of a power of two positions along each axis. Positions beyond the tile or beyond the array
are masked wherever they would be moved or counted in; where none can exist, nothing is masked. A tile of
one position has no axis at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import sympy

from diagkit.codegen.layout import Order, Product, layout, paired_axis, single, sized
from diagkit.codegen.numbers import waiting
from diagkit.codegen.scalars import position
from diagkit.codegen.triton_scalars import RESERVED
from diagkit.codegen.writer import Names, Writer
from diagkit.program import Compute, Kernel, Program, first, last
from diagkit.term import FORMATS, Cast, FormatError, InputError, Map, View, coordinate, size
from diagkit.term import names as names_of

LEAST = 16
"""What a matrix instruction takes at least along each side; 32 along the sum where elements have 8 bits."""
LARGEST_BLOCK = 1 << 20
"""Triton's own limit on the elements of a block."""


@dataclass
class Frame:
    """One kernel on its way to text.

    For each wire made so far, `order` has the order of its axes and `held` what its elements are: "float"
    (fp32), "int", "bool", or the narrow format in which they were loaded or cast. `zeroed` wires are 0
    where nothing exists; `alias` has the text of positions. `edge` says whether the chunk that is being
    written may be masked or reach beyond the axis. `numbers` says which wires are held without a factor, in
    variables whose names end in "_raw"; `positive` wires are never below 0.
    """

    kernel: Kernel
    program: Program
    out: Writer = field(default_factory=Writer)
    order: dict[str, Order] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    zeroed: set[str] = field(default_factory=set)
    positive: set[str] = field(default_factory=set)
    edge: bool = True

    def __post_init__(self) -> None:
        self.name = Names(RESERVED)
        self.sizes = {size(name): number for name, number in self.program.sizes}
        self.spans = self.kernel.span
        self.numbers = waiting(self.kernel, self.sizes)
        for wire in self.numbers:
            self.name.of(wire, f"{wire} raw")
        for span in self.spans.values():
            if span.role == "whole" and self.length(span.axis) is None:
                raise InputError(
                    f"kernel {self.kernel.name!r} holds the whole axis {span.axis!r}, whose size is open",
                    axis=span.axis,
                    remedy=f"lower with {span.axis}=... (elements), or group or stream it",
                )
        self._check_blocks()

    def _check_blocks(self) -> None:
        for wire in self.kernel.wires:
            if not wire.virtual:
                self.check_block(wire.name, self.along(wire.name))

    def check_block(self, wire: str, order: Iterable[str]) -> None:
        """Refuse a block that Triton cannot hold."""
        order = tuple(order)
        elements = prod(self.block[axis] for axis in order)
        if elements > LARGEST_BLOCK:
            shape = " × ".join(f"{axis} {self.block[axis]}" for axis in order)
            raise FormatError(
                f"a block of {elements} elements ({shape}) for {wire!r}: Triton holds at most {LARGEST_BLOCK}",
                box=wire,
                axis=max(order, key=lambda axis: self.block[axis]),
                remedy="group or stream an axis, or use smaller tiles",
            )

    # Axes: how long, how much of them, which positions exist.

    def tile(self, axis: str) -> int:
        """The tile of an axis in elements; a whole axis is one tile."""
        tile = self.spans[axis].tile
        return int(tile.xreplace(self.sizes) if hasattr(tile, "xreplace") else tile)

    def length(self, axis: str) -> int | None:
        """The size of an axis, where it is known."""
        span = self.kernel.span.get(axis)
        length = span.size if span else size(axis)
        length = length.xreplace(self.sizes) if hasattr(length, "xreplace") else length
        return int(length) if getattr(length, "is_number", True) else None

    @cached_property
    def products(self) -> dict[str, Product]:
        """Contractions that become matrix products: two sides and something between them."""
        found = layout(self.kernel).products
        return {name: p for name, p in found.items() if p.rows and p.columns and p.inner}

    @cached_property
    def block(self) -> dict[str, int]:
        """The block of each axis: a power of two, at least what matrix instructions take; of nothing two, as pairs
        of codes have it."""
        tiles = {name: self.tile(name) or 2 for name in self.spans if not single(self.kernel, name)}
        blocks = {name: power_of_two(tile) for name, tile in tiles.items()}
        boxes = {s.box.name: s.box for s in self.kernel.statements if isinstance(s, Compute)}
        for name, product in self.products.items():
            box = boxes[name]
            narrow = all(FORMATS[self.kernel.wire[wire].dtype] == 8 for wire in box.inputs)
            sides = ((product.rows, LEAST), (product.columns, LEAST), (product.inner, 2 * LEAST if narrow else LEAST))
            for side, least in sides:
                while prod(blocks[axis] for axis in side) < least:
                    blocks[side[-1]] *= 2
        return blocks

    @cached_property
    def coded(self) -> frozenset[str]:
        """Wires from which formulas alone lead to codes or their scales, no exponential among them."""
        boxes = {s.box.name: s.box for s in self.kernel.statements if isinstance(s, Compute)}
        found = {box.name for box in boxes.values() if isinstance(box, Cast) and box.dtype in _CODES}
        waiting = list(found)
        while waiting:
            near = [wire for wire in boxes[waiting.pop()].inputs if _is_formula(boxes.get(wire)) and wire not in found]
            found.update(near)
            waiting += near
        return frozenset(found)

    def ragged(self, axis: str) -> bool:
        """Whether the last tile may reach beyond the axis."""
        length = self.length(axis)
        return length is None or length == 0 or length % self.tile(axis) != 0

    def padded(self, axis: str) -> bool:
        """Whether the block has positions beyond the tile."""
        return self.block[axis] != self.tile(axis)

    def open(self, axis: str) -> bool:
        """Whether positions of the block along `axis` may not exist, here."""
        streamed = self.spans[axis].role == "stream"
        return self.padded(axis) or (self.ragged(axis) and (self.edge or not streamed))

    def inside_text(self, axis: str) -> str:
        """Which positions of the block exist along `axis`."""
        role = self.spans[axis].role
        ragged = self.ragged(axis) and (self.edge or role != "stream")
        parts = [f"{self.at(axis)} < {self.size_of(axis)}"] if ragged or role == "whole" else []
        if self.padded(axis) and role != "whole":
            parts.append(f"{self.lane(axis)} < {self.tile(axis)}")
        return parts[0] if len(parts) == 1 else " & ".join(f"({part})" for part in parts)

    # Names in the text.

    def variable(self, wire: str) -> str:
        """The variable that holds a wire; positions are written out."""
        return self.alias.get(wire) or self.name[wire]

    def pointer(self, wire: str, stored: bool) -> str:
        """The parameter that points to an array in slow memory."""
        return self.name.of(("pointer", stored, wire), f"{wire}_out" if stored else f"{wire}_in")

    def place(self, wire: str, stored: bool) -> str:
        """The pointers to the tile of an array (in the loop: to its first)."""
        return self.name.of(("place", stored, wire), f"{wire}_to" if stored else f"{wire}_from")

    def step(self, wire: str, axis: str, stored: bool) -> str:
        """The parameter with the stride of an array along an axis, in elements."""
        kind = "out" if stored else "in"
        return self.name.of(f"stride:{kind}:{wire}:{axis}", f"{wire}_step_{axis}")

    def size_of(self, axis: str) -> str:
        """The size of an axis: its number, or a parameter where it is open."""
        length = self.length(axis)
        return self.name.of(f"size:{axis}", f"n_{axis}") if length is None else str(length)

    def at(self, axis: str) -> str:
        """The variable with the positions along an axis: a block of them, or one."""
        if axis not in self.block:
            return self.first(axis)
        return self.lane(axis) if self.spans[axis].role == "whole" else self.name.of(("at", axis), f"{axis}_at")

    def lane(self, axis: str) -> str:
        """The variable with the places inside a block along an axis."""
        return self.name.of(("lane", axis), f"{axis}_lane")

    def pair_lane(self, axis: str) -> str:
        """The variable with the places of bytes inside a block along an axis of int4 codes."""
        return self.name.of(("pair", axis), f"{axis}_pair")

    def paired(self, wire: str) -> str | None:
        """The axis along which a wire has two codes in a byte in slow memory: the last of an int4 array."""
        dtype = self.program.term.wires[wire].dtype
        return paired_axis(self.kernel.wire[wire], dtype, lambda axis: axis in self.block and self.tile(axis) % 2 == 0)

    def pairs_inside(self, axis: str) -> str:
        """Which bytes of a block exist along an axis of int4 codes; empty where all do."""
        if not self.open(axis):
            return ""
        start = "" if self.spans[axis].role == "whole" else f"{self.first(axis)} + "
        parts = [f"{start}2 * {self.pair_lane(axis)} < {self.size_of(axis)}"]
        if self.padded(axis) and start:
            parts.append(f"2 * {self.pair_lane(axis)} < {self.tile(axis)}")
        return " & ".join(f"({part})" for part in parts)

    def first(self, axis: str) -> str:
        """The variable with the first position of the current tile."""
        return self.name.of(("first", axis), f"{axis}_first")

    def inside(self, axis: str) -> str:
        """The variable that says which positions of the block exist."""
        return self.name.of(("in", axis), f"{axis}_in")

    # Blocks as text.

    def along(self, wire: str) -> Order:
        """The axes of a wire along which a tile has more than one position, in the array's order."""
        return self.within(names_of(self.kernel.wire[wire].axes))

    def within(self, axes: Iterable[str]) -> Order:
        """The axes along which a tile has more than one position."""
        return tuple(axis for axis in axes if axis in self.block)

    def shape(self, order: Order) -> str:
        """The shape of a block."""
        return f"({', '.join(str(self.block[axis]) for axis in order)}{',' if len(order) == 1 else ''})"

    def aligned(self, text: str, order: Order, wanted: Order) -> str:
        """A block laid out for the axes `wanted`: permuted, with length 1 where it lacks one."""
        there = tuple(axis for axis in wanted if axis in order)
        if there != order:
            places = ", ".join(str(order.index(axis)) for axis in there)
            text = f"tl.trans({text})" if len(order) == 2 else f"tl.permute({text}, {places})"
        if not order or there == wanted:
            return text
        simple = re.fullmatch(r"[\w.]+(\(.*\))?", text)
        return f"{text if simple else f'({text})'}[{', '.join(':' if axis in order else 'None' for axis in wanted)}]"

    def masks(self, axes: Iterable[str], order: Order) -> str:
        """Which lanes of a block over `order` exist along `axes`; empty where all do."""
        partial = [axis for axis in axes if axis in self.block and self.open(axis)]
        return " & ".join(self.aligned(self.inside(axis), (axis,), order) for axis in partial)

    def bound(self, expr: Any) -> str:
        """A loop bound in positions, as text; never negative, since division here rounds towards zero."""
        values: dict[Any, str] = {size(name): self.size_of(name) for name in sized(self.kernel)}
        after = {last(axis): coordinate(f"{axis}.end") - 1 for axis in self.kernel.span}
        for axis, span in self.kernel.span.items():
            known, length = span.role != "whole", self.size_of(axis)
            values[first(axis)] = self.first(axis) if known else "0"
            values[coordinate(f"{axis}.end")] = (
                f"min({self.first(axis)} + {self.tile(axis)}, {length})" if known else length
            )
            values[size(axis)] = length
        text = position(expr.xreplace({**after, **self.sizes}), values) if hasattr(expr, "xreplace") else str(expr)
        return text if text.isdigit() or text in values.values() else f"max({text}, 0)"


_CODES = ("int8", "int4", "fp8e4m3", "fp8e5m2", "fp8e8m0")


def _is_formula(box: Any) -> bool:
    return isinstance(box, View | Cast) or (isinstance(box, Map) and not box.expr.has(sympy.exp))


def power_of_two(number: int) -> int:
    """The least power of two that is no smaller."""
    return 1 << max(number - 1, 0).bit_length()
