"""The configuration and throughput tables: every number of the paper's Hopper algorithm, from diagram and machine."""

from __future__ import annotations

from fractions import Fraction

import examples
import pytest

import diagkit as dk
from diagkit.diagram.layout import one_chunk
from diagkit.machine import MachineError, load
from diagkit.term import DiagkitError, at_level

DEEP = examples.attention().fuse().group(q="g_q").stream(x="s_x").group(level=2, q="w_q").stream(level=2, x="u_x")
SIZES = {"w_q": 128, "s_x": 64, "u_x": 64, "d": 128}
TOY = {"pieces": {"d": (32, 8)}, **SIZES}


@pytest.fixture(scope="module")
def hopper():
    return DEEP.formats(Q="fp8e4m3", K="fp8e4m3", V="fp16").configuration("H100-SXM", **TOY)


def test_memory_of_the_hopper_algorithm(hopper):
    """Two buffers of K and V; Q and a tile each way; 598 bytes of registers a thread."""
    assert [hopper.held(place) for place in ("block", "worker", "thread")] == [48 * 1024, 48 * 1024, 598]
    assert hopper.threads * hopper.held("thread") == 74.75 * 1024
    assert {name: round(number, 1) for name, number in hopper.limits.items()} == {"shared": 3.7, "register": 3.4}
    assert (hopper.workers, hopper.workers * hopper.rows) == (3, 384)


def test_the_split_of_the_registers(hopper):
    held = [(each.name, each.role, each.bytes) for each in hopper.variables if each.place == "thread"]
    assert held == [
        ("P.max", "state", 2), ("P.sum", "state", 2), ("O.acc", "state", 256), ("P.exp", "row", 128),
        ("QK", "fragment", 128), ("O.acc.part", "fragment", 64), ("O.acc.part", "part", 16),
        ("P.sum.factor", "factor", 2),
    ]  # fmt: skip


def test_throughput_of_the_hopper_algorithm(hopper):
    """16384 FLOP at 8192, 65 exponentials at 16, 16384 at 4096, 256 at 512: 2, 4.06, 4 and 0.5 clocks."""
    found = {(each.box, each.unit): (each.amount, each.rate, each.clocks) for each in hopper.operations}
    assert found["QK", "tensor"] == (16384, 8192, 2)
    assert found["O.acc.part", "tensor"] == (16384, 4096, 4)
    assert found["O.acc.new", "fma"] == (256, 512, 0.5)
    assert sum(each.amount for each in hopper.operations if each.unit == "special") == 65
    assert hopper.by_unit["special"] == pytest.approx(4.06, abs=0.005)
    assert (hopper.bound, hopper.clocks) == ("tensor", 6)


def test_times_and_thresholds_of_the_hopper_algorithm(hopper):
    assert f"{hopper.compute_s * 1e6:.2f} {hopper.transfer_s * 1e6:.2f}" == "1.26 0.97"
    assert round(hopper.least_rows) == 295
    assert hopper.ideal_rate / 1e15 == pytest.approx(1.32, abs=0.005)
    assert hopper.ideal_rate == pytest.approx(2 / (1 / 1978.9e12 + 1 / 989.4e12), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "rows"), [("H100-SXM", 295), ("A100-SXM-80GB", 153), ("H200-SXM", 206), ("B200", 281)]
)
def test_least_rows_of_other_machines(name, rows):
    half = DEEP.formats("fp16").configuration(name, **TOY)
    assert round(half.rows_for("tensor")) == rows


def test_on_a_b200_exponentials_are_the_limit():
    found = DEEP.formats("fp16").configuration("B200", **TOY)
    assert (found.bound, found.by_unit["tensor"]) == ("special", 4)
    assert "not stated" in repr(found)  # its FMA rate


def test_ampere_has_registers_for_thirteen_warps():
    found = DEEP.formats("fp16").configuration(
        "A100-SXM-80GB", threads=32, opaque=False, pieces={"d": (32, 8)}, **{**SIZES, "w_q": 32}
    )
    assert found.worker == "warp"
    assert int(found.limits["register"]) == 13
    assert found.held("thread") == 598


def test_flash_attention_2_has_eight():
    tile = DEEP.formats("fp16").configuration("A100-SXM-80GB", opaque=False, buffers=1, **SIZES)
    block = tile.held("block") + tile.held("worker")
    assert block == 64 * 1024
    assert load("A100-SXM-80GB").capacity("shared", per_block=True) // block * 4 == 8


def test_options_say_what_they_change(hopper):
    mixed = DEEP.formats(Q="fp8e4m3", K="fp8e4m3", V="fp16")
    wide = mixed.configuration("H100-SXM", on_chip="fp32", **TOY)
    assert wide.held("thread") == 2 * hopper.held("thread")
    assert wide.by_unit["tensor"] == hopper.by_unit["tensor"]  # what is made is cast to the format of its operand
    assert mixed.configuration("H100-SXM", buffers=3, **TOY).held("block") == 1.5 * hopper.held("block")
    assert mixed.configuration("H100-SXM", opaque=False, **TOY).held("worker") == 128 * 128


def test_threads_that_share_a_row_each_keep_its_statistics():
    """64 rows on 128 threads: half a row of results and scores each, but no half of a maximum."""
    half = DEEP.formats("fp16").configuration("H100-SXM", **{**TOY, "w_q": 64})
    held = {(each.name, each.role): each.bytes for each in half.variables if each.place == "thread"}
    assert (held["O.acc", "state"], held["P.exp", "row"], held["P.max", "state"]) == (128, 64, 2)


def test_heads_and_numbers_for_tiles_are_laid_out_alike():
    numbers = examples.attention().fuse().group(q=384).stream(x=64).group(level=2, q=128).formats("fp16")
    named = DEEP.formats("fp16").configuration("H100-SXM", **SIZES)
    found = numbers.configuration("H100-SXM", d=128)
    assert [found.held(place) for place in ("block", "worker", "thread")] == [
        named.held(place) for place in ("block", "worker", "thread")
    ]
    assert found.by_unit == named.by_unit


def test_one_chunk_more_is_what_the_work_says():
    one = one_chunk(at_level(DEEP, 1), "x", {"x": 64}, SIZES)
    assert sum(amount for (_, unit), amount in one.items() if unit == "special") == 65
    assert ("O", "special") not in one  # the quotient at the end is no part of the loop


def test_another_diagram_has_a_configuration_too():
    a, b, c = dk.axes("a b c")
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b, dtype="fp16"), dk.array("B", b, c, dtype="fp16"))
    tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").group(level=2, a="w_a", c="w_c")
    found = tiled.configuration("H100-SXM", on_chip="fp32", opaque=False, w_a=64, w_c=128, s_b=64, g_a=128, g_c=128)
    assert found.bound == "tensor"
    assert found.by_unit["tensor"] == 2 * 64 / 4096


def test_chunks_that_a_worker_reads_alone_are_its_own():
    """A bias for each query and key: (232448 - 32768) / (49152 + 32768) warpgroups, and 32 KiB more for each chunk."""
    q, x, d = dk.axes("q x d")
    Q, K, V, B = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d), dk.array("B", q, x)
    biased = dk.Diagram(dk.attention(Q, K, V, over=x, features=d, bias=B)).fuse().group(q="g_q").stream(x="s_x")
    deep = biased.group(level=2, q="w_q").stream(level=2, x="u_x").formats("fp16")
    found = deep.configuration("H100-SXM", **{**SIZES, "d": 64})
    assert [each.place for each in found.variables if each.name == "B"] == ["worker"]
    assert found.limits["shared"] == (232448 - 2 * 2 * 64 * 64 * 2) / (49152 + 2 * 128 * 64 * 2)
    assert found.chunk_bytes == 2 * 64 * 64 * 2 + found.workers * 128 * 64 * 2
    plain = DEEP.formats("fp16").configuration("H100-SXM", **{**SIZES, "d": 64})
    assert found.least_rows > plain.least_rows
    rows = found.least_rows
    one = 132 / found.machine.bandwidth("global")
    assert rows * found.clocks / found.clock_hz == pytest.approx((found.moved("block") + rows * 64 * 2) * one)


def test_what_a_worker_takes_whole_belongs_to_its_row():
    """Workers share out rows of tokens; each computes all 128 columns of the tile: 2 * 64 * 128 FLOP a row."""
    n, c, o = dk.axes("n c o")
    made = dk.einsum("n c, c o -> n o", dk.rms_norm(dk.array("X", n, c), over=c), dk.array("W", c, o))
    whole = dk.Diagram(made).fuse().group(n="g_n", o="g_o").stream(c="s_c")
    deep = whole.group(level=2, n="w_n").stream(level=2, c="u_c").formats("fp16")
    found = deep.configuration("H100-SXM", g_o=128, w_n=128, s_c=64, u_c=64, c=4096, o=4096)
    assert sum(each.amount for each in found.operations if each.unit == "tensor") == 2 * 64 * 128
    assert (found.rows, found.bound) == (128, "tensor")
    assert {each.name: each.place for each in found.variables if each.role == "chunk"} == {"X": "worker", "W": "block"}


def test_a_product_fills_the_tile_of_its_block():
    n, c, o = dk.axes("n c o")
    made = dk.Diagram(dk.einsum("n c, c o -> n o", dk.array("X", n, c), dk.array("W", c, o))).formats("fp16")
    alone = made.group(n="g_n").stream(c="s_c").group(level=2, n="w_n").stream(level=2, c="u_c")
    found = alone.configuration("H100-SXM", w_n=128, s_c=64, u_c=64, o=128)
    assert found.limits["shared"] == (232448 - 2 * 64 * 128 * 2) / (2 * 128 * 64 * 2)
    both = made.group(n="g_n", o="g_o").stream(c="s_c").group(level=2, n="w_n", o="w_o")
    sizes = {"w_n": 64, "w_o": 128, "s_c": 64, "g_o": 128}
    found = both.configuration("H100-SXM", opaque=False, g_n=128, **sizes)
    assert (found.workers, found.limits["shared"], found.chunk_bytes) == (2, float("inf"), 2 * 64 * (128 + 128))
    assert "any number by shared memory" in repr(found)
    with pytest.raises(DiagkitError, match=r"a tile of 1024 × 128 asks for 16 warpgroups, and \d+ fit"):
        both.configuration("H100-SXM", opaque=False, g_n=1024, **sizes)


def test_what_is_missing_is_named():
    with pytest.raises(DiagkitError, match="needs u_x"):
        DEEP.configuration("H100-SXM", w_q=128, s_x=64, d=128)
    with pytest.raises(DiagkitError, match="no tile of a worker"):
        examples.attention().configuration("H100-SXM")
    with pytest.raises(MachineError, match=r"tensor\.fp8"):
        DEEP.formats("fp8e4m3").configuration("A100-SXM-80GB", on_chip="fp8e4m3", **TOY)


def test_it_shows_its_three_tables(hopper):
    shown = hopper._repr_html_()
    assert shown.count("<table>") == 3
    assert all(name in shown for name, _ in hopper.assumed)
    assert hopper.memory_table().column("bytes")[-3:] == ["49152", "49152", "598"]
    assert hopper.throughput_table().column("clocks")[-3:] == ["6", "1.13", "4.06"]


def test_the_configuration_as_a_schedule(hopper):
    """QK takes a third of the products, softmax 4.06 of their 6 clocks; three warpgroups hide all of it."""
    found = hopper.pipeline()
    assert (found.warpgroups, found.first, found.clocks) == (3, Fraction(1, 3), 6 * 128)
    assert float(found.sigma) == pytest.approx(4.0625 / 6)
    assert found.time == 1
    assert float(found.scheduled_time(20)) == pytest.approx(1, abs=0.01)
    assert hopper.pipeline("intra").time == Fraction(2, 3) + found.sigma
    shown = dk.lanes(found, 2)
    assert "clocks" in shown.svg
    assert "0 to 256" in shown.svg  # the first QK: 2 clocks for each of 128 rows


def test_a_product_alone_has_no_schedule_of_turns():
    a, b, c = dk.axes("a b c")
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b, dtype="fp16"), dk.array("B", b, c, dtype="fp16"))
    tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").group(level=2, a="w_a", c="w_c")
    found = tiled.configuration("H100-SXM", opaque=False, w_a=64, w_c=128, s_b=64, g_a=128, g_c=128)
    with pytest.raises(DiagkitError, match="a step has 1 products"):
        found.pipeline()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"w_q": "128"}, "'w_q' cannot have size '128'"),
        ({"w_q": 0}, "'w_q' cannot have size 0"),
        ({"d": True}, "'d' cannot have size True"),
        ({"s_x": 1.5}, "'s_x' cannot have size 1.5"),
        ({"zz": 1}, "no open size or tile 'zz'; there are: "),
    ],
)
def test_what_is_no_size_is_refused(changes, said) -> None:
    with pytest.raises(DiagkitError, match=said):
        DEEP.configuration("H100-SXM", **{**TOY, **changes})


def test_a_machine_may_be_given_as_it_is() -> None:
    more = load("H100-SXM").what_if("level.register.capacity_bytes", 2)
    limits = [DEEP.formats("fp16").configuration(one, **TOY).limits["register"] for one in (more, "H100-SXM")]
    assert limits[0] == 2 * limits[1]
