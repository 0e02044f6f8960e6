"""Wires and separators: paths through the zones of a line, once every row and every x is known."""

from __future__ import annotations

from itertools import pairwise

from diagkit.draw.pen import Pen, row
from diagkit.draw.rows import Bundle, Line, Strand, Zone
from diagkit.draw.scene import Command, Point, polyline, swing


def draw_wires(pen: Pen, line: Line) -> None:
    """Every strand as one path: straight along its rows, curved from row to row; dots where wires fork
    and join."""
    for strand in line.strands:
        if strand.spans or strand.joins is not None:
            path = _path(pen, line, strand)
            if path is not None:
                role = ("thin-" if strand.thin else "") + ("item" if strand.kind == "item" else "wire")
                pen.draw("wire", path, f"{role}-{strand.level}", strand.owner)


def _path(pen: Pen, line: Line, strand: Strand) -> tuple[Command, ...] | None:
    zones = line.zones
    path = _beginning(pen, zones, strand)
    for before, after in pairwise(strand.spans):
        _along(path, zones[before.last].x1)
        _change(path, zones[after.first].x0, after.track.y)
    if strand.spans:
        _along(path, zones[strand.spans[-1].last].x1 if strand.end_x is None else strand.end_x)
    if strand.joins is not None:
        zone = zones[strand.joins_at]
        _change(path, zone.x0, row(strand.joins, zone))
        pen.dot(zone.x0, row(strand.joins, zone), strand.level)
    return tuple(path) if len(path) > 1 else None


def _beginning(pen: Pen, zones: list[Zone], strand: Strand) -> list[Command]:
    if strand.forked is None:
        first = strand.spans[0]
        return [("M", (zones[first.first].x0 if strand.start_x is None else strand.start_x, first.track.y))]
    number = strand.spans[0].first if strand.spans else strand.joins_at
    before = zones[number - 1]
    y = row(strand.forked, before)
    pen.dot(before.x1, y, strand.level)
    path: list[Command] = [("M", (before.x1, y))]
    if strand.spans:
        _change(path, zones[number].x0, strand.spans[0].track.y)
    return path


def _along(path: list[Command], x: float) -> None:
    here = path[-1][1]
    if x > here[-2] + 0.05:
        if path[-1][0] == "L":
            path.pop()
        path.append(("L", (x, here[-1])))


def _change(path: list[Command], x: float, y: float) -> None:
    here = path[-1][1]
    if abs(y - here[-1]) < 0.05:
        _along(path, x)
    else:
        path.append(swing(here[-2], here[-1], x, y))


# Separators.


class _Fence:
    """The dashed line between two arrays, as long as they stand next to each other."""

    def __init__(self, upper: Strand, lower: Strand, points: list[Point]) -> None:
        self.upper, self.lower, self.points = upper, lower, points

    def follows(self, upper: Strand, lower: Strand) -> bool:
        """Whether the line between `upper` and `lower` is the same one, further right."""
        return _same(self.upper, upper) or _same(self.lower, lower)


def _same(one: Strand, other: Strand) -> bool:
    return one is other or other.seat is one.spans[-1].track or one.spans[-1].track is other.spans[0].track


def draw_separators(pen: Pen, line: Line) -> None:
    """Dashed lines between neighbouring arrays; they follow the rows and end where arrays meet."""
    open_fences: list[_Fence] = []
    for zone, following in zip(line.zones, [*line.zones[1:], None], strict=True):
        found: list[_Fence] = []
        for upper, lower in _neighbours(zone):
            y = _half_way(zone, upper, lower, following)
            before = next((fence for fence in open_fences if fence.follows(upper, lower)), None)
            if before is not None:
                open_fences.remove(before)
            points = (before.points if before else []) + [(zone.x0, y), (zone.x1, y)]
            found.append(_Fence(upper, lower, points))
        for fence in open_fences:
            _draw_fence(pen, fence)
        open_fences = found
    for fence in open_fences:
        _draw_fence(pen, fence)


def _half_way(zone: Zone, upper: Strand, lower: Strand, following: Zone | None) -> float:
    """The height between two wires; at a glyph from which more rows leave than enter, below these too;
    above a line of scalars, that does not move."""
    y = (row(upper, zone) + row(lower, zone)) / 2
    if zone.kind != "glyph" or following is None or lower.kind == "lane":
        return y
    here = _Fence(upper, lower, [])
    later = [(row(a, following) + row(b, following)) / 2 for a, b in _neighbours(following) if here.follows(a, b)]
    return max([y, *later])


def _neighbours(zone: Zone) -> list[tuple[Strand, Strand]]:
    groups: list[list[Bundle]] = zone.groups
    return [(upper[-1].strands[-1], lower[0].strands[0]) for upper, lower in pairwise(groups)]


def _draw_fence(pen: Pen, fence: _Fence) -> None:
    points: list[Point] = []
    for point in fence.points:
        while len(points) >= 2 and abs(points[-1][1] - point[1]) < 0.05 and abs(points[-2][1] - point[1]) < 0.05:
            points.pop()
        points.append(point)
    points = _slanted(points)
    if len(points) > 1 and points[-1][0] - points[0][0] > 14:
        pen.draw("line", polyline(points), "separator")


def _slanted(points: list[Point]) -> list[Point]:
    """The points with every upright step leant over by 45 degrees, as far as there is room."""
    made = list(points)
    for place, (one, other) in enumerate(pairwise(points)):
        if abs(one[0] - other[0]) < 1:
            lean = min(abs(one[1] - other[1]) / 2, 5.0)
            made[place], made[place + 1] = (one[0] - lean, one[1]), (other[0] + lean, other[1])
    return made
