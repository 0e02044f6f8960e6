"""The tile that takes least time, where the one that moves least would have the loop rescale too often.

Transfers alone ask for the shortest chunk that is legal. But what a stream does once for each chunk, such as
rescaling its state, costs the more the shorter chunks are; so chunks are chosen by the time of all resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from diagkit.diagram.prediction import Prediction, predict
from diagkit.machine import Machine
from diagkit.term import DiagkitError, Term

CHUNKS = (16, 32, 64, 128, 256)
AIMS = ("transfers", "time")


def aimed(
    term: Term, name: str | Machine, dtype: str | None, without: Sequence[str], aim: str, given: Mapping[str, int]
) -> Prediction:
    """The prediction with the tile that moves least (`aim` "transfers") or takes least time ("time"), with the
    assumptions named in `without` off. Errors as of `predict`; DiagkitError for another aim."""
    if aim not in AIMS:
        raise DiagkitError(f"no aim {aim!r}", remedy=f"one of: {', '.join(AIMS)}")
    if aim == "transfers":
        return predict(term, name, dtype, given).leaving_out(without)
    tried = list(_tried(term, name, dtype, without, given))
    return min(tried, key=lambda one: (not one.fits, one.times.overlapped, one.times.serial))


def _tried(
    term: Term, name: str | Machine, dtype: str | None, without: Sequence[str], given: Mapping[str, int]
) -> Iterator[Prediction]:
    """The least transfers at each length of chunk that leaves room for a tile, and at that which is best for them."""
    yield predict(term, name, dtype, given).but(*without)
    chunks = [str(label.tile) for label in term.labels if label.kind == "stream" and label.level == 1]
    free = [tile for tile in chunks if tile not in given and not tile.isdecimal()]
    for length in CHUNKS if free else ():
        try:
            yield predict(term, name, dtype, {**given, **dict.fromkeys(free, length)}).but(*without)
        except DiagkitError:  # no tile is legal beside chunks of that length
            continue
