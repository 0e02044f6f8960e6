"""Narrow whole numbers in numba kernels: rounding, two codes in a byte, and what counts of them."""

import numpy as np
import plain_numba
import pytest
from numba_cases import d, e, q, streamed, x

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel
from diagkit.program import lower
from diagkit.term import FormatError, InputError, Term, quotient

pytest.importorskip("numba", reason="the numba target needs numba")
pytest.importorskip("scipy", reason="numba's products need scipy")
RANDOM = np.random.default_rng(0)
RANGE = {"int8": (-128, 127), "int4": (-8, 7)}


def term(O, name):
    return Term(*ops.trace([O], {"O": O}), name)


def made_of(found, **tiles):
    return Kernel(lower(found, **tiles))


def plainly(found, arrays, **tiles):
    """The text run as plain Python; what it counts is what the program moves."""
    sizes = ops.open_arrays(found, arrays)[0].sizes
    made, moved = plain_numba.run(lower(found, **tiles), arrays)
    assert moved == lower(found, **tiles, **sizes).count().transfers
    return made


def both(found, arrays, **tiles):
    """Compiled, and as plain Python; they must agree to the bit."""
    made = Kernel(lower(found, **tiles))(**arrays)
    np.testing.assert_array_equal(np.asarray(plainly(found, arrays, **tiles), np.float64), np.asarray(made, np.float64))
    return made


@pytest.mark.parametrize("dtype", RANGE)
def test_casts_to_whole_numbers_round_half_to_even_saturate_and_have_0_for_nan(dtype):
    low, high = RANGE[dtype]
    halves = np.arange(2 * low - 9, 2 * high + 10) / 2
    odd = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 0.49999997, 2.5000002, 1e-30, 16777217.0]
    values = np.concatenate([halves, np.nextafter(halves, 99), odd]).astype(np.float32)
    values = values[: len(values) // 2 * 2]
    found = term(dk.cast(dk.array("X", x), dtype), f"to {dtype}")
    made = (both if dtype == "int8" else plainly)(found, {"X": values})
    np.testing.assert_array_equal(made, ops.reference(found, {"X": values}))
    assert set(np.unique(made)) == set(range(low, high + 1)), "every code occurs"
    assert both(found, {"X": np.float32([0.5, 1.5, -2.5, np.nan])}).tolist() == [0, 2, -2, 0]


PAIRS = np.stack(np.meshgrid(np.arange(-8, 8), np.arange(-8, 8)), -1).reshape(16, 32).astype(np.int8)
"""Every pair of codes, side by side."""


@pytest.mark.parametrize(("tiles", "run"), [({"q": 3}, plainly), ({"x": 6}, plainly), ({"q": 5, "x": 10}, both)])
def test_every_pair_of_codes_is_read_and_written(tiles, run):
    read = derive.group(derive.fuse(term(dk.cast(dk.array("X", q, x, dtype="int4"), "fp32") * 0.5, "halves")), **tiles)
    np.testing.assert_array_equal(run(read, {"X": PAIRS}), PAIRS / 2)
    written = derive.group(derive.fuse(term(dk.cast(dk.array("X", q, x) * 2, "int4"), "doubles")), **tiles)
    np.testing.assert_array_equal(run(written, {"X": (PAIRS / 2).astype(np.float32)}), PAIRS)


def test_a_kernel_that_writes_pairs_is_checked_and_counts_half_a_byte_for_each_code():
    written = derive.group(derive.fuse(term(dk.cast(dk.array("X", q, x) * 2, "int4"), "doubles")), q=5, x=10)
    kernel = made_of(written, q=16, x=32)
    assert kernel.check(arrays={"X": (PAIRS / 2).astype(np.float32)})
    assert kernel.count().bytes() == {("X", 0, 1, "input"): 512 * 4, ("O", 1, 0, "output"): 512 / 2}


def test_codes_between_two_kernels_lie_in_pairs_too():
    codes = dk.cast(dk.array("X", q, x), "int4", name="C")
    found = Term(*ops.trace([dk.cast(codes, "fp32") * 3], {"C": codes}), "two kernels")
    values = RANDOM.uniform(-9, 9, (5, 6)).astype(np.float32)
    np.testing.assert_array_equal(plainly(found, {"X": values}), ops.reference(found, {"X": values}))
    assert lower(found, q=5, x=6).count().bytes()["C", 1, 0, "spill"] == 15


def test_tiles_that_split_a_byte_are_refused():
    found = derive.group(derive.fuse(term(dk.cast(dk.array("X", q, dtype="int4"), "fp32") * 0.5, "halves")), q="g_q")
    with pytest.raises(FormatError, match="tiles of 'X' split a byte .* along 'q'; .*even tile"):
        made_of(found, g_q=3).source  # noqa: B018
    with pytest.raises(InputError, match="'X' is int4 and has 5 along 'q'"):
        made_of(found, g_q=4)(X=np.zeros(5, np.int8))
    with pytest.raises(InputError, match=r"-8\.\.7"):
        made_of(found, g_q=4)(X=np.full(6, 8, np.int8))


def test_sums_of_codes_are_exact():
    """More than a float of 32 bits holds: 2000 products of 127 and 127, and one."""
    A, B = dk.array("A", q, x, dtype="int8"), dk.array("B", x, e, dtype="int8")
    found = term(dk.einsum("q x, x e -> q e", A, B), "codes")
    arrays = {"A": np.full((2, 2001), 127, np.int8), "B": np.full((2001, 3), 127, np.int8)}
    arrays["A"][:, -1] = arrays["B"][-1] = 1
    assert (both(found, arrays) == 2000 * 127 * 127 + 1).all()


def attention(scores, values=None):
    """Attention whose keys and values are codes, one scale per key."""
    Q = dk.array("Q", q, d)
    K, V = dk.array("K", x, d, dtype=scores), dk.array("V", x, d, dtype=values or scores)
    S = dk.contract(Q, K, over=d) * dk.array("sk", x) * d.size**-0.5
    P = dk.softmax(S, over=x) * dk.array("sv", x)
    return streamed(term(dk.contract(P, V, over=x), f"{scores} keys"))


def codes_for(dtype, keys, size):
    low, high = RANGE[dtype]
    shapes = {"Q": (21, size), "K": (keys, size), "V": (keys, size), "sk": keys, "sv": keys}
    arrays = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    scales = {name: np.abs(arrays[name]) / high for name in ("sk", "sv")}
    return arrays | scales | {n: RANDOM.integers(low, high + 1, shapes[n]).astype(np.int8) for n in "KV"}


@pytest.mark.parametrize("dtype", RANGE)
@pytest.mark.parametrize("tiles", [(8, 16), (1, 10)])
def test_attention_over_codes_means_the_same_as_text(dtype, tiles):
    found, arrays = attention(dtype), codes_for(dtype, 37, 24)
    made = plainly(found, arrays, g_q=tiles[0], s_x=tiles[1])
    np.testing.assert_allclose(made, ops.reference(found, arrays), rtol=1e-4, atol=1e-4)


def test_compiled_attention_over_pairs_of_codes_agrees_and_moves_half_a_byte_for_each():
    kernel = made_of(attention("int4"), g_q=8, s_x=16)
    assert kernel.check(arrays=codes_for("int4", 37, 24))
    moved = kernel.count(q=21, x=37, d=24).bytes()
    assert moved["K", 0, 1, "input"] == 3 * 37 * 24 / 2
    assert moved == lower(attention("int4"), g_q=8, s_x=16, q=21, x=37, d=24).count().bytes()


ROWS = {"zero": 0.0, "tiny": 1e-30, "infinite": np.inf, "no number": np.nan}


@pytest.mark.parametrize(("dtype", "top"), [("int8", 127), ("int4", 7)])
def test_quantizers_agree_with_the_reference_on_odd_rows_too(dtype, top):
    values = RANDOM.standard_normal((6, 12)).astype(np.float32)
    for row, number in enumerate(ROWS.values()):
        values[row] = np.where(np.arange(12) == 3, number, 0 if number == 0 else values[row] * min(abs(number), 1))
    X = dk.array("X", q, d)
    scale = dk.combine(lambda a: a / top, dk.amax(dk.absolute(X), over=d))
    found = derive.group(derive.fuse(term(dk.cast(dk.combine(quotient, X, scale), dtype), "quantizer")), q=4)
    made = (both if dtype == "int8" else plainly)(found, {"X": values})
    np.testing.assert_array_equal(made, ops.reference(found, {"X": values}))
    assert not made[0].any(), "a row of zeros has codes that are exactly 0"
