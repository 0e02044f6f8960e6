"""The tile that takes least time, where the one that moves least would have the loop rescale too often.

Transfers alone ask for the shortest chunk that is legal, and under a mask for the largest tile. But what a stream
does once for each chunk, such as rescaling its state, costs the more the shorter chunks are, and a large tile
computes more pairs that nobody sees. So tiles are chosen by the time of all resources, one after the other: any that
is used less makes the sum smaller, whatever overlaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from diagkit import cost
from diagkit.cost import LegalTile
from diagkit.diagram.prediction import Prediction, by_level, into_registers, predict, several, usual_format
from diagkit.diagram.together import moved_together
from diagkit.machine import Machine, times
from diagkit.term import DiagkitError, Term, depth

AIMS = ("transfers", "time")
OPTIONS = ("multiples", "divisors", "unit", "dtype", "groups")
"""What `legal_tile` takes beside sizes."""


def check_aim(aim: str) -> None:
    """Refuse an aim that is none."""
    if aim not in AIMS:
        raise DiagkitError(f"no aim {aim!r}", remedy=f"one of: {', '.join(AIMS)}")


def aimed(
    term: Term, name: str | Machine, dtype: str | None, without: Sequence[str], aim: str, given: Mapping[str, int]
) -> Prediction:
    """The prediction with the tile that moves least (`aim` "transfers") or takes least time ("time"), with the
    assumptions named in `without` off. Errors as of `predict`; DiagkitError for another aim."""
    check_aim(aim)
    price = seconds(term, name, dtype, without, given) if aim == "time" else None
    return predict(term, name, dtype, given, price).leaving_out(without)


def legal_tile(
    term: Term,
    memory: float,
    aim: str,
    name: str | Machine | None,
    options: Mapping[str, Any],
) -> LegalTile:
    """The legal tile for an `aim`: that of "time" needs a machine. Errors: DiagkitError without one, or with one that
    nothing is asked of; else as of `cost.legal_tile`."""
    check_aim(aim)
    if (aim == "time") != (name is not None):
        reason = 'aim="time" needs a machine' if name is None else f"the {aim} are the same on every machine"
        raise DiagkitError(reason, remedy='write both, aim="time" and machine="H100-SXM", or neither')
    if name is None:
        return cost.legal_tile(term, memory, **options)
    given = {key: number for key, number in options.items() if key not in OPTIONS}
    return cost.legal_tile(term, memory, price=seconds(term, name, options.get("dtype"), (), given), **options)


def seconds(
    term: Term, name: str | Machine, dtype: str | None, without: Sequence[str], given: Mapping[str, int]
) -> cost.Price:
    """Seconds that all resources of a machine take after one another, as a function of sizes and tiles; `given` are
    those of the levels below too. Without what `without` names (see `prediction.ASSUMED`)."""
    (found,) = several([name])
    kind = dtype or usual_format(term)
    moved, deep = cost.transfers(term).bytes(dtype).total(), depth(term) > 1
    work = {unit: amount for unit, amount in cost.work(term).by_unit().items() if unit not in without}

    def price(at: Mapping[str, int]) -> float:
        shared = "unshared" in without
        fetched = moved_together(term, dtype, at, found.multiprocessors) if shared else cost.evaluate(moved, at)
        inner = into_registers(term, dtype, {**given, **at}) if deep else 0
        amounts = {unit: float(cost.evaluate(amount, at)) for unit, amount in work.items()}
        return times(found, by_level(int(fetched), inner), amounts, kind).serial

    return price
