"""Named blocks: each is a few primitives under one glyph, and opens to exactly these."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import sympy

from diagkit.ops.build import Over, contract, index, pick
from diagkit.ops.classes import CROSS_ENTROPY
from diagkit.ops.functions import tanh
from diagkit.ops.nodes import Node, block, combine, need_node
from diagkit.ops.reductions import reduce
from diagkit.term import Axis, AxisError, InputError, elements, finite, names, quotient, where


def softmax(value: Node, over: Over, name: str | None = None) -> Node:
    """exp(s) / sum exp(s) over an axis, shifted by the largest s; a row that sees nothing is 0.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> dk.softmax(dk.array("S", q, x), over=x)
    <block 'softmax' over (q, x)>
    """
    _, shifted = _shifted_exp(value, over)
    ratio = combine(quotient, shifted, reduce("sum", shifted, over, hint="sum"))
    return block("softmax", [value], ratio, name)


def _shifted_exp(value: Node, over: Over) -> tuple[Node, Node]:
    """The largest s, and exp(s - the largest)."""
    largest = reduce("max", value, over, hint="max")
    return largest, combine(lambda s, m: sympy.exp(s - finite(m)), value, largest, hint="exp")


def logsumexp(value: Node, over: Over, name: str | None = None) -> Node:
    """log sum exp(s) over an axis, natural logarithm; -inf for a row that sees nothing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.logsumexp(X, over="x"))(X=[0.0, 0.0])
    array(0.69314718)
    """
    largest, shifted = _shifted_exp(value, over)
    sums = reduce("sum", shifted, over, hint="sum")
    return block("logsumexp", [value], combine(lambda m, z: finite(m) + sympy.log(z), largest, sums), name)


def _count(value: Node, over: Over) -> Any:
    gone = pick(need_node(value).axes, over)
    if not gone:
        raise AxisError("over no axis", remedy=f"the axes are: {', '.join(names(value.axes)) or 'none'}")
    return elements(gone)


def mean(value: Node, over: Over, name: str | None = None) -> Node:
    """The mean over an axis; 0 of nothing.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.mean(X, over="x"))(X=[1.0, 3.0, 2.0])
    array(2.)
    """
    count = _count(value, over)
    sums = reduce("sum", value, over, hint="sum")
    return block("mean", [value], combine(lambda s: quotient(s, count), sums), name)


def variance(value: Node, over: Over, name: str | None = None) -> Node:
    """The biased variance over an axis: the mean of the squared distance from the mean.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.variance(X, over="x"))(X=[1.0, 3.0, 2.0])
    array(0.66666667)
    """
    centred, count = _centred(value, over), _count(value, over)
    squares = reduce("sum", combine(lambda c: c**2, centred, hint="square"), over, hint="sum")
    return block("variance", [value], combine(lambda s: quotient(s, count), squares), name)


def _centred(value: Node, over: Over) -> Node:
    count = _count(value, over)
    sums = reduce("sum", value, over, hint="total")
    average = combine(lambda s: quotient(s, count), sums, hint="mean")
    return combine(lambda x, m: x - m, value, average, hint="centred")


def rms_norm(value: Node, over: Over, gain: Node | None = None, eps: float = 1e-5, name: str | None = None) -> Node:
    """RMSNorm: x / sqrt(mean x^2 + eps) over an axis, times `gain` where given.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.rms_norm(X, over="x", eps=0))(X=[3.0, 4.0])
    array([0.84852814, 1.13137085])
    """
    count = _count(value, over)
    squares = reduce("sum", combine(lambda x: x**2, value, hint="square"), over, hint="sum")
    scaled = combine(lambda x, s: x / sympy.sqrt(quotient(s, count) + _small(eps)), value, squares, hint="normed")
    return _with_gain("RMSNorm", value, scaled, gain, None, name)


def layer_norm(
    value: Node,
    over: Over,
    gain: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
    name: str | None = None,
) -> Node:
    """LayerNorm: (x - mean) / sqrt(biased variance + eps) over an axis, times `gain` plus `bias`.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.layer_norm(X, over="x", eps=0))(X=[3.0, 4.0])
    array([-1.,  1.])
    """
    centred, count = _centred(value, over), _count(value, over)
    squares = reduce("sum", combine(lambda c: c**2, centred, hint="square"), over, hint="sum")
    scaled = combine(lambda c, s: c / sympy.sqrt(quotient(s, count) + _small(eps)), centred, squares, hint="normed")
    return _with_gain("LayerNorm", value, scaled, gain, bias, name)


def spherical(value: Node, over: Over, eps: float = 0.0, name: str | None = None) -> Node:
    """Spherical (L2) normalisation: x / sqrt(sum x^2 + eps) over an axis; a row of zeros is 0.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.spherical(X, over="x"))(X=[3.0, 4.0])
    array([0.6, 0.8])
    """
    squares = reduce("sum", combine(lambda x: x**2, value, hint="square"), over, hint="sum")
    ratio = combine(lambda x, s: quotient(x, sympy.sqrt(s + _small(eps))), value, squares)
    return block("L2 norm", [value], ratio, name)


def _small(eps: float) -> Any:
    if isinstance(eps, bool) or not isinstance(eps, Real) or not 0 <= eps < math.inf:
        raise InputError(f"eps cannot be {eps!r}", remedy="use a number of at least 0, such as 1e-5")
    return sympy.Rational(repr(float(eps)))


def _with_gain(title: str, value: Node, scaled: Node, gain: Node | None, bias: Node | None, name: str | None) -> Node:
    result = scaled if gain is None else combine(lambda x, g: x * g, scaled, gain, hint="gained")
    result = result if bias is None else combine(lambda x, b: x + b, result, bias)
    return block(title, [node for node in (value, gain, bias) if node is not None], result, name)


def masked(scores: Node, mask: Node, name: str | None = None) -> Node:
    """`scores` where `mask` holds, -inf elsewhere; the mask is true for what may be seen.

    >>> import diagkit as dk
    >>> x = dk.axis("x")
    >>> dk.Diagram(dk.masked(dk.array("X", x), dk.index(x) < 2))(X=[1.0, 2.0, 3.0])
    array([  1.,   2., -inf])
    """
    keep, shown = need_node(mask), need_node(scores)
    return combine(lambda seen, s: where(seen, s, -sympy.oo), keep, shown, hint="masked", name=name)


def select(condition: Node, chosen: Any, other: Any, name: str | None = None) -> Node:
    """`chosen` where `condition` holds, else `other`, element by element.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.select(X > 0, X, 0))(X=[1.0, -2.0, 3.0])
    array([1., 0., 3.])
    """
    return combine(where, need_node(condition), chosen, other, name=name)


def causal(q: Axis, x: Axis, align: str = "top-left", name: str | None = None) -> Node:
    """The causal mask: query i sees key j where j <= i ("top-left"), or j <= i + x - q ("bottom-right",
    the last query sees every key). The two differ where q and x differ in size.

    >>> from diagkit.ops.build import axes
    >>> causal(*axes("q x"))
    <map 'mask' over (q, x)>
    """
    _need_two(q, x)
    shifts = {"top-left": sympy.Integer(0), "bottom-right": x.size - q.size}
    if align not in shifts:
        raise InputError(f"no causal alignment {align!r}", remedy=f"use one of: {', '.join(shifts)}")
    return combine(lambda i, j: sympy.Le(j, i + shifts[align]), index(q), index(x), hint="mask", name=name)


def _need_two(q: Axis, x: Axis) -> None:
    """Refuse a mask of positions against themselves, which hides nothing."""
    for axis in (q, x):
        if not isinstance(axis, Axis):
            raise AxisError(f"{axis!r} is no axis", remedy='make axes with dk.axes("q x d")')
    if q.name == x.name:
        raise AxisError(
            f"queries and keys are both along {q.name!r}",
            axis=q.name,
            remedy="give the keys an axis of their own: dk.rename(K, q=x)",
        )


def window(q: Axis, x: Axis, width: Any, name: str | None = None) -> Node:
    """A causal window of `width` keys, the query's own position included: i - width < j <= i.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> S = dk.array("S", q, x)
    >>> dk.Diagram(dk.select(dk.window(q, x, 2), S, 0))(S=[[1.0] * 3] * 3)
    array([[1., 0., 0.],
           [1., 1., 0.],
           [0., 1., 1.]])
    """
    _need_two(q, x)
    if isinstance(width, bool) or not (_whole(width) or getattr(width, "is_integer", None) is True):
        raise InputError(f"a window cannot have {width!r} keys", remedy="use a whole number of at least 1, or a size")

    def seen(i: Any, j: Any) -> Any:
        return sympy.And(sympy.Le(j, i), sympy.Lt(i - width, j))

    return combine(seen, index(q), index(x), hint="mask", name=name)


def _whole(number: Any) -> bool:
    return isinstance(number, Integral) and int(number) >= 1


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """The slopes of ALiBi for that many heads: a geometric row for powers of two, interleaved else.

    >>> alibi_slopes(6)
    (0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125)
    """
    if not isinstance(heads, int) or heads < 1:
        raise InputError(f"no slopes for {heads!r} heads", remedy="use a whole number of at least 1")
    power = 1 << (heads.bit_length() - 1)
    row = [2.0 ** (-8.0 * (i + 1) / power) for i in range(power)]
    twice = [2.0 ** (-4.0 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return tuple(row + twice)


def attention(
    queries: Node,
    keys: Node,
    values: Node,
    over: Axis,
    features: Over,
    scale: Any = None,
    mask: Node | None = None,
    bias: Node | None = None,
    softcap: Any = None,
    name: str | None = None,
) -> Node:
    """Attention as one block: scores over the axes `features`, softmax `over` the keys, values summed.

    `scale` is 1/sqrt(features) unless given (0 and negative numbers are taken as they are); `softcap` c
    makes c tanh(s / c) of the scores; `bias` is added; then `mask` (true = seen) hides the rest.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    >>> attention(Q, K, V, over=x, features=d)
    <block 'attention' over (q, d)>
    """
    width = _count(queries, features)
    factor = width ** sympy.Rational(-1, 2) if scale is None else scale
    scores = contract(queries, keys, over=features) * factor
    scores = scores if softcap is None else tanh(scores / softcap) * softcap
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else masked(scores, mask)
    result = contract(softmax(scores, over), values, over=over)
    given = [node for node in (queries, keys, values, bias, mask) if node is not None]
    return block("attention", given, result, name)


def cross_entropy(logits: Node, target: Node, over: Over, name: str | None = None) -> Node:
    """-log softmax(logits)[target] over the axis of classes; `target` holds class numbers (an integer
    array without that axis). A number that names no class is refused when the diagram runs (InputError), unless
    the block was opened or the target is computed: then no logit is found, and the result is logsumexp(logits).

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> t = dk.array("t", dtype="int64")
    >>> dk.Diagram(dk.cross_entropy(X, t, over=dk.axis("x")))(X=[0.0, 0.0], t=1)
    array(0.69314718)
    """
    classes = pick(need_node(logits).axes, over)
    if len(classes) != 1 or classes[0].name in names(need_node(target).axes):
        named = ", ".join(names(classes))
        raise AxisError(f"the classes are one axis that the target lacks, not {named!r}", axis=named, remedy=_TARGET)
    hit = combine(lambda j, t, s: where(sympy.Eq(j, t), s, 0), index(*classes), target, logits, hint="hit")
    inside = combine(lambda lse, t: lse - t, logsumexp(logits, over), reduce("sum", hit, over))
    return block(CROSS_ENTROPY, [logits, target], inside, name)


_TARGET = 'the target holds class numbers: dk.array("t", q, dtype="int64")'


def relu(value: Node, name: str | None = None) -> Node:
    """max(x, 0), element by element.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.relu(X))(X=[1.0, -2.0])
    array([1., 0.])
    """
    return combine(lambda x: sympy.Max(x, 0), value, hint="relu", name=name)


def sigmoid(value: Node, name: str | None = None) -> Node:
    """1 / (1 + exp(-x)), element by element.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.sigmoid(X))(X=[0.0])
    array([0.5])
    """
    return combine(lambda x: 1 / (1 + sympy.exp(-x)), value, hint="sigmoid", name=name)


def silu(value: Node, name: str | None = None) -> Node:
    """x / (1 + exp(-x)), element by element.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.silu(X))(X=[0.0, 1.0])
    array([0.        , 0.73105858])
    """
    return combine(lambda x: x / (1 + sympy.exp(-x)), value, hint="silu", name=name)


def gelu(value: Node, name: str | None = None) -> Node:
    """x (1 + erf(x / sqrt 2)) / 2, element by element.

    >>> import diagkit as dk
    >>> X = dk.array("X", dk.axis("x"))
    >>> dk.Diagram(dk.gelu(X))(X=[0.0, 1.0])
    array([0.        , 0.84134475])
    """
    return combine(lambda x: x * (1 + sympy.erf(x / sympy.sqrt(2))) / 2, value, hint="gelu", name=name)
