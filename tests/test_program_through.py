"""Loads through views in programs: their text, what they refuse, and what they count by themselves."""

import numpy as np
import pytest
import sympy
import view_cases as cases
from view_cases import d, q, x

import diagkit as dk
from diagkit.program import Load, lower
from diagkit.program.through import inside, places, touched, value
from diagkit.term import InputError, coordinate


def test_pseudocode_says_where_a_load_reads():
    text = lower(cases.split_attention(4), x=13, q=1).pseudocode()
    assert "K.parts <- load K[k, x_in + 4*x_part, d]" in text and "# K through K.parts · input" in text
    assert "Ks <- load K.scale[floor(x/4)]" in lower(cases.scaled(4)).pseudocode()


def test_a_load_knows_the_array_behind_it():
    program = lower(cases.gram(), x=5)
    loads = [s for s in program.kernels[0].statements if isinstance(s, Load)]
    assert [(s.wire, s.array, s.through is None) for s in loads] == [("X'", "X", False), ("X", "X", True)]
    assert list(program.kernels[0].arrays) == ["X", "G"]
    assert [axis.name for axis in program.kernels[0].arrays["X"].axes] == ["x", "d"]


@pytest.mark.parametrize(
    ("width", "tile", "fits"), [(4, 2, True), (4, 8, True), (4, 6, False), (6, 4, False), (6, 3, True)]
)
def test_a_tile_that_cuts_blocks_is_refused_by_name(width, tile, fits):
    made = cases.scaled(width)
    if fits:
        assert lower(made, s_x=tile).kernels
        return
    with pytest.raises(InputError, match=f"a tile of {tile} along 'x' cuts the blocks of {width}") as refused:
        lower(made, s_x=tile)
    assert (refused.value.axis, refused.value.box) == ("x", "Ks")
    assert f"a multiple of {width}" in refused.value.remedy and "1, 2" in refused.value.remedy
    assert lower(made, s_x=tile, x=tile).kernels  # one tile holds the whole axis


def test_scales_that_a_group_cuts_are_refused_too():
    rows = dk.array("Q", q, d) * dk.spread(dk.array("s", q.blocks(4)), q, 4, name="S")
    made = dk.Diagram(rows, name="rows").group(q="g_q")
    with pytest.raises(InputError, match="a tile of 3 along 'q' cuts the blocks of 4"):
        lower(made, g_q=3)
    assert lower(made, g_q=8, q=10, d=2).count().transfers[("s", 0, 1, "input")] == 3


@pytest.mark.parametrize("name", cases.VIEWS)
def test_what_a_tile_touches_is_what_its_places_say(name):
    """Tile by tile against a set of the elements read, one position after another."""
    made = cases.VIEWS[name]()
    sizes = made.numbers({"x": 11})
    alias = made.aliases["V"].at(lambda expr: expr.xreplace({dk.size(n): sympy.Integer(v) for n, v in sizes.items()}))
    lengths = [sizes[axis.name] for axis in alias.over]
    for start in range(3):
        extents = [max(n - start - 1, 0) for n in lengths]
        spots = {axis.name: np.arange(start, start + n) for axis, n in zip(alias.over, extents, strict=True)}
        wanted = set()
        for place in np.ndindex(*extents):
            at = {coordinate(axis.name): start + one for axis, one in zip(alias.over, place, strict=True)}
            if inside(alias, at):
                wanted.add(tuple(value(read, at) for read in alias.coordinates))
        assert touched(alias, places(alias, spots.__getitem__)) == len(wanted)


def test_views_of_stored_wires_are_read_where_they_were_stored():
    K = dk.exp(dk.array("X", x, d), name="K")
    made = dk.Diagram(dk.total(dk.rename(K, x=q, name="R") * 2, d, name="Y"), name="two")
    assert len(made.regions) == 3
    moved = lower(made, x=5, q=5, d=3).count().transfers
    assert moved[("K", 1, 0, "spill")] == moved[("K", 0, 1, "refill")] == 15
    X = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(lower(made).run(X=X), (np.exp(X) * 2).sum(1))
