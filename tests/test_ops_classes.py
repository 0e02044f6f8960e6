"""A class number that names no class is refused wherever arrays are handed in, before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest

import diagkit as dk
from diagkit.bench.inputs import random_inputs
from diagkit.ops.classes import class_axes

t, v, d = dk.axes("t v d")
LOSS = dk.cross_entropy(dk.array("L", t, v), dk.array("y", t, dtype="int64"), over=v, name="loss")
WHOLE = dk.Diagram(LOSS, name="loss")
CUT = WHOLE.fuse().group(t="g_t").stream(v="s_v")
SIZES = {"t": 3, "v": 5, "g_t": 2, "s_v": 2}
LOGITS = np.zeros((3, 5), np.float32)

DOORS = {
    "the diagram": WHOLE,
    "its reference": WHOLE.reference,
    "a program": lambda **arrays: CUT.lower(**SIZES).run(**arrays),
    "a count": lambda **arrays: CUT.lower(**SIZES).count(**arrays),
    "a law": lambda **arrays: CUT.law(trials=1, **arrays),
    "numba": CUT.kernel("numba", **SIZES),
    "a check in numba": lambda **arrays: CUT.kernel("numba", **SIZES).check(arrays=arrays),
    "triton": CUT.kernel("triton", t=3, v=5, g_t=16, s_v=16),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("wrong", [5, 9, -1, -100])
def test_a_number_that_is_no_class_is_refused_at_every_door(door, wrong):
    if door == "triton":
        pytest.importorskip("triton")
    with pytest.raises(dk.InputError, match=f"input 'y' holds {wrong}, which is no class: v has 5 elements") as caught:
        DOORS[door](L=LOGITS, y=np.array([0, wrong, 4]))
    assert caught.value.axis == "v" and "from 0 to 4" in caught.value.remedy


@pytest.mark.parametrize("door", ["the diagram", "its reference", "a program", "numba"])
def test_the_first_and_the_last_class_are_classes(door):
    assert DOORS[door](L=LOGITS, y=np.array([0, 2, 4])) == pytest.approx(np.log(5))


def test_torch_tensors_are_refused_alike():
    torch = pytest.importorskip("torch")
    with pytest.raises(dk.InputError, match="holds 7, which is no class"):
        WHOLE(L=torch.zeros(3, 5), y=torch.tensor([0, 1, 7]))


def test_empty_axes_run():
    assert WHOLE(L=np.zeros((0, 5)), y=np.zeros(0, int)).shape == (0,)
    assert WHOLE(L=np.zeros((1, 0)), y=np.array([0])) == -np.inf


def test_the_target_of_an_opened_block_is_an_array_like_any_other():
    opened = WHOLE.open("loss")
    assert class_axes(WHOLE) == {"y": v} and class_axes(opened) == {}
    assert opened(L=LOGITS, y=np.array([0, 9, 4])) == pytest.approx(np.log(5))


def test_random_targets_are_classes_also_where_another_axis_is_longer():
    H, W = dk.array("H", t, d), dk.weight("W", v, d)
    loss = dk.cross_entropy(dk.einsum("t d, v d -> t v", H, W), dk.array("y", t, dtype="int64"), over=v)
    program = dk.Diagram(loss).lower(t=200, d=64, v=5)
    drawn = random_inputs(program, {"t": 200, "d": 64, "v": 5}, seed=0)["y"]
    assert set(drawn) == set(range(5))
