"""The worker: errors that say what happened, no hang, no switch for readers; and what the interpreter computes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton has no wheel for this system: kernels say so, see test_codegen_triton")
import torch

from diagkit.bench.instrument import Meter
from diagkit.bench.messages import Request, Tensor, receive, saturated, send
from diagkit.bench.worker import Worker, WorkerError, interpreter


def ask(function, path="none.py", tensors=(), outputs=0, parameters=(), grid=(1,)):
    return Request(str(path), function, tuple(tensors), outputs, tuple(parameters), grid)


@pytest.fixture(scope="module")
def double():
    """A worker whose process answers at once; it starts another where a test ended one."""
    worker = Worker("worker_double", "the double", interpret=True, start_s=60)
    yield worker
    worker.stop()


def test_one_process_answers_many_requests(double):
    first, second = (double.run(ask("answer")).outputs for _ in range(2))
    assert first == second and first[0] != os.getpid()


def test_the_switch_is_set_in_the_process_alone(double, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert double.run(ask("answer")).outputs[1] == "1"
    assert "TRITON_INTERPRET" not in os.environ


def test_a_compiling_process_never_interprets(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    worker = Worker("worker_double", "the double", interpret=False, start_s=60)
    assert worker.run(ask("answer")).outputs[1] == ""
    worker.stop()


def test_a_failing_kernel_is_named_and_the_process_lives(double):
    process = double.run(ask("answer")).outputs[0]
    with pytest.raises(WorkerError, match="fail failed in the double: ValueError: no such kernel") as caught:
        double.run(ask("fail"))
    assert caught.value.box == "fail"
    assert double.run(ask("answer")).outputs[0] == process


def test_a_kernel_that_takes_too_long_is_stopped(double):
    process = double.run(ask("answer")).outputs[0]
    begin = time.monotonic()
    with pytest.raises(WorkerError, match=r"sleep gave no answer in 0.2 s and was stopped.*smaller sizes"):
        double.run(ask("sleep"), timeout_s=0.2)
    assert time.monotonic() - begin < 10
    assert double.run(ask("answer")).outputs[0] != process


def test_a_process_that_dies_leaves_its_last_words(double):
    with pytest.raises(WorkerError, match="the double ended while it ran die: out of memory, says the double"):
        double.run(ask("die"))
    assert double.run(ask("answer")).outputs[1] == "1"


def test_a_process_killed_while_it_works(double):
    process = double.run(ask("answer")).outputs[0]
    threading.Timer(0.3, os.kill, (process, signal.SIGKILL)).start()
    with pytest.raises(WorkerError, match="the double ended while it ran sleep"):
        double.run(ask("sleep"), timeout_s=60)


def test_a_process_killed_between_two_requests_is_replaced(double):
    process = double.run(ask("answer")).outputs[0]
    os.kill(process, signal.SIGKILL)
    time.sleep(0.2)
    assert double.run(ask("answer")).outputs[0] != process


def test_a_process_that_cannot_start_says_why():
    worker = Worker("no_such_module", "the nobody", interpret=True, start_s=60)
    with pytest.raises(WorkerError, match="the nobody ended .*No module named no_such_module"):
        worker.run(ask("answer"))


def test_messages_end_with_the_stream(tmp_path):
    with (tmp_path / "pipe").open("w+b") as stream:
        send(stream, ask("answer"))
        stream.seek(0)
        assert receive(stream) == ask("answer")
        assert receive(stream) is None


STARTS = "from diagkit.bench.worker import Worker; w = Worker('worker_double', 'x', True); w._started(); "


def test_the_process_ends_with_the_session():
    code = STARTS + "print(w._process.pid)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent, check=True
    )
    state = Path(f"/proc/{int(done.stdout)}/stat")
    for _ in range(100):
        if not state.exists() or state.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the process outlives the session that started it")


# What kernels compute in the interpreter. Each is a file of its own, as Triton wants it.

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def product(a_in, b_in, c_out, kind: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a, b = tl.load(a_in + at), tl.load(b_in + at)
    tl.store(c_out + at, tl.dot(a, b))


@triton.jit
def rounded(a_in, b_out, n):
    at = tl.arange(0, 256)
    there = at < n
    tl.store(b_out + at, tl.load(a_in + at, mask=there, other=0.0).to(b_out.dtype.element_ty), mask=there)


@triton.jit
def astray(a_in, b_out, n):
    at = tl.arange(0, 16) + n
    tl.store(b_out + at, tl.load(a_in + at))
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


def tensor(values, dtype):
    values = np.ascontiguousarray(values)
    return Tensor(values, tuple(step // values.itemsize for step in values.strides), dtype)


def launch(path, function, inputs, kind, shape, extra=(), output="fp32"):
    nothing = tensor(np.full(shape, np.nan, np.float32), output)
    tensors = [*(tensor(value, kind) for value in inputs), nothing]
    return interpreter().run(ask(function, path, tensors, 1, extra))


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_products_are_products_of_numbers(kernels, kind):
    """Triton's own interpreter multiplies the bit patterns of bf16: an error of 1e10 for small integers."""
    a, b = np.random.default_rng(0).integers(-4, 5, (2, 16, 16)).astype(np.float32)
    reply = launch(kernels, "product", (a, b), kind, (16, 16), (0,))
    np.testing.assert_array_equal(reply.outputs[0], a @ b)
    assert reply.moved == ((256, 0), (256, 0), (0, 256))


TYPES = {"bf16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2", "fp16": "float16"}


@pytest.mark.parametrize("kind", TYPES)
def test_casts_round_to_nearest_even(kernels, kind):
    values = np.random.default_rng(1).normal(size=200).astype(np.float32) * np.logspace(-4, 2, 200, dtype=np.float32)
    reply = launch(kernels, "rounded", (values,), "fp32", (200,), (200,), output=kind)
    wanted = torch.from_numpy(values).to(getattr(torch, TYPES[kind])).double().numpy()
    np.testing.assert_array_equal(reply.outputs[0], wanted)
    assert reply.moved == ((200, 0), (0, 200)), "masked lanes do not count"


@pytest.mark.parametrize(("kind", "largest"), [("fp8e4m3", 448), ("fp8e5m2", 57344)])
def test_fp8_saturates(kernels, kind, largest):
    values = np.array([449, 1000, 1e6, np.inf, -1e6, 1.0], np.float32) * (largest / 448)
    reply = launch(kernels, "rounded", (values,), "fp32", (6,), (6,), output=kind)
    assert list(reply.outputs[0][:5]) == [largest, largest, largest, largest, -largest]
    assert torch.equal(saturated(torch.from_numpy(values[:3]), kind), torch.full((3,), float(largest)))


def test_reaching_outside_of_every_array_is_an_error(kernels):
    with pytest.raises(WorkerError, match="16 lanes reach outside every array"):
        launch(kernels, "astray", (np.zeros(16, np.float32),), "fp32", (16,), (1 << 33,))


def test_the_meter_tells_arrays_apart():
    meter = Meter()
    a, b = torch.zeros(8), torch.zeros(8)
    meter.begin([a, b])
    addresses = b.data_ptr() + 4 * np.arange(8, dtype=np.uint64)
    meter.add(meter.loaded, addresses, np.arange(8) < 5)
    meter.add(meter.loaded, addresses, np.zeros(8, bool))
    assert (meter.loaded, meter.stored) == ([0, 5], [0, 0])
