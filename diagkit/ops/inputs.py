"""Arrays handed to a diagram: each of the right kind and shape, and what sizes they give the axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from diagkit.term import Array, Axis, Box, DiagkitError, InputError, Term, View, coordinate, exact

_STATED = ("the sizes given", "the diagram")  # where a size comes from, besides arrays


def check_inputs(term: Term, arrays: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """The arrays in the order of the diagram's inputs, each of a kind that its format admits."""
    wanted = {array.name: array for array in term.inputs}
    for name in arrays:
        if name not in wanted:
            raise InputError(f"{term.name} has no input {name!r}", remedy=f"its inputs are: {_signature(term)}")
    for name in wanted:
        if name not in arrays:
            raise InputError(f"{term.name} needs the input {name!r}", remedy=f"its inputs are: {_signature(term)}")
    return {name: _check_kind(array, _as_array(array, arrays[name], xp), xp) for name, array in wanted.items()}


_TYPES = {"fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2", "fp8e8m0": "float8_e8m0fnu"}
"""What ml_dtypes and torch call the formats that others hand in as bytes."""


def _as_array(array: Array, value: Any, xp: Any) -> Any:
    if array.dtype in _TYPES and str(getattr(value, "dtype", "")).removeprefix("torch.") == "uint8":
        room = "torch" if xp.name == "torch" else "ml_dtypes"
        raise InputError(
            f"input {array.name!r} is {array.dtype} and cannot be uint8: bytes of codes, or numbers?",
            box=array.name,
            remedy=f"of codes hand in .view({room}.{_TYPES[array.dtype]}), of numbers a float array",
        )
    try:
        return xp.array(value)
    except (TypeError, ValueError, DiagkitError) as error:
        shape = ", ".join(map(_sized, array.axes))
        raise InputError(
            f"input {array.name!r} is no array: {error}", box=array.name, remedy=f"give numbers over ({shape})"
        ) from error


def by_name(term: Term, positional: Sequence[Any], arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arrays, handed in by name; what came without a name is refused, since a step may reorder inputs.

    >>> import diagkit as dk
    >>> by_name(dk.Diagram(dk.exp(dk.array("X", dk.axis("x"))), name="f"), [[1.0]], {})
    Traceback (most recent call last):
    ...
    diagkit.term.errors.InputError: f takes its inputs by name; write X=...
    """
    if positional:
        wanted = ", ".join(f"{array.name}=..." for array in term.inputs)
        remedy = f"write {wanted}, or **arrays where they are in a dict" if isinstance(positional[0], dict) else None
        raise InputError(f"{term.name} takes its inputs by name", remedy=remedy or f"write {wanted}")
    return arrays


def _signature(term: Term) -> str:
    return ", ".join(f"{a.name}({', '.join(map(_sized, a.axes))})" for a in term.inputs) or "none"


def _sized(axis: Axis) -> str:
    return axis.name if axis.length is None else f"{axis.name}={axis.length}"


_CODES = ("int8", "int4")
"""Formats of codes, which a quantizer's reference hands out as whole numbers in a float array."""
_ADMITS = {"bool": ("bool",), "int": ("int",), "float": ("float", "int")}


def _check_kind(array: Array, value: Any, xp: Any) -> Any:
    wanted = "bool" if array.dtype == "bool" else "int" if array.dtype.startswith("int") else "float"
    found = xp.kind(value)
    if found in _ADMITS[wanted]:
        return value
    if found == "float" and array.dtype in _CODES and xp.is_whole(value):
        return xp.astype(value, xp.int32)
    hint = {
        "bool": "a mask is boolean, true for what may be seen; a mask of numbers is declared float and added",
        "int": "give whole numbers, such as class numbers or codes",
        "float": "a boolean mask is declared dtype='bool' and applied with dk.masked"
        if found == "bool"
        else "give real numbers",
    }[wanted]
    raise InputError(f"input {array.name!r} is {array.dtype} and cannot be {value.dtype}", box=array.name, remedy=hint)


def bind_sizes(
    term: Term, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The size of every axis, in elements, from the shapes of the inputs and what is `known` before.

    Raises InputError naming the axis, both sizes and both arrays; size 1 never stretches.

    >>> import diagkit as dk
    >>> bind_sizes(dk.Diagram(dk.exp(dk.array("X", dk.axis("x")))), {"X": (3,)})
    {'x': 3}
    """
    fixed = {name: axis.length for name, axis in term.axes.items() if isinstance(axis.length, int)}
    bound: dict[str, tuple[int, str]] = {name: (length, _STATED[0]) for name, length in (known or {}).items()}
    bound |= {name: (length, _STATED[1]) for name, length in fixed.items()}
    for array in term.inputs:
        shape = shapes[array.name]
        if len(shape) != len(array.axes):
            raise InputError(
                f"input {array.name!r} has shape {shape}, {len(shape)} axes",
                box=array.name,
                remedy=f"it takes {len(array.axes)} axes: ({', '.join(map(_sized, array.axes))})",
            )
        for axis, length in zip(array.axes, shape, strict=True):
            _bind(bound, axis, int(length), array.name, term)
    _bind_derived(term, bound)
    _bind_renamed(term, bound)
    _bind_derived(term, bound)
    _refuse_unknown(name for name in term.open_sizes if name not in bound)
    return {name: length for name, (length, _) in bound.items()}


def _bind(bound: dict[str, tuple[int, str]], axis: Axis, length: int, wire: str, term: Term) -> None:
    first, where = bound.setdefault(axis.name, (length, wire))
    if first != length:
        where = where if where in _STATED else repr(where)
        readers = ", ".join(repr(box.name) for box in term.consumers(wire)) or "the output"
        raise InputError(
            f"axis {axis.name!r} is {first} in {where} but {length} in {wire!r} (read by {readers})",
            axis=axis.name,
            box=wire,
            remedy=f"accepted for {wire!r}: {first} along {axis.name!r}; an axis of size 1 never stretches",
        )


def _refuse_unknown(sizes: Iterable[str]) -> None:
    """Refuse what a formula names and no array tells."""
    for name in sizes:
        raise InputError(
            f"a formula names the size of {name!r}, and no array has it",
            axis=name,
            remedy=f"lower it with {name}=... and run that, or give the axis a length: dk.axis({name!r}, 16)",
        )


def _bind_derived(term: Term, bound: dict[str, tuple[int, str]]) -> None:
    """A derived axis has the size that its formula gives, on every array; one that is as long as another axis, which
    no array has, tells the size of that one."""
    for axis in (axis for axis in term.axes.values() if axis.derived and axis.size.is_Symbol and axis.name in bound):
        bound.setdefault(axis.size.name, bound[axis.name])
    numbers = term.numbers({name: length for name, (length, _) in bound.items()})
    for axis in (axis for axis in term.axes.values() if axis.derived and axis.name in numbers):
        number = numbers[axis.name]
        length, wire = bound.setdefault(axis.name, (number, _STATED[1]))
        if length != number:
            raise InputError(
                f"axis {axis.name!r} is {axis.size} = {number} but {length} in {wire!r}",
                axis=axis.name,
                box=wire,
                remedy=f"accepted for {wire!r}: {number} along {axis.name!r}",
            )


def _bind_renamed(term: Term, bound: dict[str, tuple[int, str]]) -> None:
    """A renamed axis has the size of the axis it was; any other free axis must be given."""
    for box in sorted(term.flat, key=lambda box: not isinstance(box, View)):
        for axis in box.axes:
            if axis.name not in bound:
                bound[axis.name] = (_size_of_view(term, box, axis, bound), box.name)


def _parts(term: Term, read: Any, axis: Axis) -> int | None:
    """The number of parts where `axis` is the place within one of them: read at size * part + place."""
    for other in term.axes.values():
        if read == axis.size * coordinate(other.name) + coordinate(axis.name):
            return int(other.length) if isinstance(other.length, int) else None
    return None


def _windows(was: Axis, axis: Axis, bound: dict[str, tuple[int, str]]) -> int | None:
    """The number of windows where the axis that they are read from has its size by theirs: p + w - 1."""
    rest = was.size - axis.size
    known = {symbol: bound[symbol.name][0] for symbol in getattr(rest, "free_symbols", ()) if symbol.name in bound}
    found = bound[was.name][0] - exact(rest).xreplace({symbol: exact(number) for symbol, number in known.items()})
    return int(found) if was.derived and found.is_Integer and found >= 0 else None


def _size_of_view(term: Term, box: Box, axis: Axis, bound: dict[str, tuple[int, str]]) -> int:
    if isinstance(box, View):
        source = term.wires[box.inputs[0]].axes
        for was, read in zip(source, box.coordinates, strict=True):
            if read == coordinate(axis.name):
                return bound[was.name][0]
            parts = _parts(term, read, axis)
            if parts is not None:
                return -(-bound[was.name][0] // parts)
            windows = _windows(was, axis, bound) if read.has(coordinate(axis.name)) else None
            if windows is not None:
                return windows
    raise InputError(
        f"nothing gives axis {axis.name!r} of {box.name!r} a size",
        axis=axis.name,
        box=box.name,
        remedy=f"give the axis a length when it is made, e.g. dk.axis({axis.name!r}, 16)",
    )
