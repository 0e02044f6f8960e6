"""Rows: wires keep their order and their distance, whatever the diagram."""

from __future__ import annotations

from itertools import pairwise

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_draw_gallery import GALLERY, check_svg

from diagkit import draw
from diagkit.draw.layout import Uses
from diagkit.draw.layout import _arranged as arranged  # the arrangement alone, before anything is drawn
from diagkit.draw.loop import short_names
from diagkit.draw.rows import APART, LANE, ROW, Bundle, Line, Strand, Zone
from diagkit.term import Term


def rows_of(zone: Zone) -> list[tuple[float, Strand, Bundle]]:
    return [(strand.row(zone.number), strand, bundle) for bundle in zone.stack for strand in bundle.strands]


def check_rows(line: Line) -> None:
    """In every zone each wire stands below the one before it, by at least the distance their kinds ask for."""
    for zone in line.zones:
        for (y, upper, one), (below, lower, other) in pairwise(rows_of(zone)):
            lane = "lane" in (upper.kind, lower.kind)
            least = (LANE if lane else ROW) if one is other else APART - 6
            assert below - y >= least - 1e-6


def one_line(term: Term) -> Line:
    sheet = draw.plan(term)
    columns = len(sheet.columns)
    drawn = arranged(sheet, Uses(sheet), (0, columns), [], list(sheet.sources), True)
    drawn.line.settle(100.0)
    return drawn.line


@pytest.mark.parametrize("name", GALLERY)
def test_rows_keep_their_distance(name: str) -> None:
    check_rows(one_line(GALLERY[name]()[0]))


@settings(max_examples=40)
@given(strategies.diagrams(most=7))
def test_any_diagram_is_legible(term: Term) -> None:
    check_rows(one_line(term))
    check_svg(draw.svg(term))
    assert draw.overlaps(draw.scene(term)) == []


@settings(max_examples=25)
@given(strategies.labelled())
def test_any_labelled_diagram_is_legible(labelled: strategies.Labelled) -> None:
    check_svg(draw.svg(labelled.term))
    assert draw.overlaps(draw.scene(labelled.term)) == []
    for form in labelled.term.forms:
        called = short_names(form, labelled.term.axes)
        assert len(set(called.values())) == len(called)


def strands(line: Line, count: int) -> list[Strand]:
    return [line.strand(name, 0) for name in "abcdefgh"[:count]]


def test_a_swap_uses_the_rows_it_frees() -> None:
    line = Line()
    a, b, c = strands(line, 3)
    line.open("margin", [Bundle(("X", -1), [a, b, c])])
    before = [strand.track for strand in (a, b, c)]
    line.open("glyph", [Bundle(("X", -1), [b, a, c])])
    line.settle(0.0)
    assert c.track is before[2]
    assert (b.y, a.y) == (before[0].y, before[1].y)


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_any_order_of_wires_settles(first: list[int], second: list[int]) -> None:
    line = Line()
    wires = strands(line, 6)
    line.open("margin", [Bundle(("X", -1), list(wires))])
    for order in (first, second):
        line.open("glyph", [Bundle(("X", -1), [wires[place] for place in order])])
    line.settle(0.0)
    check_rows(line)


def test_a_wire_that_nobody_crosses_stays_straight() -> None:
    line = one_line(GALLERY["attention"]()[0])
    straight = [strand for strand in line.strands if strand.axis == "d" and len(strand.spans) == 1]
    assert len(straight) == 2
