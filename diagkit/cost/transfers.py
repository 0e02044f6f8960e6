"""Transfers: what crosses between two memory levels, per array, levels and kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import sympy

from diagkit.cost.exact import Number, evaluate, relax
from diagkit.cost.kernel import Kernel, amount_of, kernels, product, tiles, whole_elements
from diagkit.cost.masks import Mask, loop_mask
from diagkit.cost.show import Shown, table
from diagkit.cost.through import loaded_through, tile_through
from diagkit.cost.visits import Cut, make_visited
from diagkit.term import FORMATS, Axes, Term, check_format, names


class Transfer(NamedTuple):
    """What is counted: `array` crosses from level `source` to level `target` (0 is global memory).

    `kind`: "input" (an input array is loaded), "output" (a diagram's output is stored), "spill" (an
    intermediate is stored for another kernel), "refill" (it is loaded there).

    >>> import diagkit as dk
    >>> moved = dk.Diagram(dk.exp(dk.array("Q", dk.axis("q")))).transfers()
    >>> key = next(iter(moved))
    >>> str(key), key.array, key.source, key.target, moved["Q", 0, 1, "input"]
    ('input Q', 'Q', 0, 1, q)
    """

    array: str
    source: int
    target: int
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} {self.array}"


Amounts = tuple[tuple[Transfer, Any], ...]


@dataclass(frozen=True, repr=False)
class Transfers(Shown, Mapping[Transfer, Any]):
    """A map from `Transfer` to a formula, in `unit` ("elements" or "bytes"), in order of kernels.

    A load is counted once for each tile of every grouped axis that the array lacks; axes that it has are
    covered exactly, so a short edge tile costs what it holds. A load through a view is one of the array that
    is viewed (see `cost.through`). Source: arXiv 2412.03317, sections 2.2 and 2.3,
    with ceilings.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> moved = dk.Diagram(C).group(a="g_a").transfers()
    >>> moved.by_array()
    {'A': a*b, 'B': b*c*ceiling(a/g_a), 'C': a*c}
    >>> moved.by_kind()
    {'input': a*b + b*c*ceiling(a/g_a), 'output': a*c}
    >>> moved.per_group().total(), moved.relaxed().total()
    (b*c + b*g_a + c*g_a, a*b*c/g_a + a*b + a*c)
    >>> moved.bytes("fp16").by_array()["A"], moved.bytes({"A": "int8"}).by_array()["A"]
    (2*a*b, a*b)
    """

    amounts: Amounts
    one_group: Amounts
    formats: Mapping[str, str]
    unit: str = "elements"

    def __getitem__(self, key: Transfer) -> Any:
        return amount_of(dict(self.amounts), key, "by_array")

    def __iter__(self) -> Iterator[Transfer]:
        return iter(key for key, _ in self.amounts)

    def __len__(self) -> int:
        return len(self.amounts)

    def total(self, **sizes: Any) -> Any:
        """The sum over everything that moves, in `unit`: a formula of sympy, or a number at `sizes`.

        All sizes of axes and tiles have to be given, by name, or an InputError says which is missing. Where some
        stay open, `subs` puts the others in.

        >>> import diagkit as dk
        >>> q, d = dk.axes("q d")
        >>> moved = dk.Diagram(dk.exp(dk.array("Q", q, d))).transfers()
        >>> moved.total(), moved.total(q=512, d=32), moved.total().subs({"d": 32})
        (2*d*q, 32768, 64*q)
        """
        whole = sympy.Add(*(amount for _, amount in self.amounts))
        return evaluate(whole, sizes) if sizes else whole

    def at(self, **sizes: Any) -> dict[Transfer, Number]:
        """Each amount as a plain number, in `unit`, at `sizes` (elements, by name of axis or tile).

        >>> import diagkit as dk
        >>> moved = dk.Diagram(dk.exp(dk.array("Q", dk.axis("q")), name="E")).transfers()
        >>> {str(key): amount for key, amount in moved.bytes().at(q=512).items()}
        {'input Q': 2048, 'output E': 2048}
        >>> moved.at()
        Traceback (most recent call last):
        ...
        diagkit.term.errors.InputError: the size of 'q' is not given; give also: q
        """
        return {key: evaluate(amount, sizes) for key, amount in self.amounts}

    def by_array(self) -> dict[str, Any]:
        """The amounts added up per array."""
        return _added((key.array, amount) for key, amount in self.amounts)

    def by_kind(self) -> dict[str, Any]:
        """The amounts added up per kind."""
        return _added((key.kind, amount) for key, amount in self.amounts)

    def bytes(self, dtype: str | Mapping[str, str] | None = None) -> Self:
        """The same in bytes: by the format on each wire, by one format for all, or by array name.

        A FormatError for a format that does not exist.
        """
        if self.unit == "bytes":
            return self
        width = {array: _bits(array, own, dtype) for array, own in self.formats.items()}

        def weighed(amounts: Amounts) -> Amounts:
            return tuple((key, amount * sympy.Rational(width[key.array], 8)) for key, amount in amounts)

        return replace(self, amounts=weighed(self.amounts), one_group=weighed(self.one_group), unit="bytes")

    def per_group(self) -> Self:
        """What one group of each kernel moves: the napkin number, to be multiplied by the groups.

        A full tile that visits every chunk, also where a mask lets others skip some.
        """
        return replace(self, amounts=self.one_group)

    def relaxed(self) -> Self:
        """The same without ceilings, sums over tiles closed: what it is when every tile fits."""
        return replace(self, amounts=tuple((key, relax(amount)) for key, amount in self.amounts))

    def _rows(self) -> list[tuple[Any, ...]]:
        rows = [(key.array, key.kind, f"{key.source} → {key.target}", amount) for key, amount in self.amounts]
        return [("array", "kind", "levels", self.unit), *rows, ("total", "", "", self.total())]

    def _table(self) -> Any:
        return table(self._rows())


def _added(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for key, amount in pairs:
        found.setdefault(key, []).append(amount)
    return {key: sympy.Add(*amounts) for key, amounts in found.items()}


def _bits(array: str, own: str, dtype: str | Mapping[str, str] | None) -> int:
    chosen = dtype.get(array, own) if isinstance(dtype, Mapping) else dtype or own
    return FORMATS[check_format(chosen)]


def transfers(term: Term) -> Transfers:
    """What one run of the diagram moves between memory levels, in elements, exact ceilings kept.

    >>> from diagkit.ops import array, axes, einsum, trace
    >>> a, b, c = axes("a b c")
    >>> C = einsum("a b, b c -> a c", array("A", a, b), array("B", b, c), name="C")
    >>> transfers(Term(*trace([C]))).total()
    a*b + a*c + b*c
    """
    cut = kernels(term)
    amounts = collect(pair for kernel in cut for pair in kernel_transfers(kernel))
    one_group = collect(pair for kernel in cut for pair in _group_transfers(kernel))
    return Transfers(amounts, one_group, {key.array: term.wires[key.array].dtype for key, _ in amounts})


def collect(pairs: Iterable[tuple[Transfer, Any]]) -> Amounts:
    """Amounts with equal keys added up, in order of first appearance."""
    found: dict[Transfer, list[Any]] = {}
    for key, amount in pairs:
        found.setdefault(key, []).append(amount)
    return tuple((key, sympy.Add(*parts)) for key, parts in found.items())


def load_key(term: Term, wire: str) -> Transfer:
    """How the load of `wire` is entered: under the array that moves."""
    array = term.array(wire)
    return Transfer(array, 0, 1, "input" if array in {one.name for one in term.inputs} else "refill")


def store_key(kernel: Kernel, wire: str) -> Transfer:
    """How the store of `wire` is entered."""
    return Transfer(wire, 1, 0, "output" if wire in kernel.term.outputs else "spill")


def kernel_transfers(kernel: Kernel) -> Iterator[tuple[Transfer, Any]]:
    """What all groups of one kernel move."""
    mask = loop_mask(kernel)
    for wire in kernel.region.loads:
        yield load_key(kernel.term, wire), loaded(kernel, wire, mask)
    for wire in kernel.region.stores:
        yield store_key(kernel, wire), whole_elements(kernel.term.wires[wire].axes)


def loaded(kernel: Kernel, wire: str, mask: Mask) -> Any:
    """The elements of one array that all groups of a kernel load."""
    axes, alias = kernel.wires[wire].axes, kernel.alias(wire)
    if alias is not None:
        return loaded_through(kernel, alias, mask)
    if mask.bounds and kernel.carries(wire, kernel.streamed):
        return masked_points(kernel, axes, mask, chunks=False)
    return product((whole_elements(axes), kernel.repeats(names(axes))))


def masked_points(kernel: Kernel, axes: Axes, mask: Mask, *, chunks: bool) -> Any:
    """The points over `axes` in all the chunks that all groups visit; once per chunk where `chunks`
    (for what lacks the streamed axis and is done again in every chunk)."""
    term, own = kernel.term, set(names(axes))
    inside, streamed = kernel.outer, str(kernel.streamed)
    stream = Cut(term.axis(streamed).size, kernel.chunk, int(not chunks), inside("stream", streamed))
    others = [Cut(n, kernel.grouped.get(a, n), int(a in own), inside("group", a)) for a, n in _sizes(term, mask)]
    rest = tuple(axis.size for axis in axes if axis.name not in {kernel.streamed, *mask.axes})
    return product((*rest, kernel.repeats(own, mask.axes), make_visited(stream, others, mask.bounds)))


def _sizes(term: Term, mask: Mask) -> list[tuple[str, Any]]:
    return [(axis, term.axis(axis).size) for axis in mask.axes]


def visits(term: Term) -> dict[str, tuple[Any, Any]]:
    """Tiles of the loop that run and tiles that there are, per streamed kernel (named by its last box).

    They differ where a mask made of positions hides whole tiles: these are skipped, not computed and
    thrown away. A mask whose rule is not a set of linear inequalities skips nothing.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> s = dk.total(dk.array("X", q, x), over=x)
    >>> sums = dk.Diagram(s).fuse().group(q="g_q").stream(x="s_x")
    >>> visits(sums)
    {'s': (ceiling(q/g_q)*ceiling(x/s_x), ceiling(q/g_q)*ceiling(x/s_x))}
    """
    return {kernel.region.boxes[-1]: _visits(kernel) for kernel in kernels(term) if kernel.form}


def _visits(kernel: Kernel) -> tuple[Any, Any]:
    mask = loop_mask(kernel)
    every = product((kernel.repeats(()), tiles(kernel.term.axis(str(kernel.streamed)).size, kernel.chunk)))
    return (masked_points(kernel, (), mask, chunks=True) if mask.bounds else every), every


def _group_transfers(kernel: Kernel) -> Iterator[tuple[Transfer, Any]]:
    for wire in kernel.region.loads:
        yield load_key(kernel.term, wire), one_group(kernel, wire)
    for wire in kernel.region.stores:
        yield store_key(kernel, wire), one_group(kernel, wire)


def one_group(kernel: Kernel, wire: str) -> Any:
    """The elements of a wire that belong to one full tile; the streamed axis is passed whole."""
    alias = kernel.alias(wire)
    if alias is not None:
        return tile_through(kernel, alias)
    return product(tuple(kernel.grouped.get(axis.name, axis.size) for axis in kernel.term.wires[wire].axes))
