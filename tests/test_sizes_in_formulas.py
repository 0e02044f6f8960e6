"""A size that only a formula names: every way to run asks for it by name, and takes it where it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import diagkit as dk
from diagkit.term import InputError

x, y = dk.axes("x y")
X = np.arange(5, dtype=np.float32)
scaled = dk.Diagram(dk.array("X", x) * y.size, name="scaled").group(x="g_x")

WITHOUT: dict[str, Callable[[], Any]] = {
    "call": lambda: scaled(X=X),
    "reference": lambda: scaled.reference(X=X),
    "run": lambda: scaled.lower(g_x=2).run(X=X),
    "numba": lambda: scaled.kernel("numba", g_x=2)(X=X),
    "triton": lambda: scaled.kernel("triton", g_x=2)(X=X),
}


def test_it_is_an_open_size() -> None:
    assert scaled.open_sizes == ("x", "y")


@pytest.mark.parametrize("way", WITHOUT)
def test_it_is_asked_for_by_name(way: str) -> None:
    with pytest.raises(InputError, match="names the size of 'y'") as refused:
        WITHOUT[way]()
    assert refused.value.axis == "y"
    assert "y=..." in str(refused.value)


def test_what_the_remedy_says_works() -> None:
    np.testing.assert_array_equal(scaled.lower(g_x=2, y=3).run(X=X), 3 * X)
    fixed = dk.Diagram(dk.array("X", x) * dk.axis("y", 3).size)
    np.testing.assert_array_equal(fixed(X=X), 3 * X)


@pytest.mark.parametrize("target", ["numba", "triton"])
def test_kernels_take_it_where_they_are_made_or_checked(target: str) -> None:
    made = scaled.kernel(target, g_x=2, y=3)
    np.testing.assert_array_equal(made(X=X), 3 * X)
    later = scaled.kernel(target, g_x=2)
    assert made.check(x=5)
    assert later.check(x=5, y=4)
    assert later.count(x=5, y=4).total_bytes() == made.count(x=5).total_bytes() == 40


def test_an_axis_as_long_as_one_that_no_array_has_tells_its_size() -> None:
    """What a rotation leaves: d_rot is as long as d, and only formulas name d."""
    turned = dk.Axis("d_rot", dk.axis("d").size)
    mean = dk.Diagram(dk.total(dk.array("X", turned), over=turned) / dk.axis("d").size)
    assert float(mean(X=X)) == 2.0
    assert float(mean.lower().run(X=X)) == 2.0
