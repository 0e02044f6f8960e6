"""Whether a scene is legible: words on words, words across the edge of a glyph, words struck by a wire."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from diagkit.draw.scene import BoxOf, Mark, Point, Scene, Words

LINES = ("wire-", "item-", "thin-", "separator", "rule", "loop", "subloop")
GLYPHS = ("glyph-", "learned", "norm", "mask", "hexagon", "tag", "solid-")


@dataclass(frozen=True)
class Clash:
    """Two things in one place: the words, and what they clash with."""

    words: str
    other: str
    place: Point


def overlaps(scene: Scene) -> list[Clash]:
    """Everything in the picture that a label touches and should not; empty for a legible picture.

    >>> import diagkit as dk
    >>> from diagkit import draw
    >>> overlaps(draw.scene(dk.Diagram(dk.exp(dk.array("X", dk.axis("x"))))))
    []
    """
    found = _words_on_words(scene.words)
    lines = [(mark, _flat(mark.box)) for mark in scene.marks if mark.role.startswith(LINES)]
    shapes = [(mark, mark.box) for mark in scene.marks if mark.role.startswith(GLYPHS)]
    for line in scene.words:
        box = shrunk(line.box)
        near = [(mark, around) for mark, around in shapes if meets(box, around)]
        touched = [mark for mark, around in near if not _inside(box, around)]
        if len(touched) == len(near):
            touched += [mark for mark, around in lines if meets(box, around) and _struck(box, mark)]
        found += [Clash(line.text, f"{mark.role} {mark.owner}", (line.x, line.y)) for mark in touched]
        found += _off_sheet(scene, line)
    return found


def shrunk(box: BoxOf, by: float = 0.5) -> BoxOf:
    """The box a little smaller: touching is not overlapping."""
    left, top, right, bottom = box
    return left + by, top + by, right - by, bottom - by


def _words_on_words(words: tuple[Words, ...]) -> list[Clash]:
    """Pairs of words in one place, found along the x axis."""
    order = sorted(words, key=lambda line: line.box[0])
    boxes = [shrunk(line.box) for line in order]
    found = []
    open_ones: list[int] = []
    for number, box in enumerate(boxes):
        open_ones = [other for other in open_ones if boxes[other][2] > box[0]]
        met = [other for other in open_ones if meets(boxes[other], box)]
        found += [Clash(order[other].text, order[number].text, (box[0], box[1])) for other in met]
        open_ones.append(number)
    return found


def meets(one: BoxOf, other: BoxOf) -> bool:
    """Whether two boxes share a point inside."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _inside(box: BoxOf, other: BoxOf) -> bool:
    return other[0] <= box[0] and other[1] <= box[1] and box[2] <= other[2] and box[3] <= other[3]


def _flat(box: BoxOf) -> BoxOf:
    """The box of a line, which may have no height, as one that has."""
    return box[0], box[1] - 0.01, box[2], box[3] + 0.01


def _struck(box: BoxOf, mark: Mark) -> bool:
    return any(_crosses(box, a, b) for a, b in pairwise(mark.outline()))


def _crosses(box: BoxOf, a: Point, b: Point) -> bool:
    """Whether the segment from a to b enters the box (clipping it side by side)."""
    enter, leave = 0.0, 1.0
    dx, dy = b[0] - a[0], b[1] - a[1]
    for step, gap in ((-dx, a[0] - box[0]), (dx, box[2] - a[0]), (-dy, a[1] - box[1]), (dy, box[3] - a[1])):
        if step == 0:
            if gap <= 0:
                return False
        elif step < 0:
            enter = max(enter, gap / step)
        else:
            leave = min(leave, gap / step)
    return enter < leave


def _off_sheet(scene: Scene, line: Words) -> list[Clash]:
    left, top, right, bottom = line.box
    if left >= 0 and top >= 0 and right <= scene.width and bottom <= scene.height:
        return []
    return [Clash(line.text, "edge of the sheet", (line.x, line.y))]
