"""What fewer bits cost: recipes of quantization side by side, each with its error on every data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagkit import derive, ops
from diagkit.cost import Shown, Table, Transfer, transfers
from diagkit.term import FORMATS, InputError, Term

Data = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, repr=False)
class Errors(Shown):
    """Root mean square errors against float64: `error[recipe, data]`, and `bits[recipe, data]` that a number of the
    streamed arrays takes, its share of the scales included. Displays as a table; `points` are for a plot.

    >>> at = [("fp8", "normal"), ("int8", "normal")]
    >>> found = Errors(dict(zip(at, (0.01, 0.002), strict=True)), dict(zip(at, (8.0, 8.5), strict=True)))
    >>> found.recipes, found.data, found.points("normal"), found.ratio("fp8", "int8", "normal")
    (['fp8', 'int8'], ['normal'], [(8.0, 0.01, 'fp8'), (8.5, 0.002, 'int8')], 5.0)
    """

    error: Mapping[tuple[str, str], float]
    bits: Mapping[tuple[str, str], float]

    @property
    def recipes(self) -> list[str]:
        """The names of the recipes, in order."""
        return list(dict.fromkeys(name for name, _ in self.error))

    @property
    def data(self) -> list[str]:
        """The names of the data sets, in order."""
        return list(dict.fromkeys(kind for _, kind in self.error))

    def points(self, kind: str) -> list[tuple[float, float, str]]:
        """(bits, error, recipe) on one data set."""
        return [(self.bits[name, kind], self.error[name, kind], name) for name in self.recipes]

    def ratio(self, one: str, other: str, kind: str) -> float:
        """How many times the error of one recipe is that of another."""
        return self.error[one, kind] / self.error[other, kind]

    def _table(self) -> Table:
        head = ("recipe", "bits", *self.data)
        return Table([head, *((name, self._bits(name), *self._errors(name)) for name in self.recipes)])

    def _bits(self, name: str) -> str:
        found = sorted({round(self.bits[name, kind], 2) for kind in self.data})
        return " to ".join(f"{one:g}" for one in dict.fromkeys((found[0], found[-1])))

    def _errors(self, name: str) -> list[str]:
        return [f"{self.error[name, kind]:.1e}" for kind in self.data]


def errors(term: Term, recipes: Sequence[str], data: Data, streamed: str = "x") -> Errors:
    """Every recipe on every data set, against `term` itself in float64.

    A matrix that a recipe turns by is Hadamard's, of the size of its axis. `bits` are of the inputs of the last
    kernel that carry the axis `streamed`. Raises what the steps of a recipe raise.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> P = dk.softmax(dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)), over=x, name="P")
    >>> naive = dk.Diagram(dk.einsum("q x, x d -> q d", P, dk.array("V", x, d), name="O"))
    >>> errors(naive, ["fp16", "fp8 per tensor"], {"normal": dk.samples(n=64, d=16)})
    recipe          bits  normal
    fp16            16    4.1e-04
    fp8 per tensor  8.03  6.5e-02
    """
    made = {name: derive.recipe(term, name) for name in recipes}
    wanted = {kind: ops.reference(term, arrays) for kind, arrays in data.items()}
    pairs = [(name, kind) for name in recipes for kind in data]
    error = {(name, kind): rmse(_run(made[name], data[kind]), wanted[kind]) for name, kind in pairs}
    bits = {(name, kind): _bits(made[name], data[kind], streamed) for name, kind in pairs}
    return Errors(error, bits)


def rmse(found: Any, wanted: Any) -> float:
    """The root of the mean square of a difference.

    >>> rmse([1.0, 2.0], [1.0, 4.0]) == 2**0.5
    True
    """
    return float(np.sqrt(np.mean((np.asarray(found, np.float64) - np.asarray(wanted, np.float64)) ** 2)))


def _run(term: Term, arrays: Mapping[str, Any]) -> Any:
    return ops.reference(term, with_matrices(term, arrays))


def with_matrices(term: Term, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays that a diagram takes; what is not among them and is a square weight is Hadamard's matrix."""
    sizes = {
        axis.name: n for array in term.inputs for axis, n in zip(array.axes, _shape(arrays, array.name), strict=False)
    }
    made = {array.name: ops.hadamard(sizes[array.axes[0].name]) for array in term.inputs if array.weight}
    wanted = [array.name for array in term.inputs]
    missing = [name for name in wanted if name not in arrays and name not in made]
    if missing:
        raise InputError(f"{term.name} needs the input {missing[0]!r}", remedy=f"its inputs are: {', '.join(wanted)}")
    return {name: arrays[name] if name in arrays else made[name] for name in wanted}


def prepared(term: Term, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of the kernel that makes the outputs, from the diagram's own.

    >>> import diagkit as dk
    >>> x, d = dk.axes("x d")
    >>> Y = dk.einsum("x d, d -> x", dk.array("X", x, d), dk.array("w", d), name="Y")
    >>> made = prepared(dk.Diagram(Y).quantize("X", "int8", "d"), {"X": np.ones((2, 3)), "w": np.ones(3)})
    >>> list(made), made["X.codes"].tolist()
    (['w', 'X.scale', 'X.codes'], [[127.0, 127.0, 127.0], [127.0, 127.0, 127.0]])
    """
    given = with_matrices(term, arrays)
    wanted = [array.name for array in derive.part(term, *term.outputs).inputs]
    made = [name for name in wanted if name not in given]
    if not made:
        return {name: given[name] for name in wanted}
    piece = derive.part(term, *made, whole=True)
    found = ops.evaluate(piece, {array.name: given[array.name] for array in piece.inputs})
    given |= found if isinstance(found, dict) else {made[0]: found}
    return {name: given[name] for name in wanted}


def _shape(arrays: Mapping[str, Any], name: str) -> tuple[int, ...]:
    return tuple(arrays[name].shape) if name in arrays else ()


def _bits(term: Term, arrays: Mapping[str, Any], streamed: str) -> float:
    """Bits moved for each number of the arrays that carry the streamed axis, scales included."""
    sizes = ops.bind_sizes(term, {name: tuple(one.shape) for name, one in with_matrices(term, arrays).items()})
    kernel = derive.part(term, *term.outputs)
    counted = transfers(derive.fuse(kernel)).at(**sizes)
    roots = {array.name for array in term.inputs if streamed in {axis.name for axis in array.axes}}
    moved = [array for array in kernel.inputs if array.name.partition(".")[0] in roots]
    bits = sum(counted[Transfer(array.name, 0, 1, "input")] * FORMATS[array.dtype] for array in moved)
    return float(bits / sum(arrays[name].size for name in roots))
