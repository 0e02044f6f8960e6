"""The numba target: the text of every program says what its diagram means, and compiles to it."""

import ast
import os
import re
import subprocess
import sys

import numpy as np
import plain_numba
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numba_cases import TERMS, kernel, normal, x
from strategies import arrays_for, labelled, masked_streams

import diagkit as dk
from diagkit import derive, ops
from diagkit.codegen import Names, Source, identifier, source
from diagkit.codegen.numba_source import write
from diagkit.program import lower
from diagkit.term import FormatError, InputError, Term

pytest.importorskip("numba", reason="the numba target needs numba")
pytest.importorskip("scipy", reason="numba's products need scipy")


def by_name(term, outputs):
    return outputs if len(term.outputs) > 1 else {term.outputs[0]: outputs}


def check_text(case, sizes):
    """The generated text, run as Python, against float64; what it counts against the walk over the program."""
    arrays = arrays_for(case.term, sizes)
    program = lower(case.term, **sizes)
    made, moved = plain_numba.run(program, arrays)
    wanted = by_name(case.term, ops.reference(case.term, arrays))
    for name, value in by_name(case.term, made).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-9, atol=1e-9)
    assert moved == program.count().transfers
    quiet, _ = plain_numba.run(program, arrays, counted=False)
    for name, value in by_name(case.term, quiet).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-9, atol=1e-9)


@settings(max_examples=150)
@given(labelled())
def test_random_diagrams_mean_the_same_as_text(case):
    check_text(case, case.sizes)


@settings(max_examples=100)
@given(masked_streams())
def test_masked_streams_mean_the_same_as_text(case):
    check_text(case, case.sizes)


@settings(max_examples=50)
@given(labelled(), st.data())
def test_empty_axes_mean_the_same_as_text(case, data):
    empty = data.draw(st.sampled_from(list(case.term.axes)))
    check_text(case, case.sizes | {empty: 0})


@settings(max_examples=50)
@given(labelled())
def test_the_text_depends_on_the_program_alone_and_names_a_box_on_every_line(case):
    program = lower(case.term, **case.sizes)
    text = write(program)
    assert text == write(program) and ast.parse(text.text)
    known = {*case.term.wires, *case.term.axes, *(box.name for box in case.term.boxes)}
    known |= {wire.name for made in program.kernels for wire in made.wires}
    assert set(text.provenance()) <= known
    first = next(n for n, line in enumerate(text.lines) if line.text == "@njit(**FAST)" or "KERNEL)" in line.text)
    scaffold = re.compile(r"@njit|def .*_kernel\(|for turn in|group = |if group >=|break|$")
    assert all(line.column or scaffold.match(line.text) for line in text.lines[first:])


# ---- compiled kernels, few texts at many sizes ----

COMPILED = ["attention", "causal", "masked", "grouped heads", "seasoned", "cross-entropy", "matmul", "naive"]
LENGTHS = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 50, 64, 97])
WIDTHS = st.sampled_from([1, 2, 5, 16, 33, 64, 96, 128, 256])


@st.composite
def shapes(draw, term):
    """A size for every axis of the term: lengths around the tiles, any head size from 1 to 256."""
    few = {axis: draw(st.integers(1, 3)) for axis in ("h", "k", "r") if axis in term.axes}
    return {a: few.get(a) or draw(WIDTHS if a in "de" else LENGTHS) for a in term.axes}


def strided(draw, value):
    """The same numbers, laid out some other way: transposed, with gaps, reversed, or as they are."""
    how = draw(st.sampled_from(["plain", "plain", "transposed", "gaps", "reversed"]))
    if how == "transposed":
        return np.ascontiguousarray(value.T).T
    if how == "gaps":
        return np.repeat(value, 2, axis=-1)[..., ::2]
    return value[..., ::-1].copy()[..., ::-1] if how == "reversed" else value


@settings(max_examples=300, phases=[Phase.explicit, Phase.generate])
@given(st.sampled_from(COMPILED), st.data())
def test_compiled_kernels_agree_with_float64_at_random_shapes_layouts_and_masks(name, data):
    made = kernel(name)
    term = made.program.term
    sizes = data.draw(shapes(term))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = {a.name: strided(data.draw, _values(a, sizes, random)) for a in term.inputs}
    assert made.check(arrays=arrays).passed


def _values(array, sizes, random):
    shape = tuple(sizes[axis.name] for axis in array.axes)
    if array.dtype == "bool":
        return random.random(shape) < random.choice([0.1, 0.5, 0.9])
    if array.dtype == "int64":
        return random.integers(0, sizes["x"], shape)
    return random.standard_normal(shape).astype(np.float32)


def test_float64_inputs_give_float64_precision():
    arrays = normal(dtype=np.float64, Q=(40, 24), K=(37, 24), V=(37, 8))
    made = kernel("attention")(**arrays)
    assert made.dtype == np.float64
    np.testing.assert_allclose(made, ops.reference(TERMS["attention"](), arrays), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["masked", "grouped heads"])
def test_compiled_counters_equal_the_walk_over_the_program(name):
    made = kernel(name)
    sizes = {axis: {"q": 75, "x": 45, "d": 20, "e": 10, "k": 3, "r": 2}[axis] for axis in made.program.missing}
    counted = made.count(**sizes)
    walked = lower(made.program.term, **dict(made.program.sizes), **sizes).count()
    assert counted.transfers == walked.transfers
    assert counted.bytes() == walked.bytes()


# ---- the exponential ----


def exponentials(values):
    """exp of float32 values by the generated text."""
    X = dk.array("X", x)
    text = write(lower(Term(*ops.trace([dk.exp(X)], {}), "exp")))
    scope = plain_numba.executed(text.text)
    with np.errstate(all="ignore"):
        return np.array([scope["exp"](value) for value in values], np.float32)


def test_the_polynomial_exponential_is_close_everywhere():
    values = np.concatenate([np.linspace(-86.5, 88.72, 4001), np.linspace(-1, 1, 2001)]).astype(np.float32)
    exact = np.exp(values.astype(np.float64))
    assert np.max(np.abs(exponentials(values) / exact - 1)) < 2e-7
    ends = exponentials(np.array([-np.inf, -200, 0, 200, np.inf, np.nan], np.float32))
    assert ends[:5].tolist() == [0, 0, 1, np.inf, np.inf] and np.isnan(ends[5])


def test_the_power_of_two_is_close_everywhere():
    """The whole exponent is what the exponential of a difference becomes, shifted by a maximum along fewer axes."""
    scope = plain_numba.executed(write(lower(TERMS["attention"](), d=4, q=8, x=8, e=8, g_q=8, s_x=8)).text)
    values = np.concatenate([np.linspace(-125, 127.99, 4001), np.linspace(-1, 1, 2001)]).astype(np.float32)
    with np.errstate(all="ignore"):
        made = np.array([scope["exp2"](value) for value in values], np.float32)
        ends = [float(scope["exp2"](np.float32(value))) for value in (-np.inf, -200, 0, 128, 200, np.inf, np.nan)]
    assert np.max(np.abs(made / np.exp2(values.astype(np.float64)) - 1)) < 2e-7
    assert ends[:6] == [0, 0, 1, np.inf, np.inf, np.inf] and np.isnan(ends[6])


# ---- what is refused, and the text itself ----


def test_open_tiles_and_unknown_targets_are_refused():
    program = lower(TERMS["attention"](), s_x=16)
    with pytest.raises(InputError, match="tile 'g_q' has no number yet"):
        source(program)
    with pytest.raises(InputError, match="no target 'cuda'; use one of: numba"):
        source(program, "cuda")


def test_a_cast_that_numba_cannot_round_is_refused():
    cast = dk.cast(dk.array("X", x), "int32")
    with pytest.raises(FormatError, match="numba kernels cannot round .* to int32"):
        source(lower(Term(*ops.trace([cast], {}), "narrow")))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_casts_round_as_the_reference_does(dtype):
    pytest.importorskip("ml_dtypes", reason="the reference rounds with ml_dtypes")
    random = np.random.default_rng(0)
    values = np.concatenate([random.standard_normal(500) * 2.0 ** random.integers(-30, 18, 500), [0, -0.0, np.nan]])
    values = np.concatenate([values, [448, 449, 464, 1e6, -1e6, 65504, 65519, 65520, np.inf, -np.inf]])
    term = Term(*ops.trace([dk.cast(dk.array("X", x), dtype)], {}), "cast")
    made, _ = plain_numba.run(lower(term), {"X": values})
    np.testing.assert_array_equal(made, ops.reference(term, {"X": values}))


def test_names_come_from_the_diagram_whatever_they_are():
    names = Names({"np"})
    assert [names[n] for n in ("P.max", "P max", "np", "class", "π", "1st", "")] == [
        "P_max", "P_max_2", "np_2", "class_2", "u3c0", "v1st", "v",
    ]  # fmt: skip
    assert identifier("key position") == "key_position"
    row, odd = dk.axis("for"), dk.axis("worker count")
    total = dk.total(dk.array("np", row, odd) * 2, odd, name="number")
    term = derive.group(derive.fuse(Term(*ops.trace([total], {}), "class")), **{"for": 2})
    made, _ = plain_numba.run(lower(term), {"np": np.ones((5, 3))})
    assert made.tolist() == [6] * 5


def test_the_text_of_flash_attention(golden):
    golden("codegen/attention_numba.py.txt", kernel("attention").source.text)


def test_a_source_lies_in_a_file_named_by_its_content(tmp_path, monkeypatch):
    monkeypatch.setenv("DIAGKIT_CACHE", str(tmp_path))
    text = kernel("matmul").source
    path = text.path()
    assert path.parent == tmp_path and path.read_text(encoding="utf-8") == text.text and text.key in path.name
    stamp = path.stat().st_mtime_ns
    assert text.path().stat().st_mtime_ns == stamp
    other = Source(text.target, text.name, text.lines[:-1], text.entries)
    assert other.path() != path


def test_kernels_are_quiet_in_a_fresh_process():
    """No warning, no thread layer, nothing on standard error; a second process reads what the first compiled."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from numba_cases import kernel, normal\n"
        "print(kernel('attention')(**normal(Q=(70, 8), K=(50, 8), V=(50, 8))).shape)\n"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert (done.stdout, done.stderr) == ("(70, 8)\n", "")
