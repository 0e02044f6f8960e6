"""Kernels that load through views, on both engines: right numbers, and counts that are the formula's."""

import numpy as np
import pytest
import view_cases as cases
from test_cost_through import overlapping
from view_cases import x

import diagkit as dk
from diagkit.bench.count import count
from diagkit.term import FormatError, coordinate
from diagkit.term import coordinate as at

ENGINES = ("numba", "triton")
DECODING = {"k": 2, "r": 2, "q": 1, "d": 16, "s_x": 16}
CODES = {"q": 20, "d": 16, "e": 16, "g_q": 16, "s_x": 16}


def agrees(made, engine, arrays=None, open_=("x",), **sizes):
    """The kernels agree with float64 on `arrays`, and count what the formula says; sizes `open_` stay open."""
    pytest.importorskip(engine, reason="no wheel for this system")
    arrays = cases.numbers(made, **sizes) if arrays is None else arrays
    arrays = {n: value.astype(np.float32) if value.dtype.kind == "f" else value for n, value in arrays.items()}
    kernel = made.kernel(engine, **{name: size for name, size in sizes.items() if name not in open_})
    found = kernel.check(arrays=arrays)
    assert found.passed, found
    assert dict(count(kernel.program, engine, arrays).transfers) == made.transfers().at(**sizes)


@pytest.mark.parametrize("engine", ENGINES)
def test_split_decoding_at_any_length(engine):
    """Parts that divide the keys, a short last part, parts without any keys, no keys at all: one text."""
    for length in (64, 37, 5, 0):
        agrees(cases.split_attention(4), engine, **DECODING, x=length)


@pytest.mark.parametrize("engine", ENGINES)
def test_split_decoding_where_rows_see_nothing(engine):
    made = cases.split_attention(4, mask=True)
    arrays = cases.numbers(made, k=2, r=2, q=2, d=16, x=21)
    arrays["M"][0] = False
    arrays["M"][1, :10] = False
    agrees(made, engine, arrays, **DECODING | {"q": 2}, x=21)


@pytest.mark.parametrize("engine", ENGINES)
def test_codes_with_a_scale_per_block_stream(engine):
    """Tiles of several blocks, then tiles within one."""
    for width, length in ((8, 50), (32, 70)):
        agrees(cases.scaled(width), engine, **CODES, x=length)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_array_under_two_names(engine):
    agrees(cases.gram(), engine, q=21, x=21, d=16, g_q=16, g_x=16, open_=())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["shifted", "backwards", "every third", "beyond", "repeated", "twice"])
def test_each_view(engine, name):
    made = cases.VIEWS[name]()
    agrees(made, engine, cases.numbers(made, x=11), open_=(), **({"x": 11} if "x" in made.open_sizes else {}))


@pytest.mark.parametrize(("width", "tile", "length"), [(12, 24, 50), (12, 12, 37), (12, 4, 31), (48, 144, 200)])
def test_blocks_whose_width_is_no_power_of_two(width, tile, length):
    """Triton looks their values up: tiles of several, of one, within one; a short last block."""
    pytest.importorskip("triton", reason="no wheel for this system")
    made = cases.scaled(width)
    agrees(made, "triton", **CODES | {"s_x": tile}, x=length)
    assert ("tl.gather(" in made.kernel("triton", **CODES | {"s_x": tile}).source.text) == (tile > width)


def test_blocks_of_any_width_compile_for_a_gpu():
    pytest.importorskip("triton", reason="no wheel for this system")
    found = cases.scaled(48).kernel("triton", q=256, x=256, d=32, e=32, g_q=32, s_x=96).inspect("sm_80")
    assert found.verdict("shared memory fits").passed


@pytest.mark.parametrize("engine", ENGINES)
def test_int4_codes_through_a_view(engine):
    K = dk.array("K", x, dk.axis("d", 16), dtype="int4")
    blocks = dk.blocked(K, name="B", x=16)
    made = dk.Diagram(dk.total(blocks * 2.0, "x_in", name="Y"), name="codes").fuse().group(x_block=1)
    codes = np.random.default_rng(0).integers(-8, 8, (37, 16), np.int8)
    agrees(made, engine, {"K": codes}, open_=(), x=37)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("causal", [False, True])
def test_windows(engine, causal):
    """Tiles that do not divide the positions, windows longer than a tile, tiles of one, offsets that are no power
    of two."""
    made = cases.convolution(causal)
    for p, w, g in ((13, 3, 4), (16, 4, 16), (5, 7, 2), (9, 3, 1), (20, 5, 16)):
        agrees(made, engine, p=p, w=w, c=5, m=4, g_p=g, g_m=2, s_c=2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("signs", "shift"), [((1, 1, 1), -2), ((-1, 1, -1), 7), ((-1, -1), 5), ((1, -1, 1), 0)])
def test_windows_that_move_either_way(engine, signs, shift):
    sizes = {"p": 11, "w": 3, "v": 2}
    taken = {name: sizes[name] for name in list(sizes)[: len(signs)]}
    agrees(overlapping(signs, shift, 9, "c", 11), engine, open_=(), **taken, g_p=4, s=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_windows_of_rows_and_columns(engine):
    sizes = {"i": 5, "j": 7, "a": 3, "b": 2, "c": 3, "m": 2, "g_i": 2, "g_j": 4, "s_c": 2}
    agrees(cases.convolution_of_pictures(), engine, **sizes)


def test_windows_of_int4_codes_are_refused_by_triton_by_name():
    pytest.importorskip("triton", reason="no wheel for this system")
    p, w = dk.axes("p w=4")
    windows = dk.view(dk.array("X", p, dtype="int4"), {"p": coordinate("p") - coordinate("w")}, (p, w), name="windows")
    made = dk.Diagram(dk.total(windows * 2.0, over=w, name="T")).fuse().group(p="g_p")
    with pytest.raises(FormatError, match="no windows of int4 codes, as 'windows' has them"):
        _ = made.kernel("triton", p=16, g_p=8).source
    agrees(made, "numba", {"X": np.arange(16, dtype=np.int8) % 8}, open_=(), p=16, g_p=8)


D, H, E = dk.axis("d", 16), dk.axis("h", 2), dk.axis("e", 8)
SEEN = {
    "transposed": ((D, x), {"d": at("d")}, "d"),
    "heads": ((H, x, E), {"d": 8 * at("h") + at("e")}, "e"),
    "heads last": ((x, E, H), {"d": 8 * at("h") + at("e")}, "e"),
    "moved on by 2": ((x, D), {"d": at("d") + 2}, "d"),
    "backwards by 4": ((x, D), {"d": at("d") - 4}, "d"),
}
"""Views of int4 codes (x, d) whose last axis moves: the axes of the view, where it reads, what is summed."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SEEN)
def test_int4_codes_whose_last_axis_moves(engine, name):
    made = seen(*SEEN[name])
    codes = np.random.default_rng(0).integers(-8, 8, (37, 16), np.int8)
    agrees(made, engine, {"K": codes}, open_=("x",), x=37)


def seen(over, reads, summed):
    codes = dk.view(dk.array("K", x, D, dtype="int4"), {"x": at("x"), **reads}, over, name="T")
    return dk.Diagram(dk.total(codes * 2.0, summed, name="Y"), name="codes").fuse().group(x=16)


@pytest.mark.parametrize("read", [at("d") + 1, 2 * at("e")], ids=["an odd shift", "every other"])
def test_views_that_split_bytes_are_refused_by_name_and_run_in_numba(read):
    pytest.importorskip("triton", reason="no wheel for this system")
    made = seen((x, D if read.has(at("d")) else E), {"d": read}, "d" if read.has(at("d")) else "e")
    with pytest.raises(FormatError, match="of 'K' two by two, and 'T' does not; read whole bytes") as refused:
        _ = made.kernel("triton").source
    assert "numba" in refused.value.remedy
    agrees(made, "numba", {"K": np.arange(-8, 8, dtype=np.int8)[None]}, open_=("x",), x=1)
