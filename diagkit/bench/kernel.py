"""`Kernel`: a program on a target. Each method is a door into one file of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diagkit import codegen
from diagkit.bench.check import Check, check
from diagkit.bench.count import Counted, count
from diagkit.bench.errors import KernelError
from diagkit.bench.inputs import random_inputs, sizes_for
from diagkit.bench.inspect import Inspection, Predict, inspect
from diagkit.bench.landscape import Landscape, landscape
from diagkit.bench.launch import bind
from diagkit.bench.measure import Measured, measure
from diagkit.codegen import Source
from diagkit.ops import by_name
from diagkit.program import Program
from diagkit.term import InputError, speaking


@speaking
@dataclass(frozen=True)
class Kernel:
    """The kernels of a program on one target ("numba" or "triton"): called with arrays by name, it
    returns what the diagram returns. It displays as its source.

    Tiles must have numbers; sizes that the program left open come from the arrays, or from the keywords
    of `check`, `count` and `measure`. Compiled at the first use, kept on disk by content.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> kernel = dk.Diagram(dk.exp(X, name="E"), name="exp").group(x="g_x").kernel("numba", x=8, g_x=4)
    >>> kernel(X=[0.0, 1.0] * 4).round(3)[:2], kernel.source.target
    (array([1.   , 2.718]), 'numba')
    >>> bool(kernel.check(seed=0)), kernel.count().total_bytes()
    (True, 64)
    >>> kernel.measure(against="numpy", repeats=1).rivals[0].name, sorted(kernel.landscape(g_x=(2, 8)).times_s)
    ('numpy', [(2,), (8,)])
    >>> kernel.inspect("sm_42")
    Traceback (most recent call last):
    ...
    diagkit.term.errors.InputError: no target 'sm_42'; use one of: sm_75 (T4), sm_80 (A100-SXM-80GB), sm_89 (L40S), \
sm_90 (H100-SXM), sm_100 (B200), or another machine's name
    """

    program: Program
    target: str = "numba"
    checks: list[Check] = field(default_factory=list, compare=False, repr=False)
    predict: Predict | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        codegen.check_target(self.target)
        codegen.check_tiles(self.program)

    @property
    def source(self) -> Source:
        """The generated text, with the box that each line comes from."""
        return codegen.source(self.program, self.target)

    def __call__(self, *unnamed: Any, **arrays: Any) -> Any:
        """The outputs: numpy or torch arrays in by name, the same kind out; one alone, several by name."""
        bound = bind(self.program, self.target, by_name(self.program.term, unnamed, arrays))
        bound.launch.run()
        return bound.results()

    def check(self, seed: int = 0, arrays: Mapping[str, Any] | None = None, **sizes: int) -> Check:
        """Compare with the diagram in float64, on fresh random inputs or on the `arrays` given.

        Memory is poisoned first, so that each output element must be written. What is left open takes a
        size that is no multiple of its tile. The verdict is remembered: `measure` asks for it.
        """
        full, inputs = self._inputs(arrays, sizes, seed)
        found = check(self.program, self.target, inputs, full, None if arrays else seed)
        self.checks.append(found)
        return found

    def count(self, **sizes: int) -> Counted:
        """What the kernels move between slow and fast memory, counted by themselves as they run."""
        full, inputs = self._inputs(None, sizes, 0)
        return count(self.program, self.target, inputs, full)

    def measure(
        self,
        against: str | tuple[str, ...] = (),
        repeats: int = 9,
        cold: bool = False,
        seed: int = 0,
        arrays: Mapping[str, Any] | None = None,
        **sizes: int,
    ) -> Measured:
        """Time the kernels, warm, beside rivals in the same rounds: "numpy", "torch", "torch-sdpa", "gemm".

        Compiling is never timed. With `cold` the caches are emptied before each run. Raises KernelError
        where no check has passed, or the latest one failed, and for a rival that cannot run this diagram.
        """
        self._need_check()
        full, inputs = self._inputs(arrays, sizes, seed)
        rivals = tuple(against) if isinstance(against, tuple | list) else (against,)
        return measure(self.program, self.target, inputs, full, rivals, repeats, cold)

    def landscape(self, rounds: int = 3, seed: int = 0, **tiles: Sequence[int]) -> Landscape:
        """Time the kernels at every combination of `tiles` by name, ``g_q=(64, 128), s_x=(32, 64)``: the fastest
        of some rounds each, and of several times as many where a tile comes close to the best. Raises KernelError
        where no check has passed, or a tile gives other results."""
        self._need_check()
        _, inputs = self._inputs(None, {}, seed)
        return landscape(self.program, self.target, inputs, tiles, rounds, self.checks[-1].tolerance)

    def inspect(
        self,
        target: str = "sm_90",
        dtypes: str | Mapping[str, str] | None = None,
        predicted_bytes: float | None = None,
    ) -> Inspection:
        """Compile for a GPU without having one ("sm_75" to "sm_100", or "H100-SXM") and judge by ten checks (see
        `bench.inspect`): the program in Triton, whatever the kernel's own target is. What the
        diagram's `memory()` says (or `predicted_bytes`) is shown beside what was found."""
        return inspect(self.program, target, dtypes, predicted_bytes, self.predict)

    def _inputs(
        self, arrays: Mapping[str, Any] | None, sizes: Mapping[str, int], seed: int
    ) -> tuple[dict[str, int], Mapping[str, Any]]:
        if arrays is not None:
            if not isinstance(arrays, Mapping):
                raise InputError(
                    f"{type(arrays).__name__} is no dict of arrays", remedy='write arrays={"Q": ..., "K": ...}'
                )
            return dict(bind_sizes_of(self.program, arrays)), arrays
        full = sizes_for(self.program, sizes)
        return full, random_inputs(self.program, full, seed)

    def _need_check(self) -> None:
        if not self.checks or not self.checks[-1].passed:
            state = "its check failed" if self.checks else "it has not been checked"
            raise KernelError(
                f"{self.program.term.name} on {self.target} is not timed: {state}",
                remedy="run kernel.check() first; only what computes its diagram is timed",
            )

    def __repr__(self) -> str:
        return self.source.text

    def _repr_html_(self) -> str:
        return self.source._repr_html_()


def bind_sizes_of(program: Program, arrays: Mapping[str, Any]) -> Mapping[str, int]:
    """The size of every axis, from the arrays."""
    from diagkit.ops import open_arrays

    return open_arrays(program.term, arrays, sizes=program.known)[0].sizes
