"""Scales that are powers of two (fp8e8m0) in kernels: each of the 256 bytes, rounding, microscaling; to the bit."""

import ml_dtypes
import numpy as np
import plain_numba
import pytest
from numba_cases import d, q, streamed, x

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel
from diagkit.bench.check import tolerance_of
from diagkit.bench.inputs import random_inputs
from diagkit.bench.inspect import inspect
from diagkit.bench.launch import bind
from diagkit.bench.triton_run import fetched
from diagkit.program import lower
from diagkit.term import Term

pytest.importorskip("numba", reason="the numba target needs numba")
ENGINES = ["numba", "triton"]
RANDOM = np.random.default_rng(0)
EVERY = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "triton":
        pytest.importorskip("triton", reason="no wheel for this system")
    return request.param


def term(*outputs, name):
    return Term(*ops.trace(list(outputs), {}), name)


def bits(value):
    return np.asarray(value, np.float32).view(np.int32)


def test_each_byte_is_read_and_written_to_the_bit(engine):
    S = dk.array("S", x, dtype="fp8e8m0")
    X = dk.array("X", x)
    made = derive.group(derive.fuse(term(dk.cast(S, "fp32"), dk.cast(S * X, "fp8e8m0"), name="bytes")), x=48)
    numbers = EVERY.astype(np.float32)
    kernel = Kernel(lower(made), engine)
    read, written = kernel(S=EVERY, X=np.ones(256, np.float32)).values()
    assert np.isnan(read[255]) and np.array_equal(bits(read[:255]), bits(numbers[:255]))
    assert np.isnan(written[255]) and np.array_equal(bits(written[:255]), bits(numbers[:255]))
    moved = kernel.count(x=256).bytes()
    assert moved == lower(made, x=256).count().bytes() and moved[made.outputs[1], 1, 0, "output"] == 256


def test_rounding_is_that_of_the_reference(engine):
    powers = np.exp2(np.arange(-130.0, 129.0))
    near = [np.nextafter(np.float32(m), np.float32(to)) for m in (1, 1.5, 2) for to in (0, m, 9)]
    with np.errstate(over="ignore"):
        values = np.float32(np.outer(powers, near)).ravel()
    values = np.concatenate([values, np.float32([0, -0.0, -1, -np.inf, np.inf, np.nan, 1e-45])])
    made = term(dk.cast(dk.array("X", x), "fp8e8m0"), name="powers")
    found = Kernel(lower(made, x=len(values)), engine)(X=values)
    wanted = ops.reference(made, {"X": values})
    assert np.array_equal(np.isnan(found), np.isnan(values))
    there = ~np.isnan(values)
    np.testing.assert_array_equal(bits(found)[there], bits(wanted)[there])
    finite = (values >= 2.0**-127) & (values <= 2.0**127)
    np.testing.assert_array_equal(bits(found)[finite], bits(values[finite].astype(ml_dtypes.float8_e8m0fnu)))


def ran(engine, program, arrays):
    """The outputs and the elements that were moved; numba's text as plain Python, since compiling takes long."""
    if engine == "numba":
        return plain_numba.run(program, arrays)
    bound = bind(program, engine, arrays)
    bound.launch.run()
    return bound.results(), dict(bound.launch.moved)


ROWS = {"zero": 0.0, "tiny": 1e-30, "infinite": np.inf, "no number": np.nan, "largest": 448.0, "half": 448 * 0.75}


def micro(dtype="fp8e4m3"):
    X = dk.array("X", q, d)
    codes, scales = dk.quantize(X, dtype, scale="fp8e8m0", name="codes", scale_name="scales", d=32)
    return derive.group(derive.fuse(term(codes, scales, name="microscaling")), q="g_q")


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2", "int8"])
def test_microscaling_agrees_with_the_reference_on_odd_blocks_too(engine, dtype):
    values = RANDOM.standard_normal((7, 80)).astype(np.float32)
    for row, number in enumerate(ROWS.values()):
        values[row, :32] = np.where(np.arange(32) == 3, number, 0 if number == 0 else values[row, :32] * min(number, 1))
    made = micro(dtype)
    found, moved = ran(engine, lower(made, d=80, g_q=4), {"X": values})
    with np.errstate(all="ignore"):
        wanted = ops.reference(made, {"X": values})
    for name in ("codes", "scales"):
        np.testing.assert_array_equal(np.asarray(found[name], np.float32), np.asarray(wanted[name], np.float32))
    assert not found["codes"][0, :32].any(), "a block of zeros has codes that are exactly 0"
    assert np.isnan(found["scales"][3, 0]) and np.isfinite(found["scales"][:, 1:]).all()
    assert moved["scales", 1, 0, "output"] == 7 * 3, "one for each block of 32, the short one too"
    assert moved == lower(made, d=80, q=7, g_q=4).count().transfers


def attention():
    """Attention on microscaled queries, keys and values: blocks of 32 along features, of keys for the values."""
    Q, K, V = (dk.array(name, axis, d, dtype="fp8e4m3") for name, axis in (("Q", q), ("K", x), ("V", x)))
    sq, sk = (dk.array(f"s{a.name}", a, d.blocks(32), dtype="fp8e8m0") for a in (q, x))
    sv = dk.array("sv", x.blocks(32), d, dtype="fp8e8m0")
    S = dk.contract(dk.dequantize(Q, sq, d=32), dk.dequantize(K, sk, d=32), over=d) * d.size**-0.5
    return streamed(term(dk.contract(dk.softmax(S, over=x), dk.dequantize(V, sv, x=32), over=x), name="microscaled"))


@pytest.mark.parametrize("tiles", [{"g_q": 16, "s_x": 32}, {"g_q": 8, "s_x": 16}, {"g_q": 16, "s_x": 64}])
def test_microscaled_attention_is_checked_and_counted(engine, tiles):
    made, sizes = attention(), {"q": 11, "x": 75, "d": 48}
    arrays = _inputs(made, **sizes)
    found, moved = ran(engine, lower(made, d=48, **tiles), arrays)
    wanted = ops.reference(made, arrays)
    tolerance = tolerance_of(made, arrays, {made.outputs[0]: wanted}, made.numbers(sizes))
    assert np.abs(np.float64(found) - wanted).max() <= tolerance * np.abs(wanted).max()
    assert moved == lower(made, **sizes, **tiles).count().transfers
    assert moved["sx", 0, 1, "input"] == -(-11 // tiles["g_q"]) * 75 * 2, "a byte for each key and 32 features"


def test_a_check_sees_a_wrong_scale():
    """A scale that is off by its least step, a factor of 2, is no rounding."""
    made = attention()
    kernel = Kernel(lower(made, d=48, g_q=16, s_x=32))
    arrays = _inputs(made, q=5, x=40, d=48)
    assert kernel.check(arrays=arrays).passed
    wrong = {**arrays, "sv": (2 * arrays["sv"].astype(np.float32)).astype(ml_dtypes.float8_e8m0fnu)}
    error = np.abs(kernel(**wrong) - ops.reference(made, arrays)).max() / np.abs(ops.reference(made, arrays)).max()
    assert error > kernel.checks[-1].tolerance


def _inputs(made, **sizes):
    return random_inputs(lower(made, g_q=16, s_x=32), made.numbers(sizes), 0)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_microscaled_kernels_compile_everywhere_that_fp8_is_not_needed(target):
    pytest.importorskip("triton", reason="no wheel for this system")
    S, X = dk.array("S", q, d.blocks(32), dtype="fp8e8m0"), dk.array("X", q, d, dtype="int8")
    made = derive.group(derive.fuse(term(dk.cast(dk.dequantize(X, S, d=32), "fp16"), name="read")), q="g_q")
    found = inspect(lower(made, q=4096, d=128, g_q=64), target)
    assert found.verdict("no spills").passed and found.verdict("shared memory fits").passed


def test_what_a_gpu_stores_comes_back_as_numbers():
    numbers = fetched(np.arange(256, dtype=np.uint8), "fp8e8m0")
    assert numbers.dtype == np.float32 and np.isnan(numbers[255])
    np.testing.assert_array_equal(bits(numbers[:255]), bits(EVERY[:255].astype(np.float32)))
