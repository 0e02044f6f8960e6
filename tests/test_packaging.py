"""One pinned set, three files that must agree on it, a wheel that carries data/, and commands that exist."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
BY_ITSELF = {"browser"}  # installed by `make browser` only, which also needs a browser of the machine
PAIR = {"torch": "2.13.0", "triton": "3.7.1"}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pins(lines):
    """name -> version of every `name==version` among the lines, comments and markers apart."""
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)(\s*;.*)?", line.strip())
        if match:
            found[canonicalize_name(match[1])] = match[2]
    return found


PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
CONSTRAINTS = pins(text("constraints.txt").splitlines())
ENVIRONMENT = [line.strip().removeprefix("- ") for line in text("environment.yml").splitlines()]
GROUPS = {"core": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
REQUIREMENTS = [(group, Requirement(line)) for group, lines in GROUPS.items() for line in lines]


def fault(requirement, pinned):
    """Why the pinned set does not serve this requirement, or None."""
    version = pinned.get(canonicalize_name(requirement.name))
    if version is None:
        return f"{requirement.name} is not pinned"
    return None if requirement.specifier.contains(version) else f"{requirement} excludes the pinned {version}"


@pytest.mark.parametrize(("group", "requirement"), REQUIREMENTS, ids=str)
def test_every_dependency_is_pinned_within_its_bounds(group, requirement):
    assert fault(requirement, CONSTRAINTS) is None, group


def test_a_missing_or_excluded_pin_is_seen():
    assert fault(Requirement("numpy>=2"), {}) == "numpy is not pinned"
    assert fault(Requirement("numpy>=2"), {"numpy": "1.26"}) == "numpy>=2 excludes the pinned 1.26"


def test_the_constraints_are_exact_public_releases_each_named_once():
    lines = [line for line in text("constraints.txt").splitlines() if not line.startswith("#")]
    assert len(pins(lines)) == len(lines)
    assert all(Version(version).local is None for version in CONSTRAINTS.values())


def test_torch_and_triton_are_the_pair_that_goes_together():
    assert {name: CONSTRAINTS[name] for name in PAIR} == PAIR


def test_the_core_needs_numpy_and_sympy_only():
    assert {Requirement(line).name for line in GROUPS["core"]} == {"numpy", "sympy"}


def test_triton_is_asked_for_on_linux_only():
    (triton,) = (requirement for _, requirement in REQUIREMENTS if requirement.name == "triton")
    systems = [name for name in ("linux", "darwin", "win32") if triton.marker.evaluate({"sys_platform": name})]
    assert systems == ["linux"]


def test_the_conda_environment_agrees_with_the_pinned_set():
    pinned = pins(ENVIRONMENT)
    assert pinned == {name: CONSTRAINTS[name] for name in pinned}
    assert pinned == PAIR
    assert "--constraint constraints.txt" in ENVIRONMENT


def test_the_conda_environment_installs_every_extra_on_a_supported_python():
    (editable,) = (line for line in ENVIRONMENT if line.startswith("--editable"))
    extras = Requirement(editable.replace("--editable .", "diagkit")).extras
    assert extras == set(PROJECT["optional-dependencies"]) - BY_ITSELF
    (python,) = (line.removeprefix("python=") for line in ENVIRONMENT if line.startswith("python="))
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(f"{python}.1")


def test_make_installs_the_extras_that_the_project_has():
    (extras,) = re.findall(r"--editable '\.\[(.*)\]'", text("Makefile"))
    assert set(extras.split(",")) == set(PROJECT["optional-dependencies"]) - BY_ITSELF
    assert "grep '^playwright=='" in text("Makefile")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built with what is installed: no network, no isolation."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_carries_the_data_and_nothing_of_the_repository_around_it(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    data = [path.relative_to(ROOT / "data").as_posix() for path in (ROOT / "data").rglob("*") if path.is_file()]
    assert sorted(name.removeprefix("diagkit/_data/") for name in names if "_data/" in name) == sorted(data)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"diagkit"}


def test_the_wheel_says_that_it_is_typed_and_under_which_licence(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "diagkit/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_installed_wheel_finds_its_own_data(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "from diagkit.machine import data_path, load; print(data_path('machines')); print(load('T4').name)"
    command = [sys.executable, "-c", code]
    # -c puts the working folder first on the path: the unpacked wheel is imported, not the repository.
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120).stdout
    assert out.splitlines() == [str(tmp_path / "diagkit" / "_data" / "machines"), "T4"]


def targets():
    return set(re.findall(r"^([a-z]+):(?!=)", text("Makefile"), re.MULTILINE))


def test_every_command_of_the_readme_is_a_target():
    code = "\n".join(re.findall(r"```.*?```|`[^`]+`", text("README.md"), re.DOTALL))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", code, re.MULTILINE))
    assert named >= {"walk", "test", "lab", "install", "bench", "gpu", "clean"}
    assert named <= targets()


def test_continuous_integration_runs_what_people_run():
    assert re.search(r"^make test$", text(".ci/run"), re.MULTILINE)
    assert re.search(r"^ +make browser$", text(".ci/run"), re.MULTILINE)
    assert "browser test not run: " in text(".ci/run")
    assert "set -euo pipefail" in text(".ci/run")


def test_files_named_in_the_readme_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", text("README.md"))
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
