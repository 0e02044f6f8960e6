"""Windows that overlap: why their positions are no stream, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diagkit.term import Region, StreamError, Term, View, coordinate, names


def ordered(term: Term, regions: Iterable[Region], axis: str) -> StreamError | None:
    """The refusal of a stream along positions that windows are read at; None where no windows overlap there.

    A chunk would need the last positions of the one before it: a state that is handed on in order. Unlike partial
    sums two such states make no third, so there is nothing that parts or groups could merge.
    """
    for region in regions:
        for view in _views(term, region):
            places = _places(term, view, axis)
            if places:
                return _refusal(term, region, view, axis, places)
    return None


def _views(term: Term, region: Region) -> Iterable[View]:
    read = {*region.loads, *(box.name for box in term.primitives(region))}
    return (box for box in term.flat if isinstance(box, View) and box.name in read)


def _places(term: Term, view: View, axis: str) -> tuple[str, ...]:
    """The axes that windows of `view` run along, where these overlap along `axis` of the view or of its array."""
    for was, read in zip(names(term.wires[view.inputs[0]].axes), view.coordinates, strict=True):
        moving = tuple(name for name in names(view.axes) if abs(_slope(read, name)) == 1)
        if len(moving) > 1 and axis in (was, *moving):
            return moving
    return ()


def _slope(read: Any, axis: str) -> Any:
    return read.coeff(coordinate(axis)) if hasattr(read, "coeff") else 0


def _refusal(term: Term, region: Region, view: View, axis: str, places: tuple[str, ...]) -> StreamError:
    kept = next((one for wire in region.stores for one in names(term.wires[wire].axes) if one in places), places[0])
    apart = "" if view.name in region.loads else f"end the kernel before {view.name!r}, then "
    return StreamError(
        f"{view.name!r} reads overlapping windows along {axis!r}: each chunk would need the last positions of the one"
        " before, a state that is handed on in order and has no merge",
        axis=axis,
        box=view.name,
        remedy=f"{apart}group the positions, group({kept}=...): each tile loads the positions around it as well",
    )
