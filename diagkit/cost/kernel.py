"""One kernel as the costs see it: what it loads, runs and stores, and how its axes are cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import sympy

from diagkit.term import (
    Alias,
    Axes,
    Axis,
    Box,
    InputError,
    MissingKeyError,
    Region,
    StreamForm,
    Term,
    Wire,
    wire_format,
)


@dataclass(frozen=True)
class Kernel:
    """A region of a diagram with the labels that cut it.

    * `grouped`: tile by axis (elements) for the grouped axes that its wires carry;
    * `chunk`: the stream tile, where `form` says how it streams;
    * `fixed`, `step`, `tail`: its primitives before, in and after the loop (all of them `fixed` without one).
    """

    term: Term
    region: Region
    number: int
    grouped: Mapping[str, Any]
    form: StreamForm | None
    chunk: Any

    @property
    def streamed(self) -> str | None:
        """The name of the streamed axis, or None."""
        return self.form.axis if self.form else None

    @property
    def fixed(self) -> tuple[Box, ...]:
        """The primitives done once per group, before any loop."""
        return self.form.fixed if self.form else self.term.primitives(self.region)

    @property
    def step(self) -> tuple[Box, ...]:
        """The primitives done once per chunk."""
        return self.form.step if self.form else ()

    @property
    def tail(self) -> tuple[Box, ...]:
        """The primitives done after the loop."""
        return self.form.tail if self.form else ()

    @cached_property
    def wires(self) -> Mapping[str, Wire]:
        """Every wire that the kernel reads or makes, those of its stream too."""
        return _streamed_wires(self.term, self.form) if self.form else self.term.wires

    def alias(self, wire: str) -> Alias | None:
        """How a load is read through a view; None where the wire itself lies in the memory above."""
        return self.term.aliases.get(wire)

    def carries(self, wire: str, axis: str | None) -> bool:
        """Whether the wire has that axis."""
        return any(one.name == axis for one in self.wires[wire].axes)

    def held(self, wire: str) -> Any:
        """The elements of `wire` that one full tile of the kernel holds."""
        return self.tile_elements(self.wires[wire].axes)

    def tile_elements(self, axes: Axes) -> Any:
        """The elements of one full tile over `axes`: tiles of grouped and streamed axes, whole others."""
        return product(tuple(self.extent(axis) for axis in axes))

    def extent(self, axis: Axis) -> Any:
        """How much of an axis one full tile has."""
        return self.chunk if axis.name == self.streamed else self.grouped.get(axis.name, axis.size)

    @property
    def chunks(self) -> Any:
        """The number of chunks of the streamed axis."""
        return tiles(self.term.axis(str(self.streamed)).size, self.chunk)

    def outer(self, kind: str, axis: str) -> tuple[Any, ...]:
        """The tiles inside which those of a "group" or "stream" axis lie, largest first: none at level 1."""
        return ()

    def repeats(self, axes: Iterable[str], also: Iterable[str] = ()) -> Any:
        """How often something over `axes` is done again: once per tile of every grouped axis it lacks.

        `also` are grouped axes that are accounted for elsewhere.
        """
        done = {*axes, *also}
        lacked = ((axis, tile) for axis, tile in self.grouped.items() if axis not in done)
        return product(tuple(tiles(self.term.axis(axis).size, tile) for axis, tile in lacked))


def kernels(term: Term) -> tuple[Kernel, ...]:
    """The kernels of a diagram, in the order of its regions."""
    return tuple(_kernel(term, region, number) for number, region in enumerate(term.regions))


def _kernel(term: Term, region: Region, number: int) -> Kernel:
    form = term.form(region)
    label = term.label("stream", form.axis) if form else None
    grouped = {axis: one.tile for axis, one in term.grouped(region).items()}
    return Kernel(term, region, number, grouped, form, label.tile if label else None)


def _streamed_wires(term: Term, form: StreamForm) -> dict[str, Wire]:
    """The diagram's wires as they are, states in their own format, and what the stream adds."""
    wires = dict(term.wires)
    wires |= {state.name: Wire(state.name, state.axes, state.dtype) for state in form.state}
    for box in (*form.fixed, *form.step, *form.tail):
        sources = [wires[wire] for wire in box.inputs]
        virtual = all(wire.virtual for wire in sources)
        made = Wire(box.name, box.axes, wire_format(box, [wire.dtype for wire in sources]), virtual)
        wires[box.name] = term.wires.get(box.name, made)
    return wires


def check_names(term: Term, sizes: Iterable[str]) -> None:
    """Refuse a size whose name is neither an axis nor a tile of the diagram."""
    known = [*term.axes, *(symbol.name for label in term.labels for symbol in label.tile.free_symbols)]
    for name in sizes:
        if name not in known:
            raise InputError(
                f"{term.name} has no axis or tile {name!r}", axis=name, remedy=f"it has: {', '.join(known)}"
            )


def amount_of(amounts: Mapping[Any, Any], key: Any, by_name: str) -> Any:
    """The amount under `key`; an MissingKeyError, which is a KeyError too, that shows a key that there is."""
    if not isinstance(key, tuple) or key not in amounts:
        shown = f"a key is, for example, {tuple(next(iter(amounts)))!r}; {by_name}() adds up by name"
        remedy = shown if amounts else "nothing is counted here"
        raise MissingKeyError(f"no amount {key!r}", remedy=remedy)
    return amounts[key]


def check_unit(unit: str) -> None:
    """Refuse a unit that is neither elements nor bytes."""
    if unit not in ("elements", "bytes"):
        raise InputError(f"no unit {unit!r}", remedy='use "elements" or "bytes"')


@lru_cache(maxsize=4096)
def product(factors: tuple[Any, ...]) -> Any:
    """The product of sizes, remembered: the same shapes come again and again."""
    return sympy.Mul(*factors)


@lru_cache(maxsize=4096)
def tiles(whole: Any, tile: Any) -> Any:
    """The number of tiles that cover an axis: the ceiling of size / tile.

    >>> from diagkit.term import size
    >>> tiles(size("q"), size("g_q")), tiles(sympy.Integer(1000), sympy.Integer(128))
    (ceiling(q/g_q), 8)
    """
    return sympy.ceiling(whole / tile)


@lru_cache(maxsize=4096)
def whole_elements(axes: Axes) -> Any:
    """The elements of a whole array over `axes`."""
    return product(tuple(axis.size for axis in axes))
