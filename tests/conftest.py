"""What every test may ask for: golden text that a flag rewrites, and property tests that repeat exactly."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

GOLDEN = Path(__file__).resolve().parent / "golden"

# derandomize: the same cases on every machine and run. No deadline: sympy's caches make a first call slow.
hypothesis.settings.register_profile("diagkit", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("diagkit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what is produced now")


class Golden:
    """Compares text with the file of that name under a folder, byte for byte; rewrites the file when updating."""

    def __init__(self, folder: Path, *, update: bool = False) -> None:
        self.folder = folder
        self.update = update

    def __call__(self, name: str, text: str) -> None:
        path = self.folder / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        elif not path.is_file():
            pytest.fail(f"no golden {name}; look at what is produced, then run pytest with --update-golden")
        elif path.read_bytes() != text.encode():
            pytest.fail(f"differs from golden {name} (--update-golden accepts it):\n{changes(path, text)}")


def changes(path: Path, text: str) -> str:
    """The first differing lines; long lines (SVG) are broken at their tags."""
    old, new = (lines(version) for version in (path.read_bytes().decode(), text))
    return "\n".join(list(difflib.unified_diff(old, new, "golden", "now", lineterm="", n=1))[:40])


def lines(text: str) -> list[str]:
    return [repr(line)[1:-1] for line in re.split(r"(?<=\n)|(?<=>)(?=<)", text)]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("flash.svg", text)`: equal to tests/golden/flash.svg, or the test fails with the difference."""
    return Golden(GOLDEN, update=request.config.getoption("--update-golden"))
