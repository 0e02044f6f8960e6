"""How long costs take: attention, a deep transformer, the optimum and the legal tile. Run with ``make bench``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import cost_cases

import diagkit as dk
from diagkit import cost, ops
from diagkit.term import Term

SIZES = {"q": 16384, "x": 16384, "d": 128, "e": 128}


def transformer(layers: int) -> Term:
    """Pre-norm layers of causal attention and a gated MLP, about 22 boxes each."""
    t, u, m, f, h, v = dk.axes("t u m f h v")
    X = dk.array("X", t, m)
    for n in range(layers):
        X = X + attended(dk.rms_norm(X, over=m), n, (t, u, m, h, v))
        N = dk.rms_norm(X, over=m)
        up, gate, down = (dk.weight(f"{name}{n}", m, f) for name in ("up", "gate", "down"))
        H = dk.silu(dk.einsum("t m, m f -> t f", N, gate)) * dk.einsum("t m, m f -> t f", N, up)
        X = X + dk.einsum("t f, m f -> t m", H, down)
    return Term(*ops.trace([X]), f"{layers} layers")


def attended(N: Any, n: int, axes: tuple[Any, ...]) -> Any:
    """Causal self-attention over N, with its four projections."""
    t, u, m, h, v = axes
    query, key, value, out = (dk.weight(f"{name}{n}", m, h, v) for name in ("query", "key", "value", "out"))
    R = dk.rename(N, t=u)
    Q = dk.einsum("t m, m h v -> t h v", N, query)
    K, V = (dk.einsum("u m, m h v -> u h v", R, one) for one in (key, value))
    S = dk.masked(dk.einsum("t h v, u h v -> t u h", Q, K) * v.size**-0.5, dk.causal(t, u))
    return dk.einsum("t h v, m h v -> t m", dk.einsum("t u h, u h v -> t h v", dk.softmax(S, over=u), V), out)


def every_cost(term: Term) -> None:
    """What the picture and its table ask for."""
    fresh = Term(term.inputs, term.boxes, term.outputs, term.name, term.levels, term.labels, term.forms)
    cost.columns(fresh)
    cost.transfers(fresh).relaxed().total()
    cost.memory(fresh).peak()
    cost.work(fresh).flop()


@pytest.mark.parametrize("mask", ["none", "top-left"])
def test_costs_of_attention(benchmark: Any, mask: str) -> None:
    """Aim: under 50 ms."""
    benchmark(every_cost, cost_cases.masked(mask))


@pytest.mark.parametrize("layers", [3, 6, 12, 24])
def test_costs_of_a_transformer(benchmark: Any, layers: int) -> None:
    """Aim: under 1 s at 12 layers, linear in layers."""
    benchmark.pedantic(every_cost, (transformer(layers),), rounds=3)


@pytest.mark.parametrize("case", ["attention", "matmul"])
def test_optimum(benchmark: Any, case: str) -> None:
    """Aim: under 0.5 s."""
    term = cost_cases.masked("none") if case == "attention" else cost_cases.tiled_matmul()
    benchmark(lambda: cost.optimum(term, "M"))


@pytest.mark.parametrize("mask", ["none", "top-left"])
def test_legal_tile(benchmark: Any, mask: str) -> None:
    """Aim: under 0.5 s, the mask's tiles counted exactly."""
    term = cost_cases.masked(mask)
    benchmark(lambda: cost.legal_tile(term, 227 * 1024, unit="bytes", dtype="fp16", **SIZES))


@pytest.mark.parametrize("mask", ["none", "top-left"])
def test_sweep_of_ten_thousand_points(benchmark: Any, mask: str) -> None:
    """Aim: under 2 s, every count exact: 4 machines, 10 lengths, 2 head sizes, 5 by 25 tiles."""
    diagram = dk.Diagram(**{name: getattr(cost_cases.masked(mask), name) for name in PARTS})
    tiles = {"g_q": [16, 32, 64, 128, 256], "s_x": range(16, 416, 16)}
    lengths = [2**k for k in range(8, 18)]
    machines = ["A100-SXM-80GB", "B200", "H100-SXM", "T4"]
    swept = benchmark(lambda: diagram.sweep(machines, "fp16", q=lengths, x="q", d=[64, 128], e="d", **tiles))
    assert len(swept) == 10_000
    benchmark.extra_info["of_the_aim"] = benchmark.stats["median"] / 2


PARTS = ("inputs", "boxes", "outputs", "levels", "labels", "forms")


@pytest.mark.parametrize("mask", ["none", "top-left"])
@pytest.mark.parametrize("turned", ["tile", "size", "machine"])
def test_a_step_of_the_explorer(benchmark: Any, mask: str, turned: str) -> None:
    """Aim: under 200 ms from a control to the new figure."""
    diagram = dk.Diagram(**{name: getattr(cost_cases.masked(mask), name) for name in PARTS})
    shown = dk.Explorer(diagram, machine="H100-SXM", q=4096, x="q", d=128, e="d", g_q=64, s_x=64)
    steps = {
        "tile": [{"g_q": tile} for tile in (16, 32, 64, 128, 256)],
        "size": [{"q": 2**power + 16} for power in range(8, 15)],
        "machine": [{"machine": name} for name in ("A100-SXM-80GB", "B200", "L40S", "T4")],
    }[turned]
    turns = iter(steps * 4)
    benchmark.pedantic(lambda: shown.at(**next(turns)).svg(), rounds=len(steps), warmup_rounds=1)
    benchmark.extra_info["of_the_aim"] = benchmark.stats["median"] / 0.2
