"""Codes and casts in front of contractions: what is computed, what moves, what runs where."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from test_derive_transforms import ARRAYS, TURN, attention

import diagkit as dk
from diagkit.term import FormatError, TermError

Array = np.ndarray[Any, Any]


def codes(values: Array, over: int | None, largest: int, dtype: Any) -> tuple[Array, Array]:
    """Quantization in numpy alone."""
    scale = np.abs(values).max(axis=over, keepdims=True).astype(np.float32).astype(np.float64) / largest
    scaled = values / scale
    rounded = np.clip(np.rint(scaled), -largest, largest) if dtype is None else scaled.astype(dtype)
    return rounded.astype(np.float64), scale


def softmax(scores: Array) -> Array:
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def eight_bits() -> dk.Diagram:
    """int8 queries and keys per token, smoothed and turned; fp8 values per channel, stored transposed."""
    prepared = (
        attention().smooth(K="x").rotate("Q", "K", over="d").quantize("Q", "int8", "d").quantize("K", "int8", "d")
    )
    return prepared.quantize("V", "fp8e4m3", "x", order=("d", "x")).scale(P=448).cast(P="fp8e4m3")


def by_hand(Q: Array, K: Array, V: Array) -> Array:
    turned = TURN["H"]
    (q_codes, q_scale), (k_codes, k_scale) = (codes(a @ turned, 1, 127, None) for a in (Q, K - K.mean(axis=0)))
    v_codes, v_scale = codes(V, 0, 448, ml_dtypes.float8_e4m3fn)
    P = softmax(q_codes @ k_codes.T * q_scale * k_scale.T / 4)
    rounded = (P * 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return np.asarray(rounded @ v_codes * v_scale / 448)


def test_the_steps_compute_what_numpy_does() -> None:
    found = eight_bits().reference(**ARRAYS, **TURN)
    np.testing.assert_allclose(found, by_hand(**ARRAYS), atol=1e-13)
    error = np.abs(found - attention().reference(**ARRAYS)).max()
    assert 1e-3 < error < 0.1, "it rounds, and not much"


def test_what_is_prepared_stays_in_kernels_of_its_own() -> None:
    made = eight_bits().fuse().group(q="g_q").stream(x="s_x")
    whole = next(region for region in made.regions if "O" in region.stores)
    assert set(whole.loads) == {f"{array}.{part}" for array in "QKV" for part in ("codes", "scale")}
    arrays, tiles = {**ARRAYS, **TURN}, {"g_q": 6, "s_x": 7}
    program = made.lower(**tiles)
    assert program.count(**arrays).transfers == made.transfers().at(q=20, x=24, d=16, **tiles)
    np.testing.assert_allclose(program.run(**arrays), attention().reference(**ARRAYS), atol=0.2)


def test_the_part_that_is_attention_moves_codes_and_scales() -> None:
    piece = eight_bits().part("O").fuse().group(q="g_q").stream(x="s_x")
    q, x, d, g = (dk.axis(name).size for name in ("q", "x", "d", "g_q"))
    moved = piece.transfers().bytes().relaxed()
    assert (moved.total() - (5 * q * d + 2 * x * d * q / g + 4 * d * q / g + 4 * q + 4 * x * q / g)).expand() == 0
    assert {array.name: array.dtype for array in piece.inputs if "codes" in array.name} == {
        "Q.codes": "int8", "K.codes": "int8", "V.codes": "fp8e4m3",
    }  # fmt: skip
    assert piece.wires["QK"].dtype == "int32"


def test_parts_put_together_are_the_whole() -> None:
    whole, made = eight_bits(), dict(ARRAYS | TURN)
    for outputs in (
        ["K.mean"],
        ["K.smooth"],
        ["K.rotated"],
        ["Q.rotated"],
        *([f"{n}.codes", f"{n}.scale"] for n in "QKV"),
        ["O"],
    ):
        piece = whole.part(*outputs)
        found = piece.reference(**{array.name: made[array.name] for array in piece.inputs})
        made |= found if isinstance(found, dict) else {outputs[0]: found}
    np.testing.assert_array_equal(made["O"], whole.reference(**ARRAYS, **TURN))


def test_a_quantizer_reads_its_array_once() -> None:
    piece = eight_bits().part("K.codes", "K.scale").fuse().group(x="g_x")
    moved = piece.transfers().bytes().at(x=10, d_rot=16, d=16, g_x=4)
    assert moved == {
        ("K.rotated", 0, 1, "input"): 640, ("K.codes", 1, 0, "output"): 160, ("K.scale", 1, 0, "output"): 40,
    }  # fmt: skip


def test_scales_along_the_sum_come_back_before_it() -> None:
    made = attention().quantize("K", "int4", "d").quantize("V", "int4", "d")
    piece = made.part("O").fuse().group(q="g_q").stream(x="s_x")
    assert [box.name for box in piece.boxes] == ["QK", "S", "P", "V.values", "O"]
    (k_codes, k_scale), (v_codes, v_scale) = (codes(ARRAYS[name], 1, 7, None) for name in "KV")
    wanted = softmax(ARRAYS["Q"] @ (k_codes * k_scale).T / 4) @ (v_codes * v_scale)
    np.testing.assert_allclose(made.reference(**ARRAYS), wanted, atol=1e-13)
    moved = piece.transfers().bytes().at(q=20, x=24, d=16, g_q=20)
    assert moved["K.codes", 0, 1, "input"] == 24 * 16 / 2


def test_blocks_along_the_keys_and_along_the_features() -> None:
    made = attention().quantize("K", "int8", "d", x=8).quantize("V", "fp8e4m3", scale="fp8e8m0", d=4)
    blocks = ARRAYS["K"].reshape(3, 8 * 16)
    k_codes, k_scale = codes(blocks, 1, 127, None)
    scores = softmax(ARRAYS["Q"] @ (k_codes * k_scale).reshape(24, 16).T / 4)
    parts = ARRAYS["V"].reshape(24, 4, 4)
    power = 2.0 ** np.ceil(np.log2(np.abs(parts).max(axis=2, keepdims=True) / 448))
    values = (parts / power).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * power
    np.testing.assert_allclose(made.reference(**ARRAYS), scores @ values.reshape(24, 16), atol=1e-13)


@pytest.mark.parametrize("seed", [0, 1])
def test_casts_of_what_contractions_read(seed: int) -> None:
    made = attention().cast(Q="fp16", K="fp16", V="fp16", P="fp16")
    half = {name: value.astype(np.float16).astype(np.float64) for name, value in ARRAYS.items()}
    P = softmax(half["Q"] @ half["K"].T / 4).astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(made.reference(**ARRAYS), P @ half["V"], atol=1e-15)
    assert {array.dtype for array in made.part("O").inputs} == {"fp16"}


def test_probabilities_of_many_equal_keys_vanish_in_fp8_without_a_scale() -> None:
    keys = {"Q": np.zeros((1, 4)), "K": np.zeros((4096, 4)), "V": np.ones((4096, 4))}
    assert not attention().cast(P="fp8e4m3").reference(**keys).any()
    lifted = attention().scale(P=448).cast(P="fp8e4m3").reference(**keys)
    np.testing.assert_allclose(lifted, np.ones((1, 4)), rtol=2**-4)


def test_what_cannot_be_quantized_is_refused() -> None:
    with pytest.raises(FormatError, match="no codes in 'fp16'"):
        attention().quantize("K", "fp16")
    with pytest.raises(TermError, match="'K' has no axis 'q'; it has: x, d"):
        attention().quantize("K", "int8", "q")
    with pytest.raises(TermError, match="'P' reads 'S' and is no contraction|reads 'S'"):
        attention().quantize("S", "int8", "q")
    with pytest.raises(TermError, match="has no wire 'W'"):
        attention().quantize("W", "int8")


def test_steps_are_replayed_and_printed() -> None:
    made = eight_bits()
    assert attention().replay(made.derivation) == made
    assert "quantize('V', 'fp8e4m3', over='x', order=('d', 'x'))" in str(made.derivation)
