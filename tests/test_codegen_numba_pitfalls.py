"""Faults that kernels of this kind have had elsewhere, each with the right value, on compiled numba kernels."""

import numpy as np
import plain_numba
import pytest
from numba_cases import TERMS, kernel, normal, q, x

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel, numba_run
from diagkit.program import lower
from diagkit.term import InputError, Term, quotient

pytest.importorskip("numba", reason="the numba target needs numba")
pytest.importorskip("scipy", reason="numba's products need scipy")


def at(name, arrays, **tiles):
    """The outputs of the kernel of that name at other tiles; one compilation serves all tiles above one."""
    term = TERMS[name]()
    tiles = {label.tile.name: tiles[label.axis] for label in term.labels if label.tile.is_Symbol}
    program = lower(term, **tiles)
    engine, start = ops.open_arrays(term, arrays)
    launch = numba_run.any_tile(program, engine.sizes, start)
    launch.run()
    return launch.outputs


# ---- lengths, tiles, layouts ----


@pytest.mark.parametrize("tiles", [{"q": 128, "x": 128}, {"q": 128, "x": 192}, {"q": 192, "x": 128}, {"q": 7, "x": 5}])
def test_padding_never_counts(tiles):
    arrays = {"Q": np.zeros((192, 4)), "K": np.zeros((192, 4)), "V": np.arange(192.0)[:, None]}
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    np.testing.assert_allclose(at("attention", arrays, **tiles)["O"], 95.5, rtol=1e-6)


def test_a_maximum_that_stays_leaves_what_was_gathered_as_it_was():
    """Scores of 3001 everywhere: a factor that is 1 but for rounding would weigh the first of 64 chunks otherwise."""
    arrays = {"Q": np.full((8, 1), 3001), "K": np.ones((256, 1)), "V": np.arange(256.0)[:, None]}
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    np.testing.assert_allclose(at("attention", arrays, q=8, x=4)["O"], 127.5, rtol=1e-6)


@pytest.mark.parametrize(("size", "width"), [(96, 96), (96, 33), (1, 256), (7, 1)])
def test_head_sizes_that_are_no_powers_of_two_and_differ(size, width):
    arrays = normal(Q=(50, size), K=(45, size), V=(45, width))
    assert kernel("attention").check(arrays=arrays)


def test_heads_behind_lengths_are_read_where_they_lie():
    """Views of arrays (length, head, feature) with the axes swapped."""
    Q, K, V = (value.swapaxes(0, 1) for value in normal(Q=(40, 2, 9), K=(40, 2, 9), V=(40, 2, 9)).values())
    slope = np.float32([0.5, 0.25])
    made = kernel("seasoned")(Q=Q, K=K, V=V, slope=slope)
    whole = {name: np.ascontiguousarray(value) for name, value in (("Q", Q), ("K", K), ("V", V))}
    np.testing.assert_array_equal(made, kernel("seasoned")(**whole, slope=slope))


def test_masks_that_are_one_row_for_all():
    row = np.arange(50) % 3 == 0
    arrays = normal(Q=(40, 3), K=(50, 3), B=(50,), V=(50, 2))
    made = kernel("masked")(**arrays, M=np.broadcast_to(row, (40, 50)))
    np.testing.assert_array_equal(made["O"], kernel("masked")(**arrays, M=np.tile(row, (40, 1)))["O"])


# ---- masks, scales, heads ----


def test_causal_alignment_where_lengths_differ():
    arrays = {"Q": np.zeros((2, 3)), "K": np.zeros((4, 3)), "V": np.arange(1.0, 5.0)[:, None]}
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    np.testing.assert_allclose(kernel("causal")(**arrays).ravel(), [1, 1.5], rtol=1e-6)
    heads = {"Q": np.zeros((1, 1, 2, 1)), "K": np.zeros((1, 4, 1)), "V": np.arange(1.0, 5.0).reshape(1, 4, 1)}
    made = kernel("grouped heads")(**{name: value.astype(np.float32) for name, value in heads.items()})
    np.testing.assert_allclose(made.ravel(), [2, 2.5], rtol=1e-6)


def masked_row(scores, mask, values):
    """Attention of one feature with the scores given, under the mask: (O, L)."""
    scores, values = np.asarray(scores, np.float32), np.asarray(values, np.float32)
    arrays = {"Q": np.zeros((len(mask), 1)), "K": np.zeros((len(scores), 1)), "B": scores, "V": values[:, None]}
    arrays = {name: value.astype(np.float32) for name, value in arrays.items()}
    made = kernel("masked")(**arrays, M=np.asarray(mask))
    return made["O"].ravel(), made["L"]


def test_a_row_that_sees_nothing_is_zero_and_its_logsumexp_minus_infinity():
    made, lse = masked_row([0, 0, 0, 0], [[False] * 4, [True] * 4], [1, 2, 3, 4])
    np.testing.assert_allclose(made, [0, 2.5], rtol=1e-6)
    assert lse[0] == -np.inf and lse[1] == pytest.approx(np.log(4), rel=1e-6)


def test_a_dead_tile_before_a_live_one():
    dead = [-np.inf] * 32
    made, _ = masked_row([*dead, 0, 0], [[True] * 34], [1.0] * 32 + [3, 5])
    np.testing.assert_allclose(made, [4.0], rtol=1e-6)
    arrays = {
        "B": np.float32([-np.inf, -np.inf, 0, 0]),
        "V": np.float32([[1], [2], [3], [5]]),
        "M": np.ones((1, 4), bool),
    }
    arrays |= {"Q": np.zeros((1, 1), np.float32), "K": np.zeros((4, 1), np.float32)}
    made, _ = plain_numba.run(lower(TERMS["masked"](), g_q=2, s_x=2), arrays)
    assert made["O"].tolist() == [[4.0]]


def test_logsumexp_is_natural():
    _, lse = masked_row([1, 2, 3], [[True] * 3], [0, 0, 0])
    assert lse[0] == pytest.approx(3.407606, rel=1e-6)


def test_empty_axes():
    made = kernel("attention")
    assert not made(**normal(Q=(2, 3), K=(0, 3), V=(0, 4))).any()
    assert made(**normal(Q=(0, 3), K=(5, 3), V=(5, 4))).shape == (0, 4)
    assert made(**normal(Q=(2, 3), K=(5, 3), V=(5, 0))).shape == (2, 0)


def test_logits_beyond_the_input_format():
    arrays = {"Q": np.full((40, 128), 256), "K": np.full((40, 128), 256), "V": np.ones((40, 3))}
    made = kernel("attention")(**{name: value.astype(np.float16) for name, value in arrays.items()})
    assert made.dtype == np.float16 and (made == 1).all()


def test_grouped_heads_share_their_keys():
    arrays = {"Q": np.zeros((2, 2, 1, 1)), "K": np.zeros((2, 1, 1)), "V": np.array([10.0, 20.0]).reshape(2, 1, 1)}
    made = kernel("grouped heads")(**{name: value.astype(np.float32) for name, value in arrays.items()})
    assert made.ravel().tolist() == [10, 10, 20, 20]


@pytest.mark.parametrize("scale", [0.0, -0.5, 2.0])
def test_any_scale_is_taken_as_it_is_and_masking_comes_after(scale):
    arrays = normal(Q=(40, 3), K=(40, 3), V=(40, 2)) | {"scale": np.float32(scale)}
    made = kernel("scaled")(**arrays)
    if scale == 0:
        mean = np.cumsum(arrays["V"], 0) / np.arange(1, 41)[:, None]
        np.testing.assert_allclose(made, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made, ops.reference(TERMS["scaled"](), arrays), rtol=1e-5, atol=1e-6)


def test_slopes_of_six_heads():
    slopes = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert list(dk.alibi_slopes(6)) == slopes
    arrays = normal(Q=(6, 20, 4), K=(6, 20, 4), V=(6, 20, 4)) | {"slope": np.array(slopes, np.float32)}
    made = kernel("seasoned")(**arrays)
    np.testing.assert_allclose(made, ops.reference(TERMS["seasoned"](), arrays), rtol=1e-4, atol=1e-5)


def test_four_heads_over_three_are_refused():
    with pytest.raises(InputError, match="axis 'k' is 4 in 'Q' but 3 in 'K'"):
        kernel("grouped heads")(**normal(Q=(4, 1, 2, 3), K=(3, 2, 3), V=(3, 2, 3)))


def test_offsets_beyond_31_bits(tmp_path):
    """Rows that lie 2**30 elements apart in a sparse file: the third begins at element 2**31."""
    far = np.memmap(tmp_path / "far", np.float32, "w+", shape=(2 * 2**30 + 4,))
    Q = np.lib.stride_tricks.as_strided(far, (3, 4), (4 * 2**30, 4))
    Q[:] = normal(Q=(3, 4))["Q"]
    arrays = normal(K=(5, 4), V=(5, 2))
    made = kernel("attention")(Q=Q, **arrays)
    np.testing.assert_allclose(made, kernel("attention")(Q=np.array(Q), **arrays), rtol=1e-6)


def test_a_window_of_two_counts_the_query_itself():
    assert "the query's own position included" in dk.window.__doc__
    V = dk.array("V", x, dk.axis("e"))
    scores = dk.masked(dk.array("S", q, x), dk.window(q, x, 2))
    O = dk.einsum("q x, x e -> q e", dk.softmax(scores, over=x), V)
    found = derive.fuse(Term(*ops.trace([O], {"S": scores, "O": O}), "window"))
    made = Kernel(lower(derive.stream(derive.group(found, q=4), x=2)))
    seen = made(S=np.zeros((6, 6), np.float32), V=np.eye(6, dtype=np.float32))
    wanted = [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0]]
    assert (seen[:3] != 0).tolist() == [[bool(n) for n in row] for row in wanted]
    assert (seen[3] != 0).tolist() == [False, False, True, True, False, False]


def test_broadcast_views_and_read_only_arrays_are_read_where_they_lie():
    made = kernel("attention")
    arrays = normal(Q=(40, 16), K=(16,), V=(50, 8))
    arrays["K"] = np.broadcast_to(arrays["K"], (50, 16))
    arrays["Q"].flags.writeable = False
    np.testing.assert_allclose(made(**arrays), ops.reference(TERMS["attention"](), arrays), rtol=1e-5, atol=1e-6)


def test_infinities_and_nan_pass_through():
    made = kernel("attention")
    arrays = normal(Q=(3, 4), K=(40, 4), V=(40, 2))
    arrays["Q"][1, 0] = np.nan
    found = made(**arrays)
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
    arrays["V"][7, 1] = np.inf
    assert made(**arrays)[0, 1] == np.inf


# ---- formats ----


def one_kernel(node, name, **groups):
    found = derive.fuse(Term(*ops.trace([node], {}), name))
    return Kernel(lower(derive.group(found, **groups) if groups else found))


def test_casts_saturate_instead_of_overflowing():
    pytest.importorskip("ml_dtypes", reason="the reference rounds with ml_dtypes")
    X, largest = dk.array("X", x), {"fp8e4m3": 448, "fp8e5m2": 57344, "int8": 127, "int4": 7}
    found = Term(*ops.trace([dk.cast(X, dtype, name=dtype) for dtype in largest], {}), "saturated")
    beyond = np.float32([449, 450, 464, 480, 1e6, 1e7, 3e38, np.inf])
    made, below = (Kernel(lower(derive.fuse(found)))(X=sign * beyond) for sign in (1, -1))
    assert made["fp8e4m3"].tolist() == [448] * 8 and below["fp8e4m3"].tolist() == [-448] * 8
    assert made["fp8e5m2"][4:].tolist() == [57344] * 4 and below["fp8e5m2"][4:].tolist() == [-57344] * 4
    for dtype, low in (("int8", -128), ("int4", -8)):
        assert made[dtype].tolist() == [largest[dtype]] * 8 and below[dtype].tolist() == [low] * 8


def test_an_outlier_under_one_scale_hides_small_values_and_one_scale_per_row_keeps_them():
    X = dk.array("X", q, x)
    values = np.float32([[1e-3, 2e-3], [1e4, 1e4]])

    def restored(scale, name, **groups):
        codes = dk.cast(dk.combine(quotient, X, scale), "int8")
        return one_kernel(dk.cast(codes, "fp32") * scale, name, **groups)(X=values)

    peak = dk.amax(dk.absolute(X), over=x)
    assert restored(dk.amax(peak, over=q) / 127, "one scale").tolist()[0] == [0, 0]
    np.testing.assert_allclose(restored(peak / 127, "scale per row", q=1), values, rtol=0.01)


# ---- what numba adds ----


def test_groups_do_not_add_into_each_other():
    X = dk.array("X", q, x)
    found = derive.stream(
        derive.group(derive.fuse(Term(*ops.trace([dk.total(X, x, name="T")], {}), "ones")), q=1), x=512
    )
    made = Kernel(lower(found))
    ones = np.ones((6, 200_000), np.float32)
    for _ in range(10):
        assert made(X=ones).tolist() == [200_000] * 6


def test_division_by_zero_gives_infinity_or_what_the_diagram_says():
    X, Y = dk.array("X", x), dk.array("Y", x)
    both = Term(
        *ops.trace([dk.combine(lambda a, b: a / b, X, Y, name="raw"), dk.combine(quotient, X, Y, name="safe")], {})
    )
    made = Kernel(lower(derive.fuse(both)))(X=np.float32([1, -1, 0, 6]), Y=np.float32([0, 0, 0, 3]))
    assert made["raw"][[0, 1, 3]].tolist() == [np.inf, -np.inf, 2] and np.isnan(made["raw"][2])
    assert made["safe"].tolist() == [0, 0, 0, 2]
