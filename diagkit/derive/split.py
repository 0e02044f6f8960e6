"""Splitting a streamed axis into parts that run side by side: partial states, then their merge.

The merge of a stream says how two partial states make one. So the axis may be cut into parts, each part
folded on its own by a first kernel, and the partial states merged by a second (split-K, split-KV).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import Any

import sympy

from diagkit.derive.fuse import refuse_stores
from diagkit.derive.history import AnyTerm, rewrite, take
from diagkit.derive.lean import Lean, lean
from diagkit.derive.stream import first_form
from diagkit.term import (
    Axes,
    Axis,
    AxisError,
    Box,
    Contract,
    Index,
    Map,
    Reduce,
    State,
    StreamError,
    StreamForm,
    Term,
    View,
    arg,
    coordinate,
    names,
    quotient,
    where,
)

_NEUTRAL = {"sum": sympy.S.Zero, "max": -sympy.oo, "min": sympy.oo, "product": sympy.S.One}


def _named_region(term: Term, box: str | None) -> set[str]:
    """The boxes of the region that has `box`, or all boxes."""
    if box is None:
        return {one.name for one in term.boxes}
    return next(({*one.boxes} for one in term.regions if term.box(box).name in one.boxes), set())


def split(term: AnyTerm, /, *, region: str | None = None, **parts: int) -> AnyTerm:
    """Cut a streamed axis into independent parts: ``split(x=4)``. Two kernels come of one region.

    The first has the axes ``x_part`` (`parts` of them) and ``x_in`` (ceil(x / parts) positions each) in
    place of x, and makes one partial state per part; the second merges them and finishes. Both may be
    grouped and streamed again. A maximum and a sum of exponentials are stored as one logarithm where nobody
    can tell (see `derive.lean`). The arrays are read in parts where they lie: nothing is copied. The last
    part is short where the parts do not divide x: what lies beyond the end is masked with 0, or with what a
    maximum, minimum or product makes of nothing.

    Raises StreamError where the region cannot be streamed along the axis, or stores a wire that carries
    it; AxisError for an unknown axis or an axis name that is taken.

    >>> from diagkit import ops
    >>> q, x, e = ops.axes("q x e")
    >>> C = ops.einsum("q x, x e -> q e", ops.array("A", q, x), ops.array("B", x, e), name="C")
    >>> [box.name for box in split(Term(*ops.trace([C])), x=4).boxes]
    ['A.parts', 'B.parts', 'C.part', 'C']
    """
    if len(parts) != 1:
        axes = ", ".join(parts) or "none"
        raise StreamError(f"split takes one axis at a time, not {axes}", remedy="write for example split(x=4)")
    ((axis, count),) = parts.items()
    cut = _cut(term, axis, count)
    near = _named_region(term, region)
    derived = next((form for form in term.forms if form.axis == axis and near & {*form.region}), None)
    form = derived or first_form(term, axis, region)
    _refuse_views(term, form)
    columns = _Columns(term, form, cut)
    columns.partials()
    columns.combine()
    reason = f"{count} parts of {axis} are folded on their own; their states merge"
    given = parts if region is None else {"region": region, **parts}
    made = take(term, columns.changes(), rewrite(term, "split", reason, named=given, identity=form.identity))
    refuse_stores(made)
    return made


@dataclass(frozen=True)
class Cut:
    """An axis, and the two that take its place: position = width * part + within."""

    axis: Axis
    part: Axis
    within: Axis

    @property
    def place(self) -> Any:
        """The coordinate along the axis of a position within a part."""
        return self.within.size * coordinate(self.part.name) + coordinate(self.within.name)

    @property
    def exact(self) -> bool:
        """Whether the parts are sure to cover the axis exactly."""
        return self.axis.length is not None and self.part.size * self.within.size == self.axis.length


def _cut(term: Term, axis: str, count: Any) -> Cut:
    owner = term.axis(axis)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise StreamError(f"axis {axis!r} cannot have {count!r} parts", axis=axis, remedy="use a whole number >= 1")
    made = Cut(owner, Axis(f"{axis}_part", count), owner.blocks(count, f"{axis}_in"))
    taken = [one.name for one in (made.part, made.within) if one.name in term.axes]
    if taken:
        reason = f"{term.name} has an axis {taken[0]!r} already"
        raise AxisError(reason, axis=taken[0], remedy="rename it, or split once")
    return made


def _refuse_views(term: Term, form: StreamForm) -> None:
    for box in form.step:
        if isinstance(box, View):
            raise StreamError(
                f"{box.name!r} reads {form.axis} through a view", axis=form.axis, box=box.name,
                remedy=f"leave {box.name!r} outside the region",
            )  # fmt: skip
    region = next(region for region in term.regions if region.boxes == form.region)
    for wire in region.stores:
        if form.axis in names(term.wires[wire].axes):
            raise StreamError(
                f"{wire!r} carries {form.axis} and is stored by the region", axis=form.axis, box=wire,
                remedy=f"make {wire!r} in a kernel of its own",
            )  # fmt: skip


@dataclass
class _Columns:
    """The columns of both kernels, as they are written."""

    term: Term
    form: StreamForm
    cut: Cut
    boxes: list[Box] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    axes: dict[str, Axes] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)
    partial: dict[str, str] = field(default_factory=dict)
    masks: dict[tuple[str, Any], str] = field(default_factory=dict)
    ones: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.axes = {name: wire.axes for name, wire in self.term.wires.items()}
        self.states: dict[str, State] = {state.name: state for state in self.form.state}

    def add(self, box: Box, level: int = 1) -> str:
        """Write a column whose wire lives at `level`."""
        self.boxes.append(box)
        self.axes[box.name], self.levels[box.name] = box.axes, level
        return box.name

    def fresh(self, name: str) -> str:
        """A wire name that nobody has."""
        while name in self.axes:
            name += "'"
        return name

    def partials(self) -> None:
        """The first kernel: the step, begun at the start and taken once, on all of a part."""
        for box in self.form.fixed:
            self.add(box)
        starts = {state.name: state.start for state in self.form.state}
        for box in _specialised(self.form.step, starts, self.called):
            self._part(box)
        made = {state.name: self.called.get(state.new, state.new) for state in self.form.state}
        found = lean(self.form, self._stores())
        self.partial = {name: self._stored(wire) for name, wire in made.items()} if found is None else {}
        if found is not None:
            self._one_less(found, made)

    def _stores(self) -> tuple[str, ...]:
        return next(one.stores for one in self.term.regions if one.boxes == self.form.region)

    def _one_less(self, found: Lean, made: dict[str, str]) -> None:
        """The partial states with one sum as 1: the maximum takes its logarithm, the others are divided by it."""
        top, below = made[found.top.name], made[found.sum.name]
        log = Map(self.fresh(f"{below}.log"), self.axes[top], (top, below), arg(0) + sympy.log(arg(1)))
        self.partial[found.top.name] = self.add(log, level=0)
        self.ones = {f"{found.sum.name}.left": sympy.S.One}
        for wire in (made[state.name] for state in found.rest):
            mean = Map(self.fresh(f"{wire}.mean"), self.axes[wire], (wire, below), quotient(arg(0), arg(1)))
            self.partial[next(name for name, one in made.items() if one == wire)] = self.add(mean, level=0)

    def _part(self, box: Box) -> None:
        if isinstance(box, Index) and names(box.axes) == (self.cut.axis.name,):
            self._position(box.name)
            return
        inputs = tuple(map(self._view, box.inputs))
        axes = self._parted(box, inputs)
        changed: dict[str, Any] = {"inputs": self._masked(box, inputs), "axes": axes}
        if isinstance(box, Reduce):
            swapped = (self.cut.within.name if name == self.cut.axis.name else name for name in box.over)
            changed["over"] = tuple(swapped)
        self.add(replace(box, **changed))

    def _parted(self, box: Box, inputs: tuple[str, ...]) -> Axes:
        """The axes of a box whose inputs are cut into parts."""
        swapped = [one for axis in box.axes for one in self._swap(axis)]
        if any(self.cut.part in self.axes[wire] for wire in inputs) and self.cut.part not in swapped:
            swapped.append(self.cut.part)
        return tuple(swapped)

    def _swap(self, axis: Axis) -> Axes:
        return (self.cut.part, self.cut.within) if axis == self.cut.axis else (axis,)

    def _position(self, name: str) -> str:
        """The position along the whole axis, from the part and the place within it."""
        part, within = self.cut.part, self.cut.within
        wires = [self._index(one) for one in (part, within)]
        return self.add(Map(name, (part, within), tuple(wires), within.size * arg(0) + arg(1)))

    def _index(self, axis: Axis) -> str:
        name = f"#{axis.name}"
        return name if name in self.axes else self.add(Index(name, (axis,), ()))

    def _view(self, wire: str) -> str:
        """A loaded array in parts: the same elements, 0 beyond the end."""
        axes = self.axes[wire]
        if self.cut.axis not in axes:
            return wire
        made = f"{wire}.parts"
        if made not in self.axes:
            over = tuple(one for axis in axes for one in self._swap(axis))
            places = tuple(self.cut.place if axis == self.cut.axis else coordinate(axis.name) for axis in axes)
            self.add(View(made, over, (wire,), places), level=0)
        return made

    def _masked(self, box: Any, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """The inputs of a reduction over a part, those beyond the end of the axis neutral."""
        reduces = any(self.cut.within in self.axes[wire] for wire in inputs) and self.cut.axis not in box.axes
        plain = isinstance(box, Contract) and all(wire.endswith(".parts") for wire in inputs)
        if not reduces or plain or self.cut.exact:
            return inputs
        neutral = _NEUTRAL[box.op if isinstance(box, Reduce) else "sum"]
        at = next(place for place, wire in enumerate(inputs) if self.cut.within in self.axes[wire])
        return (*inputs[:at], self._inside(inputs[at], neutral), *inputs[at + 1 :])

    def _inside(self, wire: str, neutral: Any) -> str:
        """The wire with a neutral number beyond the end of the axis."""
        if (wire, neutral) not in self.masks:
            axes = self.axes[wire] + tuple(a for a in (self.cut.part, self.cut.within) if a not in self.axes[wire])
            expr = where(arg(0), arg(1), neutral)
            name = self.fresh(f"{wire}.inside")
            self.masks[wire, neutral] = self.add(Map(name, axes, (self._valid(), wire), expr))
        return self.masks[wire, neutral]

    def _valid(self) -> str:
        """Whether a place within a part lies on the axis at all."""
        name = f"{self.cut.axis.name}.valid"
        if name not in self.axes:
            place = self._position(f"{self.cut.axis.name}.place")
            self.add(Map(name, (self.cut.part, self.cut.within), (place,), sympy.Lt(arg(0), self.cut.axis.size)))
        return name

    def _stored(self, wire: str) -> str:
        """The partial state for the second kernel: a copy where the first reads it too."""
        if any(wire in box.inputs for box in self.boxes):
            return self.add(Map(self.fresh(f"{wire}.stored"), self.axes[wire], (wire,), arg(0)), level=0)
        self.levels[wire] = 0
        return wire

    def combine(self) -> None:
        """The second kernel: every partial state carried to the merged one, reduced over the parts."""
        starts = {f"{state.name}.right": state.start for state in self.form.state}
        called = {f"{name}.left": wire for name, wire in self.partial.items()}
        merged = {f"{state.name}.merged": state.name for state in self.form.state}
        for box in _specialised(self.form.merge, {**starts, **self.ones}, {}):
            inputs = tuple(merged.get(wire, called.get(wire, wire)) for wire in box.inputs)
            made = replace(box, inputs=inputs, axes=self._parted(box, inputs))
            if box.name in merged:
                self._merged(made, self.states[merged[box.name]])
            else:
                self.add(made)
        for box in self.form.tail:
            self.add(box)

    def _merged(self, carried: Any, state: State) -> None:
        op = next(op for op, start in _NEUTRAL.items() if start == state.start)
        alone = carried.expr == arg(0)
        source = carried.inputs[0] if alone else self.add(replace(carried, name=f"{state.name}.carried"))
        self.add(Reduce(state.name, state.axes, (source,), op, (self.cut.part.name,)))

    def changes(self) -> dict[str, Any]:
        """What changes in the diagram."""
        gone = set(self.form.region)
        kept = [box for box in self.term.boxes if box.name not in gone or self._read_elsewhere(box, gone)]
        have = {box.name for box in kept}
        wanted = _needed([box for box in self.boxes if box.name not in have], kept, self.term.outputs)
        columns = _ordered([*kept, *wanted])
        forms = tuple(form for form in self.term.forms if form is not self.form and form != self.form)
        streamed = {form.axis for form in forms}
        labels = tuple(label for label in self.term.labels if label.kind != "stream" or label.axis in streamed)
        made = Term(self.term.inputs, columns, self.term.outputs)
        levels = {w: n for w, n in self.term.levels if w in have} | self._chosen(made)
        return {"boxes": columns, "levels": tuple(levels.items()), "labels": labels, "forms": forms}

    def _read_elsewhere(self, box: Box, gone: set[str]) -> bool:
        outside = (other for other in self.term.boxes if other.name not in gone)
        return self.term.wires[box.name].virtual and any(box.name in other.inputs for other in outside)

    def _chosen(self, made: Term) -> dict[str, int]:
        """The levels of the new wires that somebody reads."""
        read = {wire for box in made.boxes for wire in box.inputs}
        new = {box.name for box in self.boxes} & set(made.wires) & read
        return {wire: self.levels[wire] for wire in new if self.levels[wire] and not made.wires[wire].virtual}


def _specialised(boxes: Iterable[Box], constants: dict[str, Any], called: dict[str, str]) -> list[Box]:
    """`boxes` where some wires are constants; maps that become a wire are left out and `called` that wire."""
    made: list[Box] = []
    for box in boxes:
        inputs = tuple(called.get(wire, wire) for wire in box.inputs)
        numbers = {arg(place): constants[wire] for place, wire in enumerate(inputs) if wire in constants}
        one = replace(box, inputs=inputs)
        if isinstance(one, Map) and numbers:
            one = _with_numbers(one, numbers)
            if one.expr == arg(0) and not one.name.endswith(".merged"):
                called[one.name] = one.inputs[0]
                continue
        made.append(one)
    return _needed(made, (), [*called.values(), *(box.name for box in made if box.name.endswith((".new", ".merged")))])


def _with_numbers(box: Map, numbers: dict[Any, Any]) -> Map:
    """A map where some arguments are numbers: what they annihilate is gone, and so are they."""
    expr = box.expr.xreplace(numbers)
    used = [place for place in range(len(box.inputs)) if arg(place) in expr.free_symbols]
    moved = {arg(place): arg(new) for new, place in enumerate(used)}
    return replace(box, inputs=tuple(box.inputs[place] for place in used), expr=expr.xreplace(moved))


def _needed(boxes: list[Box], readers: Iterable[Box], outputs: Iterable[str]) -> list[Box]:
    """Those of `boxes` that `readers` or `outputs` need, or each other."""
    read = {wire for box in readers for wire in box.inputs} | set(outputs)
    kept: list[Box] = []
    for box in reversed(boxes):
        if box.name in read:
            kept.append(box)
            read |= set(box.inputs)
    return kept[::-1]


def _ordered(boxes: list[Box]) -> tuple[Box, ...]:
    """`boxes` so that each comes after those it reads."""
    by_name = {box.name: box for box in boxes}
    graph = {box.name: [wire for wire in box.inputs if wire in by_name] for box in boxes}
    return tuple(by_name[name] for name in TopologicalSorter(graph).static_order())
