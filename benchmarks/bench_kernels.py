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
CODES = {"fp32": 0, "int8": 127, "int4": 7}
"""The formats of keys and values, and the largest code of each."""


def _attention(n: int, features: int, causal: bool) -> Any:
    """A launch of fp32 attention over n queries and keys, 4 heads, on normal inputs, at the tile that the cache and
    the rates of this machine ask for."""
    h, q, x, d = dk.axes("h q x d")
    arrays = dk.array("Q", h, q, d), dk.array("K", h, x, d), dk.array("V", h, x, d)
    mask = dk.causal(q, x) if causal else None
    whole = dk.Diagram(dk.attention(*arrays, over=x, features=d, mask=mask, name="O"), name="attention")
    sizes = {"h": HEADS, "q": n, "x": n, "d": features}
    tiled, here = whole.fuse().group(h=1, q="g_q").stream(x="s_x"), dk.machine.here()
    asked = {"unit": "bytes", "multiples": {"q": 16, "x": 128}, "aim": "time", "machine": here}
    program = tiled.lower(**sizes, **tiled.legal_tile(here.capacity("L2"), **asked, **sizes).tiles)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((HEADS, n, features)).astype(np.float32) for name in "QKV"}
    return launch(program, sizes, given)


def _in_turn(benchmark: Any, runs: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """The seconds of launches that take turns, so that what disturbs the machine disturbs all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}

    def one_of_each() -> None:
        for name, one in runs.items():
            begun = perf_counter()
            one.run()
            seconds[name].append(perf_counter() - begun)

    benchmark.pedantic(one_of_each, rounds=rounds, warmup_rounds=1)
    return seconds


def _ratio(one: list[float], other: list[float]) -> float:
    """The median of one over the other, round by round, without the round that warms up."""
    return median(a / b for a, b in zip(one[1:], other[1:], strict=True))


@pytest.mark.parametrize(("n", "features"), [(2048, 64), (2048, 128), (4096, 64), (4096, 128)])
def test_causal_attention_per_query(benchmark: Any, n: int, features: int) -> None:
    """Aim: at least 1.6 times as fast per query as the full kernel; `extra_info` holds the ratio."""
    runs = {"full": _attention(n, features, False), "causal": _attention(n, features, True)}
    seconds = _in_turn(benchmark, runs, ROUNDS)
    benchmark.extra_info["causal_per_query"] = _ratio(seconds["full"], seconds["causal"])


def _decode(dtype: str, keys: int = 16384, heads: int = 8, features: int = 128) -> Any:
    """A launch of attention of one query over all keys of each head; codes have a scale per key."""
    h, x, d = dk.axes("h x d")
    top, rng = CODES[dtype], np.random.default_rng(0)
    Q, K, V = dk.array("Q", h, d), *(dk.array(name, h, x, d, dtype=dtype) for name in "KV")
    S = dk.contract(Q, K, over=d) * d.size**-0.5
    P = dk.softmax(S * dk.array("sk", h, x) if top else S, over=x)
    O = dk.contract(P * dk.array("sv", h, x) if top else P, V, over=x)
    sizes = {"h": heads, "x": keys, "d": features}
    program = dk.Diagram(O, name=f"decode {dtype}").fuse().group(h=1).stream(x=512).lower(**sizes)
    given = {"Q": rng.standard_normal((heads, features)).astype(np.float32)}
    if not top:
        return launch(program, sizes, given | {n: _normal(rng, heads, keys, features) for n in "KV"})
    given |= {n: rng.integers(-top, top + 1, (heads, keys, features)).astype(np.int8) for n in "KV"}
    return launch(program, sizes, given | {n: abs(_normal(rng, heads, keys)) / top for n in ("sk", "sv")})


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def test_decode_over_codes(benchmark: Any) -> None:
    """Aim: codes of 8 bits at least 1.5 times as fast as fp32, codes of 4 bits twice; `times_fp32` are medians of
    ratios round by round, and no limit: noise is no fault. `read_per_s` are bytes of keys and values."""
    runs = {dtype: _decode(dtype) for dtype in CODES}
    seconds = _in_turn(benchmark, runs, 4 * ROUNDS)
    benchmark.extra_info["times_fp32"] = {name: _ratio(seconds["fp32"], seconds[name]) for name in runs}
    moved = {"fp32": 4.0, "int8": 1.0, "int4": 0.5}
    read = {name: 2 * 8 * 16384 * 128 * moved[name] / median(times[1:]) for name, times in seconds.items()}
    benchmark.extra_info["read_per_s"] = read
