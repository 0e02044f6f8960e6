"""The ladder: one algorithm in several forms, each with its picture, its bytes, its error and its times."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from diagkit import cost
from diagkit.bench import Kernel
from diagkit.diagram.errors import rmse
from diagkit.diagram.shown import picture
from diagkit.ops import bind_sizes

CELL = "text-align:left;padding:2px 12px 2px 0;vertical-align:middle"
HEAD = ("", "picture", "bytes predicted", "bytes counted", "error", "CPU time", "GPU time")


@dataclass(frozen=True)
class Rung:
    """One form: its `svg`, bytes by formula and as a run counted them, root mean square `error` against float64,
    median seconds on the CPU and on a GPU (None where none was recorded)."""

    name: str
    svg: str
    predicted: int
    counted: int
    error: float
    cpu_s: float | None
    gpu_s: float | None

    def cells(self) -> tuple[str, ...]:
        """The row without the picture."""
        numbers = (f"{self.predicted:,}", f"{self.counted:,}", f"{self.error:.1e}")
        return (self.name, *numbers, _time(self.cpu_s, "not measured"), _time(self.gpu_s, "none recorded"))


def _time(seconds: float | None, otherwise: str) -> str:
    return otherwise if seconds is None else f"{1e3 * seconds:.3g} ms"


@dataclass(frozen=True, repr=False)
class Ladder:
    """Forms of one algorithm, from the first to the last; displays as one table with pictures.

    >>> import diagkit as dk
    >>> import numpy as np
    >>> kernel = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").kernel("numba", x=2)
    >>> str(ladder({"exp": kernel}, {"exp": {"X": np.float32([0.0, 1.0])}}, np.exp([0.0, 1.0]))).splitlines()[0]
    '     bytes predicted  bytes counted  error    CPU time      GPU time'
    """

    rungs: tuple[Rung, ...]

    def __getitem__(self, name: str) -> Rung:
        return next(rung for rung in self.rungs if rung.name == name)

    def __repr__(self) -> str:
        rows = [(HEAD[0], *HEAD[2:]), *(rung.cells() for rung in self.rungs)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="{CELL}">{name}</th>' for name in HEAD)
        return f'<table style="border-collapse:collapse"><tr>{head}</tr>{"".join(map(_html, self.rungs))}</table>'


def _html(rung: Rung) -> str:
    """One row; the picture is an image of its own, so that names inside it meet no others."""
    name, *numbers = rung.cells()
    data = b64encode(rung.svg.encode()).decode()
    image = f'<img alt="{escape(name)}" width="300" src="data:image/svg+xml;base64,{data}">'
    return "<tr>" + "".join(f'<td style="{CELL}">{one}</td>' for one in (escape(name), image, *numbers)) + "</tr>"


def ladder(
    kernels: Mapping[str, Kernel],
    arrays: Mapping[str, Mapping[str, Any]],
    wanted: Any,
    repeats: int = 0,
    gpu_s: Mapping[str, float] | None = None,
) -> Ladder:
    """Run every kernel on its `arrays` and set its result beside the `wanted` one.

    Bytes are counted by the loop nest as it runs in numpy, and predicted by the formula. With `repeats` a kernel
    is checked and timed, median of so many. `gpu_s` are recorded seconds by name; nothing is made up where
    there are none. Raises KernelError for a kernel that does not compute its diagram.

    >>> import diagkit as dk
    >>> import numpy as np
    >>> kernel = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").kernel("numba", x=2)
    >>> rung = ladder({"exp": kernel}, {"exp": {"X": np.float32([0.0, 1.0])}}, np.exp([0.0, 1.0])).rungs[0]
    >>> rung.name, rung.predicted, rung.counted, rung.error < 1e-6
    ('exp', 16, 16, True)
    """
    found = [_rung(name, kernel, arrays[name], wanted, repeats, gpu_s or {}) for name, kernel in kernels.items()]
    return Ladder(tuple(found))


def _rung(
    name: str, kernel: Kernel, arrays: Mapping[str, Any], wanted: Any, repeats: int, gpu_s: Mapping[str, float]
) -> Rung:
    term = kernel.program.term
    result, counted = kernel.program.run(**arrays), kernel.program.count(**arrays)
    seconds = None
    if repeats:
        result = kernel(**arrays)
        kernel.check(arrays=arrays)
        seconds = kernel.measure(arrays=arrays, repeats=repeats).kernel.median_s
    sizes = {
        **bind_sizes(term, {one: tuple(np.shape(array)) for one, array in arrays.items()}),
        **dict(kernel.program.sizes),
    }
    predicted = cost.transfers(term).bytes().total(**sizes)
    error = rmse(np.asarray(result), wanted)
    return Rung(name, picture(term), int(predicted), int(counted.total_bytes()), error, seconds, gpu_s.get(name))
