"""The report of a run: build/report.json for programs, build/report.html for people, one page without network."""

from __future__ import annotations

import datetime as dt
import json
import math
import platform
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from diagkit.book.claims import Claim, unknown_claims
from diagkit.book.page import page
from diagkit.book.run import Chapter
from diagkit.book.show import count, seconds, small
from diagkit.machine import aligned, here

PACKAGES = ("numpy", "sympy", "numba", "torch", "triton", "matplotlib")
SHORTEST = 30
HEAD = ("chapter", "what was checked", "error", "bytes predicted", "time", "verdict")


@dataclass(frozen=True)
class Report:
    """A run of chapters, the claims it bears on, the machine it ran on and the date."""

    chapters: Sequence[Chapter]
    claims: Sequence[Claim]
    machine: Any
    made: str

    @property
    def reasons(self) -> list[str]:
        """What speaks against the run: one line per chapter or claim; empty where all is well."""
        bad = [f"{chapter.title}: {chapter.reason}" for chapter in self.chapters if chapter.reason]
        records = [record for chapter in self.chapters for record in chapter.records]
        unknown = unknown_claims(self.claims, records)
        bad += [f"claim {name}: a record names it, claims.toml does not" for name in unknown]
        lost = [claim.id for claim in self.claims if claim.outcome(self.chapters) == "not confirmed"]
        return bad + [f"claim {name}: not confirmed" for name in lost]

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a row per record, and one for what stopped a chapter."""
        return [row for chapter in self.chapters for row in chapter_rows(chapter)]

    def text(self) -> str:
        """The table as text, no wider than the terminal as far as the sentences allow; under it what went wrong."""
        rows = [HEAD, *self.rows()]
        over = max(map(len, aligned(rows))) - shutil.get_terminal_size((160, 24)).columns
        longest = max(SHORTEST, max(len(row[1]) for row in rows) - over)
        return "\n".join([*aligned([(row[0], shortened(row[1], longest), *row[2:]) for row in rows]), *self.reasons])

    def data(self) -> dict[str, Any]:
        """The whole report as plain data. Times in seconds, bytes as whole numbers."""
        return {
            "made": self.made,
            "machine": {"name": self.machine.name, **dict(self.machine.about)},
            "numbers": [asdict(number) for number in self.machine.numbers],
            "versions": versions(),
            "chapters": [chapter_data(chapter) for chapter in self.chapters],
            "claims": [{**asdict(claim), "outcome": claim.outcome(self.chapters)} for claim in self.claims],
            "reasons": self.reasons,
        }

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write report.html and report.json into the folder and return where they are."""
        folder.mkdir(parents=True, exist_ok=True)
        html, data = folder / "report.html", folder / "report.json"
        text = json.dumps(self.data(), indent=1, ensure_ascii=False)
        data.write_text(text + "\n", encoding="utf-8")
        html.write_text(page(self), encoding="utf-8")
        return html, data


def shortened(text: str, longest: int) -> str:
    """The text, its end left out where it is too long.

    >>> shortened("fusing removes exactly the trips", 20)
    'fusing removes ex...'
    """
    return text if len(text) <= longest else text[: longest - 3] + "..."


def make(chapters: Iterable[Chapter], claims: Iterable[Claim]) -> Report:
    """The report of these chapters, made now on this machine."""

    now = dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Report(tuple(chapters), tuple(claims), here(), now)


def chapter_rows(chapter: Chapter) -> list[tuple[str, ...]]:
    """The rows of one chapter; its name stands in the first."""
    rows = [
        (record.check, small(record.error), count(record.bytes_predicted), seconds(record.time_s), record.verdict)
        for record in chapter.records
    ]
    if chapter.failure:
        rows.append((f"stopped at {chapter.failure}", "", "", "", "fails"))
    rows.append(("the whole chapter", "", "", seconds(chapter.time_s), "fails" if chapter.reason else "holds"))
    return [(chapter.title if place == 0 else "", *row) for place, row in enumerate(rows)]


def chapter_data(chapter: Chapter) -> dict[str, Any]:
    """One chapter as plain data; an error that is no number becomes null, as JSON wants it."""
    return {
        "file": chapter.path.name,
        "title": chapter.title,
        "time_s": chapter.time_s,
        "reason": chapter.reason,
        "failure": asdict(chapter.failure) if chapter.failure else None,
        "records": [finite({**asdict(record), "verdict": record.verdict}) for record in chapter.records],
    }


def finite(parts: dict[str, Any]) -> dict[str, Any]:
    """The same with null for nan and infinities."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in parts.items()}


def versions() -> dict[str, str]:
    """Python, system and the packages that matter, as far as they are installed."""
    installed = {name: version for name in PACKAGES if (version := version_of(name))}
    return {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}", **installed}


def version_of(package: str) -> str:
    """The installed version, or "" where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def print_report(report: Report) -> None:
    """The table on standard output, whatever letters the terminal knows."""
    encoding = sys.stdout.encoding or "utf-8"
    print(report.text().encode(encoding, "replace").decode(encoding))
