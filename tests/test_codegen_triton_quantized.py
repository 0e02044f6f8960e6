"""Quantized kernels on Triton, written as diagrams of primitives: results, counted bytes, and the compiled code."""

import numpy as np
import pytest
from numba_cases import d, q, streamed, x
from triton_cases import agrees, run, whole

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench.check import tolerance_of
from diagkit.bench.inspect import inspect
from diagkit.ops.libraries import Numpy
from diagkit.program import lower
from diagkit.term import FormatError, InputError, Term, quotient

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
RANDOM = np.random.default_rng(0)


def term(O, name):
    return Term(*ops.trace([O], {"O": O}), name)


def eight_bits(scores="fp8e4m3", values="fp8e4m3", transposed=True):
    """Attention whose scores and values are products of 8-bit codes, one scale per query, key and feature."""
    Q, K = (dk.array(name, axis, d, dtype=scores) for name, axis in (("Q", q), ("K", x)))
    V = dk.array("V", *((d, x) if transposed else (x, d)), dtype=values)
    S = dk.contract(Q, K, over=d) * dk.array("sq", q) * dk.array("sk", x) * d.size**-0.5
    P = dk.cast(dk.softmax(S, over=x) * 256, values)
    return streamed(term(dk.contract(P, V, over=x) * dk.array("sv", d) / 256, f"{scores} {values}"))


def packed_keys():
    """Attention of fp16 queries whose keys and values are int4 codes, one scale per key."""
    Q, K, V = dk.array("Q", q, d, dtype="fp16"), dk.array("K", x, d, dtype="int4"), dk.array("V", x, d, dtype="int4")
    S = dk.contract(Q, K, over=d) * dk.array("sk", x) * d.size**-0.5
    P = dk.cast(dk.softmax(S, over=x), "fp16")
    return streamed(term(dk.contract(P, dk.cast(V * dk.array("sv", x), "fp16"), over=x), "int4 keys"))


def quantized(dtype, top):
    """Codes of X, one scale per row."""
    X = dk.array("X", q, d)
    scale = dk.combine(lambda a: a / top, dk.amax(dk.absolute(X), over=d))
    return derive.group(derive.fuse(term(dk.cast(dk.combine(quotient, X, scale), dtype), "codes")), q="g_q")


def arrays_of(made, **sizes):
    """Codes over the whole range of their formats, scales between 0 and 1."""
    found = {}
    for array in made.inputs:
        shape = [sizes[axis.name] for axis in array.axes]
        normal = RANDOM.standard_normal(shape).astype(np.float32)
        low, high = {"int8": (-128, 128), "int4": (-8, 8)}.get(array.dtype, (0, 0))
        codes = {"int8": np.int8, "int4": np.int8, "fp16": np.float16}.get(array.dtype, np.float32)
        found[array.name] = RANDOM.integers(low, high, shape).astype(codes) if high else normal.astype(codes)
        if array.name.startswith("s"):
            found[array.name] = (np.abs(found[array.name]) / (64 if "8" in str(made.inputs[0].dtype) else 8)).clip(1e-3)
        if array.dtype == "fp8e4m3":
            found[array.name] = Numpy.round_to(normal, "fp8e4m3")
    return found


@pytest.mark.parametrize(("scores", "values", "transposed"), [
    ("fp8e4m3", "fp8e4m3", True), ("int8", "fp8e4m3", True), ("int8", "fp16", False)
])  # fmt: skip
def test_eight_bit_attention_agrees_and_is_counted(scores, values, transposed):
    made = eight_bits(scores, values, transposed)
    agrees(whole(made, arrays := arrays_of(made, q=20, x=37, d=24)), arrays)


def test_the_tolerance_of_a_quantized_kernel_has_teeth():
    """Leaving out one query's scale, or its rounding beyond what a cast explains, is seen."""
    made = eight_bits()
    arrays = arrays_of(made, q=20, x=37, d=24)
    wanted = ops.reference(made, arrays)
    tolerance = tolerance_of(made, arrays, {"O": wanted}, {"q": 20, "x": 37, "d": 24})
    assert 1e-3 < tolerance < 0.3
    other = ops.reference(made, {**arrays, "sv": np.roll(arrays["sv"], 1)})
    assert np.abs(other - wanted).max() / np.abs(wanted).max() > tolerance


def test_int4_keys_are_unpacked_and_take_half_a_byte():
    made = packed_keys()
    kernel = whole(made, arrays := arrays_of(made, q=20, x=37, d=24))
    agrees(kernel, arrays)
    assert "codes(" in kernel.source.text and "tl.dot(Q, tl.trans(K.to(tl.float16)))" in kernel.source.text
    moved = kernel.count(q=20, x=37).bytes()
    assert moved["K", 0, 1, "input"] == moved["V", 0, 1, "input"] == 37 * 24 / 2


def test_tiles_that_split_a_byte_are_refused():
    made = derive.group(derive.fuse(term(dk.cast(dk.array("X", q, dtype="int4"), "fp32") * 0.5, "halves")), q="g_q")
    with pytest.raises(FormatError, match="tiles of 'X' split a byte .* along 'q'; .*even tile"):
        whole(made, {"X": np.zeros(6, np.int8)}, g_q=3).source  # noqa: B018
    with pytest.raises(InputError, match="'X' is int4 and has 5 along 'q'"):
        run(made, {"X": np.zeros(5, np.int8)}, g_q=4)
    given = np.arange(-5, 5).astype(np.int8)
    np.testing.assert_array_equal(run(made, {"X": given}, g_q=4), given / 2)


ROWS = {"zero": 0.0, "tiny": 1e-30, "infinite": np.inf, "no number": np.nan}


@pytest.mark.parametrize(("dtype", "top"), [("int8", 127), ("int4", 7), ("fp8e4m3", 448)])
def test_quantizers_agree_with_the_reference_on_odd_rows_too(dtype, top):
    values = RANDOM.standard_normal((6, 12)).astype(np.float32)
    for row, number in enumerate(ROWS.values()):
        values[row] = np.where(np.arange(12) == 3, number, 0 if number == 0 else values[row] * min(abs(number), 1))
    made = quantized(dtype, top)
    with np.errstate(all="ignore"):
        wanted = np.asarray(ops.reference(made, {"X": values}))
    found = np.asarray(run(made, {"X": values}, g_q=4)).astype(np.float64)
    np.testing.assert_array_equal(found, wanted.astype(np.float64))
    assert not found[0].any(), "a row of zeros has codes that are exactly 0"


def test_whole_numbers_round_half_to_even_and_saturate():
    values = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 200, -200, np.inf, -np.inf, np.nan, 126.5, 3])
    for dtype, low, high in (("int8", -128, 127), ("int4", -8, 7)):
        made = term(dk.cast(dk.array("X", q), dtype), "cast")
        wanted = np.clip(np.rint(np.nan_to_num(values)), low, high)
        np.testing.assert_array_equal(run(made, {"X": values}), wanted)
        np.testing.assert_array_equal(ops.reference(made, {"X": values}), wanted)


@pytest.mark.parametrize(("target", "scores", "values", "kinds"), [
    ("sm_90", "fp8e4m3", "fp8e4m3", {"QGMMA"}), ("sm_90", "int8", "fp8e4m3", {"IGMMA", "QGMMA"}),
    ("sm_89", "int8", "fp8e4m3", {"IMMA", "QMMA"}), ("sm_80", "int8", "fp16", {"IMMA", "HMMA"}),
    ("sm_100", "int8", "fp8e4m3", {"IMMA", "UTCQMMA"}),
])  # fmt: skip
def test_eight_bit_attention_compiles_without_spills_or_notes(target, scores, values, kinds):
    tile = 128 if target == "sm_90" else 64
    made = eight_bits(scores, values, transposed=values != "fp16")
    found = inspect(lower(made, q=4096, x=4096, d=128, g_q=tile, s_x=tile), target)
    assert set(found.kernels[0].matrix) == kinds
    for name in ("shared memory fits", "no spills", "right matrix instructions", "nothing serialised"):
        assert found.verdict(name).passed, str(found)


def test_values_by_rows_lose_their_asynchronous_loads():
    """fp8 products want V stored transposed; by rows its loads go through registers, and the verdict says so."""
    sizes = {"q": 4096, "x": 4096, "d": 128, "g_q": 128, "s_x": 128}
    rows, columns = (inspect(lower(eight_bits(transposed=t), **sizes), "sm_90") for t in (False, True))
    assert columns.verdict("no plain loads in the loop").passed
    assert rows.verdict("no plain loads in the loop").passed is False


def test_eight_bits_that_a_generation_lacks_are_refused():
    made = lower(eight_bits(), q=64, x=64, d=64, g_q=64, s_x=64)
    for target in ("sm_75", "sm_80"):
        with pytest.raises(FormatError, match=f"{target} has no fp8e4m3, the format of 'Q'"):
            inspect(made, target)


def test_codes_and_scales_are_divided_exactly_and_what_is_no_code_fast():
    """A GPU's usual division may be a unit off: a scale in fp8e8m0 could come out a factor of 2 too small."""
    codes, scales = ops.quantize(dk.array("X", q, d), "fp8e4m3", scale="fp8e8m0", name="c", d=32)
    text = whole(derive.fuse(term(codes, "codes")), {"X": np.zeros((4, 64), np.float32)}).source.text
    assert "ratio(max_abs_fp32, 448.0)" in text and "share(X, " in text and "quotient(" not in text
    assert "return tl.div_rn(" in text and scales.axes[1].name == "d_block"
    attention = whole(eight_bits(), arrays_of(eight_bits(), q=16, x=32, d=32)).source.text
    assert "quotient(" in attention and "ratio(" not in attention and "share(" not in attention


@pytest.mark.parametrize(("target", "tile"), [("sm_89", 64), ("sm_90", 128), ("sm_100", 64)])
def test_codes_that_become_numbers_on_the_way_compile_at_large_tiles(target, tile):
    found = inspect(lower(packed_keys(), q=4096, x=4096, d=128, g_q=tile, s_x=tile), target)
    for name in ("shared memory fits", "no spills", "right matrix instructions", "nothing serialised"):
        assert found.verdict(name).passed, str(found)
