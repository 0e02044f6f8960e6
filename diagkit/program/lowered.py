"""What a lowered diagram is on one level or on several: it shows its pseudocode and knows what it lacks."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, Self

from diagkit.ops import Engine
from diagkit.term import InputError, Term, accepted

MONOSPACE = "font-family:monospace;white-space:pre;overflow-x:auto;line-height:1.35"


class Lowered:
    """Loop nests of `term`; `sizes` are (name, number) of the axes and tiles that were bound.

    What was left open stays a symbol.

    >>> import diagkit as dk
    >>> made = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").group(x="g_x").lower()
    >>> made.missing, made.at(x=8, g_x=4).missing, made.deepest, made.pseudocode() == str(made)
    (('x', 'g_x'), (), 1, True)
    >>> made.at(x=8, g_x=4).known
    {'x': 8}
    """

    term: Term
    sizes: tuple[tuple[str, int], ...]

    @property
    def deepest(self) -> int:
        """The level down to which tiles are meant."""
        raise NotImplementedError

    def pseudocode(self) -> str:
        """The loop nests as text."""
        raise NotImplementedError

    def at(self, **sizes: Any) -> Self:
        """The same diagram lowered with these sizes."""
        raise NotImplementedError

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the axes and tiles that still have no number."""
        return tuple(name for name in accepted(self.term, self.deepest) if name not in dict(self.sizes))

    @property
    def known(self) -> dict[str, int]:
        """The sizes that have a number, in elements: of axes, and those that only formulas name."""
        return self.term.numbers(dict(self.sizes))

    def __repr__(self) -> str:
        return self.pseudocode()

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return f'<pre style="{MONOSPACE}">{escape(self.pseudocode())}</pre>'

    def _bound(self, engine: Engine) -> Self:
        """The program at the sizes of the arrays; an InputError where tiles are still missing."""
        found = {name: engine.sizes[name] for name in self.missing if name in engine.sizes}
        self._need(name for name in self.missing if name not in found)
        return self.at(**dict(self.sizes), **found) if found else self

    def _need(self, missing: Iterable[str]) -> None:
        names = list(missing)
        if names:
            wanted = ", ".join(f"{name}=..." for name in names)
            raise InputError(
                f"{self.term.name} needs a number for {', '.join(names)}", remedy=f"lower it with {wanted}"
            )
