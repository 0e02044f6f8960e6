"""Draw the pictures that the documentation shows: ``python scripts/draw_docs.py [folder]``."""

from __future__ import annotations

import sys
from pathlib import Path

import diagkit as dk
from diagkit import draw


def attention() -> dk.Diagram:
    """softmax(Q K^T / sqrt d) V with queries q, keys x and features d."""
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    P = dk.softmax(S, over=x)
    O = dk.einsum("q x, x d -> q d", P, V)
    return dk.Diagram(O, name="attention")


def layer() -> dk.Diagram:
    """One transformer layer: norm, attention over heads, norm, MLP, residuals."""
    q, x, e, h, d, f = dk.axes("q x e h d f")
    X = dk.array("X", q, e)
    N = dk.rms_norm(X, e, dk.weight("gamma_1", e))
    M = dk.rename(N, q=x)
    Q = dk.einsum("q e, e h d -> h q d", N, dk.weight("W_Q", e, h, d))
    K = dk.einsum("x e, e h d -> h x d", M, dk.weight("W_K", e, h, d))
    V = dk.einsum("x e, e h d -> h x d", M, dk.weight("W_V", e, h, d))
    A = dk.attention(Q, K, V, over=x, features=d, mask=dk.causal(q, x))
    Y = X + dk.einsum("h q d, h d e -> q e", A, dk.weight("W_O", h, d, e), name="O")
    Z = dk.rms_norm(Y, e, dk.weight("gamma_2", e))
    H = dk.gelu(dk.einsum("q e, e f -> q f", Z, dk.weight("W_1", e, f), name="U"))
    R = Y + dk.einsum("q f, f e -> q e", H, dk.weight("W_2", f, e), name="D")
    return dk.Diagram(R, name="a transformer layer")


def pictures() -> dict[str, str]:
    """The SVG of every picture by the name of its file."""
    naive = attention()
    steps = [naive, naive.fuse(), naive.fuse().group(q="g_q"), naive.fuse().group(q="g_q").stream(x="s_x")]
    reasons = [(step.steps[-1].rule, step.steps[-1].reason) for step in steps[1:]]
    return {
        "attention.svg": naive.svg(),
        "flash.svg": steps[-1].svg(),
        "flash-dark.svg": steps[-1].svg(theme="dark"),
        "derivation.svg": draw.strip(steps, reasons),
        "layer.svg": draw.svg(layer()),
        "explorer.svg": dk.Explorer(steps[-1], machine="H100-SXM", q=4096, x="q", d=128, g_q=128, s_x=64).svg(),
    }


def main(folder: str = "docs") -> None:
    """Write the pictures into a folder and say which."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (target / name).write_text(text, encoding="utf-8")
        print(target / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
