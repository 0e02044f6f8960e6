"""`make gpu`: measures a machine that has a GPU, in at most eight minutes, and records what it found.

``python -m diagkit.book.gpu [--minutes 8] [--to FOLDER] [--rehearse]``. It needs torch, triton and the core of
diagkit, and no network. With --rehearse it runs everywhere, at tiny sizes, in the interpreter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from diagkit import derive, machine, ops, program
from diagkit.bench import gpu
from diagkit.term import Term

_HIDDEN = 2048
_TOKENS = 16_384


@dataclass(frozen=True)
class Plan:
    """What is measured: matrix `side` and `copy_bytes` of the ceilings, head sizes, lengths, tiles (queries by
    keys) that are tried at `tried` keys; `tokens` and `hidden` give the number of heads."""

    side: int
    copy_bytes: int
    heads: tuple[int, ...]
    lengths: tuple[int, ...]
    tiles: tuple[tuple[int, int], ...]
    tried: int
    tokens: int
    hidden: int

    def head_count(self, d: int, length: int) -> int:
        """Heads times batch: so many tokens at every length, so many features in all heads."""
        return max(1, self.hidden // d) * max(1, self.tokens // length)


FULL = Plan(
    8192, 1 << 30, (128, 64, 256), (4096, 16_384, 1024, 2048, 8192), ((128, 128), (128, 64), (64, 64)), 4096,
    _TOKENS, _HIDDEN,
)  # fmt: skip
TINY = Plan(64, 1 << 12, (16,), (32, 48), ((16, 16), (32, 16)), 32, 32, 16)


def attention(dtype: str = "fp16", causal: bool = False) -> Term:
    """softmax(Q K / sqrt d) V over heads, each head a group; queries grouped, keys streamed."""
    h, q, x, d = ops.axes("h q x d")
    Q, K, V = (ops.array(name, h, axis, d, dtype=dtype) for name, axis in (("Q", q), ("K", x), ("V", x)))
    mask = ops.causal(q, x) if causal else None
    O = ops.attention(Q, K, V, over=x, features=d, mask=mask)
    made = Term(*ops.trace([O], {"O": O}), "causal attention" if causal else "attention")
    return derive.stream(derive.group(derive.fuse(made), h=1, q="g_q"), x="s_x")


@cache
def streamed(dtype: str, causal: bool) -> Term:
    """`attention`, derived once."""
    return attention(dtype, causal)


def workloads(small: bool) -> Iterator[tuple[str, program.Program, dict[str, int]]]:
    """(name, program, sizes) of every kernel that is checked: edges everywhere."""
    length, tile = (20, 16) if small else (333, 64)
    for dtype in ("fp16", "bf16", "fp32"):
        for causal in (False, True):
            made = program.lower(streamed(dtype, causal), d=24, g_q=tile, s_x=tile)
            yield f"{made.term.name} {dtype}", made, {"h": 2, "q": length, "x": length + 9}
    for scores in ("fp8e4m3", "int8"):
        made = program.lower(eight_bits(scores), d=32, g_q=tile, s_x=max(tile, 32))
        yield made.term.name, made, {"h": 2, "q": length, "x": length + 9}
    for name, term in others().items():
        tiles = {str(label.tile): tile for label in term.labels if label.tile.is_Symbol}
        whole = {axis: 24 for axis in term.axes if not any(label.axis == axis for label in term.labels)}
        rest = {label.axis: length for label in term.labels}
        yield name, program.lower(term, **tiles, **whole), rest


def eight_bits(scores: str) -> Term:
    """Attention whose products are of 8-bit codes, with a scale per query, key and feature; V lies transposed."""
    h, q, x, d = ops.axes("h q x d")
    Q, K = ops.array("Q", h, q, d, dtype=scores), ops.array("K", h, x, d, dtype=scores)
    V, sq, sk = ops.array("V", h, d, x, dtype="fp8e4m3"), ops.array("sq", h, q), ops.array("sk", h, x)
    S = ops.contract(Q, K, over=d) * sq * sk * d.size**-0.5
    P = ops.cast(ops.softmax(S, over=x) * 256, "fp8e4m3")
    O = ops.cast(ops.contract(P, V, over=x) * ops.array("sv", h, d) / 256, "bf16")
    made = Term(*ops.trace([O], {"O": O}), f"attention, {scores} codes")
    return derive.stream(derive.group(derive.fuse(made), h=1, q="g_q"), x="s_x")


def others() -> dict[str, Term]:
    """Kernels beside attention: a matrix product, RMSNorm and a linear layer, cross-entropy."""
    q, x, e = ops.axes("q x e")
    A, W = ops.array("A", q, x, dtype="fp16"), ops.weight("W", x, e, dtype="fp16")
    N = ops.rms_norm(A, over=x, gain=ops.weight("G", x, dtype="fp16"))
    loss = ops.cross_entropy(ops.array("S", q, x), ops.array("t", q, dtype="int64"), over=x)
    outputs = {
        "matmul": ops.contract(A, W, over=x),
        "RMSNorm;linear": ops.contract(N, W, over=x),
        "cross-entropy": loss,
    }
    made = {name: Term(*ops.trace([O], {"O": O}), name) for name, O in outputs.items()}
    return {name: derive.stream(derive.group(derive.fuse(t), q="g_q"), x="s_x") for name, t in made.items()}


def flops(heads: int, length: int, d: int, causal: bool) -> int:
    """FLOP of the two products: 4 d per pair of query and key that sees it.

    >>> flops(1, 64, 1, causal=True)
    8320
    """
    pairs = length * (length + 1) // 2 if causal else length * length
    return 4 * d * heads * pairs


def measure(session: gpu.Session, plan: Plan, small: bool) -> None:
    """Ceilings, checks, then attention: tiles at one length, the best of them at every length."""
    rates = session.attempt("ceilings", lambda: gpu.ceilings(session, plan.side, plan.copy_bytes)) or {}
    passed = [session.attempt("check", partial(gpu.checked, session, *one), name=one[0]) for one in workloads(small)]
    if not any(passed):
        return
    for d in plan.heads:
        for causal in (False, True):
            best = _best_tile(session, plan, d, causal, rates)
            for length in plan.lengths if best else ():
                if best and length != plan.tried:
                    _one(session, plan, (d, causal, length), best, rates)


Case = tuple[int, bool, int]


def _best_tile(
    session: gpu.Session, plan: Plan, d: int, causal: bool, rates: Mapping[str, float]
) -> tuple[int, int] | None:
    """The tile that is fastest at the length at which tiles are tried."""
    found = {tile: _one(session, plan, (d, causal, plan.tried), tile, rates) for tile in plan.tiles}
    timed = {tile: row["time_s"] for tile, row in found.items() if row}
    return min(timed, key=lambda tile: timed[tile], default=None)


def _one(
    session: gpu.Session, plan: Plan, case: Case, tile: tuple[int, int], rates: Mapping[str, float]
) -> dict[str, Any] | None:
    d, causal, length = case
    about: dict[str, Any] = {"d": d, "causal": causal, "length": length, "tile": f"{tile[0]}x{tile[1]}"}

    def work() -> dict[str, Any]:
        heads = plan.head_count(d, length)
        made = program.lower(streamed("fp16", causal), h=heads, q=length, x=length, d=d, g_q=tile[0], s_x=tile[1])
        arrays = gpu.random_tensors(made, {"h": heads, "q": length, "x": length, "d": d})
        operations = flops(heads, length, d, causal)
        row = {**about, "heads": heads, "dtype": "fp16", **gpu.speed(made, arrays, operations)}
        share = row["rate_flop_per_s"] / rates["fp16"] if "fp16" in rates else None
        return session.add("attention", **row, share_of_gemm=share, **gpu.fused(arrays, causal, operations))

    found: dict[str, Any] | None = session.attempt("attention", work, **about)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and record; 1 where there is no GPU, or where a check failed."""
    parser = argparse.ArgumentParser(description="measures this machine's GPU and records what it found")
    parser.add_argument("--minutes", type=float, default=8.0, help="time limit")
    parser.add_argument("--to", type=Path, help="folder of the record; data/measurements unless given")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, in the interpreter where there is no GPU")
    given = parser.parse_args(arguments)
    if not given.rehearse and not gpu.available():
        print("no GPU here: torch finds none. --rehearse tries everything at tiny sizes.")
        return 1
    session = gpu.Session(60 * given.minutes - 5)
    measure(session, TINY if given.rehearse else FULL, given.rehearse)
    usual = Path("build/measurements") if given.rehearse else machine.data_path() / "measurements"
    path = gpu.record(session, given.to or usual)
    checks = [row for row in session.rows if row["kind"] == "check"]
    faults = [row for row in session.rows if row["kind"] == "failed"] + [row for row in checks if not row["passed"]]
    print(f"{len(session.rows)} rows in {path}; {len(checks)} kernels checked, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
