"""One compiled kernel at many tiles: it agrees with the kernels of fixed tiles, and its times are ordered."""

from __future__ import annotations

import numpy as np
import pytest

from diagkit import Diagram, array, attention, axes, causal, term
from diagkit.bench import KernelError, Landscape, numba_run
from diagkit.bench.landscape import landscape
from diagkit.codegen.numba_source import write

q, x, d = axes("q x d")


def flash(mask=None):
    O = attention(array("Q", q, d), array("K", x, d), array("V", x, d), over=x, features=d, mask=mask)
    return Diagram(O, name="attention").fuse().group(q="g_q").stream(x="s_x")


def arrays(rows, keys, size=8):
    generator = np.random.default_rng(0)
    shapes = {"Q": rows, "K": keys, "V": keys}
    return {name: generator.standard_normal((n, size), dtype=np.float32) for name, n in shapes.items()}


@pytest.mark.parametrize("mask", [None, causal(q, x)], ids=["full", "causal"])
def test_one_text_serves_all_tiles(mask):
    made = flash(mask)
    texts = {write(made.lower(g_q=g, s_x=s), open_tiles=True).text for g, s in ((16, 8), (7, 30), (40, 2))}
    assert len(texts) == 1


@pytest.mark.parametrize("mask", [None, causal(q, x)], ids=["full", "causal"])
def test_open_tiles_give_the_numbers_of_the_diagram(mask):
    made, given = flash(mask), arrays(37, 53)
    for g, s in ((16, 8), (7, 30), (64, 64), (1, 53)):
        launch = numba_run.any_tile(made.lower(g_q=g, s_x=s), {"q": 37, "x": 53, "d": 8}, given)
        launch.run()
        assert np.allclose(launch.outputs[made.outputs[0]], made.reference(**given), atol=1e-5)


def test_the_landscape_has_a_time_for_each_tile_and_knows_the_best():
    kernel = flash().kernel("numba", q=37, x=53, d=8, g_q=16, s_x=8)
    with pytest.raises(KernelError, match="has not been checked"):
        kernel.landscape(g_q=(8,), s_x=(16,))
    assert kernel.check()
    found = kernel.landscape(rounds=2, g_q=(8, 16), s_x=(16, 53))
    assert set(found.times_s) == {(8, 16), (8, 53), (16, 16), (16, 53)}
    assert found.loss(**dict(zip(found.names, found.best, strict=True))) == 0
    assert "4 tiles of g_q, s_x" in str(found)


def test_who_may_be_the_best_is_timed_again(monkeypatch):
    """A lucky first time does not make a tile the best, and a slow one is not timed for long."""
    from diagkit.bench import landscape as room

    made, given = flash(), arrays(37, 53)
    times = {8: [1.0] * 9, 16: [1.2] + [0.9] * 8, 32: [2.0]}
    runs = {g: list(reversed(one)) for g, one in times.items()}
    order = []

    def once(run):
        order.append(run)
        return runs[run].pop()

    monkeypatch.setattr(room, "_once", once)
    monkeypatch.setattr(room, "_bound", lambda program, *_: (dict(program.sizes)["g_q"], {}))
    found = room.landscape(made.lower(q=37, x=53, d=8, g_q=8, s_x=8), "numba", given, {"g_q": (8, 16, 32)}, 1, 1e-4)
    assert (found.best, found.times_s[8,], found.times_s[32,]) == ((16,), 1.0, 2.0)
    assert order == [8, 16, 32, *[8, 16] * room.AGAIN]


def test_losses_are_fractions_above_the_best():
    found = Landscape("numba", "here", ("g_q", "s_x"), {(8, 8): 0.002, (16, 8): 0.001})
    assert (found.best, found.loss(g_q=8, s_x=8), found.milliseconds[8, 8]) == ((16, 8), 1.0, 2.0)
    with pytest.raises(term.InputError, match="no time for these tiles"):
        found.loss(g_q=9, s_x=8)


def test_a_tile_that_gives_other_numbers_is_not_timed(monkeypatch):
    made, given = flash(), arrays(37, 53)
    wrong = iter([1.0, 2.0])
    real = numba_run.any_tile

    def bound(*parts):
        launch, factor = real(*parts), next(wrong)
        run = launch.run

        def scaled():
            run()
            np.multiply(launch.outputs["O"], factor, out=launch.outputs["O"])

        return type(launch)(scaled, launch.outputs, launch.memory, launch.moved)

    monkeypatch.setattr(numba_run, "any_tile", bound)
    with pytest.raises(KernelError, match="differs at the tiles"):
        landscape(made.lower(q=37, x=53, d=8, g_q=16, s_x=8), "numba", given, {"g_q": (8, 16)}, 1, 1e-4)


def test_unknown_tiles_are_refused_by_name():
    kernel = flash().kernel("numba", q=37, x=53, d=8, g_q=16, s_x=8)
    kernel.check()
    with pytest.raises(term.InputError, match="no tile 'g_x'"):
        kernel.landscape(g_x=(8,))
