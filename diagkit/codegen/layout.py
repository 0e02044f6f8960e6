"""Where the tiles of a kernel lie in fast memory: which wires share a buffer, and in what order of axes.

A result that overwrites an input shares its buffer; so does a new state with the old one when nobody reads
the old one any more. Axes are ordered so that every product of two tiles is a product of two matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from diagkit.program import Compute, For, Init, Kernel, Load, Statement, Update
from diagkit.term import Contract, FormatError, Map, Wire, names, size

Order = tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """A contraction of two tiles as a product of matrices, for each position along `batch`: rows by
    `inner` times inner by `columns`. The tiles may lie transposed."""

    batch: Order
    rows: Order
    columns: Order
    inner: Order

    @property
    def left(self) -> tuple[Order, Order]:
        """Orders of the left tile: as a matrix, and transposed."""
        return self.batch + self.rows + self.inner, self.batch + self.inner + self.rows

    @property
    def right(self) -> tuple[Order, Order]:
        """Orders of the right tile: as a matrix, and transposed."""
        return self.batch + self.inner + self.columns, self.batch + self.columns + self.inner

    @property
    def made(self) -> tuple[Order, Order]:
        """Orders of the result: as a matrix, and transposed."""
        return self.batch + self.rows + self.columns, self.batch + self.columns + self.rows


@dataclass(frozen=True)
class Layout:
    """Buffers of a kernel: `buffer` names the wire whose buffer each wire uses, `orders` the order of
    axes of each wire's tile (without axes of which a tile holds one position), `products` the
    contractions that are matrix products."""

    buffer: dict[str, str]
    orders: dict[str, Order]
    products: dict[str, Product]


def layout(kernel: Kernel) -> Layout:
    """The layout of `kernel`'s tiles."""
    buffer = share(kernel)
    usual = {wire.name: _held(kernel, names(wire.axes)) for wire in kernel.wires}
    settled: dict[str, Order] = {}
    products = {}
    for box in (s.box for s in kernel.statements if isinstance(s, Compute) and isinstance(s.box, Contract)):
        product = _product(box, usual)
        if product and product.inner and product.rows + product.columns:
            products[box.name] = product
            wires = (*box.inputs, box.name)
            for wire, forms in zip(wires, (product.left, product.right, product.made), strict=True):
                settled.setdefault(buffer[wire], usual[wire] if usual[wire] in forms else forms[0])
    orders = {wire: settled.setdefault(buffer[wire], order) for wire, order in usual.items()}
    return Layout(buffer, orders, products)


def single(kernel: Kernel, axis: str) -> bool:
    """Whether a tile holds one position along `axis`: it then has no such axis."""
    span = kernel.span[axis]
    return span.role != "whole" and bool(span.tile == 1)


def sized(kernel: Kernel) -> Order:
    """The axes whose sizes the kernel must know: its own, and those that its formulas name."""
    found = dict.fromkeys(kernel.span)
    for statement in kernel.statements:
        symbols = {symbol for formula in _formulas(statement) for symbol in formula.free_symbols}
        found |= dict.fromkeys(sorted(s.name for s in symbols if s == size(s.name)))
    return tuple(found)


def _formulas(statement: Statement) -> Iterable[Any]:
    """The formulas that a statement computes with, as the size of the array it reads."""
    box = statement.box if isinstance(statement, Compute) else None
    alias = statement.through if isinstance(statement, Load) else None
    if alias is not None:
        return (*alias.coordinates, *(formula for bound in alias.bounds for formula in bound))
    if isinstance(statement, For):
        bounds = statement.lo, statement.hi, statement.full_lo, statement.full_hi
        return tuple(bound for bound in bounds if hasattr(bound, "free_symbols"))
    return () if box is None else box.formulas


def element(kernel: Kernel, wire: str) -> str:
    """What a tile of `wire` holds: "bool", an integer format, or "number", the kernel's float type."""
    dtype = kernel.wire[wire].dtype
    return dtype if dtype == "bool" or dtype.startswith("int") else "number"


def paired_axis(wire: Wire, dtype: str, even: Callable[[str], bool]) -> str | None:
    """The axis along which a wire has two codes in a byte: the last of an int4 array; `even` says whether tiles along
    an axis hold whole bytes. Errors: FormatError where they do not."""
    axes = names(wire.axes)
    if dtype != "int4" or not axes:
        return None
    if not even(axes[-1]):
        reason = f"tiles of {wire.name!r} split a byte of two int4 codes along {axes[-1]!r}"
        raise FormatError(reason, box=wire.name, axis=axes[-1], remedy=f"an even tile along {axes[-1]!r}")
    return axes[-1]


def check_sums(kernel: Kernel, engine: str) -> None:
    """Refuse a state in fewer bits than the engine gathers in, by name."""
    for state in (one for one in kernel.statements if isinstance(one, Update) and one.new in kernel.narrowed):
        raise FormatError(
            f"{engine} kernels do not round {state.wire!r} to {kernel.narrowed[state.new]} as they gather it",
            box=state.wire,
            remedy='let it be gathered in the usual format, accumulate("fp32")',
        )


def _held(kernel: Kernel, axes: Iterable[str]) -> Order:
    return tuple(axis for axis in axes if not single(kernel, axis))


def _product(box: Contract, usual: dict[str, Order]) -> Product | None:
    """The contraction as a matrix product; None where it is none."""
    if len(box.inputs) != 2 or len(set(box.inputs)) != 2:
        return None
    left, right, made = (usual[wire] for wire in (*box.inputs, box.name))
    both = set(left) & set(right)
    if (set(left) ^ set(right)) - set(made):
        return None  # an axis of one tile alone is summed
    return Product(
        tuple(a for a in left if a in both and a in made),
        tuple(a for a in left if a not in both),
        tuple(a for a in right if a not in both),
        tuple(a for a in left if a in both and a not in made),
    )


def share(kernel: Kernel) -> dict[str, str]:
    """The wire whose buffer each wire uses: its own, unless it overwrites another."""
    root = {wire.name: wire.name for wire in kernel.wires}
    for statement in kernel.statements:
        if isinstance(statement, Compute) and statement.into is not None and _alike(kernel, statement):
            root[statement.box.name] = root[statement.into]
    for state, new in _renewed_in_place(kernel):
        root[new] = root[state]
    return root


def _alike(kernel: Kernel, compute: Compute) -> bool:
    """Whether a result can lie where the input that it overwrites lay."""
    return compute.into is not None and element(kernel, compute.into) == element(kernel, compute.box.name)


def _renewed_in_place(kernel: Kernel) -> list[tuple[str, str]]:
    """(state, new) where the box that makes `new` is a map and the last reader of the old state."""
    step = kernel.part("loop")
    order = {s.box.name: place for place, s in enumerate(step) if isinstance(s, Compute)}
    last = {wire: place for place, s in enumerate(step) if isinstance(s, Compute) for wire in s.box.inputs}
    made = {s.box.name: s for s in step if isinstance(s, Compute)}
    started = {s.wire for s in kernel.statements if isinstance(s, Init)}
    found = []
    for update in (s for s in step if isinstance(s, Update) and s.wire in started and s.new in made):
        compute = made[update.new]
        same = set(names(kernel.wire[update.wire].axes)) == set(names(compute.box.axes))
        lone = sum(1 for s in step if isinstance(s, Update) and s.new == update.new) == 1
        free = isinstance(compute.box, Map) and compute.into is None and update.wire in compute.box.inputs
        if same and lone and free and last.get(update.wire) == order[update.new]:
            found.append((update.wire, update.new))
    return found
