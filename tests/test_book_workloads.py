"""The diagrams that GPUs are measured on: quantized attention and quantizers agree and move what is counted."""

import numpy as np
import pytest
from triton_cases import agrees, whole

from diagkit.bench.buffers import unexplained
from diagkit.bench.inputs import random_inputs, sizes_for
from diagkit.bench.inspect import inspect
from diagkit.book import workloads
from diagkit.program import lower

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
RANDOM = np.random.default_rng(0)
SIZES = {"h": 2, "q": 20, "x": 37, "d": 24}


def arrays_of(term, **sizes):
    """Random codes over their formats, scales between 0.001 and 0.1, normal numbers else."""
    program = lower(term, **dict.fromkeys({str(t.tile) for t in term.labels if t.tile.is_Symbol}, 16))
    wanted = {name: size for name, size in {**SIZES, **sizes}.items() if name in term.axes}
    found = random_inputs(program, sizes_for(program, wanted), 0)
    scales = {a.name for a in term.inputs if a.name.startswith("s")}
    return {name: np.abs(v).clip(0.01) / 10 if name in scales else v for name, v in found.items()}


@pytest.mark.parametrize(("dtype", "keys", "values"), [
    ("int4", "token", "token"), ("int4", "channel", "channel"), ("int4", "tensor", "tensor"),
    ("int8", "token", "channel"), ("int8", "channel", "tensor"), ("int8", "tensor", "token"),
])  # fmt: skip
def test_codes_in_the_cache_agree_and_are_counted(dtype, keys, values):
    term = workloads.cached(dtype, keys, values)
    agrees(whole(term, arrays := arrays_of(term)), arrays)


@pytest.mark.parametrize(("scores", "values"), [("fp8e4m3", "fp8e4m3"), ("fp8e5m2", "fp8e5m2"), ("int8", "fp16")])
def test_products_of_codes_agree_and_are_counted(scores, values):
    term = workloads.eight_bits(scores, values)
    agrees(whole(term, arrays := arrays_of(term)), arrays)


@pytest.mark.parametrize("dtype", ["int8", "int4", "fp8e4m3", "fp8e5m2"])
def test_codes_per_token_and_their_scales_come_from_one_reading(dtype):
    term = workloads.codes_per_token(dtype)
    kernel = whole(term, arrays := arrays_of(term), g_x=16)
    agrees(kernel, arrays)
    moved = kernel.count(h=2, x=37).bytes()
    elements = 2 * 37 * 24
    assert moved["X", 0, 1, "input"] == 2 * elements and moved["scales", 1, 0, "output"] == 4 * 2 * 37
    assert moved["codes", 1, 0, "output"] == elements * {"int4": 0.5}.get(dtype, 1)


@pytest.mark.parametrize(("dtype", "transposed"), [("int8", False), ("int4", False), ("fp8e4m3", True)])
def test_codes_per_channel_take_two_kernels_and_two_readings(dtype, transposed):
    first, second = workloads.scales_per_channel(dtype), workloads.codes_per_channel(dtype, transposed)
    arrays = arrays_of(first)
    agrees(whole(first, arrays, g_d=16), arrays)
    arrays["scales"] = whole(first, arrays, g_d=16)(**arrays)
    kernel = whole(second, arrays, g_x=16)
    agrees(kernel, arrays)
    codes = kernel(**arrays)
    assert codes.shape == ((2, 24, 37) if transposed else (2, 37, 24))
    back = np.asarray(codes, np.float32).swapaxes(1, 2) if transposed else np.asarray(codes, np.float32)
    error = np.abs(back * arrays["scales"][:, None, :] - arrays["X"]).max()
    largest = np.abs(arrays["X"].astype(np.float32)).max()
    assert 0 < error < largest * {"int8": 1 / 254, "int4": 1 / 14, "fp8e4m3": 1 / 28}[dtype] * 1.01


def test_a_quantizer_and_the_kernel_that_reads_its_codes_are_attention():
    """From fp16 to codes to attention: what comes out is the fp16 result, to the codes' own error."""
    lengths = {"Q": 20, "K": 37, "V": 37}
    random = {name: RANDOM.standard_normal((2, n, 32)).astype(np.float16) for name, n in lengths.items()}
    codes = {}
    for name in "QK":
        made = whole(workloads.codes_per_token("int8"), {"X": random[name]}, g_x=16)(X=random[name])
        codes |= {name: made["codes"], f"s{name.lower()}": made["scales"]}
    scales = whole(workloads.scales_per_channel("fp8e4m3"), {"X": random["V"]}, g_d=16)(X=random["V"])
    given = {"X": random["V"], "scales": scales}
    codes |= {"V": whole(workloads.codes_per_channel("fp8e4m3", True), given, g_x=16)(**given), "sv": scales}
    found = whole(workloads.eight_bits("int8"), codes)(**codes)
    wanted = whole(workloads.attention(), random)(**random)
    error = np.abs(np.asarray(found, np.float32) - wanted.astype(np.float32)).max() / np.abs(wanted).max()
    assert 1e-3 < error < 0.1


@pytest.mark.parametrize(("term", "target", "tile", "kinds"), [
    (workloads.eight_bits(), "sm_89", 64, {"QMMA"}), (workloads.eight_bits(), "sm_100", 64, {"UTCQMMA"}),
    (workloads.eight_bits("fp8e5m2", "fp8e5m2"), "sm_90", 64, {"QGMMA"}),
    (workloads.cached("int8"), "sm_90", 128, {"HGMMA"}), (workloads.cached("int4"), "sm_90", 128, {"HGMMA"}),
], ids=lambda value: getattr(value, "name", value))  # fmt: skip
def test_they_compile_without_spills_or_notes(term, target, tile, kinds):
    found = inspect(lower(term, h=8, q=1024, x=1024, d=128, g_q=tile, s_x=64), target)
    assert set(found.kernels[0].matrix) == kinds
    for name in ("shared memory fits", "no spills", "right matrix instructions", "nothing serialised"):
        assert found.verdict(name).passed, str(found)
    assert unexplained(found.kernels[0], found.buffers[0]) <= 0.05, str(found)


def test_what_a_quantizer_asks_of_a_gpu_is_little():
    found = inspect(lower(workloads.codes_per_token("int8"), h=8, x=1024, d=128, g_x=16), "sm_90")
    for name in ("no spills", "nothing serialised", "wide loads"):
        assert found.verdict(name).passed, str(found)
