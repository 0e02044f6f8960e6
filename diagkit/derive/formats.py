"""Number formats of the inputs: what they take in memory, with every column as it was."""

from __future__ import annotations

from dataclasses import replace

from diagkit.derive.history import AnyTerm, relabel, take
from diagkit.term import InputError, StreamForm, check_format


def formats(term: AnyTerm, /, dtype: str | None = None, **by_array: str) -> AnyTerm:
    """The diagram with its inputs in other number formats: one for all that hold fractions, or by name.

    Masks and class numbers keep theirs unless named. What is made from the inputs follows them;
    accumulators stay at least fp32. Raises FormatError for a format that does not exist and InputError
    for an input that does not.

    >>> import diagkit as dk
    >>> doubled = dk.Diagram(2 * dk.array("X", dk.axis("x")))
    >>> formats(doubled, "fp16").inputs
    (Array('X', (Axis('x'),), 'fp16'),)
    """
    known = {array.name for array in term.inputs}
    for name in by_array:
        if name not in known:
            raise InputError(f"{term.name} has no input {name!r}", remedy=f"its inputs are: {', '.join(sorted(known))}")
    wanted = {array.name: by_array.get(array.name, _usual(array.dtype, dtype)) for array in term.inputs}
    inputs = tuple(replace(array, dtype=check_format(wanted[array.name])) for array in term.inputs)
    wide = any(array.dtype == "fp64" for array in inputs)
    forms = tuple(_accumulating(form, "fp64" if wide else "fp32") for form in term.forms)
    reason = ", ".join(f"{array.name} in {array.dtype}" for array in inputs)
    given = {**({} if dtype is None else {"dtype": dtype}), **by_array}
    return take(term, {"inputs": inputs, "forms": forms}, relabel(term, "formats", reason, named=given))


def _usual(now: str, dtype: str | None) -> str:
    return now if dtype is None or now == "bool" or now.startswith("int") else dtype


def _accumulating(form: StreamForm, dtype: str) -> StreamForm:
    return replace(form, state=tuple(replace(state, dtype=dtype) for state in form.state))
