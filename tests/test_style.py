"""The sizes that STYLE.md promises: short functions, files of one subject, names that say something."""

from __future__ import annotations

import ast
from pathlib import Path
from statistics import median, quantiles

PACKAGE = Path(__file__).resolve().parent.parent / "diagkit"
FILES = sorted(PACKAGE.rglob("*.py"))
VAGUE = {"utils", "util", "helpers", "helper", "misc", "common", "tools"}


def functions(source):
    """(name, lines without the docstring) of every function in the source, methods and inner ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            said = node.body[0] if ast.get_docstring(node) else None
            yield node.name, node.end_lineno - node.lineno + 1 - (said.end_lineno - said.lineno + 1 if said else 0)


def too_long(source, most=45):
    return [name for name, lines in functions(source) if lines > most]


def test_functions_are_short():
    sizes = [lines for path in FILES for _, lines in functions(path.read_text(encoding="utf-8"))]
    assert median(sizes) <= 5
    assert quantiles(sizes, n=10)[-1] <= 16
    assert [name for path in FILES for name in too_long(path.read_text(encoding="utf-8"))] == []


def test_files_are_short():
    assert {path.name: n for path in FILES if (n := path.read_text(encoding="utf-8").count("\n")) > 450} == {}


def test_files_are_named_after_what_they_hold():
    assert VAGUE & {path.stem for path in FILES} == set()


def test_a_long_function_is_seen_and_its_docstring_is_free():
    body = "    x = 1\n" * 45
    assert too_long(f"def long():\n{body}def short():\n    '''a\n    b'''\n    return 1\n") == ["long"]
    assert list(functions("def f():\n    '''a\n    b'''\n    return 1\n")) == [("f", 2)]
