"""Measuring a GPU, rehearsed without one: the record, the limits, and launches on a device that stands in."""

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from derive_cases import attention as plain_attention

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel, gpu, recorded, triton_run
from diagkit.bench.messages import Request, Tensor
from diagkit.bench.worker import interpreter
from diagkit.book import gpu as script
from diagkit.book import workloads
from diagkit.program import lower
from diagkit.term import FormatError, InputError, Term

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
torch = pytest.importorskip("torch")
SMALL = script.TINY
BEYOND_THE_CORE = ("ml_dtypes", "numba", "scipy", "IPython", "ipywidgets", "nbformat")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of one rehearsal, with nothing there but torch, triton and the core; and its folder."""
    folder = tmp_path_factory.mktemp("measurements")
    with pytest.MonkeyPatch.context() as patch:
        for name in BEYOND_THE_CORE:
            patch.setitem(sys.modules, name, None)
        assert script.main(["--rehearse", "--to", str(folder)]) == 0
    return recorded(folder), folder


def test_a_rehearsal_leaves_a_record_that_chapters_can_read(rows):
    found, folder = rows
    (path,) = folder.iterdir()
    assert re.fullmatch(r"no-GPU-rehearsal-in-the-interpreter-\d{4}-\d\d-\d\d\.json", path.name)
    assert found.device == gpu.REHEARSAL and "torch" in found.versions
    kinds = [row["kind"] for row in found.results]
    counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    assert counts == {"attention": 6, "ceiling": 3, "check": 18, "decode": 3, "quantized": 4, "quantizer": 7}
    assert "no GPU" in found.title and json.loads(path.read_text(encoding="utf-8"))["results"]


def test_every_kernel_was_checked_and_passed(rows):
    checks = [row for row in rows[0].results if row["kind"] == "check"]
    assert all(row["passed"] and row["error"] <= row["tolerance"] for row in checks)
    assert {"matmul", "RMSNorm;linear", "cross-entropy", "causal attention bf16"} <= {row["name"] for row in checks}


def test_rates_are_operations_over_time_and_the_best_tile_goes_on(rows):
    speeds = [row for row in rows[0].results if row["kind"] == "attention"]
    for row in speeds:
        operations = script.flops(row["heads"], row["length"], row["d"], row["causal"])
        assert row["rate_flop_per_s"] == pytest.approx(operations / row["time_s"])
        assert row["fused_rate_flop_per_s"] == pytest.approx(operations / row["fused_time_s"])
    for causal in (False, True):
        tried = [row for row in speeds if row["causal"] == causal and row["length"] == script.TINY.tried]
        (longer,) = (row for row in speeds if row["causal"] == causal and row["length"] != script.TINY.tried)
        assert longer["tile"] == min(tried, key=lambda row: row["time_s"])["tile"]


def test_fewer_bits_are_set_against_fp16_without_and_with_the_time_that_codes_take(rows):
    found = rows[0].results
    quantizers = {row["name"]: row for row in found if row["kind"] == "quantizer" and row["x"] == 32}
    plain = min(r["time_s"] for r in found if r["kind"] == "attention" and r["length"] == 32 and not r["causal"])
    values = sum(quantizers[name]["time_s"] for name in ("scales per channel", "fp8e4m3 per channel"))
    for row in (row for row in found if row["kind"] == "quantized"):
        codes = values + 2 * quantizers[f"{row['scores']} per token"]["time_s"]
        assert row["fp16_time_s"] == plain and row["codes_time_s"] == pytest.approx(codes)
        assert row["speedup"] == pytest.approx(plain / row["time_s"])
        assert row["speedup_with_codes"] == pytest.approx(plain / (row["time_s"] + codes))
    fp16, int8, int4 = (row for row in found if row["kind"] == "decode")
    assert (fp16["cache"], int8["cache"], int4["cache"]) == ("fp16", "int8", "int4")
    assert int4["speedup"] == pytest.approx(fp16["time_s"] / int4["time_s"]) and fp16["speedup"] is None
    scales, ends = 2 * 48 * 4, 2 * 8 * 16 * 2
    assert [row["bytes"] - ends for row in (fp16, int8, int4)] == [
        2 * 48 * 16 * 2, 2 * 48 * 16 + scales, 48 * 16 + scales,
    ]  # fmt: skip
    assert all(row["rate_byte_per_s"] == pytest.approx(row["bytes"] / row["time_s"]) for row in (fp16, int8, int4))


def test_causal_pairs_are_exact():
    assert script.flops(1, 64, 1, causal=True) == 4 * 2080
    assert script.flops(2, 100, 8, causal=False) == 4 * 8 * 2 * 100 * 100


def test_heads_keep_tokens_and_width():
    assert script.FULL.head_count(128, 4096) == 16 * 4 and script.FULL.head_count(64, 16_384) == 32


def test_when_time_is_over_rows_say_what_was_left_out():
    session = gpu.Session(0.0)
    script.measure(session, SMALL, small=True)
    assert {row["kind"] for row in session.rows} == {"left out"}
    assert session.rows[0] == {"kind": "left out", "of": "ceilings", "reason": "0 s are over"}


def test_what_fails_becomes_a_row_and_the_rest_goes_on():
    session = gpu.Session(100.0)

    def refused():
        raise FormatError("too large", remedy="use smaller tiles")

    assert session.attempt("attention", refused, d=64) is None
    reason = "FormatError: too large; use smaller tiles"
    assert session.rows == [{"kind": "refused", "of": "attention", "reason": reason, "d": 64}]
    assert session.attempt("attention", lambda: 5) == 5


def test_a_fault_of_any_class_becomes_a_row(capsys):
    """Such as Triton's own error for want of resources, which is no RuntimeError."""

    class ResourceError(Exception):
        pass

    def failing():
        raise ResourceError("shared memory")

    session = gpu.Session(100.0)
    assert session.attempt("attention", failing, d=256) is None
    assert session.rows == [{"kind": "failed", "of": "attention", "reason": "ResourceError: shared memory", "d": 256}]


def test_a_tile_that_is_refused_is_no_fault_and_a_check_is():
    passed, bad = {"kind": "check", "passed": True}, {"kind": "check", "passed": False}
    tile, check = {"kind": "refused", "of": "attention"}, {"kind": "refused", "of": "check"}
    failed = {"kind": "failed", "of": "attention"}
    assert script.faults([passed, bad, tile, check, failed]) == [bad, check, failed]


def test_a_failed_check_stops_the_timing(monkeypatch):
    monkeypatch.setattr(gpu, "checked", lambda *_: False)
    session = gpu.Session(100.0)
    script.measure(session, SMALL, small=True)
    assert {row["kind"] for row in session.rows} == {"ceiling"}


def test_without_a_gpu_the_real_run_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "on_gpu", lambda: False)
    assert script.main(["--to", str(tmp_path)]) == 1
    assert "no GPU here" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_random_tensors_are_in_the_formats_of_the_diagram():
    made = lower(workloads.streamed("bf16", False), d=16, g_q=16, s_x=16)
    found = gpu.random_tensors(made, {"h": 2, "q": 40, "x": 30, "d": 16})
    assert {name: tuple(t.shape) for name, t in found.items()} == {"Q": (2, 40, 16), "K": (2, 30, 16), "V": (2, 30, 16)}
    assert all(t.dtype == torch.bfloat16 and 0.8 < float(t.float().std()) < 1.2 for t in found.values())
    codes = lower(workloads.eight_bits("int8"), d=16, g_q=16, s_x=32)
    found = gpu.random_tensors(codes, {"h": 2, "q": 40, "x": 30, "d": 16})
    assert (found["Q"].dtype, found["V"].dtype, found["sk"].dtype) == (torch.int8, torch.float8_e4m3fn, torch.float32)
    assert int(found["Q"].min()) < -100 and int(found["Q"].max()) > 100
    packed = lower(workloads.cached("int4"), d=16, g_q=16, s_x=32)
    found = gpu.random_tensors(packed, {"h": 2, "q": 40, "x": 30, "d": 16})
    assert (int(found["K"].min()), int(found["K"].max())) == (-7, 7)


# ---- the launch on a GPU, with the CPU as device and the interpreter as its compiler ----


KINDS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.int8: "int8"}
KINDS |= {torch.float8_e4m3fn: "fp8e4m3"}


def as_numpy(tensor):
    return (tensor.float() if tensor.is_floating_point() else tensor).contiguous().numpy()


class Stand:
    """Stands in for a compiled kernel: checks how it is launched, and lets the interpreter do the work."""

    def __init__(self, path, entry):
        self.path, self.entry, self.launches = path, entry, []
        self.shared = 1000

    def warmup(self, *arguments, grid, **options):
        assert grid == (1,) and options == dict(self.entry.options)
        return SimpleNamespace(metadata=SimpleNamespace(shared=self.shared))

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            self.launches.append((grid, options))
            tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
            numbers = tuple(a for a in arguments if not isinstance(a, torch.Tensor))
            sent = tuple(Tensor(as_numpy(t), tuple(t.stride()), KINDS[t.dtype]) for t in tensors)
            request = Request(self.path, self.entry.function, sent, len(self.entry.stores), numbers, grid)
            made = interpreter().run(request).outputs
            for tensor, value in zip(tensors[len(self.entry.loads) :], made, strict=True):
                tensor.copy_(torch.from_numpy(value))

        return launch


@pytest.fixture
def device(monkeypatch):
    """A GPU of compute capability 9.0 that is the CPU; yields the kernels that were launched on it."""
    kernels = {}

    def module(text):
        stands = {e.function: Stand(str(text.path()), e) for e in text.entries}
        return SimpleNamespace(**{name: kernels.setdefault((text.key, name), one) for name, one in stands.items()})

    properties = SimpleNamespace(shared_memory_per_block_optin=232_448)
    monkeypatch.setattr(triton_run, "on_gpu", lambda: True)
    monkeypatch.setattr(triton_run, "DEVICE", "cpu")
    monkeypatch.setattr(triton_run, "_module", module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a GPU")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    return kernels


def flash(**sizes):
    term = derive.stream(derive.group(derive.fuse(plain_attention()), q="g_q"), x="s_x")
    return Kernel(lower(term, d=8, e=8, g_q=16, s_x=16, **sizes), "triton")


def test_the_same_calls_run_on_a_gpu(device):
    assert flash().check(q=40, x=37).passed
    (stand,) = device.values()
    assert stand.launches == [((3,), dict(stand.entry.options))]
    naive = Kernel(lower(plain_attention(), q=9, x=7, d=8, e=8), "triton")
    assert naive.check().passed, "kernel after kernel, with the intermediates in between"


def test_outputs_come_back_in_the_kind_and_format_of_the_inputs(device):
    arrays = {n: np.random.default_rng(0).normal(size=s).astype(np.float16) for n, s in (("Q", (5, 8)), ("K", (6, 8)))}
    assert flash()(**arrays, V=arrays["K"][:, ::-1]).dtype == np.float16
    tensors = {name: torch.from_numpy(value).bfloat16() for name, value in arrays.items()}
    assert flash()(**tensors, V=tensors["K"]).dtype == torch.bfloat16


def test_codes_are_packed_on_the_device_and_come_back_from_it(device):
    for term in (workloads.cached("int4"), workloads.codes_per_token("int4"), workloads.codes_per_token("fp8e4m3")):
        tiles = {name: 16 for name in ("g_q", "g_x", "s_x") if name in {str(t.tile) for t in term.labels}}
        made = lower(term, d=16, **tiles)
        sizes = {name: n for name, n in {"h": 1, "q": 5, "x": 20, "d": 16}.items() if name in term.axes}
        arrays = gpu.random_tensors(made, sizes)
        assert Kernel(made, "triton").check(arrays=arrays).passed
    with pytest.raises(InputError, match="int4 codes lie in -8..7"):
        triton_run.queued(made_of_codes(), {"q": 2}, {"X": torch.tensor([8, 0])})


def made_of_codes():
    X = dk.array("X", dk.axis("q"), dtype="int4")
    return lower(derive.group(derive.fuse(Term(*ops.trace([dk.cast(X, "fp32", "Y")]), "codes")), q=2))


def test_an_empty_result_launches_nothing(device):
    made = flash()(Q=np.zeros((0, 8), np.float32), K=np.zeros((3, 8), np.float32), V=np.zeros((3, 8), np.float32))
    assert made.shape == (0, 8) and not next(iter(device.values())).launches


def test_too_much_shared_memory_is_refused_before_launch(device, monkeypatch):
    monkeypatch.setattr(Stand, "warmup", lambda *_, **__: SimpleNamespace(metadata=SimpleNamespace(shared=232_449)))
    with pytest.raises(FormatError, match="takes 232,449 bytes of shared memory, a block on a GPU may have 232,448"):
        flash().check(q=40, x=37)
    assert not next(iter(device.values())).launches


def test_more_groups_than_a_launch_takes_are_refused():
    made = lower(workloads.streamed("fp16", False), d=16, g_q=16, s_x=16)
    assert triton_run.grid(made.kernels[0], {"h": 65_535, "q": 33, "x": 1, "d": 16}) == (3, 65_535)
    with pytest.raises(InputError, match="has 65,536 groups along h: a launch takes 65,535; use larger tiles along h"):
        triton_run.grid(made.kernels[0], {"h": 65_536, "q": 33, "x": 1, "d": 16})


def test_formats_and_devices_that_do_not_fit_are_refused(device, monkeypatch):
    narrow = Kernel(lower(workloads.streamed("bf16", False), h=1, q=16, x=16, d=16, g_q=16, s_x=16), "triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    with pytest.raises(FormatError, match="sm_75 has no bf16"):
        narrow.check()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (6, 0))
    with pytest.raises(FormatError, match=r"compute capability 7.5 or newer"):
        narrow.check()
