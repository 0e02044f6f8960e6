"""Refusals as values: a chapter shows what is refused and why without stopping at an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diagkit.bench import Shown
from diagkit.book.errors import BookError
from diagkit.term import DiagkitError


@dataclass(frozen=True, repr=False)
class Refusal(Shown):
    """An error that was expected: its kind, and what it says about axis, box, reason and remedy.

    >>> from diagkit.term import AxisError
    >>> Refusal(AxisError("no axis 'y'", axis="y", remedy="use one of: q, x")).rows()[:2]
    [('refused', 'AxisError'), ('axis', 'y')]
    """

    error: DiagkitError

    def rows(self) -> list[tuple[str, str]]:
        """Names and texts of what the error says."""
        parts = {name: getattr(self.error, name) for name in ("axis", "box", "reason", "remedy")}
        kind = type(self.error).__name__
        return [("refused", kind), *((name, str(text)) for name, text in parts.items() if text)]


_LAWFUL = "take the step itself, without refusal"


def refusal(step: Callable[..., Any], *args: Any, **named: Any) -> Refusal:
    """Call `step(*args, **named)`, which must be refused, and return the refusal for display.

    Errors: BookError where the step is lawful after all; what is no DiagkitError goes through.

    >>> from diagkit.ops import axes
    >>> print(refusal(axes, "q x", d=64))
    refused  AxisError
    axis     d
    reason   a size for 'd', which is no axis of 'q x'
    remedy   name it too
    """
    if not callable(step):
        raise BookError(f"{step!r} is no step to take", remedy='write refusal(naive.stream, x="s_x")')
    try:
        step(*args, **named)
    except DiagkitError as error:
        return Refusal(error)
    raise BookError(f"{getattr(step, '__name__', step)} was expected to be refused, and is lawful", remedy=_LAWFUL)
