"""Triton: the loop nest with tiles as blocks.

Each group is one program instance; a tile is a block of a power of two positions along each axis, of which
those beyond the tile or the array are masked, with a named fill, at every load and store. A tile of one
position has no axis at all. Offsets are 64-bit. Products are ``tl.dot`` on formats as they lie on the
wires, sums in fp32; fp32 products are asked for in full precision ("ieee").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from diagkit.codegen.layout import Product, layout, single
from diagkit.codegen.scalars import Text, position, scalar
from diagkit.codegen.source import Entry, Source
from diagkit.codegen.triton_scalars import ELEMENT, LARGEST, RESERVED, TRITON, prelude
from diagkit.codegen.writer import Names, Writer
from diagkit.program import Compute, Free, Init, Kernel, Load, Program, Span, Statement, Store, Update, first, last
from diagkit.term import Box, Cast, Contract, FormatError, Index, InputError, Map, Reduce, View, arg, coordinate, size
from diagkit.term import names as names_of

Order = tuple[str, ...]
LEAST = 16
"""What a matrix instruction takes at least along each side."""


def write(program: Program) -> Source:
    """The kernels of `program` in Triton.

    Axes that a kernel holds whole need a size (blocks have fixed shapes); grouped and streamed ones may
    stay open. Raises InputError for an open whole axis, FormatError for what Triton cannot hold.
    """
    body = Writer()
    entries = tuple(_Triton(kernel, program, body).write() for kernel in program.kernels)
    text = "\n".join(line.text for line in body.lines)
    head = Writer()
    head.add(f'"""{program.term.name}: kernels for Triton."""'.replace("\\", "\\\\"))
    for line in ("", "import triton", "import triton.language as tl", *prelude(text)):
        head.add(line)
    return Source("triton", program.term.name, (*head.lines, *body.lines), entries)


@dataclass
class _Triton:
    """One kernel under way: the wires made so far as variables, each with the order of its axes."""

    kernel: Kernel
    program: Program
    out: Writer
    order: dict[str, Order] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.name = Names(RESERVED)
        self.sizes = {size(name): number for name, number in self.program.sizes}
        self.spans = {name: span for name, span in self.kernel.span.items() if name not in self._virtual_only()}
        for span in self.spans.values():
            if span.role == "whole" and not span.size.xreplace(self.sizes).is_number:
                raise InputError(
                    f"kernel {self.kernel.name!r} holds the whole axis {span.axis!r}, whose size is open",
                    axis=span.axis,
                    remedy=f"lower with {span.axis}=... (elements), or group or stream it",
                )

    def _virtual_only(self) -> set[str]:
        real = {axis.name for wire in self.kernel.wires if not wire.virtual for axis in wire.axes}
        return set(self.kernel.span) - real

    @cached_property
    def products(self) -> dict[str, Product]:
        """Contractions that become matrix products: two sides and something between them."""
        found = layout(self.kernel).products
        return {name: p for name, p in found.items() if p.rows and p.columns and p.inner and len(p.batch) <= 1}

    @cached_property
    def block(self) -> dict[str, int]:
        """The block of each axis: a power of two, at least what matrix instructions take."""
        blocks = {n: _power_of_two(self.tile(span)) for n, span in self.spans.items() if not single(self.kernel, n)}
        for product in self.products.values():
            for side in (product.rows, product.columns, product.inner):
                while _count(blocks, side) < LEAST:
                    blocks[side[-1]] *= 2
        return blocks

    def tile(self, span: Span) -> int:
        """The tile of an axis in elements; a whole axis is one tile."""
        return int(span.tile.xreplace(self.sizes) if hasattr(span.tile, "xreplace") else span.tile)

    def even(self, axis: str) -> bool:
        """Whether no position of any block lies outside: then nothing along the axis is masked."""
        span = self.spans[axis]
        length = span.size.xreplace(self.sizes) if hasattr(span.size, "xreplace") else span.size
        tile = self.tile(span)
        whole = getattr(length, "is_number", True) and tile > 0 and int(length) % tile == 0 and int(length) > 0
        return self.block[axis] == tile and bool(whole)

    # The frame: parameters, positions, parts.

    def write(self) -> Entry:
        """Write the whole function and say how to call it."""
        moved = [s for s in self.kernel.statements if isinstance(s, Load | Store)]
        loads = tuple(dict.fromkeys(s.wire for s in moved if isinstance(s, Load)))
        stores = tuple(dict.fromkeys(s.wire for s in moved if isinstance(s, Store)))
        function = self.name.of("function", f"kernel_{self.kernel.name}")
        pointers = [self.pointer(wire, wire in stores) for wire in (*loads, *stores)]
        parameters = [f"size:{axis}" for axis in self.spans]
        parameters += [f"stride:{kind}:{wire}:{axis}" for kind, wire, axis in self._strides(loads, stores)]
        names = [self.name.of(p, p.replace("size:", "n_").replace("stride:", "step_")) for p in parameters]
        self.out.blank(2)
        self.out.add("@triton.jit")
        with self.out.nested(f"def {function}({', '.join([*pointers, *names])}):"):
            self._positions()
            self._part("before")
            self._loop()
            self._part("after")
        return Entry(self.kernel.name, function, loads, stores, tuple(parameters))

    def _strides(self, loads: Order, stores: Order) -> list[tuple[str, str, str]]:
        both = [("in", wire) for wire in loads] + [("out", wire) for wire in stores]
        return [(kind, wire, axis) for kind, wire in both for axis in names_of(self.kernel.wire[wire].axes)]

    def pointer(self, wire: str, stored: bool) -> str:
        """The parameter that points to an array in slow memory."""
        return self.name.of(("pointer", stored, wire), f"{wire}_out" if stored else f"{wire}_in")

    def size_of(self, axis: str) -> str:
        """The parameter with the size of an axis."""
        return self.name.of(f"size:{axis}", f"n_{axis}")

    def at(self, axis: str) -> str:
        """The variable with the positions along an axis: a block of them, or one."""
        return self.name.of(("at", axis), f"{axis}_at")

    def first(self, axis: str) -> str:
        """The variable with the first position of the current tile."""
        return self.name.of(("first", axis), f"{axis}_first")

    def _positions(self) -> None:
        groups = self.kernel.groups
        if groups:
            self.out.add("pid = tl.program_id(0)")
        for group in reversed(groups):
            count, tile = f"tl.cdiv({self.size_of(group.axis)}, {self.tile(self.spans[group.axis])})", group.axis
            self.out.add(f"{self.first(tile)} = (pid % {count}) * {self.tile(self.spans[tile])}", group.axis)
            if group is not groups[0]:
                self.out.add(f"pid = pid // {count}")
        for axis, span in self.spans.items():
            if span.role != "stream":
                self._position(axis, span)

    def _position(self, axis: str, span: Span) -> None:
        start = "" if span.role == "whole" else f"{self.first(axis)} + "
        if axis not in self.block:
            self.out.add(f"{self.at(axis)} = {self.first(axis)}", axis)
            return
        lanes = f"tl.arange(0, {self.block[axis]})"
        self.out.add(f"{self.at(axis)} = {start}{lanes}", axis)
        if not self.even(axis):
            inside = f"{self.at(axis)} < {self.size_of(axis)}"
            if self.block[axis] != self.tile(span) and span.role != "whole":
                inside = f"({inside}) & ({lanes} < {self.tile(span)})"
            self.out.add(f"{self.inside(axis)} = {inside}", axis)

    def inside(self, axis: str) -> str:
        """The variable that says which positions of the block exist."""
        return self.name.of(("in", axis), f"{axis}_in")

    def _part(self, part: str) -> None:
        for statement in self.kernel.part(part):
            _STATEMENTS[type(statement)](self, statement)

    def _loop(self) -> None:
        loop = self.kernel.loop
        if loop is None:
            return
        tile, (lo, hi) = self.tile(self.spans[loop.axis]), (self.bound(loop.lo), self.bound(loop.hi))
        chunk = self.name.of(("chunk", loop.axis), f"{loop.axis}_tile")
        start = "0" if lo == "0" else f"({lo}) // {tile}"
        with self.out.nested(f"for {chunk} in range({start}, tl.cdiv({hi}, {tile})):", column=loop.axis):
            self.out.add(f"{self.first(loop.axis)} = {chunk} * {tile}", loop.axis)
            self._position(loop.axis, self.spans[loop.axis])
            self._part("loop")

    def bound(self, expr: Any) -> str:
        """A loop bound in positions, as text; never negative, since division here rounds towards zero."""
        values: dict[Any, str] = {}
        for axis, span in self.kernel.span.items():
            known = span.role != "whole"
            values[first(axis)] = self.first(axis) if known else "0"
            end = f"{self.first(axis)} + {self.tile(span)}" if known else self.size_of(axis)
            values[last(axis)] = f"(min({end}, {self.size_of(axis)}) - 1)"
            values[size(axis)] = self.size_of(axis)
        text = position(expr, values) if hasattr(expr, "free_symbols") else str(expr)
        return text if text.isdigit() or text in values.values() else f"max({text}, 0)"

    # Tiles as blocks.

    def aligned(self, text: str, order: Order, wanted: Order) -> str:
        """A block laid out for the axes `wanted`: permuted, with length 1 where it lacks one."""
        there = tuple(axis for axis in wanted if axis in order)
        if there != order:
            text = f"tl.permute({text}, {', '.join(str(order.index(axis)) for axis in there)})"
        if not order or there == wanted:
            return text
        return f"{text}[{', '.join(':' if axis in order else 'None' for axis in wanted)}]"

    def held(self, axes: Iterable[str]) -> Order:
        """The axes along which a tile has more than one position."""
        return tuple(axis for axis in axes if axis in self.block)

    def masks(self, axes: Iterable[str], order: Order) -> str:
        """Which lanes of a block over `order` exist along `axes`; empty where all do."""
        partial = [axis for axis in axes if axis in self.block and not self.even(axis)]
        return " & ".join(self.aligned(self.inside(axis), (axis,), order) for axis in partial)

    def address(self, wire: str, stored: bool) -> tuple[str, str, Order]:
        """Pointers of a tile in slow memory, which of them exist, and the order of their axes."""
        axes = names_of(self.kernel.wire[wire].axes)
        order = self.held(axes)
        kind = "out" if stored else "in"
        terms = [self.pointer(wire, stored)]
        for axis in axes:
            at = self.at(axis) if axis not in order else self.aligned(self.at(axis), (axis,), order)
            stride = self.name.of(f"stride:{kind}:{wire}:{axis}", f"step_{kind}_{wire}_{axis}")
            terms.append(f"{at}.to(tl.int64) * {stride}")
        return " + ".join(terms), self.masks(order, order), order

    def load(self, statement: Load) -> None:
        """Read a tile; lanes that do not exist are filled with 0."""
        wire, column = statement.wire, statement.wire
        where, mask, order = self.address(wire, stored=False)
        dtype = self.kernel.wire[wire].dtype
        fill = "0" if dtype == "bool" or dtype.startswith("int") else "0.0"
        guard = f", mask={mask}, other={fill}" if mask else ""
        test = " != 0" if self.kernel.wire[wire].dtype == "bool" else ""
        self.out.add(f"{self.name[wire]} = tl.load({where}{guard}){test}", column)
        self.order[wire] = order
        self.loaded.add(wire)

    def store(self, statement: Store) -> None:
        """Write the lanes of a tile that exist."""
        wire = statement.wire
        where, mask, order = self.address(wire, stored=True)
        block = self.aligned(self.name[wire], self.order[wire], order)
        guard = f", mask={mask}" if mask else ""
        kind = f"{self.pointer(wire, True)}.dtype.element_ty"
        value = f"({block}).to({kind})" if self.kernel.wire[wire].dtype != "bool" else f"({block}).to(tl.int8)"
        self.out.add(f"tl.store({where}, {value}{guard})", wire)

    def init(self, statement: Init) -> None:
        """Begin a state at its start value."""
        wire = statement.wire
        order = self.held(names_of(self.kernel.wire[wire].axes))
        number = {"-oo": 'float("-inf")', "oo": 'float("inf")'}.get(str(statement.start), f"{float(statement.start)!r}")
        self.out.add(f"{self.name[wire]} = tl.full({self.shape(order)}, {number}, tl.float32)", statement.column)
        self.order[wire] = order

    def shape(self, order: Order) -> str:
        """The shape of a block, as text."""
        return f"({', '.join(str(self.block[axis]) for axis in order)}{',' if len(order) == 1 else ''})"

    def update(self, statement: Update) -> None:
        """The state takes its new value, in the order in which it was begun."""
        new = self.aligned(self.name[statement.new], self.order[statement.new], self.order[statement.wire])
        self.out.add(f"{self.name[statement.wire]} = {new}", statement.column)

    def compute(self, statement: Compute) -> None:
        """One primitive on blocks."""
        text, order = _BOXES[type(statement.box)](self, statement.box)
        self.out.add(f"{self.name[statement.box.name]} = {text}", statement.column)
        self.order[statement.box.name] = order

    # One case per kind of box: its text and the order of its axes.

    def number(self, wire: str, wanted: Order) -> Text:
        """A wire as numbers to compute with, laid out for `wanted`."""
        kind = self.kernel.wire[wire].dtype
        text = self.aligned(self.name[wire], self.order[wire], wanted)
        if kind == "bool":
            return Text(text, "bool")
        if kind.startswith("int"):
            return Text(text, "int")
        return Text(f"{text}.to(tl.float32)" if wire in self.loaded and kind != "fp32" else text)

    def map(self, box: Any) -> tuple[str, Order]:
        """A scalar formula, block by block."""
        order = self.held(names_of(box.axes))
        values: dict[Any, Text] = {arg(i): self.number(wire, order) for i, wire in enumerate(box.inputs)}
        values |= {size(axis): Text(self.size_of(axis), "int") for axis in self.kernel.span}
        return str(scalar(box.expr.xreplace(self.sizes), values, TRITON)), order

    def reduce(self, box: Any) -> tuple[str, Order]:
        """The sum, max or min over axes of a block; lanes that do not exist count as nothing."""
        (wire,) = box.inputs
        order = self.order[wire]
        text = str(self.number(wire, order))
        text = text if self.number(wire, order).kind == "float" else f"({text}).to(tl.float32)"
        mask = self.masks(box.over, order)
        nothing = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}[box.op]
        text = f"tl.where({mask}, {text}, {nothing})" if mask else text
        return self._reduced(box.op, text, order, self.held(box.over))

    def _reduced(self, op: str, text: str, order: Order, over: Order) -> tuple[str, Order]:
        for axis in sorted(over, key=order.index, reverse=True):
            text = f"tl.{op}({text}, {order.index(axis)})"
        return text, tuple(axis for axis in order if axis not in over)

    def contract(self, box: Box) -> tuple[str, Order]:
        """A product of matrices where there is one, else a sum of products."""
        product = self.products.get(box.name)
        return self._dot(box, product) if product else self._sum_of_products(box)

    def _sum_of_products(self, box: Box) -> tuple[str, Order]:
        made = self.held(names_of(box.axes))
        order = (*made, *dict.fromkeys(a for wire in box.inputs for a in self.order[wire] if a not in made))
        text = " * ".join(str(self.number(wire, order)) for wire in box.inputs)
        text = f"({text}).to(tl.float32)" if len(box.inputs) == 1 else f"({text})"
        over = order[len(made) :]
        mask = self.masks(over, order)
        text = f"tl.where({mask}, {text}, 0.0)" if mask else text
        return self._reduced("sum", text, order, over)

    def _dot(self, box: Box, product: Product) -> tuple[str, Order]:
        kind = self._dot_format(box)
        left = self._matrix(box.inputs[0], (product.batch, product.rows, product.inner), product.inner, kind)
        right = self._matrix(box.inputs[1], (product.batch, product.inner, product.columns), product.inner, kind)
        precision = ', input_precision="ieee"' if kind == "fp32" else ""
        text = f"tl.dot({left}, {right}{precision})"
        order = product.batch + product.rows + product.columns
        if len(order) > 2 + len(product.batch):
            text = f"tl.reshape({text}, {self.shape(order)})"
        return text, order

    def _dot_format(self, box: Box) -> str:
        kinds = {self.kernel.wire[wire].dtype for wire in box.inputs}
        if "fp64" in kinds:
            raise FormatError("Triton kernels multiply no fp64", box=box.name, remedy="use fp32, fp16 or bf16")
        return kinds.pop() if len(kinds) == 1 else "fp32"

    def _matrix(self, wire: str, sides: tuple[Order, Order, Order], inner: Order, kind: str) -> str:
        """A tile as a matrix (or a batch of them), zero along `inner` where there is nothing."""
        batch, rows, columns = sides
        order = batch + rows + columns
        text = self.aligned(self.name[wire], self.order[wire], order)
        mask = "" if wire in self.loaded else self.masks(inner, order)
        text = f"tl.where({mask}, {text}, 0.0)" if mask else text
        if wire not in self.loaded or self.kernel.wire[wire].dtype != kind:
            text = f"{text}.to({ELEMENT[kind]})"
        if len(rows) == 1 and len(columns) == 1:
            return text
        counts = [str(_count(self.block, side)) for side in (batch, rows, columns) if side or side is not batch]
        return f"tl.reshape({text}, ({', '.join(counts)}))"

    def index(self, box: Box) -> tuple[str, Order]:
        """The positions along an axis."""
        axis = box.axes[0].name
        return self.at(axis), self.held([axis])

    def cast(self, box: Any) -> tuple[str, Order]:
        """Rounded to the format and back to fp32; fp8 saturates by an explicit clamp."""
        (wire,) = box.inputs
        order = self.order[wire]
        text = str(self.number(wire, order))
        if box.dtype in LARGEST:
            text = f"tl.minimum(tl.maximum({text}, {-LARGEST[box.dtype]}), {LARGEST[box.dtype]})"
        return f"({text}).to({ELEMENT[box.dtype]}).to(tl.float32)", order

    def view(self, box: Any) -> tuple[str, Order]:
        """An axis under another name; other views are gathers, which blocks cannot do."""
        (wire,) = box.inputs
        if tuple(box.coordinates) != tuple(coordinate(axis.name) for axis in box.axes):
            raise FormatError(
                f"Triton kernels cannot gather the view {box.name!r}",
                box=box.name,
                remedy="materialise it: do not fuse it",
            )
        renamed = dict(zip(names_of(self.kernel.wire[wire].axes), names_of(box.axes), strict=True))
        return self.name[wire], tuple(renamed[axis] for axis in self.order[wire])


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


def _count(blocks: dict[str, int], axes: Order) -> int:
    total = 1
    for axis in axes:
        total *= blocks[axis]
    return total


def _nothing(writer: _Triton, statement: Any) -> None:
    """Blocks are freed by the compiler."""


_STATEMENTS: dict[type[Statement], Callable[[_Triton, Any], None]] = {
    Load: _Triton.load,
    Store: _Triton.store,
    Init: _Triton.init,
    Compute: _Triton.compute,
    Update: _Triton.update,
    Free: _nothing,
}

_BOXES: dict[type[Box], Callable[[_Triton, Any], tuple[str, Order]]] = {
    Map: _Triton.map,
    Reduce: _Triton.reduce,
    Contract: _Triton.contract,
    Index: _Triton.index,
    Cast: _Triton.cast,
    View: _Triton.view,
}
