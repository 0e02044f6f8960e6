"""Scalars in numba: the dialect, and the small functions that its text calls.

numba calls the mathematical library one number at a time; what is written here in plain arithmetic
compiles to vector instructions instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from diagkit.codegen.scalars import Dialect

NUMBA = Dialect(
    "numba",
    {
        "exp": "exp({0})",
        "log": "np.log({0})",
        "tanh": "np.tanh({0})",
        "erf": "number(math.erf({0}))",
        "sin": "np.sin({0})",
        "cos": "np.cos({0})",
        "sign": "np.sign({0})",
        "floor": "np.floor({0})",
        "abs": "abs({0})",
        "sqrt": "np.sqrt({0})",
        "power": "({0} ** {1})",
        "maximum": "larger({0}, {1})",
        "minimum": "smaller({0}, {1})",
        "finite": "finite({0})",
        "quotient": "quotient({0}, {1})",
        "where": "({1} if {0} else {2})",
    },
    number="number({0})",
    floated="number({0})",
    infinity="number(np.inf)",
)
"""Text of every scalar function."""

_EXP = {
    "float32": '''
@njit(**EXACT)
def exp(v):
    """e to the v, within 2e-7: twice e to the r, times half a power of 2. Added to 1.5 * 2**23 a number becomes whole,
    and its bits the exponent (126 more: half of it); the ends give 0 and inf."""
    v = number(88.8) if v > number(88.8) else v
    v = number(-87.3) if v < number(-87.3) else v
    shifted = v * number(1.4426950408889634) + number(12583038.0)
    whole = shifted - number(12583038.0)
    r = (v - whole * number(0.693359375)) + whole * number(2.12194440e-4)
    p = number(2.762627784e-3) * r + number(1.673883882e-2)
    p = (p * r + number(8.333691382e-2)) * r + number(3.333302958e-1)
    p = ((p * r + number(9.99999861e-1)) * r + number(2.0)) * r + number(2.0)
    return p * np.int32(number(shifted).view(np.int32) << np.int32(23)).view(np.float32)
''',
    "float64": '''
@njit(**EXACT)
def exp(v):
    """e to the v."""
    return np.exp(v)
''',
}

_EXP2 = '''
@njit(**EXACT)
def exp2(v):
    """2 to the v, within 2e-7: as exp, with powers of 2 throughout."""
    v = number(128.0) if v > number(128.0) else v
    v = number(-126.3) if v < number(-126.3) else v
    shifted = v + number(12583038.0)
    r = v - (shifted - number(12583038.0))
    p = number(2.643734449520707e-3) * r + number(1.934339664876461e-2)
    p = (p * r + number(1.110178604722023e-1)) * r + number(4.804447591304779e-1)
    p = (p * r + number(1.3862937688827515)) * r + number(2.0)
    return p * np.int32(number(shifted).view(np.int32) << np.int32(23)).view(np.float32)
'''

_FUSED = '''
@njit(**EXACT)
def fused(a, b, c):
    """a * b + c, in one instruction where there is one: nothing may be factored out."""
    return a * b + c
'''

_ORDER = '''
@njit(**EXACT)
def order(v):
    """A whole number that grows with v: whole numbers have a vector maximum, floats do not. NaN is on top."""
    bits = np.{float}(v).view(np.{int})
    key = np.{int}(bits ^ ((bits >> np.{int}({shift})) & np.{int}({mask})))
    return key if v == v else np.{int}({mask})


@njit(**EXACT)
def ordered(key):
    """The number whose order is `key`."""
    return np.{int}(key ^ ((key >> np.{int}({shift})) & np.{int}({mask}))).view(np.{float})
'''

_BITS = {
    "float32": {"float": "float32", "int": "int32", "shift": 31, "mask": "0x7FFFFFFF"},
    "float64": {"float": "float64", "int": "int64", "shift": 63, "mask": "0x7FFFFFFFFFFFFFFF"},
}

_LARGER = '''
@njit(**EXACT)
def larger(a, b):
    """The larger of two numbers; NaN if either is."""
    return a if a > b or a != a else b
'''

_SMALLER = '''
@njit(**EXACT)
def smaller(a, b):
    """The smaller of two numbers; NaN if either is."""
    return a if a < b or a != a else b
'''

_FINITE = '''
@njit(**EXACT)
def finite(v):
    """A maximum used as a shift: 0 where it is -inf, in a row that sees nothing."""
    return number(0.0) if v == -np.inf else v
'''

_QUOTIENT = '''
@njit(**EXACT)
def quotient(a, b):
    """a / b, and 0 where b is an empty sum."""
    return number(0.0) if b == number(0.0) else a / b
'''

_ROUNDED = '''
@njit(**EXACT)
def rounded(v, digits, lowest, largest, beyond):
    """v to `digits` binary digits (ties to even), none finer than 2 to the `lowest`; `beyond` past `largest`."""
    if v != v or v - v != v - v:
        return number(math.copysign(beyond, v)) if v == v else v
    _, exponent = math.frexp(v)
    grain = max(exponent - digits, lowest)
    result = math.ldexp(np.rint(math.ldexp(v, -grain)), grain)
    return number(math.copysign(beyond, v) if abs(result) > largest else result)
'''

_NEAREST = '''
@njit(**EXACT)
def nearest(v, lowest, largest):
    """v as a whole number of 8 bits, ties to even: from `lowest` to `largest`, and 0 where v is no number."""
    v = np.rint(v)
    v = v if v > number(lowest) else number(lowest) if v == v else number(0.0)
    return np.int8(v if v < number(largest) else number(largest))
'''

_POWER_OF_TWO = '''
@njit(**EXACT)
def power_of_two(v):
    """The nearest of the powers 2 to the -127 up to 127, half way the larger; NaN stays NaN."""
    if v != v:
        return v
    part, exponent = math.frexp(min(max(v, number(2.0**-127)), number(2.0**127)))
    return number(math.ldexp(1.0, exponent - 1 if part < 0.75 else exponent))
'''

_LOWER = '''
@njit(**EXACT)
def lower(pair):
    """The first of the two codes in a byte."""
    return np.int8(np.int8(pair << 4) >> 4)
'''

_UPPER = '''
@njit(**EXACT)
def upper(pair):
    """The second of the two codes in a byte."""
    return np.int8(pair >> 4)
'''

_PAIRED = '''
@njit(**EXACT)
def paired(first, second):
    """Two codes of four bits in a byte."""
    return np.int8((np.int8(first) & 15) | np.int8(np.int8(second) << 4))
'''

ROUNDING: dict[str, str] = {
    "fp64": "{0}",
    "fp32": "number(np.float32({0}))",
    "tf32": "number(np.float32({0}))",
    "fp16": "rounded({0}, 11, -24, 65504.0, np.inf)",
    "bf16": "rounded({0}, 8, -133, 3.3895313892515355e38, np.inf)",
    "fp8e4m3": "rounded({0}, 4, -9, 448.0, 448.0)",
    "fp8e5m2": "rounded({0}, 3, -16, 57344.0, 57344.0)",
    "fp8e8m0": "power_of_two({0})",
    "int8": "nearest({0}, -128, 127)",
    "int4": "nearest({0}, -8, 7)",
}
"""Text that rounds a number to each format that numba kernels can round to."""


def prelude(number: str, used: str) -> list[str]:
    """The functions that the text `used` calls, for the float type `number`, as lines."""
    table = {
        "exp": _EXP[number],
        "exp2": _EXP2,
        "fused": _FUSED,
        "order": _ORDER.format(**_BITS[number]),
        "larger": _LARGER,
        "smaller": _SMALLER,
        "finite": _FINITE,
        "quotient": _QUOTIENT,
        "rounded": _ROUNDED,
        "nearest": _NEAREST,
        "power_of_two": _POWER_OF_TWO,
        "lower": _LOWER,
        "upper": _UPPER,
        "paired": _PAIRED,
    }
    wanted = [text for name, text in table.items() if re.search(rf"\b{name}\(", used)]
    return list(_lines(wanted))


def _lines(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        yield ""
        yield from text.rstrip("\n").split("\n")


RESERVED = (
    "np", "math", "njit", "number", "EXACT", "FAST", "KERNEL", "exp", "exp2", "fused", "order", "ordered", "larger",
    "smaller", "finite", "quotient", "rounded", "nearest", "power_of_two", "lower", "upper", "paired",
    "worker", "workers", "turn", "group", "moved", "count", "EACH",
)  # fmt: skip
"""Names that the generated text uses itself."""
