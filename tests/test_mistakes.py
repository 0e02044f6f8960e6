"""Mistakes at the public doors: each is refused in the one family of errors, and the message says what to do."""

from __future__ import annotations

import ast
import copy
import math
import pickle
from pathlib import Path
from types import SimpleNamespace

import examples
import numpy as np
import pytest
import sympy

import diagkit as dk
import diagkit.bench
import diagkit.book


def _algorithm():
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S, naive = dk.einsum("q d, x d -> q x", Q, K), examples.attention()
    flash = naive.fuse().group(q="g_q").stream(x="s_x")
    qs, ks = np.ones((3, 4)), np.ones((5, 4))

    def laid_out(**options):
        sizes = {"g_q": 16, "s_x": 16, "w_q": 16, **SIZES}
        return flash.group(level=2, q="w_q").configuration("H100-SXM", **sizes, **options)

    kernel = flash.kernel("numba", q=8, x=8, d=4, g_q=4, s_x=4)
    known = {"q": q, "x": x, "d": d, "Q": Q, "K": K, "V": V, "S": S, "naive": naive, "flash": flash}
    return SimpleNamespace(**known, qs=qs, ks=ks, arrays={"Q": qs, "K": ks, "V": ks}, laid_out=laid_out, kernel=kernel)


A = _algorithm()
ONE_BLOCK = dk.Diagram(dk.attention(A.Q, A.K, dk.array("V", A.x, A.d), over=A.x, features=A.d), name="attention")

# What was written -> words of the message: the axis, box or value at fault, and what is accepted.
WRITING = {
    "names: numpy's": (lambda: dk.sum, "use dk.total(value, over=...)"),
    "names: python's": (lambda: dk.abs, "use dk.absolute(value)"),
    "names: nearly right": (lambda: dk.soft_max, "did you mean 'softmax'?"),
    "names: nearly a step": (lambda: A.naive.transfer, "did you mean 'transfers'?"),
    "a call: torch's keyword": (lambda: dk.softmax(A.S, dim=-1), "write softmax(value, over, name=None)"),
    "a call: an axis too few": (lambda: dk.causal(A.q), "write causal(q, x"),
    "a call: a word for dtype": (lambda: dk.array("Q", A.q, format="fp16"), "write array(name, *over, dtype='fp32')"),
    "a step: nothing given": (A.flash.on, "write .on(machine, dtype=None"),
    "a step: one too many": (lambda: A.naive.transfers("fp16"), "write .transfers()"),
    "a kernel: a word": (lambda: A.kernel.check("a", 2, 3), "write .check("),
    "a choice of two": (lambda: dk.where(A.S, 0), "takes exactly 3 arguments (2 given); give it that many"),
    "axes: commas": (lambda: dk.axes("q,x"), "blanks separate axes"),
    "self attention: one axis twice": (
        lambda: dk.einsum("q d, q d -> q q", A.Q, dk.array("K", A.q, A.d)),
        'dk.rename(K, q="x")',
    ),
    "axes: one twice": (lambda: dk.axes("q q"), "'q' is named twice"),
    "axes: a size for none": (lambda: dk.axes("q x", d=3), "'d', which is no axis"),
    "axes: half an element": (lambda: dk.axes("q", q=1.5), "whole number >= 0"),
    "array: names for axes": (lambda: dk.array("Q", "q", "d"), 'dk.axes("q x d")'),
    "array: a list of formats": (lambda: dk.array("Q", A.q, dtype=["fp16"]), "no number format ['fp16']; write 'fp16'"),
    "array: numpy's word": (lambda: dk.array("Q", A.q, dtype="float32"), "write 'fp32'"),
    "array: numpy's class": (lambda: dk.array("Q", A.q, dtype=np.float32), "write 'fp32'"),
    "array: numpy's dtype": (lambda: dk.array("Q", A.q, dtype=np.dtype("float16")), "write 'fp16'"),
    "array: half": (lambda: dk.array("Q", A.q, dtype="half"), "write 'fp16'"),
    "array: torch's word": (lambda: dk.array("Q", A.q, dtype="torch.bfloat16"), "write 'bf16'"),
    "array: torch's fp8": (lambda: dk.array("Q", A.q, dtype="float8_e4m3fn"), "write 'fp8e4m3'"),
    "array: capitals": (lambda: dk.weight("W", A.q, dtype="FP16"), "write 'fp16'"),
    "array: a width there is not": (
        lambda: dk.array("Q", A.q, dtype="int3"),
        "of int there are int64, int32, int8, int4",
    ),
    "array: torch's int16": (lambda: dk.array("Q", A.q, dtype="torch.int16"), "of int there are int64, int32"),
    "array: four bits": (lambda: dk.array("Q", A.q, dtype="float4"), "of fp there are fp64, fp32, fp16, fp8e4m3"),
    "array: misspelt": (lambda: dk.array("Q", A.q, dtype="flaot16"), "write 'fp16'"),
    "array: nothing near": (lambda: dk.array("Q", A.q, dtype="quaternion"), "use one of: fp64"),
    "einsum: no arrow": (lambda: dk.einsum("q d, x d", A.Q, A.K), '"q d, x d -> q x"'),
    "einsum: numbers": (lambda: dk.einsum("q d, x d -> q x", A.Q, A.ks), "make one with dk.array"),
    "contract: nothing": (dk.contract, "dk.contract(Q, K, over=d)"),
    "contract: a list": (lambda: dk.contract([A.Q, A.K], over=A.d), "list is no value"),
    "reduce: prod": (lambda: dk.reduce("prod", A.Q, over=A.d), "use one of: sum, max, min"),
    "reduce: a number for an axis": (lambda: dk.total(A.Q, over=1), "1 names no axis"),
    "view: no coordinates": (lambda: dk.view(A.Q, 3, (A.q, A.d)), 'dk.coordinate("t") + 1'),
    "view: no axes": (lambda: dk.view(A.Q, {}, 3), "3 is no axis"),
    "exp: text": (lambda: dk.exp("a"), "str is neither a number"),
    "exp: a list": (lambda: dk.exp([1, 2]), "list is neither a number"),
    "exp: an array": (lambda: dk.exp(np.ones(3)), "declare an array"),
    "exp: two values": (lambda: dk.exp(A.Q, A.K), "takes exactly 1 argument"),
    "sqrt: text": (lambda: dk.sqrt("a"), "str is neither a number"),
    "maximum: a list": (lambda: dk.maximum(1, [2]), "list is neither a number"),
    "an imaginary number": (lambda: A.Q + 1j, "1j is no real number"),
    "an array in a formula": (lambda: np.ones(3) * A.Q, 'dk.array("A", a, b)'),
    "numpy's exp": (lambda: np.exp(A.Q), "use dk.exp(value)"),
    "numpy's sum": (lambda: np.sum(A.Q), "use dk.total(value, over=...)"),
    "numpy's maximum": (lambda: np.maximum(A.Q, 0), "such as dk.exp(value)"),
    "numpy's matmul": (lambda: np.matmul(A.Q, A.K), "dk.einsum"),
    "sympy's exp": (lambda: sympy.exp(A.Q), "use dk.exp"),
    "math's exp": (lambda: math.exp(A.Q), "hand arrays in by name"),
    "as an array": (lambda: np.asarray(A.Q), "hand arrays in by name"),
    "as a number": (lambda: float(A.Q), "no numbers until the diagram runs"),
    "its length": (lambda: len(A.Q), "no numbers until the diagram runs"),
    "transposed": (lambda: A.Q.T, "axes go by name"),
    "its shape": (lambda: A.Q.shape, ".axes"),
    "its dtype": (lambda: A.Q.dtype, "dk.cast"),
    "its sum": (lambda: A.Q.sum, "use dk.total(value, over=...)"),
    "a name it lacks": (lambda: A.Q.foo, "it has: axes"),
    "a piece": (lambda: A.Q[0], "dk.view"),
    "taken apart": (lambda: list(A.Q), "no numbers until"),
    "floor division": (lambda: A.Q // 2, "dk.floor(a / b)"),
    "remainder": (lambda: A.Q % 2, "b * dk.floor(a / b)"),
    "a mask of ==": (lambda: dk.select(A.Q == A.K, A.Q, 0), "use dk.equal(a, b)"),
    "== and another mask": (lambda: (A.Q == 3) & (A.Q > 0), "use dk.equal(a, b)"),
    "not !=": (lambda: ~(A.Q != A.K), "use dk.equal(a, b)"),
    "a name of 3": (lambda: A.Q.named(3), "a value needs a name"),
    "softmax of an array": (lambda: dk.softmax(A.qs, over=A.q), "ndarray is no value"),
    "mean of text": (lambda: dk.mean("Q", over=A.q), "str is no value"),
    "eps: text": (lambda: dk.rms_norm(A.Q, over=A.d, eps="a"), "eps cannot be 'a'; use a number of at least 0"),
    "eps: nan": (lambda: dk.rms_norm(A.Q, over=A.d, eps=math.nan), "eps cannot be nan"),
    "eps: below 0": (lambda: dk.layer_norm(A.Q, over=A.d, eps=-1), "eps cannot be -1"),
    "gain: a number": (lambda: dk.rms_norm(A.Q, over=A.d, gain=3), "int is no value"),
    "mask: a number": (lambda: dk.masked(A.S, 3), "int is no value"),
    "mask: text": (lambda: dk.attention(A.Q, A.K, A.V, over=A.x, features=A.d, mask="causal"), "str is no value"),
    "mask: numbers": (lambda: dk.Diagram(dk.masked(A.S, A.S)), "a mask is boolean"),
    "condition: a number": (lambda: dk.select(3, 1, 2), "int is no value"),
    "window: half a key": (lambda: dk.window(A.q, A.x, 2.5), "whole number of at least 1"),
    "window: none": (lambda: dk.window(A.q, A.x, None), "whole number of at least 1"),
    "attention of arrays": (lambda: dk.attention(A.qs, A.ks, A.ks, over=A.x, features=A.d), "ndarray is no value"),
    "classes: a number": (lambda: dk.cross_entropy(A.S, 3, over=A.x), "int is no value"),
    "classes along the axis": (lambda: dk.cross_entropy(A.S, A.S, over=A.x), 'dk.array("t", q, dtype="int64")'),
    "block: a number for a title": (lambda: dk.block(3, [A.Q], A.Q * 2), "a block needs a name, not 3"),
    "block: one input": (lambda: dk.block("t", A.Q, A.Q * 2), 'dk.block("twice", [X], 2 * X)'),
    "block: no result": (lambda: dk.block("t", [A.Q], 3), "int is no value"),
    "block: another's input": (lambda: dk.Diagram(dk.block("t", [A.K], A.Q * 2)), "not among its inputs"),
    "combine: no function": (lambda: dk.combine(3, A.Q), "no formula"),
    "combine: numpy's exp": (lambda: dk.combine(np.exp, A.Q), "use arithmetic"),
    "combine: and": (lambda: dk.combine(lambda a: a > 0 and a, A.Q), "&"),
    "combine: text": (lambda: dk.combine(lambda _: "x", A.Q), "str is neither a number"),
    "quantize: a number": (lambda: dk.quantize(3, "int8"), "int is no value"),
    "quantize: over 3": (lambda: dk.quantize(A.Q, "int8", over=3), "3 names no axis"),
    "quantize: whole scales": (lambda: dk.quantize(A.Q, "int8", scale="int8"), "no scales in 'int8'"),
    "quantize: a list": (lambda: dk.quantize(A.Q, ["int8"]), "no number format"),
    "dequantize: a number": (lambda: dk.dequantize(3, A.Q), "int is no value"),
    "hadamard: larger than the machine": (lambda: dk.hadamard(2**40), "turn blocks of a shorter axis"),
    "an input of text": (lambda: A.naive(**{**A.arrays, "Q": "abc"}), "give real numbers"),
    "an input of truths": (lambda: A.naive(**{**A.arrays, "Q": A.qs > 0}), "applied with dk.masked"),
    "hadamard: a seed of text": (lambda: dk.hadamard(4, seed="a"), "seed cannot be 'a'"),
    "diagram: a name of 3": (lambda: dk.Diagram(A.Q, name=3), "a diagram needs a name"),
    "diagram: a list": (lambda: dk.Diagram([A.Q]), "not list"),
}

RUNNING = {
    "imaginary queries": (lambda: A.naive(**{**A.arrays, "Q": A.qs + 1j}), "give real numbers"),
    "a kernel of other sizes": (lambda: A.kernel(**A.arrays), "is 8 in the sizes given but 3 in 'Q'"),
    "a kernel in fp16": (lambda: A.flash.kernel(dtype="fp16"), '.formats("fp16")'),
    "arrays in order": (lambda: A.naive(A.qs, A.ks, A.ks), "write Q=..., K=..., V=..."),
    "arrays in a dict": (lambda: A.naive(A.arrays), "**arrays"),
    "reference in order": (lambda: A.naive.reference(A.qs, A.ks, A.ks), "write Q=..., K=..., V=..."),
    "program in order": (lambda: A.flash.lower(g_q=2, s_x=2).run(A.qs, A.ks, A.ks), "write Q=..., K=..., V=..."),
    "ragged rows": (lambda: A.naive(**{**A.arrays, "V": [[1, 2], [3]]}), "give numbers over (x, d)"),
    "nothing": (lambda: A.naive(**{**A.arrays, "V": None}), "'V' is fp32 and cannot be object"),
    "a node": (lambda: A.naive(**{**A.arrays, "V": A.V}), "give numbers over (x, d)"),
    "complex numbers": (lambda: A.naive(**{**A.arrays, "V": A.ks * 1j}), "'V' is fp32 and cannot be complex128"),
}

DIAGRAMS = {
    "group: no axis": (A.naive.group, 'group(q="g_q")'),
    "group: a tile in quotes": (lambda: A.naive.group(q="3"), "write 3 without quotes"),
    "fuse: one box": (lambda: A.naive.fuse("P"), 'fuse("P", "O")'),
    "fuse: a list": (lambda: A.naive.fuse(["S", "P"]), "is no name of a box"),
    "group: a tile of two words": (lambda: A.naive.group(q="g q"), "letters, digits and _"),
    "group: a tile with a sign": (lambda: A.naive.group(q="g-q"), "letters, digits and _"),
    "group: an axis alone": (lambda: A.naive.group("q"), 'group(q="g_q")'),
    "group: a list of tiles": (lambda: A.naive.group(q=[1, 2]), "a name or a whole number >= 1"),
    "group: the streamed axis": (lambda: A.naive.group(x=3), "stream 'x' instead"),
    "stream: an axis alone": (lambda: A.naive.fuse().stream("x"), "one axis at a time"),
    "split: no such region": (lambda: A.flash.split(x=4, region="z"), "its boxes are: QK, S, P, O"),
    "law: none": (lambda: A.flash.law(trials=0, **A.arrays), "whole number of at least 1"),
    "law: half of one": (lambda: A.flash.law(trials=1.5, **A.arrays), "1.5 trials show nothing"),
    "law: a seed of text": (lambda: A.flash.law(seed="a", **A.arrays), "seed cannot be 'a'"),
    "rotate: nothing": (lambda: A.naive.rotate(over="d"), 'rotate("Q", "K", over="d")'),
    "quantize: over 3": (lambda: A.naive.quantize("K", "int8", over=3), "3"),
    "part: of nothing": (A.naive.part, "part('O')"),
    "formats: numpy's word": (lambda: A.naive.formats("float16"), "write 'fp16'"),
    "save: no folder": (lambda: A.naive.save("no such folder/a.svg"), "there is no folder 'no such folder'"),
    "save: no picture": (lambda: A.naive.save("a.jpg"), "use a suffix of: .svg"),
    "save: a number": (lambda: A.naive.save(3), "3 is no path"),
    "strip: no folder": (lambda: A.naive.strip().save("no such folder/a.svg"), "there is no folder"),
    "theme: blue": (lambda: A.naive.svg(theme="blue"), "light"),
    "diff: a number": (lambda: A.naive.diff(3), "give another diagram"),
    "recipe: no such": (lambda: A.naive.recipe("fp4"), "use one of: 'fp16', 'bf16', 'fp8 per tensor'"),
    "recipe: attention as one block": (lambda: ONE_BLOCK.recipe("fp8 per tensor"), 'over=x, name="P")'),
    "no show": (lambda: A.naive.show, ".save(path) writes the picture"),
    "no run": (lambda: A.naive.run(**A.arrays), "call it with arrays by name"),
    "no flops": (lambda: A.naive.flops, "use .work().flop()"),
    "no tile": (lambda: A.naive.tile(q=4), '.group(q="g_q")'),
    "no backward": (lambda: A.naive.backward, "derivatives are not taken"),
    "no such thing": (lambda: A.naive.anything, "dir(dk.Diagram) lists what it has"),
}

COSTS = {
    "an axis of -1": (lambda: A.naive.transfers().at(q=-1, x=1, d=1), "q cannot be -1"),
    "a size of text": (lambda: A.naive.transfers().total(q="1", x=1, d=1), "q cannot be '1'"),
    "a size misspelt": (lambda: A.naive.transfers().total(q=1, x=1, dd=1), "give also: d; it has no 'dd'"),
    "a tile of 0": (lambda: A.flash.transfers().total(q=1, x=1, d=1, g_q=0, s_x=1), "g_q cannot be 0"),
    "bits of a format": (lambda: A.flash.bits("fp8"), "'fp8' is no amount of memory"),
    "no such sum": (lambda: A.naive.hoist("Z"), "P.max, P.sum, O"),
    "work: half a key": (lambda: A.flash.work()["S"], "no amount 'S'; a key is, for example"),
    "memory: no buffers": (lambda: A.flash.memory().buffered(0), "cannot have 0 buffers"),
    "optimum: no name": (lambda: A.flash.optimum(100, q="a b"), "'q' cannot have size 'a b'"),
    "optimum: nothing": (lambda: A.flash.optimum(100, q=0), "'q' cannot have size 0"),
    "legal tile: megabytes": (lambda: A.flash.legal_tile(99, unit="MB", **SIZES), 'use "elements" or "bytes"'),
    "legal tile: a multiple": (lambda: A.flash.legal_tile(99, multiples=4, **SIZES), "multiples="),
    "legal tile: of nothing": (lambda: A.flash.legal_tile(99, multiples={"q": 0}, **SIZES), "use at least 1"),
    "legal tile: half a row": (lambda: A.flash.legal_tile(99, q=8.5, x=8, d=4), "'q' cannot have size 8.5"),
    "transfers: no array": (lambda: A.naive.transfers()["Z"], "a key is, for example, ('Q', 0, 1, 'input')"),
    "optimum: no memory": (lambda: A.flash.optimum(None), "no memory is given"),
    "optimum: bits": (lambda: A.flash.optimum("M", unit="bits"), 'use "elements" or "bytes"'),
    "bits: no axis": (lambda: A.flash.bits("M", z=3), "no axis or tile 'z'"),
    "legal tile: a name": (lambda: A.flash.legal_tile("M", **SIZES), "is no amount of memory; give a number"),
    "legal tile: text": (lambda: A.flash.legal_tile(1e5, q="a", x=64, d=16), "'q' cannot have size 'a'"),
    "legal tile: nothing": (lambda: A.flash.legal_tile(1e5, q=0, x=64, d=16), "'q' cannot have size 0"),
    "legal tile: half": (lambda: A.flash.legal_tile(1e5, dtype="half", **SIZES), "write 'fp16'"),
    "legal tile: multiples": (lambda: A.flash.legal_tile(1e5, multiples={"z": 3}, **SIZES), "no axis 'z'"),
    "levels: a number": (lambda: A.flash.level_optimum(3), "no graph of levels"),
    "caching: a list": (lambda: A.flash.caching("M", [1]), "[1] is neither a number nor a formula"),
    "caching: nobody": (lambda: A.flash.caching("M", 0), "at least 1"),
    "network: nobody": (lambda: A.flash.network(x=0), "at least 1"),
    "balance: no memory": (lambda: A.flash.balance("H100-SXM", d=64).least_size(-3), "above 0"),
}

MACHINES = {
    "on: below 0": (lambda: A.flash.on("H100-SXM", "fp16", q=-8, x=8, d=8), "at least 1"),
    "on: a name without its memory": (lambda: A.flash.on("A100", **SIZES), "closest first: A100-SXM-80GB"),
    "on: a name cut short": (lambda: A.flash.on("H10", **SIZES), "known, closest first: H100"),
    "kernel: no such target": (lambda: A.flash.kernel("cuda", g_q=4, s_x=4, **SIZES), "numba"),
    "on: a number": (lambda: A.flash.on(3, **SIZES), "3 is no name of a machine; known: A100"),
    "on: text": (lambda: A.flash.on("H100-SXM", q="a", x=64, d=16), "'q' cannot have size 'a'"),
    "on: half an element": (lambda: A.flash.on("H100-SXM", q=1.5, x=64, d=16), "'q' cannot have size 1.5"),
    "on: no axis": (lambda: A.flash.on("H100-SXM", z=3, **SIZES), "no open size or tile 'z'"),
    "on: a tile of 0": (lambda: A.flash.on("H100-SXM", g_q=0, s_x=32, **SIZES), "'g_q' cannot have size 0"),
    "on: without 3": (lambda: A.flash.on("H100-SXM", without=3, **SIZES), "without=('special',)"),
    "across: nobody": (lambda: A.flash.across([], "fp16", **SIZES), "give names"),
    "across: unknown": (lambda: A.flash.across(["zzz"], "fp16", **SIZES), "no machine 'zzz'"),
    "across: not asked": (lambda: A.flash.across(["T4"], "fp16", **SIZES)["B200"], "there are: T4"),
    "across: none can": (lambda: A.flash.across(["T4"], "fp8e4m3", **SIZES).best(), "T4: refused"),
    "sweep: nobody": (lambda: A.flash.sweep([], "fp16", **SIZES), "give names"),
    "sweep: text": (lambda: A.flash.sweep("T4", "fp16", q=["a"], x="q", d=16), "q cannot be 'a'"),
    "sweep: no axis": (lambda: A.flash.sweep("T4", "fp16", z=3, **SIZES), "no size or tile 'z'"),
    "sweep: no row": (lambda: A.flash.sweep("T4", "fp16", g_q=16, s_x=16, **SIZES).row(5), "there are 1"),
    "configuration: no threads": (lambda: A.laid_out(threads=0), "threads cannot be 0"),
    "configuration: pieces": (lambda: A.laid_out(pieces={"d": 3}), "pieces={'d': (64, 16)}"),
    "load: none": (lambda: dk.machine.load(None), "None is no name of a machine"),
    "peak: a number": (lambda: dk.machine.load("T4").peak(3), "stated there"),
    "roof: below 0": (lambda: dk.machine.load("T4").roof(-1, "fp16"), "at least 0"),
    "anchors: text": (lambda: dk.machine.anchors("a"), "cannot be 'a'"),
    "compare: too long": (lambda: dk.machine.compare(10**9), "the longest is 16384"),
    "compare: by what": (lambda: dk.machine.compare().only(foo=3), "use: gpu, impl"),
    "times: a name": (lambda: dk.machine.times("T4", {}, {}, "fp16"), 'machine.load("H100-SXM")'),
    "energy: a name": (lambda: dk.machine.energy("T4", {}, {}, "fp16"), 'machine.load("H100-SXM")'),
    "recorded: by what": (lambda: dk.machine.recorded_numbers("foo"), "layer, head"),
    "activations: our word": (lambda: dk.activations(layer=2, dtype="fp16"), "float16"),
    "activations: no layer": (lambda: dk.activations(layer=99), "recorded layers: 0, 2, 5"),
}

DOORS = {
    "kernel in order": (lambda: A.kernel(A.qs, A.ks, A.ks), "write Q=..., K=..., V=..."),
    "kernel: cuda": (lambda: A.flash.kernel("cuda", g_q=2, s_x=2), "numba"),
    "check: a seed of text": (lambda: A.kernel.check(seed="a"), "seed cannot be 'a'"),
    "check: no dict": (lambda: A.kernel.check(arrays=3), "int is no dict of arrays"),
    "measure: unchecked": (A.kernel.measure, "run kernel.check() first"),
    "explorer: a list": (lambda: dk.Explorer([A.flash], **SIZES), "Explorer(naive, flash, q=1024)"),
    "explorer: truth": (lambda: dk.Explorer(A.flash, q=True, x=64, d=16), "q = True is no size"),
    "explorer: no tile": (lambda: dk.Explorer(A.flash, **SIZES).choices("foo"), "tiles are: g_q, s_x"),
    "refusal: no step": (lambda: dk.refusal(3), "3 is no step"),
    "timed: no call": (lambda: dk.timed(3), "3 cannot be run"),
    "roofline: names": (lambda: dk.roofline("zzz"), "are no machines"),
}

SIZES = {"q": 64, "x": 64, "d": 16}
MISTAKES = {**WRITING, **RUNNING, **DIAGRAMS, **COSTS, **MACHINES, **DOORS}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_and_says_what_to_do(mistake):
    made, words = MISTAKES[mistake]
    with pytest.raises(dk.DiagkitError) as caught:
        made()
    assert words in str(caught.value)


def test_a_right_use_is_no_mistake():
    """The same doors, rightly used: a table whose every entry is refused would prove little."""
    X = dk.array("X", A.x)
    assert np.allclose(dk.Diagram(np.float64(2) * X - np.float32(1))(X=[1.0, 2.0]), [1.0, 3.0])
    assert np.allclose(dk.Diagram(dk.where(X > 1, X, 0))(X=[1.0, 2.0]), [0.0, 2.0])
    assert dk.Diagram(dk.array("X", A.x, dtype="fp16")).inputs[0].dtype == "fp16"
    assert dk.Diagram(True & (X > 1))(X=[1.0, 2.0]).tolist() == [False, True]


def test_equality_of_nodes_serves_containers():
    assert A.Q in [A.K, A.Q] and [A.K, A.Q].index(A.Q) == 1 and len({A.Q, A.K, A.Q}) == 2
    assert {A.Q: 1}[A.Q] == 1 and bool(A.Q != A.K) and str(A.Q == A.K).startswith("False: two nodes")


def test_a_diagram_without_a_name_says_no_as_python_does():
    assert not hasattr(A.naive, "flops") and not hasattr(A.naive, "_repr_png_") and copy.copy(A.naive) == A.naive
    assert pickle.loads(pickle.dumps(A.flash)) == A.flash


def test_a_missing_name_is_an_attribute_error_too():
    assert not hasattr(A.Q, "shape") and getattr(A.Q, "T", "none") == "none"


def test_help_on_a_choice_is_short():
    assert not isinstance(dk.where, type) and len(dk.where.__doc__.splitlines()) < 5


def test_an_amount_that_is_missing_is_a_missing_key_too():
    assert "K" not in A.flash.transfers()
    assert A.flash.work().get("S") is None
    assert ("K", 0, 1, "input") in A.flash.transfers()


def test_no_mistake_is_refused_by_accident():
    """The doors take what they say they take."""
    assert A.flash.law(trials=1, **A.arrays).trials == 1
    assert A.naive.fuse("P", "O").regions[-1].boxes == ("P", "O")
    assert A.flash.on("H100-SXM", "fp16", g_q=8, s_x=8, **SIZES).tiles["g_q"] == 8
    assert A.flash.legal_tile(np.int64(9999), q=np.int64(8), x=8, d=4).unit == "elements"
    assert A.flash.optimum(100.5, q="n", x=8, d=dk.axis("w").size).unit == "elements"


def family(kind):
    """An error class and all below it, of every room."""
    return {kind, *(below for child in kind.__subclasses__() for below in family(child))}


def without_remedy(source):
    """The lines that raise an error of diagkit and do not say what would be accepted."""
    raised = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Raise))
    for call in (node.exc for node in raised if isinstance(node.exc, ast.Call)):
        kind = ast.unparse(call.func).rpartition(".")[2]
        if kind in KINDS and "remedy" not in {keyword.arg for keyword in call.keywords}:
            yield call.lineno


KINDS = {kind.__name__ for kind in family(dk.DiagkitError)}
FILES = sorted(Path(dk.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(Path(dk.__file__).parent).as_posix())
def test_every_error_says_what_to_do(path):
    assert not list(without_remedy(path.read_text(encoding="utf-8")))


def test_an_error_without_remedy_is_seen():
    assert list(without_remedy("raise TermError('no')\nraise dk.AxisError('no', axis='q')\nraise KeyError('no')")) == [
        1,
        2,
    ]
    assert not list(without_remedy("raise TermError('no', remedy='yes')"))
    assert {"BookError", "KernelError", "StreamError", "MachineError"} <= KINDS
