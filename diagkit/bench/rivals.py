"""What a kernel is timed against: the diagram evaluated plainly, torch's fused attention, a matrix product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from diagkit import ops
from diagkit.bench.errors import KernelError
from diagkit.term import Cast, Contract, FormatError, InputError, Map, Term, names

_GEMM_SIDE = 2048


@dataclass(frozen=True)
class Rival:
    """Something to time: `run` does it once; `flops` of its products, None where they are the kernel's."""

    name: str
    run: Callable[[], Any]
    flops: int | None = None


def rival(
    name: str, term: Term, arrays: Mapping[str, Any], results: Callable[[], Any], sizes: Mapping[str, int]
) -> Rival:
    """The rival of that name, warmed up. `results` are the kernel's, for rivals that must agree with it."""
    if name not in _RIVALS:
        raise InputError(f"nothing to measure against is named {name!r}", remedy=f"use: {', '.join(_RIVALS)}")
    found = _RIVALS[name](term, arrays, results, sizes)
    found.run()
    return found


def _numpy(term: Term, arrays: Mapping[str, Any], results: Any, sizes: Any) -> Rival:
    plain, inputs = term.erase(), {name: _host(value) for name, value in arrays.items()}
    return Rival("numpy", lambda: ops.evaluate(plain, inputs))


def _torch(term: Term, arrays: Mapping[str, Any], results: Any, sizes: Any) -> Rival:
    torch, plain = _need_torch(), term.erase()
    inputs = {name: _tensor(torch, value) for name, value in arrays.items()}

    def run() -> None:
        with torch.inference_mode():
            ops.evaluate(plain, inputs)

    return Rival("torch", run)


def _need_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise FormatError("this rival needs torch", remedy="pip install torch, or measure against 'numpy'") from None
    return torch


def _host(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()


def _tensor(torch: Any, value: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _gemm(term: Term, arrays: Mapping[str, Any], results: Any, sizes: Any) -> Rival:
    """A square product of random matrices in float32, by torch where it is there, else by numpy."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((_GEMM_SIDE, _GEMM_SIDE), dtype=np.float32) for _ in range(2))
    flops = 2 * _GEMM_SIDE**3
    try:
        import torch
    except ImportError:
        return Rival("gemm", lambda: a @ b, flops)
    left, right = torch.from_numpy(a), torch.from_numpy(b)
    return Rival("gemm", lambda: left @ right, flops)


@dataclass(frozen=True)
class Roles:
    """Which inputs are queries, keys and values, and their axes: `batch` of all, `rows` of queries,
    `over` the keys, `features` of queries and keys, `columns` of values."""

    queries: str
    keys: str
    values: str
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    over: str
    features: str
    columns: str


def roles(term: Term) -> Roles:
    """The roles of attention, read off the products: queries and keys meet in the first, the last one
    sums values over the axis that the queries lack.

    Raises KernelError where there are no such products, or axes that attention does not have.
    """
    products = [box for box in term.flat if isinstance(box, Contract) and len(box.inputs) == 2]
    found = _roles(term, products[0], products[-1]) if len(products) == 2 else None
    if found is None:
        raise KernelError(
            f"{term.name} does not have the products and axes of attention",
            remedy="measure against 'numpy', 'torch' or 'gemm'",
        )
    return found


def _roles(term: Term, first: Contract, second: Contract) -> Roles | None:
    inputs = {array.name: set(names(array.axes)) for array in term.inputs}
    pair = [_origin(term, wire) for wire in first.inputs]
    values = next((wire for wire in map(partial(_origin, term), second.inputs) if wire in inputs), None)
    if values is None or any(wire not in inputs for wire in pair):
        return None
    scores = set(names(first.axes))
    over = inputs[values] - set(names(second.axes))
    queries, keys = pair if over <= inputs[str(pair[1])] else reversed(pair)
    features = (inputs[queries] & inputs[keys]) - scores
    columns = inputs[values] - over - scores
    batch = tuple(sorted(inputs[queries] & inputs[keys] & scores))
    rows = tuple(sorted(inputs[queries] - set(batch) - features))
    if any(len(one) != 1 for one in (over, features, columns)) or over & inputs[queries] or not rows:
        return None
    alike = inputs[keys] == {*batch, *over, *features} and inputs[values] == {*batch, *over, *columns}
    return Roles(queries, keys, values, batch, rows, over.pop(), features.pop(), columns.pop()) if alike else None


def _origin(term: Term, wire: str) -> str:
    """The array that maps and casts of one input made `wire` from; `wire` itself where something else did."""
    makers = {box.name: box for box in term.flat}
    while isinstance(makers.get(wire), Map | Cast) and len(makers[wire].inputs) == 1:
        wire = makers[wire].inputs[0]
    return wire


def _sdpa(term: Term, arrays: Mapping[str, Any], results: Callable[[], Any], sizes: Mapping[str, int]) -> Rival:
    """torch's fused attention, full or causal: whichever gives the kernel's own numbers."""
    torch = _need_torch()
    part = roles(term)
    axes = {array.name: names(array.axes) for array in term.inputs}
    shape = {"q": (*part.batch, *part.rows, part.features), "k": (*part.batch, part.over, part.features)}
    shape["v"] = (*part.batch, part.over, part.columns)
    inputs = dict(zip("qkv", (part.queries, part.keys, part.values), strict=True))
    q, k, v = (_laid(torch, _tensor(torch, arrays[inputs[one]]), axes[inputs[one]], shape[one]) for one in "qkv")
    wanted = _tensor(torch, results())
    wanted = _laid(torch, wanted, names(term.wires[term.outputs[0]].axes), (*part.batch, *part.rows, part.columns))
    rows = part.rows
    k, v = _beside(k, len(part.batch), len(rows) - 1), _beside(v, len(part.batch), len(rows) - 1)
    for causal in (False, True):
        run = _fused(torch, q, k, v, causal)
        if torch.allclose(run().to(wanted.dtype), wanted, rtol=1e-2, atol=1e-3 * float(wanted.abs().max())):
            return Rival("torch-sdpa", run)
    raise KernelError(
        f"torch's fused attention, full or causal, is not what {term.name} computes",
        remedy="measure against 'torch', which runs the diagram itself",
    )


def _laid(torch: Any, value: Any, axes: tuple[str, ...], wanted: tuple[str, ...]) -> Any:
    del torch
    return value.permute([axes.index(axis) for axis in wanted]).contiguous()


def _beside(value: Any, batch: int, missing: int) -> Any:
    """Keys or values with length 1 along the query axes that they lack: heads that share them."""
    for _ in range(missing):
        value = value.unsqueeze(batch)
    return value


def _fused(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    k, v = (one.expand(*q.shape[:-2], *one.shape[-2:]) for one in (k, v))
    attention = torch.nn.functional.scaled_dot_product_attention

    def run() -> Any:
        with torch.inference_mode():
            return attention(*(_four(one) for one in (q, k, v)), is_causal=causal).reshape(*q.shape[:-1], v.shape[-1])

    return run


def _four(value: Any) -> Any:
    """With four axes, which is what the fused path takes."""
    while value.ndim < 4:
        value = value.unsqueeze(0)
    return value.flatten(0, value.ndim - 4) if value.ndim > 4 else value


_RIVALS: dict[str, Callable[[Term, Mapping[str, Any], Callable[[], Any], Mapping[str, int]], Rival]] = {
    "numpy": _numpy,
    "torch": _torch,
    "torch-sdpa": _sdpa,
    "gemm": _gemm,
}
