"""Notebooks as files: read, named, and reduced to what is the same on every run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from diagkit.book.errors import BookError
from diagkit.book.record import RECORD_TYPE

KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
IGNORE = "nbval-ignore-output"
"""The tag of cells whose output differs from run to run."""

LIVE = "application/vnd.jupyter.widget-view+json"
"""A widget's place in an output: it needs a running kernel, and its id is another on every run."""
PICTURES = ("image/svg+xml", "image/png")


def find(paths: Iterable[Path]) -> list[Path]:
    """The notebooks among `paths`, those of a folder in order of their names.

    Errors: BookError where a path does not exist or holds no notebook.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.ipynb")) if path.is_dir() else [path] if path.is_file() else []
        if not inside:
            raise BookError(f"no notebook at {path}", remedy="name a .ipynb file or a folder that holds some")
        found += inside
    return found


def need_jupyter() -> None:
    """Errors: BookError where what reads and runs notebooks is not installed.

    >>> need_jupyter()
    """
    missing = [package for package in ("nbformat", "nbclient", "ipykernel") if find_spec(package) is None]
    if missing:
        raise BookError(f"chapters need {', '.join(missing)}", remedy="install diagkit[lab]")


def read(path: Path) -> Any:
    """The notebook of that file. Errors: BookError where it cannot be read."""
    import nbformat

    try:
        return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except (OSError, ValueError, nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        raise BookError(f"{path} is no notebook: {error}", remedy="name a .ipynb file") from error


def write(notebook: Any, path: Path) -> None:
    """Write the notebook, without what differs from run to run."""
    import nbformat

    settle(notebook)
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8", newline="\n")


def code_cells(notebook: Any) -> list[Any]:
    """The cells that run, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def title(notebook: Any, path: Path) -> str:
    """The first heading, else the file's name.

    >>> from types import SimpleNamespace as Cell
    >>> title(Cell(cells=[Cell(cell_type="markdown", source="# 01 Naive attention")]), Path("01.ipynb"))
    '01 Naive attention'
    """
    return next((text for text in headings(notebook.cells)), path.stem)


def headings(cells: Iterable[Any]) -> Iterator[str]:
    """The headings of the markdown cells, in order."""
    for cell in cells:
        if cell.cell_type == "markdown":
            yield from re.findall(r"^#+\s+(.+?)\s*$", cell.source, flags=re.MULTILINE)


def question(notebook: Any) -> str:
    """The first paragraph below the title."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    paragraphs = [part.strip() for text in texts for part in text.split("\n\n")]
    return next((part for part in paragraphs if part and not part.startswith("#")), "")


def settle(notebook: Any) -> None:
    """Take out what differs from run to run: times, kernel versions, random ids, errors of records; and live
    widgets where their figure stands beside them, so that a reader without a kernel sees that."""
    notebook.metadata = type(notebook)({name: type(notebook)(parts) for name, parts in KERNEL.items()})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for place, cell in enumerate(notebook.cells):
        cell.id = f"cell-{place:02d}"
        cell.metadata = type(notebook)({"tags": list(tags(cell))} if tags(cell) else {})
        for output in cell.get("outputs", ()):
            output.get("metadata", {}).pop(RECORD_TYPE, None)
            if any(kind in output.get("data", {}) for kind in PICTURES):
                output.data.pop(LIVE, None)


def tags(cell: Any) -> tuple[str, ...]:
    """The tags of a cell."""
    return tuple(cell.metadata.get("tags", ()))
