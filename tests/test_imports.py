"""The plan of the house: imports run only downward, and heavy packages stay outside until asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "diagkit"
ROOMS_BELOW_THE_HALL = {"term", "ops", "machine", "derive", "cost", "program", "draw", "codegen", "bench"}

# Room -> the rooms it may know. Siblings (derive, cost, program, draw) know nothing of each other: the
# count that program makes is a witness for cost only while it cannot see cost.
PLAN = {
    "term": set(),
    "ops": {"term"},
    "machine": {"term"},
    "derive": {"term", "ops"},
    "cost": {"term", "ops"},
    "program": {"term", "ops"},
    "draw": {"term", "ops"},
    "codegen": {"term", "ops", "program"},
    "bench": {"term", "ops", "machine", "program", "codegen"},
    "diagram": ROOMS_BELOW_THE_HALL,
    "explore": ROOMS_BELOW_THE_HALL | {"diagram"},
    "book": ROOMS_BELOW_THE_HALL | {"diagram"},
}
HEAVY = ("torch", "numba", "triton", "matplotlib", "ipywidgets", "IPython", "scipy")
# Needed by nobody who only imports, draws and counts; not blocked below since test tools may load it.
EXTRAS = (*HEAVY, "ml_dtypes", "nbclient", "nbconvert", "nbformat")


def room_of(path):
    """The room that a file of the package belongs to; "" for the package's own __init__."""
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first in ("__init__.py", "__main__.py") else first.removesuffix(".py")


def imported(source):
    """Every module that the source imports, wherever in it, as absolute dotted names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "." * node.level
            else:
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            yield node.lineno, str(getattr(node.args[0], "value", "?")) if node.args else "?"


def called(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def faults(room, source):
    """Each import of diagkit in the source of a file in that room that the plan has no arrow for."""
    for line, name in imported(source):
        top, _, rest = name.partition(".")
        if not top:
            yield f"{line}: relative import"
        elif top == "diagkit":
            target = rest.split(".")[0]
            if target != room and target not in PLAN[room]:
                yield f"{line}: {room} -> {target or 'diagkit'}"


FILES = sorted(path for path in PACKAGE.rglob("*.py") if room_of(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_run_downward(path):
    assert list(faults(room_of(path), path.read_text(encoding="utf-8"))) == []


def test_every_room_is_on_the_plan():
    assert {room_of(path) for path in FILES} <= set(PLAN)


def test_the_plan_has_no_circle():
    assert next(iter(TopologicalSorter(PLAN).static_order())) == "term"


def test_a_circle_in_the_plan_is_seen():
    with pytest.raises(CycleError):
        TopologicalSorter(PLAN | {"term": {"cost"}}).prepare()


WRONG = {
    "import diagkit.derive": ("cost", ["1: cost -> derive"]),
    "from diagkit.cost import transfers": ("program", ["1: program -> cost"]),
    "from diagkit import cost as witness": ("program", ["1: program -> cost"]),
    "import diagkit": ("draw", ["1: draw -> diagkit"]),
    "def f():\n    from diagkit.machine.files import load": ("cost", ["2: cost -> machine"]),
    "from importlib import import_module\nimport_module('diagkit.diagram')": ("ops", ["2: ops -> diagram"]),
    "if TYPE_CHECKING:\n    from diagkit.diagram import Diagram": ("bench", ["2: bench -> diagram"]),
    "from .. import cost": ("program", ["1: relative import"]),
    "from diagkit.book import record": ("diagram", ["1: diagram -> book"]),
}


@pytest.mark.parametrize("source", WRONG)
def test_an_arrow_upward_or_sideways_is_seen(source):
    room, expected = WRONG[source]
    assert list(faults(room, source)) == expected


def test_an_arrow_downward_or_within_a_room_is_not():
    source = "import sympy\nimport diagkit.term\nfrom diagkit import ops\nfrom diagkit.draw.scene import Scene"
    assert list(faults("draw", source)) == []


# A target's modules load when it is asked for (codegen.TARGETS), so the front of codegen does not name them.
BESIDE_THE_FRONT = {("bench", "codegen")}


def side_doors(room, source):
    """Each import from inside another room: rooms speak to one another through what their front exports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module.startswith("diagkit."):
            target, *inside = node.module.split(".")[1:]
            if inside and target != room and (room, target) not in BESIDE_THE_FRONT:
                yield f"{node.lineno}: {room} -> {'.'.join([target, *inside])}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_rooms_are_entered_by_the_front(path):
    assert list(side_doors(room_of(path), path.read_text(encoding="utf-8"))) == []


def test_a_side_door_is_seen():
    source = (
        "from diagkit.ops import Engine\nfrom diagkit.ops.evaluate import Engine\nfrom diagkit.draw.svg import mark"
    )
    assert list(side_doors("draw", source)) == ["2: draw -> ops.evaluate"]


MADE_BY_SYMBOLS = {"Symbol", "symbols", "Dummy", "Wild", "MatrixSymbol", "parse_expr"}


def made_symbols(source):
    """The lines on which the source makes a sympy symbol by itself."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [node.lineno for node in calls if called(node) in MADE_BY_SYMBOLS]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_symbols_are_made_in_one_place(path):
    """A symbol of the same name with other assumptions is another symbol, and then sums stop simplifying."""
    expected = path == PACKAGE / "term" / "symbols.py"
    assert bool(made_symbols(path.read_text(encoding="utf-8"))) == expected


def test_a_symbol_made_elsewhere_is_seen():
    assert made_symbols("import sympy\nq = sympy.Symbol('q')\ns = [sympy.Dummy()]") == [2, 3]
    assert made_symbols("from sympy import symbols\nif isinstance(a, sympy.Symbol):\n    symbols('x')") == [3]


def patches(source):
    """The lines on which the source writes an attribute of something that another file of diagkit defines."""
    tree = ast.parse(source)
    names = {alias.asname or alias.name.split(".")[0] for alias in aliases(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            written = node.value
        elif isinstance(node, ast.Call) and called(node) in {"setattr", "delattr", "__setattr__"} and node.args:
            written = node.args[0]
        else:
            continue
        if names & {root(written)}:
            yield node.lineno


def aliases(tree):
    """What the tree imports from diagkit."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            yield from (alias for alias in node.names if (module or alias.name).startswith("diagkit"))


def root(node):
    """The name that a dotted expression starts with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_is_patched_onto_what_another_file_defines(path):
    assert list(patches(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line", ["Term.svg = draw", "term.Term.svg = draw", "setattr(Term, 'svg', draw)", "del Term.svg", "Term.n += 1"]
)
def test_a_patch_is_seen(line):
    assert list(patches(f"from diagkit import term\nfrom diagkit.term import Term\n{line}")) == [3]


def test_writing_to_what_the_file_made_itself_is_no_patch():
    source = "class Own(Term):\n    def __init__(self):\n        self.n = 1\nOwn.n = 2\nsys.stdout = sys.stderr"
    assert list(patches(f"import sys\nfrom diagkit.term import Term\n{source}")) == []


def python(code, **options):
    """What a fresh interpreter prints for this code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=120, **options)


LOADED = f"import sys, {{module}}; print(*sorted(set({EXTRAS}) & set(sys.modules)))"


def test_importing_loads_none_of_the_heavy_packages():
    assert python(LOADED.format(module="diagkit")).stdout.split() == []


def test_an_explorer_loads_its_controls_only_when_it_is_displayed():
    assert python(LOADED.format(module="diagkit.explore")).stdout.split() == []


def test_a_heavy_package_that_is_loaded_is_seen():
    assert "scipy" in python(LOADED.format(module="scipy")).stdout.split()


BLOCK = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ImportError(name + " is blocked", name=name)

sys.meta_path.insert(0, Blocker())
"""
CORE = """
import numpy as np
import diagkit as dk
q, x, d = dk.axes("q x d")
Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
P = dk.softmax(dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5, over=x)
naive = dk.Diagram(dk.einsum("q x, x d -> q d", P, V), name="attention")
flash = naive.fuse().group(q="g_q").stream(x="s_x")
print(flash.svg()[:4])
print(naive.transfers().total())
print(flash.transfers().relaxed().total())
print(flash.memory().peak())
rng = np.random.default_rng(0)
given = {name: rng.standard_normal((n, 8)) for name, n in (("Q", 5), ("K", 7), ("V", 7))}
(expected,) = naive(**given).values() if isinstance(naive(**given), dict) else (naive(**given),)
weights = np.exp(given["Q"] @ given["K"].T / np.sqrt(8))
print(np.abs(expected - weights / weights.sum(1, keepdims=True) @ given["V"]).max() < 1e-12)
program = flash.lower(q=5, x=7, d=8, g_q=2, s_x=3)
print(np.abs(program.run(**given) - expected).max() < 1e-12)
"""


def test_drawing_costs_and_programs_need_numpy_and_sympy_only():
    picture, naive, flash, peak, evaluated, run = python(BLOCK + CORE).stdout.splitlines()
    assert picture == "<svg"
    assert naive == "2*d*q + 2*d*x + 6*q*x"  # three wires of q x make a round trip: product, scaled, softmax
    assert flash == "2*d*q + 2*d*q*x/g_q"
    assert peak == "2*d*g_q + 2*d*s_x + g_q*s_x + 2*g_q"
    assert (evaluated, run) == ("True", "True")


@pytest.mark.parametrize("name", HEAVY)
def test_what_is_blocked_cannot_be_imported(name):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        python(f"{BLOCK}\nimport {name}.anything")
    assert f"{name} is blocked" in caught.value.stderr
