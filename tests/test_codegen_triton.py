"""The Triton target, run by the interpreter: it means what its diagram says, and moves what the program counts."""

import re
from dataclasses import replace

import numpy as np
import pytest
from derive_cases import FORMS, arrays_for
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from numba_cases import TERMS, TILES, attended, normal, q, scores, x
from strategies import arrays_for as random_arrays
from strategies import labelled, masked_streams

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel
from diagkit.bench.check import _compare, _poison, tolerance_of
from diagkit.bench.launch import bind
from diagkit.codegen import source
from diagkit.codegen.lines import broken, tidy
from diagkit.codegen.triton_boxes import folded
from diagkit.program import lower
from diagkit.term import FORMATS, FormatError, GroupError, InputError, Term, arg, size

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_bench_worker")
GENERATE = [Phase.explicit, Phase.generate]


def kernel(term, **sizes):
    """The kernel of a term on Triton, tiles as in TILES unless given."""
    tiles = {str(label.tile): TILES[str(label.tile)] for label in term.labels if label.tile.is_Symbol}
    return Kernel(lower(term, **{**tiles, **sizes}), "triton")


def agrees(made, arrays):
    """Right to rounding, every element written, and every count that of the walk over the program."""
    wanted = by_name(made, ops.reference(made.program.term, arrays))
    bound = bind(made.program, "triton", arrays)
    for name, value in bound.launch.memory.items():
        if name not in arrays:
            _poison(value, wanted.get(name))
    bound.launch.run()
    found, sizes = by_name(made, bound.results()), dict(bound.engine.sizes)
    tolerance = tolerance_of(made.program.term, arrays, wanted, sizes)
    for name in made.program.term.outputs:
        error, unwritten, wrong = _compare(np.asarray(found[name]), wanted[name])
        assert error <= tolerance and not unwritten and not wrong, (name, error, tolerance, unwritten, wrong)
    missing = {name: sizes[name] for name in made.program.missing}
    walked = lower(made.program.term, **dict(made.program.sizes), **missing).count()
    assert dict(bound.launch.moved) == walked.transfers


def by_name(made, outputs):
    return outputs if isinstance(outputs, dict) else {made.program.term.outputs[0]: outputs}


# ---- every form that streams, unfused, fused, grouped and streamed ----

AWKWARD = [(7, 2, 3), (16, 4, 16), (0, 4, 4)]


def variants(name):
    make, axis, options = FORMS[name]
    plain = make()
    fused = derive.fuse(plain)
    try:
        fused = derive.group(fused, q="g_q")
    except GroupError:
        assert name in ("joint softmax", "shared maximum") or "q" not in fused.axes
    return axis, plain, derive.stream(fused, **{axis: "s_x"}, **options)


@pytest.mark.parametrize("name", [name for name in FORMS if name != "narrowed weights"])
def test_every_form_agrees_with_float64_and_with_the_count(name):
    axis, plain, streamed = variants(name)
    random = np.random.default_rng(0)
    for term, (length, g, s) in [(plain, (5, 1, 1)), *((streamed, sizes) for sizes in AWKWARD)]:
        sizes, arrays = arrays_for(plain, axis, length, random)
        arrays = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in arrays.items()}
        tiles = {str(label.tile): {"g_q": g, "s_x": s}[str(label.tile)] for label in term.labels}
        agrees(kernel(term, **sizes, **tiles), arrays)


# ---- random diagrams, labels, sizes ----


def in_formats_of_triton(term):
    """fp64 and fp8 inputs become fp32 and fp16: spilled intermediates of fp8 are another matter."""
    other = {"fp64": "fp32", "fp8e4m3": "fp16"}
    return term.replace(inputs=tuple(replace(a, dtype=other.get(a.dtype, a.dtype)) for a in term.inputs))


def check_case(term, sizes):
    arrays = {k: v.astype(np.float32) for k, v in random_arrays(term, sizes).items()}
    made = Kernel(lower(in_formats_of_triton(term), **sizes), "triton")
    try:
        assert made.source.text
    except FormatError as refused:
        assert "gather" in str(refused)  # a view that shifts: refused by name
        assume(False)
    agrees(made, arrays)


@settings(max_examples=60, phases=GENERATE)
@given(labelled())
def test_random_diagrams(case):
    check_case(case.term, case.sizes)


@settings(max_examples=40, phases=GENERATE)
@given(masked_streams())
def test_random_masks(case):
    check_case(case.term, case.sizes)


LENGTHS = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 50])
WIDTHS = st.sampled_from([1, 2, 5, 16, 17, 33, 64])
LAYOUTS = ["attention", "causal", "masked", "grouped heads", "seasoned", "cross-entropy", "matmul", "naive"]
MADE = {name: TERMS[name]() for name in LAYOUTS}


@st.composite
def shapes(draw, term):
    few = {axis: draw(st.integers(1, 3)) for axis in ("h", "k", "r") if axis in term.axes}
    return {a: few.get(a) or draw(WIDTHS if a in "de" else LENGTHS) for a in term.axes}


def laid_out(draw, value):
    """The same numbers, laid out some other way: transposed, with gaps, reversed, broadcast, or as they are."""
    how = draw(st.sampled_from(["plain", "plain", "transposed", "gaps", "reversed", "broadcast"]))
    if how == "transposed":
        return np.ascontiguousarray(value.T).T
    if how == "gaps":
        return np.repeat(value, 3, axis=-1)[..., ::3]
    if how == "broadcast" and value.dtype == np.float32:
        return np.broadcast_to(value[:1], value.shape)
    return value[..., ::-1].copy()[..., ::-1] if how == "reversed" else value


@settings(max_examples=300, phases=GENERATE)
@given(st.sampled_from(LAYOUTS), st.data())
def test_random_shapes_and_layouts(name, data):
    term = MADE[name]
    sizes = data.draw(shapes(term))
    tiles = {"g_q": data.draw(st.sampled_from([5, 16, 32])), "s_x": data.draw(st.sampled_from([7, 16, 32])), "g_e": 24}
    tiles = {str(t.tile): tiles[str(t.tile)] for t in term.labels if t.tile.is_Symbol}
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = {a.name: laid_out(data.draw, _values(a, sizes, random)) for a in term.inputs}
    assert kernel(term, **sizes, **tiles).check(arrays=arrays).passed


def _values(array, sizes, random):
    shape = tuple(sizes[axis.name] for axis in array.axes)
    if array.dtype == "bool":
        return random.random(shape) < random.choice([0.1, 0.5, 0.9])
    if array.dtype == "int64":
        return random.integers(0, sizes["x"], shape)
    return random.standard_normal(shape).astype(np.float32)
