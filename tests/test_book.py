"""The runner of chapters on small notebooks made here: passing, failing, hanging, empty."""

from __future__ import annotations

import base64
import io
import json
import re
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest

from diagkit import machine, ops, term
from diagkit.book import (
    BookError,
    Record,
    agreement,
    check,
    claims,
    curves,
    figures,
    landscape,
    notebooks,
    plots,
    record,
    refusal,
    report,
    roofline,
    scatter,
    timed,
)
from diagkit.book.__main__ import main
from diagkit.book.progress import Progress
from diagkit.book.run import Chapter, walk
from diagkit.machine import data_path

nbformat = pytest.importorskip("nbformat", reason="the lab extra is not installed")
pytest.importorskip("nbclient", reason="the lab extra is not installed")

GOOD = """
import diagkit as dk
dk.record('two and two', error=abs(2 + 2 - 4), tolerance=1e-9, claim='sum')
""".strip()
BAD = "import diagkit as dk\ndk.record('two and two', bytes_predicted=5, bytes_counted=4)"


CLAIM = """
[[claim]]
id = "sum"
chapter = "01"
paper = "§1"
claim = "two and two are four"
ours = "four"
verdict = "reproduced"
"""


def book(folder: Path, name: str, *cells: str, title: str = "# 01 A chapter\n\nWhat is asked?") -> Path:
    """A notebook of these code cells."""
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell(title), *map(nbformat.v4.new_code_cell, cells)]
    )
    path = folder / name
    path.write_text(nbformat.writes(made), encoding="utf-8")
    return path


def ran(*paths: Path, timeout: int = 60) -> list[Chapter]:
    return walk(paths, timeout, Progress(3, io.StringIO()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chapters")


@pytest.fixture(scope="module")
def good(folder: Path) -> Chapter:
    text = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><title>dot</title></svg>'
    svg = f"from IPython.display import SVG\nSVG({text!r})"
    return ran(book(folder, "01-good.ipynb", "6 * 7", svg, GOOD))[0]


@pytest.fixture(scope="module")
def failing(folder: Path) -> Chapter:
    return ran(book(folder, "02-failing.ipynb", "1 + 1", "1 / 0", GOOD))[0]


# Records


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (record("a", error=1e-9, tolerance=1e-6), None),
        (record("a", error=1e-3, tolerance=1e-6), "error 0.001 exceeds 1e-06"),
        (record("a", error=float("nan"), tolerance=1e-6), "error nan exceeds 1e-06"),
        (record("a", bytes_predicted=8, bytes_counted=8), None),
        (record("a", bytes_predicted=1152000, bytes_counted=1128000), "1,152,000 bytes predicted, 1,128,000 counted"),
        (record("a", holds=True), None),
        (record("a", holds=False), "the statement is false"),
        (record("a", error=0, tolerance=0, bytes_predicted=1, bytes_counted=2), "1 bytes predicted, 2 counted"),
    ],
)
def test_a_record_gives_its_reason(made: Record, reason: str | None) -> None:
    assert made.reason == reason
    assert made.verdict == ("holds" if reason is None else f"fails: {reason}")


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"error": 1.0},
        {"tolerance": 1.0},
        {"bytes_predicted": 5},
        {"time_s": 1.0},
        {"bytes_predicted": 1.5, "bytes_counted": 1},
    ],
)
def test_a_record_that_cannot_fail_is_refused(parts: dict[str, float]) -> None:
    with pytest.raises(BookError):
        record("empty", **parts)


def test_symbols_are_no_bytes() -> None:
    sympy = pytest.importorskip("sympy")
    with pytest.raises(BookError, match="sizes"):
        record("bytes", bytes_predicted=sympy.Symbol("q"), bytes_counted=1)


def test_the_display_is_the_same_for_every_run_and_the_parts_that_differ_travel_apart() -> None:
    first = record("a", error=1e-9, tolerance=1e-6, time_s=0.5)
    second = record("a", error=3e-8, tolerance=1e-6, time_s=0.7)
    (shown, apart), (shown_again, apart_again) = first._repr_mimebundle_(), second._repr_mimebundle_()
    assert shown == shown_again
    assert apart != apart_again


def test_timing_takes_the_median_and_does_not_count_the_first_run() -> None:
    calls: list[int] = []
    timing = timed(calls.append, 1, budget_s=0)
    assert len(calls) == 6
    assert len(timing.runs_s) == 5
    assert min(timing.runs_s) <= timing.median_s <= max(timing.runs_s)
    assert record("t", holds=True, time_s=timing).time_s == timing.median_s


# Walking


def test_a_good_chapter_yields_its_records(good: Chapter) -> None:
    assert good.reason is None
    assert (good.number, good.title, good.question) == ("01", "01 A chapter", "What is asked?")
    assert [(r.check, r.error, r.claim) for r in good.records] == [("two and two", 0.0, "sum")]


def test_a_failing_cell_is_named(failing: Chapter) -> None:
    assert failing.failure is not None
    assert (failing.failure.cell, failing.failure.error) == (2, "ZeroDivisionError")
    assert "code cell 2: ZeroDivisionError: division by zero" in str(failing.reason)
    assert not failing.records, "the cell after the failure must not count"


def test_a_hanging_cell_is_stopped(tmp_path: Path) -> None:
    (chapter,) = ran(book(tmp_path, "03-hanging.ipynb", "import time", "time.sleep(60)", GOOD), timeout=2)
    assert chapter.failure is not None
    assert (chapter.failure.cell, chapter.failure.error) == (2, "timeout")
    assert chapter.time_s < 30


def test_a_dead_kernel_is_a_failure_and_not_a_hang(tmp_path: Path) -> None:
    (chapter,) = ran(book(tmp_path, "04-dead.ipynb", "import os\nos._exit(1)", GOOD))
    assert chapter.failure is not None
    assert (chapter.failure.cell, chapter.failure.error) == (1, "kernel died")


def test_a_chapter_that_checks_nothing_is_no_success(tmp_path: Path) -> None:
    (chapter,) = ran(book(tmp_path, "05-empty.ipynb", "1 + 1"))
    assert chapter.reason == "it records no check"


def test_the_commands_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = book(tmp_path, "01-good.ipynb", GOOD)
    assert main(["check", str(path)]) == 1
    assert "no outputs are stored" in capsys.readouterr().out
    assert main(["store", str(path)]) == 0
    stored = path.read_bytes()
    assert main(["check", str(path)]) == 0
    assert main(["store", str(path)]) == 0
    assert path.read_bytes() == stored, "storing again changes nothing"
    (tmp_path / "claims.toml").write_text(CLAIM, encoding="utf-8")
    options = ["--out", str(tmp_path / "build"), "--claims", str(tmp_path / "claims.toml")]
    assert main(["walk", str(path), *options]) == 0
    assert "confirmed" in (tmp_path / "build" / "report.html").read_text(encoding="utf-8")
    book(tmp_path, "02-bad.ipynb", BAD)
    assert main(["walk", str(tmp_path), *options]) == 1
    shown = capsys.readouterr().out
    assert "5 bytes predicted, 4 counted" in shown
    assert json.loads((tmp_path / "build" / "report.json").read_text(encoding="utf-8"))["reasons"]


def test_no_notebooks_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["walk", str(tmp_path)]) == 2
    assert "no notebook at" in capsys.readouterr().err


def test_a_chapter_that_fails_is_not_stored(tmp_path: Path) -> None:
    path = book(tmp_path, "02-bad.ipynb", BAD)
    before = path.read_bytes()
    assert main(["store", str(path)]) == 1
    assert path.read_bytes() == before


# Rules for stored notebooks


BESIDE = "display a figure beside it, which then takes its place"
NAMES = {"new": nbformat.v4.new_output, "notebooks": notebooks}


def tampered(good: Chapter, change: str) -> list[str]:
    """The faults of a stored notebook after one change."""
    notebook = nbformat.from_dict(json.loads(json.dumps(good.notebook)))
    notebooks.settle(notebook)
    exec(change, {"nb": notebook, "cells": notebooks.code_cells(notebook), **NAMES})
    return check.faults(notebook)


def test_a_stored_chapter_has_no_faults(good: Chapter) -> None:
    assert tampered(good, "") == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("cells[0].outputs = []", "code cell 1 has no stored output"),
        ("[c.update(outputs=[]) for c in cells]", "no outputs are stored"),
        ("cells[0].source = 'def f():\\n    pass\\n1'", "code cell 1 holds helper code (FunctionDef)"),
        ("cells[0].source = 'for i in range(3):\\n    i'", "code cell 1 holds helper code (For)"),
        ("cells[0].source = '1\\n' * 7", "code cell 1 has 7 lines, more than 6"),
        ("cells[0].source = '%time 1'", "code cell 1 is not plain Python"),
        ("cells[0].source = 'dk.timed(f)'", "code cell 1 measures times without the tag nbval-ignore-output"),
        ("cells[0].execution_count = 9", "cells were executed in the order [9, 2, 3]"),
        ("cells[0].outputs = [new('error', ename='E', evalue='e')]", "code cell 1 stores an error: E: e"),
        ("cells[0].outputs = [new('stream', name='stderr', text='w')]", "code cell 1 stores text from standard error"),
        ("cells[0].outputs[0].data['text/plain'] = '<a at 0x7f00deadbeef>'", "code cell 1 shows a memory address"),
        ("nb.cells.pop()", "the last cell displays no record"),
        ("cells[-1].metadata.tags = ['nbval-ignore-output']", "the last cell carries the tag nbval-ignore-output"),
        ("cells[0].outputs[0].data[notebooks.LIVE] = {}", f"code cell 1 stores a live widget; {BESIDE}"),
        ("nb.metadata.kernelspec.name = 'mine'", "its metadata are not those of a plain python3 kernel"),
    ],
)  # fmt: skip
def test_each_rule_can_fail(good: Chapter, change: str, fault: str) -> None:
    assert fault in tampered(good, change)


def test_every_chapter_of_the_book_keeps_the_rules() -> None:
    folder = Path(__file__).parents[1] / "notebooks"
    paths = notebooks.find([folder])
    assert {path.name: check.faults(notebooks.read(path)) for path in paths} == {path.name: [] for path in paths}


EXPLORED = """
import diagkit as dk
a, b, c = dk.axes('a b c')
C = dk.einsum('a b, b c -> a c', dk.array('A', a, b), dk.array('B', b, c))
tiled = dk.Diagram(C, name='matmul').fuse().group(a='g_a', c='g_c').stream(b='s_b')
dk.Explorer(tiled, machine='T4', a=1024, b='a', c='a')
""".strip()


def test_a_live_widget_is_stored_as_its_figure_and_exported_without_scripts(tmp_path: Path) -> None:
    pytest.importorskip("ipywidgets", reason="the lab extra is not installed")
    nbconvert = pytest.importorskip("nbconvert", reason="the lab extra is not installed")
    path = book(tmp_path, "01-explorer.ipynb", EXPLORED, GOOD)
    assert main(["store", str(path)]) == 0
    stored = notebooks.read(path)
    shown = notebooks.code_cells(stored)[0].outputs[0].data
    assert set(shown) == {"image/svg+xml", "text/plain"} and "Best legal tile" in shown["image/svg+xml"]
    assert check.faults(stored) == []
    html, _ = nbconvert.HTMLExporter().from_notebook_node(stored)
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert ["Best legal tile" in base64.b64decode(picture).decode() for picture in pictures] == [True]
    assert not any(part in html for part in (notebooks.LIVE, "html-manager", "widget-state"))


# The report


class Reader(HTMLParser):
    """Checks that tags close in order, and collects what a page would fetch."""

    VOID = frozenset({"meta", "img", "br", "hr", "path", "circle", "rect", "line"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in {"src", "href"} and value and value[0] != "#"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def made(good: Chapter, failing: Chapter) -> report.Report:
    claim = claims.Claim("sum", "01", "§1", "2 + 2 = 4 & <more>", "4", "reproduced")
    lost = claims.Claim("lost", "01", "§1", "nobody checks it", "5", "reproduced")
    return report.make([good, failing], [claim, lost])


def test_the_page_is_well_formed_and_needs_no_network(made: report.Report, tmp_path: Path) -> None:
    html, _ = made.save(tmp_path)
    reader = Reader()
    reader.feed(html.read_text(encoding="utf-8"))
    assert reader.open == []
    assert all(place.startswith("data:") for place in reader.fetched)
    assert "svg" in reader.tags
    assert not {"script", "link", "iframe"} & set(reader.tags)


def test_the_report_names_what_failed(made: report.Report) -> None:
    assert any("ZeroDivisionError" in reason for reason in made.reasons)
    assert "claim lost: not confirmed" in made.reasons
    assert not any("sum" in reason for reason in made.reasons)
    assert ("stopped at code cell 2: ZeroDivisionError: division by zero", "", "", "", "fails") in [
        row[1:] for row in made.rows()
    ]
    assert "ZeroDivisionError" in made.text()


def test_the_data_are_plain_json(made: report.Report, tmp_path: Path) -> None:
    _, path = made.save(tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert data["chapters"][0]["records"][0]["check"] == "two and two"
    assert data["chapters"][1]["failure"]["cell"] == 2
    assert data["machine"]["name"] == "here"
    assert re.match(r"\d{4}-\d{2}-\d{2}", data["made"])


# Claims


def test_the_claims_of_the_project_are_sound_and_name_chapters_that_exist() -> None:
    found = claims.load()
    files = notebooks.find([Path(__file__).parents[1] / "notebooks"])
    assert {claim.chapter for claim in found} <= {path.name[:2] for path in files}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "maybe"}, "has the verdict 'maybe'"),
        ({"verdict": "differs"}, "differs without saying why"),
        ({"ours": ""}, "has no ours"),
        ({"colour": "red"}, "has an unknown field colour"),
    ],
)
def test_a_claim_that_is_none_is_refused(change: dict[str, str], message: str) -> None:
    entry = {"id": "x", "chapter": "01", "paper": "§1", "claim": "c", "ours": "o", "verdict": "reproduced"}
    assert claims.claim(entry).stated == "reproduced"
    with pytest.raises(BookError, match=re.escape(message)):
        claims.claim({**entry, **change})


def test_a_claim_is_confirmed_only_by_a_record_that_holds(good: Chapter, failing: Chapter) -> None:
    parts = {"paper": "§1", "claim": "c", "ours": "o", "verdict": "reproduced"}
    assert claims.Claim("sum", "01", **parts).outcome([good]) == "confirmed"
    assert claims.Claim("sum", "02", **parts).outcome([failing]) == "not confirmed"
    assert claims.Claim("other", "01", **parts).outcome([good]) == "not confirmed"
    assert claims.Claim("sum", "03", **parts).outcome([good, failing]) == "not run"


def test_a_record_that_names_no_claim_is_noticed(good: Chapter) -> None:
    assert report.make([good], []).reasons == ["claim sum: a record names it, claims.toml does not"]


# The bar


def test_the_bar_writes_one_line_per_chapter_without_a_terminal() -> None:
    stream = io.StringIO()
    bar = Progress(2, stream)
    bar.step("a")
    bar.step("b")
    bar.end("a chapter", 2)
    assert stream.getvalue() == "[########################] 100% a chapter\n"


# Plots


def test_plots_leave_matplotlib_alone_and_are_the_same_each_time() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="the lab extra is not installed")
    before = matplotlib.rcParams["backend"]
    again = [roofline([machine.load("T4")], [("naive", 10, 1e11)]).png() for _ in range(2)]
    assert again[0] == again[1]
    assert again[0].startswith(b"\x89PNG")
    assert matplotlib.rcParams["backend"] == before


def test_a_formula_needs_all_its_sizes() -> None:
    pytest.importorskip("matplotlib", reason="the lab extra is not installed")
    formula = term.size("q") * term.size("d")
    assert curves({"H": formula}, ("q", [1, 2]), {"d": 3}).text == "elements: H for q from 1 to 2"
    with pytest.raises(BookError, match="no size is given for d"):
        curves({"H": formula}, ("q", [1, 2]), {})


def test_agreement_shows_every_pair_on_equal_axes() -> None:
    plot = agreement({"a": [(1.0, 2.0), (3.0, 3.0)], "b": [(5.0, 4.0)]}, title="H")
    axes = plot.figure.axes[0]
    assert axes.get_xlim() == axes.get_ylim() == (0.0, 5.0 * 1.08)
    drawn = [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines[1:]]
    assert drawn == [[(2.0, 1.0), (3.0, 3.0)], [(4.0, 5.0)]]  # measured to the right, predicted upward
    assert str(plot) == "H: 3 pairs of a, b"
    assert plot.png().startswith(b"\x89PNG")


def test_scattered_points_carry_the_names_of_one_group() -> None:
    points = {"a": [(8.0, 1e-3, "int8"), (4.0, 1e-2, "int4")], "b": [(8.0, 2e-3, "int8")]}
    plot = scatter(points, "bits", "error", "H", named="b")
    axes = plot.figure.axes[0]
    drawn = [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in axes.lines]
    assert drawn == [[(8.0, 1e-3), (4.0, 1e-2)], [(8.0, 2e-3)]]
    assert [text.get_text() for text in axes.texts] == ["int8"]
    assert axes.get_yscale() == "log"
    assert str(plot) == "H: 3 points of a, b"


def test_a_landscape_leaves_out_what_does_not_fit() -> None:
    pytest.importorskip("matplotlib", reason="the lab extra is not installed")
    g, s = term.size("g"), term.size("s")
    rows, columns = ("g", [16, 32]), ("s", [8, 64])
    assert str(plots.heights_of(g * s, rows, columns, {}, (g + s, 80))) == "[[128.0, 1024.0], [256.0, nan]]"
    assert str(plots.heights_of({(32, 8): 5}, rows, columns, {}, None)) == "[[nan, nan], [5.0, nan]]"
    plot = landscape(g * s, rows, columns, within=(g + s, 80), mark=(16, 64), title="H")
    assert plot.text == "H: g by s, marked g=16 s=64"


# Refusals


def test_a_refusal_shows_the_reason_and_a_lawful_step_is_no_refusal() -> None:
    shown = str(refusal(ops.axes, "q x", d=64))
    assert "AxisError" in shown
    assert "no axis of 'q x'" in shown
    with pytest.raises(BookError, match="is lawful"):
        refusal(ops.axes, "q x")
    with pytest.raises(ZeroDivisionError):
        refusal(lambda: 1 / 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_each_line_covers_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    bar = Progress(2, stream)
    bar.step("a long name of a cell")
    bar.end("short", 2)
    assert [len(line.rstrip("\n")) for line in stream.getvalue().split("\r")[1:]] == [59, 59]


def test_the_table_fits_the_terminal(made: report.Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert max(map(len, made.text().splitlines()[:5])) <= 100


def test_a_refusal_and_a_timing_display_as_rows_in_a_cell():
    from IPython.lib.pretty import pretty

    assert pretty(refusal(ops.axes, "q x", d=64)).startswith("refused  AxisError\naxis     d\n")
    assert pretty(timed(sum, [1], budget_s=0)).startswith("timed sum, median ")


def test_without_jupyter_the_commands_say_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nbclient", None)
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "chapters need nbclient; install diagkit[lab]\n"


def test_computed_figures_stand_beside_the_printed_ones(tmp_path):
    """Both with as many digits as are printed; another number, a missing one and one without source are refused."""
    place = tmp_path / "figures.toml"
    place.write_text('[a]\nsource = "Table 1"\n"time, µs" = "1.26"\n[b]\n"x" = "1"\n', encoding="utf-8")
    assert figures.beside({"time, µs": 1.2593}, "a", place) == ((("time, µs", "1.26", "1.26"),), "Table 1")
    for computed, names, words in (
        ({"x": 1}, "a", "not on both"),
        ({}, "c", "no figures of"),
        ({"x": 1}, "b", "no source"),
    ):
        with pytest.raises(BookError, match=words):
            figures.beside(computed, names, place)
    right, wrong = ({"fp16, % of the peak": share, "fp8, % of the peak": 60.0} for share in (75.0, 74.0))
    assert record("both", figures=right, claim="fa3-utilization").verdict == "holds"
    made = record("both", figures=wrong, claim="fa3-utilization")
    assert made.verdict == "fails: fp16, % of the peak: 74, and 75 is printed"
    assert ("printed in", "FlashAttention on a Napkin (arXiv 2412.03317), §6") in made.rows()


def test_every_table_of_printed_figures_belongs_to_a_claim_and_states_its_source():
    tables = tomllib.loads(data_path("figures.toml").read_text(encoding="utf-8"))
    assert set(tables) <= {one.id for one in claims.load()}
    assert all(figures.printed(name)[1] for name in tables)
