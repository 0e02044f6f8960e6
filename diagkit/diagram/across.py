"""The same diagram on several machines, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagkit.cost import NoTileError
from diagkit.diagram.fastest import aimed
from diagkit.diagram.prediction import NEEDED, TIME_HEAD, Prediction, several
from diagkit.machine import Energy, Machine, MachineError, Sheet
from diagkit.term import DiagkitError, MissingKeyError, Term

HEAD = ("machine", "tiles", *TIME_HEAD, "mJ", "moving")


@dataclass(frozen=True, repr=False)
class Across:
    """One prediction for each machine, or the reason why there is none.

    `found` and `refused` are by machine, in the order asked.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> tiled = dk.Diagram(C, name="product").group(a="g_a", c="g_c").stream(b="s_b")
    >>> found = tiled.across(["T4", "H100-SXM"], "fp16", a=4096, b=4096, c=4096)
    >>> found.best(), found.table().column("machine")
    ('H100-SXM', ['T4', 'H100-SXM'])
    """

    found: Mapping[str, Prediction]
    refused: Mapping[str, str]
    order: tuple[str, ...]

    def __getitem__(self, name: str) -> Prediction:
        if name not in self.found:
            reason = self.refused.get(name, "was not asked for")
            raise MissingKeyError(f"no prediction for {name!r}: {reason}", remedy=f"there are: {', '.join(self.found)}")
        return self.found[name]

    def best(self, key: Callable[[Prediction], float] = lambda one: one.times.overlapped) -> str:
        """The machine where `key` is least: the overlapped time, if nothing else is asked."""
        if not self.found:
            why = "; ".join(f"{name}: {reason}" for name, reason in self.refused.items()) or "no machine was asked"
            raise DiagkitError(f"no machine has a prediction ({why})", remedy="ask for another format or machine")
        return min(self.found, key=lambda name: key(self.found[name]))

    def table(self) -> Sheet:
        """A row for each machine."""
        return Sheet(HEAD, tuple(self._row(name) for name in self.order))

    def _row(self, name: str) -> tuple[str, ...]:
        if name in self.refused:
            return name, self.refused[name], *[""] * (len(HEAD) - 2)
        one = self.found[name]
        tiles = ", ".join(f"{tile} = {number}" for tile, number in one.tiles.items())
        time, rate, bottleneck = one.timed()
        open_rates = f" (no rate: {', '.join(one.times.unknown)})" if one.times.unknown else ""
        return name, tiles, time, rate, bottleneck + open_rates, *_spent(one.energy)

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def _spent(used: Energy) -> tuple[str, str]:
    """Millijoules and the share of moving; neither where the machine states no energy of memory or products."""
    missing = [name for name in used.unknown if name in NEEDED]
    if missing:
        return f"not stated: {', '.join(missing)}", ""
    return f"{1e3 * used.total:.3g}", f"{used.moving_share:.0%}"


def across(
    term: Term,
    machines: Any,
    dtype: str | None,
    without: Sequence[str],
    aim: str,
    sizes: Mapping[str, int],
) -> Across:
    """The predictions for `term` on `machines`, by name or as they are, at sizes and tiles (see `fastest.aimed`).

    A machine that states no peak for the format, or too little memory for any tile, has its reason in its place.
    """
    found: dict[str, Prediction] = {}
    refused: dict[str, str] = {}
    asked = [machines] if isinstance(machines, str | Machine) else machines
    names = [one.name if isinstance(one, Machine) else one for one in asked]
    for name, one_machine in zip(names, several(asked), strict=True):
        try:
            found[name] = aimed(term, one_machine, dtype, without, aim, sizes)
        except MachineError as error:
            refused[name] = f"refused: no {error.field}"
        except NoTileError as error:
            refused[name] = f"refused: {error.reason}"
    return Across(found, refused, tuple(names))
