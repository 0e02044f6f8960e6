"""Records: what a chapter has checked, as a value that displays its verdict and reaches the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from diagkit.bench import Shown
from diagkit.book.errors import BookError
from diagkit.book.figures import Figures, beside
from diagkit.book.show import count, small

RECORD_TYPE = "application/vnd.diagkit.record+json"
"""The media type under which a displayed record carries itself."""

VOLATILE = ("error", "time_s")
"""What differs from run to run: it travels in the output's metadata, which is not stored or compared."""


@dataclass(frozen=True)
class Record(Shown):
    """One check of a chapter. Errors are largest differences, bytes are counted, `time_s` is in seconds.

    Its display shows nothing that differs from run to run or between machines: an error is shown as being
    below its tolerance. The error and the time themselves are for the report.

    >>> found = Record("both agree", error=2e-7, tolerance=1e-6, bytes_predicted=64, bytes_counted=64)
    >>> found.verdict, found.reason, [name for name, _ in found.rows()]
    ('holds', None, ['check', 'error', 'bytes predicted', 'bytes counted', 'verdict'])
    >>> Record("they do not", error=2.0, tolerance=1e-6).verdict
    'fails: error 2 exceeds 1e-06'
    """

    check: str
    error: float | None = None
    tolerance: float | None = None
    bytes_predicted: int | None = None
    bytes_counted: int | None = None
    time_s: float | None = None
    holds: bool | None = None
    claim: str = ""
    figures: Figures = ()
    source: str = ""

    @property
    def reason(self) -> str | None:
        """What speaks against the check, or None."""
        return (
            ("the statement is false" if self.holds is False else None)
            or error_fault(self.error, self.tolerance)
            or bytes_fault(self.bytes_predicted, self.bytes_counted)
            or figures_fault(self.figures)
        )

    @property
    def verdict(self) -> str:
        """ "holds", or "fails: ..." with the reason."""
        return "holds" if self.reason is None else f"fails: {self.reason}"

    def rows(self) -> list[tuple[str, str]]:
        """What the display shows: names and texts."""
        shown = [
            ("check", self.check),
            ("error", "" if self.error is None else f"at most {small(self.tolerance)}"),
            ("bytes predicted", count(self.bytes_predicted)),
            ("bytes counted", count(self.bytes_counted)),
            *((name, f"{ours}, printed {text}") for name, ours, text in self.figures),
            ("printed in", self.source),
            ("verdict", self.verdict),
        ]
        return [row for row in shown if row[1] and (row[0] != "error" or self._within)]

    @property
    def _within(self) -> bool:
        return error_fault(self.error, self.tolerance) is None

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        parts = asdict(self)
        volatile = {name: parts.pop(name) for name in VOLATILE}
        parts = {name: part for name, part in parts.items() if self.figures or name not in ("figures", "source")}
        data = {"text/plain": str(self), "text/html": self._repr_html_()}
        return {**data, RECORD_TYPE: {**parts, "verdict": self.verdict}}, {RECORD_TYPE: volatile}


def error_fault(error: float | None, tolerance: float | None) -> str | None:
    """Why this error is too large, or None; an error that is no number is too large."""
    if error is None or tolerance is None:
        return None
    return None if error <= tolerance else f"error {small(error)} exceeds {small(tolerance)}"


def bytes_fault(predicted: int | None, counted: int | None) -> str | None:
    """Why the count does not confirm the prediction, or None."""
    if predicted is None or counted is None or predicted == counted:
        return None
    return f"{count(predicted)} bytes predicted, {count(counted)} counted"


def figures_fault(figures: Figures) -> str | None:
    """Which computed figure is not the printed one, or None."""
    wrong = next((row for row in figures if row[1] != row[2]), None)
    return None if wrong is None else f"{wrong[0]}: {wrong[1]}, and {wrong[2]} is printed"


def record(
    check: str,
    *,
    error: Any = None,
    tolerance: Any = None,
    bytes_predicted: Any = None,
    bytes_counted: Any = None,
    time_s: Any = None,
    holds: Any = None,
    claim: str = "",
    figures: Mapping[str, Any] | None = None,
) -> Record:
    """What was checked, with its verdict; displayed as the last line of a cell it reaches the report.

    * `check`: a short sentence. `error` and `tolerance`: largest difference and what is allowed.
    * `bytes_predicted`, `bytes_counted`: whole numbers; where both are given they must be equal.
    * `time_s`: a time in seconds, or what `timed` returns; only the report shows it.
    * `holds`: a statement that must be true. `claim`: the entry of data/claims.toml that this confirms.
    * `figures`: computed numbers by name, to be those that data/figures.toml has of that claim.

    Errors: BookError where nothing is checked, or an error comes without tolerance.

    >>> print(record("counted = formula", bytes_predicted=4096, bytes_counted=4096))
    check            counted = formula
    bytes predicted  4,096
    bytes counted    4,096
    verdict          holds
    >>> record("attention", error=float("nan"), tolerance=1e-6).verdict
    'fails: error nan exceeds 1e-06'
    """
    rows, source = beside(figures, claim) if figures else ((), "")
    made = Record(
        check,
        number(error, "error"),
        number(tolerance, "tolerance"),
        whole(bytes_predicted, "bytes_predicted"),
        whole(bytes_counted, "bytes_counted"),
        number(getattr(time_s, "median_s", time_s), "time_s"),
        None if holds is None else bool(holds),
        claim,
        rows,
        source,
    )
    reason = emptiness(made)
    if reason:
        raise BookError(
            f"record {check!r} {reason}", remedy="give error= and tolerance=, both bytes, figures=, or holds="
        )
    return made


def emptiness(made: Record) -> str | None:
    """Why this record could not fail, or None."""
    if (made.error is None) != (made.tolerance is None):
        return "has an error without tolerance, or a tolerance without error"
    counted = made.bytes_predicted is not None and made.bytes_counted is not None
    checked = made.error is not None or counted or made.holds is not None or made.figures
    return None if checked else "checks nothing"


def number(value: Any, name: str) -> float | None:
    """A plain float from a number of any library, or None from None."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError):
        raise BookError(f"{name} {value!r} is no number", remedy="give a number, or one array's .max()") from None


def whole(value: Any, name: str) -> int | None:
    """A plain int from a whole number of any library, or None from None; 1.5 is refused."""
    try:
        made = None if value is None else int(value)
    except (TypeError, ValueError):
        raise BookError(f"{name} {value!r} is no number", remedy="put sizes in for the symbols") from None
    if made is not None and made != value:
        raise BookError(f"{name} {value!r} is not whole", remedy="use exact counts, with ceilings")
    return made
