"""Axes may be called anything: like sympy's own names, like words of Python, like wires and tiles of the diagram."""

import inspect

import numpy as np
import pytest

import diagkit as dk
from diagkit.bench.kernel import Kernel
from diagkit.ops.build import WORDS
from diagkit.program import Nested, Program

NAMES = [
    "Q N S", "E I O", "C pi gamma", "beta zeta lambda", "for in class", "len print int", "None True x", "P O K",
    "V Qs P.max", "number start stop", "tl np numba", "q_tile x_tile d", "a0 a1 a2", "oo zoo nan", "Sum Max ceiling",
    "term sizes float", "name over wires",
]  # fmt: skip


def attention(names: str) -> dk.Diagram:
    q, x, d = dk.axes(names)
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.contract(Q, K, over=d) * d.size**-0.5
    return dk.Diagram(dk.contract(dk.softmax(S, over=x, name="P"), V, over=x, name="O"), name="attention")


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=(5 if name == "Q" else 7, 3)) for name in "QKV"}


@pytest.mark.parametrize("names", NAMES)
def test_a_diagram_means_the_same_whatever_its_axes_are_called(names):
    naive, words = attention(names), names.split()
    flash = naive.fuse().group(**{words[0]: "g"}).stream(**{words[1]: "s"})
    at = {**dict(zip(words, (5, 7, 3), strict=True)), "g": 2, "s": 3}
    program = flash.lower(**at)
    np.testing.assert_allclose(program.run(**arrays()), attention("q x d").reference(**arrays()))
    assert program.count().transfers == flash.transfers().at(**at)
    assert flash.transfers().total().subs(at) == program.count().total()
    assert flash.memory().peak(**at) == program.count().peak
    assert naive.replay(flash.derivation) == flash
    assert eval(repr(flash), vars(dk).copy()) == flash
    assert flash.optimum(1000).tiles and str(flash.derivation) and flash.draw().svg


def test_kernels_of_axes_called_like_words_of_python():
    flash = attention("for in lambda").fuse().group(**{"for": "g"}).stream(**{"in": "s"})
    made = flash.kernel("numba", g=2, s=3)(**arrays())
    np.testing.assert_allclose(made, attention("q x d").reference(**arrays()), atol=1e-6)
    assert "tl.program_id" in str(flash.kernel("triton", **{"for": 16, "in": 16, "lambda": 16}, g=16, s=16))


def test_a_word_of_the_calls_is_refused_when_the_axis_is_made():
    for word in WORDS:
        with pytest.raises(dk.AxisError, match=f"have a word {word}=.*{word}_axis"):
            dk.axes(f"x {word}")
        with pytest.raises(dk.AxisError, match="call it otherwise"):
            dk.axis(word)
        assert dk.axis(f"{word}_axis").name == f"{word}_axis"  # the remedy


def test_the_words_are_those_of_the_calls():
    doors = [
        door
        for kind in (dk.Diagram, Program, Nested, Kernel)
        for _, door in inspect.getmembers(kind, inspect.isfunction)
    ]
    taking = [inspect.signature(door).parameters.values() for door in doors if not door.__name__.startswith("_")]
    named = [ps for ps in taking if any(p.kind == p.VAR_KEYWORD and p.name in ("sizes", "tiles", "parts") for p in ps)]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    assert {p.name for ps in named for p in ps if p.kind in plain} <= WORDS


@pytest.mark.parametrize("axis", ["q", "x"])
def test_a_tile_called_like_an_axis_is_refused_and_the_remedy_works(axis):
    fused = attention("q x d").fuse()
    step = fused.group if axis == "q" else fused.stream
    with pytest.raises(dk.DiagkitError, match=f"for example {axis}='._{axis}'"):
        step(**{axis: "d"})
    assert step(**{axis: f"g_{axis}"}).labels
