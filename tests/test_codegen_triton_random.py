"""The Triton target on random diagrams, masks, shapes and layouts, run by the interpreter."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from numba_cases import TERMS
from strategies import arrays_for, labelled, masked_streams
from triton_cases import agrees, kernel

from diagkit.bench import Kernel
from diagkit.program import lower
from diagkit.term import FormatError

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
GENERATE = [Phase.explicit, Phase.generate]


def in_formats_of_triton(term, halves):
    """fp64 inputs become fp32, fp16 ones what `halves` says."""
    other = {"fp64": "fp32", "fp16": halves}
    return term.replace(inputs=tuple(replace(a, dtype=other.get(a.dtype, a.dtype)) for a in term.inputs))


def check_case(term, sizes, halves="fp16"):
    arrays = {name: value.astype(np.float32) for name, value in arrays_for(term, sizes).items()}
    made = Kernel(lower(in_formats_of_triton(term, halves), **sizes), "triton")
    try:
        assert made.source.text
    except FormatError as refused:
        assume("gather" not in str(refused))  # a view that shifts: refused by name
        raise
    agrees(made, arrays)


@settings(max_examples=60, phases=GENERATE)
@given(labelled(), st.sampled_from(["fp16", "fp8e5m2"]))
def test_random_diagrams(case, halves):
    check_case(case.term, case.sizes, halves)


@settings(max_examples=40, phases=GENERATE)
@given(masked_streams())
def test_random_masks(case):
    check_case(case.term, case.sizes)


LENGTHS = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 40])
TILES = st.sampled_from([16, 20, 24, 32])
WIDTHS = st.sampled_from([1, 2, 5, 16, 17, 33, 64])
LAYOUTS = ["attention", "causal", "masked", "grouped heads", "seasoned", "cross-entropy", "matmul", "naive"]
MADE = {name: TERMS[name]() for name in LAYOUTS}


@st.composite
def shapes(draw, term):
    few = {axis: draw(st.integers(1, 2)) for axis in ("h", "k", "r") if axis in term.axes}
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
    tiles = {
        "g_q": data.draw(st.sampled_from([16, 24, 32])),
        "s_x": data.draw(st.sampled_from([16, 20, 32])),
        "g_e": 24,
    }
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
