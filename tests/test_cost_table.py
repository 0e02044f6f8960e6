"""The numbers over a picture: every amount stands in a column of the diagram, and the sums are kept."""

import derive_cases
import sympy
from cost_cases import flash, tiled_matmul
from derive_cases import attention

import diagkit as dk
from diagkit.cost import columns, memory, transfers, work
from diagkit.derive import fuse
from diagkit.term import size

q, x, d, e = map(size, "qxde")


def rows(term, **options):
    return {row.name: row for row in columns(term, **options)}


def test_sums_are_those_of_the_costs():
    for term in (attention(), fuse(attention()), flash(), tiled_matmul()):
        found = rows(term)
        assert found["H"].total == transfers(term).total()
        assert sum(found["H"].cells.values()) == transfers(term).total()
        assert found["M"].total == memory(term).peak()
        assert sympy.expand(sum(found["tensor"].cells.values()) - work(term).flop()) == 0


def test_every_cell_is_a_column_of_the_picture():
    for term in (attention(), flash(), tiled_matmul()):
        boxes = {box.name for box in term.boxes}
        ends = {(end, number) for number in range(len(term.regions)) for end in ("load", "store")}
        for row in columns(term):
            assert set(row.cells) <= boxes | ends


def test_transfers_stand_at_loads_and_stores():
    found = rows(flash(), relaxed=True)["H"].cells
    g = size("g_q")
    assert found == {("load", 0): d * q + d * q * x / g + e * q * x / g, ("store", 0): e * q}


def test_what_a_stream_adds_stands_where_it_came_from():
    work_cells = rows(flash())
    assert work_cells["special"].cells["P"] == q * x + q * sympy.ceiling(x / size("s_x"))
    assert set(work_cells["tensor"].cells) == {"QK", "O"}
    assert "C" in rows(tiled_matmul())["fma"].cells


def test_a_box_named_load_is_no_load():
    load = dk.exp(dk.array("X", derive_cases.q), name="load")
    found = rows(derive_cases.term(load))["M"]
    assert found.cells["load"] == found.cells["store", 0] == q
