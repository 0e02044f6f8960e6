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


def python(code, **options):
    """What a fresh interpreter prints for this code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8", timeout=120, **options)


LOADED = f"import sys, {{module}}; print(*sorted(set({EXTRAS}) & set(sys.modules)))"


def test_importing_loads_none_of_the_heavy_packages():
    assert python(LOADED.format(module="diagkit")).stdout.split() == []


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
import diagkit as dk
q, x, d = dk.axes("q x d")
Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
P = dk.softmax(dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5, over=x)
naive = dk.Diagram(dk.einsum("q x, x d -> q d", P, V), name="attention")
flash = naive.fuse().group(q="g_q")
print(flash.svg()[:4])
print(flash.transfers().relaxed().total())
print(naive.transfers().total())
print(flash.memory().peak())
"""


def test_drawing_and_costs_need_numpy_and_sympy_only():
    picture, grouped, naive, peak = python(BLOCK + CORE).stdout.splitlines()
    assert picture == "<svg"
    assert grouped == "2*d*q + 2*d*q*x/g_q"
    assert naive == "2*d*q + 2*d*x + 6*q*x"  # three wires of q x make a round trip: product, scaled, softmax
    assert peak == "d*g_q + 2*d*x + g_q*x"


@pytest.mark.parametrize("name", HEAVY)
def test_what_is_blocked_cannot_be_imported(name):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        python(f"{BLOCK}\nimport {name}.anything")
    assert f"{name} is blocked" in caught.value.stderr
