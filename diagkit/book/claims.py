"""The paper's claims: data/claims.toml, each beside the record of the run that confirms it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from diagkit.book.errors import BookError
from diagkit.book.record import Record
from diagkit.book.run import Chapter

VERDICTS = ("reproduced", "differs", "needs a GPU")


@dataclass(frozen=True)
class Claim:
    """One claim of the paper: `chapter` that touches it, `paper` (place there), `claim` (what it says),
    `ours` (our value), `verdict`, `why` (it differs), `recorded` (result, device and date on a GPU)."""

    id: str
    chapter: str
    paper: str
    claim: str
    ours: str
    verdict: str
    why: str = ""
    recorded: str = ""

    @property
    def stated(self) -> str:
        """The verdict with what belongs to it."""
        extra = {"differs": self.why, "needs a GPU": self.recorded or "none recorded yet"}.get(self.verdict, "")
        return f"{self.verdict} ({extra})" if extra else self.verdict

    def outcome(self, chapters: Iterable[Chapter]) -> str:
        """What a run says to it: "confirmed", "not confirmed", or "not run"."""
        if self.verdict == "needs a GPU":
            return "recorded" if self.recorded else "not run"
        ran = [chapter for chapter in chapters if chapter.number == self.chapter]
        witnesses = [record for chapter in ran for record in chapter.records if self.id in record.claim.split()]
        if not ran:
            return "not run"
        return "confirmed" if witnesses and not any(record.reason for record in witnesses) else "not confirmed"


def load(path: Path | None = None) -> list[Claim]:
    """The claims of a file, by default data/claims.toml. Errors: BookError naming the entry and the field."""
    from diagkit.machine import data_path

    text = (path or data_path("claims.toml")).read_text(encoding="utf-8")
    claims = [claim(entry) for entry in tomllib.loads(text).get("claim", [])]
    twice = [one.id for place, one in enumerate(claims) if one.id in [other.id for other in claims[:place]]]
    if twice:
        raise BookError(f"claim {twice[0]!r} stands twice in claims.toml", remedy="give each entry an id of its own")
    return claims


def claim(entry: dict[str, Any]) -> Claim:
    """One entry, once nothing speaks against it."""
    reason = fault(entry)
    if reason:
        raise BookError(f"claim {entry.get('id', '?')!r} {reason}", remedy=f"verdicts: {', '.join(VERDICTS)}")
    return Claim(**entry)


def fault(entry: dict[str, Any]) -> str | None:
    """Why this entry is no claim, or None."""
    allowed = [field.name for field in fields(Claim)]
    unknown = [name for name in entry if name not in allowed]
    absent = [name for name in allowed[:6] if not str(entry.get(name, "")).strip()]
    return (
        (f"has an unknown field {unknown[0]}" if unknown else None)
        or (f"has no {absent[0]}" if absent else None)
        or (None if entry["verdict"] in VERDICTS else f"has the verdict {entry['verdict']!r}")
        or ("differs without saying why" if entry["verdict"] == "differs" and not entry.get("why") else None)
    )


def unknown_claims(claims: Iterable[Claim], records: Iterable[Record]) -> list[str]:
    """The claims that records name and no entry describes."""
    known = {one.id for one in claims}
    return sorted({name for record in records for name in record.claim.split()} - known)
