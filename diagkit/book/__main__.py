"""`python -m diagkit.book walk | store | check [notebooks]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from diagkit.book import check, claims, notebooks, report
from diagkit.book.run import CELL_TIMEOUT_S, walk
from diagkit.term import DiagkitError


def walked(options: argparse.Namespace) -> int:
    """Run the chapters, print the table, leave the report; 1 where a verdict is bad."""
    chapters = walk(notebooks.find(options.paths), options.timeout)
    made = report.make(chapters, claims.load(options.claims))
    report.print_report(made)
    html, _ = made.save(options.out)
    print(f"report: {html}")
    return 1 if made.reasons else 0


def stored(options: argparse.Namespace) -> int:
    """Run the chapters and save those that hold, in place and without what differs from run to run."""
    chapters = walk(notebooks.find(options.paths), options.timeout)
    for chapter in chapters:
        if chapter.reason:
            print(f"{chapter.path}: not stored: {chapter.reason}")
        else:
            notebooks.write(chapter.notebook, chapter.path)
    return 1 if any(chapter.reason for chapter in chapters) else 0


def checked(options: argparse.Namespace) -> int:
    """Say what is wrong with the notebooks as they are stored; 1 where anything is."""
    files = notebooks.find(options.paths)
    found = [f"{path}: {fault}" for path in files for fault in check.faults(notebooks.read(path))]
    print("\n".join(found) if found else f"{len(files)} notebooks, no fault")
    return 1 if found else 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"walk": walked, "store": stored, "check": checked}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status of a command; errors of diagkit are shown without traceback."""
    parser = argparse.ArgumentParser(prog="python -m diagkit.book", description="Run, store or check the chapters.")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("notebooks")], help="notebooks or folders of them")
    parser.add_argument("--timeout", type=int, default=CELL_TIMEOUT_S, help="seconds that one cell may take")
    parser.add_argument("--out", type=Path, default=Path("build"), help="where walk leaves its report")
    parser.add_argument("--claims", type=Path, help="the claims to set beside the records (default: data/claims.toml)")
    options = parser.parse_args(arguments)
    try:
        notebooks.need_jupyter()
        return COMMANDS[options.command](options)
    except DiagkitError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
