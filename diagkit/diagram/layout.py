"""Laying a diagram out on a multiprocessor: what lies where, and what each box costs a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from sympy import Integer

from diagkit import cost
from diagkit.diagram.configuration import Configuration, Operation, Variable
from diagkit.diagram.prediction import need_whole, several
from diagkit.machine import Machine, MachineError
from diagkit.term import (
    FORMATS,
    Contract,
    DiagkitError,
    Map,
    StreamForm,
    Term,
    at_level,
    check_format,
    check_whole,
    names,
    size,
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """A diagram with one stream, its sizes, and how it is laid out."""

    term: Term
    form: StreamForm
    sizes: Mapping[str, int]
    threads: int
    on_chip: str
    buffers: int
    opaque: bool
    pieces: Mapping[str, tuple[int, int]]

    def tile(self, axis: str, level: int) -> Any:
        """The tile of an axis as a memory of that level sees it: its own, else that above, else the axis."""
        for at in range(level, 0, -1):
            label = self.term.label("group", axis, at) or self.term.label("stream", axis, at)
            if label is not None:
                return label.tile
        return self.term.axis(axis).size

    def number(self, expression: Any) -> int:
        """A tile as a number. Errors: DiagkitError that names the size that is missing."""
        missing = sorted(str(one) for one in expression.free_symbols if str(one) not in self.sizes)
        if missing:
            raise DiagkitError(f"the configuration needs {missing[0]}", remedy=f"give {missing[0]}=... in elements")
        return int(expression.subs({size(name): value for name, value in self.sizes.items()}))

    def grouped(self) -> tuple[str, ...]:
        """The axes that are cut into tiles of a worker."""
        return tuple(label.axis for label in self.term.labels if label.kind == "group" and label.level == 2)

    @property
    def rows(self) -> int:
        """Elements of the grouped axes that a worker takes."""
        return prod(self.number(self.tile(axis, 2)) for axis in self.grouped())

    def dtype(self, wire: str) -> str:
        """Inputs keep their format; all else has that of the chip."""
        given = {array.name: array.dtype for array in self.term.inputs}
        return given.get(wire, self.on_chip)

    def shape(
        self, wire: str, level: int, stream: int | None = None, pieces: Mapping[str, int] | None = None
    ) -> tuple[str, int]:
        """The shape of a wire in words and its elements, tiles of `level` (the streamed axis at `stream`) or what
        `pieces` has for an axis."""
        at = {axis: stream if stream and axis == self.form.axis else level for axis in names(self.axes(wire))}
        tiles = [Integer((pieces or {}).get(axis, 0)) or self.tile(axis, its) for axis, its in at.items()]
        return " × ".join(map(str, tiles)) or "1", prod(self.number(tile) for tile in tiles)

    def axes(self, wire: str) -> Any:
        """The axes of a wire or of what the step makes."""
        made = {box.name: box.axes for box in self.form.step} | {state.name: state.axes for state in self.form.state}
        return made[wire] if wire in made else self.term.wires[wire].axes

    def streamed(self, wire: str) -> bool:
        """Whether it is over the streamed axis."""
        return self.form.axis in names(self.axes(wire))

    def shared(self, wire: str) -> bool:
        """Whether workers share a chunk: one that is not cut between them, or is cut along one of several axes."""
        cut = set(self.grouped()) & {*names(self.axes(wire))}
        return self.streamed(wire) and (not cut or len(self.grouped()) > 1)

    @property
    def asked(self) -> int | None:
        """How many workers a tile of the block asks for, where it is cut along several axes; else as many as fit."""
        if len(self.grouped()) == 1:
            return None
        return prod(ceil(self.number(self.tile(a, 1)) / self.number(self.tile(a, 2))) for a in self.grouped())

    @property
    def read(self) -> tuple[str, ...]:
        """Arrays that the step reads from slow memory."""
        inputs = {array.name for array in self.term.inputs}
        return tuple(dict.fromkeys(wire for box in self.form.step for wire in box.inputs if wire in inputs))

    @property
    def products(self) -> tuple[Contract, ...]:
        """The contractions of the step."""
        return tuple(box for box in self.form.step if isinstance(box, Contract) and len(box.inputs) > 1)

    def crossing(self) -> tuple[str, ...]:
        """What passes between products and other boxes: their results over the stream, their operands made here."""
        made = [box.name for box in self.form.step]
        results = [box.name for box in self.products if self.streamed(box.name)]
        operands = [wire for box in self.products for wire in box.inputs if wire in made]
        return tuple(dict.fromkeys([*results, *operands]))

    def in_shared(self) -> Iterator[Variable]:
        """What lies in shared memory: chunks that workers share, and of each worker its own, its fixed tiles and its
        crossings."""
        for wire in self.read:
            role, copies = ("chunk", self.buffers) if self.streamed(wire) else ("tile", 1)
            place = "block" if self.shared(wire) else "worker"
            shape, elements = self.shape(wire, 1 if place == "block" else 2, stream=1)
            yield Variable(wire, role, place, shape, elements, self.dtype(wire), copies)
        for wire in self.crossing() if self.opaque else ():
            shape, elements = self.shape(wire, 2, stream=1)
            yield Variable(wire, "on its way", "worker", shape, elements, self.on_chip)

    def in_registers(self) -> Iterator[Variable]:
        """What a thread holds: its part of the state, its row of the chunk, fragments of products, factors."""
        for state in self.form.state:
            yield self._per_thread(state.name, "state", *self.shape(state.name, 2))
        rows = [wire for wire in self.form.carried if wire not in {box.name for box in self.products}]
        if rows:
            yield self._per_thread(rows[-1], "row", *self.shape(rows[-1], 2, stream=1))
        for box in self.products:
            yield from self._fragments(box)
        for wire in self.factors():
            yield self._per_thread(wire, "factor", *self.shape(wire, 2))

    def _per_thread(self, name: str, role: str, shape: str, elements: int) -> Variable:
        return Variable(name, role, "thread", f"{shape} / {self.threads}", ceil(elements / self.threads), self.on_chip)

    def _fragments(self, box: Contract) -> Iterator[Variable]:
        """The result of a product, or where its axis is cut in pieces: one piece, and what is added on at a time."""
        cut = next((axis for axis in names(box.axes) if axis in self.pieces), None)
        shape, elements = self.shape(box.name, 2)
        if cut is None:
            yield self._per_thread(box.name, "fragment", shape, elements)
            return
        for role, piece in zip(("fragment", "part"), self.pieces[cut], strict=True):
            yield self._per_thread(box.name, role, *self.shape(box.name, 2, pieces={cut: piece}))

    def factors(self) -> tuple[str, ...]:
        """Maps of the step that are no new state and not over the stream: what the old state is multiplied by."""
        new = {state.new for state in self.form.state}
        return tuple(
            box.name for box in self.form.step
            if isinstance(box, Map) and box.name not in new and not self.streamed(box.name)
        )  # fmt: skip

    def operands(self, box: Contract) -> list[str]:
        """The formats that a product runs in: an operand made on the chip is cast to that of the array beside it."""
        return [self.dtype(wire) for wire in box.inputs if wire in self.read] or [self.on_chip]

    def operations(self, found: Machine) -> Iterator[Operation]:
        """What one chunk more costs one row, box by box."""
        labels = [label for label in self.term.labels if label.level == 1 and label.axis not in self.grouped()]
        tiles = {label.axis: self.number(label.tile) for label in labels}
        amounts = one_chunk(at_level(self.term, 1), self.form.axis, tiles, self.sizes)
        operands = {box.name: self.operands(box) for box in self.products}
        for (box, unit), amount in amounts.items():
            dtype = max(operands.get(box, [self.on_chip]), key=FORMATS.__getitem__)
            yield Operation(box, unit, dtype, amount, _rate(found, unit, dtype))


def one_chunk(
    term: Term, axis: str, tiles: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[tuple[str, str], float]:
    """What one chunk more costs one row of a streamed kernel, by box and unit: two chunks less one.

    `tiles` are those of the streamed `axis` and of grouped axes that a worker takes whole; a row is one element of
    every other grouped axis, those that workers share out. All in elements.
    """
    taken = {label.axis: (str(label.tile), tiles.get(label.axis, 1)) for label in term.labels}
    fixed = {name: elements for axis_, (tile, elements) in taken.items() for name in (axis_, tile)}
    counts = [cost.work(term).at(**{**sizes, **fixed, axis: chunks * tiles[axis]}) for chunks in (1, 2)]
    return {
        (key.box, key.unit): counts[1][key] - counts[0][key] for key in counts[0] if counts[1][key] > counts[0][key]
    }


def _rate(found: Machine, unit: str, dtype: str) -> float | None:
    """Amounts per clock and multiprocessor. A missing rate of products is an error, others are left open."""
    if unit == "tensor":
        return found.tensor_rate(dtype)
    try:
        return found.exp_rate() if unit == "special" else found.fma_rate(dtype)
    except MachineError:
        return None


def configure(
    term: Term,
    name: str | Machine,
    *,
    threads: int = 128,
    on_chip: str = "fp16",
    buffers: int = 2,
    opaque: bool = True,
    pieces: Mapping[str, tuple[int, int]] | None = None,
    **sizes: int,
) -> Configuration:
    """The configuration of a diagram with one stream and tiles of workers (labels at level 2) on a machine.

    `threads` of a worker; `on_chip`: the format of all that is made; `pieces`: (d', d'') by axis; `opaque`: whether
    fragments of products are closed to threads; `sizes` in elements. Errors: DiagkitError where there is no single
    stream, no worker's tile, no size or a wrong one; MachineError by field where the machine lacks a rate or capacity.
    """
    if len(term.forms) != 1 or not any(label.level == 2 and label.kind == "group" for label in term.labels):
        raise DiagkitError(
            f"{term.name} has {len(term.forms)} streams and no tile of a worker to lay out",
            remedy='stream one axis and tile another twice: .group(q="g_q").stream(x="s_x").group(level=2, q="w_q")',
        )
    need_whole(term, sizes)
    (found,) = several([name])
    check_whole(threads, "threads", 1)
    check_whole(buffers, "buffers", 1)
    given = (threads, check_format(on_chip), buffers, opaque, _pieces(term, pieces or {}))
    layout = Layout(term, term.forms[0], sizes, *given)
    variables = (*layout.in_shared(), *layout.in_registers())
    operations = tuple(layout.operations(found))
    products = [each for each in operations if each.unit == "tensor"]
    flop = sum(each.amount for each in products)
    clock = implied_clock(found, max((each.dtype for each in products), key=FORMATS.__getitem__))
    made = Configuration(found, variables, operations, threads, layout.rows, flop, clock, layout.asked)
    _need_room(made, layout)
    return made


def _need_room(made: Configuration, layout: Layout) -> None:
    """Refuse a tile of a block that asks for more workers than fit."""
    if made.workers > made.fitting:
        tiles = " × ".join(str(layout.number(layout.tile(axis, 1))) for axis in layout.grouped())
        reason = f"a tile of {tiles} asks for {made.workers} {made.worker}s, and {made.fitting} fit"
        raise DiagkitError(reason, remedy="give a smaller tile of the block, or a larger one of a worker")


def _pieces(term: Term, pieces: Any) -> Mapping[str, tuple[int, int]]:
    """The pieces by axis, if each is two whole numbers."""
    for axis, cut in pieces.items() if isinstance(pieces, Mapping) else [(None, pieces)]:
        if axis is None or not isinstance(cut, tuple) or len(cut) != 2:
            raise DiagkitError(f"{cut!r} are no pieces", axis=axis, remedy="give two by axis: pieces={'d': (64, 16)}")
        for number in cut:
            check_whole(number, f"a piece of {term.axis(axis).name}", 1)
    return dict(pieces)


def implied_clock(found: Machine, dtype: str) -> float:
    """The clock at which the matrix units reach their stated peak in a format, in hertz.

    >>> from diagkit.machine import load
    >>> round(implied_clock(load("H100-SXM"), "fp16") / 1e9, 2)
    1.83
    """
    return found.peak(dtype) / (found.multiprocessors * found.tensor_rate(dtype))
