"""Operations: one row per primitive and per named block, and what each means on arrays."""

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
    absolute,
    amax,
    amin,
    array,
    axes,
    axis,
    cast,
    contract,
    cos,
    einsum,
    equal,
    erf,
    exp,
    floor,
    index,
    log,
    maximum,
    minimum,
    reduce,
    rename,
    sign,
    sin,
    sqrt,
    tanh,
    total,
    view,
    weight,
)
from diagkit.ops.evaluate import evaluate, reference
from diagkit.ops.inputs import bind_sizes
from diagkit.ops.nodes import Node, block, combine, trace
from diagkit.ops.scalars import BY_SYMBOL, SCALARS, Scalar

__all__ = [
    "BY_SYMBOL", "SCALARS", "Node", "Scalar", "absolute", "alibi_slopes", "amax", "amin", "array", "attention",
    "axes", "axis", "bind_sizes", "block", "cast", "causal", "combine", "contract", "cos", "cross_entropy",
    "einsum", "equal", "erf", "evaluate", "exp", "floor", "gelu", "index", "layer_norm", "log", "logsumexp",
    "masked", "maximum", "mean", "minimum", "reduce", "reference", "relu", "rename", "rms_norm", "select",
    "sigmoid", "sign", "silu", "sin", "softmax", "spherical", "sqrt", "tanh", "total", "trace", "variance",
    "view", "weight", "window",
]  # fmt: skip
