"""A diagram on a machine: amounts are those of its costs, tiles are legal, what is missing is named."""

from __future__ import annotations

import examples
import pytest

import diagkit as dk
from diagkit.cost import NoTileError
from diagkit.diagram.together import moved_together
from diagkit.machine import MachineError, data_path, load
from diagkit.term import DiagkitError

SIZES = {"q": 4096, "x": 4096, "d": 128}


def test_the_tile_fits_and_the_amounts_are_those_of_the_costs() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    found = flash.on("H100-SXM", dtype="fp16", **SIZES)
    sizes = {**SIZES, **found.tiles}
    assert found.fits
    assert found.chosen is not None
    assert found.tiles["g_q"] % 16 == found.tiles["s_x"] % 16 == 0
    assert found.moved == flash.transfers().bytes("fp16").total(**sizes)
    assert found.held == flash.memory().bytes("fp16").peak(**sizes) <= 232448
    assert found.times.flop == 4 * 4096 * 4096 * 128


def test_tiles_that_are_given_are_taken() -> None:
    flash = examples.attention().fuse().group(q="g_q").stream(x="s_x")
    found = flash.on("A100-SXM-80GB", dtype="fp16", **SIZES, g_q=64, s_x=32)
    assert (found.tiles, found.chosen) == ({"g_q": 64, "s_x": 32}, None)
    part = flash.on("A100-SXM-80GB", dtype="fp16", **SIZES, s_x=32)
    assert part.tiles["s_x"] == 32


def test_naive_attention_does_not_fit_and_says_so() -> None:
    found = examples.attention().on("T4", dtype="fp16", **SIZES)
    assert not found.fits
    assert "does not fit" in repr(found)
    assert found.times.bottleneck == "global"


def test_what_is_missing_is_named() -> None:
    naive = examples.attention()
    with pytest.raises(DiagkitError, match="needs a size for axis 'x'"):
        naive.on("T4", q=16, d=16)
    with pytest.raises(DiagkitError, match="H100-SXM"):
        naive.on("H100", **SIZES)
    silent = examples.silent(load("B200"), "fma")
    assert "not stated by the machine" in repr(naive.on(silent, **SIZES, dtype="fp16"))


@pytest.mark.parametrize(("name", "dtype", "field"), [("T4", "fp8e4m3", "fp8_flop"), ("B200", "int4", "int4_op"),
                                                      ("H800-PCIe", None, "fp32_flop")])  # fmt: skip
def test_a_format_that_a_machine_lacks_is_refused_by_its_field(name, dtype, field) -> None:
    with pytest.raises(MachineError, match=f"{name} states no peak.{field}_per_s") as caught:
        FLASH.on(name, dtype, **SIZES)
    assert caught.value.field == f"peak.{field}_per_s"


def test_without_products_no_peak_is_asked_for() -> None:
    x = dk.axis("x")
    pointwise = dk.Diagram(dk.exp(dk.array("X", x), name="E"), name="exp")
    assert pointwise.on("T4", "fp8e4m3", x=4096).times.bottleneck == "global"


def test_truth_is_no_size() -> None:
    with pytest.raises(DiagkitError, match="'q' cannot have size True"):
        FLASH.on("T4", "fp16", **{**SIZES, "q": True})


def test_it_shows_itself_as_a_table_with_units() -> None:
    found = examples.attention().on("H100-SXM", dtype="fp16", **SIZES)
    assert "TFLOP/s" in repr(found)
    assert found._repr_html_().startswith("<table")


FLASH = examples.attention().fuse().group(q="g_q").stream(x="s_x")
EIGHT = ("T4", "A100-SXM-80GB", "RTX4090", "L40S", "H100-SXM", "H200-SXM", "B200", "MI300X")
LONG = {"q": 16384, "x": 16384, "d": 128}


def test_the_band_runs_from_serial_to_overlapped() -> None:
    found = FLASH.on("H100-SXM", dtype="fp16", **LONG, g_q=128, s_x=128)
    low, high = found.times.rate()
    assert (low, high) == (found.times.flop / found.times.serial, found.times.flop / found.times.overlapped)
    assert f"{low / 1e12:.4g} to {high / 1e12:.4g} TFLOP/s" in repr(found)


def test_each_assumption_can_be_switched_off() -> None:
    found = FLASH.on("H100-SXM", dtype="fp16", **LONG, g_q=128, s_x=128)
    assert found.but("fma", "special", "unshared").times.overlapped == pytest.approx(4 * 16384**2 * 128 / 989.4e12)
    assert "special" not in dict(found.but("special").times.seconds)
    assert FLASH.on("H100-SXM", dtype="fp16", without=("fma",), **LONG, g_q=128, s_x=128).without == ("fma",)
    assert len(found.switched_off().rows) == 5
    with pytest.raises(DiagkitError, match="no assumption 'luck'"):
        found.but("luck")


def test_a_tile_may_be_chosen_for_its_time() -> None:
    """The least transfers have the shortest chunks, and the state is rescaled after each: 16 FMA a score."""
    least, fast = (FLASH.on("H100-SXM", dtype="fp16", aim=aim, **LONG) for aim in ("transfers", "time"))
    assert least.tiles["s_x"] == 16 < fast.tiles["s_x"]
    assert least.moved < fast.moved
    assert fast.times.overlapped < least.times.overlapped
    assert fast.fits
    shared = FLASH.on("H100-SXM", dtype="fp16", aim="time", without=("unshared",), **LONG)
    others = (FLASH.on("H100-SXM", dtype="fp16", without=("unshared",), **LONG, s_x=chunk) for chunk in (32, 64, 128))
    assert all(shared.times.overlapped <= one.times.overlapped for one in others)
    assert shared.times.bottleneck == "tensor"
    given = FLASH.on("T4", dtype="fp16", aim="time", **LONG, s_x=32)
    assert given.tiles["s_x"] == 32
    assert FLASH.across(["T4"], "fp16", aim="time", **LONG)["T4"].fits
    with pytest.raises(DiagkitError, match="no aim 'luck'"):
        FLASH.on("T4", aim="luck", **LONG)


def test_groups_that_fetch_together_fetch_as_one_large_tile() -> None:
    """132 tiles of 128 rows hold all of 16384: keys and values come once (Theorem 2)."""
    found = FLASH.on("H100-SXM", dtype="fp16", **LONG, g_q=128, s_x=128)
    once = 2 * 4 * 16384 * 128
    assert found.but("unshared").moved == once == FLASH.transfers().bytes("fp16").total(**LONG, g_q=16384, s_x=128)
    assert found.fetched[0] == found.moved == 2 * (2 * 16384 * 128 + 2 * 128 * 16384 * 128)


def test_the_worked_case_of_the_sheet_is_compute_bound_once_shared() -> None:
    """q = x = 4096, d = 128, 32 heads on an H200: 0.46 ms of transfers alone, 0.278 ms of products."""
    sizes = {"q": 4096, "x": 4096, "d": 128, "g_q": 128, "s_x": 64}
    found = FLASH.on("H200-SXM", dtype="fp16", **sizes)
    times = {name: 32e3 * seconds for name, seconds in found.times.seconds}
    assert (round(times["global"], 2), round(times["tensor"], 3)) == (0.46, 0.278)
    assert found.times.bottleneck == "global"
    assert found.but("unshared", "fma").times.bottleneck == "tensor"


def test_a_matrix_product_is_shared_along_both_axes() -> None:
    tiled = examples.matmul().group(a="g_a", c="g_c").stream(b="s_b")
    sizes = {"a": 1024, "b": 1024, "c": 1024, "g_a": 64, "g_c": 64, "s_b": 32}
    whole = tiled.transfers().bytes("fp16")
    square = whole.total(**{**sizes, "g_a": 256, "g_c": 256})
    assert moved_together(tiled, "fp16", sizes, 16) == square < whole.total(**{**sizes, "g_a": 1024, "g_c": 64})


def test_energy_counts_what_moves_and_what_is_computed() -> None:
    found = FLASH.on("H100-SXM", dtype="fp16", without=("unshared",), **LONG, g_q=128, s_x=128).energy
    moved = {"global": 2 * 4 * 16384 * 128 * 31.2e-12, "L2": 2 * (2 + 2 * 128) * 16384 * 128 * 1.75e-12}
    assert dict(found.moving) == pytest.approx(moved)
    assert dict(found.computing)["tensor"] == pytest.approx(4 * 16384**2 * 128 * 3.6e-13)
    assert found.unknown == ("special",)
    assert found.moving_share < 0.1
    naive = examples.attention().on("H100-SXM", dtype="fp16", **LONG).energy
    assert naive.moving_share > found.moving_share


def test_registers_are_charged_where_the_diagram_has_labels_for_them() -> None:
    deep = FLASH.group(level=2, q="w_q").stream(level=2, x="u_x")
    sizes = {**SIZES, "g_q": 128, "s_x": 64, "w_q": 64, "u_x": 32}
    found = deep.on("H100-SXM", dtype="fp16", **sizes)
    assert found.fetched[2] == deep.level_transfers().bytes("fp16").between(2).total(**sizes)
    assert [name for name, _ in found.energy.moving] == ["global", "L2", "shared"]
    per_s = 128 * 132 * 1.83e9  # what leaves the shared memories
    assert dict(found.times.seconds)["shared"] == pytest.approx(found.fetched[2] / per_s)
    assert "shared" in dict(found.but("unshared").times.seconds)


def test_tiles_of_levels_inside_are_asked_for() -> None:
    deep = FLASH.group(level=2, q="w_q").stream(level=2, x="u_x")
    with pytest.raises(DiagkitError, match=r"needs a size for the tile w_q of 'q' at level 2; give w_q=\.\.\., u_x="):
        deep.on("H100-SXM", "fp16", **SIZES)
    wide = deep.on("H100-SXM", "fp16", **SIZES, g_q=64, s_x=64, w_q=128, u_x=128)  # a tile that is short, as one is
    assert wide.fetched == deep.on("H100-SXM", "fp16", **SIZES, g_q=64, s_x=64, w_q=64, u_x=64).fetched


def test_eight_machines_side_by_side() -> None:
    found = FLASH.across(EIGHT, "fp16", **LONG, s_x=64)
    assert found.table().column("machine") == list(EIGHT)
    assert found["H100-SXM"].tiles == FLASH.on("H100-SXM", dtype="fp16", **LONG, s_x=64).tiles
    assert found.best() == "B200"
    assert "no rate" not in repr(found)
    silent = FLASH.across([examples.silent(load("B200"), "fma"), "T4"], "fp16", **LONG, s_x=64)
    assert "no rate: fma" in repr(silent)
    assert silent.order == ("B200", "T4")
    eight_bits = FLASH.across(EIGHT, "fp8e4m3", **LONG, s_x=64)
    assert dict(zip(EIGHT, eight_bits.table().column("tiles"), strict=True))["T4"] == "refused: no peak.fp8_flop_per_s"
    assert eight_bits._repr_html_().count("<tr>") == 9


def test_a_machine_without_room_for_any_tile_says_so_in_its_place() -> None:
    found = FLASH.across(["T4", "H100-SXM"], "fp16", q=64, x=64, d=1024)
    assert list(found.found) == ["H100-SXM"]
    assert found.refused["T4"].startswith("refused: the smallest legal tiles hold 131,648 bytes")
    with pytest.raises(NoTileError):
        FLASH.on("T4", "fp16", q=64, x=64, d=1024)


def test_a_machine_of_one_file_needs_no_code(tmp_path) -> None:
    text = data_path("machines", "H100-SXM.toml").read_text(encoding="utf-8")
    path = tmp_path / "H101.toml"
    path.write_text(text.replace('"H100-SXM"', '"H101"').replace("3.35e12", "6.7e12"), encoding="utf-8")
    found = FLASH.across([str(path), "H100-SXM"], "fp16", **LONG, g_q=128, s_x=64)
    assert found[str(path)].machine.name == "H101"
    assert found[str(path)].times.seconds[0][1] == found["H100-SXM"].times.seconds[0][1] / 2


def test_a_legal_tile_for_its_time_is_that_of_the_prediction() -> None:
    room = load("H100-SXM").capacity("shared", per_block=True)
    half = {"unit": "bytes", "dtype": "fp16", **LONG}
    found = FLASH.legal_tile(room, aim="time", machine="H100-SXM", **half)
    assert found.tiles == FLASH.on("H100-SXM", dtype="fp16", aim="time", **LONG).tiles
    assert FLASH.legal_tile(room, **half).tiles["s_x"] < found.tiles["s_x"]
    for options in ({"aim": "time"}, {"machine": "H100-SXM"}, {"aim": "luck"}):
        with pytest.raises(DiagkitError, match=r"needs a machine|same on every machine|no aim 'luck'"):
            FLASH.legal_tile(room, **options, **half)
