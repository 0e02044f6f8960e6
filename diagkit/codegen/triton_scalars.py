"""Scalars in Triton: the dialect, and the small functions that its text calls."""

from __future__ import annotations

import re
from dataclasses import replace

from diagkit.codegen.scalars import Dialect

TRITON = Dialect(
    "triton",
    {
        "exp": "tl.exp2({0})",  # its argument comes multiplied by log2(e): see `folded`
        "log": "tl.log({0})",
        "tanh": "tanh({0})",
        "erf": "tl.erf({0})",
        "sin": "tl.sin({0})",
        "cos": "tl.cos({0})",
        "sign": "sign({0})",
        "floor": "tl.floor({0})",
        "abs": "tl.abs({0})",
        "sqrt": "tl.sqrt({0})",
        "power": "power({0}, {1})",
        "maximum": "larger({0}, {1})",
        "minimum": "smaller({0}, {1})",
        "finite": "finite({0})",
        "quotient": "quotient({0}, {1})",
        "where": "tl.where({0}, {1}, {2})",
    },
    number="{0}",
    floated="tl.cast({0}, tl.float32)",
    conjunction="({0} & {1})",
    disjunction="({0} | {1})",
    negation="({0} == 0)",
    infinity='float("inf")',
)
"""Text of every scalar function; exponentials are powers of two, as the hardware has them."""
EXACT = replace(TRITON, functions={**TRITON.functions, "quotient": "share({0}, {1})"}, over="ratio({0}, {1})")
"""The same with divisions that are rounded once, for codes and their scales."""

_FUNCTIONS = {
    "finite": (
        "def finite(v):",
        '    """A maximum used as a shift: 0 where it is -inf, in a row that sees nothing."""',
        '    return tl.where(v == float("-inf"), 0.0, v)',
    ),
    "larger": (
        "def larger(a, b):",
        '    """The larger of two numbers; NaN if either is."""',
        "    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    ),
    "smaller": (
        "def smaller(a, b):",
        '    """The smaller of two numbers; NaN if either is."""',
        "    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    ),
    "largest": (
        "def largest(block, axis):",
        '    """The largest of a block along an axis; NaN where one is."""',
        "    return tl.reduce(block, axis, larger)",
    ),
    "smallest": (
        "def smallest(block, axis):",
        '    """The smallest of a block along an axis; NaN where one is."""',
        "    return tl.reduce(block, axis, smaller)",
    ),
    "quotient": (
        "def quotient(a, b):",
        '    """a / b, and 0 where b is an empty sum."""',
        "    return tl.where(b == 0.0, 0.0, a / tl.where(b == 0.0, 1.0, b))",
    ),
    "ratio": (
        "def ratio(a, b):",
        '    """a / b rounded once: a GPU\'s usual division may be a unit off, and a code or a scale another one."""',
        "    return tl.div_rn(tl.cast(a, tl.float32), tl.cast(b, tl.float32))",
    ),
    "share": (
        "def share(a, b):",
        '    """a / b rounded once, and 0 where b is 0."""',
        "    return tl.where(b == 0.0, 0.0, ratio(a, tl.where(b == 0.0, 1.0, b)))",
    ),
    "offset": (
        "def offset(position, step):",
        '    """How far a position lies from the first, in elements: 64 bits before the product."""',
        "    return tl.cast(position, tl.int64) * step",
    ),
    "clamp": (
        "def clamp(v, largest):",
        '    """v within what an fp8 format can hold; NaN stays NaN."""',
        "    v = tl.maximum(v, -largest, propagate_nan=tl.PropagateNan.ALL)",
        "    return tl.minimum(v, largest, propagate_nan=tl.PropagateNan.ALL)",
    ),
    "at_most": (
        "def at_most(v, largest):",
        '    """v, which is never below 0, within what an fp8 format can hold; NaN stays NaN."""',
        "    return tl.minimum(v, largest, propagate_nan=tl.PropagateNan.ALL)",
    ),
    "whole": (
        "def whole(v, least, most):",
        '    """v rounded to a whole number, half to even, within least and most; 0 for what is no number."""',
        "    v = tl.minimum(tl.maximum(tl.where(v == v, v, 0.0), least), most)",
        "    return (v + 12582912.0) - 12582912.0",
    ),
    "codes": (
        "def codes(pairs):",
        '    """Both int4 codes of every byte, side by side along the last axis; the first is in the low half."""',
        "    return tl.interleave((pairs << 4) >> 4, pairs >> 4)",
    ),
    "product": (
        "def times(a, b):",
        '    """Two factors as one."""',
        "    return a * b",
        "",
        "",
        "@triton.jit",
        "def product(block, axis):",
        '    """The product of a block along an axis."""',
        "    return tl.reduce(block, axis, times)",
    ),
    "pairs": (
        "def pairs(codes):",
        '    """Two int4 codes (along the last axis, of length 2) in a byte, the first in the low half."""',
        "    low, high = tl.split(codes)",
        "    return (low & 15) | (high << 4)",
    ),
    "powers": (
        "def powers(codes):",
        '    """The powers of two that bytes stand for: 2 to the (byte - 127), and NaN for 255."""',
        "    bits = codes.to(tl.int32) << 23",
        "    bits = tl.where(codes == 0, 0x400000, tl.where(codes == 255, 0x7FC00000, bits))",
        "    return bits.to(tl.float32, bitcast=True)",
    ),
    "power_of_two": (
        "def power_of_two(v):",
        '    """The nearest of the powers 2 to the -127 up to 127, half way the larger; NaN stays NaN."""',
        "    return powers(power_codes(v))",
    ),
    "power_codes": (
        "def power_codes(v):",
        '    """The bytes of the nearest powers of two: a fraction of a half or more carries into the exponent."""',
        "    bits = v.to(tl.int32, bitcast=True)",
        "    codes = tl.where(bits < 0x600000, 0, tl.minimum((bits + 0x400000) >> 23, 254))",
        "    return tl.where(v == v, codes, 255).to(tl.uint8)",
    ),
    "power": (
        "def power(a, b):",
        '    """a to the b: of a negative a only for whole b, else NaN."""',
        "    size = tl.exp2(tl.log2(tl.abs(a)) * b)",
        "    whole, odd = tl.floor(b) == b, tl.floor(b * 0.5) * 2.0 != b",
        '    negative = tl.where(whole, tl.where(odd, -size, size), float("nan"))',
        "    return tl.where(b == 0.0, 1.0, tl.where(a < 0.0, negative, size))",
    ),
    "tanh": (
        "def tanh(v):",
        '    """The hyperbolic tangent, by one exponential that never overflows."""',
        "    e = tl.exp2(tl.abs(v) * -2.885390081777927)",
        "    return tl.where(v < 0, -1.0, 1.0) * ((1.0 - e) / (1.0 + e))",
    ),
    "sign": (
        "def sign(v):",
        '    """-1, 0 or 1."""',
        "    return tl.where(v > 0, 1.0, tl.where(v < 0, -1.0, 0.0))",
    ),
}

ELEMENT: dict[str, str] = {
    "fp32": "tl.float32",
    "tf32": "tl.float32",
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp8e4m3": "tl.float8e4nv",
    "fp8e5m2": "tl.float8e5",
    "fp8e8m0": "tl.float32",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int8": "tl.int8",
    "int4": "tl.int8",
    "bool": "tl.int1",
}
"""Triton's type for each number format that its kernels hold; powers of two are bytes in slow memory alone."""

LARGEST: dict[str, float] = {"fp8e4m3": 448.0, "fp8e5m2": 57344.0}
"""Formats that saturate, and where: Triton's own cast does not everywhere."""

WHOLE: dict[str, tuple[float, float]] = {"int8": (-128.0, 127.0), "int4": (-8.0, 7.0)}
"""Short whole numbers: they saturate too."""

RESERVED = ("tl", "triton", "group", "times", *_FUNCTIONS)
"""Names that the generated text uses itself."""


def prelude(used: str) -> list[str]:
    """The functions that the text `used` calls, as lines."""
    lines: list[str] = []
    wanted = {name for name in _FUNCTIONS if _calls(used, name)}
    wanted |= {inner for name in wanted for inner in _FUNCTIONS if _calls("\n".join(_FUNCTIONS[name][1:]), inner)}
    for name, body in _FUNCTIONS.items():
        if name in wanted:
            lines += ["", "", "@triton.jit", *body]
    return lines


def _calls(text: str, name: str) -> bool:
    """Whether it is called, or handed over as the last argument."""
    return re.search(rf"(?<![\w.]){name}[()]", text) is not None
