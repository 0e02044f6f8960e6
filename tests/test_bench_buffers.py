"""Shared memory as a sum of tiles: what lies there, how often, and what nothing explains."""

from dataclasses import replace

import pytest
from derive_cases import attention
from test_bench_inspect import GOOD
from test_codegen_triton_quantized import eight_bits

from diagkit import derive
from diagkit.bench.buffers import Buffers, account, buffers_of, explained, unexplained
from diagkit.bench.inspect import inspect
from diagkit.program import lower

PLAIN = Buffers((("Q", 100),), (("K", 50), ("V", 50)), 10)


def at(shared, buffers=PLAIN, stages=2):
    return replace(GOOD, shared_bytes=shared, stages=stages), buffers


def test_what_no_tile_explains_is_said():
    assert explained(*at(300)) == "Q 100, 2 × K 50, 2 × V 50" and unexplained(*at(300)) == 0
    assert explained(*at(310)) == "Q 100, 2 × K 50, 2 × V 50, 10 for exchange between threads"
    assert unexplained(*at(310)) == 10 / 310
    assert explained(*at(0)) == "Q in registers" and unexplained(*at(0)) == 0


def test_what_goes_on_to_registers_leaves_its_buffer_a_stage_earlier():
    made = Buffers((("Q", 100),), (("K", 50),), 10, (("s", 3),), (("c", 7),))
    assert made.shared(3) == 100 + 3 * 50 + 2 * 7 and made.loaded == 160
    assert explained(*at(264, made, 3)) == "Q 100, 3 × K 50, 2 × c 7, s in registers"
    assert account(*at(264, made, 3)).beyond(made) == [("2 more K", 100), ("another c", 7), ("s in registers", -3)]


def test_converted_tiles_lie_there_too_one_at_a_time():
    made = Buffers((("Q", 100),), (), 10, (), (("K", 20), ("V", 20)), (("K16", 40), ("P", 13)))
    assert explained(*at(180, made)).endswith("V 20, K16 as a side of a product 40")
    assert explained(*at(153, made)).endswith("V 20, P as a side of a product 13")
    assert explained(*at(193, made)).endswith("K16 as a side of a product 40, P as a side of a product 13")


@pytest.mark.parametrize("shared", [*range(100, 320, 7), 1000])
def test_the_account_adds_up(shared):
    """Tiles and rest are the whole; what there is beyond every load once is the difference."""
    made = Buffers((("Q", 100),), (("K", 50),), 10, (("s", 3),), (("c", 7),), (("K16", 40),))
    found = account(*at(shared, made, 3))
    assert sum(n * count for _, n, count in found.tiles) + found.rest == shared
    assert made.loaded + sum(n for _, n in found.beyond(made)) + found.rest == shared


def test_tiles_are_blocks_with_their_padding():
    made = lower(derive.stream(derive.group(derive.fuse(attention()), q=24), x=20), q=50, x=50, d=5, e=5)
    found = buffers_of(made.kernels[0], made)
    assert (found.once, found.chunk) == ((("Q", 32 * 16 * 4),), (("K", 32 * 16 * 4), ("V", 32 * 16 * 4)))
    assert not found.once_read and found.converted == (("P.exp", 32 * 32 * 4),)


def test_scales_are_read_and_codes_are_sides():
    made = lower(eight_bits(), q=256, x=256, d=64, g_q=64, s_x=64)
    found = buffers_of(made.kernels[0], made)
    assert found.chunk == (("K", 64 * 64), ("V", 64 * 64)) and found.chunk_read == (("sk", 256),)
    assert dict(found.once_read) == {"sq": 256, "sv": 256}


@pytest.mark.parametrize("scores", ["fp8e4m3", "int8"])
def test_eight_bit_attention_on_hopper_is_explained_to_the_byte(scores):
    pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")
    found = inspect(lower(eight_bits(scores), q=4096, x=4096, d=128, g_q=128, s_x=128), "sm_90")
    assert unexplained(found.kernels[0], found.buffers[0]) == 0
    assert found.kernels[0].shared_bytes == found.buffers[0].shared(3) == 115_712
