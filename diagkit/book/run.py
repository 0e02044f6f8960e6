"""Run chapters: each notebook in a fresh kernel, one after the other, as far as its first fault."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagkit.book.notebooks import code_cells, question, read, title
from diagkit.book.progress import Progress
from diagkit.book.record import RECORD_TYPE, Record

CELL_TIMEOUT_S = 120
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Failure:
    """Where a chapter stopped: the number of the code cell (from 1), the error and its message."""

    cell: int
    error: str
    message: str

    def __str__(self) -> str:
        return f"code cell {self.cell}: {self.error}: {self.message}"


@dataclass(frozen=True)
class Chapter:
    """A chapter that has run: its notebook with the new outputs, the time it took in seconds, its failure."""

    path: Path
    notebook: Any
    time_s: float
    failure: Failure | None = None

    @property
    def number(self) -> str:
        """What the file's name begins with: "01" of 01-naive-attention.ipynb."""
        return re.split(r"[-_ .]", self.path.stem)[0]

    @property
    def title(self) -> str:
        """Its first heading."""
        return title(self.notebook, self.path)

    @property
    def question(self) -> str:
        """Its first paragraph."""
        return question(self.notebook)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records that its cells displayed, in order."""
        return tuple(found(self.notebook))

    @property
    def reason(self) -> str | None:
        """What speaks against the chapter, or None. One that checks nothing is no success."""
        bad = next((record for record in self.records if record.reason), None)
        return (
            (str(self.failure) if self.failure else None)
            or (f"{bad.check}: {bad.reason}" if bad else None)
            or (None if self.records else "it records no check")
        )


def found(notebook: Any) -> Iterator[Record]:
    """Every record displayed in the notebook, in order."""
    for cell in code_cells(notebook):
        for output in cell.get("outputs", ()):
            if RECORD_TYPE in output.get("data", {}):
                parts = {**output.data[RECORD_TYPE], **output.metadata.get(RECORD_TYPE, {})}
                parts["figures"] = tuple(tuple(row) for row in parts.get("figures", ()))
                yield Record(**{name: value for name, value in parts.items() if name != "verdict"})


def walk(paths: Iterable[Path], timeout_s: int = CELL_TIMEOUT_S, progress: Progress | None = None) -> list[Chapter]:
    """Run the notebooks in order and return the chapters; a cell may take `timeout_s` seconds.

    Errors of cells do not stop the walk: they are the failure of their chapter.
    """
    notebooks = [(path, read(path)) for path in paths]
    bar = progress or Progress(sum(len(code_cells(notebook)) for _, notebook in notebooks))
    chapters: list[Chapter] = []
    for path, notebook in notebooks:
        before = sum(len(code_cells(chapter.notebook)) for chapter in chapters)
        chapters.append(run(path, notebook, timeout_s, bar))
        done = "failed" if chapters[-1].reason else f"{chapters[-1].time_s:.1f} s"
        bar.end(f"{chapters[-1].title}: {done}", before + len(code_cells(notebook)))
    return chapters


def run(path: Path, notebook: Any, timeout_s: int, bar: Progress) -> Chapter:
    """Run one notebook in a fresh kernel of this Python, with its own folder as working directory."""
    from nbclient import NotebookClient

    name, reached = title(notebook, path), [0]
    order = {id(cell): place for place, cell in enumerate(code_cells(notebook), start=1)}

    def starting(cell: Any, **_: Any) -> None:
        reached[0] = order.get(id(cell), reached[0])

    def ended(**_: Any) -> None:
        bar.step(f"{name}, cell {reached[0]} of {len(order)}")

    clear(notebook)
    client = NotebookClient(
        notebook, timeout=timeout_s, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}},
        on_cell_start=starting, on_cell_executed=ended, shutdown_kernel="immediate", record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=40"],  # its notes on transport would break the bar
    )  # fmt: skip
    begun = time.perf_counter()
    failure = attempt(client, reached, timeout_s)
    return Chapter(path, notebook, time.perf_counter() - begun, failure)


def clear(notebook: Any) -> None:
    """Take the stored outputs away: what did not run must not look as if it had."""
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None


def attempt(client: Any, reached: list[int], timeout_s: int) -> Failure | None:
    """Run all cells; the failure that stopped them, or None."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    try:
        client.execute()
    except CellExecutionError as error:
        return Failure(reached[0], error.ename, COLOURS.sub("", error.evalue))
    except CellTimeoutError:
        return Failure(reached[0], "timeout", f"no answer within {timeout_s} s")
    except DeadKernelError:
        return Failure(reached[0], "kernel died", "the process behind the notebook ended")
    return None
