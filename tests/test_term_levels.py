"""Level graphs, and labels of several levels on one diagram."""

import pytest

import diagkit as dk
from diagkit.term import CLUSTERS, GPU, LEVEL_NAMES, NETWORK, GroupError, StreamError, TermError, at_level, depth


@pytest.fixture
def flash():
    q, x, d = dk.axes("q x d")
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d)) * d.size**-0.5
    O = dk.einsum("q x, x d -> q d", dk.softmax(S, over=x, name="P"), dk.array("V", x, d))
    return dk.Diagram(O, name="attention").fuse()


def test_a_graph_knows_its_levels_by_number_and_by_name():
    assert [level.name for _, level in GPU] == list(LEVEL_NAMES)
    assert GPU[2].name == "register" and CLUSTERS.number("cluster") == 1
    assert NETWORK.number("global") == 0 and NETWORK[-1].name == "network"


def test_a_level_that_is_not_there_is_refused():
    with pytest.raises(TermError, match="no level 7"):
        GPU[7]
    with pytest.raises(TermError, match="no level 'L9'.*global"):
        GPU.number("L9")


def test_labels_of_two_levels_stand_side_by_side(flash):
    nested = flash.group(q="g_q").stream(x="s_x").group(level=2, q=None).stream(level=2, x=None)
    assert [repr(label) for label in nested.labels] == [
        "Label('group', 'q', size('g_q'))", "Label('stream', 'x', size('s_x'))",
        "Label('group', 'q', size('w_q'), level=2)", "Label('stream', 'x', size('u_x'), level=2)",
    ]  # fmt: skip
    assert depth(nested) == 2 and depth(flash) == 1
    assert at_level(nested, 1).labels == nested.labels[:2]
    assert [str(label.tile) for label in at_level(nested, 2).labels] == ["w_q", "u_x"]
    assert nested.erase() == flash.erase()


def test_a_level_keeps_the_tile_of_the_one_above_where_it_has_none(flash):
    nested = flash.group(q="g_q").stream(x="s_x").stream(level=2, x="u_x")
    assert [str(label.tile) for label in at_level(nested, 2).labels] == ["g_q", "u_x"]


def test_level_one_means_what_it_meant(flash):
    plain = flash.group(q="g_q").stream(x="s_x")
    nested = plain.group(level=2, q="w_q").stream(level=2, x="u_x")
    assert nested.transfers().amounts == plain.transfers().amounts
    assert nested.memory().peak() == plain.memory().peak()
    assert nested.optimum("M").tiles == plain.optimum("M").tiles
    assert repr(nested.lower(g_q=4, s_x=2)) == repr(plain.lower(g_q=4, s_x=2))
    assert nested.lower(g_q=4, s_x=2).missing == ("q", "d", "x")


def test_steps_of_level_two_are_replayed_and_taken_off(flash):
    nested = flash.group(q="g_q").stream(x="s_x").group(level=2, q="w_q").stream(level=2, x="u_x")
    assert flash.replay(nested.derivation) == nested
    assert eval(repr(nested), {**vars(dk)}) == nested
    assert nested.ungroup("q").unstream("x") == flash
    assert "group q in tiles of w_q at level 2" in str(flash.diff(nested))


def test_a_tile_lies_inside_the_tile_above(flash):
    with pytest.raises(GroupError, match="does not lie inside one of 8.*at most 8"):
        flash.group(q=8).group(level=2, q=16)
    with pytest.raises(GroupError, match="does not lie inside"):
        flash.group(level=2, q=16).group(q=8)
    with pytest.raises(StreamError, match="does not lie inside"):
        flash.stream(x=4).stream(level=2, x=5)


def test_level_two_is_refused_where_level_one_would_be(flash):
    with pytest.raises(GroupError, match="P.*needs the whole of x"):
        flash.group(level=2, x=4)
    with pytest.raises(StreamError, match="no chunks to cut.*stream it at level 1 first"):
        flash.stream(level=2, x="u_x")
    with pytest.raises(GroupError, match="no level 4.*register"):
        flash.group(level=4, q="t_q")
    with pytest.raises(StreamError, match="no level 0"):
        flash.stream(level=0, x="u_x")
