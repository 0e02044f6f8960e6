"""Calls that do not fit are answered with how the function is called; what goes wrong inside stays as it is."""

import pytest

import diagkit as dk
from diagkit.term.calls import speaking, spoken, written


def halved(value, over, name=None):
    return value / 2


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3, 4)], ids=len)
def test_a_call_that_does_not_fit_says_how_it_is_written(args):
    with pytest.raises(dk.CallError) as caught:
        spoken(halved)(*args)
    assert caught.value.remedy == "write halved(value, over, name=None)"
    assert "halved()" in caught.value.reason and isinstance(caught.value, TypeError)


def test_an_error_from_within_is_not_reworded():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        spoken(halved)("text", over=1)
    assert not isinstance(caught.value, dk.DiagkitError)


def test_a_class_speaks_for_its_methods_and_keeps_what_is_private():
    class Tile:
        def side(self, of): ...
        def _kept(self, of): ...

    kept = Tile._kept
    assert speaking(Tile) is Tile and Tile._kept is kept and written(Tile.side, method=True) == ".side(of)"
    with pytest.raises(dk.CallError, match=r"write \.side\(of\)"):
        Tile().side()


def test_every_public_function_and_step_speaks():
    functions = [getattr(dk, name) for name in dk.__all__ if name.islower() and callable(getattr(dk, name))]
    taking = [one for one in functions if hasattr(one, "__wrapped__")]
    assert len(taking) > 50 and dk.Diagram.on.__wrapped__ and "over an axis" in dk.softmax.__doc__
