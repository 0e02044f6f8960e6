"""Quantization from primitives: codes, and one scale for the elements that share it.

scale = the largest magnitude / the largest code; codes = value / scale, rounded. All are ordinary wires, so
a quantizer draws, costs, runs and streams as anything else does. The four that the literature names differ in
the axes that one scale is taken over: all of them per tensor, the features per token, the tokens per channel,
and a block of positions per block.

What stands at the edge: elements that are all 0 have the scale 0 and the codes 0, and come back as exactly 0;
1e-30 is a number like others as long as its scale has one in the scales' format, else its codes are 0; an
infinity or NaN makes all that share its scale NaN and nothing else. The cast saturates, so no code is beyond
the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from diagkit.ops.blocks import select
from diagkit.ops.build import Over, blocked, cast, pick, spread
from diagkit.ops.functions import absolute
from diagkit.ops.nodes import Node, combine, need_node
from diagkit.ops.reductions import amax, amin
from diagkit.ops.room import refuse_bytes
from diagkit.term import AxisError, FormatError, InputError, check_format, check_whole, names, quotient

LARGEST: dict[str, int] = {"int4": 7, "int8": 127, "fp8e4m3": 448, "fp8e5m2": 57344}
"""The largest code that quantization uses; whole numbers use as many below 0 as above."""
SCALES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "fp8e8m0")
"""The formats that scales may be kept in: whole numbers would round them to nothing."""


def quantize(
    value: Node,
    dtype: str,
    over: Over | None = None,
    *,
    scale: str = "fp32",
    name: str | None = None,
    scale_name: str | None = None,
    **blocks: int,
) -> tuple[Node, Node]:
    """Codes in `dtype` over the axes of `value`, and their scales in the format `scale`.

    One scale is shared along the axes `over` (all of them where none is named: per tensor) and along blocks of
    the widths given by axis: ``quantize(K, "int8", over=d, x=64)`` has one per 64 keys, over ``x.blocks(64)``.
    A scale in fp8e8m0 is a power of two, the next one up, so that no code saturates; with blocks of 32 that is
    microscaling. Raises FormatError for a format without codes, AxisError for an axis that `value` lacks.

    >>> import diagkit as dk
    >>> codes, scales = dk.quantize(dk.array("X", dk.axis("x")), "int8")
    >>> dk.Diagram(codes)(X=[0.0, 1.0, -2.0])
    array([   0.,   64., -127.])
    >>> [node.axes for node in dk.quantize(dk.array("X", *dk.axes("x d")), "fp8e4m3", x=64)]
    [(Axis('x'), Axis('d')), (Axis('x_block', apply('ceiling', (exact('1/64'))*(size('x')))), Axis('d'))]
    """
    largest = largest_code(dtype)
    if check_format(scale) not in SCALES:
        raise FormatError(f"no scales in {scale!r}", remedy=f"keep them in one of: {', '.join(SCALES)}")
    cut = blocked(value, None, **blocks) if blocks else value
    shared = _shared(value, over, blocks)
    peaks = amax(absolute(cut, hint="abs"), shared) if shared else absolute(cut)
    scales = _scales(peaks, largest, scale, scale_name)
    return cast(combine(quotient, value, each(scales, value, blocks), hint="scaled"), dtype, name), scales


def quantize_affine(
    value: Node, dtype: str, over: Over | None = None, *, scale: str = "fp32", called: str = "", **blocks: int
) -> tuple[Node, Node, Node]:
    """Codes, scales and zeros: the least of all that share a scale is the zero, and has the least code.

    All codes of a whole-number format are used, whatever side of 0 the numbers lie on. What they stand for is
    (code - least code) * scale + zero. Shared as in `quantize`; a short block at the end counts a 0 to its own.
    Where all are alike the scale is 0, and the zero, which is each of them, comes back; an infinity or NaN leaves
    nothing finite of what shares its scale.
    With `called` "X" the three are called X.codes, X.scale, X.zero. Raises as `quantize`; FormatError for floats.
    Source: asymmetric codes as in KIVI (arXiv 2402.02750); the width of the blocks is free here.

    >>> import diagkit as dk
    >>> codes, scales, zeros = dk.quantize_affine(dk.array("X", dk.axis("x")), "int4")
    >>> dk.Diagram(codes)(X=[5.0, 13.0, 20.0])
    array([-8.,  0.,  7.])
    """
    least = -largest_code(dtype) - 1
    if not dtype.startswith("int"):
        raise FormatError(f"no zero in {dtype!r}", remedy="quantize with a zero to int8 or int4")
    cut = blocked(value, None, **blocks) if blocks else value
    shared = _shared(value, over, blocks)
    high, low = (cast(one(cut, shared), "fp32") for one in (amax, amin))
    steps = -2 * least - 1
    named = [f"{called}.{one}" if called else None for one in ("codes", "scale", "zero")]
    zeros = cast(low, scale, named[2])
    scales = cast(combine(lambda top, bottom: top / steps - bottom / steps, high, low), scale, named[1])
    there = [each(one, value, blocks) for one in (zeros, scales)]

    def code(one: Any, zero: Any, step: Any) -> Any:
        return _within(quotient(one - zero, step), steps) + least

    placed = combine(code, value, *there, hint="scaled")
    return cast(placed, dtype, named[0]), scales, zeros


def _within(number: Any, steps: int) -> Any:
    """From 0 to `steps`: what a rounded scale puts beyond is the end."""
    return sympy.Min(sympy.Max(number, 0), steps)


def largest_code(dtype: str) -> int:
    """The largest code of a format that has codes; else a FormatError that lists these.

    >>> largest_code("int8")
    127
    """
    if check_format(dtype) not in LARGEST:
        raise FormatError(f"no codes in {dtype!r}", remedy=f"quantize to one of: {', '.join(LARGEST)}")
    return LARGEST[dtype]


def _shared(value: Node, over: Over | None, blocks: Mapping[str, int]) -> list[str]:
    """The names of the axes that one scale is taken over."""
    if over is None:
        given = [] if blocks else list(names(need_node(value).axes))
    else:
        given = list(names(pick(need_node(value).axes, over)))
    both = set(given) & set(blocks)
    if both:
        reason = f"axis {min(both)!r} is shared whole and in blocks"
        raise AxisError(reason, axis=min(both), remedy="name it once: over=..., or its block's width")
    return [*given, *(f"{axis}_in" for axis in blocks)]


def _scales(peaks: Node, largest: int, dtype: str, name: str | None) -> Node:
    """Scales in their format, divided in fp32 at least, whatever the format of the peaks is or becomes; a power
    of two that came out too small is doubled."""
    wide = "fp64" if dtype == "fp64" else "fp32"
    wanted = combine(lambda peak: peak / largest, cast(peaks, wide))
    if dtype != "fp8e8m0":
        return wanted.named(name) if dtype == wide else cast(wanted, dtype, name)
    rounded = cast(wanted, dtype)
    return cast(select(rounded < wanted, 2 * rounded, rounded), dtype, name)


def each(scales: Node, value: Node, blocks: Mapping[str, int]) -> Node:
    """Scales read at every position of the blocks that share them.

    >>> from diagkit.ops.build import array, axes
    >>> x, d = axes("x d")
    >>> each(array("scale", x.blocks(64), d), array("K", x, d), {"x": 64})
    <view over (x, d)>
    """
    by_name = {axis.name: axis for axis in need_node(value).axes}
    for axis, width in blocks.items():
        if axis not in by_name:
            raise AxisError(f"no axis {axis!r} here", axis=axis, remedy=f"the axes are: {', '.join(by_name)}")
        scales = spread(scales, by_name[axis], width)
    return scales


def dequantize(codes: Node, scales: Node, name: str | None = None, **blocks: int) -> Node:
    """What the codes stand for: codes times scales; `blocks` are those that they were made with.

    >>> import diagkit as dk
    >>> codes, scales = dk.quantize(dk.array("X", dk.axis("x")), "fp8e4m3", x=2)
    >>> dk.Diagram(dk.dequantize(codes, scales, x=2))(X=[0.0, 1.0, -2.0])
    array([ 0.,  1., -2.])
    """
    return combine(lambda code, scale: code * scale, codes, each(scales, codes, blocks), name=name)


def hadamard(length: int, seed: int | None = None) -> NDArray[np.float64]:
    """Hadamard's matrix divided by the root of its size, so that it turns and does not stretch; with a `seed`
    its rows have random signs. Raises InputError for a length that is no power of two, or too large for this machine.

    >>> hadamard(2) * 2**0.5
    array([[ 1.,  1.],
           [ 1., -1.]])
    """
    if not isinstance(length, int) or isinstance(length, bool) or length < 1 or length & (length - 1):
        reason = f"no Hadamard matrix of {length!r} rows here"
        raise InputError(reason, remedy="use a power of two, or another orthogonal matrix")
    refuse_bytes(f"Hadamard's matrix of {length:,} rows", 8 * length**2, remedy="turn blocks of a shorter axis")
    made = np.ones((1, 1))
    while len(made) < length:
        made = np.block([[made, made], [made, -made]])
    if seed is not None:
        check_whole(seed, "seed")
    signs = np.ones(length) if seed is None else np.random.default_rng(seed).choice([-1.0, 1.0], length)
    turned: NDArray[np.float64] = signs[:, None] * made / np.sqrt(length)
    return turned
