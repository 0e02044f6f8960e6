"""Pseudocode: the loop nest as text, every line with the box that it comes from and the unit that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.printing.precedence import precedence
from sympy.printing.str import StrPrinter

from diagkit.ops import BY_SYMBOL
from diagkit.program.nest import (
    Compute,
    For,
    Free,
    Init,
    Kernel,
    Load,
    ParFor,
    Statement,
    Store,
    Update,
    first,
    last,
)
from diagkit.term import (
    LEVEL_NAMES,
    Alias,
    Axes,
    Box,
    Cast,
    Contract,
    Index,
    Map,
    Reduce,
    View,
    arg,
    empty,
    finite,
    names,
    size,
    value,
)


@dataclass(frozen=True)
class Line:
    """One line: how deep it stands, what it does, the tile it makes, and where it comes from."""

    depth: int
    text: str
    tile: str = ""
    origin: str = ""


def pseudocode(name: str, kernels: Iterable[Kernel]) -> str:
    """The text of all kernels; comments aligned, the same bytes for the same program."""
    return "\n\n".join([_title(name), *(aligned(list(kernel_lines(kernel))) for kernel in kernels)]) + "\n"


def _title(name: str) -> str:
    return f"# {name}: loads and stores are {LEVEL_NAMES[0]} <-> {LEVEL_NAMES[1]} memory"


def kernel_lines(kernel: Kernel) -> Iterator[Line]:
    """The lines of one kernel."""
    yield Line(0, f"kernel {kernel.name}:", "", f"boxes {', '.join(kernel.boxes)}")
    yield from lines(kernel, kernel.body, 1)


def lines(kernel: Kernel, body: tuple[Statement, ...], depth: int) -> Iterator[Line]:
    """The lines of statements of a kernel, `depth` loops inside."""
    for statement in body:
        yield from _CASES[type(statement)](kernel, statement, depth)


def aligned(several: list[Line]) -> str:
    """Lines with tiles and comments in columns of their own; a long loop line may reach over both."""
    texts = ["    " * line.depth + line.text for line in several]
    text_width = max(len(text) for text, line in zip(texts, several, strict=True) if line.tile or line.depth == 0)
    whole_width = text_width + 2 + max(len(line.tile) for line in several)
    rows = (f"{text:{text_width}}  {line.tile}" for text, line in zip(texts, several, strict=True))
    comments = (f"  # {line.origin}" if line.origin else "" for line in several)
    return "\n".join(f"{row:{whole_width}}{end}".rstrip() for row, end in zip(rows, comments, strict=True))


def _tile(kernel: Kernel, axes: Axes) -> str:
    return f"({' × '.join(str(extent) for extent in kernel.tile(axes))})" if axes else "(1)"


def _wire_tile(kernel: Kernel, wire: str) -> str:
    return _tile(kernel, kernel.wire[wire].axes)


def _place(kernel: Kernel, wire: str) -> str:
    """How a tile lies in its array: the axes, those that are cut by their tile number."""
    axes = names(kernel.wire[wire].axes)
    return ", ".join(f"{axis}{'' if kernel.span[axis].role == 'whole' else '_tile'}" for axis in axes)


def _load(kernel: Kernel, load: Load, depth: int) -> Iterator[Line]:
    place = _place(kernel, load.wire) if load.through is None else _read_at(load.through)
    text = f"{load.wire} <- load {load.array if load.through else load.wire}[{place}]"
    through = "" if load.array == load.wire else f"{load.array} through "
    yield Line(depth, text, _wire_tile(kernel, load.wire), f"{through}{load.wire} · {load.traffic}")


def _read_at(alias: Alias) -> str:
    """The coordinates of a load through a view."""
    return ", ".join(formula(read) for read in alias.coordinates)


def _store(kernel: Kernel, store: Store, depth: int) -> Iterator[Line]:
    text = f"store {store.wire} -> {store.wire}[{_place(kernel, store.wire)}]"
    yield Line(depth, text, _wire_tile(kernel, store.wire), f"{store.wire} · {store.traffic}")


def _init(kernel: Kernel, init: Init, depth: int) -> Iterator[Line]:
    dtype = kernel.wire[init.wire].dtype
    held = "" if dtype in ("fp32", "fp64") else f", {dtype}"
    yield Line(depth, f"{init.wire} = {init.start}", _wire_tile(kernel, init.wire), f"{init.column} · state{held}")


def _compute(kernel: Kernel, compute: Compute, depth: int) -> Iterator[Line]:
    box = compute.box
    text = f"{box.name} = {_FORMULAS[type(box)](kernel, box)}"
    place = f", in place of {compute.into}" if compute.into else "" if compute.buffer else _register(kernel, box)
    yield Line(depth, text, _wire_tile(kernel, box.name), f"{compute.column} · {unit(kernel, box)}{place}")


def _register(kernel: Kernel, box: Box) -> str:
    return ", positions" if kernel.wire[box.name].virtual else ", register"


def _update(_: Kernel, update: Update, depth: int) -> Iterator[Line]:
    yield Line(depth, f"{update.wire} := {update.new}", "", f"{update.column} · state")


def _free(_: Kernel, free: Free, depth: int) -> Iterator[Line]:
    yield Line(depth, f"free {', '.join(free.wires)}")


def _parfor(kernel: Kernel, loop: ParFor, depth: int) -> Iterator[Line]:
    text = f"par {loop.axis}_tile in {loop.axis} by {loop.tile}:"
    yield Line(depth, text, "", f"{_tiles(loop.size, loop.tile)} independent tiles of {loop.axis}")
    yield from lines(kernel, loop.body, depth + 1)


def _for(kernel: Kernel, loop: For, depth: int) -> Iterator[Line]:
    text = f"for {loop.axis}_tile in {_visited(loop)} by {loop.tile}:"
    most = "at most " if _bounded(loop) else ""
    yield Line(depth, text, "", f"{most}{_tiles(loop.size, loop.tile)} chunks of {loop.axis}, in order")
    yield from lines(kernel, loop.body, depth + 1)


def _bounded(loop: For) -> bool:
    return (loop.lo, loop.hi) != (0, loop.size)


def _visited(loop: For) -> str:
    """The axis, or the positions of it between the bounds that masks set: tiles that meet them."""
    return f"{loop.axis}[{_bound(loop.lo)} : {_bound(loop.hi)}]" if _bounded(loop) else loop.axis


def _bound(position: Any) -> str:
    """A loop bound: the group's first and last positions written as of its tile."""
    axes = {str(symbol.name).rpartition(".")[0] for symbol in position.free_symbols}
    readable = {first(axis): value(f"first({axis}_tile)") for axis in axes}
    readable |= {last(axis): value(f"last({axis}_tile)") for axis in axes}
    return formula(position.xreplace(readable))


def _tiles(size: Any, tile: Any) -> str:
    return str(sympy.ceiling(sympy.sympify(size) / tile)).replace("ceiling", "ceil")


_CASES: dict[type[Statement], Callable[[Kernel, Any, int], Iterator[Line]]] = {
    Load: _load,
    Store: _store,
    Init: _init,
    Compute: _compute,
    Update: _update,
    Free: _free,
    ParFor: _parfor,
    For: _for,
}


class _Formula(StrPrinter):  # type: ignore[misc]
    """sympy text for reading: guards are left out, functions by their everyday names."""

    def parenthesize(self, item: Any, level: int, strict: bool = False) -> str:
        """As sympy's; a guard binds as what it guards."""
        while isinstance(item, finite):
            item = item.args[0]
        return str(super().parenthesize(item, level, strict))

    def _print_finite(self, expr: Any) -> str:
        return str(self._print(expr.args[0]))

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        parts = sorted(expr.args, key=lambda part: (part.is_number, part.could_extract_minus_sign()))
        signs = [(" - ", -part) if part.could_extract_minus_sign() else (" + ", part) for part in parts]
        text = "".join(sign + self.parenthesize(part, precedence(expr)) for sign, part in signs)
        return text.removeprefix(" + ") if text.startswith(" + ") else "-" + text.removeprefix(" - ")

    def _print_Max(self, expr: Any) -> str:
        return f"max({self._listed(expr)})"

    def _print_Min(self, expr: Any) -> str:
        return f"min({self._listed(expr)})"

    def _print_And(self, expr: Any) -> str:
        return " and ".join(sorted(self._print(part) for part in expr.args))

    def _print_NegativeInfinity(self, _: Any) -> str:
        return "-inf"

    def _print_Infinity(self, _: Any) -> str:
        return "inf"

    def _listed(self, expr: Any) -> str:
        return ", ".join(sorted((self._print(part) for part in expr.args), key=lambda part: (len(part), part)))


_PRINTER = _Formula({"order": "none"})


def formula(expr: Any) -> str:
    """A scalar formula as it is read.

    >>> from diagkit.term import finite
    >>> formula(sympy.exp(value("S") - finite(value("m"))))
    'exp(S - m)'
    """
    return str(_PRINTER.doprint(expr))


def _map(kernel: Kernel, box: Any) -> str:
    """The formula over wires. Whether an axis is empty is no question where its size is known."""
    known = {size(axis): span.size for axis, span in kernel.span.items() if span.size.is_Integer}
    asked = {part: part.xreplace(known) for part in box.expr.atoms(empty)}
    wires = {arg(place): value(wire) for place, wire in enumerate(box.inputs)}
    return formula(box.expr.xreplace(asked).xreplace(wires))


def _contract(kernel: Kernel, box: Box) -> str:
    kept = names(box.axes)
    joined = dict.fromkeys(axis for wire in box.inputs for axis in names(kernel.wire[wire].axes))
    over = ", ".join(axis for axis in joined if axis not in kept)
    return f"{'sum over ' + over + ' of ' if over else ''}{' · '.join(box.inputs)}"


def _reduce(_: Kernel, box: Any) -> str:
    return f"{box.op} over {', '.join(box.over)} of {box.inputs[0]}"


def _index(_: Kernel, box: Box) -> str:
    return f"positions along {box.axes[0].name}"


def _cast(_: Kernel, box: Any) -> str:
    return f"{box.inputs[0]} as {box.dtype}"


def _view(_: Kernel, box: Any) -> str:
    return f"{box.inputs[0]}[{', '.join(formula(at) for at in box.coordinates)}]"


_FORMULAS: dict[type[Box], Callable[[Kernel, Any], str]] = {
    Map: _map,
    Reduce: _reduce,
    Contract: _contract,
    Index: _index,
    Cast: _cast,
    View: _view,
}


def unit(kernel: Kernel, box: Box) -> str:
    """Who runs a box: "tensor" for a sum of products, "special" for exp and its like, "move" for what only
    moves or rounds, else "fma"."""
    return _UNITS[type(box)](kernel, box)


def _map_unit(_: Kernel, box: Any) -> str:
    return "special" if any(_is_special(part) for part in sympy.preorder_traversal(box.expr)) else "fma"


def _is_special(part: Any) -> bool:
    """A function of the special unit's rows, or a root or an inverse of something that is no size."""
    row = BY_SYMBOL.get(part.func)
    power = part.is_Pow and not (part.exp.is_Integer and part.exp > 0)
    return (row is not None and row.unit == "special") or (power and any(not s.is_positive for s in part.free_symbols))


def _contract_unit(kernel: Kernel, box: Box) -> str:
    joined = {axis for wire in box.inputs for axis in kernel.wire[wire].axes}
    return "tensor" if len(box.inputs) > 1 and joined - set(box.axes) else "fma"


_UNITS: dict[type[Box], Callable[[Kernel, Any], str]] = {
    Map: _map_unit,
    Contract: _contract_unit,
    Reduce: lambda _kernel, _box: "fma",
    Index: lambda _kernel, _box: "move",
    Cast: lambda _kernel, _box: "move",
    View: lambda _kernel, _box: "move",
}
