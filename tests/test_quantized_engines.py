"""Each row of what goes wrong when numbers are quantized, on every engine: the diagram on numpy and on torch, its
program, numba and Triton; against values worked out by hand, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import plain_numba
import pytest
from test_ops_quantize_exact import LARGEST, SHARED, awkward, by_hand, rounded
from triton_cases import agrees

import diagkit as dk
from diagkit.bench import Kernel
from diagkit.bench.check import tolerance_of
from diagkit.bench.inputs import random_inputs
from diagkit.program import lower
from diagkit.term import FormatError, InputError

pytest.importorskip("numba", reason="the numba target needs numba")
pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
Array = np.ndarray
q, x, d, e = dk.axes("q x d e")
ENGINES = ("numpy", "torch", "program", "numba", "triton")
EVERY = pytest.mark.parametrize("engine", ENGINES)


def as_diagram(diagram: dk.Diagram, arrays: dict[str, Any]) -> Any:
    return diagram(**arrays)


def on_torch(diagram: dk.Diagram, arrays: dict[str, Any]) -> Any:
    import torch

    return diagram(**{name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()})


def ran(engine: str, diagram: dk.Diagram, arrays: dict[str, Any], **tiles: int) -> dict[str, Array]:
    """The outputs by name, as numbers in double precision."""
    with np.errstate(all="ignore"):
        if engine in ("numpy", "torch"):
            made = as_diagram(diagram, arrays) if engine == "numpy" else on_torch(diagram, arrays)
        else:
            sizes = {a.name: n for i in diagram.inputs for a, n in zip(i.axes, arrays[i.name].shape, strict=True)}
            program = lower(diagram, **{**sizes, **tiles})
            made = {
                "program": lambda: program.run(**arrays),
                "numba": lambda: plain_numba.run(program, arrays)[0],
                "triton": lambda: Kernel(program, "triton")(**arrays),
            }[engine]()
        made = made if isinstance(made, dict) else {diagram.outputs[0]: made}
        return {name: np.asarray(one, np.float64) for name, one in made.items()}


def same(found: Array, wanted: Array) -> None:
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found) & ~np.isnan(found), np.signbit(wanted) & ~np.isnan(wanted))


# ---- one scale for many numbers ----


def tall(shared: str) -> Array:
    """Every awkward array of one size, side by side along an axis that no scale is shared over."""
    some = [one for one in awkward() if one.shape == (9, 6)]
    return np.concatenate(some, axis=1 if shared == "channel" else 0)


WAYS = [("token", "fp32"), ("token", "fp16"), ("token", "fp8e8m0"), ("channel", "fp32"), ("block", "fp32"),
        ("micro", "fp8e8m0")]  # fmt: skip


@pytest.mark.parametrize("engine", ["numba", "triton"])
@pytest.mark.parametrize(("shared", "scale"), WAYS)
@pytest.mark.parametrize("dtype", LARGEST)
def test_codes_are_right_to_the_bit(engine: str, dtype: str, scale: str, shared: str) -> None:
    """All-zero and odd blocks, infinities, NaN, ties, subnormals, both zeros; numpy, torch and the program have a
    test of their own. Triton stores products of codes and fp16 scales in fp16, the format of their wire."""
    over, blocks = SHARED[shared]
    codes, scales = dk.quantize(dk.array("X", x, d), dtype, over, scale=scale, name="codes", **blocks)
    diagram = dk.Diagram(codes, dk.dequantize(codes, scales, name="back", **blocks), name="quantizer").fuse()
    diagram = diagram if shared in ("channel", "block") else diagram.group(x=8)
    values = tall(shared)
    with np.errstate(all="ignore"):
        wanted = by_hand(values, dtype, scale, shared)
        back = rounded(wanted[1], "fp16") if (engine, scale) == ("triton", "fp16") else wanted[1]
    found = ran(engine, diagram, {"X": values})
    same(found["codes"], wanted[0])
    same(found["back"], back)


# ---- zeros beside the scales ----

SHORT = {"int4": 15, "int8": 255}


def with_zeros(values: Array, dtype: str, scale: str) -> dict[str, Array]:
    """Codes, scales, zeros of each row, and what they stand for."""
    steps, one = SHORT[dtype], np.float32
    high, low = values.max(axis=1), values.min(axis=1)
    zero, step = rounded(low, scale), rounded(high / one(steps) - low / one(steps), scale)
    safe = np.where(step == 0, one(1), step)[:, None]
    part = np.where(step[:, None] == 0, one(0), (values - zero[:, None]) / safe)
    codes = rounded(np.clip(part, 0, steps) - one(steps // 2 + 1), dtype).astype(one)
    back = (codes + one(steps // 2 + 1)) * step[:, None] + zero[:, None]
    return {"X.codes": codes, "X.scale": step, "X.zero": zero, "back": back}


def zeros_diagram(dtype: str, scale: str, back: bool = True) -> dk.Diagram:
    made = dk.quantize_affine(dk.array("X", x, d), dtype, over=d, scale=scale, called="X")
    if back:
        made += (dk.combine(lambda c, s, z: (c + SHORT[dtype] // 2 + 1) * s + z, *made, name="back"),)
    return dk.Diagram(*made, name="zeros").fuse().group(x=8)


@EVERY
@pytest.mark.parametrize("scale", ["fp32", "fp16"])
@pytest.mark.parametrize("dtype", SHORT)
def test_codes_with_zeros_are_right_to_the_bit(engine: str, dtype: str, scale: str) -> None:
    values = tall("token")
    plain = (engine, dtype) == ("numba", "int8")  # as plain Python its codes are numpy's int8, which hold no 128
    with np.errstate(all="ignore"):
        wanted = with_zeros(values, dtype, scale)
        if (engine, scale) == ("triton", "fp16"):
            wanted["back"] = rounded(wanted["back"], "fp16")
    found = ran(engine, zeros_diagram(dtype, scale, back=not plain), {"X": values})
    for name, one in found.items():
        np.testing.assert_array_equal(one, wanted[name])


def test_compiled_codes_with_zeros_come_back() -> None:
    values = np.random.default_rng(0).normal(size=(9, 6)).astype(np.float32)
    kernel = Kernel(lower(zeros_diagram("int8", "fp32"), x=9, d=6))
    assert kernel.check(arrays={"X": values}).passed
    np.testing.assert_allclose(kernel(X=values)["back"], values, atol=float(np.ptp(values, axis=1).max() / 509))


@EVERY
def test_what_stands_at_the_edge_of_zeros(engine: str) -> None:
    """All alike: the scale 0, and the number itself comes back; NaN and infinities spoil their row alone."""
    rows = [[0, 0, 0, 0], [5, 5, 5, 5], [-0.0, 0, 0, -0.0], [1, 2, np.nan, 3], [1, 2, np.inf, 3], [1, 2, -np.inf, 3],
            [1e-30, 0, 0, 0], [0, 5, 10, 15]]  # fmt: skip
    found = ran(engine, zeros_diagram("int4", "fp32"), {"X": np.float32(rows)})
    assert found["X.scale"][:3].tolist() == [0, 0, 0] and found["back"][:3].tolist() == [[0] * 4, [5] * 4, [0] * 4]
    assert not np.isfinite(found["back"][3:6]).any(), "they share a scale with what is no number"
    np.testing.assert_allclose(found["back"][6], np.float32([1e-30, 0, 0, 0]), rtol=1e-6)
    assert found["X.codes"][7].tolist() == [-8, -3, 2, 7] and found["back"][7].tolist() == [0, 5, 10, 15]


# ---- formats by themselves ----

BEYOND = np.float32([449, 464, 465, 500, 57345, 61440, 61441, 65536, 1e6, 3e38, np.inf])
ENDS = {"fp8e4m3": (448, -448), "fp8e5m2": (57344, -57344), "int8": (127, -128), "int4": (7, -8)}


@EVERY
@pytest.mark.parametrize("dtype", ENDS)
def test_what_is_beyond_a_format_becomes_its_end(engine: str, dtype: str) -> None:
    values = np.concatenate([BEYOND, -BEYOND, [np.nan, 1]]).astype(np.float32)
    found = ran(engine, dk.Diagram(dk.cast(dk.array("X", x), dtype), name="ends").fuse(), {"X": values})
    with np.errstate(all="ignore"):
        wanted = rounded(values, dtype).astype(np.float32)
    (made,) = found.values()
    same(made, wanted)
    high, low = ENDS[dtype]
    assert made[8:11].tolist() == [high] * 3 and made[19:22].tolist() == [low] * 3


def near(dtype: str) -> Array:
    """Middles between neighbours, their sides, subnormal numbers and half of the least, of both signs."""
    least, most = {"fp8e4m3": (2.0**-9, 448), "fp8e5m2": (2.0**-16, 57344)}.get(dtype, (1, LARGEST.get(dtype, 0)))
    grid = np.unique(rounded(np.float32(np.geomspace(least, most, 600)), dtype).astype(np.float32))
    middles = np.concatenate([[least / 2], (grid[1:] + grid[:-1]) / 2]).astype(np.float32)
    some = np.concatenate([grid, middles, *(np.nextafter(middles, np.float32(to)) for to in (0, 1e9)), [0, 1e-45]])
    values = np.concatenate([some, -some]).astype(np.float32)
    return values[: len(values) // 2 * 2]


@EVERY
@pytest.mark.parametrize("dtype", ENDS)
def test_ties_subnormal_numbers_and_both_zeros(engine: str, dtype: str) -> None:
    values = near(dtype)
    (made,) = ran(engine, dk.Diagram(dk.cast(dk.array("X", x), dtype), name="near").fuse(), {"X": values}).values()
    same(made, rounded(values, dtype))
    assert np.signbit(made[len(values) // 2 :]).any() and (made == 0).any()


@EVERY
def test_a_maximum_and_a_minimum_hand_on_what_is_no_number(engine: str) -> None:
    """Along an axis in one tile and in several, and of two numbers: else a scale would pass over it."""
    X, Y = dk.array("X", q, x), dk.array("Y", q)
    high, low = dk.amax(X, over=x, name="high"), dk.amin(X, over=x, name="low")
    beside = [dk.maximum(Y, 0, name="above"), dk.minimum(Y, 0, name="below")]
    values, alone = np.float32([[1, 2, 3, 4], [1, np.nan, 3, 4], [-1, 2, 3, -np.inf]]), np.float32([1, np.nan, -2])
    for end, wanted in ((high, [4, np.nan, 3]), (low, [1, np.nan, -np.inf])):
        whole = dk.Diagram(end, name="end").fuse().group(q=2)
        for diagram in (whole, whole.stream(x=2)):
            np.testing.assert_array_equal(ran(engine, diagram, {"X": values})[end.name], wanted)
    found = ran(engine, dk.Diagram(*beside, name="beside").fuse().group(q=2), {"Y": alone})
    np.testing.assert_array_equal(found["above"], [1, np.nan, 0])
    np.testing.assert_array_equal(found["below"], [0, np.nan, -2])


# ---- codes in pairs, nothing at all ----


@EVERY
@pytest.mark.parametrize("shape", [(0, 6), (3, 0)])
def test_nothing_is_quantized_to_nothing(engine: str, shape: tuple[int, int]) -> None:
    for dtype in LARGEST:
        codes, scales = dk.quantize(dk.array("X", x, d), dtype, d, name="codes", scale_name="scales")
        diagram = dk.Diagram(codes, scales, name="nothing").fuse().group(x=2)
        found = ran(engine, diagram, {"X": np.zeros(shape, np.float32)})
        assert found["codes"].shape == shape and found["scales"].shape == shape[:1]


@EVERY
def test_codes_in_an_odd_number_are_refused_where_they_lie_in_pairs_and_taken_elsewhere(engine: str) -> None:
    diagram = dk.Diagram(dk.cast(dk.array("X", q, x, dtype="int4"), "fp32") * 0.5, name="halves").fuse()
    codes = np.arange(-5, 5, dtype=np.int8).reshape(2, 5)
    if engine in ("numba", "triton"):
        with pytest.raises(InputError, match="'X' is int4 and has 5 along 'x'"):
            Kernel(lower(diagram, q=2, x=5), engine)(X=codes)
    else:
        (made,) = ran(engine, diagram, {"X": codes}).values()
        np.testing.assert_array_equal(made, codes / 2)
    (made,) = ran(engine, diagram, {"X": codes.reshape(5, 2)}).values()
    np.testing.assert_array_equal(made, codes.reshape(5, 2) / 2)


# ---- a scale for so many keys, along the axis that is streamed ----

BLOCKED = [("fp8e4m3", "fp16", "fp32", 64, 64), ("fp8e4m3", "fp16", "fp32", 128, 64),
           ("fp8e4m3", "fp8e4m3", "fp32", 64, 32), ("fp8e4m3", "fp8e4m3", "fp32", 128, 128),
           ("fp8e5m2", "fp8e4m3", "fp8e8m0", 64, 128), ("int8", "int8", "fp16", 64, 128),
           ("int4", "int4", "fp32", 128, 32)]  # fmt: skip


def blocked(keys: str, values: str, scale: str, block: int) -> dk.Diagram:
    """Attention whose keys, and values of 8 bits and fewer, have a scale for each block of keys."""
    Q, K = dk.array("Q", q, d, dtype="fp16" if keys == "int4" else keys), dk.array("K", x, d, dtype=keys)
    V, per = dk.array("V", x, e, dtype=values), x.blocks(block)
    S = dk.contract(Q, K, over=d) * dk.spread(dk.array("sk", per, dtype=scale), x, block) * d.size**-0.5
    V = V if values == "fp16" else dk.dequantize(V, dk.array("sv", per, dtype=scale), x=block)
    O = dk.contract(dk.softmax(S, over=x, name="P"), V, over=x, name="O")
    return dk.Diagram(O, name="blocked").fuse().group(q="g_q").stream(x="s_x")


@pytest.mark.parametrize(("keys", "values", "scale", "block", "tile"), BLOCKED)
def test_keys_with_a_scale_for_each_block_are_right_and_counted(
    keys: str, values: str, scale: str, block: int, tile: int
) -> None:
    """Tiles of a block, of half of one and of two; the last block and the last tile are short."""
    made, sizes, tiles = blocked(keys, values, scale, block), {"q": 20, "x": 200, "d": 24, "e": 32}, {"g_q": 16}
    program = lower(made, s_x=tile, d=24, e=32, **tiles)
    arrays = random_inputs(program, made.numbers(sizes), 0)
    agrees(Kernel(program, "triton"), arrays)
    found, moved = plain_numba.run(program, arrays)
    wanted = made.reference(**arrays)
    tolerance = tolerance_of(made, arrays, {"O": wanted}, made.numbers(sizes))
    assert np.abs(np.float64(found) - wanted).max() <= tolerance * np.abs(wanted).max()
    formula = made.transfers().at(s_x=tile, **tiles, **sizes)
    assert moved == {key: int(count) for key, count in formula.items()}
    assert moved["sk", 0, 1, "input"] == 2 * max(-(-200 // block), -(-200 // tile))


# ---- windows ----


def windows(of: Any, x_long: Any, p: Any, w: Any) -> Any:
    read = {x_long.name: dk.coordinate("p") + dk.coordinate("w")}
    return dk.einsum("p w, w -> p", dk.cast(dk.view(of, read, (p, w), name="W"), "fp32"), dk.array("k", w), name="Y")


@pytest.mark.parametrize("engine", ["numba", "triton"])
def test_windows_of_codes_in_pairs_run_or_are_refused_with_what_runs(engine: str) -> None:
    """Triton reads no windows of pairs; of numbers that a kernel before made of them, as its remedy says, it does."""
    p, w = dk.axes("p w")
    x_long = dk.axis("x", p.size + w.size - 1)
    X = dk.array("X", x_long, dtype="int4")
    program = lower(dk.Diagram(windows(X, x_long, p, w), name="codes").fuse().group(p=8), p=16, w=5)
    arrays = {"X": (np.arange(20) % 7 - 3).astype(np.int8), "k": np.float32([1, 2, 3, 4, 5])}
    wanted = np.correlate(arrays["X"], [1, 2, 3, 4, 5], "valid")
    if engine == "numba":
        np.testing.assert_array_equal(plain_numba.run(program, arrays)[0], wanted)
        return
    with pytest.raises(FormatError, match=r"no windows of int4 codes, as 'W' .*; turn them into numbers .* before"):
        Kernel(program, engine)(**arrays)
    numbers = dk.Diagram(windows(dk.cast(X, "fp32", name="N"), x_long, p, w), name="numbers").group(p=8)
    np.testing.assert_array_equal(Kernel(lower(numbers, p=16, w=5), engine)(**arrays), wanted)


# ---- sums ----


@EVERY
@pytest.mark.parametrize(("dtype", "codes"), [("int8", 127), ("int4", 7), ("fp8e4m3", 448.0)])
def test_products_of_codes_are_summed_in_wide_numbers(engine: str, dtype: str, codes: float) -> None:
    """65 products of the largest codes, and one of 1: a sum in the format of the codes would end at its end."""
    A, B = dk.array("A", q, x, dtype=dtype), dk.array("B", e, x, dtype=dtype)
    diagram = dk.Diagram(dk.einsum("q x, e x -> q e", A, B, name="S"), name="sums").fuse()
    held = np.int8 if dtype.startswith("int") else np.float32
    ones = np.full((2, 66), codes, held)
    ones[:, -1] = 1
    (made,) = ran(engine, diagram, {"A": ones, "B": ones}).values()
    assert (made == 65 * codes**2 + 1).all()


@EVERY
@pytest.mark.parametrize(("dtype", "ends"), [("bf16", 256)])
def test_a_sum_gathered_in_a_narrow_format_stands_still_where_its_steps_end(engine: str, dtype: str, ends: int) -> None:
    """Ones, one at a time: past the last whole number that the format tells apart from the next, nothing is added;
    in fp32 all are."""
    total = dk.Diagram(dk.total(dk.array("X", q, x), over=x, name="T"), name="ones").fuse().group(q=1).stream(x=1)
    title, ones = engine.replace("triton", "Triton"), np.ones((1, ends + 64), np.float32)
    if engine in ("numpy", "torch"):  # a diagram has no stream: its sum is that of its inputs
        assert ran(engine, total.accumulate(dtype), {"X": ones})["T"].item() == ends + 64
        return
    assert ran(engine, total, {"X": ones})["T"].item() == ends + 64
    if engine == "program":
        assert ran(engine, total.accumulate(dtype), {"X": ones})["T"].item() == ends
        return
    with pytest.raises(FormatError, match=f"{title} kernels do not round .* to {dtype} as they gather it; .*fp32"):
        ran(engine, total.accumulate(dtype), {"X": ones})
