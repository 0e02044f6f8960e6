"""Names of points in a plot: each where it covers neither a point, nor another name, nor the legend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

Rectangle = tuple[float, float, float, float]
"""left, bottom, right, top, in pixels"""
Offset = tuple[float, float]
SIZE = 7
REACH = 5.0
"""How far a marker reaches from its point, in pixels."""
STEP = 9.0
LONGEST = 24
FURTHEST = 9
"""How many steps up or down a name may stand from its point."""


def name_points(
    axes: Any, points: Sequence[tuple[float, float, str]], others: Sequence[tuple[float, float]], colour: str
) -> None:
    """Write the name of each point (x, y, name) beside it, away from `others`, the points of all groups; a thin line
    leads to a name that stands further off."""
    axes.figure.draw_without_rendering()
    taken = [_around(axes.transData.transform(point)) for point in others]
    legend = axes.get_legend()
    taken += [legend.get_window_extent().extents] if legend is not None else []
    for across, up, name in points:
        taken.append(_named(axes, (across, up), name, colour, taken))


def _around(pixel: Any) -> Rectangle:
    x, y = (float(number) for number in pixel)
    return x - REACH, y - REACH, x + REACH, y + REACH


def _named(axes: Any, point: tuple[float, float], name: str, colour: str, taken: Sequence[Rectangle]) -> Rectangle:
    """Write a name in the first free place, or else in the one that covers least; returns what it takes."""
    tried: list[tuple[int, int, Offset, Rectangle]] = []
    for rank, offset in enumerate(offsets()):
        words = _written(axes, point, name, colour, offset)
        place = tuple(float(number) for number in words.get_window_extent().extents)
        words.remove()
        tried.append((_covered(axes, place, taken), rank, offset, (place[0], place[1], place[2], place[3])))
        if not tried[-1][0]:
            break
    *_, offset, place = min(tried)
    _written(axes, point, name, colour, offset, led=abs(offset[0]) > STEP)
    return place


def _written(axes: Any, point: tuple[float, float], name: str, colour: str, offset: Offset, led: bool = False) -> Any:
    side = "left" if offset[0] > 0 else "right"
    line: dict[str, Any] = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3}
    line["relpos"] = (0 if offset[0] > 0 else 1, 0.5)
    words = axes.annotate(
        broken(name), point, offset, textcoords="offset points", fontsize=SIZE, color=colour, ha=side, va="center",
        arrowprops=line if led else None,
    )  # fmt: skip
    words.set_in_layout(False)
    return words


def broken(name: str) -> str:
    """A long name on several lines, broken behind commas and semicolons.

    >>> broken("int4 keys per channel, with zeros"), broken("fp16")
    ('int4 keys per channel,\\nwith zeros', 'fp16')
    """
    return name if len(name) <= LONGEST else re.sub(r"([,;]) ", r"\1\n", name)


def offsets() -> Iterator[Offset]:
    """Where a name may stand from its point, in points of type: beside it, then ever further up and down.

    >>> [offset for offset, _ in zip(offsets(), range(4))]
    [(7, 0), (-7, 0), (16, 9.0), (16, -9.0)]
    """
    yield from ((7, 0), (-7, 0))
    for away in range(1, FURTHEST + 1):
        for side in (16, -16):
            yield from ((side, away * STEP), (side, -away * STEP))


def _covered(axes: Any, place: Any, taken: Sequence[Rectangle]) -> int:
    """How much a name would cover; the edge of the plot counts like a point."""
    left, bottom, right, top = axes.bbox.extents
    outside = place[0] < left or place[1] < bottom or place[2] > right or place[3] > top
    return int(outside) + sum(_meet(place, other) for other in taken)


def _meet(one: Any, other: Any) -> bool:
    return bool(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3])
