"""How long the parts of one diagram take: import, picture, costs, evaluation. Run with ``make bench``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import examples

IMPORT = "import time, numpy, sympy; t = time.perf_counter(); import diagkit; print(time.perf_counter() - t)"


def test_import_on_top_of_numpy_and_sympy(benchmark: Any) -> None:
    """Aim: at most 0.15 s on top of numpy and sympy; `extra_info` holds the seconds of the import alone."""
    seconds = []

    def load() -> None:
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout))

    benchmark.pedantic(load, rounds=5)
    benchmark.extra_info["import_s"] = sorted(seconds)[len(seconds) // 2]


@pytest.mark.parametrize("form", ["naive", "flash"])
def test_picture_of_attention(benchmark: Any, form: str) -> None:
    """Aim: under 50 ms without its costs."""
    from diagkit import draw

    diagram = _form(form)
    benchmark(lambda: draw.svg(_fresh(diagram)))


@pytest.mark.parametrize("form", ["naive", "flash"])
def test_costs_of_attention(benchmark: Any, form: str) -> None:
    """Aim: under 50 ms for transfers, memory and work."""
    diagram = _form(form)

    def costs() -> None:
        fresh = _fresh(diagram)
        fresh.transfers().total()
        fresh.memory().peak()
        fresh.work()

    benchmark(costs)


def test_naive_to_flash(benchmark: Any) -> None:
    """Aim: under 0.5 s with the lemma found."""
    naive = examples.attention()
    benchmark(lambda: naive.fuse().group(q="g_q").stream(x="s_x"))


@pytest.mark.parametrize("layers", [3, 6, 12])
def test_transformer_layers(benchmark: Any, layers: int) -> None:
    """Aim: twelve layers built, costed and drawn in under 5 s, growing linearly."""

    def everything() -> None:
        whole = examples.transformer(layers)
        whole.transfers().total()
        whole.memory().peak()
        whole.work()
        whole.svg()

    benchmark.pedantic(everything, rounds=3, warmup_rounds=1)


def test_evaluation_against_plain_numpy(benchmark: Any) -> None:
    """Attention of 1024 x 1024 x 64 in float32; `extra_info` holds the time of plain numpy."""
    import time

    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((1024, 64), np.float32) for name in "QKV"}
    naive = examples.attention()

    def plainly() -> Any:
        scores = given["Q"] @ given["K"].T * np.float32(0.125)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True) @ given["V"]

    times = []
    for _ in range(7):
        start = time.perf_counter()
        plainly()
        times.append(time.perf_counter() - start)
    benchmark.extra_info["plain_numpy_s"] = sorted(times)[3]
    benchmark(lambda: naive(**given))


def _form(form: str) -> Any:
    naive = examples.attention()
    return naive if form == "naive" else naive.fuse().group(q="g_q").stream(x="s_x")


def _fresh(diagram: Any) -> Any:
    """The same value with nothing remembered."""
    return type(diagram)(**{name: getattr(diagram, name) for name in diagram.__dataclass_fields__})
