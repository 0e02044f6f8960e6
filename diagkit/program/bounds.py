"""Loop bounds from masks: chunks in which a mask hides everything are not visited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.program.nest import Span
from diagkit.term import StreamForm, Wire


@dataclass(frozen=True)
class Bounds:
    """Positions lo <= j < hi that a group visits, and full_lo <= j < full_hi where no mask hides any."""

    lo: Any
    hi: Any
    full_lo: Any = None
    full_hi: Any = None
    masks: tuple[str, ...] = ()


def stream_bounds(
    form: StreamForm, wires: Mapping[str, Wire], spans: Mapping[str, Span], number: Callable[[Any], Any]
) -> Bounds:
    """Every position, until the masks are read."""
    return Bounds(sympy.Integer(0), spans[form.axis].size)
