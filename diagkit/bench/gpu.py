"""Measuring a GPU: ceilings, checks, sweeps, within a time limit, into one record.

What is measured is handed in as programs. Times are of the GPU's own clock, many launches in a row, on
random data (zeros would draw less power and run faster). Without a GPU the same steps run in the
interpreter at tiny sizes, as a rehearsal: its times say nothing about any device.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from diagkit.bench.check import check
from diagkit.bench.inputs import sizes_for
from diagkit.bench.messages import TORCH
from diagkit.bench.triton_run import on_gpu, queued
from diagkit.ops import largest_number
from diagkit.program import Program
from diagkit.term import DiagkitError

REHEARSAL = "no GPU: rehearsal in the interpreter"
_GOAL_S = 0.05
_ROUNDS = 7


@dataclass
class Session:
    """One run: rows of results as they come, and what time is left of `limit_s` seconds."""

    limit_s: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        """Seconds that remain."""
        return self.limit_s - (time.monotonic() - self.began)

    def add(self, kind: str, **values: Any) -> dict[str, Any]:
        """One row."""
        self.rows.append({"kind": kind, **values})
        return self.rows[-1]

    def attempt(self, kind: str, work: Callable[[], Any], reserve_s: float = 10.0, **about: Any) -> Any:
        """Do `work` where time is left; what is refused, fails or finds no time becomes a row that says so. A fault
        of one kernel, of whatever class, must not cost the measurements of the others."""
        if self.left_s < reserve_s:
            self.add("left out", of=kind, reason=f"{self.limit_s:.0f} s are over", **about)
            return None
        try:
            return work()
        except DiagkitError as error:
            self.add("refused", of=kind, reason=_said(error), **about)
        except Exception as error:  # noqa: BLE001 (of whatever class)
            self.add("failed", of=kind, reason=_said(error), **about)
        return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def available() -> bool:
    """Whether torch finds a GPU."""
    return on_gpu()


def timed(run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of one `run`: the median of several rounds, each of many launches in a row, and their spread."""
    run()
    once = _round(run, 1)
    count = max(1, min(200, int(_GOAL_S / max(once, 1e-6))))
    rounds = [_round(run, count) for _ in range(_ROUNDS if on_gpu() else 1)]
    median = statistics.median(rounds)
    return {"time_s": median, "spread": (max(rounds) - min(rounds)) / median}


def _round(run: Callable[[], Any], count: int) -> float:
    """Seconds per launch of `count` in a row."""
    if not on_gpu():
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin
    import torch

    begin_at, end_at = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin_at.record()
    for _ in range(count):
        run()
    end_at.record()
    torch.cuda.synchronize()
    return float(begin_at.elapsed_time(end_at)) / 1e3 / count


def ceilings(session: Session, side: int, copy_bytes: int) -> dict[str, float]:
    """What the device can do at most: a copy in bytes per second (both directions counted), and products
    of random matrices in FLOP per second, by format. Returns the rates by name."""
    import torch

    place = "cuda" if on_gpu() else "cpu"
    source = torch.randint(0, 255, (copy_bytes,), dtype=torch.uint8, device=place)
    target = torch.empty_like(source)
    found = timed(lambda: target.copy_(source))
    rates = {"copy": 2 * copy_bytes / found["time_s"]}
    session.add("ceiling", name="copy", bytes=2 * copy_bytes, rate_byte_per_s=rates["copy"], **found)
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        a, b = (torch.randn(side, side, device=place).to(dtype) for _ in range(2))
        found = timed(partial(torch.matmul, a, b))
        rates[name] = 2 * side**3 / found["time_s"]
        session.add("ceiling", name=f"gemm {name}", side=side, rate_flop_per_s=rates[name], **found)
    return rates


def checked(session: Session, name: str, program: Program, sizes: Mapping[str, int]) -> bool:
    """Check a program against float64 on the device; whether it passed."""
    full = sizes_for(program, sizes)
    found = check(program, "triton", random_tensors(program, full), full, 0)
    session.add("check", name=name, error=found.error, tolerance=found.tolerance, passed=found.passed)
    return found.passed


def times(program: Program, arrays: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of a program on these arrays, and their spread."""
    sizes = {axis.name: n for a in program.term.inputs for axis, n in zip(a.axes, arrays[a.name].shape, strict=True)}
    return timed(queued(program, sizes, arrays))


def speed(program: Program, arrays: Mapping[str, Any], flops: int) -> dict[str, Any]:
    """Time and FLOP per second of a program on these arrays."""
    found = times(program, arrays)
    return {**found, "rate_flop_per_s": flops / found["time_s"]}


def fused(arrays: Mapping[str, Any], causal: bool, flops: int) -> dict[str, Any]:
    """Time and FLOP per second of torch's fused attention on Q, K, V of shape (heads, length, features)."""
    import torch

    q, k, v = (arrays[name].unsqueeze(0) for name in "QKV")
    attention = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode():
        found = timed(lambda: attention(q, k, v, is_causal=causal))
    return {"fused_time_s": found["time_s"], "fused_rate_flop_per_s": flops / found["time_s"]}


_CODES = {"int8": 127, "int4": 7}


def random_tensors(program: Program, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Torch tensors for every input, where the kernels run and in the formats of the diagram: normal numbers,
    codes over their whole range, masks three quarters true, other whole numbers below the largest size."""
    import torch

    place = "cuda" if on_gpu() else "cpu"
    random = torch.Generator(place).manual_seed(seed)
    found = {}
    for array in program.term.inputs:
        shape, dtype = [sizes[axis.name] for axis in array.axes], getattr(torch, TORCH[array.dtype])
        if array.dtype == "bool":
            found[array.name] = torch.rand(shape, device=place, generator=random) < 0.75
        elif array.dtype.startswith("int"):
            most = _CODES.get(array.dtype)
            low, high = (-most, most + 1) if most else (0, largest_number(program.term, array, sizes))
            found[array.name] = torch.randint(low, high, shape, device=place, generator=random, dtype=dtype)
        elif array.dtype == "fp8e8m0":
            found[array.name] = torch.exp2(torch.randint(-4, 5, shape, device=place, generator=random).float())
        else:
            found[array.name] = torch.randn(shape, device=place, generator=random).to(dtype)
    return found


def device() -> str:
    """The GPU's name, or that there is none."""
    if not on_gpu():
        return REHEARSAL
    import torch

    return str(torch.cuda.get_device_name())


def record(session: Session, folder: Path) -> Path:
    """Write everything to one file of `folder`, named by device and date; returns it."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in ("torch", "triton")}}
    content = {"device": device(), "date": today, "versions": versions, "results": session.rows}
    name = re.sub(r"\W+", "-", device()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{today}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
