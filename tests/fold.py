"""An executor for derived streams, for tests: plain, slow, in float64.

It folds a form over any split of the axis and merges partial states in any order. The boxes of a form are
primitives, so each section runs as a small diagram of its own.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from diagkit.ops import reference
from diagkit.term import Array, Axis, Index, Map, Reduce, StreamForm, Term, names, size


@dataclass(frozen=True)
class Fold:
    """A streamed region with its input arrays, ready to run on chunks of the axis."""

    term: Term
    form: StreamForm
    arrays: dict
    sizes: dict
    made: dict = field(default_factory=dict)

    def _axes(self, axes, length):
        sized = {**self.sizes, self.form.axis: length}
        return tuple(Axis(axis.name, sized[axis.name]) for axis in axes)

    def _section(self, *key):
        """The diagram of one section, for one length of the chunk; made once."""
        if key not in self.made:
            self.made[key] = self._write(*key)
        return self.made[key]

    def _write(self, section, length, given, wanted):
        whole = {size(name): n for name, n in self.sizes.items()}
        boxes = []
        for box in getattr(self.form, section):
            if box.name not in dict(given):
                changed = {"expr": box.expr.xreplace(whole)} if isinstance(box, Map) else {}
                boxes.append(replace(box, axes=self._axes(box.axes, length), **changed))
        read = {wire for box in boxes for wire in box.inputs} | set(wanted)
        inputs = tuple(Array(n, self._axes(axes, length), kind) for n, (axes, kind) in given if n in read)
        return Term(inputs, tuple(boxes), wanted)

    def run(self, section, length, values, axes, wanted):
        """The `wanted` wires of a section, from `values` by name."""
        kinds = {"f": "fp64", "i": "int64", "u": "int64", "b": "bool"}
        given = tuple((n, (axes[n], kinds[np.asarray(v).dtype.kind])) for n, v in values.items())
        term = self._section(section, length, given, tuple(wanted))
        made = reference(term, {array.name: values[array.name] for array in term.inputs})
        return {wanted[0]: made} if len(wanted) == 1 else made

    @property
    def axes(self):
        wires = {name: wire.axes for name, wire in self.term.wires.items()}
        for box in (*self.form.fixed, *self.form.step, *self.form.tail, *self.form.merge):
            wires[box.name] = box.axes
        for state in self.form.state:
            wires |= dict.fromkeys((state.name, f"{state.name}.left", f"{state.name}.right"), state.axes)
        return wires

    def fixed(self):
        """What is computed once before the loop, and the loads without the axis."""
        loads = {n: v for n, v in self.arrays.items() if self.form.axis not in names(self.axes[n])}
        wanted = tuple(box.name for box in self.form.fixed)
        return {**loads, **(self.run("fixed", 0, loads, self.axes, wanted) if wanted else {})}

    def start(self):
        """The state before the first chunk."""
        shapes = {s.name: tuple(self.sizes[axis.name] for axis in s.axes) for s in self.form.state}
        return {s.name: np.full(shapes[s.name], float(s.start)) for s in self.form.state}

    def step(self, state, first, last):
        """The state after the chunk [first, last)."""
        axis = self.form.axis
        chunk = {n: _slice(v, names(self.axes[n]), axis, first, last) for n, v in self.arrays.items()}
        places = {
            b.name: np.arange(first, last) for b in self.form.step if isinstance(b, Index) and names(b.axes) == (axis,)
        }
        values = {**self.fixed(), **chunk, **places, **state}
        wanted = tuple(s.new for s in self.form.state)
        made = self.run("step", last - first, values, self.axes, wanted)
        return {s.name: np.asarray(made[s.new], float) for s in self.form.state}

    def fold(self, cuts):
        """The state after all chunks between successive `cuts`."""
        state = self.start()
        for first, last in pairwise(cuts):
            state = self.step(state, first, last)
        return state

    def merge(self, left, right):
        """Two partial states as one."""
        values = self.fixed()
        for side, state in (("left", left), ("right", right)):
            values |= {f"{name}.{side}": value for name, value in state.items()}
        wanted = tuple(f"{s.name}.merged" for s in self.form.state)
        made = self.run("merge", 0, values, self.axes, wanted)
        return {s.name: np.asarray(made[f"{s.name}.merged"], float) for s in self.form.state}

    def finish(self, state):
        """The outputs of the region that do not carry the axis."""
        region = next(r for r in self.term.regions if r.boxes == self.form.region)
        wanted = tuple(w for w in region.stores if self.form.axis not in names(self.axes[w]))
        values = {**self.fixed(), **state}
        made = {w: values[w] for w in wanted if w in values}
        rest = tuple(w for w in wanted if w not in made)
        return made | (self.run("tail", 0, values, self.axes, rest) if rest else {})


def _slice(value, axes, axis, first, last):
    if axis not in axes:
        return value
    place = axes.index(axis)
    return value[(slice(None),) * place + (slice(first, last),)]


def sections(form):
    """Every box of a form, by section."""
    return {name: getattr(form, name) for name in ("fixed", "step", "tail", "merge")}


def is_sum(box):
    """Whether a box is a sum over its axes."""
    return isinstance(box, Reduce) and box.op == "sum"
