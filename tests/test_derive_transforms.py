"""Transforms before quantization: nothing changes in float64, what would change is refused, all can be streamed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import diagkit as dk
from diagkit.derive.shifts import who_sees
from diagkit.term import AxisError, InputError, StreamError, TermError, coordinate

q, x, d = dk.axes("q x d")
SIZES = {"q": 20, "x": 24, "d": 16}
RANDOM = np.random.default_rng(0)
ARRAYS = {name: RANDOM.normal(size=(n, 16)) for name, n in {"Q": 20, "K": 24, "V": 24}.items()}
ARRAYS["K"] += 5 * RANDOM.normal(size=16)
TURN = {"H": dk.hadamard(16, seed=1)}
Step = Callable[[dk.Diagram], dk.Diagram]


def attention(mask: bool = False, softcap: float | None = None, keys: int | None = None) -> dk.Diagram:
    x_ = dk.axis("x", keys)
    Q, K, V = dk.array("Q", q, d), dk.array("K", x_, d), dk.array("V", x_, d)
    S = dk.einsum("q d, x d -> q x", Q, K, name="QK") * d.size**-0.5
    S = S if softcap is None else dk.tanh(S / softcap) * softcap
    S = dk.masked(S, dk.causal(q, x_)) if mask else S
    P = dk.softmax(S, over=x_, name="P")
    return dk.Diagram(dk.einsum("q x, x d -> q d", P, V, name="O"), name="attention")


STEPS: dict[str, Step] = {
    "smooth": lambda term: term.smooth(K="x"),
    "rotate": lambda term: term.rotate("Q", "K", over="d"),
    "scale": lambda term: term.scale(P=448),
    "reversed": lambda term: term.permute(x="reversed"),
    "all": lambda term: term.smooth(K="x").rotate("Q", "K", over="d").scale(P=256).permute(x="reversed"),
}


def arrays_of(term: dk.Diagram) -> dict[str, np.ndarray]:
    known = ARRAYS | TURN
    return {array.name: known[array.name] for array in term.inputs}


@pytest.mark.parametrize("name", STEPS)
def test_nothing_changes_in_float64(name: str) -> None:
    made = STEPS[name](attention())
    error = np.abs(made.reference(**arrays_of(made)) - attention().reference(**ARRAYS)).max()
    assert error < 1e-14
    assert all(step.kind == "rewrite" and step.reason for step in made.derivation.steps)


@pytest.mark.parametrize("name", STEPS)
def test_they_stream_and_what_they_move_is_counted(name: str) -> None:
    made = STEPS[name](attention()).fuse().group(q="g_q").stream(x="s_x")
    arrays, tiles = arrays_of(made), {"g_q": 6, "s_x": 7}
    program = made.lower(**tiles)
    np.testing.assert_allclose(program.run(**arrays), attention().reference(**ARRAYS), atol=1e-14)
    assert program.count(**arrays).transfers == made.transfers().at(**SIZES, **tiles)


@pytest.mark.parametrize("name", STEPS)
def test_they_are_replayed(name: str) -> None:
    made = STEPS[name](attention())
    assert attention().replay(made.derivation) == made


def test_a_matrix_that_stretches_would_be_seen() -> None:
    made = STEPS["rotate"](attention())
    skewed = {**arrays_of(made), "H": TURN["H"] * 1.01}
    assert np.abs(made.reference(**skewed) - attention().reference(**ARRAYS)).max() > 1e-4


def test_blocks_open_where_that_is_needed() -> None:
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    whole = dk.Diagram(dk.attention(Q, K, V, over=x, features=d, name="O"))
    made = whole.smooth(K="x").scale(V=8)
    assert [box.name for box in made.boxes if box.name.startswith("K")] == ["K.mean", "K.smooth"]
    np.testing.assert_allclose(made.reference(**ARRAYS), whole.reference(**ARRAYS), atol=1e-14)


def test_smoothing_under_a_mask_and_not_under_a_softcap() -> None:
    masked = attention(mask=True)
    np.testing.assert_allclose(masked.smooth(K="x").reference(**ARRAYS), masked.reference(**ARRAYS), atol=1e-14)
    with pytest.raises(TermError, match=r"sees the mean of 'K' over 'x'; smooth what a softmax"):
        attention(softcap=30.0).smooth(K="x")


def test_smoothing_what_no_softmax_follows_is_refused() -> None:
    with pytest.raises(TermError, match="'O' sees the mean of 'V'"):
        attention().smooth(V="x")
    Q, K = dk.array("Q", q, d), dk.array("K", x, d)
    with pytest.raises(TermError, match="'S' sees"):
        dk.Diagram(dk.einsum("q d, x d -> q x", Q, K, name="S")).smooth(K="x")


def test_turning_one_factor_only_is_refused() -> None:
    with pytest.raises(TermError, match="name both factors"):
        attention().rotate("Q", over="d")
    with pytest.raises(TermError, match="'QK' would see that 'K' and 'V'"):
        attention().rotate("K", "V", over="d")


@pytest.mark.parametrize("factor", [0, -2, "much"])
def test_factors_that_cannot_be_undone_are_refused(factor: object) -> None:
    with pytest.raises(InputError, match="cannot be undone"):
        attention().scale(P=factor)


def test_an_order_that_positions_see_is_refused() -> None:
    with pytest.raises(AxisError, match="'#x' sees the order of 'x'"):
        attention(mask=True).permute(x="reversed")
    with pytest.raises(AxisError, match="the output 'O' keeps the order of 'q'"):
        attention().permute(q="reversed")
    with pytest.raises(AxisError, match="cannot be read in the order 8"):
        attention().permute(x=8)


def test_a_stride_reads_every_position_once() -> None:
    term = attention(keys=24).permute(x=8)
    np.testing.assert_allclose(term.reference(**ARRAYS), attention().reference(**ARRAYS), atol=1e-14)
    order = dk.Diagram(dk.total(dk.array("K", dk.axis("x", 24)) * 1.0, "x", name="z")).permute(x=8).part("K.permuted")
    np.testing.assert_array_equal(order(K=np.arange(24.0)), np.arange(24).reshape(3, 8).T.ravel())


def test_what_runs_in_a_stream_is_not_rewritten() -> None:
    with pytest.raises(StreamError, match="smooth first, then stream"):
        attention().fuse().stream(x="s_x").smooth(K="x")


@pytest.mark.parametrize(
    ("after", "sees"),
    [
        (lambda S: dk.softmax(S * 3 + 1, over=x, name="P"), None),
        (lambda S: dk.softmax(S * dk.array("w", x), over=x, name="P"), "f(S, w)"),
        (lambda S: dk.softmax(S * dk.array("w", q), over=x, name="P"), None),
        (lambda S: dk.softmax(dk.maximum(S, 0), over=x, name="P"), "maximum"),
        (lambda S: dk.softmax(dk.cast(S, "fp16"), over=x, name="P"), None),
        (lambda S: dk.softmax(S, over=q, name="P"), "P"),
        (lambda S: dk.logsumexp(S, over=x, name="P"), "P"),
        (lambda S: dk.spherical(S, over=x, name="P"), "P."),
    ],
)
def test_who_sees_a_shift(after: Callable[[dk.Node], dk.Node], sees: str | None) -> None:
    term = dk.Diagram(after(dk.array("S", q, x)))
    found = who_sees(term, "S", "x")
    assert (found is None) == (sees is None), found
    names = {"S": RANDOM.normal(size=(5, 6)), "w": RANDOM.normal(size=5 if sees is None else 6)}
    given = {array.name: names[array.name] for array in term.inputs}
    moved = {**given, "S": given["S"] + RANDOM.normal(size=(5, 1))}
    same = np.abs(term.reference(**moved) - term.reference(**given)).max() < 1e-3
    assert same == (found is None)


@pytest.mark.parametrize("over", ["y", "x_block"])
def test_an_order_that_a_view_reads_is_not_changed(over: str) -> None:
    """A slice and blocks take the axis away: their output lacks it, and its order is seen all the same."""
    x = dk.axis("x", 8)
    X = dk.array("X", x)
    seen = dk.view(X, {"x": coordinate("y")}, (dk.axis("y", 3),)) if over == "y" else dk.blocked(X, x=4)
    made = dk.Diagram(dk.total(seen, over=over), name="first")
    with pytest.raises(AxisError, match="sees the order of 'x'"):
        made.permute(x="reversed")
