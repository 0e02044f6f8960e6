"""The legal tile: whole numbers that the machine can run, the best of them, and what rounding costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isnan, lcm, prod
from numbers import Integral, Real
from typing import Any

import sympy

from diagkit.cost.exact import compiled, evaluate, tidy
from diagkit.cost.kernel import check_names, check_unit, kernels
from diagkit.cost.masks import loop_mask
from diagkit.cost.memory import memory as memory_of
from diagkit.cost.optimum import optimum
from diagkit.cost.show import Shown, Table
from diagkit.cost.transfers import transfers
from diagkit.cost.upper import undominated
from diagkit.cost.work import work
from diagkit.term import (
    FORMATS,
    Contract,
    DiagkitError,
    InputError,
    Label,
    Term,
    as_float,
    at_level,
    check_format,
    check_whole,
    names,
)

Reasons = Mapping[str, tuple[tuple[int, str], ...]]
"""For each axis, the numbers that its tile must be a multiple of, and why."""

ROW = 128
"""Bytes of one coalesced row of slow memory."""

Price = Callable[[Mapping[str, int]], float]
"""What tiles cost, by the sizes and tiles that it is given; without a mask it never grows with a tile."""


class NoTileError(DiagkitError):
    """No legal tile fits the memory.

    >>> import diagkit as dk
    >>> q = dk.axis("q")
    >>> dk.Diagram(dk.exp(dk.array("X", q), name="E"), name="exp").group(q="g_q").legal_tile(1, q=64)
    Traceback (most recent call last):
    ...
    diagkit.cost.legal.NoTileError: the smallest legal tiles hold 32 elements, and the memory is 1; give more \
memory, smaller multiples, or more axes to group or stream
    """


@dataclass(frozen=True, repr=False)
class LegalTile(Shown):
    """The best tile of whole numbers.

    `tiles` by name; `held` and `moved` exactly, in `unit`; `bound` is H*(M), what no tile can beat, where
    a formula for it exists; `loss` is what the tile's shape costs against it (transfers without
    ceilings over the bound, minus 1); `edges` what short tiles at the ends cost on top; `reasons` say why
    a tile is a multiple of what.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b")
    >>> found = tiled.legal_tile(4096, a=1024, b=1024, c=1024)
    >>> found.tiles, found.held, found.moved, round(found.loss, 2)
    ({'g_a': 48, 'g_c': 32, 's_b': 32}, 4096, 57671680, 0.65)
    """

    tiles: Mapping[str, int]
    held: int | float
    moved: int | float
    bound: float | None
    loss: float | None
    edges: float
    reasons: Reasons
    unit: str

    def _table(self) -> Table:
        rows = [("tile", f"{name} = {tile}") for name, tile in self.tiles.items()]
        rows += [("held", f"{self.held:,}"), ("moved", f"{self.moved:,}")]
        if self.bound is not None:
            rows += [("bound", f"{self.bound:,.0f}"), ("loss of shape", f"{100 * (self.loss or 0):.2f} %")]
        rows.append(("loss at edges", f"{100 * self.edges:.2f} %"))
        rows += [(f"{axis} by {n}", why) for axis, several in self.reasons.items() for n, why in several]
        return Table([("legal tile", self.unit), *rows])


def legal_tile(
    term: Term,
    memory: Any = None,
    *,
    multiples: Mapping[str, int] | None = None,
    divisors: bool = False,
    unit: str = "elements",
    dtype: str | None = None,
    groups: int = 1,
    price: Price | None = None,
    **sizes: int,
) -> LegalTile:
    """The whole-number tiles with the least exact transfers whose kernels stay within `memory`, in `unit`.
    None cuts a block that has one scale. With so many `groups` at a time (one for each core) each kernel has at least
    that many, or as many as its smallest legal tiles make; and what is least is the share of the busiest core: nine
    groups on two cores take as long as ten.

    With `price`, the tiles for which that is least in place of the transfers, chunks among them: such as the
    seconds that a machine takes (`Diagram.legal_tile` with aim="time"). It matters under a mask, where large tiles
    move less and compute more pairs that nobody sees, and where each chunk has a price of its own.

    `sizes` are elements by name of the axis; a tile that is given stays. Tiles are multiples of
    `multiples` by axis (unless given: of what matrix instructions and coalesced rows ask for, see
    `tile_multiples`) and of the labels' own, or the whole axis; with `divisors` they divide it.
    Never rounded up past the memory. A NoTileError where nothing legal fits.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c")
    >>> legal_tile(tiled, 40, multiples={}, a=8, b=4, c=8).tiles
    {'g_a': 3, 'g_c': 4}
    >>> legal_tile(tiled, 40, multiples={}, groups=8, a=8, b=4, c=8).tiles
    {'g_a': 2, 'g_c': 4}
    """
    term = at_level(term, 1)
    if dtype is not None:
        check_format(dtype)
    _check_room(term, memory, multiples or {}, groups)
    _check_sizes(term, sizes)
    check_unit(unit)
    search = _Search(term, memory, unit, dtype, sizes, price)
    asked = tile_multiples(term, dtype) if multiples is None else {a: ((n, "given"),) for a, n in multiples.items()}
    reasons = _with_labels(term, asked)
    steps = {axis: lcm(*(number for number, _ in several)) for axis, several in reasons.items()}
    choices = {one.tile.name: _choices(search, one, steps.get(one.axis, 1), divisors) for one in search.labels}
    search.spread(choices, groups)
    best = search.best(choices)
    return _result(search, best, {axis: why for axis, why in reasons.items() if any(n > 1 for n, _ in why)})


def _check_sizes(term: Term, sizes: Mapping[str, int]) -> None:
    check_names(term, sizes)
    for name, number in sizes.items():
        if not isinstance(number, Integral) or number < 1:
            remedy = "sizes are whole numbers of at least 1"
            raise InputError(f"{name!r} cannot have size {number!r}", axis=name, remedy=remedy)
    open_axes = [name for name in term.open_sizes if name not in sizes]
    if open_axes:
        remedy = f"give also: {', '.join(open_axes)}"
        raise InputError(f"the size of {open_axes[0]!r} is not given", axis=open_axes[0], remedy=remedy)


def _check_room(term: Term, memory: Any, multiples: Any, groups: Any) -> None:
    """Refuse a memory or a count of groups that is no number, and multiples that are not whole numbers by axis."""
    if memory is None:
        raise InputError("no memory is given", remedy="say how much: memory=65536; sizes go by name, q=4096")
    if not isinstance(memory, Real) or isnan(memory):
        raise InputError(f"{memory!r} is no amount of memory", remedy="give a number; formulas are for optimum(...)")
    check_whole(groups, "a count of groups", 1)
    if not isinstance(multiples, Mapping):
        raise InputError(f"{multiples!r} names no axis", remedy='write for example multiples={"q": 16}')
    for axis, number in multiples.items():
        term.axis(axis)
        if not isinstance(number, Integral) or number < 1:
            raise InputError(f"no tile is a multiple of {number!r}", axis=axis, remedy="use at least 1")


def tile_multiples(term: Term, dtype: str | None = None) -> Reasons:
    """What tiles are multiples of on a machine with matrix instructions: 16 rows, columns and summed
    elements of a contraction (32 summed ones of 8 bits or less), and rows of 128 bytes of what is loaded.

    Source: arXiv 2412.03317, section 5 (divisors of axes); NVIDIA's shapes of mma and wgmma.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c")
    >>> tile_multiples(tiled)["a"]
    ((16, 'matrix instructions'),)
    """
    found: dict[str, dict[tuple[int, str], None]] = {}
    labelled = {label.axis for label in term.labels}
    for axis, number, why in [*_instructions(term, dtype), *_rows(term, dtype)]:
        if axis in labelled:
            found.setdefault(axis, {})[number, why] = None
    return {axis: tuple(several) for axis, several in found.items()}


def _instructions(term: Term, dtype: str | None) -> Iterator[tuple[str, int, str]]:
    """Of the axes that occur in the same operands the last one counts; what all carry is a batch."""
    for box in term.flat:
        wires = [term.wires[wire] for wire in box.inputs]
        sides = [names(wire.axes) for wire in wires] + [names(box.axes)]
        last = {tuple(axis in side for side in sides): axis for side in sides for axis in side}
        if isinstance(box, Contract) and len(wires) > 1 and any(not made for *_, made in last):
            narrow = max(FORMATS[dtype or wire.dtype] for wire in wires) <= 8
            for (*_, made), axis in ((key, axis) for key, axis in last.items() if not all(key)):
                wide = narrow and not made
                yield axis, 32 if wide else 16, f"matrix instructions{' of 8 bits' if wide else ''}"


def _rows(term: Term, dtype: str | None) -> Iterator[tuple[str, int, str]]:
    for kernel in kernels(term):
        for wire in (term.wires[name] for name in kernel.region.loads):
            if wire.axes:
                number = ROW * 8 // FORMATS[dtype or wire.dtype]
                yield wire.axes[-1].name, number, f"rows of {ROW} bytes of {wire.name}"


def _with_labels(term: Term, asked: Reasons) -> Reasons:
    found = {axis: tuple(several) for axis, several in asked.items()}
    for label in term.labels:
        if label.multiple > 1:
            found[label.axis] = (*found.get(label.axis, ()), (label.multiple, "the label"))
    return found


def _choices(search: _Search, label: Label, step: int, divisors: bool) -> list[int]:
    """The legal tiles of an axis, smallest first: multiples of `step`, or the whole axis."""
    whole, blocks = max(search.term.numbers(search.sizes)[label.axis], 1), search.blocks.get(label.axis, ())
    widest = int(max(step, min(whole, 2 * search.limit)))  # every row holds a number, of half a byte or more
    if divisors:
        every: Iterable[int] = (int(tile) for tile in sympy.divisors(whole) if tile % step == 0)
    elif label.kind == "stream":
        every = _doubled(lcm(step, *blocks), widest) if search.priced else range(step, lcm(step, *blocks) + 1, step)
    elif label.axis in search.masked:
        every = range(step, widest + 1, step)
    else:
        every = _one_by_count(whole, step, widest, blocks)
    legal = sorted({whole, *(tile for tile in every if tile < whole and not _cuts(tile, blocks))})
    if label.kind == "stream" and not search.priced:
        return legal[:1]  # larger chunks are unions of smaller ones: they hold more and skip less
    return legal


def _doubled(step: int, widest: int) -> Iterator[int]:
    """The step, twice that, and so on."""
    while step <= widest:
        yield step
        step *= 2


def _one_by_count(whole: int, step: int, widest: int, blocks: Iterable[int]) -> Iterator[int]:
    """For each number of tiles along an axis only the smallest tile, and all up to the largest block."""
    yield from range(step, max(blocks, default=0) + 1, step)
    tile = step = lcm(step, *blocks)
    while tile <= widest:
        yield tile
        count = -(-whole // tile)
        tile = -(-whole // (count - 1) // step) * step if count > 1 else widest + 1


def _cuts(tile: int, blocks: Iterable[int]) -> bool:
    """Whether a tile holds a part of a block that has one value, and more than that."""
    return any(tile % block and block % tile for block in blocks)


def _blocks(term: Term) -> dict[str, set[int]]:
    """The widths of the blocks by axis that kernels read one value for."""
    found: dict[str, set[int]] = {}
    for wire in (one for region in term.regions for one in region.loads if one in term.aliases):
        for run in term.aliases[wire].runs:
            found.setdefault(run.axes[0], set()).add(run.block)
    return found


class _Search:
    """What tiles are tried against: exact transfers and memory as functions of whole numbers."""

    def __init__(
        self, term: Term, memory: float, unit: str, dtype: str | None, sizes: Mapping[str, int], price: Price | None
    ) -> None:
        self.price, self.priced = price or self.moved, price is not None
        self.term, self.limit, self.unit, self.dtype, self.sizes = term, memory, unit, dtype, sizes
        self.labels = [one for one in term.labels if one.tile.is_Symbol and one.tile.name not in sizes]
        moved, held = transfers(term), memory_of(term)
        moved, held = (moved.bytes(dtype), held.bytes(dtype)) if unit == "bytes" else (moved, held)
        self.transfers, self.relaxed = moved.total(), moved.relaxed().total()
        self.blocks = _blocks(term)
        self.columns = undominated(held.columns().values())
        self.masked = {axis for kernel in kernels(term) for axis in loop_mask(kernel).axes}
        counted = [self.transfers, *(work(term).by_unit().values() if self.priced else ())]
        self.idle = {one.tile.name for one in self.labels if not any(one.tile in a.free_symbols for a in counted)}
        self.least, self.cores = [1] * len(self.cuts), 1

    @cached_property
    def cuts(self) -> list[list[tuple[int, Any]]]:
        """By kernel, the length and the tile of every axis that it is grouped along."""
        whole = self.term.numbers(self.sizes)
        return [[(whole[axis], tile) for axis, tile in one.grouped.items()] for one in kernels(self.term)]

    def moved(self, at: Mapping[str, int]) -> Any:
        """What moves at these sizes and tiles, exactly."""
        return _value(self.transfers, at)

    def spread(self, choices: Mapping[str, list[int]], groups: int) -> None:
        """From now on every kernel needs so many groups, or as many as it can have."""
        self.cores = groups
        self.least = [min(groups, most) for most in self.groups({name: every[0] for name, every in choices.items()})]

    def share(self, tiles: Mapping[str, int]) -> Fraction:
        """What the busiest core does, over what each would do were all as busy."""
        return max(
            (Fraction(-(-many // self.cores) * self.cores, many) for many in self.groups(tiles)), default=Fraction(1)
        )

    def groups(self, tiles: Mapping[str, int]) -> list[int]:
        """How many groups each kernel has."""
        at = {**self.sizes, **tiles}
        return [prod(-(-whole // _value(tile, at)) for whole, tile in cuts) for cuts in self.cuts]

    def suits(self, tiles: Mapping[str, int]) -> bool:
        """Whether these tiles fit and leave enough groups."""
        enough = all(many >= least for many, least in zip(self.groups(tiles), self.least, strict=True))
        return enough and bool(self.held(tiles) <= self.limit)

    def held(self, tiles: Mapping[str, int]) -> Any:
        """What is held at once with these tiles."""
        return max((_value(column, {**self.sizes, **tiles}) for column in self.columns), default=0)

    def best(self, choices: Mapping[str, list[int]]) -> dict[str, int]:
        """The tiles of the least price for the busiest core; of these the best in shape, then those that hold least."""
        settled = {name: every[0] for name, every in choices.items() if name in self.idle}
        order = sorted((name for name in choices if name not in settled), key=lambda name: len(choices[name]))
        found = min(self._tried(choices, order, settled), default=None)
        if found is None:
            least = self.held({name: every[0] for name, every in choices.items()})
            raise NoTileError(
                f"the smallest legal tiles hold {tidy(least):,} {self.unit}, and the memory is {self.limit:,}",
                remedy="give more memory, smaller multiples, or more axes to group or stream",
            )
        return dict(zip([*settled, *order], found[-1], strict=True))

    def _tried(
        self, choices: Mapping[str, list[int]], order: Sequence[str], settled: dict[str, int]
    ) -> Iterator[tuple[Any, Any, Any, tuple[int, ...]]]:
        """Every combination that may be best: price, transfers without ceilings, memory, tiles."""
        if not order:
            if self.suits(settled):
                at = {**self.sizes, **settled}
                yield (
                    self.price(at) * self.share(settled),
                    _value(self.relaxed, at),
                    self.held(settled),
                    tuple(settled.values()),
                )
            return
        name, *rest = order
        fitting = self._fitting(choices, order, settled)
        for tile in fitting[-1:] if not rest and not self.masked and self.cores == 1 else fitting:
            yield from self._tried(choices, rest, {**settled, name: tile})

    def _fitting(self, choices: Mapping[str, list[int]], order: Sequence[str], settled: dict[str, int]) -> list[int]:
        """The tiles of the next axis that suit when all later ones are as small as can be; memory grows and groups
        become fewer with each tile, so halving finds where they end."""
        name, *rest = order
        smallest = {later: choices[later][0] for later in rest}
        low, high = 0, len(choices[name])
        while low < high:
            middle = (low + high) // 2
            suits = self.suits({**settled, **smallest, name: choices[name][middle]})
            low, high = (middle + 1, high) if suits else (low, middle)
        return choices[name][:low]


def _value(expr: Any, sizes: Mapping[str, Any]) -> Any:
    symbols, function = compiled(expr)
    return function(*(sizes[symbol.name] for symbol in symbols))


def _result(search: _Search, tiles: dict[str, int], reasons: Reasons) -> LegalTile:
    at = {**search.sizes, **tiles}
    moved, smooth = evaluate(search.transfers, at), evaluate(search.relaxed, at)
    bound = _bound(search)
    loss = None if bound is None else as_float(smooth, "moved") / bound - 1
    return LegalTile(
        {label.tile.name: tiles[label.tile.name] for label in search.labels}, tidy(search.held(tiles)), moved, bound,
        loss, moved / smooth - 1, reasons, search.unit,
    )  # fmt: skip


def _bound(search: _Search) -> float | None:
    """H*(M) with chunks that take no memory, where the sums have the shape for it."""
    try:
        found = optimum(search.term, search.limit, napkin=False, unit=search.unit, dtype=search.dtype, **search.sizes)
    except DiagkitError:
        return None
    return as_float(found.transfers, "moved")
