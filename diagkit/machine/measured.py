"""The machine at hand as a machine of its own: timed in about a second, kept, and said to be measured."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diagkit.machine.facts import Machine, Number
from diagkit.term import memory_bytes

ORIGIN = "measured on the machine at hand"
BUDGET_S = 0.4
SYSFS = Path("/sys/devices/system/cpu")


def here(refresh: bool = False) -> Machine:
    """The machine at hand: memory bandwidth, float32 matrix rate, cores, caches where the system tells.

    Measured at the first call of a day (about a second) and kept in the user's cache directory under processor,
    core count and versions, for what was measured beside other work must not stay; `refresh` measures anew.
    Bandwidth counts bytes read and bytes written. What the system does not tell is absent: asking for it raises
    `MachineError` with the field.

    >>> 1e9 < here().bandwidth("global") < 1e13, here().multiprocessors == cores()
    (True, True)
    """
    path, key = cache_file(), identity()
    known = None if refresh else recall(path, key)
    return known or remember(path, key, measure_here())


def measure_here() -> Machine:
    """Time this machine now, whatever is kept.

    >>> measured = measure_here()
    >>> measured.name, measured.number("peak.fp32_flop_per_s").grade
    ('here', 'measured')
    """
    today = day()
    numbers = (*system_facts(), *timed_facts(today))
    threads = f"{cores()} core{'s' if cores() > 1 else ''}"
    about = (("architecture", f"{processor()}, {threads}"), ("note", f"Measured {today} with numpy {np.__version__}."))
    return Machine("here", about, numbers, ORIGIN)


def timed_facts(today: str) -> Iterator[Number]:
    """The two timed numbers: copy bandwidth of memory, and the rate of a float32 matrix product."""
    size, side = copy_size(), 1536
    copy = f"numpy copy of {size >> 20} MiB on {cores()} threads, read and write counted, best of several, {today}"
    yield Number("level.global.bandwidth_bytes_per_s", copy_bandwidth(size), copy, "measured")
    product = f"numpy float32 product of two {side} x {side} matrices, best of several, {today}"
    yield Number("peak.fp32_flop_per_s", matrix_rate(side), product, "measured")


def copy_bandwidth(size: int) -> float:
    """Bytes per second, both directions, of copying `size` bytes with one thread per core."""
    from concurrent.futures import ThreadPoolExecutor  # loads logging, which importing diagkit need not pay for

    source, target = np.ones(size // 4, np.float32), np.zeros(size // 4, np.float32)
    pieces = list(zip(np.array_split(target, cores()), np.array_split(source, cores()), strict=True))
    with ThreadPoolExecutor(cores()) as pool:
        seconds = best(lambda: list(pool.map(lambda pair: np.copyto(*pair), pieces)))
    return 2 * source.nbytes / seconds


def matrix_rate(side: int) -> float:
    """FLOP/s of a float32 product of two square matrices of random numbers: 2 side**3 FLOP."""
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((side, side), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    return 2 * side**3 / best(lambda: np.matmul(a, b, out=out))


def best(action: Callable[[], object], budget_s: float = BUDGET_S) -> float:
    """Seconds of the fastest of at least four runs (the first warms up), within the budget."""
    times: list[float] = []
    action()
    while len(times) < 3 or sum(times) < budget_s:
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def copy_size() -> int:
    """Bytes to copy: four times the last cache, at least 64 MiB, and no more than 1/16 of memory."""
    last = max((size * count for _, size, count in caches()), default=1 << 24)
    return min(max(4 * last, 1 << 26), 1 << 28, (memory_bytes() or 1 << 32) // 16) & ~0xFFFF


def system_facts() -> Iterator[Number]:
    """What the system tells without timing: cores, memory, caches."""
    yield Number("device.multiprocessors", cores(), "cores this process may use", "reported")
    if memory_bytes():
        yield Number("level.global.capacity_bytes", memory_bytes(), "physical memory", "reported")
    for level, size, count in caches():
        source = f"{SYSFS}/cpu*/cache"
        yield Number(f"level.L{level}.capacity_bytes", size, source, "reported")
        yield Number(f"level.L{level}.count", count, source, "reported")


def cores() -> int:
    """Cores that this process may run on.

    >>> 1 <= cores() <= (os.cpu_count() or 1)
    True
    """
    return len(usable_cpus())


def usable_cpus() -> Collection[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def caches(root: Path = SYSFS, cpus: Collection[int] | None = None) -> list[tuple[int, int, int]]:
    """(level, bytes of one, how many) of the data caches of `cpus` (unless given: those that this process may use),
    as Linux tells; empty on other systems."""
    found: dict[int, dict[str, int]] = {}
    usable = usable_cpus() if cpus is None else cpus
    places = [root / f"cpu{cpu}" / "cache" for cpu in sorted(usable)]
    for index in sorted(index for place in places for index in place.glob("index[0-9]*")):
        if first_line(index / "type") != "Instruction" and first_line(index / "size"):
            shared = found.setdefault(int(first_line(index / "level")), {})
            shared[first_line(index / "shared_cpu_list")] = kibibytes(first_line(index / "size"))
    return [(level, max(shared.values()), len(shared)) for level, shared in sorted(found.items())]


def first_line(path: Path) -> str:
    """The text of a one-line system file, or "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def kibibytes(text: str) -> int:
    """Bytes of a size as Linux writes it.

    >>> kibibytes("32K"), kibibytes("8M")
    (32768, 8388608)
    """
    return int(text.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)


def processor() -> str:
    """The processor's name: from Linux's cpuinfo, else from Python's platform module.

    >>> processor() != ""
    True
    """
    lines = first_line(Path("/proc/cpuinfo")).splitlines()
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def identity() -> str:
    """What a kept measurement holds for: processor, cores, system, Python and numpy."""
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    return f"{processor()}, {cores()} cores, {platform.system()}, {versions}"


def cache_file() -> Path:
    """Where measurements are kept: XDG_CACHE_HOME, else the system's own cache directory of the user."""
    homes = {"win32": "~/AppData/Local", "darwin": "~/Library/Caches"}
    base = os.environ.get("XDG_CACHE_HOME") or homes.get(sys.platform, "~/.cache")
    return Path(base).expanduser() / "diagkit" / "here.json"


def kept(path: Path) -> dict[str, dict[str, Any]]:
    """Every kept measurement; a file that is absent or damaged counts as empty, for it can be measured anew."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def day() -> str:
    """Today, in UTC."""
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def recall(path: Path, key: str) -> Machine | None:
    """The machine that was kept today, or None."""
    try:
        entry = kept(path)[key]
        if entry["day"] != day():
            return None
        about = tuple((str(name), str(text)) for name, text in entry["about"])
        numbers = tuple(Number(*fields) for fields in entry["numbers"])
    except (KeyError, TypeError, ValueError):
        return None
    return Machine("here", about, numbers, ORIGIN)


def remember(path: Path, key: str, machine: Machine) -> Machine:
    """Keep the machine where that is possible; a read-only home only means measuring again next time."""
    numbers = [[number.field, number.value, number.source, number.grade] for number in machine.numbers]
    entry = {"day": day(), "about": [list(pair) for pair in machine.about], "numbers": numbers}
    entries = {**kept(path), key: entry}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False), encoding="utf-8")
    except OSError:
        return machine
    return machine
