"""Number formats of inputs and accumulators: what they take in memory, with every column as it was."""

from __future__ import annotations

from dataclasses import replace

from diagkit.derive.history import AnyTerm, relabel, take
from diagkit.term import FormatError, InputError, State, StreamError, StreamForm, check_format

SUMS = ("fp32", "fp16", "bf16")
"""The formats that a stream may gather in; fp64 is that of fp64 inputs."""


def formats(term: AnyTerm, /, dtype: str | None = None, **by_array: str) -> AnyTerm:
    """The diagram with its inputs in other number formats: one for all that hold fractions, or by name.

    Masks and class numbers keep theirs unless named. What is made from the inputs follows them;
    accumulators stay at least fp32, or what `accumulate` made them. Raises FormatError for a format that
    does not exist and InputError for an input that does not.

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
    return replace(form, state=tuple(_gathered(state, dtype) for state in form.state))


def _gathered(state: State, dtype: str) -> State:
    return replace(state, dtype=dtype) if state.dtype in ("fp32", "fp64") else state


def accumulate(term: AnyTerm, /, dtype: str, *states: str) -> AnyTerm:
    """The diagram with what its streams carry in another format than fp32: all of it, or some states by name.

    The state is rounded each time that it is renewed, and takes as many bytes. Raises FormatError for a format
    that streams do not gather in, StreamError where there is no stream or no such state.

    Source: arXiv 2412.03317, section 4.3, with accumulators told apart from operands.

    >>> import diagkit as dk
    >>> x, d = dk.axes("x d")
    >>> V = dk.einsum("x, x d -> d", dk.array("P", x), dk.array("V", x, d), name="O")
    >>> [state.dtype for state in accumulate(dk.Diagram(V).stream(x="s_x"), "fp16").forms[0].state]
    ['fp16']
    """
    if check_format(dtype) not in SUMS:
        raise FormatError(f"no stream gathers in {dtype!r}", remedy=f"use one of: {', '.join(SUMS)}")
    known = [state.name for form in term.forms for state in form.state]
    if not known:
        raise StreamError(f"{term.name} carries nothing: no axis is streamed", remedy="stream an axis first")
    for name in states:
        if name not in known:
            raise StreamError(f"no state {name!r} is carried", box=name, remedy=f"the states are: {', '.join(known)}")
    chosen = states or known
    forms = tuple(
        replace(form, state=tuple(replace(one, dtype=dtype) if one.name in chosen else one for one in form.state))
        for form in term.forms
    )
    reason = f"{', '.join(chosen)} in {dtype}"
    return take(term, {"forms": forms}, relabel(term, "accumulate", reason, (dtype, *states)))
