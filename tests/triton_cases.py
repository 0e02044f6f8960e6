"""What the tests of the Triton target share: kernels of terms, and one check of numbers and counts."""

import numpy as np
from numba_cases import TILES

from diagkit import ops
from diagkit.bench import Kernel
from diagkit.bench.check import _compare, _poison, near_ties, tolerance_of
from diagkit.bench.launch import bind
from diagkit.program import lower


def kernel(term, **sizes):
    """The kernel of a term on Triton, tiles as in TILES unless given."""
    tiles = {str(label.tile): TILES.get(str(label.tile), 16) for label in term.labels if label.tile.is_Symbol}
    return Kernel(lower(term, **{**tiles, **sizes}), "triton")


def whole(term, arrays, **tiles):
    """The kernel of a term for these arrays: axes that it holds whole get their size, the others stay open."""
    lengths = {axis.name: n for a in term.inputs for axis, n in zip(a.axes, arrays[a.name].shape, strict=True)}
    tiled = {label.axis for label in term.labels}
    return kernel(term, **{name: n for name, n in lengths.items() if name not in tiled}, **tiles)


def run(term, arrays, **tiles):
    """The outputs of a term on Triton."""
    return whole(term, arrays, **tiles)(**arrays)


def agrees(made, arrays):
    """Right to rounding, every element written, and every count that of the walk over the program."""
    wanted = by_name(made, ops.reference(made.program.term, arrays))
    bound = bind(made.program, "triton", arrays)
    for name, value in bound.launch.memory.items():
        if name not in arrays:
            _poison(value, wanted.get(name))
    bound.launch.run()
    found, sizes = bound.launch.outputs, dict(bound.engine.sizes)
    tolerance = tolerance_of(made.program.term, arrays, wanted, sizes)
    for name in made.program.term.outputs:
        value = np.asarray(found[name])
        excused = near_ties(made.program.term, name, arrays, sizes, value, wanted[name])
        error, unwritten, wrong = _compare(value, wanted[name], excused)
        assert error <= tolerance and not unwritten and not wrong, (name, error, tolerance, unwritten, wrong)
    missing = {name: sizes[name] for name in made.program.missing}
    walked = lower(made.program.term, **dict(made.program.sizes), **missing).count()
    assert dict(bound.launch.moved) == walked.transfers


def by_name(made, outputs):
    """Outputs as a dict."""
    return outputs if isinstance(outputs, dict) else {made.program.term.outputs[0]: outputs}
