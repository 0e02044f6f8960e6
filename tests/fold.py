"""An executor for derived streams, for tests: folds a form over any split of the axis and merges partial
states in any order, in float64. It shares no code with the package's own executors.
"""

from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import sympy

from diagkit.term import Cast, Contract, Index, Map, Reduce, StreamForm, Term, arg, finite, names, quotient, size, where


def _quotient(above, below):
    above, below = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    return np.divide(above, below, out=np.zeros(above.shape), where=below != 0)


def _error_function(value):
    from math import erf

    return np.vectorize(erf, otypes=[float])(value) if np.size(value) else np.asarray(value, float)


_NAMES = {
    "finite": lambda v: np.where(np.isneginf(v), 0.0, v),
    "quotient": _quotient,
    "where": np.where,
    "larger": lambda *vs: reduce(np.maximum, vs),
    "smaller": lambda *vs: reduce(np.minimum, vs),
    "erf": _error_function,
}
_PLAIN = {sympy.Max: sympy.Function("larger"), sympy.Min: sympy.Function("smaller")}
_REDUCTIONS = {"sum": (np.sum, 0.0), "max": (np.max, -np.inf), "min": (np.min, np.inf), "product": (np.prod, 1.0)}
assert {finite, quotient, where}


@dataclass
class Fold:
    """A streamed region with its input arrays, ready to run on chunks of the axis."""

    term: Term
    form: StreamForm
    arrays: dict
    sizes: dict
    made: dict = field(default_factory=dict)

    def __post_init__(self):
        self.axes = {name: wire.axes for name, wire in self.term.wires.items()}
        for box in (*self.form.fixed, *self.form.step, *self.form.tail, *self.form.merge):
            self.axes[box.name] = box.axes
        for state in self.form.state:
            self.axes |= dict.fromkeys((state.name, f"{state.name}.left", f"{state.name}.right"), state.axes)
        loads = {n: np.asarray(v) for n, v in self.arrays.items() if self.form.axis not in names(self.axes[n])}
        self.fixed = self.run(self.form.fixed, loads, 0, 0)

    def run(self, boxes, values, first, last):
        """All wires after a section, the chunk being [first, last) of the axis."""
        values = dict(values)
        lengths = {**self.sizes, self.form.axis: last - first}
        with np.errstate(all="ignore"):
            for box in boxes:
                inputs = [(np.asarray(values[w]), names(self.axes[w])) for w in box.inputs]
                made = _CASES[type(box)](
                    self, box, inputs, first if names(box.axes) == (self.form.axis,) else 0, lengths
                )
                shape = tuple(lengths[a.name] for a in box.axes)
                values[box.name] = made if np.shape(made) == shape else np.broadcast_to(made, shape)
        return values

    def formula(self, box):
        """A map as a numpy function, compiled once."""
        if box not in self.made:
            expr = box.expr.xreplace({size(name): sympy.Integer(n) for name, n in self.sizes.items()})
            for old, new in _PLAIN.items():
                expr = expr.replace(old, new)
            places = [arg(place) for place in range(len(box.inputs))]
            self.made[box] = sympy.lambdify(places, expr, [_NAMES, "numpy"])
        return self.made[box]

    def start(self):
        """The state before the first chunk."""
        return {s.name: np.full([self.sizes[a.name] for a in s.axes], float(s.start)) for s in self.form.state}

    def step(self, state, first, last):
        """The state after the chunk [first, last)."""
        chunk = {n: _slice(v, names(self.axes[n]), self.form.axis, first, last) for n, v in self.arrays.items()}
        made = self.run(self.form.step, {**self.fixed, **chunk, **state}, first, last)
        return {s.name: made[s.new] for s in self.form.state}

    def fold(self, cuts):
        """The state after all chunks between successive `cuts`; what is known of a shorter fold is used."""
        key = tuple(cuts)
        if key not in self.made:
            self.made[key] = self.step(self.fold(key[:-1]), *key[-2:]) if len(key) > 1 else self.start()
        return self.made[key]

    def merged(self, tree):
        """The state of a tree: a tuple of cuts is folded, a pair of trees is merged; each once."""
        if not isinstance(tree[0], tuple):
            return self.fold(tree)
        if tree not in self.made:
            self.made[tree] = self.merge(*map(self.merged, tree))
        return self.made[tree]

    def merge(self, left, right):
        """Two partial states as one."""
        values = {f"{name}.left": value for name, value in left.items()}
        values |= {f"{name}.right": value for name, value in right.items()}
        made = self.run(self.form.merge, {**self.fixed, **values}, 0, 0)
        return {s.name: made[f"{s.name}.merged"] for s in self.form.state}

    def finish(self, state):
        """The outputs of the region that do not carry the axis."""
        region = next(r for r in self.term.regions if r.boxes == self.form.region)
        made = self.run(self.form.tail, {**self.fixed, **state}, 0, 0)
        return {w: made[w] for w in region.stores if self.form.axis not in names(self.axes[w])}


def _slice(value, axes, axis, first, last):
    if axis not in axes:
        return value
    return np.asarray(value)[(slice(None),) * axes.index(axis) + (slice(first, last),)]


def _laid(value, have, wanted):
    """An array over the axes `have`, laid out for the axes `wanted`."""
    order = [have.index(axis) for axis in wanted if axis in have]
    shape = [value.shape[have.index(axis)] if axis in have else 1 for axis in wanted]
    return np.transpose(value, order).reshape(shape)


def _map(fold, box, inputs, first, lengths):
    return fold.formula(box)(*(_laid(value, have, names(box.axes)) for value, have in inputs))


def _reduce(fold, box, inputs, first, lengths):
    ((value, have),) = inputs
    function, initial = _REDUCTIONS[box.op]
    made = function(value.astype(float), axis=tuple(have.index(axis) for axis in box.over), initial=initial)
    return _laid(np.asarray(made), tuple(axis for axis in have if axis not in box.over), names(box.axes))


def _contract(fold, box, inputs, first, lengths):
    letters = {axis: chr(97 + number) for number, axis in enumerate(lengths)}
    words = ["".join(letters[axis] for axis in have) for _, have in inputs]
    return np.einsum(f"{','.join(words)}->{''.join(letters[a] for a in names(box.axes))}", *(v for v, _ in inputs))


def _index(fold, box, inputs, first, lengths):
    return np.arange(first, first + lengths[box.axes[0].name])


def _cast(fold, box, inputs, first, lengths):
    ((value, have),) = inputs
    assert box.dtype in ("fp16", "fp32", "fp64")
    return _laid(value.astype(f"float{box.dtype[2:]}").astype(float), have, names(box.axes))


_CASES = {Map: _map, Reduce: _reduce, Contract: _contract, Index: _index, Cast: _cast}
