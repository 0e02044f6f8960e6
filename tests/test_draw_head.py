"""What stands over the columns and under the picture: totals close by, a bar that is explained, pictures that fit."""

import examples
import pytest

import diagkit as dk
from diagkit import draw
from diagkit.diagram.table import cost_table

PAGE = 970  # points that a page of a notebook leaves for its outputs in a window of 1100


def flash():
    return examples.attention().fuse().group(q="g_q").stream(x="s_x")


def words(term):
    return draw.scene(term, cost_table(term)).words


def test_the_total_stands_beside_the_last_cells_and_over_what_comes_out():
    said = words(flash())
    total = next(line for line in said if line.text == "total")
    cells = [line for line in said if line.role in ("cell", "label-1") and line.owner == "('store', 0)"]
    assert cells and all(line.box[2] < total.box[0] for line in cells)
    assert total.x < max(line.box[2] for line in said if line.role == "name") + 20


@pytest.mark.parametrize("term", [flash(), flash().strip(), examples.attention()], ids=["flash", "strip", "naive"])
def test_a_picture_fits_a_page(term):
    svg = term.svg() if isinstance(term, dk.Diagram) else term.svg
    assert int(svg.split('width="')[1].split('"')[0]) <= PAGE


def test_a_bar_is_explained_where_there_is_one():
    said = "an axis to cut into tiles or chunks"
    assert any(said in line.text for line in words(examples.attention()))
    x = dk.axis("x")
    alone = dk.Diagram(dk.total(dk.array("X", x), over=x))
    assert not any(mark.role.startswith("bar") for mark in alone.draw().scene.marks)
    assert not any(said in line.text for line in words(alone))
