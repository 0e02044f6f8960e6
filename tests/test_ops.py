"""The vocabulary and its meaning on arrays: against loops, on numpy and torch, and where others went wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import oracle
import pytest

import diagkit as dk
from diagkit.term import AxisError, DiagkitError, FormatError, InputError, TermError

q, x, d, h, k = dk.axes("q x d h k")
RNG = np.random.default_rng(0)


def attention(**options: Any) -> dk.Diagram:
    Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, dk.axis("v"))
    return dk.Diagram(dk.attention(Q, K, V, over=x, features=d, name="O", **options))


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)[:, None]


def to_numpy(array: np.ndarray) -> np.ndarray:
    return array


def to_torch(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))


ENGINES = pytest.mark.parametrize("make", [to_numpy, to_torch])


def run(diagram: dk.Diagram, make: Any, **arrays: np.ndarray) -> np.ndarray:
    return np.asarray(diagram(**{name: make(value) for name, value in arrays.items()}))


BLOCKS = {
    "softmax": lambda X: dk.softmax(X, over=x),
    "logsumexp": lambda X: dk.logsumexp(X, over=x),
    "mean": lambda X: dk.mean(X, over=x),
    "variance": lambda X: dk.variance(X, over=x),
    "RMSNorm": lambda X: dk.rms_norm(X, over=x, gain=dk.array("G", x)),
    "LayerNorm": lambda X: dk.layer_norm(X, over=x, gain=dk.array("G", x), bias=dk.array("B", x)),
    "L2 norm": lambda X: dk.spherical(X, over=x, eps=1e-6),
    "silu": dk.silu,
    "gelu": dk.gelu,
    "relu": dk.relu,
    "sigmoid": dk.sigmoid,
    "extrema": lambda X: dk.amax(X, over=x) - dk.amin(X, over=q),
    "scalars": lambda X: dk.maximum(dk.sin(X), dk.cos(X)) + dk.sign(X) * dk.floor(X),
    "roots": lambda X: dk.absolute(X) / dk.sqrt(dk.exp(X)) - dk.minimum(X, 0.1) ** 3,
    "choice": lambda X: dk.select((dk.index(q) < dk.index(x)) | ~(dk.index(q) >= 2), X, dk.log(X * X + 1)),
    "shifted": lambda X: dk.view(X, {"x": dk.coordinate("x") - 1}, (q, x)),
    "attention": lambda X: dk.contract(dk.softmax(X, over=x), dk.array("V", x, d), over=x),
}


@ENGINES
@pytest.mark.parametrize("title", BLOCKS)
@pytest.mark.parametrize("sizes", [{"q": 1, "x": 1, "d": 1}, {"q": 3, "x": 7, "d": 2}])
def test_blocks_equal_plain_loops(title: str, sizes: dict[str, int], make: Any) -> None:
    diagram = dk.Diagram(BLOCKS[title](dk.array("X", q, x)))
    arrays = {a.name: RNG.standard_normal([sizes[axis.name] for axis in a.axes]) for a in diagram.inputs}
    wanted = oracle.run(diagram, arrays, sizes)[diagram.outputs[0]]
    got = run(diagram, make, **arrays)
    assert got.shape == tuple(sizes[a.name] for a in diagram.wires[diagram.outputs[0]].axes)
    for at, value in wanted.items():
        assert got[at] == pytest.approx(value, rel=1e-12, abs=1e-12)


@ENGINES
def test_padding_is_never_counted(make: Any) -> None:
    out = run(attention(), make, Q=np.zeros((3, 4)), K=np.zeros((192, 4)), V=np.arange(192.0)[:, None])
    assert out.ravel().tolist() == pytest.approx([95.5] * 3)


@ENGINES
@pytest.mark.parametrize(("align", "wanted"), [("top-left", [1, 1.5]), ("bottom-right", [2, 2.5])])
def test_both_causal_alignments(align: str, wanted: list[float], make: Any) -> None:
    zeros = {"Q": np.zeros((2, 1)), "K": np.zeros((4, 1))}
    out = run(attention(mask=dk.causal(q, x, align)), make, **zeros, V=column(1, 2, 3, 4))
    assert out.ravel().tolist() == pytest.approx(wanted)


@ENGINES
def test_a_row_that_sees_nothing_is_zero(make: Any) -> None:
    mask = np.array([[False] * 4, [True] * 4])
    diagram = attention(mask=dk.array("M", q, x, dtype="bool"))
    out = run(diagram, make, Q=np.zeros((2, 1)), K=np.zeros((4, 1)), V=column(1, 2, 3, 4), M=mask)
    assert out.ravel().tolist() == pytest.approx([0, 2.5])
    S = dk.masked(dk.array("S", q, x), dk.array("M", q, x, dtype="bool"))
    lse = run(dk.Diagram(dk.logsumexp(S, over=x)), make, S=np.zeros((2, 4)), M=mask)
    assert lse.tolist() == [-math.inf, pytest.approx(math.log(4))]


def test_a_row_that_sees_nothing_has_finite_gradients() -> None:
    import torch

    mask = torch.tensor([[False] * 4, [True] * 4])
    diagram = attention(mask=dk.array("M", q, x, dtype="bool"))
    shapes = {"Q": (2, 3), "K": (4, 3), "V": (4, 2)}
    given = {name: torch.ones(shape, dtype=torch.float64, requires_grad=True) for name, shape in shapes.items()}
    diagram(**given, M=mask).sum().backward()
    assert all(torch.isfinite(t.grad).all() for t in given.values())


@ENGINES
def test_dead_scores_before_live_ones(make: Any) -> None:
    S = dk.array("S", q, x)
    diagram = dk.Diagram(dk.contract(dk.softmax(S, over=x), dk.array("V", x), over=x))
    scores = np.array([[-np.inf, -np.inf, 0, 0]])
    assert run(diagram, make, S=scores, V=np.array([1.0, 2, 3, 5])).tolist() == [4.0]


@ENGINES
def test_empty_axes(make: Any) -> None:
    out = run(attention(), make, Q=np.ones((2, 3)), K=np.ones((0, 3)), V=np.ones((0, 5)))
    assert out.tolist() == np.zeros((2, 5)).tolist()
    assert run(attention(), make, Q=np.ones((0, 3)), K=np.ones((2, 3)), V=np.ones((2, 5))).shape == (0, 5)


@ENGINES
def test_strided_and_broadcast_inputs_equal_their_copies(make: Any) -> None:
    Q, K = RNG.standard_normal((4, 6)).T, RNG.standard_normal((7, 8))[:, ::2]
    V = np.broadcast_to(RNG.standard_normal((7, 1)), (7, 3))
    views = {"Q": Q, "K": K, "V": V}
    copies = {name: np.ascontiguousarray(value) for name, value in views.items()}
    assert attention()(**views).tolist() == attention()(**copies).tolist()
    assert run(attention(), make, **copies) == pytest.approx(attention()(**views), abs=1e-12)


@ENGINES
@pytest.mark.parametrize("scale", [0, -0.5, 2])
def test_any_scale_is_taken_as_it_is(scale: float, make: Any) -> None:
    """Masking happens after scaling: with scale 0 the causal result is the running mean."""
    given = {"Q": RNG.standard_normal((4, 3)), "K": RNG.standard_normal((4, 3)), "V": RNG.standard_normal((4, 2))}
    out = run(attention(scale=scale, mask=dk.causal(q, x)), make, **given)
    scores = np.where(np.tri(4, dtype=bool), scale * given["Q"] @ given["K"].T, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    assert out == pytest.approx(weights / weights.sum(1, keepdims=True) @ given["V"])
    if scale == 0:
        assert out == pytest.approx(np.cumsum(given["V"], 0) / np.arange(1, 5)[:, None])


@ENGINES
def test_grouped_heads_are_axes(make: Any) -> None:
    r = dk.axis("r")
    Q, K, V = dk.array("Q", k, r, q, d), dk.array("K", k, x, d), dk.array("V", k, x, d)
    S = dk.einsum("k r q d, k x d -> k r q x", Q, K)
    diagram = dk.Diagram(dk.einsum("k r q x, k x d -> k r q d", dk.softmax(S, over=x), V))
    V_ = np.stack([np.full((3, 1), 10.0), np.full((3, 1), 20.0)])
    out = run(diagram, make, Q=np.zeros((2, 2, 1, 1)), K=np.zeros((2, 3, 1)), V=V_)
    assert out.ravel().tolist() == [10, 10, 20, 20]
    with pytest.raises(InputError, match="axis 'k' is 2 in 'Q' but 3 in 'K'"):
        diagram(Q=np.zeros((2, 2, 1, 1)), K=np.zeros((3, 3, 1)), V=np.zeros((3, 3, 1)))


@ENGINES
def test_logits_beyond_the_input_format(make: Any) -> None:
    big = np.full((2, 128), 256, np.float16)
    out = run(attention(), make, Q=big, K=big, V=np.ones((2, 1), np.float16))
    assert out.dtype == np.float16
    assert out.ravel().tolist() == [1, 1]


@ENGINES
@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_the_inputs_own_float_type_comes_back(name: str, make: Any) -> None:
    given = {key: RNG.standard_normal((3, 3)).astype(name) for key in "QKV"}
    assert run(attention(), make, **given).dtype == np.dtype(name)
    assert attention().reference(**given).dtype == np.float64


def test_bfloat16_on_torch() -> None:
    import torch

    given = {key: torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).bfloat16() for key in "QKV"}
    out = attention()(**given)
    assert out.dtype == torch.bfloat16
    assert torch.allclose(out.double(), attention().reference(**given), atol=2e-2)


@ENGINES
def test_logsumexp_is_natural(make: Any) -> None:
    S = dk.array("S", x)
    assert run(dk.Diagram(dk.logsumexp(S, over=x)), make, S=np.array([1.0, 2, 3])) == pytest.approx(3.40760596)


@ENGINES
def test_extreme_logits(make: Any) -> None:
    S = dk.array("S", x)
    both = dk.Diagram(dk.softmax(S, over=x, name="P"), dk.logsumexp(S, over=x, name="L"))
    out = both(S=make(np.array([1e4, -1e4, 1e4])))
    assert np.asarray(out["P"]).tolist() == [0.5, 0, 0.5]
    assert float(out["L"]) == pytest.approx(1e4 + math.log(2))


@ENGINES
def test_layer_norm_uses_the_biased_variance(make: Any) -> None:
    out = run(dk.Diagram(dk.layer_norm(dk.array("X", x), over=x)), make, X=np.array([0.0, 2.0]))
    assert out.tolist() == pytest.approx([-0.999995, 0.999995], abs=1e-9)


def test_alibi_slopes_of_six_heads() -> None:
    assert dk.alibi_slopes(6) == (0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125)
    assert dk.alibi_slopes(8) == tuple(2.0**-i for i in range(1, 9))


@ENGINES
def test_a_window_counts_the_query_itself(make: Any) -> None:
    out = run(attention(mask=dk.window(q, x, 2)), make, Q=np.zeros((6, 1)), K=np.zeros((6, 1)), V=column(*range(6)))
    assert out.ravel().tolist() == pytest.approx([0, 0.5, 1.5, 2.5, 3.5, 4.5])


@ENGINES
def test_softcap_and_additive_bias(make: Any) -> None:
    given = {"Q": RNG.standard_normal((3, 2)), "K": RNG.standard_normal((5, 2)), "V": RNG.standard_normal((5, 2))}
    bias = RNG.standard_normal((3, 5))
    out = run(attention(softcap=2, bias=dk.array("B", q, x)), make, **given, B=bias)
    scores = 2 * np.tanh(given["Q"] @ given["K"].T / math.sqrt(2) / 2) + bias
    weights = np.exp(scores)
    assert out == pytest.approx(weights / weights.sum(1, keepdims=True) @ given["V"])


@ENGINES
def test_cross_entropy_takes_class_numbers(make: Any) -> None:
    logits, target = RNG.standard_normal((3, 5)), np.array([0, 4, 2])
    loss = dk.cross_entropy(dk.array("S", q, x), dk.array("t", q, dtype="int64"), over=x)
    wanted = np.log(np.exp(logits).sum(1)) - logits[np.arange(3), target]
    assert run(dk.Diagram(loss), make, S=logits, t=target) == pytest.approx(wanted)


@ENGINES
def test_renamed_axes_read_one_array_two_ways(make: Any) -> None:
    X = dk.array("X", q, d)
    gram = dk.Diagram(dk.contract(X, dk.rename(X, q=x), over=d))
    given = RNG.standard_normal((4, 3))
    assert run(gram, make, X=given) == pytest.approx(given @ given.T)


@ENGINES
def test_fp8_saturates(make: Any) -> None:
    out = run(dk.Diagram(dk.cast(dk.array("X", x), "fp8e4m3")), make, X=np.array([449.0, 1e6, -1e6, 0.1]))
    assert out.tolist() == [448, 448, -448, 0.1015625]


REFUSED: list[tuple[Any, type[DiagkitError], str]] = [
    (lambda: dk.einsum("q d, x d -> q x", dk.array("Q", q, d)), InputError, "writes 2 arrays and gets 1"),
    (lambda: dk.einsum("q d -> q q", dk.array("Q", q, d)), AxisError, "'q' is named twice"),
    (lambda: dk.einsum("q d -> z", dk.array("Q", q, d)), AxisError, "no axis 'z'"),
    (lambda: dk.einsum("q x -> q", dk.array("Q", q, d)), AxisError, r"its axes are \(q d\)"),
    (lambda: dk.einsum("q d", dk.array("Q", q, d)), AxisError, "no pattern"),
    (lambda: dk.array("Q", q, q), AxisError, "axis 'q' twice"),
    (lambda: dk.array("Q", "q"), AxisError, "is no axis"),
    (lambda: dk.softmax(dk.array("Q", q, d), over=x), AxisError, "no axis"),
    (lambda: dk.total(dk.array("Q", q, d), over=()), AxisError, "over no axis"),
    (lambda: dk.axes("q", z=3), AxisError, "'z'"),
    (lambda: dk.axes("q=-1"), AxisError, "cannot have size '-1'"),
    (lambda: dk.axis(" "), AxisError, "needs a name"),
    (lambda: dk.array("A", dk.axis("j", 1)) + dk.array("B", dk.axis("j", 3)), AxisError, "size 1 and size 3"),
    (lambda: dk.cast(dk.array("A", q), "fp12"), FormatError, "fp8e4m3"),
    (lambda: dk.causal(q, x, "middle"), InputError, "bottom-right"),
    (lambda: dk.window(q, x, 0), InputError, "at least 1"),
    (lambda: dk.view(dk.array("A", q), {"q": dk.coordinate("q") ** 2}, (q,)), AxisError, "not affine"),
    (lambda: dk.view(dk.array("A", q), {"q": dk.coordinate("q") / 2}, (q,)), AxisError, "whole"),
    (lambda: dk.view(dk.array("A", q), {"z": dk.coordinate("q")}, (q,)), AxisError, "no axis 'z'"),
    (lambda: dk.causal(q, q), AxisError, "both along 'q'"),
    (lambda: dk.window(q, q, 2), AxisError, "both along 'q'"),
    (lambda: dk.window(q, x, "w"), InputError, "at least 1"),
    (lambda: dk.causal("q", "x"), AxisError, "is no axis"),
    (lambda: dk.index("q"), AxisError, "is no axis"),
    (lambda: dk.rename(dk.array("A", q), q=3), AxisError, "is no axis"),
    (lambda: dk.alibi_slopes(0), InputError, "at least 1"),
    (lambda: dk.array("A", q) / 0, TermError, "divided by 0"),
    (lambda: attention(softcap=0), TermError, "divided by 0"),
    (lambda: dk.softmax(dk.array("A", q), over=None), AxisError, "names no axis"),
    (lambda: dk.axes(3), AxisError, "names no axes"),
    (lambda: dk.einsum("q -> q", np.ones(3)), InputError, "no value of a diagram"),
    (lambda: bool(dk.array("A", q) < 1), TermError, "no truth yet.*dk.select"),
    (lambda: dk.Diagram(dk.array("A", q), dk.array("A", x)), TermError, "two different arrays"),
    (lambda: dk.contract(*[dk.array("A", q)] * 1, over=x), AxisError, "no axis"),
]


@pytest.mark.parametrize(("make", "error", "match"), REFUSED)
def test_what_is_refused_says_what_would_do(make: Any, error: type[DiagkitError], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


CALLS: list[tuple[dict[str, Any], str]] = [
    ({"Q": np.ones((2, 3)), "K": np.ones((4, 3))}, "needs the input 'V'"),
    ({"Q": np.ones((2, 3)), "K": np.ones((4, 3)), "V": np.ones((4, 3)), "W": np.ones(1)}, "has no input 'W'"),
    ({"Q": np.ones((2, 3)), "K": np.ones((4, 1)), "V": np.ones((4, 3))}, "axis 'd' is 3 in 'Q' but 1 in 'K'"),
    ({"Q": np.ones((2, 3)), "K": np.ones((4, 3)), "V": np.ones((1, 3))}, "axis 'x' is 4 in 'K' but 1 in 'V'"),
    ({"Q": np.ones(3), "K": np.ones((4, 3)), "V": np.ones((4, 3))}, r"takes 2 axes: \(q, d\)"),
    ({"Q": np.ones((2, 3), bool), "K": np.ones((4, 3)), "V": np.ones((4, 3))}, "cannot be bool"),
]


@pytest.mark.parametrize(("arrays", "match"), CALLS)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        attention()(**arrays)


def test_a_mask_of_the_wrong_kind_says_which_kinds_there_are() -> None:
    given = {name: np.ones((2, 2)) for name in "QKV"}
    with pytest.raises(InputError, match="a mask is boolean"):
        attention(mask=dk.array("M", q, x, dtype="bool"))(**given, M=np.zeros((2, 2)))
    with pytest.raises(InputError, match="one kind of array"):
        attention()(Q=to_torch(given["Q"]), K=given["K"], V=given["V"])


def test_a_fixed_size_is_checked() -> None:
    total = dk.Diagram(dk.total(dk.array("X", dk.axis("n", 4)), over="n"))
    with pytest.raises(InputError, match="axis 'n' is 4 in the diagram but 3 in 'X'"):
        total(X=np.ones(3))


def test_blocks_hold_what_they_read() -> None:
    X, Y = dk.array("X", q), dk.array("Y", q)
    with pytest.raises(TermError, match="not among its inputs"):
        dk.Diagram(dk.block("sum", [X], X + Y))


def test_a_long_chain_needs_no_recursion() -> None:
    value = dk.array("X", q)
    for _ in range(2000):
        value = value + 1
    assert dk.Diagram(value)(X=np.zeros(1)).tolist() == [2000]


def scaled(width: int) -> dk.Diagram:
    X, scale = dk.array("X", x, d), dk.array("scale", x.blocks(width), d)
    return dk.Diagram(dk.total(X * dk.spread(scale, x, width, name="S"), over="x", name="y"), name="scaled")


@ENGINES
@pytest.mark.parametrize("n", [0, 1, 4, 11])
def test_a_value_per_block_is_read_at_every_position_of_the_block(make, n):
    X, scale = RNG.normal(size=(n, 5)), RNG.normal(size=(-(-n // 4), 5))
    wanted = sum((X[i] * scale[i // 4] for i in range(n)), np.zeros(5))
    np.testing.assert_allclose(np.asarray(scaled(4)(X=make(X), scale=make(scale))), wanted, atol=1e-12)
    for diagram in (scaled(4).group(d="g_d"), scaled(4).fuse().group(d="g_d")):
        np.testing.assert_allclose(diagram.lower(g_d=2).run(X=X, scale=scale), wanted, atol=1e-12)
        counted = diagram.lower(g_d=2).count(X=X, scale=scale)
        assert sum(counted.transfers.values()) == diagram.transfers().total(x=n, d=5, g_d=2)


def test_a_value_per_block_runs_in_numba_and_moves_what_the_formula_says():
    diagram = scaled(4).fuse().group(d="g_d")
    kernel = diagram.kernel("numba", x=11, d=5, g_d=2)
    assert kernel.check(seed=0).passed
    assert kernel.count().total() == diagram.transfers().total(x=11, d=5, g_d=2)


def test_an_axis_cut_into_blocks_reads_0_beyond_its_end():
    X = RNG.normal(size=(11, 5))
    cut = dk.Diagram(dk.blocked(dk.array("X", x, d), x=4, name="B"))(X=X)
    assert cut.shape == (3, 4, 5)
    np.testing.assert_array_equal(cut.reshape(12, 5), np.concatenate([X, np.zeros((1, 5))]))


@pytest.mark.parametrize(
    "at", ["floor(x/2)**2", "floor(floor(x/2)/3)/5", "x*floor(x/2)", "floor(x/q)", "floor(x**2/2)"]
)
def test_coordinates_beyond_floors_of_affine_ones_are_refused(at):
    import sympy

    from diagkit.term import coordinate

    read = sympy.sympify(at, locals={"x": coordinate("x"), "q": coordinate("q")})
    with pytest.raises(AxisError):
        dk.view(dk.array("X", d), {"d": read}, (x, q))


def test_a_cast_is_named_after_what_it_casts_and_a_product_after_what_it_multiplies():
    q, x, d = dk.axes("q x d")
    Q, K = dk.array("Q", q, d), dk.array("K", x, d)
    product = dk.Diagram(dk.einsum("q d, x d -> q x", dk.cast(Q, "fp8e4m3"), dk.cast(K, "fp8e4m3")))
    assert [box.name for box in product.boxes] == ["Q.fp8e4m3", "K.fp8e4m3", "QK"]


def test_a_size_of_nothing_that_divides_is_named():
    x, d = dk.axes("x d")
    scaled = dk.Diagram(dk.total(dk.array("X", x, d), over=d) / d.size)
    with pytest.raises(dk.InputError, match="at d = 0; give d at least 1 element"):
        scaled(X=np.zeros((2, 0)))
