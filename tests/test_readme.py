"""The README's code runs as it stands: a result after `# ->` is that text, a line marked `# refused` is refused."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import diagkit as dk

README = Path(__file__).resolve().parent.parent / "README.md"
(TOUR,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def follow(code):
    """Run the code line by line as a reader would; every promise in a comment is checked."""
    names, lines = {}, code.splitlines()
    for statement in ast.parse(code).body:
        source, comment = ast.unparse(statement), lines[statement.end_lineno - 1].partition("  # ")[2]
        if comment.startswith("refused"):
            with pytest.raises(dk.DiagkitError):
                exec(source, names)
        elif isinstance(statement, ast.Expr):
            shown = str(eval(source, names))
            assert shown
            assert not comment.startswith("-> ") or shown == comment.removeprefix("-> "), source
        else:
            exec(source, names)


def test_the_tour_keeps_its_promises():
    assert TOUR.count("# ->") >= 3
    assert TOUR.count("# refused") == 1
    follow(TOUR)


@pytest.mark.parametrize("line", ["1 + 1  # -> 3", "2  # refused: too small", "unknown"])
def test_a_broken_promise_is_seen(line):
    with pytest.raises((AssertionError, NameError, pytest.fail.Exception)):
        follow(line)
