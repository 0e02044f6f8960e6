"""Recorded queries, keys and values of a real small transformer: data/activations/minilm.npz."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from diagkit.machine.facts import MachineError
from diagkit.machine.files import data_path


@lru_cache(maxsize=1)
def recording() -> dict[str, NDArray[Any]]:
    """Every array of the file, as stored: Q, K, V (layer, head, length, d), layers, heads, tokens, token_ids."""
    with np.load(data_path("activations", "minilm.npz"), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def activations(layer: int = 0, head: int | None = None, dtype: DTypeLike = np.float32) -> dict[str, NDArray[Any]]:
    """Q, K and V of all-MiniLM-L6-v2 at one layer, before the scale d**-0.5, on 512 tokens of a real text.

    Shapes (head, length, 32), or (length, 32) where a head is chosen; recorded in float16, returned in
    `dtype` as fresh arrays. Errors: `MachineError` that names the layers and heads recorded.
    Source: data/activations/README.md.

    >>> {name: array.shape for name, array in activations(layer=2, head=3).items()}
    {'Q': (512, 32), 'K': (512, 32), 'V': (512, 32)}
    """
    kept = np_type(dtype)
    at = place("layer", layer)
    head_at = slice(None) if head is None else place("head", head)
    return {name: recording()[name][at][head_at].astype(kept) for name in ("Q", "K", "V")}


def np_type(dtype: Any) -> Any:
    """numpy's type of that name."""
    try:
        return np.dtype(dtype)
    except TypeError:
        raise MachineError(f"numpy has no type {dtype!r}", remedy="use its names: float16, float32, float64") from None


def place(kind: str, wanted: int) -> int:
    """Where that layer or head lies in the file."""
    recorded = recorded_numbers(kind)
    if wanted not in recorded:
        remedy = f"recorded {kind}s: {', '.join(map(str, recorded))}"
        raise MachineError(f"no recorded {kind} {wanted!r}", field=kind, remedy=remedy)
    return recorded.index(wanted)


def recorded_numbers(kind: str) -> list[int]:
    """The numbers of the recorded layers ("layer") or heads ("head"), counted from 0 as in the model.

    >>> recorded_numbers("layer")
    [0, 2, 5]
    """
    if kind not in ("layer", "head"):
        raise MachineError(f"nothing is recorded by {kind!r}", remedy="use one of: layer, head")
    return [int(number) for number in recording()[f"{kind}s"]]


def tokens() -> list[str]:
    """The word pieces that the rows of Q, K and V belong to, [CLS] first and [SEP] last.

    >>> tokens()[:5]
    ['[CLS]', 'alice', 'was', 'beginning', 'to']
    """
    return [str(token) for token in recording()["tokens"]]
