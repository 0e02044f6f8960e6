"""Every picture of the gallery: legible, well-formed, complete; some are kept byte for byte."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import examples
import pytest

import diagkit as dk
from diagkit import derive, draw
from diagkit.draw import Row, Table
from diagkit.term import Label, Term, coordinate, size

FUSED = (("QK", 1), ("S", 1), ("P", 1))
SVG = "{http://www.w3.org/2000/svg}"


def heads(grouped: bool = False) -> dk.Diagram:
    h, r, q, x, d = dk.axes("h r q x d")
    before, names = ((h, r, q), "h r q") if grouped else ((h, q), "h q")
    Q, K, V = dk.array("Q", *before, d), dk.array("K", h, x, d), dk.array("V", h, x, d)
    S = dk.einsum(f"{names} d, h x d -> {names} x", Q, K) * d.size**-0.5
    O = dk.einsum(f"{names} x, h x d -> {names} d", dk.softmax(S, over=x, name="P"), V)
    return dk.Diagram(O, name="grouped heads" if grouped else "heads")


def scored(change: Callable[..., dk.Node], name: str) -> dk.Diagram:
    """Attention whose scores go through `change` before the softmax."""
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    M = change(S, q, x)
    O = dk.einsum("q x, x d -> q d", dk.softmax(M, over=x, name="P"), V)
    return dk.Diagram(O, name=name)


def causal() -> dk.Diagram:
    return scored(lambda S, q, x: dk.masked(S, dk.causal(q, x), name="M"), "causal attention")


def softcap() -> dk.Diagram:
    return scored(lambda S, q, x: dk.tanh(S / 30, name="t") * 30, "softcap")


def window() -> dk.Diagram:
    return scored(lambda S, q, x: dk.masked(S, dk.window(q, x, 128), name="M"), "window")


def alibi() -> dk.Diagram:
    return scored(lambda S, q, x: S - (dk.index(q) - dk.index(x)) * 0.25, "ALiBi")


def bias() -> dk.Diagram:
    return scored(lambda S, q, x: S + dk.array("B", q, x), "bias")


def own_mask() -> dk.Diagram:
    return scored(lambda S, q, x: dk.masked(S, dk.array("seen", q, x, dtype="bool"), name="M"), "a mask of one's own")


def normed(kind: str, learned: bool = True) -> dk.Diagram:
    q, d, e = dk.axes("q d e")
    make = dk.weight if learned else dk.array
    X, gamma, beta, W = dk.array("X", q, d), make("gamma", d), make("beta", d), make("W", d, e)
    made = {
        "LayerNorm": lambda: dk.layer_norm(X, d, gamma, beta, name="N"),
        "RMSNorm": lambda: dk.rms_norm(X, d, gamma, name="N"),
        "L2": lambda: dk.spherical(X, d, name="N"),
    }[kind]()
    return dk.Diagram(dk.einsum("q d, d e -> q e", made, W, name="Y"), name=f"{kind}; linear")


def mlp() -> dk.Diagram:
    q, d, f = dk.axes("q d f")
    X, W = dk.array("X", q, d), [dk.weight(f"W_{n}", d, f) for n in (1, 2)]
    N = dk.rms_norm(X, d, dk.weight("gamma", d), name="N")
    H = dk.silu(dk.einsum("q d, d f -> q f", N, W[0], name="H"), name="A")
    G = H * dk.einsum("q d, d f -> q f", N, W[1], name="U")
    return dk.Diagram(X + dk.einsum("q f, f d -> q d", G, dk.weight("W_3", f, d), name="D"), name="gated MLP")


def cross_entropy() -> dk.Diagram:
    q, d, c = dk.axes("q d c")
    L = dk.einsum("q d, c d -> q c", dk.array("X", q, d), dk.array("E", c, d), name="L")
    return dk.Diagram(dk.cross_entropy(L, dk.array("t", q, dtype="int64"), c, name="loss"), name="cross-entropy")


def opened() -> dk.Diagram:
    q, x = dk.axes("q x")
    S = dk.array("S", q, x)
    E = dk.exp(S - dk.amax(S, x, name="m"), name="E")
    return dk.Diagram(E / dk.total(E, x, name="z"), name="softmax, opened")


def convolution() -> dk.Diagram:
    t, w, i, o = dk.axes("t w i o")
    X = dk.view(dk.array("X", t, i), {"t": coordinate("t") + coordinate("w")}, (t, w, i), name="windows")
    return dk.Diagram(dk.einsum("t w i, w i o -> t o", X, dk.array("F", w, i, o), name="Y"), name="convolution")


def formats() -> dk.Diagram:
    q, d = dk.axes("q d")
    X = dk.array("X", q, d, dtype="bf16")
    return dk.Diagram(dk.total(dk.cast(dk.gelu(X, name="g"), "fp8e4m3", name="c"), (q, d), name="s"), name="formats")


def one_row() -> dk.Diagram:
    x = dk.axes("x")
    X = dk.array("X", x)
    return dk.Diagram(dk.total(X * dk.exp(X, name="E"), x, name="s"), dk.amax(X, x, name="m"), name="one row")


def outer() -> dk.Diagram:
    a, b = dk.axes("a b")
    return dk.Diagram(dk.einsum("a, b -> a b", dk.array("u", a), dk.array("v", b), name="M"), name="outer product")


def chain() -> dk.Diagram:
    a, b, c, d = dk.axes("a b c d")
    A, B, C = dk.array("A", a, b), dk.array("B", b, c), dk.array("C", c, d)
    AB = dk.einsum("a b, b c -> a c", A, B, name="AB")
    return dk.Diagram(dk.einsum("a c, c d -> a d", AB, C, name="ABC"), AB, name="chain")


def block() -> dk.Diagram:
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    return dk.Diagram(dk.attention(Q, K, V, x, d, mask=dk.causal(q, x), name="O"), name="one block")


def mask() -> dk.Diagram:
    return dk.Diagram(dk.causal(*dk.axes("q x"), name="seen"), name="a mask")


def odd() -> dk.Diagram:
    a, b, c = dk.axis("key position <&>"), dk.axis("η'\"😀"), dk.axis("an axis with a name that never seems to end")
    A, B = dk.array("input & co <tag> \x07", a, c), dk.array("日本語のテンソル", b, c)
    S = dk.contract(A, B, over=c, name='the scores, "raw" $x$')
    return dk.Diagram(dk.softmax(S, over=b, name="sm<1>"), name="odd & <names> " + "long " * 40)


def sympy_names() -> dk.Diagram:
    q, n, s = dk.axis("beta"), dk.axis("N"), dk.axis("E")
    S = dk.einsum("beta E, N E -> beta N", dk.array("I", q, s), dk.array("S", n, s), name="Q")
    return dk.Diagram(dk.softmax(S, over=n, name="O"), name="names that sympy uses")


def materialised() -> dk.Diagram:
    return examples.attention().replace(levels=(("QK", 1),))


def tiled() -> dk.Diagram:
    return examples.attention().replace(levels=FUSED, labels=(Label("group", "q", size("g_q"), 16),))


def registers() -> dk.Diagram:
    return tiled().replace(levels=(("QK", 3), ("S", 2), ("P", 2)))


def flash(**options: Any) -> dk.Diagram:
    return derive.stream(tiled(), x="s_x", **options)


def causal_flash() -> dk.Diagram:
    fused = causal().replace(levels=(*FUSED, ("M", 1)), labels=(Label("group", "q", size("g_q")),))
    return derive.stream(fused, x="s_x")


def rms_linear() -> dk.Diagram:
    fused = normed("RMSNorm").replace(levels=(("N", 1),), labels=(Label("group", "q", size("g_q")),))
    return derive.stream(fused, d="s_d")


def layer_linear() -> dk.Diagram:
    fused = normed("LayerNorm").replace(levels=(("N", 1),), labels=(Label("group", "q", size("g_q")),))
    return derive.stream(fused, d="s_d")


def tiled_matmul() -> dk.Diagram:
    term = examples.matmul()
    return derive.stream(
        term.replace(labels=(Label("group", "a", size("g_a")), Label("group", "c", size("g_c")))), b=32
    )


def two_levels() -> Term:
    return derive.group(
        derive.group(derive.stream(examples.attention().replace(levels=FUSED), x="s_x"), q="g_q"), level=2, q="w_q"
    )


def two_levels_matmul() -> Term:
    term = derive.stream(derive.group(examples.matmul(), a="g_a", c="g_c"), b="s_b")
    return derive.stream(derive.group(term, level=2, a="w_a", c="w_c"), level=2, b="u_b")


def flash_table() -> Table:
    q, x, d, g, s = map(size, ["q", "x", "d", "g_q", "s_x"])
    return Table(
        (
            Row(
                "H ℓ0→ℓ1",
                0,
                {("load", 0): q * d + 2 * x * d * q / g, ("store", 0): q * d},
                2 * q * d + 2 * x * d * q / g,
            ),
            Row("M ℓ1", 1, {("load", 0): g * d + 2 * s * d, "QK": g * s, "P": 2 * g, "O": g * d}, "peak at O"),
            Row("work", 0, {"QK": 2 * q * x * d, "S": q * x, "P": 5 * q * x, "O": 2 * q * x * d}, 4 * q * x * d),
        )
    )


GALLERY: dict[str, Callable[[], tuple[Term, Table | None]]] = {
    "attention": lambda: (examples.attention(), None),
    "fused": lambda: (examples.attention().replace(levels=FUSED), None),
    "tiled": lambda: (tiled(), flash_table()),
    "flash": lambda: (flash(), flash_table()),
    "normalised": lambda: (flash(hoist=False), flash_table()),
    "materialised": lambda: (materialised(), None),
    "registers": lambda: (registers(), None),
    "heads": lambda: (heads(), None),
    "grouped heads": lambda: (heads(grouped=True), None),
    "causal": lambda: (causal(), None),
    "causal flash": lambda: (causal_flash(), None),
    "softcap": lambda: (softcap(), None),
    "window": lambda: (window(), None),
    "alibi": lambda: (alibi(), None),
    "bias": lambda: (bias(), None),
    "own mask": lambda: (own_mask(), None),
    "matmul": lambda: (examples.matmul(), None),
    "tiled matmul": lambda: (tiled_matmul(), None),
    "two levels": lambda: (two_levels(), None),
    "two levels, matmul": lambda: (two_levels_matmul(), None),
    "layer norm": lambda: (normed("LayerNorm"), None),
    "rms linear": lambda: (normed("RMSNorm"), None),
    "rms linear, given": lambda: (normed("RMSNorm", learned=False), None),
    "rms linear, streamed": lambda: (rms_linear(), None),
    "layer linear, streamed": lambda: (layer_linear(), None),
    "l2": lambda: (normed("L2"), None),
    "mlp": lambda: (mlp(), None),
    "cross-entropy": lambda: (cross_entropy(), None),
    "opened": lambda: (opened(), None),
    "convolution": lambda: (convolution(), None),
    "formats": lambda: (formats(), None),
    "one row": lambda: (one_row(), None),
    "outer": lambda: (outer(), None),
    "chain": lambda: (chain(), None),
    "block": lambda: (block(), None),
    "mask": lambda: (mask(), None),
    "odd": lambda: (odd(), None),
    "sympy names": lambda: (sympy_names(), None),
    "transformer": lambda: (examples.transformer(2), None),
}
KEPT = (
    "attention",
    "tiled",
    "flash",
    "heads",
    "causal",
    "mlp",
    "materialised",
    "odd",
    "rms linear, streamed",
    "two levels, matmul",
)


@pytest.mark.parametrize("name", GALLERY)
def test_nothing_overlaps(name: str) -> None:
    assert draw.overlaps(draw.scene(*GALLERY[name]())) == []


@pytest.mark.parametrize("name", GALLERY)
def test_svg_stands_alone(name: str) -> None:
    term, table = GALLERY[name]()
    root = check_svg(draw.svg(term, table))
    said = root.findtext(f"{SVG}desc") or ""
    for word in [array.name for array in term.inputs] + [box.name for box in term.boxes] + list(term.axes):
        assert "".join(char for char in word if char.isprintable()) in said


def check_svg(text: str) -> ET.Element:
    """The root of a well-formed SVG that needs nothing else and disturbs nothing on its page."""
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg" and root.get("role") == "img"
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert "max-width" in (root.get("style") or "")
    assert root.findtext(f"{SVG}title") and root.findtext(f"{SVG}desc")
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "rect", "g", "path", "text", "tspan"}
    allowed = {"id", "class", "href", "onload"}
    assert not any(allowed & set(element.attrib) for element in root.iter())
    return root


@pytest.mark.parametrize("name", KEPT)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name.replace(', ', '-').replace(' ', '-')}.svg", draw.svg(*GALLERY[name]()))


def test_gallery_is_wide() -> None:
    glyphs = {column.glyph for make in GALLERY.values() for column in draw.plan(make()[0]).columns}
    assert glyphs == set(draw.GLYPHS)


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        (lambda i, j: j <= i, "causal"),
        (lambda i, j: i >= j, "causal"),
        (lambda i, j: (j <= i) & (i - 8 < j), "window"),
        (lambda i, j: i <= j, "mask"),
        (dk.equal, "mask"),
        (lambda i, j: (j <= i) & (j < 8), "mask"),
    ],
)
def test_a_mask_is_drawn_as_what_it_hides(rule: Callable[..., dk.Node], shape: str) -> None:
    term = scored(lambda S, q, x: dk.masked(S, rule(dk.index(q), dk.index(x)), name="M"), "masked")
    assert next(column.style for column in draw.plan(term).columns if column.glyph == "mask") == shape


def test_levels_have_their_colours_a_graph_and_a_dotted_sub_loop() -> None:
    scene = draw.scene(two_levels_matmul())
    roles = {mark.role for mark in scene.marks}
    assert {"wire-0", "wire-1", "wire-2", "solid-2", "subloop"} <= roles
    words = ["".join(run.text for run in line.runs) for line in scene.words]
    assert any("sub-loop" in said and "in turn" in said for said in words)
    assert any("ℓ2 register" in said for said in words)
    assert "subloop" not in {mark.role for mark in draw.scene(tiled_matmul()).marks}
