"""The glyphs: what each kind of column looks like once its rows and its place are known.

A row of the table below has two functions: how wide the glyph is, and how it is drawn. Drawing returns the
rectangle that the glyph takes, from which its tinted region and title follow.
"""

from __future__ import annotations

from collections.abc import Callable

from diagkit.draw.arrange import Placed
from diagkit.draw.fonts import SANS, SERIF
from diagkit.draw.pen import TEXT, TITLE, Pen, row
from diagkit.draw.rows import Strand, Zone
from diagkit.draw.scene import BoxOf, Command, circle, polyline, rectangle, runs_width, semicircle
from diagkit.draw.typeset import roman

REACH = 40.0


def _mark(pen: Pen, placed: Placed, path: tuple[Command, ...], role: str, layer: str = "glyph") -> None:
    """Draw a part of a column's glyph, with what the column does in words."""
    pen.draw(layer, path, role, _owner(placed), placed.column.about)


def _owner(placed: Placed) -> str:
    return str(placed.column.key)


def _title_width(placed: Placed) -> float:
    return runs_width(roman(placed.column.title), TITLE, SANS) + 14


def _text_width(placed: Placed, size: float = TEXT) -> float:
    return runs_width(placed.column.text, size)


def _rows(strands: list[Strand], zone: Zone) -> list[float]:
    return sorted(row(strand, zone) for strand in strands)


# Contraction.


def _contract_width(placed: Placed) -> float:
    return max(20 + _reach(placed) + 26, _title_width(placed))


def _reach(placed: Placed) -> float:
    upper, lower = placed.pairs[0]
    return min((row(lower, placed.zone) - row(upper, placed.zone)) / 2, REACH)


def _contract(pen: Pen, placed: Placed) -> BoxOf:
    zone, level, owner = placed.zone, placed.column.level, _owner(placed)
    arc = zone.x0 + 16
    for upper, lower in placed.pairs:
        top, bottom = row(upper, zone), row(lower, zone)
        arch = semicircle(arc, top, bottom, min((bottom - top) / 2, REACH))
        _mark(pen, placed, arch, f"wire-{level}", "wire")
    for strand in placed.ends:
        strand.end_x = arc
    for strand in _alone(placed):
        strand.end_x = arc - 2
        pen.say(roman("Σ", bold=True), arc + 7, row(strand, zone) + 6, 17, f"label-{level}", owner=owner)
    top, bottom = row(placed.pairs[0][0], zone), row(placed.pairs[0][1], zone)
    _scalars(pen, placed, arc + _reach(placed), (top + bottom) / 2)
    return arc - 4, top, zone.x1 - 8, bottom


def _alone(placed: Placed) -> list[Strand]:
    paired = {id(strand) for pair in placed.pairs for strand in pair}
    return [strand for strand in placed.ends if id(strand) not in paired]


def _scalars(pen: Pen, placed: Placed, x: float, y: float) -> None:
    """The short arrow of the numbers that a glyph makes, or the beginning of their line."""
    level, lane = placed.column.level, placed.lane
    if lane is not None:
        lane.start_x = x
        return
    end = placed.zone.x1 - 8
    pen.draw("wire", polyline([(x, y), (end - 4, y)]), f"wire-{level}", _owner(placed))
    pen.head(end, y, level, _owner(placed))


# Reductions.


def _reduce_width(placed: Placed) -> float:
    return max(_text_width(placed, 17) + 44, _title_width(placed))


def _reduce(pen: Pen, placed: Placed) -> BoxOf:
    zone, level, owner = placed.zone, placed.column.level, _owner(placed)
    half = _text_width(placed, 17) / 2
    x = zone.x0 + 14 + half
    for strand in placed.ends:
        strand.end_x = x - half - 3
        pen.say(placed.column.text, x, row(strand, zone) + 6, 17, f"label-{level}", owner=owner)
    rows = _rows(placed.ends, zone)
    _scalars(pen, placed, x + half + 3, rows[0])
    return x - half, rows[0] - 10, zone.x1 - 8, rows[-1] + 10


# Maps, masks, casts: on the line of scalars, or on the wire.


def _map_width(placed: Placed) -> float:
    return _text_width(placed) + (44 if placed.lane else 40)


def _map(pen: Pen, placed: Placed) -> BoxOf:
    return _inline(pen, placed, _text_width(placed), _map_text, 9.0)


def _map_text(pen: Pen, placed: Placed, x: float, y: float) -> None:
    lane = placed.lane
    if lane is None:
        half = _text_width(placed) / 2 + 7
        _mark(pen, placed, rectangle((x - half, y - 13, x + half, y + 13), 3), f"glyph-{placed.column.level}")
    lift = -6 if lane is not None and not placed.fresh else 5
    pen.say(placed.column.text, x, y + lift, TEXT, f"label-{placed.column.level}", owner=_owner(placed))


def _inline(
    pen: Pen, placed: Placed, wide: float, inside: Callable[[Pen, Placed, float, float], None], high: float
) -> BoxOf:
    """Draw something on the line of scalars between two arrowheads, or at the wire where there is one."""
    zone, level, lane = placed.zone, placed.column.level, placed.lane
    x = (zone.x0 + zone.x1) / 2
    y = row(lane or placed.spans[0], zone)
    inside(pen, placed, x, y)
    if lane is not None:
        goes_on = lane.spans[-1].last > zone.number or (lane not in placed.ends and _lives(lane, zone))
        end = zone.x1 - 6
        if placed.fresh:
            pen.head(x - wide / 2 - 4, y, level, _owner(placed))
            lane.start_x = end - 5
            end = x + wide / 2 + 13
        pen.head(end, y, level, _owner(placed))
        lane.end_x = None if goes_on else end - 4
        if placed.fresh and not goes_on:
            lane.start_x = lane.end_x
    return x - wide / 2 - 12, y - high, x + wide / 2 + 12, y + high


def _lives(lane: Strand, zone: Zone) -> bool:
    return lane.spans[-1].last > zone.number


def _mask_width(placed: Placed) -> float:
    return max(70.0, _title_width(placed))


def _mask(pen: Pen, placed: Placed) -> BoxOf:
    return _inline(pen, placed, 26, _mask_square, 13)


def _mask_square(pen: Pen, placed: Placed, x: float, y: float) -> None:
    mask_square(pen, placed.column.style, x, y, 13, _owner(placed), placed.column.about)


def mask_square(pen: Pen, shape: str, x: float, y: float, half: float, owner: str, about: str) -> None:
    """The square of a mask: what is hidden is grey."""
    left, top, right, bottom = x - half, y - half, x + half, y + half
    pen.draw("glyph", rectangle((left, top, right, bottom)), "mask", owner, about)
    if shape in ("causal", "window"):
        pen.draw("glyph", polyline([(left, top), (right, top), (right, bottom)], closed=True), "mask-hidden", owner)
    if shape == "window":
        cut = half * 0.9
        lower = polyline([(left, top + cut), (left, bottom), (right - cut, bottom)], closed=True)
        pen.draw("glyph", lower, "mask-hidden", owner)
    if shape == "mask":
        pen.draw("glyph", rectangle((x, top, right, y)), "mask-hidden", owner)
        pen.draw("glyph", rectangle((left, y, x, bottom)), "mask-hidden", owner)


def _cast_width(placed: Placed) -> float:
    return runs_width(placed.column.text, 10.5, SANS) + 46


def _cast(pen: Pen, placed: Placed) -> BoxOf:
    return _inline(pen, placed, runs_width(placed.column.text, 10.5, SANS) + 10, _cast_tag, 9)


def _cast_tag(pen: Pen, placed: Placed, x: float, y: float) -> None:
    half = runs_width(placed.column.text, 10.5, SANS) / 2 + 5
    pen.draw("glyph", rectangle((x - half, y - 8, x + half, y + 8), 8), "tag", _owner(placed), placed.column.about)
    pen.say(placed.column.text, x, y + 3.8, 10.5, "glyph-text", family=SANS, owner=_owner(placed))


# Boxes.


def _linear_width(placed: Placed) -> float:
    return max(42.0, _text_width(placed, 15) + 20) + 16


def _linear(pen: Pen, placed: Placed) -> BoxOf:
    box, cut = _through_box(placed), 10
    left, top, right, bottom = box
    corners = [(left, top), (right, top), (right, bottom), (left + cut, bottom), (left, bottom - cut)]
    pen.draw("glyph", polyline(corners, closed=True), "learned", _owner(placed), placed.column.about)
    pen.say(placed.column.text, (left + right) / 2 + 1, (top + bottom) / 2 + 5, 15, "glyph-text", owner=_owner(placed))
    return box


def _through_box(placed: Placed) -> BoxOf:
    """The box between the wires that end in it and those that leave it."""
    zone = placed.zone
    rows = _rows(placed.spans, zone) + [strand.spans[0].track.y for strand in placed.makes]
    left, right = zone.x0 + 8, zone.x1 - 8
    for strand in placed.ends:
        strand.end_x = left
    for strand in placed.makes:
        strand.start_x = right
    return left, min(rows) - 15, right, max(rows) + 15


def _view_width(placed: Placed) -> float:
    return max(40.0, _text_width(placed, 12) + 26) + 16


def _view(pen: Pen, placed: Placed) -> BoxOf:
    left, top, right, bottom = box = _through_box(placed)
    middle = (top + bottom) / 2
    corners = [
        (left, middle),
        (left + 10, top),
        (right - 10, top),
        (right, middle),
        (right - 10, bottom),
        (left + 10, bottom),
    ]
    pen.draw("glyph", polyline(corners, closed=True), "hexagon", _owner(placed), placed.column.about)
    pen.say(placed.column.text, (left + right) / 2, middle + 4.2, 12, "glyph-text", owner=_owner(placed))
    return box


def _box_width(placed: Placed) -> float:
    family, size = _box_face(placed)
    return max(44.0, runs_width(placed.column.text, size, family) + 12) + 12


def _box_face(placed: Placed) -> tuple[str, float]:
    return (SANS, 12.0) if placed.column.glyph == "block" else (SERIF, TEXT)


def _box(pen: Pen, placed: Placed) -> BoxOf:
    zone, column = placed.zone, placed.column
    rows = _rows(placed.spans, zone) + [strand.spans[0].track.y for strand in placed.makes]
    box = zone.x0 + 6, min(rows) - 15, zone.x1 - 6, max(rows) + 15
    for strand in placed.ends:
        strand.end_x = box[0]
    for strand in placed.makes:
        strand.start_x = box[2]
    _mark(pen, placed, rectangle(box, 5), f"glyph-{column.level}")
    if column.glyph == "block":
        pen.draw("glyph", rectangle(box, 5), "tint-block", str(column.key))
    family, size = _box_face(placed)
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2 + size * 0.36
    pen.say(column.text, x, y, size, "glyph-text", family=family, owner=str(column.key))
    return box


def _source_width(placed: Placed) -> float:
    return max(44.0, _text_width(placed) + 20) + 10


def _source(pen: Pen, placed: Placed) -> BoxOf:
    zone, column = placed.zone, placed.column
    rows = _rows(placed.makes, zone)
    box = zone.x0 + 4, rows[0] - 15, zone.x1 - 6, rows[-1] + 15
    for strand in placed.makes:
        strand.start_x = box[2]
    if column.style:
        middle, half = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2), min(box[3] - box[1], box[2] - box[0]) / 2
        mask_square(pen, column.style, *middle, half, str(column.key), column.about)
        for strand in placed.makes:
            strand.start_x = middle[0] + half
        return middle[0] - half, middle[1] - half, middle[0] + half, middle[1] + half
    pen.draw("glyph", rectangle(box, 3), f"glyph-{column.level}", str(column.key), column.about)
    pen.say(column.text, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2 + 5, TEXT, "glyph-text", owner=str(column.key))
    return box


# Glyphs that sit on a wire.


def _softmax_width(placed: Placed) -> float:
    return max(56.0, _title_width(placed), _text_width(placed, 12) + 12)


def _softmax(pen: Pen, placed: Placed) -> BoxOf:
    rows, x = _rows(placed.spans, placed.zone), (placed.zone.x0 + placed.zone.x1) / 2
    middle, half = (rows[0] + rows[-1]) / 2, (rows[-1] - rows[0]) / 2 + 14
    corners = [(x - 11, middle), (x + 11, middle - half), (x + 11, middle + half)]
    pen.draw(
        "glyph", polyline(corners, closed=True), f"glyph-{placed.column.level}", _owner(placed), placed.column.about
    )
    return x - 11, middle - half, x + 11, middle + half


def _norm(pen: Pen, placed: Placed) -> BoxOf:
    rows, x = _rows(placed.spans, placed.zone), (placed.zone.x0 + placed.zone.x1) / 2
    y, r = (rows[0] + rows[-1]) / 2, 13 + (rows[-1] - rows[0]) / 2
    pen.draw("glyph", circle(x, y, r), "norm", _owner(placed), placed.column.about)
    v = [(x - 0.56 * r, y - 0.42 * r), (x, y + 0.62 * r), (x + 0.56 * r, y - 0.42 * r)]
    pen.draw("front", polyline(v), "plain-line", _owner(placed))
    pen.say(placed.column.text, x, y + r + 12, 12, "glyph-text", owner=_owner(placed))
    return x - r, y - r, x + r, y + r + (8 if placed.column.text else 0)


# Loads and stores.


def _strip_width(placed: Placed) -> float:
    return 46.0


def _strip(pen: Pen, placed: Placed) -> BoxOf:
    zone, column = placed.zone, placed.column
    x = (zone.x0 + zone.x1) / 2
    for strand in placed.ends:
        strand.end_x = x
    for strand in placed.makes:
        strand.start_x = x
    for top, bottom in _stretches(placed):
        pen.draw(
            "strip",
            rectangle((zone.x0, top - 21, zone.x1, bottom + 13), 5),
            column.glyph,
            str(column.key),
            column.about,
        )
        low = bottom
    pen.say(roman(column.glyph), x, low + 27, TITLE, f"{column.glyph}-text", family=SANS, owner=str(column.key))
    rows = _rows(placed.ends, zone)
    return zone.x0, rows[0] - 21, zone.x1, rows[-1] + 13


def _stretches(placed: Placed) -> list[tuple[float, float]]:
    """The rows that a transfer crosses, in unbroken stretches."""
    mine = {id(strand) for strand in placed.ends}
    found: list[list[float]] = []
    broken = True
    for strand in (s for bundle in placed.zone.stack for s in bundle.strands):
        if id(strand) not in mine:
            broken = True
            continue
        y = row(strand, placed.zone)
        if broken:
            found.append([y, y])
        found[-1][1], broken = y, False
    return [(top, bottom) for top, bottom in found]


Glyph = tuple[Callable[[Placed], float], Callable[[Pen, Placed], BoxOf], bool]
"""How wide it is, how it is drawn, whether it has a tinted region and a title."""

GLYPHS: dict[str, Glyph] = {
    "contract": (_contract_width, _contract, True),
    "reduce": (_reduce_width, _reduce, True),
    "map": (_map_width, _map, True),
    "mask": (_mask_width, _mask, True),
    "cast": (_cast_width, _cast, False),
    "linear": (_linear_width, _linear, False),
    "view": (_view_width, _view, False),
    "softmax": (_softmax_width, _softmax, True),
    "norm": (_softmax_width, _norm, True),
    "join": (_box_width, _box, False),
    "block": (_box_width, _box, False),
    "source": (_source_width, _source, False),
    "load": (_strip_width, _strip, False),
    "store": (_strip_width, _strip, False),
}
