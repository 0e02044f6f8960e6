"""Diagrams that the tests of the derivations share, written as a user would."""

import diagkit as dk
from diagkit import ops
from diagkit.term import Term

q, x, d, e, h = dk.axes("q x d e h")


def term(*outputs, name="diagram", **variables):
    """The plain value of the diagram that computes `outputs`; wires take the names of the keywords."""
    return Term(*ops.trace(outputs, variables), name)


def attention(name="attention", title="softmax", **options):
    """softmax(Q K) V, with scale, softcap, bias and mask as `dk.attention` has them, blocks unopened."""
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, e)
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    if options.get("softcap"):
        S = dk.tanh(S / options["softcap"]) * options["softcap"]
    if options.get("bias") is not None:
        S = S + options["bias"]
    if options.get("mask") is not None:
        S = dk.masked(S, options["mask"])
    P = ops.block(title, [S], dk.softmax(S, over=x).result)
    O = dk.einsum("q x, x e -> q e", P, V)
    return term(O, name=name, S=S, P=P, O=O)


def softmax_alone():
    """Only the softmax of an array of scores."""
    P = dk.softmax(dk.array("S", q, x), over=x)
    return term(P, name="softmax", P=P)


def matmul():
    """C = A B, summed over x."""
    C = dk.einsum("q x, x e -> q e", dk.array("A", q, x), dk.array("B", x, e))
    return term(C, name="matmul", C=C)


def diamond():
    """A path that leaves A;C through B and comes back."""
    A = dk.exp(dk.array("X", q, x))
    B = dk.softmax(A, over=x)
    C = A * B
    return term(C, name="diamond", A=A, B=B, C=C)
