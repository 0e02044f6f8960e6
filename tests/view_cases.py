"""Diagrams that read arrays through views, which the tests of several rooms share."""

from functools import cache

import numpy as np
import sympy

import diagkit as dk
from diagkit.term import coordinate

q, x, d, e = dk.axes("q x d e")
k, r = dk.axes("k r")
three = dk.axis("d", 3)


@cache
def split_attention(parts=4, mask=False, streamed=True):
    """Attention of r query heads per key head, its keys in parts, each part a group of its own."""
    Q, K, V = dk.array("Q", k, r, q, d), dk.array("K", k, x, d), dk.array("V", k, x, d)
    given = dk.array("M", q, x, dtype="bool") if mask else None
    O = dk.attention(Q, K, V, over=x, features=d, mask=given, name="O")
    made = dk.Diagram(O, name="split").fuse().split(x=parts).group(k=1, x_part=1)
    return made.stream(x_in="s_x") if streamed else made


def gram():
    """Every row with every row: one array under two names of its axis."""
    X = dk.array("X", x, d)
    return dk.Diagram(dk.contract(dk.rename(X, x=q, name="X'"), X, over=d, name="G")).group(q="g_q", x="g_x")


def scaled(width=4, **options):
    """Attention whose keys and values are codes with one scale per block of `width` keys."""
    K, V = dk.array("K", x, d, dtype="int8"), dk.array("V", x, e, dtype="int8")
    s, t = (dk.array(name, x.blocks(width)) for name in ("K.scale", "V.scale"))
    keys, values = K * dk.spread(s, x, width, name="Ks"), V * dk.spread(t, x, width, name="Vs")
    O = dk.attention(dk.array("Q", q, d), keys, values, over=x, features=d, name="O", **options)
    return dk.Diagram(O, name="scaled").fuse().group(q="g_q").stream(x="s_x")


VIEWS = {
    "shifted": lambda: one({"x": coordinate("x") - 2}, (x,)),
    "ahead": lambda: one({"x": coordinate("x") + 3}, (x,)),
    "backwards": lambda: one({"x": 6 - coordinate("x")}, (x,)),
    "every third": lambda: one({"x": 3 * coordinate("y") + 1}, (dk.axis("y", 5),)),
    "one row": lambda: one({"x": 2}, (three,), (x, three)),
    "beyond": lambda: one({"x": 40}, (three,), (x, three)),
    "repeated": lambda: one({}, (x, three)),
    "blocks": lambda: one({"x_b": floor4("x")}, (x,), (x.blocks(4, "x_b"),)),
    "parts": lambda: one({"x": 4 * coordinate("p") + coordinate("w")}, dk.axes("p=3 w=4")),
    "twice": lambda: one_of(dk.view(before(), {"x": coordinate("x") + 3}, (x,), name="V")),
}


def before():
    """Each position reads the one before it."""
    return dk.view(dk.array("X", x), {"x": coordinate("x") - 1}, (x,))


def floor4(axis):
    """The block of 4 that a position lies in."""
    return sympy.floor(coordinate(axis) / 4)


def one(read, over, axes=(x,)):
    """A map of what a view reads."""
    return one_of(dk.view(dk.array("X", *axes), read, over, name="V"))


def one_of(view):
    """A map of a view, in a kernel of its own."""
    return dk.Diagram(dk.exp(view, name="Y"), name="viewed")


def convolution(causal=False):
    """Windows of w positions, summed over them and over channels; causal ones look back, with 0 before the start."""
    p, w, c, m = dk.axes("p w c m")
    t = p if causal else dk.axis("t", p.size + w.size - 1)
    place = coordinate("p") - coordinate("w") if causal else coordinate("p") + coordinate("w")
    windows = dk.view(dk.array("X", t, c), {t.name: place}, (p, w, c), name="windows")
    Y = dk.einsum("p w c, w c m -> p m", windows, dk.weight("W", w, c, m), name="Y")
    return dk.Diagram(Y, name="convolution").fuse().group(p="g_p", m="g_m").stream(c="s_c")


def convolution_of_pictures():
    """Rows and columns, each with windows of their own."""
    i, j, a, b, c, m = dk.axes("i j a b c m")
    rows, cols = dk.axis("y", i.size + a.size - 1), dk.axis("z", j.size + b.size - 1)
    read = {"y": coordinate("i") + coordinate("a"), "z": coordinate("j") + coordinate("b")}
    windows = dk.view(dk.array("X", rows, cols, c), read, (i, j, a, b, c), name="windows")
    Y = dk.einsum("i j a b c, a b c m -> i j m", windows, dk.weight("W", a, b, c, m), name="Y")
    return dk.Diagram(Y, name="pictures").fuse().group(i="g_i", j="g_j").stream(c="s_c")


def numbers(diagram, seed=0, **sizes):
    """Random arrays for a diagram: codes are small whole numbers, truth values half of the time true."""
    rng, full = np.random.default_rng(seed), diagram.numbers(sizes)
    shapes = {a.name: (a, [full[axis.name] for axis in a.axes]) for a in diagram.inputs}
    kinds = {"bool": lambda shape: rng.random(shape) < 0.5, "int8": lambda shape: rng.integers(-9, 9, shape, np.int8)}
    return {n: kinds.get(a.dtype, lambda shape: rng.normal(size=shape))(shape) for n, (a, shape) in shapes.items()}
