"""How long generated kernels take, as ratios in one run. Run with ``make bench``."""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import diagkit as dk
from diagkit.bench.numba_run import launch

HEADS, ROUNDS = 4, 5


def _attention(n: int, features: int, causal: bool, tiles: tuple[int, int]) -> Any:
    """A launch of fp32 attention over n queries and keys, 4 heads, on normal inputs."""
    h, q, x, d = dk.axes("h q x d")
    arrays = dk.array("Q", h, q, d), dk.array("K", h, x, d), dk.array("V", h, x, d)
    mask = dk.causal(q, x) if causal else None
    whole = dk.Diagram(dk.attention(*arrays, over=x, features=d, mask=mask, name="O"), name="attention")
    sizes = {"h": HEADS, "q": n, "x": n, "d": features}
    program = whole.fuse().group(h=1, q=tiles[0]).stream(x=tiles[1]).lower(**sizes)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((HEADS, n, features)).astype(np.float32) for name in "QKV"}
    return launch(program, sizes, given)


@pytest.mark.parametrize(("n", "features"), [(2048, 64), (2048, 128), (4096, 64), (4096, 128)])
def test_causal_attention_per_query(benchmark: Any, n: int, features: int) -> None:
    """Aim: at least 1.6 times as fast per query as the full kernel; `extra_info` holds the ratio."""
    runs = {"full": _attention(n, features, False, (256, 512)), "causal": _attention(n, features, True, (256, 256))}
    seconds: dict[str, list[float]] = {name: [] for name in runs}

    def round_of_both() -> None:
        for name, one in runs.items():
            begun = perf_counter()
            one.run()
            seconds[name].append(perf_counter() - begun)

    benchmark.pedantic(round_of_both, rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info["causal_per_query"] = median(seconds["full"][1:]) / median(seconds["causal"][1:])
