"""Made-up queries, keys and values on which number formats are judged, the same for everyone: seed and sizes given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diagkit.term import InputError

Arrays = dict[str, NDArray[np.float64]]
BIAS, SHARP = 3.0, 1.5
"""The spread of the offsets of key channels, and of the queries beside them."""


def samples(kind: str = "normal", n: int = 2048, d: int = 128, queries: int | None = None, seed: int = 0) -> Arrays:
    """Q, K and V of one head, float64, shapes (queries or n, d), (n, d) and (n, d).

    * "normal": N(0, 1).
    * "outliers": N(0, 1) + N(0, 100) Bernoulli(0.001): one number in a thousand is ten times as large.
    * "channel bias": each channel of the keys is off by one amount, N(0, 9), for all keys; queries N(0, 2.25).

    Raises InputError for another kind.
    Source: the outliers are those of FlashAttention-3 (arXiv 2407.08608), section 4.3.

    >>> {name: array.shape for name, array in samples("outliers", n=64, d=16, queries=8).items()}
    {'Q': (8, 16), 'K': (64, 16), 'V': (64, 16)}
    """
    if kind not in SAMPLES:
        raise InputError(f"no sample {kind!r}", remedy=f"use one of: {', '.join(SAMPLES)}")
    random = np.random.default_rng(seed)
    rows = {"Q": n if queries is None else queries, "K": n, "V": n}
    return SAMPLES[kind](random, {name: (length, d) for name, length in rows.items()})


def _normal(random: np.random.Generator, shapes: dict[str, tuple[int, int]]) -> Arrays:
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def _outliers(random: np.random.Generator, shapes: dict[str, tuple[int, int]]) -> Arrays:
    spikes = {
        name: 10 * random.standard_normal(shape) * (random.random(shape) < 1e-3) for name, shape in shapes.items()
    }
    return {name: value + spikes[name] for name, value in _normal(random, shapes).items()}


def _biased(random: np.random.Generator, shapes: dict[str, tuple[int, int]]) -> Arrays:
    made = _normal(random, shapes)
    made["Q"] *= SHARP
    made["K"] += BIAS * random.standard_normal(shapes["K"][1])
    return made


SAMPLES: dict[str, Callable[[Any, Any], Arrays]] = {
    "normal": _normal,
    "outliers": _outliers,
    "channel bias": _biased,
}
