"""`Diagram`: one immutable value; every method is a door of a line or two into one room below.

Pictures and kernels are the two largest rooms; their doors open them when they are first used, so that
``import diagkit`` stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from diagkit import cost, derive, ops, program
from diagkit.ops import Node
from diagkit.term import LevelGraph, Term, TermError, public, speaking

if TYPE_CHECKING:
    from diagkit import bench
    from diagkit.diagram.across import Across
    from diagkit.diagram.balance import Balance
    from diagkit.diagram.configuration import Configuration
    from diagkit.diagram.errors import Errors
    from diagkit.diagram.prediction import Prediction
    from diagkit.diagram.shown import Comparison, Picture
    from diagkit.diagram.sweep import Sweep
    from diagkit.machine import Machine


@speaking
class Diagram(Term):
    """A diagram: draws itself, runs, states its costs, and is relabelled step by step.

    Made from the values it outputs; wires take the names of the variables that hold them where the
    diagram is made (or those given with ``name=``). Every step returns a new diagram.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    >>> dk.Diagram(S, name="scores").outputs
    ('S',)

    Steps: each returns a new diagram, and the derivation remembers it.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    >>> P = dk.softmax(dk.einsum("q d, x d -> q x", Q, K, name="S"), over=x, name="P")
    >>> naive = dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O"), name="attention")
    >>> flash = naive.fuse().group(q="g_q").stream(x="s_x")
    >>> [box.name for box in naive.hoist("O").boxes], len(flash.split(x=2).regions)
    (['S', 'P.max', 'P.exp', 'P.sum', 'O.acc', 'O'], 2)
    >>> flash.unstream().ungroup() == naive.fuse(), len(naive.open("P").boxes), flash.derivation.captions[1][0]
    (True, 6, "group(q='g_q')")

    Costs, as formulas in elements:

    >>> naive.transfers().total(), flash.memory().peak(), flash.work().flop()
    (2*d*q + 2*d*x + 4*q*x, 2*d*g_q + 2*d*s_x + g_q*s_x + 2*g_q, 4*d*q*x)
    >>> flash.optimum("M").transfers, flash.bits().gain("int8"), flash.caching("M", "N").formula
    (2*d*q + 4*d**2*q*x/M, 12/5, 2*d*q + 4*d**2*q*x/(M*N))
    >>> flash.cross_transfer("M", "N", "B", "C").formula, flash.network(x=2).total()
    (4*d**2*q*x/(C*M) - 4*d**2*q*x/(C*M*N) + 2*d*q/B + 4*d**2*q*x/(B*M*N), 2*d*q + 2*q)
    >>> tile = flash.legal_tile(8192, q=64, x=64, d=8)
    >>> tile.tiles, flash.ranges(q=64, x=64, d=8).flagged, naive.replay(flash.derivation) == flash
    ({'g_q': 64, 's_x': 16}, (), True)

    Numbers, programs and kernels:

    >>> arrays = {"Q": np.eye(4), "K": np.eye(4), "V": np.eye(4)}
    >>> flash.reference(**arrays)[0].round(3), flash.law(trials=2, **arrays).error < 1e-12
    (array([0.475, 0.175, 0.175, 0.175]), True)
    >>> flash.lower(g_q=2, s_x=2).count(**arrays).total(), flash.kernel("numba", g_q=2, s_x=2, d=4).target
    (96, 'numba')

    Several levels of memory:

    >>> graph = dk.LevelGraph((dk.Level("global", 0), dk.Level("shared", 1, capacity="M", bandwidth="B")))
    >>> flash.level_optimum(graph).time
    2*d*q/B + 4*d**2*q*x/(B*M)
    >>> deep = flash.group(level=2, q="w_q")
    >>> deep.level_transfers().total(q=4, x=4, d=4, g_q=4, w_q=2, s_x=2), deep.level_memory()[2].peak()
    (160, 2*d*s_x + 2*d*w_q + s_x*w_q + 2*w_q)
    >>> deep.nested().deepest, deep.formats("fp16").configuration("H100-SXM", d=64, w_q=64, s_x=64).bound
    (2, 'special')

    Fewer bits:

    >>> eight = naive.smooth(K="x").rotate("Q", "K", over="d").scale(P=256).quantize("V", "int8", over="d").fuse()
    >>> [step.rule for step in eight.steps], eight.part("V.codes").outputs, sorted(eight.prepared(**arrays))
    (['smooth', 'rotate', 'scale', 'quantize', 'fuse'], ('V.codes',), ['K.rotated', 'Q.rotated', 'V.codes',
    'V.scale'])
    >>> naive.recipe("fp8 per tensor").inputs[0].dtype, list(naive.errors(["fp8 per tensor"], {"eye": arrays}).error)
    ('fp32', [('fp8 per tensor', 'eye')])
    >>> halves = naive.cast(P="fp16").permute(x="reversed").formats("fp16").fuse().stream(x="s_x")
    >>> halves.accumulate("fp16").forms[0].state[0].dtype
    'fp16'

    On machines, by the numbers of data/machines:

    >>> flash.on("T4", "fp16", q=64, x=64, d=8).fits, flash.across(["T4"], "fp16", q=64, x=64, d=8).best()
    (True, 'T4')
    >>> len(flash.sweep("T4", "fp16", q=64, x=64, d=8, g_q=[16, 32], s_x=16))
    2
    >>> round(flash.balance("T4", d=64).least_memory)
    52000

    Pictures:

    >>> str(naive.diff(flash)).splitlines()[0], flash.draw().svg == flash.svg(), flash.strip().svg[:4]
    ('S: level 0 -> 1', True, '<svg')
    >>> with TemporaryDirectory() as folder:
    ...     flash.save(f"{folder}/flash.svg").name
    'flash.svg'
    """

    def __init__(self, *outputs: Node, name: str = "diagram", **parts: Any) -> None:
        """The diagram that computes `outputs`; or, as its repr writes it, one made of its parts."""
        if "inputs" not in parts:
            if not outputs:
                raise TermError("a diagram of nothing", remedy="give the values it outputs: dk.Diagram(O)")
            caller = sys._getframe(1)
            variables = {**caller.f_globals, **caller.f_locals}
            parts["inputs"], parts["boxes"], parts["outputs"] = ops.trace(outputs, variables)
        super().__init__(name=name, **parts)

    def __call__(self, *unnamed: Any, **arrays: Any) -> Any:
        """Its numbers: numpy or torch arrays in by name, the same kind out (see `ops.evaluate`)."""
        return ops.evaluate(self, ops.by_name(self, unnamed, arrays))

    def reference(self, *unnamed: Any, **arrays: Any) -> Any:
        """Its numbers computed in float64."""
        return ops.reference(self, ops.by_name(self, unnamed, arrays))

    def fuse(self, *boxes: str) -> Self:
        """Keep intermediates in fast memory: all, or those between `boxes` (see `derive.fuse`)."""
        return derive.fuse(self, *boxes)

    def group(self, level: int = 1, **tiles: Any) -> Self:
        """Tile axes along which the function is mapped: ``group(q="g_q")``, and tiles inside those:
        ``group(level=2, q="w_q")`` (see `derive.group`)."""
        return derive.group(self, level=level, **tiles)

    def ungroup(self, *axes: str) -> Self:
        """Take group labels off again: of all axes, or of those named."""
        return derive.ungroup(self, *axes)

    def stream(
        self, hoist: bool = True, lemma: bool = True, region: str | None = None, level: int = 1, **tiles: Any
    ) -> Self:
        """Run along an axis in chunks, carrying a derived state: ``stream(x="s_x")``, and in a sub-loop:
        ``stream(level=2, x="u_x")`` (see `derive.stream`)."""
        return derive.stream(self, hoist=hoist, lemma=lemma, region=region, level=level, **tiles)

    def unstream(self, *axes: str) -> Self:
        """Take streams off again: along all axes, or along those named."""
        return derive.unstream(self, *axes)

    def law(self, trials: int = 20, seed: int = 0, **arrays: Any) -> program.Law:
        """The stream folded over random splits and merge trees of `arrays`, against the whole."""
        return program.law(self, trials, seed, **arrays)

    def open(self, *blocks: str) -> Self:
        """Put what is inside blocks onto the spine: of all blocks, or of those named (one layer)."""
        return derive.open_blocks(self, *blocks)

    def hoist(self, *boxes: str, past: str | tuple[str, ...] = ()) -> Self:
        """Pull what a sum does not see out of it, by linearity, past the roundings named (see `derive.hoist`)."""
        return derive.hoist(self, *boxes, past=past)

    def split(self, region: str | None = None, **parts: int) -> Self:
        """Let `parts` kernels share a streamed axis and another merge them: ``split(x=4)``."""
        return derive.split(self, region=region, **parts)

    def smooth(self, **over: Any) -> Self:
        """Take the mean over an axis off what a contraction reads: ``smooth(K="x")`` (see `derive.smooth`)."""
        return derive.smooth(self, **over)

    def rotate(self, *wires: str, over: Any, matrix: str = "H") -> Self:
        """Turn both factors of a contraction by one orthogonal matrix (see `derive.rotate`)."""
        return derive.rotate(self, *wires, over=over, matrix=matrix)

    def scale(self, **factors: Any) -> Self:
        """Multiply what a contraction reads, and divide its result: ``scale(P=256)`` (see `derive.scale`)."""
        return derive.scale(self, **factors)

    def permute(self, **orders: Any) -> Self:
        """Read the inputs along an axis in another order: ``permute(x="reversed")`` (see `derive.permute`)."""
        return derive.permute(self, **orders)

    def cast(self, **formats: str) -> Self:
        """Round what contractions read to a number format: ``cast(P="fp8e4m3")`` (see `derive.cast`)."""
        return derive.cast(self, **formats)

    def quantize(self, wire: str, dtype: str, over: Any = None, **how: Any) -> Self:
        """Let contractions read codes with scales: ``quantize("K", "int8", over="d")`` (see `derive.quantize`)."""
        return derive.quantize(self, wire, dtype, over, **how)

    def recipe(self, name: str) -> Self:
        """All steps of a published way to quantize attention: ``recipe("fp8 per tensor")`` (see `derive.RECIPES`)."""
        return derive.recipe(self, name)

    def part(self, *outputs: str, name: str | None = None, whole: bool = False) -> Self:
        """The piece that makes some wires from inputs and from what is prepared (see `derive.part`)."""
        return derive.part(self, *outputs, name=name, whole=whole)

    def prepared(self, **arrays: Any) -> dict[str, Any]:
        """What the kernel of its outputs is handed: `arrays` themselves, and codes and scales made of them; a matrix
        that turns is Hadamard's where none is given."""
        from diagkit.diagram.errors import prepared

        return prepared(self, arrays)

    def errors(self, recipes: Sequence[str], data: Mapping[str, Mapping[str, Any]]) -> Errors:
        """What recipes of quantization cost on data sets, against this diagram in float64 (see `derive.RECIPES`)."""
        from diagkit.diagram.errors import errors

        return errors(self, recipes, data)

    @property
    def derivation(self) -> derive.Derivation:
        """The steps that led here, with their reasons and equations, as data."""
        return derive.derivation(self)

    def replay(self, done: derive.Derivation) -> Self:
        """Take the steps of another diagram's derivation on this one."""
        return derive.replay(done, self)

    def strip(self, theme: str = "light") -> Picture:
        """The derivation as pictures under one another, with what was done and why between them."""
        from diagkit.diagram.shown import strip

        return strip(self.derivation, theme)

    def diff(self, other: Term) -> Comparison:
        """What changes from this diagram to `other`: levels, labels, columns, transfers."""
        from diagkit.diagram.shown import compare

        return compare(self, other)

    def formats(self, dtype: str | None = None, **by_array: str) -> Self:
        """The inputs in other number formats: one for all, or by name (see `derive.formats`)."""
        return derive.formats(self, dtype, **by_array)

    def accumulate(self, dtype: str, *states: str) -> Self:
        """What its streams carry in another number format: all, or by name (see `derive.accumulate`)."""
        return derive.accumulate(self, dtype, *states)

    def transfers(self) -> cost.Transfers:
        """What crosses between memory levels, per array, levels and kind, as formulas in elements."""
        return cost.transfers(self)

    def memory(self) -> cost.Memory:
        """What each column holds in fast memory, its peak and where that is, in elements."""
        return cost.memory(self)

    def work(self) -> cost.Work:
        """What each column computes, by unit: tensor, fma, special."""
        return cost.work(self)

    def optimum(self, memory: Any = None, **options: Any) -> cost.Optimum:
        """The tiles with the least transfers within `memory`, elements or bytes (see `cost.optimum`)."""
        return cost.optimum(self, memory, **options)

    def bits(self, memory: Any = "M", **sizes: Any) -> cost.BitsLaw:
        """What fewer bits save: H* in bytes with every array's bytes per element open (see `cost.bits`)."""
        return cost.bits(self, memory, **sizes)

    def ranges(self, bounds: Mapping[str, Any] | None = None, **sizes: int) -> cost.Ranges:
        """What every wire may hold, beside what its format can: ``ranges(x=4096, ...)`` (see `cost.ranges`)."""
        return cost.ranges(self, bounds, **sizes)

    def legal_tile(
        self, memory: Any = None, aim: str = "transfers", machine: str | Machine | None = None, **options: Any
    ) -> cost.LegalTile:
        """The best whole-number tiles within `memory` (see `cost.legal_tile`): those of the least transfers, on any
        machine, or with aim="time" those of the least time on `machine`, as in `on` (see `fastest.seconds`)."""
        from diagkit.diagram.fastest import legal_tile

        return legal_tile(self, memory, aim, machine, options)

    def level_transfers(self) -> cost.LevelTransfers:
        """What crosses between all neighbouring levels that labels speak of (see `cost.level_transfers`)."""
        return cost.level_transfers(self)

    def level_memory(self) -> dict[int, cost.Memory]:
        """What one memory of each level holds (see `cost.level_memory`)."""
        return cost.level_memory(self)

    def level_optimum(self, graph: LevelGraph, **options: Any) -> cost.LevelOptimum:
        """The best tiles of every level of a level graph, and the time of all (see `cost.level_optimum`)."""
        return cost.level_optimum(self, graph, **options)

    def caching(self, memory: Any, children: Any, **options: Any) -> cost.Rule:
        """Theorem 2: what comes from above when `children` share what streams past (see `cost.caching`)."""
        return cost.caching(self, memory, children, **options)

    def cross_transfer(self, memory: Any, children: Any, above: Any, across: Any, **options: Any) -> cost.Rule:
        """Theorem 3: the time when `children` read from each other (see `cost.cross_transfer`)."""
        return cost.cross_transfer(self, memory, children, above, across, **options)

    def network(self, **devices: Any) -> cost.Network:
        """What devices send each other that share an axis: ``network(x=8)`` (see `cost.network`)."""
        return cost.network(self, **devices)

    def nested(self, **sizes: Any) -> program.Nested:
        """The loop nest on all levels, sub-loops inside tiles: runs and counts every crossing."""
        return program.nested(self, **sizes)

    def on(
        self,
        machine: str,
        dtype: str | None = None,
        without: Sequence[str] = (),
        aim: str = "transfers",
        **sizes: int,
    ) -> Prediction:
        """On a machine of data/machines: the legal tile, the time by resource, the bottleneck, TFLOP/s with their
        band, energy. `without` names assumptions to switch off (see `prediction.ASSUMED`).

        `aim` says what tiles that are not given are best for. "transfers", the default, is the optimum of the paper:
        it has a bound that no tile beats, and is the same whatever rates a machine states. "time" takes all rates
        that it states into account, and is the sum over the resources, the serial end of the time that is shown: a
        tile that uses less of any resource is better by it, where the slowest alone sees no difference."""
        from diagkit.diagram.fastest import aimed

        return aimed(self, machine, dtype, without, aim, sizes)

    def across(
        self,
        machines: Any,
        dtype: str | None = None,
        without: Sequence[str] = (),
        aim: str = "transfers",
        **sizes: int,
    ) -> Across:
        """On several machines, side by side: ``across(["T4", "B200"], "fp16", q=4096, x=4096, d=128)``; options
        as of `on`."""
        from diagkit.diagram.across import across

        return across(self, machines, dtype, without, aim, sizes)

    def sweep(self, machines: Any, dtype: str | None = None, **sizes: Any) -> Sweep:
        """Amounts and times at every combination of machines, sizes and tiles, in one table:
        ``sweep(["A100-SXM-80GB", "H100-SXM"], "fp16", q=[1024, 2048], x="q", d=128, g_q=[64, 128], s_x=64)``."""
        from diagkit.diagram.sweep import sweep

        return sweep(self, machines, dtype, sizes)

    def configuration(self, machine: str | Machine, **options: Any) -> Configuration:
        """Laid out on one multiprocessor: variables, workers that fit, clocks by unit (see `layout.configure`)."""
        from diagkit.diagram.layout import configure

        return configure(self, machine, **options)

    def balance(self, machine: str, level: str = "global", dtype: str = "fp16", **sizes: int) -> Balance:
        """The least memory and the least sizes at which arithmetic is the limit (see `balance.balance`)."""
        from diagkit.diagram.balance import balance

        return balance(self, machine, level, dtype, sizes)

    def lower(self, **sizes: Any) -> program.Program:
        """The loop nest at these sizes and tiles, in elements; what is left out stays symbolic."""
        return program.lower(self, **sizes)

    def kernel(self, target: str = "numba", **sizes: Any) -> bench.Kernel:
        """A kernel for "numba" or "triton" at these tiles: shows its source, checks, counts and times itself."""
        from diagkit import bench
        from diagkit.diagram.prediction import held

        return bench.Kernel(self.lower(**sizes), target, predict=held)

    def svg(self, theme: str = "light") -> str:
        """The picture as SVG text, with the cost table over its columns."""
        from diagkit.diagram.shown import picture

        return picture(self, theme)

    def draw(self, theme: str = "light", ranges: bool | Mapping[str, Any] = False, **sizes: int) -> Picture:
        """The picture as a value, in a theme. With `ranges` (True, or bounds of inputs) and a size of every axis,
        wires that may overflow, saturate or vanish are marked: ``draw(ranges=True, q=1, x=4096, d=64)``."""
        from diagkit.diagram.shown import drawn

        return drawn(self, theme, ranges, sizes)

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file: .svg, .png or .pdf."""
        from diagkit.diagram.shown import save

        return save(self, path)

    if not TYPE_CHECKING:  # types keep knowing what a diagram has

        def __getattr__(self, name):
            raise ops.missing_step(self.__dict__.get("name", "diagram"), name, public(type(self)))

    def __str__(self) -> str:
        """The listing: one line per box."""
        from diagkit.diagram.shown import listing

        return listing(self)

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> Mapping[str, Any]:
        """What a notebook shows: the picture, and the listing where there are no pictures; a PNG only where
        `include` asks for "image/png"."""
        from diagkit.diagram.shown import bundle

        return bundle(self, include, exclude)
