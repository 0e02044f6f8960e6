"""Kernels compiled without a GPU: what the machine code says, verdicts, refusals, and the display."""

import pytest
from derive_cases import attention, q, x

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import sass
from diagkit.bench.architectures import ARCHITECTURES, architecture, check_shared, nearest
from diagkit.bench.buffers import Buffers, explained
from diagkit.bench.compiled import Compiled
from diagkit.bench.inspect import Inspection, inspect, with_formats
from diagkit.bench.verdicts import CHECKS, verdicts
from diagkit.book.workloads import streamed
from diagkit.program import lower
from diagkit.term import FormatError, InputError, Term

pytest.importorskip("triton", reason="no wheel for this system; what is then missing is said: test_codegen_triton")


def program(dtype="fp16", mask=None, d=64, tile=64, length=1024):
    term = attention(mask=mask)
    term = derive.stream(derive.group(derive.fuse(term), q="g_q"), x="s_x")
    made = lower(term, q=length, x=length, d=d, e=d, g_q=tile, s_x=tile)
    return with_formats(made, dtype)


MATRIX = {"sm_80": "HMMA", "sm_89": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCHMMA"}


@pytest.mark.parametrize("target", MATRIX)
def test_attention_compiles_for_every_generation(target):
    found = inspect(program(), target)
    (one,) = found.kernels
    assert set(one.matrix) == {MATRIX[target]}
    for name in ("shared memory fits", "registers fit", "no spills", "right matrix instructions", "nothing serialised"):
        assert found.verdict(name).passed, str(found)
    assert 0 < one.registers <= 255 and one.shared_bytes >= 3 * 64 * 64 * 2
    assert len(found.verdicts[0]) == 10


def test_sm_75_has_no_matrix_instructions_and_the_verdict_says_so():
    term = derive.stream(derive.group(derive.fuse(matmul()), a=16, c=16), b=16)
    found = inspect(lower(term, a=64, b=64, c=64), "sm_75")
    assert not found.kernels[0].matrix and found.kernels[0].counts["FFMA"] > 0
    assert found.verdict("right matrix instructions").passed is False and not found.passed


def matmul():
    a, b, c = dk.axes("a b c")
    C = dk.einsum("a b, b c -> a c", dk.array("A", a, b, dtype="fp16"), dk.array("B", b, c, dtype="fp16"))
    return Term(*ops.trace([C], {"C": C}), "matmul")


def test_the_diagram_predicts_for_its_own_kernels():
    """The door hands in what `memory()` says, per kernel, also in other formats; open sizes are not predicted."""
    Q, K, V = (dk.array(name, axis, dk.axis("d")) for name, axis in (("Q", q), ("K", x), ("V", x)))
    made = dk.Diagram(dk.attention(Q, K, V, over=x, features="d"), name="attention")
    made = made.fuse().group(q="g_q").stream(x="s_x")
    sizes = {"q": 256, "x": 256, "d": 64, "g_q": 64, "s_x": 64}
    found = made.kernel("triton", **sizes).inspect("sm_80", dtypes="fp16")
    assert found.predicted_bytes == (made.formats("fp16").memory().bytes().peak(**sizes),)
    assert "bytes on chip" in str(found) and made.kernel("triton", **sizes).predict is not None
    assert inspect(program(), "sm_90").predicted_bytes == (None,)


def test_the_large_tile_on_hopper_fits_without_spills():
    """128 x 128, d = 128: shared memory is Q once, K and V per stage, to the byte."""
    found = inspect(program(mask=dk.causal(q, x), d=128, tile=128, length=4096), "sm_90", predicted_bytes=231_424)
    (one,), (buffers,) = found.kernels, found.buffers
    assert (one.warps, one.stages, set(one.matrix)) == (8, 2, {"HGMMA"})
    assert one.spilled_bytes == 0 and not one.notes
    assert one.shared_bytes == buffers.shared(2) == 163_840
    assert explained(one, buffers) == "Q 32,768, 2 × K 32,768, 2 × V 32,768"
    assert "231,424 bytes on chip: 98,304 loaded, 133,120 made (here in registers)" in str(found)
    assert "another K +32,768, another V +32,768; not explained: 0.0% of shared memory" in str(found)


@pytest.mark.parametrize(("d", "g", "s"), [(64, 128, 128), (128, 128, 128), (256, 128, 64)])
def test_causal_heads_are_not_serialised_on_hopper(d, g, s):
    """A remainder in the place of the queries' tile made ptxas serialise every product."""
    made = lower(streamed("fp16", True), h=16, q=4096, x=4096, d=d, g_q=g, s_x=s)
    found = inspect(made, "sm_90")
    for name in ("shared memory fits", "no spills", "right matrix instructions", "few waits", "nothing serialised"):
        assert found.verdict(name).passed, str(found)


def test_fp8_and_int8_products_take_their_own_instructions():
    assert set(inspect(program("fp8e4m3"), "sm_90").kernels[0].matrix) == {"QGMMA"}
    assert set(inspect(program("fp8e4m3"), "sm_89").kernels[0].matrix) == {"QMMA"}


def test_fp32_in_full_precision_asks_for_no_matrix_instructions():
    term = derive.stream(derive.group(derive.fuse(matmul()), a=16, c=16), b=16)
    found = inspect(lower(term, a=64, b=64, c=64), "sm_90", dtypes="fp32")
    assert not found.kernels[0].matrix and found.verdict("right matrix instructions").passed is None


def test_a_second_look_comes_from_disk_and_is_the_same(monkeypatch):
    first = inspect(program(), "sm_90")
    monkeypatch.setattr("diagkit.bench.compiled.compiler", lambda: pytest.fail("compiled again"))
    assert inspect(program(), "sm_90") == first and str(inspect(program(), "sm_90")) == str(first)


@pytest.mark.parametrize(
    ("dtype", "target", "match"),
    [
        ("fp8e4m3", "sm_80", "sm_80 has no fp8e4m3, the format of 'Q'"),
        ("bf16", "sm_75", "sm_75 has no bf16"),
        ("fp8e5m2", "sm_75", "sm_75 has no fp8e5m2"),
    ],
)
def test_formats_that_a_generation_lacks_are_refused_by_name(dtype, target, match):
    with pytest.raises(FormatError, match=match) as caught:
        inspect(program(dtype), target)
    assert "fp16" in caught.value.remedy


def test_an_unknown_target_is_refused():
    with pytest.raises(InputError, match=r"no target 'sm_42'; use one of: sm_75 \(T4\), sm_80"):
        inspect(program(), "sm_42")


def test_too_much_shared_memory_is_refused_before_launch():
    (kernel,) = program().kernels
    check_shared(kernel, 65_536, "a T4", 65_536)
    with pytest.raises(FormatError, match=r"takes 65,537 bytes .* on a T4 may have 65,536; .*q by 64, x by 64"):
        check_shared(kernel, 65_537, "a T4", 65_536)


def test_limits_are_those_of_the_machines():
    assert {row.name: row.shared_bytes for row in ARCHITECTURES.values()} == {
        "sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448,
    }  # fmt: skip
    assert nearest((8, 6)).name == "sm_80" and nearest((12, 0)).name == "sm_100" and nearest((7, 0)) is None


# ---- reading machine code: texts as the tools write them ----

LOOP = """
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_1:
        /*0020*/                   HGMMA.64x128x16.F32 R24, gdesc[UR12], R24, gsb0 ;
        /*0030*/                   MUFU.EX2 R5, R5 ;
        /*0040*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0050*/              @!P0 MUFU.EX2 R6, R6 ;
        /*0060*/                   LDGSTS.E.BYPASS.128 [R9], desc[UR4][R2.64] ;
        /*0070*/                   @P1 BRA `(.L_x_1) ;
        /*0080*/                   EXIT ;
.L_x_2:
        /*0090*/                   BRA `(.L_x_2);
"""


def test_machine_code_is_read():
    code = sass.parse(LOOP)
    assert [i.kind for i in code.main] == ["HGMMA", "MUFU", "WARPGROUP", "MUFU", "LDGSTS", "BRA"]
    assert sass.count(code.instructions)["MUFU"] == 2
    assert sass.waits(code.main) == 1 and sass.matrix_count(code.main) == 1
    assert sass.exponentials_within(code.main) == (1, 2), "only the one before the wait runs beside the product"
    assert sass.loads(code.main) == {"plain": 0, "async": 1, "wide": 1}
    assert sass.loads(code.instructions)["plain"] == 1


def test_per_warp_products_overlap_from_the_first_to_the_last():
    code = sass.parse(
        LOOP.replace("HGMMA.64x128x16.F32", "HMMA.16816.F32").replace("LDGSTS.E.BYPASS.128", "HMMA.16816")
    )
    assert sass.exponentials_within(code.main) == (2, 2)


LOG = """
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Function properties for kernel_O
    144 bytes stack frame, 164 bytes spill stores, 156 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers
"""


def test_the_assemblers_log_is_read():
    assert sass.parse_log(LOG) == sass.Log(255, (164, 156), 144, ("C7510",))
    assert sass.parse_log("ptxas info : Used 32 registers") == sass.Log(32, (0, 0), 0, ())


GOOD = Compiled("O", "sm_90", 8, 2, 163_840, 200, 0, (), ("fp16",), {"HGMMA": 16}, {"HGMMA": 16}, 1, (66, 66),
                {"plain": 0, "async": 16, "wide": 16}, True)  # fmt: skip
FAULTS = {
    "shared memory fits": {"shared_bytes": 232_449},
    "registers fit": {"registers": 257},
    "no spills": {"spilled_bytes": 4},
    "right matrix instructions": {"matrix": {"HMMA": 512}},
    "few waits": {"waits": 16},
    "nothing serialised": {"notes": ("C7514",)},
    "exponentials among products": {"exponentials": (0, 66)},
    "no plain loads in the loop": {"moves": {"plain": 2, "async": 16, "wide": 18}},
    "wide loads": {"moves": {"plain": 0, "async": 16, "wide": 8}},
    "a block finds room": {"shared_bytes": 300_000},
}


def test_a_good_kernel_passes_every_check():
    assert [v.passed for v in verdicts(GOOD, architecture("sm_90"))] == [True] * 10


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_can_fail(name):
    bad = Compiled(**{**vars(GOOD), **FAULTS[name]})
    found = {v.name: v for v in verdicts(bad, architecture("sm_90"))}
    assert found[name].passed is False and found[name].mark == "✗"


def test_what_lies_crosswise_is_named_where_its_loads_suffer():
    def loads(plain, crosswise):
        one = Compiled(**{**vars(GOOD), "moves": {"plain": plain, "async": 4, "wide": 4}, "crosswise": crosswise})
        return {v.name: v.text for v in verdicts(one, architecture("sm_90"))}["no plain loads in the loop"]

    assert loads(4, ("V",)).endswith("4 asynchronous: store V transposed, 8-bit products sum along the last axis")
    assert loads(4, ()) == "4 in the loop, 4 asynchronous" and loads(0, ("V",)) == "0 in the loop, 4 asynchronous"


def test_the_display_is_pinned(golden):
    buffers = Buffers((("Q", 32_768),), (("K", 32_768), ("V", 32_768)), 133_120)
    row = verdicts(GOOD, architecture("sm_90"))
    found = Inspection("sm_90", (GOOD,), (buffers,), (row,), (231_424,))
    assert "<table>" in found._repr_html_() and found.passed
    golden("inspect_sm_90.txt", str(found) + "\n")


@pytest.mark.parametrize(
    ("name", "target"), [("H100-SXM", "sm_90"), ("H100", "sm_90"), ("a100", "sm_80"), ("RTX4090", "sm_89")]
)
def test_a_machine_stands_for_its_generation(name, target):
    assert architecture(name).name == target


def test_a_machine_that_nothing_is_compiled_for_says_what_it_is():
    with pytest.raises(InputError, match=r"no target 'MI300X'; it is a gfx942.*sm_90 \(H100-SXM\)"):
        architecture("MI300X")
