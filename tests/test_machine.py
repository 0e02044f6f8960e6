"""Machines: the files agree with the table, faults are refused by field, and the machine at hand is measured."""

import csv
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagkit.machine import GRADES, Machine, MachineError, Number, data_path, here, load, measure_here, measured, names
from diagkit.term import DiagkitError

TABLE = list(csv.DictReader(data_path("hardware.csv").read_text(encoding="utf-8").splitlines()))

# Column of the table -> what the machine says in the column's unit.
COLUMNS = {
    "sms": lambda m: m.multiprocessors,
    "clock_ghz_for_peak": lambda m: m.clock_hz / 1e9,
    "max_clock_ghz": lambda m: m["device.max_clock_hz"] / 1e9,
    "tc_fp16_flop_per_clk_sm": lambda m: m.tensor_rate("fp16"),
    "tc_fp8_flop_per_clk_sm": lambda m: m.tensor_rate("fp8e4m3"),
    "fp16_dense_tflops": lambda m: m.peak("fp16") / 1e12,
    "fp8_dense_tflops": lambda m: m.peak("fp8e5m2") / 1e12,
    "int8_dense_tops": lambda m: m.peak("int8") / 1e12,
    "mem_tb_s": lambda m: m.bandwidth("global") / 1e12,
    "mem_gb": lambda m: m.capacity("global") / 1e9,
    "l2_mb": lambda m: m.total("L2") / 2**20,
    "smem_kb_sm": lambda m: m.capacity("shared") / 1024,
    "smem_kb_block": lambda m: m.capacity("shared", per_block=True) / 1024,
    "regs_kb_sm": lambda m: m.capacity("register") / 1024,
    "ex2_per_clk_sm": lambda m: m.exp_rate(),
    "smem_b_per_clk_sm": lambda m: m["level.shared.bandwidth_bytes_per_clk"],
    "tdp_w": lambda m: m.power_w,
    "exp_break_even_d_fp16": lambda m: m.tensor_rate("fp16") / (4 * m.exp_rate()),
}

SMALL = """
name = "Toy"
note = "A <toy> & nothing more."
[sources]
us = "made up for this test"
[device]
multiprocessors = { value = 2, source = "us", grade = "assumed" }
[level.global]
capacity_bytes = { value = 1_000, source = "us", grade = "assumed" }
bandwidth_bytes_per_s = { value = 10, source = "us", grade = "assumed" }
[peak]
fp32_flop_per_s = { value = 500.0, source = "us", grade = "assumed" }
"""
CLOCK = '[device]\nclock_hz = { value = 1, source = "us", grade = "assumed" }'


def write(folder, text, name="Toy"):
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


BY_FILE_ALONE = ["H800-PCIe"]
"""Machines that came later than the table: one file each, no code."""


def test_every_row_of_the_table_has_a_machine_and_no_machine_lacks_a_row():
    assert sorted([row["name"] for row in TABLE] + BY_FILE_ALONE) == sorted(names())


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_machine_agrees_with_the_table_in_every_column(row):
    machine = load(row["name"])
    for column, reading in COLUMNS.items():
        if row[column] == "0":
            with pytest.raises(MachineError, match="fp8"):
                reading(machine)
        else:
            assert reading(machine) == pytest.approx(float(row[column]), rel=1e-12), column


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_ridge_and_peak_follow_from_the_other_numbers(row):
    machine = load(row["name"])
    assert machine.ridge("fp16") == pytest.approx(float(row["ridge_flop_per_byte_fp16"]), abs=0.51)
    for dtype in ("fp16", "int8"):
        computed = machine.tensor_rate(dtype) * machine.multiprocessors * machine.clock_hz
        assert machine.peak(dtype) == pytest.approx(computed, rel=0.015)


@pytest.mark.parametrize("name", names())
def test_every_number_has_a_unit_a_source_and_a_grade(name):
    machine = load(name)
    for number in machine.numbers:
        assert number.grade in GRADES
        assert len(number.source) > 10
        assert number.unit or number.field.endswith(("multiprocessors", "count", "_part"))
        assert machine.source(number.field) == f"{number.source} ({number.grade})"


@pytest.mark.parametrize("name", names())
def test_repr_evaluates_back_and_values_are_plain(name):
    machine = load(name)
    assert eval(repr(machine), {"Machine": Machine, "Number": Number}) == machine
    assert hash(machine) == hash(load(name.lower()))
    assert {type(number.value) for number in machine.numbers} <= {int, float}


def test_sizes_in_bytes_are_those_that_compilers_enforce():
    limits = {name: load(name).capacity("shared", per_block=True) for name in ("H100-SXM", "A100-SXM-80GB", "T4")}
    assert limits == {"H100-SXM": 232_448, "A100-SXM-80GB": 166_912, "T4": 65_536}


def test_totals_and_counts():
    machine = load("MI300X")
    assert (machine.count("L2"), machine.count("global"), machine.count("shared")) == (8, 1, 304)
    assert machine.total("register") == 304 * 512 * 1024
    assert machine.levels == ("global", "L3", "L2", "shared", "register")


def test_dense_not_sparse_and_fma_counts_two():
    machine = load("H100-SXM")
    assert machine.peak("bf16") == 989.4e12
    assert machine.fma_rate("fp32") * machine.multiprocessors * 1.98e9 == pytest.approx(machine.peak("fp32"), rel=1e-3)


@given(st.sampled_from(names()), st.floats(1e-3, 1e6), st.floats(1.0, 10.0))
@settings(max_examples=60, deadline=None)
def test_roof_is_the_lower_of_two_limits(name, intensity, factor):
    machine = load(name)
    roof = machine.roof(intensity, "fp16")
    assert roof == min(machine.peak("fp16"), intensity * machine.bandwidth("global"))
    assert roof <= machine.roof(intensity * factor, "fp16")
    assert (roof < machine.peak("fp16")) == (intensity < machine.ridge("fp16")) or math.isclose(
        intensity, machine.ridge("fp16")
    )


def test_unknown_name_lists_what_exists_with_the_closest_first():
    with pytest.raises(MachineError, match="no machine 'H100-SMX'; known, closest first: H100-SXM, H") as caught:
        load("H100-SMX")
    assert all(name in str(caught.value) for name in names())
    assert isinstance(caught.value, DiagkitError)


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda m: m.peak("fp8e4m3"), "peak.fp8_flop_per_s"),
        (lambda m: m.peak("nonsense"), "peak.nonsense_flop_per_s"),
        (lambda m: m.tensor_rate("bf16"), "tensor.bf16_flop_per_clk_per_sm"),
        (lambda m: m.bandwidth("L2"), "level.L2.bandwidth_bytes_per_s"),
        (lambda m: m.ridge("int4"), "peak.int4_op_per_s"),
        (lambda m: m.capacity("cluster"), "level.cluster.capacity_bytes"),
        (lambda m: m.count("cluster"), "level.cluster.capacity_bytes"),
        (lambda m: m.source("device.colour"), "device.colour"),
        (lambda m: m.energy("shared"), "level.shared.energy_j_per_byte"),
        (lambda m: m.work_energy("fp16"), "energy.fp16_j_per_flop"),
        (lambda m: m.work_energy("int8"), "energy.int8_j_per_op"),
        (lambda m: m.cluster_bandwidth(2), "level.cluster.bandwidth_of_2_bytes_per_s"),
    ],
)
def test_an_absent_number_is_named_with_its_file(ask, field):
    with pytest.raises(MachineError) as caught:
        ask(load("T4"))
    assert caught.value.field == field
    assert f"T4 states no {field} (data/machines/T4.toml)" in str(caught.value)


def test_a_machine_is_one_file(tmp_path):
    machine = load(write(tmp_path, SMALL))
    assert (machine.multiprocessors, machine.peak("fp32"), machine.ridge("fp32")) == (2, 500.0, 50.0)
    assert machine.roof(3, "fp32") == 30.0
    assert machine.source("peak.fp32_flop_per_s") == "made up for this test (assumed)"


def test_cluster_rates_and_energies_are_numbers_like_all_others(tmp_path):
    more = """
[level.cluster]
bandwidth_of_2_bytes_per_s = { value = 30, source = "us", grade = "assumed" }
[energy]
fp16_j_per_flop = { value = 2e-12, source = "us", grade = "assumed" }
int8_j_per_op = { value = 1e-12, source = "us", grade = "assumed" }
"""
    machine = load(write(tmp_path, SMALL + more))
    assert (machine.clusters, machine.cluster_bandwidth(2)) == ((2,), 30.0)
    assert (machine.work_energy("fp16"), machine.work_energy("int8")) == (2e-12, 1e-12)
    assert "2 pJ/FLOP" in str(machine)
    for wrong in ("bandwidth_of_3_bytes_per_s = 1", "energy_j_per_flop = 1"):
        with pytest.raises(MachineError, match=wrong.split(" ", maxsplit=1)[0]):
            load(write(tmp_path, f"{SMALL}[level.cluster]\n{wrong}\n"))


def test_the_cluster_rates_of_the_h800_have_a_source():
    machine = load("H800-PCIe")
    rates = {size: machine.cluster_bandwidth(size) / 1e12 for size in machine.clusters}
    assert rates == {1: 2.04, 2: 3.27, 4: 2.65}
    assert "Luo" in machine.source("level.cluster.bandwidth_of_2_bytes_per_s")


COUNT, RATE, PEAK = "device.multiprocessors", "level.global.bandwidth_bytes_per_s", "peak.fp32_flop_per_s"

CLOCKS, BLOCK = "device.clock_hz", "capacity_per_block_bytes"
MADE, LESS = ('{ value = %d, source = "us", grade = "assumed" }' % value for value in (3, 2))  # noqa: UP031  # braces

# Fault -> the text of SMALL to replace, its replacement, the field that the error must name, the reason.
FAULTS = {
    "no source": ('value = 2, source = "us"', "value = 2", COUNT, "has no source"),
    "no value": ("value = 2, ", "", COUNT, "has no value"),
    "no grade": ('500.0, source = "us", grade = "assumed"', '500.0, source = "us"', PEAK, "has no grade"),
    "bare number": ('{ value = 10, source = "us", grade = "assumed" }', "10", RATE, "has no source"),
    "unknown source": ('10, source = "us"', '10, source = "them"', RATE, "'them'"),
    "empty source": ("made up for this test", " ", COUNT, "'us'"),
    "unknown grade": ('2, source = "us", grade = "assumed"', '2, source = "us", grade = "sure"', COUNT, "'sure'"),
    "unknown part": ("value = 2,", "value = 2, page = 3,", COUNT, "page"),
    "negative": ("value = 10", "value = -10", RATE, "-10"),
    "zero": ("value = 500.0", "value = 0", PEAK, "not positive"),
    "not finite": ("value = 500.0", "value = nan", PEAK, "nan"),
    "boolean": ("value = 2", "value = true", COUNT, "no number"),
    "text": ("value = 2", 'value = "2"', COUNT, "no number"),
    "no unit": ("bandwidth_bytes_per_s", "bandwidth", "level.global.bandwidth", "unknown field"),
    "unknown section": ("[peak]", "[peaks]", "peaks", "unknown field"),
    "unknown level": ("[level.global]", "[level.disk]", "level.disk", "unknown field"),
    "stray value": ('name = "Toy"', 'name = "Toy"\ncolour = 3', "colour", "unknown field"),
    "missing number": ("capacity_bytes = ", "capacity_per_block_bytes = ", "level.global.capacity_bytes", "states no"),
    "no peak": ("[peak]\nfp32_flop_per_s", "[tensor]\nfp32_flop_per_clk_per_sm", "peak", "no peak"),
    "other name": ('"Toy"', '"Tyo"', "name", "Tyo"),
    "sources that are none": ('[sources]\nus = "made up for this test"', 'sources = "us"', "sources", "no section"),
    "source that is a list": ('2, source = "us"', '2, source = ["us"]', COUNT, "'us'"),
    "source that is a table": ('2, source = "us"', "2, source = { us = 1 }", COUNT, "{'us': 1}"),
    "grade that is a list": ('source = "us", grade = "assumed"', 'source = "us", grade = ["sure"]', COUNT, "'sure'"),
    "half a multiprocessor": ("value = 2", "value = 2.5", COUNT, "not whole"),
    "half a byte": ("value = 1_000", "value = 1000.5", "level.global.capacity_bytes", "not whole"),
    "too large": ("value = 10,", "value = 1" + "0" * 400 + ",", RATE, "not positive and finite"),
    "list of sections": ("[device]", "[[device]]", "device", "no section"),
    "level that is a number": ("[level.global]", "[level]\nglobal = 3\n[peak.x]", "level.global", "no section"),
    "no name": ('name = "Toy"', "", "name", "states no name"),
    "more than the whole": ("[peak]", f"[tensor]\nmma_sync_part = {MADE}\n[peak]", "tensor.mma_sync_part", "more than"),
    "slower than its clock": ("[level.g", f"clock_hz = {MADE}\nmax_clock_hz = {LESS}\n[level.g", CLOCKS, "more than"),
    "block above the whole": ("[peak]", f"[level.L1]\ncapacity_bytes = {LESS}\n{BLOCK} = {MADE}\n[peak]",
                              f"level.L1.{BLOCK}", "is more than"),
    "stated in two ways": ("[peak]", f"bandwidth_bytes_per_clk = {LESS}\n[peak]", RATE, "stated again"),
    "stated twice": ("[peak]", f"capacity_bytes = {LESS}\n[peak]", "capacity_bytes", "cannot be read"),
    "text that is none": ('note = "A <toy> & nothing more."', "note = 3", "note", "no text"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.replace(" ", "-"))
def test_a_faulty_file_is_refused_by_field_name(tmp_path, fault):
    old, new, field, reason = FAULTS[fault]
    assert old in SMALL
    with pytest.raises(MachineError) as caught:
        load(write(tmp_path, SMALL.replace(old, new, 1)))
    assert caught.value.field == field
    assert field in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["", "# only words\n"])
def test_an_empty_file_is_asked_for_a_name(tmp_path, text):
    with pytest.raises(MachineError, match=r"Toy\.toml states no name; begin with name = ") as caught:
        load(write(tmp_path, text))
    assert caught.value.field == "name"


def test_a_number_that_is_required_says_how_to_write_it(tmp_path):
    with pytest.raises(MachineError, match=r"Toy\.toml states no device\.multiprocessors; write { value"):
        load(write(tmp_path, 'name = "Toy"'))


def test_editors_that_mark_utf8_do_no_harm(tmp_path):
    assert load(write(tmp_path, "\ufeff" + SMALL)) == load(write(tmp_path, SMALL))


@pytest.mark.parametrize("text", ["name = ", "name = 'a'\nname = 'b'"])
def test_a_file_that_is_no_toml_is_refused(tmp_path, text):
    with pytest.raises(MachineError, match=r"Toy\.toml cannot be read"):
        load(write(tmp_path, text))


def test_a_file_that_is_absent_is_refused(tmp_path):
    with pytest.raises(MachineError, match="cannot be read"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(MachineError, match="no data/machines/none"):
        data_path("machines", "none")


def test_display_escapes_and_has_no_ids(tmp_path):
    html = load(write(tmp_path, SMALL))._repr_html_()
    assert "A &lt;toy&gt; &amp; nothing more." in html
    assert "<toy>" not in html
    assert not any(word in html for word in (" id=", " class=", "<script", "<style"))
    assert html.count("<td") == 4 * 4


def test_display_as_text(tmp_path):
    assert str(load(write(tmp_path, SMALL))).splitlines() == [
        "Toy",
        "field                               value       grade    source",
        "device.multiprocessors              2           assumed  [1]",
        "level.global.capacity_bytes         1 kB        assumed  [1]",
        "level.global.bandwidth_bytes_per_s  10 B/s      assumed  [1]",
        "peak.fp32_flop_per_s                500 FLOP/s  assumed  [1]",
        "[1] made up for this test",
    ]


@pytest.fixture(scope="module")
def this_machine():
    return measure_here()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "diagkit" / "here.json"


def test_the_machine_at_hand_is_measured_and_says_so(this_machine):
    assert 1e8 < this_machine.bandwidth("global") < 1e13
    assert 1e8 < this_machine.peak("fp32") < 1e15
    for field in ("level.global.bandwidth_bytes_per_s", "peak.fp32_flop_per_s"):
        assert this_machine.source(field).endswith("(measured)")
    assert this_machine.text("architecture") == f"{measured.processor()}, {measured.cores()} core" + (
        "s" if measured.cores() > 1 else ""
    )
    assert this_machine.text("note").startswith("Measured 20")
    with pytest.raises(MachineError, match=r"here states no level\.shared\.capacity_bytes"):
        this_machine.capacity("shared")


def test_a_measurement_is_kept_until_refreshed(this_machine, cache, monkeypatch):
    asked = []
    monkeypatch.setattr(measured, "measure_here", lambda: asked.append(1) or this_machine)
    assert here() == here() == load("HERE") == this_machine
    assert (len(asked), cache.exists()) == (1, True)
    here(refresh=True)
    assert len(asked) == 2
    monkeypatch.setattr(measured, "identity", lambda: "another processor")
    here()
    assert len(asked) == 3
    assert len(json.loads(cache.read_text(encoding="utf-8"))) == 2
    monkeypatch.setattr(measured, "day", lambda: "2099-01-01")
    here()
    assert len(asked) == 4


@pytest.mark.parametrize("text", ["", "[]", "{]", '{"KEY": 3}', '{"KEY": {"about": [], "numbers": [[1]]}}'])
def test_a_damaged_cache_is_measured_anew(this_machine, cache, monkeypatch, text):
    monkeypatch.setattr(measured, "measure_here", lambda: this_machine)
    cache.parent.mkdir()
    cache.write_text(text.replace("KEY", measured.identity()), encoding="utf-8")
    assert here() == this_machine
    assert measured.recall(cache, measured.identity()) == this_machine


def test_a_home_that_cannot_be_written_does_not_stop_the_measurement(this_machine, tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "measure_here", lambda: this_machine)
    occupied = tmp_path / "file"
    occupied.write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    assert here() == this_machine


def test_bytes_and_flop_are_counted_right(monkeypatch):
    def two_seconds(action):
        action()
        return 2.0

    monkeypatch.setattr(measured, "best", two_seconds)
    assert measured.copy_bandwidth(1 << 20) == 2 * (1 << 20) / 2  # read and written
    assert measured.matrix_rate(10) == 2 * 10**3 / 2


def test_caches_are_read_once_per_memory_and_without_instructions(tmp_path):
    layout = [(0, 0, "1", "Data", "48K", "0"), (1, 0, "1", "Data", "48K", "1"), (0, 1, "1", "Instruction", "32K", "0"),
              (0, 3, "3", "Unified", "30M", "0-1"), (1, 3, "3", "Unified", "30M", "0-1")]  # fmt: skip
    for cpu, index, *texts in layout:
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in zip(("level", "type", "size", "shared_cpu_list"), texts, strict=True):
            (folder / name).write_text(text + "\n", encoding="utf-8")
    assert measured.caches(tmp_path, range(4)) == [(1, 48 << 10, 2), (3, 30 << 20, 1)]
    assert measured.caches(tmp_path, {1}) == [(1, 48 << 10, 1), (3, 30 << 20, 1)]  # the other core is not ours
    assert measured.caches(tmp_path / "none") == []


def test_a_core_has_its_share_of_the_last_cache_and_no_more_than_one_of_them():
    facts = {"device.multiprocessors": 4, "level.L2.capacity_bytes": 1 << 20, "level.L2.count": 4}
    third = {"level.L3.capacity_bytes": 32 << 20, "level.L3.count": 1}

    def made(numbers):
        return Machine("m", (), tuple(Number(k, v, "here", "assumed") for k, v in numbers.items()), "here")

    assert made(facts).share() == made(facts).share("L2") == 1 << 20
    assert made(facts | third).share() == 8 << 20
    assert made(facts | third | {"level.L3.count": 8}).share("L3") == 32 << 20
    with pytest.raises(MachineError, match="states no cache"):
        made({"device.multiprocessors": 4}).share()


@pytest.mark.parametrize("name", ["hardware.csv", "anchors.csv"])
def test_every_column_is_explained(name):
    rows = list(csv.DictReader(data_path(name).read_text(encoding="utf-8").splitlines()))
    readme = data_path("README.md").read_text(encoding="utf-8").split(f"## {name}")[1].split("\n## ")[0]
    assert len(rows) >= 9
    assert all(None not in row and None not in row.values() for row in rows)
    lengths = {"1024", "2048", "4096", "8192"}
    assert [column for column in rows[0] if column not in lengths and f"`{column}`" not in readme] == []


def test_anchors_are_speeds_below_the_peak_of_their_machine():
    rows = list(csv.DictReader(data_path("anchors.csv").read_text(encoding="utf-8").splitlines()))
    lengths = ("512", "1024", "2048", "4096", "8192", "16384")
    speeds = {(row["gpu"], row["dtype"], float(row[n])) for row in rows for n in lengths if row[n]}
    machine = {"H100": "H100-SXM", "H100-500W": "H100-SXM", "H800": "H100-SXM", "A100": "A100-SXM-80GB"}
    assert len(speeds) > 180
    for gpu, dtype, speed in speeds:
        eight_bit = "8" in dtype
        assert 50 < speed < load(machine.get(gpu, gpu)).peak("int8" if eight_bit else "fp16") / 1e12


@pytest.mark.parametrize("times", [0, -1, float("nan"), float("inf"), "two", None, True])
def test_a_machine_that_is_not_built_has_a_number_above_zero(times):
    with pytest.raises(MachineError, match="special.exp_op_per_clk_per_sm cannot be .* use a number above 0"):
        load("H100-SXM").what_if("special.exp_op_per_clk_per_sm", times)


def test_a_machine_that_is_not_built_has_whole_counts_and_bytes():
    h100 = load("H100-SXM")
    assert h100.what_if("device.multiprocessors", 0.5)["device.multiprocessors"] == 66
    assert h100.what_if("level.shared.capacity_bytes", 1.3)["level.shared.capacity_bytes"] == 303_513
    with pytest.raises(MachineError, match="device.multiprocessors would be 0.132"):
        h100.what_if("device.multiprocessors", 0.001)
    with pytest.raises(MachineError, match="states no nope"):
        h100.what_if("nope", 2)
