"""Lowering: a labelled diagram becomes one loop nest per region.

Without a stream a region loads, runs its boxes and stores. With one it does the fixed boxes, begins the
state, loops over the chunks (load, step, state := new), and finishes with the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from diagkit.program.bounds import every, stream_bounds
from diagkit.program.live import place_loop, place_whole
from diagkit.program.nest import For, Kernel, Load, ParFor, Span, Statement, Store
from diagkit.term import (
    Axis,
    Box,
    InputError,
    Region,
    Run,
    StreamForm,
    Term,
    Wire,
    flatten,
    names,
    size,
    wire_format,
)


def kernels(term: Term, sizes: Mapping[str, int], *, outermost: bool = True) -> tuple[Kernel, ...]:
    """The kernels of `term`, one per region in an order that respects who reads what; `sizes` gives
    numbers for axes (by name) and tiles (by symbol name), those left out stay symbols. Only the `outermost`
    level reads through views: below it, what was read is a tile like others.

    Raises InputError where a tile cuts the blocks that a load reads one value for.
    """
    return tuple(_Lowering(term, region, dict(sizes), outermost).kernel() for region in term.regions)


@dataclass(frozen=True)
class _Lowering:
    """One region on its way to a kernel."""

    term: Term
    region: Region
    sizes: dict[str, int]
    outermost: bool

    @cached_property
    def form(self) -> StreamForm | None:
        return self.term.form(self.region)

    @cached_property
    def boxes(self) -> tuple[Box, ...]:
        """The primitives that run: those of the stream's parts where there is one."""
        form = self.form
        return self.term.primitives(self.region) if form is None else form.fixed + form.step + form.tail

    @cached_property
    def wires(self) -> dict[str, Wire]:
        """Every wire of the kernel: loads, states, and what the boxes make."""
        found = {name: self.term.wires[name] for name in self.region.loads}
        for state in self.form.state if self.form else ():
            found[state.name] = Wire(state.name, state.axes, state.dtype)
        for box in self.boxes:
            sources = [found[wire] for wire in box.inputs]
            dtype, virtual = wire_format(box, [s.dtype for s in sources]), all(s.virtual for s in sources)
            found[box.name] = self.term.wires.get(box.name, Wire(box.name, box.axes, dtype, virtual))
        return found

    @cached_property
    def columns(self) -> dict[str, str]:
        """The column of the diagram that each wire comes from."""
        inside = {inner.name: box.name for box in self.term.boxes for inner in flatten([box])}
        return {wire: _column(wire, inside, self.region) for wire in self.wires}

    @cached_property
    def spans(self) -> dict[str, Span]:
        axes = {axis.name: axis for wire in self.wires.values() for axis in wire.axes}
        return {name: self._span(axis) for name, axis in axes.items()}

    def _span(self, axis: Axis) -> Span:
        carried = any(axis.name in names(w.axes) for w in self.wires.values() if not w.virtual)
        streamed = self.form is not None and self.form.axis == axis.name
        kind = "stream" if streamed else "group"
        found = self.term.label(kind, axis.name) if streamed else self.term.grouped(self.region).get(axis.name)
        label = found if carried else None
        length = self.number(axis.size)
        return Span(axis.name, length, length if label is None else self.number(label.tile), kind if label else "whole")

    def number(self, expr: Any) -> Any:
        return expr.xreplace({size(name): sympy.Integer(n) for name, n in self.sizes.items()})

    def kernel(self) -> Kernel:
        name = self.region.stores[0] if self.region.stores else self.region.boxes[-1]
        body = self._whole() if self.form is None else self._stream(self.form)
        for span in reversed([s for s in self.spans.values() if s.role == "group"]):
            body = (ParFor(span.axis, span.size, span.tile, body),)
        return Kernel(name, self.region.boxes, tuple(self.spans.values()), tuple(self.wires.values()), body)

    def _loads(self, wires: Iterable[str]) -> tuple[Load, ...]:
        return tuple(map(self._load, wires))

    def _load(self, wire: str) -> Load:
        """The load of a wire, through a view where it is an alias."""
        array, alias = self.term.array(wire), self.term.aliases.get(wire)
        traffic = "input" if array in {one.name for one in self.term.inputs} else "refill"
        dtype = self.term.wires[wire].dtype
        if alias is None:
            return Load(wire, traffic, dtype)
        if not self.outermost:
            return Load(wire, traffic, dtype, array)
        for run in alias.runs:
            self._check_blocks(wire, run)
        return Load(wire, traffic, dtype, array, alias.at(self.number))

    def _check_blocks(self, wire: str, run: Run) -> None:
        """A tile holds whole blocks, or lies within one."""
        if run.block == 1 or not self.spans[run.axes[0]].tile.is_Integer:
            return
        span, block = self.spans[run.axes[0]], run.block
        tile = int(span.tile)
        whole = span.role == "whole" or (span.size.is_Integer and tile >= span.size)
        if not whole and tile % block and block % tile:
            divisors = [n for n in range(1, block + 1) if block % n == 0]
            raise InputError(
                f"a tile of {tile} along {span.axis!r} cuts the blocks of {block} that {wire!r} has one value for",
                axis=span.axis,
                box=wire,
                remedy=f"use a multiple of {block}, or one of: {', '.join(map(str, divisors))}",
            )

    def _stores(self, wires: Iterable[str]) -> tuple[Store, ...]:
        outputs = self.term.outputs
        return tuple(Store(w, "output" if w in outputs else "spill", self.term.wires[w].dtype) for w in wires)

    def _whole(self) -> tuple[Statement, ...]:
        loads, stores = self._loads(self.region.loads), self._stores(self.region.stores)
        return place_whole(self.boxes, loads, stores, self.wires, self.columns)

    def _stream(self, form: StreamForm) -> tuple[Statement, ...]:
        axis = form.axis
        chunks = tuple(w for w in self.region.loads if axis in names(self.wires[w].axes))
        carried = tuple(w for w in self.region.stores if w in form.carried)
        fixed_loads = self._loads(w for w in self.region.loads if w not in chunks)
        stores = self._stores(w for w in self.region.stores if w not in carried)
        before, step, after = place_loop(
            form, fixed_loads, self._loads(chunks), self._stores(carried), stores, self.wires, self.columns
        )
        span = self.spans[axis]
        found = every(span.size) if carried else stream_bounds(form, self.wires, self.spans, self.number)
        loop = For(axis, span.size, span.tile, found.lo, found.hi, step, found.full_lo, found.full_hi, found.masks)
        return (*before, loop, *after)


def _column(wire: str, inside: dict[str, str], region: Region) -> str:
    """The box whose primitive makes `wire`; a wire that the derivation named belongs to the box that
    its name begins with, else to the last box of the region."""
    parts = wire.split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((inside[p] for p in prefixes if p in inside), region.boxes[-1] if wire not in region.loads else wire)
