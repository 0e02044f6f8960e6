"""`make gpu`: measures a machine that has a GPU, in at most eight minutes, and records what it found.

``python -m diagkit.book.gpu [--minutes 8] [--to FOLDER] [--rehearse]``. It needs torch, triton and the core of
diagkit, and no network. With --rehearse it runs everywhere, at tiny sizes, in the interpreter.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from diagkit import cost, machine, program
from diagkit.bench import gpu
from diagkit.book import workloads
from diagkit.book.workloads import streamed
from diagkit.term import Term

_HIDDEN = 2048
_TOKENS = 16_384


@dataclass(frozen=True)
class Plan:
    """What is measured: matrix `side` and `copy_bytes` of the ceilings, head sizes, lengths, tiles (queries by
    keys) that are tried at `tried` keys; `tokens` and `hidden` give the number of heads; `quantized` lengths;
    a `cache` of (heads, queries of each, keys)."""

    side: int
    copy_bytes: int
    heads: tuple[int, ...]
    lengths: tuple[int, ...]
    tiles: tuple[tuple[int, int], ...]
    tried: int
    tokens: int
    hidden: int
    quantized: tuple[int, ...]
    cache: tuple[int, int, int]

    def head_count(self, d: int, length: int) -> int:
        """Heads times batch: so many tokens at every length, so many features in all heads."""
        return max(1, self.hidden // d) * max(1, self.tokens // length)


FULL = Plan(
    8192, 1 << 30, (128, 64, 256), (4096, 16_384, 1024, 2048, 8192), ((128, 128), (128, 64), (64, 64)), 4096,
    _TOKENS, _HIDDEN, (4096, 16_384), (512, 8, 8192),
)  # fmt: skip
TINY = Plan(64, 1 << 12, (16,), (32, 48), ((16, 16), (32, 16)), 32, 32, 16, (32,), (1, 8, 48))


def kernels(small: bool) -> Iterator[tuple[str, program.Program, dict[str, int]]]:
    """(name, program, sizes) of every kernel that is checked: edges everywhere."""
    length, tile = (20, 16) if small else (333, 64)
    attentions = [(streamed(dtype, causal), dtype) for dtype in ("fp16", "bf16", "fp32") for causal in (False, True)]
    named = {f"{term.name} {dtype}": term for term, dtype in attentions}
    named |= {term.name: term for term in (workloads.eight_bits(scores) for scores in ("fp8e4m3", "int8"))}
    named |= {term.name: term for term in (*_decoders().values(), *_quantizers().values())} | workloads.others()
    for name, term in named.items():
        tiles = {str(label.tile): tile for label in term.labels if label.tile.is_Symbol}
        tiled = {label.axis for label in term.labels}
        whole = {axis: 32 for axis in term.axes if axis not in tiled}
        open_sizes = {"h": 2, "q": length, "x": length + 9, "d": 32}
        yield name, program.lower(term, **tiles, **whole), {a: n for a, n in open_sizes.items() if a in tiled}


def _decoders() -> dict[str, Term]:
    """Attention of few queries on a cache in int8 and int4, by format."""
    return {dtype: workloads.cached(dtype) for dtype in ("int8", "int4")}


def _quantizers() -> dict[str, Term]:
    """What makes the codes of queries, keys and transposed values, by a short name."""
    rows = {f"{dtype} per token": workloads.codes_per_token(dtype) for dtype in ("fp8e4m3", "int8", "int4")}
    rows["scales per channel"] = workloads.scales_per_channel("fp8e4m3")
    return {**rows, "fp8e4m3 per channel": workloads.codes_per_channel("fp8e4m3", transposed=True)}


def flops(heads: int, length: int, d: int, causal: bool) -> int:
    """FLOP of the two products: 4 d per pair of query and key that sees it.

    >>> flops(1, 64, 1, causal=True)
    8320
    """
    pairs = length * (length + 1) // 2 if causal else length * length
    return 4 * d * heads * pairs


def measure(session: gpu.Session, plan: Plan, small: bool) -> None:
    """Ceilings, checks; then attention, tiles at one length, the best of them at every length; after its first
    head size the same in fewer bits, so that little time leaves out other head sizes first."""
    rates = session.attempt("ceilings", lambda: gpu.ceilings(session, plan.side, plan.copy_bytes)) or {}
    passed = [session.attempt("check", partial(gpu.checked, session, *one), name=one[0]) for one in kernels(small)]
    if not any(passed):
        return
    for d in plan.heads:
        for causal in (False, True):
            best = _best_tile(session, plan, d, causal, rates)
            for length in plan.lengths if best else ():
                if best and length != plan.tried:
                    _one(session, plan, (d, causal, length), best, rates)
        if d == plan.heads[0]:
            fewer_bits(session, plan, d)


def fewer_bits(session: gpu.Session, plan: Plan, d: int) -> None:
    """Quantizers by themselves, attention on 8-bit codes, and few queries on a cache of 8 and 4 bits: each
    against fp16, without the time that making the codes takes and with it."""
    for length in plan.quantized:
        shape = {"h": plan.head_count(d, length), "x": length, "d": d}
        taken = {name: _quantizer(session, name, term, shape) for name, term in _quantizers().items()}
        fp16 = [row for row in session.rows if row["kind"] == "attention" and not row["causal"] and row["d"] == d]
        plain = min((row["time_s"] for row in fp16 if row["length"] == length), default=None)
        values = _sum(taken["scales per channel"], taken["fp8e4m3 per channel"])
        for scores in ("fp8e4m3", "int8"):
            codes = _sum(taken[f"{scores} per token"], taken[f"{scores} per token"], values)
            for tile in plan.tiles[:2]:
                _eight_bits(session, scores, {**shape, "q": length}, tile, (plain, codes))
    _decode(session, plan, d)


def _sum(*times: float | None) -> float | None:
    """Seconds in all, where each is known."""
    return None if None in times else sum(time for time in times if time is not None)


def _speedups(plain: float | None, time_s: float, codes: float | None) -> dict[str, float | None]:
    """How much faster than fp16, with the codes there and with the time to make them."""
    with_codes = None if plain is None or codes is None else plain / (time_s + codes)
    return {
        "fp16_time_s": plain,
        "codes_time_s": codes,
        "speedup": None if plain is None else plain / time_s,
        "speedup_with_codes": with_codes,
    }


def _quantizer(session: gpu.Session, name: str, term: Term, shape: Mapping[str, int]) -> float | None:
    """Seconds that a quantizer takes on an array of this shape; its row says at how many bytes per second."""
    tiles = {tile: n for tile, n in {"g_x": 64, "g_d": 32, "s_x": 128}.items() if tile in _tiles(term)}

    def work() -> float:
        made = program.lower(term, **shape, **tiles)
        found = gpu.times(made, gpu.random_tensors(made, shape))
        moved = cost.transfers(term).bytes().total(**shape, **tiles)
        about = {"name": name, **shape, "bytes": int(moved)}
        session.add("quantizer", **about, **found, rate_byte_per_s=float(moved) / found["time_s"])
        return found["time_s"]

    seconds: float | None = session.attempt("quantizer", work, name=name, length=shape["x"])
    return seconds


def _tiles(term: Term) -> set[str]:
    return {str(label.tile) for label in term.labels}


def _eight_bits(
    session: gpu.Session,
    scores: str,
    shape: Mapping[str, int],
    tile: tuple[int, int],
    beside: tuple[float | None, float | None],
) -> None:
    about: dict[str, Any] = {
        "scores": scores,
        "values": "fp8e4m3",
        "length": shape["x"],
        "tile": f"{tile[0]}x{tile[1]}",
    }

    def work() -> None:
        made = program.lower(workloads.eight_bits(scores), **shape, g_q=tile[0], s_x=max(tile[1], 32))
        found = gpu.times(made, gpu.random_tensors(made, shape))
        rate = flops(shape["h"], shape["x"], shape["d"], causal=False) / found["time_s"]
        speedups = _speedups(beside[0], found["time_s"], beside[1])
        session.add("quantized", **about, d=shape["d"], **found, rate_flop_per_s=rate, **speedups)

    session.attempt("quantized", work, **about)


def _decode(session: gpu.Session, plan: Plan, d: int) -> None:
    """Few queries on a cache: fp16, then codes."""
    heads, queries, keys = plan.cache
    shape = {"h": heads, "q": queries, "x": keys, "d": d}
    plain = _cached(session, "fp16", streamed("fp16", causal=False), shape, (None, None))
    for dtype, term in _decoders().items():
        name = f"{dtype} per token"
        once = _quantizer(session, name, _quantizers()[name], {"h": heads, "x": keys, "d": d})
        _cached(session, dtype, term, shape, (plain, _sum(once, once)))


def _cached(
    session: gpu.Session,
    dtype: str,
    term: Term,
    shape: Mapping[str, int],
    beside: tuple[float | None, float | None],
) -> float | None:
    about: dict[str, Any] = {"cache": dtype, "queries": shape["q"], "keys": shape["x"], "heads": shape["h"]}

    def work() -> float:
        tiles = {"g_q": shape["q"], "s_x": min(64, shape["x"])}
        made = program.lower(term, **shape, **tiles)
        found = gpu.times(made, gpu.random_tensors(made, shape))
        moved = int(cost.transfers(term).bytes().total(**shape, **tiles))
        speedups = _speedups(beside[0], found["time_s"], beside[1])
        session.add("decode", **about, bytes=moved, **found, rate_byte_per_s=moved / found["time_s"], **speedups)
        return found["time_s"]

    seconds: float | None = session.attempt("decode", work, **about)
    return seconds


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
        print("no GPU here: torch is missing or finds none. --rehearse tries everything at tiny sizes.")
        return 1
    session = gpu.Session(60 * given.minutes - 5)
    measure(session, TINY if given.rehearse else FULL, given.rehearse)
    usual = Path("build/measurements") if given.rehearse else machine.data_path() / "measurements"
    path = gpu.record(session, given.to or usual)
    found = faults(session.rows)
    checks = sum(row["kind"] == "check" for row in session.rows)
    print(f"{len(session.rows)} rows in {path}; {checks} kernels checked, {len(found)} faults")
    return 1 if found else 0


def faults(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows that say that something is wrong: what failed, and a check that did not pass or was refused. A tile
    that a device has no room for is refused, and no fault.

    >>> faults([{"kind": "refused", "of": "attention"}, {"kind": "check", "passed": True}])
    []
    """
    return [row for row in rows if row["kind"] == "failed" or (_checks(row) and not row.get("passed"))]


def _checks(row: Mapping[str, Any]) -> bool:
    return "check" in (row["kind"], row.get("of") if row["kind"] == "refused" else "")


if __name__ == "__main__":
    raise SystemExit(main())
