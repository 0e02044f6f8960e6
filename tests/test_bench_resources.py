"""Kernels far beyond a multiprocessor are refused before they are compiled, with what they take and tiles that fit."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import triton_run
from diagkit.bench.architectures import architecture
from diagkit.bench.inspect import inspect
from diagkit.bench.kernel import Kernel
from diagkit.bench.resources import FAR, REGISTERS, WRITTEN_OUT, Needs, check_needs, needs
from diagkit.book.workloads import streamed
from diagkit.program import lower
from diagkit.term import FormatError, Term

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
torch = pytest.importorskip("torch")


def attention(dtype="fp16", g=512, s=512, d=32):
    return lower(streamed(dtype, False), h=1, q=512, x=512, d=d, g_q=g, s_x=s)


def tiles_in(message):
    return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", message)}


@pytest.fixture
def compiled_nothing(monkeypatch):
    monkeypatch.setattr("diagkit.bench.compiled.compiler", lambda: pytest.fail("compiled"))


@pytest.mark.parametrize(("dtype", "g", "s", "target", "match"), [
    ("fp16", 512, 512, "sm_90", "takes 580 registers a thread, most for .*, of 255 that it may have on sm_90"),
    ("fp32", 256, 256, "sm_90", r"writes out 32,768 multiply-adds a thread, more than 16,384 take minutes"),
    ("fp16", 16, 1024, "sm_75", r"takes 131,072 bytes of shared memory a chunk, of 65,536 that a block may have"),
    ("fp16", 256, 256, "sm_75", r"writes out .* multiply-adds a thread, .* on sm_75"),
])  # fmt: skip
def test_far_beyond_is_refused_before_compiling_and_the_tiles_named_are_not(
    compiled_nothing, dtype, g, s, target, match
):
    made = attention(dtype, g, s, d=64 if g == 256 else 32)
    with pytest.raises(FormatError, match=match) as caught:
        inspect(made, target)
    assert f"q by {g}, x by {s}" in str(caught.value)
    smaller = {**dict(made.sizes), **tiles_in(caught.value.remedy)}
    assert smaller["g_q"] * smaller["s_x"] < g * s
    check_needs(lower(made.term, **smaller), architecture(target))


def test_what_no_tile_mends_is_said(compiled_nothing):
    with pytest.raises(FormatError, match="bytes of shared memory a chunk.*group or stream an axis that is held whole"):
        inspect(attention(g=64, s=64, d=16_384), "sm_90")
    x, d = dk.axes("x d")
    Y = dk.softmax(dk.array("X", x, d), over=d)
    whole = derive.group(derive.fuse(Term(*ops.trace([Y], {"Y": Y}), "rows")), x=4)
    with pytest.raises(FormatError, match="registers a thread.*use smaller tiles, or group or stream"):
        inspect(lower(whole, x=8, d=100_000), "sm_90")


def test_a_contraction_that_is_no_product_of_matrices_holds_every_term():
    q, d, e = dk.axes("q d e")
    Y = dk.einsum("q d, q d e -> q", dk.array("X", q, d), dk.array("W", q, d, e))
    made = lower(derive.group(derive.fuse(Term(*ops.trace([Y], {"Y": Y}), "rows")), q="g_q"), q=64, d=64, e=64, g_q=64)
    found = needs(made.kernels[0], made, architecture("sm_90"))
    assert found.registers == 64 * 64 * 64 // 128 and found.reason(architecture("sm_90"))


def test_the_limits_are_where_they_say():
    row = architecture("sm_90")
    assert Needs(row.shared_bytes, FAR * REGISTERS, "S", WRITTEN_OUT).reason(row) is None
    for more in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        shared, registers, written = more
        over = Needs(row.shared_bytes + shared, FAR * REGISTERS + registers, "S", WRITTEN_OUT + written)
        assert over.reason(row)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_tiles_that_kernels_use_are_not_refused(target):
    for g, s, d in ((128, 128, 128), (128, 64, 256), (256, 128, 64)):
        check_needs(attention(g=g, s=s, d=d), architecture(target))


def test_a_launch_is_refused_before_it_compiles_too(monkeypatch):
    monkeypatch.setattr(triton_run, "on_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(triton_run, "_module", lambda text: SimpleNamespace())
    with pytest.raises(FormatError, match="takes 580 registers a thread"):
        Kernel(attention(), "triton").check()
    monkeypatch.setattr(triton_run, "on_gpu", lambda: False)
    small = {n: np.zeros((1, 3, 32), np.float16) for n in "QKV"}
    free = Kernel(lower(streamed("fp16", False), d=32, g_q=512, s_x=512), "triton")
    assert not free(**small).any(), "the interpreter has no registers to run out of"
