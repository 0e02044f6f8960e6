"""Diagrams that several tests use: attention in its usual dress, and transformer layers as one diagram."""

from __future__ import annotations

import dataclasses
from typing import Any

import diagkit as dk

n, x, e, f, h, d = dk.axes("n x e f h d")


def silent(machine: dk.machine.Machine, section: str) -> dk.machine.Machine:
    """The machine as if its file had no such section."""
    kept = tuple(number for number in machine.numbers if not number.field.startswith(f"{section}."))
    return dataclasses.replace(machine, numbers=kept)


def attention(name: str = "attention", **options: Any) -> dk.Diagram:
    """softmax(Q K^T / sqrt d) V, as a reader writes it: boxes QK, S, P, O."""
    q, x, d = dk.axes("q x d")
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    P = dk.softmax(S, over=x)
    O = dk.einsum("q x, x d -> q d", P, V)
    return dk.Diagram(O, name=name, **options)


def matmul() -> dk.Diagram:
    """C = A B over the axes a, b, c."""
    a, b, c = dk.axes("a b c")
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    return dk.Diagram(C, name="matmul")


def layer(X: dk.Node, number: int) -> dk.Node:
    """One transformer layer on X (n, e): norm, attention over heads, norm, gated MLP, residuals."""
    tag = f"{number}."
    N = dk.rms_norm(X, over=e, gain=dk.weight(f"{tag}γ₁", e), name=f"{tag}N")
    M = dk.rename(N, n=x, name=f"{tag}N'")
    Q = dk.einsum("n e, e h d -> h n d", N, dk.weight(f"{tag}Wq", e, h, d), name=f"{tag}Q")
    K = dk.einsum("x e, e h d -> h x d", M, dk.weight(f"{tag}Wk", e, h, d), name=f"{tag}K")
    V = dk.einsum("x e, e h d -> h x d", M, dk.weight(f"{tag}Wv", e, h, d), name=f"{tag}V")
    A = dk.attention(Q, K, V, over=x, features=d, mask=dk.causal(n, x, name=f"{tag}mask"), name=f"{tag}A")
    O = dk.einsum("h n d, h d e -> n e", A, dk.weight(f"{tag}Wo", h, d, e), name=f"{tag}O")
    Y = dk.combine(lambda a, b: a + b, X, O, name=f"{tag}Y")
    Z = dk.rms_norm(Y, over=e, gain=dk.weight(f"{tag}γ₂", e), name=f"{tag}Z")
    G = dk.silu(dk.einsum("n e, e f -> n f", Z, dk.weight(f"{tag}Wg", e, f), name=f"{tag}G"), name=f"{tag}g")
    U = dk.einsum("n e, e f -> n f", Z, dk.weight(f"{tag}Wu", e, f), name=f"{tag}U")
    H = dk.combine(lambda a, b: a * b, G, U, name=f"{tag}H")
    D = dk.einsum("n f, f e -> n e", H, dk.weight(f"{tag}Wd", f, e), name=f"{tag}D")
    return dk.combine(lambda a, b: a + b, Y, D, name=f"{tag}X")


def transformer(layers: int) -> dk.Diagram:
    """That many transformer layers as one diagram."""
    X = dk.array("X", n, e)
    for number in range(1, layers + 1):
        X = layer(X, number)
    return dk.Diagram(X, name=f"transformer, {layers} layers")
