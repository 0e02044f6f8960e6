"""The explorer in a real browser: JupyterLab opens a notebook, a slider moves by keyboard, the numbers follow.

Run with ``make browser``; the ordinary suite leaves it out, as it needs playwright and a Chromium.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import diagkit as dk
from diagkit.explore.figure import lines

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "build" / "explorer.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_S, STEP_S = 120, 20
LIMIT_S = 0.2
CELL = """
import diagkit as dk

q, x, d = dk.axes("q x d")
Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
P = dk.softmax(dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5, over=x)
O = dk.einsum("q x, x d -> q d", P, V)
flash = dk.Diagram(O, name="attention").fuse().group(q="g_q").stream(x="s_x")
explorer = dk.Explorer(flash, machine="H100-SXM", q=4096, x="q", d=128, g_q=64, s_x=64)
explorer
""".strip()


def browser_path() -> str | None:
    """A Chromium of this machine, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def missing() -> str | None:
    """Why the test cannot run here, or None."""
    try:
        import playwright.sync_api  # noqa: F401 - whether it is there is the question
    except ImportError as error:
        return f"playwright is not installed ({error})"
    return None if browser_path() else f"no browser is installed (looked for {', '.join(BROWSERS)})"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """JupyterLab on a free port, with a notebook of one cell; yields the notebook's address."""
    import nbformat

    cell = nbformat.v4.new_code_cell(CELL)
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata=spec)
    (tmp_path / "explorer.ipynb").write_text(nbformat.writes(notebook), encoding="utf-8")
    port, token = free_port(), secrets.token_hex(16)
    server = started(tmp_path, port, token)
    try:
        wait_until_open(f"http://127.0.0.1:{port}/api/status?token={token}", server, tmp_path / "server.log")
        yield f"http://127.0.0.1:{port}/lab/tree/explorer.ipynb?token={token}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def started(folder: Path, port: int, token: str) -> subprocess.Popen[bytes]:
    """The server, with settings and files of its own in that folder."""
    own = {
        name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    own["JUPYTERLAB_SETTINGS_DIR"] = str(quiet(folder / "settings"))
    own |= {
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={token}"]
    options += ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}"]
    command = [sys.executable, "-m", "jupyterlab", *options]
    with (folder / "server.log").open("wb") as log:
        return subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)


def quiet(settings: Path) -> Path:
    """Settings of JupyterLab under which it asks nothing and fetches nothing."""
    path = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    path.parent.mkdir(parents=True)
    path.write_text('{"fetchNews": "false", "checkForUpdates": false}', encoding="utf-8")
    return settings


def wait_until_open(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"the server did not open: {log.read_text(encoding='utf-8')}")


@pytest.fixture
def page(lab: str) -> Iterator[Any]:
    """The notebook in the browser, its cell run; leaves a picture of how the test ended in build/."""
    reason = missing()
    assert reason is None, reason
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1400, "height": 1280})
        opened.set_default_timeout(START_S * 1000)
        try:
            run_first_cell(opened, lab)
            yield opened
        finally:
            PICTURE.parent.mkdir(exist_ok=True)
            opened.screenshot(path=PICTURE)
            browser.close()


def run_first_cell(opened: Any, address: str) -> None:
    """Open the notebook, wait for its kernel, run its cell."""
    opened.goto(address)
    opened.get_by_text("| Idle").first.wait_for()
    opened.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    opened.keyboard.press("Control+Enter")
    opened.locator(".jp-OutputArea-output svg[role=img]").first.wait_for()


def figure(page: Any, words: str) -> Any:
    """The figure, once it says these words."""
    found = page.locator(".jp-OutputArea-output svg[role=img]", has_text=words).first
    found.wait_for(timeout=STEP_S * 1000)
    return found


def press_tab_to_the_next_slider(page: Any) -> None:
    """Past what else takes the focus: the number beside a slider does."""
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "slider":
            return
    pytest.fail("no slider takes the focus")


def moved(explorer: dk.Explorer) -> str:
    """What the figure of an explorer says about its transfers."""
    return f"Moved: {explorer.reading.moved:,} bytes"


def time_of(explorer: dk.Explorer) -> str:
    """What the figure of an explorer says about its bounds."""
    return next(text for text, _ in lines(explorer.reading) if text.startswith("Waits for"))


def pressed(page: Any, key: str, then: dk.Explorer) -> float:
    """Seconds from a key to the figure of that explorer; its number is not the one that stood there."""
    words = moved(then)
    assert page.locator(".jp-OutputArea-output svg[role=img]", has_text=words).count() == 0
    begun = time.perf_counter()
    page.keyboard.press(key)
    figure(page, words)
    return time.perf_counter() - begun


def limit() -> float:
    """0.2 s for a step on a machine that has nothing else to do; as many times that as each core has tasks."""
    tasks = getattr(os, "getloadavg", lambda: (1.0,))()[0]
    return LIMIT_S * max(1.0, tasks / (os.cpu_count() or 1))


def test_a_slider_moves_by_keyboard_and_the_numbers_follow(page: Any) -> None:
    namespace: dict[str, Any] = {}
    exec(CELL, namespace)
    explorer: dk.Explorer = namespace["explorer"]
    choices = explorer.choices("g_q")
    turned = explorer.at(g_q=choices[choices.index(64) + 1])
    figure(page, moved(explorer))
    page.locator(".widget-slider", has=page.locator("label", has_text="g_q")).locator("[role=slider]").focus()
    took = [pressed(page, "ArrowRight", turned), pressed(page, "ArrowLeft", explorer)]
    took += [pressed(page, "ArrowRight", turned), pressed(page, "ArrowLeft", explorer)]
    took += [pressed(page, "ArrowRight", turned)]
    sys.stdout.write(f"from the key to the changed number: {', '.join(f'{1e3 * one:.0f}' for one in took)} ms\n")
    assert min(took) < limit()

    press_tab_to_the_next_slider(page)
    for tile in (32, 16, 8):
        page.keyboard.press("ArrowLeft")
        figure(page, f"s_x = {tile}")
    figure(page, "Cannot run: s_x = 8 is no multiple of 16: matrix instructions.")
    menu = page.locator(".widget-dropdown", has=page.locator("label", has_text="machine"))
    menu.locator("select").select_option("T4", timeout=STEP_S * 1000)
    figure(page, "Time on T4")
    figure(page, time_of(turned.at(machine="T4", s_x=8)))


if __name__ == "__main__":
    sys.exit(missing())
