"""Fewer bits for what contractions read: a cast, or codes with scales. These steps round, and say so.

The quantizer itself is made of primitives (see ``ops.quantize``). What is made of inputs alone is prepared in
kernels of its own; its codes and scales then move in place of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diagkit import ops
from diagkit.derive.history import AnyTerm, rewrite
from diagkit.derive.operands import axis_of, operand, readers, replaced, standing_for, summed, undone, written
from diagkit.derive.transforms import taken
from diagkit.ops import Node, each
from diagkit.term import Axis, Cast, arg, check_format, names

Shared = str | Axis | Iterable[str | Axis] | None


def cast(term: AnyTerm, /, **formats: str) -> AnyTerm:
    """Round what contractions read to a number format: ``cast(P="fp8e4m3")``.

    The result of the contraction keeps its own format, at least fp32 for sums of 8-bit floats. Raises
    FormatError for a format that does not exist, TermError for a wire that contractions do not read.

    >>> from diagkit.term import Term
    >>> x, d = ops.axes("x d")
    >>> O = ops.einsum("x, x d -> d", ops.array("P", x), ops.array("V", x, d), name="O")
    >>> [box.name for box in cast(Term(*ops.trace([O])), P="fp16").boxes]
    ['P.fp16', 'O']
    """
    made = term
    for root, dtype in formats.items():
        wire = standing_for(made, root)
        node = ops.cast(operand(made, wire), check_format(dtype), name=f"{root}.{dtype}")
        made = replaced(made, wire, written(made, root, node), f"{root}.{dtype}", "cast", (f"{root}.{dtype}",))
    why = "; ".join(f"{root} is rounded to {dtype}" for root, dtype in formats.items())
    return taken(term, made, rewrite(term, "cast", why, named=formats))


def quantize(
    term: AnyTerm,
    /,
    wire: str,
    dtype: str,
    over: Shared = None,
    *,
    scale: str = "fp32",
    order: Iterable[str | Axis] | None = None,
    zero: bool = False,
    **blocks: int,
) -> AnyTerm:
    """Let contractions read codes of a wire in `dtype` with scales: ``quantize("K", "int8", over="d", x=64)``.

    One scale is shared along `over` (everything where nothing is named) and along blocks of given widths. The
    scales come back behind the contraction where it does not sum over their axes; otherwise, and with a `zero`
    for each scale (see `ops.quantize_affine`), the codes are turned into numbers in front of it. `order` is that
    of the last axes of the codes in memory, after those it does not name: 8-bit products want the summed axis last.
    Raises FormatError for a format without codes, TermError as `cast`.

    >>> from diagkit.term import Term
    >>> q, x, d = ops.axes("q x d")
    >>> S = ops.einsum("q d, x d -> q x", ops.array("Q", q, d), ops.array("K", x, d), name="S")
    >>> coded = quantize(Term(*ops.trace([S])), "K", "int8", over="d")
    >>> [(box.name, box.inputs) for box in coded.boxes[-2:]]
    [('S.acc', ('Q', 'K.codes')), ('S', ('S.acc', 'K.scale'))]
    """
    source = standing_for(term, wire)
    value = operand(term, source)
    shared = None if over is None else [axis_of(term, source, one) for one in _several(over)]
    widths = {axis_of(term, source, axis).name: width for axis, width in blocks.items()}
    laid = None if order is None else _laid(value.axes, [axis_of(term, source, one) for one in _several(order)])
    if zero:
        codes, scales, zeros = ops.quantize_affine(value, dtype, shared, scale=scale, called=wire, **widths)
        made = _with_zeros(term, wire, source, (_laid_out(codes, laid), scales, zeros), dtype, widths)
    else:
        called = {"name": f"{wire}.codes", "scale_name": f"{wire}.scale"}
        codes, scales = ops.quantize(value, dtype, shared, scale=scale, **called, **widths)  # type: ignore[arg-type]
        made = _with_codes(term, wire, source, (_laid_out(codes, laid), scales), widths)
    named = {"over": over, "scale": scale, "order": order, "zero": zero, **blocks}
    usual = {"over": None, "scale": "fp32", "order": None, "zero": False}
    said = {key: _plain(one) for key, one in named.items() if key not in usual or one != usual[key]}
    return taken(term, made, rewrite(term, "quantize", _reason(wire, dtype, scales, zero), (wire, dtype), said))


def _several(over: Any) -> list[Any]:
    return list(over) if isinstance(over, list | tuple) else [over]


def _plain(one: Any) -> Any:
    return one.name if isinstance(one, Axis) else tuple(map(_plain, one)) if isinstance(one, list | tuple) else one


def _reason(wire: str, dtype: str, scales: Node, zero: bool) -> str:
    kept = ", ".join(names(scales.axes))
    shared = f"one scale {'and zero ' if zero else ''}{f'for each {kept}' if kept else 'for all'}"
    return f"{wire} is rounded to codes in {dtype}, {shared}"


def _laid(axes: Iterable[Axis], last: list[Axis]) -> list[Axis]:
    """The axes with those that are named last, in the order in which they are named."""
    return [axis for axis in axes if axis not in last] + last


def _laid_out(codes: Node, order: list[Axis] | None) -> Node:
    """The codes with their axes in another order in memory."""
    if order is None:
        return codes
    return Node(Cast("", tuple(order), (), codes.source.dtype), codes.inputs, codes.hint, codes.name)  # type: ignore[union-attr]


def _with_codes(term: AnyTerm, wire: str, source: str, coded: tuple[Node, Node], widths: dict[str, int]) -> AnyTerm:
    """`term` with codes for `source`, and scales behind the contractions or in front of them."""
    codes, scales = coded
    stays = (f"{wire}.codes", f"{wire}.scale")
    spread = each(scales, operand(term, source), widths)
    spread = spread.named(f"{wire}.each") if widths else spread
    reading = readers(term, source)
    if any({axis.name for axis in spread.axes} & summed(term, box) for box in reading):
        back = ops.combine(lambda code, step: code * step, codes, spread, name=f"{wire}.values")
        return replaced(term, source, written(term, wire, back), f"{wire}.values", "quantize", stays)
    made = replaced(term, source, written(term, wire, codes, spread), stays[0], "quantize", stays)
    for box in reading:
        made = undone(made, box.name, arg(0), (spread.name or "",))
    return made


def _with_zeros(
    term: AnyTerm, wire: str, source: str, coded: tuple[Node, Node, Node], dtype: str, widths: dict[str, int]
) -> AnyTerm:
    """`term` with codes for `source`, turned into numbers in front of the contractions."""
    codes, *beside = coded
    least = -ops.largest_code(dtype) - 1
    spread = [each(one, operand(term, source), widths) for one in beside]
    scales, zeros = (
        one.named(f"{wire}.{kind}") if widths else one for one, kind in zip(spread, ("each", "zero.each"), strict=True)
    )
    back = ops.combine(
        lambda code, step, zero: (code - least) * step + zero, codes, scales, zeros, name=f"{wire}.values"
    )
    stays = tuple(f"{wire}.{one}" for one in ("codes", "scale", "zero"))
    return replaced(term, source, written(term, wire, back), f"{wire}.values", "quantize", stays)
