"""Figures that a source prints, read from data/figures.toml, beside those that a chapter computes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diagkit.book.errors import BookError

Figures = tuple[tuple[str, str, str], ...]
"""(name, computed, printed), both with as many digits as are printed."""


def printed(claims: str, path: Path | None = None) -> tuple[dict[str, str], str]:
    """The figures of the claims named (ids with spaces between), as printed by name; and their sources.

    Errors: BookError for a claim without figures, and for a figure or table that is not as it must be.

    >>> printed("fa3-utilization")[0]
    {'fp16, % of the peak': '75', 'fp8, % of the peak': '60'}
    """
    from diagkit.machine import data_path

    tables = tomllib.loads((path or data_path("figures.toml")).read_text(encoding="utf-8"))
    chosen = [_table(tables, name) for name in claims.split()]
    sources = dict.fromkeys(table["source"] for table in chosen)
    figures = {name: text for table in chosen for name, text in table.items() if name != "source"}
    return figures, "; ".join(sources)


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, str]:
    found = tables.get(name)
    if found is None:
        raise BookError(f"no figures of {name!r}", remedy=f"data/figures.toml has: {', '.join(tables)}")
    wrong = [key for key, text in found.items() if not isinstance(text, str) or not text.strip()]
    if wrong or "source" not in found:
        remedy = "write figures as they are printed, in quotes, and where they stand"
        raise BookError(f"figures of {name!r}: {wrong[0] if wrong else 'no source'}", remedy=remedy)
    return dict(found)


def beside(computed: Mapping[str, Any], claims: str, path: Path | None = None) -> tuple[Figures, str]:
    """Each computed number beside the printed one, with as many digits; and the sources.

    Errors: BookError where the two do not have the same names.

    >>> beside({"fp16, % of the peak": 75.04, "fp8, % of the peak": 61}, "fa3-utilization")[0]
    (('fp16, % of the peak', '75', '75'), ('fp8, % of the peak', '61', '60'))
    """
    known, source = printed(claims, path)
    strange = [name for name in {**computed, **known} if (name in computed) != (name in known)]
    if strange:
        raise BookError(f"{strange[0]!r} is not on both sides", remedy=f"printed are: {', '.join(known)}")
    digits = {name: len(text.partition(".")[2]) for name, text in known.items()}
    return tuple((name, f"{float(computed[name]):.{digits[name]}f}", text) for name, text in known.items()), source
