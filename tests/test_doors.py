"""Mistakes at the public doors: each is refused by the one base class, in words that name what is accepted."""

import numpy as np
import pytest

import diagkit as dk
from diagkit.cost import level_optimum

q, x, d = dk.axes("q x d")
Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
S = dk.einsum("q d, x d -> q x", Q, K)
P = dk.softmax(S, over=x)
O = dk.einsum("q x, x d -> q d", P, V)
NAIVE = dk.Diagram(O, name="attention")
FLASH = NAIVE.fuse().group(q="g_q").stream(x="s_x")
ARRAYS = {"Q": np.ones((4, 2)), "K": np.ones((4, 2)), "V": np.ones((4, 2))}
SIZES = {"q": 8, "x": 8, "d": 4}

MISTAKES = {
    "a list of formats": (lambda: dk.array("A", q, dtype=["fp16"]), "fp16"),
    "the format of another library": (lambda: dk.array("A", q, dtype="float32"), "fp32"),
    "an epsilon in letters": (lambda: dk.rms_norm(S, over=x, eps="a"), "eps"),
    "an epsilon that is none": (lambda: dk.rms_norm(S, over=x, eps=float("nan")), "eps"),
    "a block without a title": (lambda: dk.block(3, [Q], Q * 2), "a block needs a name, not 3"),
    "rows of two lengths": (lambda: NAIVE(**{**ARRAYS, "Q": [[1, 2], [3]]}), "'Q' is no array: .*give numbers over"),
    "arrays by place": (lambda: NAIVE(*ARRAYS.values()), "by name"),
    "numpy on a value": (lambda: np.exp(Q), r"dk\.exp"),
    "a transpose": (lambda: Q.T, "T"),
    "truth of a comparison": (lambda: bool(Q > 0), r"dk\.select"),
    "exp of a letter": (lambda: dk.exp("a"), "number"),
    "a folder that is not there": (lambda: NAIVE.save("not-there/picture.svg"), "no folder 'not-there'.*make the"),
    "a path that is none": (lambda: NAIVE.save(3), "3 is no path"),
    "a picture as what it cannot be": (lambda: NAIVE.save("a.bmp"), r"suffix of: \.svg"),
    "a strip into a missing folder": (lambda: FLASH.strip().save("not-there/a.svg"), "no folder"),
    "no trials": (lambda: FLASH.law(trials=0, **ARRAYS), "at least 1"),
    "trials in letters": (lambda: FLASH.law(trials="a", **ARRAYS), "at least 1"),
    "one box to fuse": (lambda: NAIVE.fuse("P"), "between 'P' and itself; name the boxes at both ends"),
    "a list of boxes": (lambda: NAIVE.fuse(["P", "O"]), "no name of a box"),
    "a group without an axis": (NAIVE.group, 'group\\(q="g_q"\\)'),
    "a tile in quotes": (lambda: NAIVE.group(q="3"), "write 3 without quotes"),
    "an axis by place": (lambda: NAIVE.group("q"), "group\\('q'\\) names no axis"),
    "a machine by number": (lambda: FLASH.on(3, **SIZES), "no name of a machine; known: .*H100"),
    "half a query": (lambda: FLASH.on("H100-SXM", "fp16", q=8.5, x=8, d=8), "'q' cannot have size 8.5; use whole"),
    "a size in letters": (lambda: FLASH.on("H100-SXM", "fp16", q="8", x=8, d=8), "'q' cannot have size '8'"),
    "a negative size": (lambda: FLASH.on("H100-SXM", "fp16", q=-8, x=8, d=8), "at least 1"),
    "a tile wider than its axis": (
        lambda: FLASH.on("H100-SXM", "fp16", g_q=128, s_x=8, **SIZES),
        "g_q = 128 is larger than axis 'q', which has 8; use at most 8",
    ),
    "megabytes": (lambda: FLASH.optimum("M", unit="MB"), 'use "elements" or "bytes"'),
    "a size that is no name": (lambda: FLASH.optimum(100, q="a b"), "'q' cannot have size 'a b'"),
    "a size of nothing": (lambda: FLASH.optimum(100, q=0), "'q' cannot have size 0"),
    "a legal tile for a symbol": (lambda: FLASH.legal_tile("M", **SIZES), "'M' is no amount of memory; give a number"),
    "a legal tile in megabytes": (lambda: FLASH.legal_tile(99, unit="MB", **SIZES), 'use "elements" or "bytes"'),
    "multiples without axes": (lambda: FLASH.legal_tile(99, multiples=4, **SIZES), "multiples="),
    "multiples of nothing": (lambda: FLASH.legal_tile(99, multiples={"q": 0}, **SIZES), "use at least 1"),
    "multiples of no axis": (lambda: FLASH.legal_tile(99, multiples={"z": 2}, **SIZES), "its axes are: q, d, x"),
    "half a query to tile": (lambda: FLASH.legal_tile(99, q=8.5, x=8, d=4), "'q' cannot have size 8.5"),
    "an amount by half its key": (lambda: FLASH.transfers()["K"], "no amount 'K'; a key is, for example"),
    "work by half its key": (lambda: FLASH.work()["S"], "no amount 'S'; a key is, for example"),
    "levels by number": (lambda: level_optimum(FLASH, 3), "3 is no graph of levels"),
    "buffers of nothing": (lambda: FLASH.memory().buffered(0), "cannot have 0 buffers"),
    "an unknown machine": (lambda: FLASH.on("H10", **SIZES), "known, closest first: H100"),
    "an unknown target": (lambda: FLASH.kernel("cuda", g_q=4, s_x=4, **SIZES), "numba"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_in_words(mistake):
    door, said = MISTAKES[mistake]
    with pytest.raises(dk.DiagkitError, match=said):
        door()


def test_an_amount_that_is_missing_is_a_missing_key_too():
    assert "K" not in FLASH.transfers()
    assert FLASH.work().get("S") is None
    assert ("K", 0, 1, "input") in FLASH.transfers()


def test_no_mistake_is_refused_by_accident():
    """The doors take what they say they take."""
    assert FLASH.law(trials=1, **ARRAYS).trials == 1
    assert NAIVE.fuse("P", "O").regions[-1].boxes == ("P", "O")
    assert FLASH.on("H100-SXM", "fp16", g_q=8, s_x=8, **SIZES).tiles["g_q"] == 8
    assert FLASH.legal_tile(np.int64(999), q=np.int64(8), x=8, d=4).unit == "elements"
    assert FLASH.optimum(100.5, q="n", x=8, d=dk.axis("w").size).unit == "elements"
