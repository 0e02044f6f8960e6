"""What a stored chapter must keep to. Each rule yields its faults; no fault means that the rule holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from diagkit.book.notebooks import IGNORE, KERNEL, LIVE, code_cells, tags
from diagkit.book.record import RECORD_TYPE

LONGEST = 6
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While, ast.With, ast.Try)
TIMING = re.compile(r"\btimed\(|\.measure\(|\bhere\(|\bmeasure_here\(|\.compare\(")
"""Calls whose results are measured times: cells that make them carry the tag."""

Rule = Callable[[Any], Iterator[str]]


def parsed(cell: Any) -> ast.Module | None:
    """The cell as Python, or None where it is none (a shell command, a magic)."""
    try:
        return ast.parse(str(cell.source))
    except SyntaxError:
        return None


def places(notebook: Any) -> Iterator[tuple[str, Any]]:
    """Every code cell with its name, "code cell 3"."""
    for place, cell in enumerate(code_cells(notebook), start=1):
        yield f"code cell {place}", cell


def plain_python(notebook: Any) -> Iterator[str]:
    """Cells are Python, without magics or shell commands."""
    for name, cell in places(notebook):
        if parsed(cell) is None:
            yield f"{name} is not plain Python"


def short_cells(notebook: Any) -> Iterator[str]:
    """A cell has at most six lines."""
    for name, cell in places(notebook):
        lines = len(cell.source.strip().splitlines())
        if lines > LONGEST:
            yield f"{name} has {lines} lines, more than {LONGEST}"


def no_helpers(notebook: Any) -> Iterator[str]:
    """Cells define no functions or classes, and hold no loops: that is the package's work."""
    for name, cell in places(notebook):
        kinds = [
            type(node).__name__
            for node in ast.walk(parsed(cell) or ast.Module([], []))
            if isinstance(node, DEFINITIONS)
        ]
        if kinds:
            yield f"{name} holds helper code ({kinds[0]})"


def outputs_stored(notebook: Any) -> Iterator[str]:
    """A cell that ends in an expression has its output stored; a chapter without outputs is none."""
    for name, cell in places(notebook):
        module = parsed(cell)
        shows = module is not None and bool(module.body) and isinstance(module.body[-1], ast.Expr)
        if shows and not cell.outputs:
            yield f"{name} has no stored output"
    if not any(cell.outputs for cell in code_cells(notebook)):
        yield "no outputs are stored"


def in_order(notebook: Any) -> Iterator[str]:
    """The cells were executed once each, from the first to the last, in a fresh kernel."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"cells were executed in the order {counts}"


def no_errors(notebook: Any) -> Iterator[str]:
    """No stored output is an error, and none came from standard error."""
    for name, cell in places(notebook):
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"{name} stores an error: {output.ename}: {output.evalue}"
            if output.output_type == "stream" and output.name == "stderr":
                yield f"{name} stores text from standard error"


def times_tagged(notebook: Any) -> Iterator[str]:
    """Cells that show measured times carry the tag which excuses them from comparison."""
    for name, cell in places(notebook):
        if TIMING.search(cell.source) and IGNORE not in tags(cell):
            yield f"{name} measures times without the tag {IGNORE}"


def no_addresses(notebook: Any) -> Iterator[str]:
    """No output shows where an object lies in memory."""
    for name, cell in places(notebook):
        texts = [str(text) for output in cell.outputs for text in output.get("data", {}).values()]
        if any(re.search(r"\bat 0x[0-9a-f]{6,}", text) for text in texts):
            yield f"{name} shows a memory address"


def ends_in_record(notebook: Any) -> Iterator[str]:
    """The last cell that runs is the chapter's validation: it displays a record that holds, and is compared."""
    cells = code_cells(notebook)
    last = cells[-1] if cells else None
    verdicts = (
        [o.data[RECORD_TYPE]["verdict"] for o in last.outputs if RECORD_TYPE in o.get("data", {})] if last else []
    )
    if not verdicts:
        yield "the last cell displays no record"
    elif verdicts[-1] != "holds":
        yield f"the last record {verdicts[-1]}"
    if last is not None and IGNORE in tags(last):
        yield f"the last cell carries the tag {IGNORE}"


def static_figures(notebook: Any) -> Iterator[str]:
    """What a reader turns has a figure in its place: no stored output needs a running kernel."""
    for name, cell in places(notebook):
        if any(LIVE in output.get("data", {}) for output in cell.outputs):
            yield f"{name} stores a live widget; display a figure beside it, which then takes its place"


def plain_kernel(notebook: Any) -> Iterator[str]:
    """The metadata name the kernel python3 and nothing else."""
    if notebook.metadata != KERNEL:
        yield "its metadata are not those of a plain python3 kernel"


RULES: tuple[Rule, ...] = (
    plain_python, short_cells, no_helpers, outputs_stored, in_order, no_errors, times_tagged, no_addresses,
    ends_in_record, static_figures, plain_kernel,
)  # fmt: skip


def faults(notebook: Any) -> list[str]:
    """Everything that is wrong with a stored chapter; empty where nothing is."""
    return [fault for rule in RULES for fault in rule(notebook)]
