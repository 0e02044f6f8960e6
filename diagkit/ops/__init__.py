"""Operations: one row per primitive and per named block, and what each means on arrays.

`__all__` is what users write algorithms with, and ``diagkit`` takes it over whole. What the rooms above
need besides (the tables, the tracer, what runs a single box) is imported below as itself.
"""

from inspect import isfunction as _isfunction

from diagkit.ops.blocks import (
    alibi_slopes,
    attention,
    causal,
    cross_entropy,
    gelu,
    layer_norm,
    logsumexp,
    masked,
    mean,
    relu,
    rms_norm,
    select,
    sigmoid,
    silu,
    softmax,
    spherical,
    variance,
    window,
)
from diagkit.ops.build import (
    array,
    axes,
    axis,
    blocked,
    cast,
    contract,
    einsum,
    index,
    rename,
    spread,
    view,
    weight,
)
from diagkit.ops.classes import largest_number as largest_number
from diagkit.ops.evaluate import Engine as Engine
from diagkit.ops.evaluate import close_arrays as close_arrays
from diagkit.ops.evaluate import divides as divides
from diagkit.ops.evaluate import evaluate as evaluate
from diagkit.ops.evaluate import evaluate_box as evaluate_box
from diagkit.ops.evaluate import open_arrays as open_arrays
from diagkit.ops.evaluate import reference as reference
from diagkit.ops.foreign import missing_step as missing_step
from diagkit.ops.functions import (
    absolute,
    cos,
    equal,
    erf,
    exp,
    finite,
    floor,
    log,
    maximum,
    minimum,
    quotient,
    sign,
    sin,
    sqrt,
    tanh,
    where,
)
from diagkit.ops.inputs import bind_sizes as bind_sizes
from diagkit.ops.inputs import by_name as by_name
from diagkit.ops.libraries import format_range as format_range
from diagkit.ops.libraries import format_step as format_step
from diagkit.ops.libraries import numpy_dtype as numpy_dtype
from diagkit.ops.libraries import rounded as rounded
from diagkit.ops.nodes import Node, block, combine
from diagkit.ops.nodes import trace as trace
from diagkit.ops.order import argmax, argmin, argtopk, topk
from diagkit.ops.quantize import LARGEST as LARGEST
from diagkit.ops.quantize import dequantize, hadamard, quantize, quantize_affine
from diagkit.ops.quantize import each as each
from diagkit.ops.quantize import largest_code as largest_code
from diagkit.ops.reductions import amax, amin, product, reduce, total
from diagkit.ops.samples import SAMPLES as SAMPLES
from diagkit.ops.samples import samples
from diagkit.ops.scalars import BY_SYMBOL as BY_SYMBOL
from diagkit.ops.scalars import SCALARS as SCALARS
from diagkit.ops.scalars import Scalar as Scalar
from diagkit.ops.undefined import check_formulas as check_formulas
from diagkit.term import spoken as _spoken

__all__ = [
    "Node", "absolute", "alibi_slopes", "amax", "amin", "argmax", "argmin", "argtopk", "array", "attention", "axes",
    "axis", "block", "blocked",
    "cast", "causal", "combine", "contract", "cos", "cross_entropy", "dequantize", "einsum", "equal", "erf", "exp",
    "finite", "floor", "gelu", "hadamard", "index", "layer_norm", "log", "logsumexp", "masked", "maximum", "mean",
    "minimum", "product", "quantize", "quantize_affine", "quotient", "reduce", "relu", "rename", "rms_norm", "samples",
    "select", "sigmoid", "sign", "silu", "sin", "softmax", "spherical", "spread", "sqrt", "tanh", "topk", "total",
    "variance", "view", "weight", "where", "window",
]  # fmt: skip

# Users meet these functions here: a call that does not fit says how it is written.
globals().update({name: _spoken(one) for name in __all__ if _isfunction(one := globals()[name])})
