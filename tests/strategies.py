"""Random diagrams, lawful labels for them, sizes and arrays: what property tests of every room draw from.

`diagrams()` draws a plain diagram, `labelled()` one with fusion, groups and streams as far as they are
lawful, with awkward sizes and tiles (1, primes, not multiples of each other); `arrays_for` fills it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import sympy
from hypothesis import strategies as st

import diagkit as dk
from diagkit import derive, ops
from diagkit.term import LabelError, Term, TermError, coordinate

AXES = dk.axes("a b c d")
SIZES = (1, 2, 3, 5, 7, 8, 11)
FORMATS = ("fp32", "fp32", "fp16", "bf16", "fp64", "fp8e4m3")
TILES = (1, 2, 3, 4, 5, 7, 12)


@dataclass(frozen=True)
class Labelled:
    """A labelled diagram with a number for every open size and tile."""

    term: Term
    sizes: dict[str, int]


@st.composite
def diagrams(draw, most=5, masks=True):
    """A diagram of 2 to `most` operations over up to four axes: maps, products, reductions, softmax, views, masks."""
    pool = [_input(draw, f"X{n}") for n in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(2, most))):
        makers = [_map, _map, _pair, _contract, _contract, _reduce, _softmax, _shift, _placed] + [_masked] * masks
        made = draw(st.sampled_from(makers))(draw, pool)
        if made is not None:
            pool.append(made)
    made = [node for node in pool if node.inputs] or [pool[0] * 2]
    extra = [node for node in made[:-1] if draw(st.integers(0, 5)) == 0]
    return Term(*ops.trace([*extra, made[-1]]), "random")


def _input(draw, name):
    """An array in some format, perhaps rounded to another before anything is computed with it."""
    array = dk.array(name, *draw(_some_axes()), dtype=draw(st.sampled_from(FORMATS)))
    return dk.cast(array, draw(st.sampled_from(["fp16", "fp32"]))) if draw(st.integers(0, 3)) == 0 else array


def _some_axes():
    return st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True)


def _pick(draw, pool):
    """One node, the newest half of the time: long chains fuse more."""
    return pool[-1] if draw(st.booleans()) else draw(st.sampled_from(pool))


def _map(draw, pool):
    node = _pick(draw, pool)
    return draw(st.sampled_from([dk.tanh, lambda n: n * 0.5, lambda n: dk.exp(dk.tanh(n)), dk.silu]))(node)


def _pair(draw, pool):
    left, right = _pick(draw, pool), draw(st.sampled_from(pool))
    return draw(st.sampled_from([lambda: left * right, lambda: left + right, lambda: dk.maximum(left, right)]))()


def _contract(draw, pool):
    left, right = _pick(draw, pool), draw(st.sampled_from(pool))
    shared = [axis for axis in left.axes if axis in right.axes]
    if left is right or not shared:
        return None
    over = draw(st.lists(st.sampled_from(shared), min_size=1, max_size=2, unique=True))
    return dk.contract(left, right, over=over)


def _reduce(draw, pool):
    node = _pick(draw, pool)
    if not node.axes:
        return None
    return dk.reduce(draw(st.sampled_from(["sum", "max", "min", "product"])), node, draw(st.sampled_from(node.axes)))


def _softmax(draw, pool):
    node = _pick(draw, pool)
    return dk.softmax(node, draw(st.sampled_from(node.axes))) if node.axes else None


def _shift(draw, pool):
    """Each position reads the one before it: a view."""
    node = _pick(draw, pool)
    if not node.axes:
        return None
    axis = draw(st.sampled_from(node.axes))
    return dk.view(node, {axis.name: coordinate(axis.name) - 1}, node.axes)


def _placed(draw, pool):
    """A term that grows with the position."""
    node = _pick(draw, pool)
    return node + dk.index(draw(st.sampled_from(node.axes))) * 0.1 if node.axes else None


def _masked(draw, pool):
    node = _pick(draw, pool)
    if len(node.axes) < 2:
        return None
    i, j = draw(st.permutations(node.axes))[:2]
    align = draw(st.sampled_from(["top-left", "bottom-right"]))
    mask = draw(st.sampled_from([lambda: dk.causal(i, j, align), lambda: dk.window(i, j, 3)]))()
    return dk.select(mask, node, 0)


@st.composite
def chains(draw, masks=True):
    """Scores from a product, perhaps scaled, masked or normalised, contracted again: what streams are for."""
    a, b, c, d = draw(st.permutations(AXES))
    heads = draw(st.sampled_from([(), (d,)]))
    X, Y = dk.array("X", *heads, a, c), dk.array("Y", b, c, *draw(st.sampled_from([(), heads])))
    scores = dk.contract(X, Y, over=c)
    scores = draw(st.sampled_from([lambda s: s, lambda s: s * 0.5, dk.tanh, lambda s: s + dk.array("B", a, b)]))(scores)
    if masks and draw(st.booleans()):
        align = draw(st.sampled_from(["top-left", "bottom-right"]))
        mask = dk.causal(a, b, align) if draw(st.booleans()) else dk.window(a, b, draw(st.integers(1, 4)))
        scores = dk.masked(scores, mask) if draw(st.booleans()) else dk.select(mask, scores, 0)
        scores = draw(st.sampled_from([lambda s: s, dk.exp]))(scores)
    ends = [_attended, _attended, _normed, _reduced]
    return Term(*ops.trace(draw(st.sampled_from(ends))(draw, scores, b), {}), "chain")


def _attended(draw, scores, over):
    values = dk.array("V", *draw(st.sampled_from([(over,), (over, dk.axis("e"))])))
    weights = draw(st.sampled_from([dk.softmax, dk.softmax, dk.spherical]))(scores, over)
    return [dk.contract(weights, values, over=over)]


def _normed(draw, scores, over):
    weights = dk.array("W", over, dk.axis("e"))
    made = draw(st.sampled_from([dk.rms_norm, dk.layer_norm]))(scores, over)
    return [dk.contract(made, weights, over=over)]


def _reduced(draw, scores, over):
    several = [dk.logsumexp, dk.mean, dk.variance, dk.amax, dk.total]
    return [end(scores, over) for end in draw(st.lists(st.sampled_from(several), min_size=1, max_size=2, unique=True))]


@st.composite
def masked_streams(draw):
    """Masked scores, reduced along an axis that is streamed; other axes grouped or not."""
    a, b, c, d = AXES
    scores = dk.contract(dk.array("X", *draw(st.sampled_from([(), (d,)])), a, c), dk.array("Y", b, c), over=c)
    mask = draw(masks_over(a, b))
    hidden, ends = draw(st.sampled_from([(-sympy.oo, [_attended, _reduced]), (0, [_summed])]))
    outputs = draw(st.sampled_from(ends))(draw, dk.select(mask, scores, hidden), b)
    term = derive.fuse(Term(*ops.trace(outputs, {}), "masked"))
    for axis in draw(st.permutations([a.name, d.name, "e"])):
        if axis in term.axes and draw(st.booleans()):
            term = _tried(term, lambda t, axis=axis: derive.group(t, **{axis: f"g_{axis}"}))
    term = _tried(term, lambda t: derive.stream(t, b="s_b"))
    return Labelled(term, draw(sizes_for(term)))


def _summed(draw, scores, over):
    return [dk.total(scores, over)]


@st.composite
def masks_over(draw, a, b):
    """Which positions along `a` see which along `b`: one condition, or up to three joined by and, or."""
    made = [draw(st.sampled_from(_RULES))(draw, a, b) for _ in range(draw(st.integers(1, 3)))]
    return reduce(lambda left, right: left | right if draw(st.booleans()) else left & right, made)


_RULES = [
    lambda draw, a, b: dk.causal(a, b, draw(st.sampled_from(["top-left", "bottom-right"]))),
    lambda draw, a, b: dk.window(a, b, draw(st.integers(1, 4))),
    lambda draw, a, b: dk.index(a) <= dk.index(b),
    lambda draw, a, b: dk.index(a) + dk.index(b) < draw(st.integers(1, 9)),
    lambda draw, a, b: dk.index(b) >= draw(st.integers(0, 5)),
    lambda draw, a, b: dk.index(b) * 2 <= dk.index(a) + draw(st.integers(-2, 4)),
]


@st.composite
def labelled(draw, most=5, masks=True, streams=True):
    """A diagram with labels that were accepted, and a number for each size and tile."""
    term = draw(st.one_of(diagrams(most, masks), chains(masks)))
    if draw(st.integers(0, 4)):
        term = _tried(term, derive.fuse)
    for axis in draw(st.permutations(list(term.axes))):
        choice = draw(st.sampled_from(["stream", "group", "none"]))
        if choice == "stream" and streams:
            term = _tried(term, lambda t, axis=axis: derive.stream(t, **{axis: f"s_{axis}"}))
        if choice != "none" and term.label("stream", axis) is None:
            term = _tried(term, lambda t, axis=axis: derive.group(t, **{axis: f"g_{axis}"}))
    return Labelled(term, draw(sizes_for(term)))


def _tried(term, step):
    """The step taken where it is lawful, else the diagram as it was."""
    try:
        return step(term)
    except (LabelError, TermError):
        return term


@st.composite
def sizes_for(draw, term):
    """A number for every axis and tile of `term`; tiles may be longer than their axis."""
    sizes = {name: draw(st.sampled_from(SIZES)) for name in term.axes}
    return sizes | {str(label.tile): draw(st.sampled_from(TILES)) for label in term.labels if label.tile.is_Symbol}


def arrays_for(term, sizes, seed=0):
    """float64 arrays for the inputs of `term`."""
    random = np.random.default_rng(seed)
    return {array.name: random.normal(size=[sizes[axis.name] for axis in array.axes]) for array in term.inputs}


@st.composite
def nested_labels(draw, deepest=2):
    """A diagram as `labelled` draws one, its tiles cut again at level 2 (and 3)."""
    case = draw(labelled(most=4) | masked_streams())
    term = case.term
    for level in range(2, deepest + 1):
        for axis in draw(st.permutations(list(term.axes))):
            if draw(st.booleans()):
                group = {axis: f"g{level}_{axis}"}
                term = _tried(term, lambda t, group=group, level=level: derive.group(t, level=level, **group))
        for form in term.forms if draw(st.booleans()) else ():
            stream = {form.axis: f"s{level}_{form.axis}"}
            term = _tried(term, lambda t, stream=stream, level=level: derive.stream(t, level=level, **stream))
    tiles = {str(label.tile) for label in term.labels} - set(case.sizes)
    empty = draw(st.sampled_from([None, None, None, *term.axes]))
    sizes = case.sizes | {tile: draw(st.sampled_from(TILES)) for tile in sorted(tiles)}
    return Labelled(term, sizes | ({empty: 0} if empty else {}))
