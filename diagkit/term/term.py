"""The value: inputs, an ordered tuple of boxes, outputs and labels. Immutable; equal text is an equal value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self

from diagkit.term.alias import Alias, find_aliases
from diagkit.term.boxes import Array, Axes, Axis, Block, Box, names
from diagkit.term.check import check_term, wire_format
from diagkit.term.errors import AxisError, TermError
from diagkit.term.labels import Label, Step, StreamForm
from diagkit.term.symbols import Size, exact, size


@dataclass(frozen=True)
class Wire:
    """A wire: its name, axes and number format. A `virtual` wire depends on positions only: it is made
    again wherever it is read, and never stored or moved.

    >>> import diagkit as dk
    >>> dk.Diagram(dk.exp(dk.array("X", dk.axis("x"), dtype="fp16"), name="E")).wires["E"]
    Wire(name='E', axes=(Axis('x'),), dtype='fp16', virtual=False)
    """

    name: str
    axes: Axes
    dtype: str
    virtual: bool = False


@dataclass(frozen=True)
class Region:
    """What runs as one kernel: boxes joined by wires that stay in fast memory.

    `boxes` are names of boxes, in order; `loads` the wires it reads from slow memory (in order of first
    use; aliases under their own names), `stores` those it writes there, `inner` those that live and die on
    chip.

    >>> import diagkit as dk
    >>> dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E")).regions
    (Region(boxes=('E',), loads=('X',), stores=('E',), inner=()),)
    """

    boxes: tuple[str, ...]
    loads: tuple[str, ...]
    stores: tuple[str, ...]
    inner: tuple[str, ...]


@dataclass(frozen=True)
class Term:
    """A diagram as plain data.

    * `inputs`: arrays; `boxes`: the columns, left to right; `outputs`: names of wires.
    * `levels`: (wire, level) for the intermediates that live in fast memory (level 1 and up), and level 0
      for those that stay in slow memory whatever is fused.
    * `labels`: partitions of axes; `forms`: the derived streams, one per streamed region.
    * `steps`: the derivation that led here; not part of the value.

    >>> from diagkit.term.boxes import Reduce
    >>> x = Axis("x")
    >>> sums = Term((Array("X", (x,)),), (Reduce("s", (), ("X",), "sum", ("x",)),), ("s",), "sums")
    >>> sums.regions
    (Region(boxes=('s',), loads=('X',), stores=('s',), inner=()),)

    >>> import diagkit as dk
    >>> q, d = dk.axes("q d", d=8)
    >>> total = dk.total(dk.exp(dk.array("Q", q, d), name="E"), over=d, name="T")
    >>> made = dk.Diagram(total, name="sums").fuse().group(q="g_q").stream(d="s_d")
    >>> made.open_sizes, made.axes["d"], made.axis("q"), made.box("E").kind, [box.name for box in made.consumers("E")]
    (('q',), Axis('d', 8), Axis('q'), 'map', ['T'])
    >>> made.level("E"), made.label("group", "q"), made.kept, made.array("Q"), made.wires["T"].dtype
    (1, Label('group', 'q', size('g_q')), frozenset(), 'Q', 'fp32')
    >>> (region,) = made.regions
    >>> [box.name for box in made.primitives(region)], made.form(region).method, list(made.grouped(region))
    (['E', 'T'], 'plain', ['q'])
    >>> made.merges(region, "q"), [box.name for box in made.flat], made.erase().labels, made.replace(name="rows").name
    (False, ['E', 'T'], (), 'rows')
    """

    inputs: tuple[Array, ...]
    boxes: tuple[Box, ...]
    outputs: tuple[str, ...]
    name: str = "diagram"
    levels: tuple[tuple[str, int], ...] = ()
    labels: tuple[Label, ...] = ()
    forms: tuple[StreamForm, ...] = ()
    steps: tuple[Step, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(sorted(self.levels)))
        object.__setattr__(self, "labels", tuple(sorted(self.labels, key=lambda label: label.order)))
        check_term(self)

    def __repr__(self) -> str:
        parts = [f"inputs={self.inputs!r}", f"boxes={self.boxes!r}", f"outputs={self.outputs!r}"]
        parts.append(f"name={self.name!r}")
        parts += [f"{n}={getattr(self, n)!r}" for n in ("levels", "labels", "forms") if getattr(self, n)]
        return f"{type(self).__name__}({', '.join(parts)})"

    def replace(self, **changes: Any) -> Self:
        """The value with some fields changed; itself when nothing changes."""
        same = all(getattr(self, name) == new for name, new in changes.items())
        return self if same else replace(self, **changes)

    def erase(self) -> Self:
        """The value without labels, levels and streams: the identical columns."""
        return self.replace(levels=(), labels=(), forms=())

    def fold(self, cases: Mapping[type[Box], Callable[..., Any]], start: Mapping[str, Any]) -> dict[str, Any]:
        """The meaning of every wire: `start` for the inputs, then one case per kind of box, called as
        case(box, *meanings of its inputs). A block without a case of its own is folded through its body.

        >>> row = Term((Array("X", (Axis("x"),)),), (), ("X",))
        >>> row.fold({}, {"X": 1})
        {'X': 1}
        """
        meaning = dict(start)
        for box in self.boxes if Block in cases else self.flat:
            meaning[box.name] = cases[type(box)](box, *(meaning[wire] for wire in box.inputs))
        return meaning

    @cached_property
    def flat(self) -> tuple[Box, ...]:
        """The boxes with every block opened: primitives only."""
        return flatten(self.boxes)

    @cached_property
    def wires(self) -> dict[str, Wire]:
        """Every wire by name, those inside blocks too."""
        found = {array.name: Wire(array.name, array.axes, array.dtype) for array in self.inputs}
        for box in self.flat:
            sources = [found[wire] for wire in box.inputs]
            virtual = all(wire.virtual for wire in sources)
            found[box.name] = Wire(box.name, box.axes, wire_format(box, [w.dtype for w in sources]), virtual)
        return found

    @cached_property
    def aliases(self) -> dict[str, Alias]:
        """Views of arrays in slow memory, by wire: no kernel makes them, who reads one loads from the array.

        >>> from diagkit.term.boxes import Reduce, View
        >>> from diagkit.term.symbols import coordinate
        >>> x, y = Axis("x"), Axis("y", 3)
        >>> first = View("first", (y,), ("X",), (coordinate("y"),))
        >>> sums = Term((Array("X", (Axis("x", 5),)),), (first, Reduce("s", (), ("first",), "sum", ("y",))), ("s",))
        >>> sums.aliases["first"].array, sums.regions
        ('X', (Region(boxes=('s',), loads=('first',), stores=('s',), inner=()),))
        """
        return find_aliases(self)

    def array(self, wire: str) -> str:
        """The array that moves where `wire` is loaded: itself, unless it is an alias."""
        return self.aliases[wire].array if wire in self.aliases else wire

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """Every axis of the diagram by name, in order of appearance."""
        return {axis.name: axis for wire in self.wires.values() for axis in wire.axes}

    def numbers(self, given: Mapping[str, int]) -> dict[str, int]:
        """The size of every axis that has a number, in elements: its own, the one `given`, or derived; and what is
        `given` of sizes that only formulas name.

        >>> x = Axis("x")
        >>> Term((Array("X", (x,)), Array("scale", (x.blocks(64),))), (), ("X",)).numbers({"x": 100})
        {'x': 100, 'x_block': 2}
        """
        known = {name: number for name, number in given.items() if not (name in self.axes and self.axes[name].derived)}
        known |= {name: axis.length for name, axis in self.axes.items() if isinstance(axis.length, int)}
        values = {size(name): exact(number) for name, number in known.items()}
        found = {name: axis.size.xreplace(values) for name, axis in self.axes.items()}
        beside = {name: given[name] for name in self.open_sizes if name in given and name not in self.axes}
        return {name: int(number) for name, number in found.items() if number.is_Integer} | beside

    @cached_property
    def open_sizes(self) -> tuple[str, ...]:
        """The sizes that must be given: axes without a length, then what formulas (of sizes too) name beside them."""
        free = [name for name, axis in self.axes.items() if axis.length is None]
        formulas = [formula for box in self.flat for formula in box.formulas]
        named = {one.name for axis in self.axes.values() if axis.derived for one in axis.size.free_symbols}
        named |= {one.name for formula in formulas for one in formula.free_symbols if isinstance(one, Size)}
        return (*free, *sorted(named - set(self.axes)))

    def axis(self, name: str) -> Axis:
        """The axis of that name; an AxisError that lists the others where there is none."""
        if not isinstance(name, str) or name not in self.axes:
            known = ", ".join(self.axes) or "none"
            raise AxisError(f"{self.name} has no axis {name!r}", axis=name, remedy=f"its axes are: {known}")
        return self.axes[name]

    def box(self, name: str) -> Box:
        """The column that makes the wire `name`; a TermError that lists the others where there is none."""
        if not isinstance(name, str) or name not in self._columns:
            known = ", ".join(self._columns) or "none"
            raise TermError(f"{self.name} has no box {name!r}", box=name, remedy=f"its boxes are: {known}")
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, Box]:
        return {box.name: box for box in self.boxes}

    def level(self, wire: str) -> int:
        """The memory level of an intermediate between its boxes: 0 is global memory."""
        return dict(self.levels).get(wire, 0)

    @cached_property
    def kept(self) -> frozenset[str]:
        """The intermediates that stay in slow memory whatever is fused: what kernels of their own prepare."""
        return frozenset(wire for wire, level in self.levels if level == 0)

    def consumers(self, wire: str) -> tuple[Box, ...]:
        """The columns that read `wire`, left to right."""
        return tuple(box for box in self.boxes if wire in box.inputs)

    def label(self, kind: str, axis: str, level: int = 1) -> Label | None:
        """The label of that kind on that axis, or None."""
        wanted = (level, kind, axis)
        return next((label for label in self.labels if label.order == wanted), None)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """What runs as one kernel each, in an order that respects who reads what."""
        return find_regions(self)

    def primitives(self, region: Region) -> tuple[Box, ...]:
        """The primitives that a region runs, blocks opened, in order."""
        return flatten(self.box(name) for name in region.boxes)

    def merges(self, region: Region, axis: str) -> bool:
        """Whether a kernel only brings together what others have stored along `axis`: it reads the axis off
        their wires alone and stores nothing along it. It holds such an axis whole, however others group it."""
        loads = [wire for wire in region.loads if axis in names(self.wires[wire].axes)]
        arrays = [self.array(wire) for wire in loads]
        others = all(axis in names(self.wires[array].axes) and array in self._columns for array in arrays)
        return bool(loads) and others and not any(axis in names(self.wires[w].axes) for w in region.stores)

    def grouped(self, region: Region) -> dict[str, Label]:
        """The group labels of level 1 that cut a kernel, by axis: those on axes that its wires carry (wires of
        positions do not count), but for axes that it `merges`."""
        wires = [*region.loads, *(box.name for box in self.primitives(region))]
        carried = {axis.name for wire in wires if not self.wires[wire].virtual for axis in self.wires[wire].axes}
        labels = (label for label in self.labels if (label.kind, label.level) == ("group", 1))
        return {one.axis: one for one in labels if one.axis in carried and not self.merges(region, one.axis)}

    def form(self, region: Region) -> StreamForm | None:
        """The stream of that region, or None."""
        return next((form for form in self.forms if form.region == region.boxes), None)


def flatten(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """`boxes` with every block replaced by its body, throughout.

    >>> import diagkit as dk
    >>> norm = dk.softmax(dk.array("S", dk.axis("x")), over="x", name="P")
    >>> [box.name for box in flatten(dk.Diagram(norm).boxes)]
    ['P.max', 'P.exp', 'P.sum', 'P']
    """
    flat: list[Box] = []
    for box in boxes:
        flat += flatten(box.body) if isinstance(box, Block) else (box,)
    return tuple(flat)


def find_regions(term: Term) -> tuple[Region, ...]:
    """Join boxes over wires of level 1 and up; a box of positions only runs where it is read, an alias never."""
    made = (box.name for box in term.boxes if not _virtual(term, box.name) and box.name not in term.aliases)
    root = {name: name for name in made}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for wire, level in term.levels:
        for reader in term.consumers(wire) if level and wire in root else ():
            root[find(reader.name)] = find(wire)
    members: dict[str, list[str]] = {}
    for box in term.boxes:
        if box.name in root:
            members.setdefault(find(box.name), []).append(box.name)
    regions = [_region(term, group) for group in members.values()]
    regions = _in_order(term, regions)
    alone = [box.name for box in term.boxes if _virtual(term, box.name) and box.name in term.outputs]
    regions += [Region(_with_positions(term, [name]), (), (name,), ()) for name in alone]
    return tuple(regions)


def _in_order(term: Term, regions: list[Region]) -> list[Region]:
    """Each region after those whose stores it loads."""
    maker = {wire: number for number, region in enumerate(regions) for wire in region.stores}
    reads = {n: [maker[w] for w in map(term.array, region.loads) if w in maker] for n, region in enumerate(regions)}
    try:
        return [regions[number] for number in TopologicalSorter(reads).static_order()]
    except CycleError:
        raise TermError("regions that read each other cannot run as kernels", remedy="fuse what lies between") from None


def _virtual(term: Term, wire: str) -> bool:
    return term.wires[wire].virtual


def _with_positions(term: Term, group: list[str]) -> tuple[str, ...]:
    """The boxes of `group` and the boxes of positions they read, in the diagram's order."""
    wanted = set(group)
    for box in reversed(term.boxes):
        if box.name in wanted:
            wanted |= {wire for wire in box.inputs if _virtual(term, wire)}
    return tuple(box.name for box in term.boxes if box.name in wanted)


def _region(term: Term, group: list[str]) -> Region:
    boxes = _with_positions(term, group)
    made = set(boxes)
    reads = dict.fromkeys(wire for name in boxes for wire in term.box(name).inputs if wire not in made)
    outside = {wire for box in term.boxes if box.name not in made for wire in box.inputs} | set(term.outputs)
    stores = tuple(name for name in group if name in outside)
    inner = tuple(name for name in group if name not in outside)
    return Region(boxes, tuple(reads), stores, inner)
