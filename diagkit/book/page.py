"""The report as one HTML page: no script, no network, readable on white and on black, and in print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from diagkit.book.notebooks import headings
from diagkit.book.show import count, seconds, small

if TYPE_CHECKING:
    from diagkit.book.report import Report
    from diagkit.book.run import Chapter

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5c646e; --line: #d9dde2; --paper: #ffffff; --tint: #f4f6f8;
  --good: #14713d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #dedede; --soft: #9aa3ad; --line: #3a3d42; --paper: #1e1e1e;
  --tint: #27292d; --good: #6fd39b; --bad: #ff8f86; } }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
.page { display: grid; grid-template-columns: 15rem minmax(0, 1fr); gap: 2.5rem; max-width: 84rem; margin: 0 auto;
  padding: 2rem 1.5rem 6rem; }
nav { position: sticky; top: 1.5rem; align-self: start; font-size: 0.9rem; }
nav ol { list-style: none; margin: 0.5rem 0 1.2rem; padding: 0; }
nav a { display: flex; justify-content: space-between; gap: 0.6rem; padding: 0.25rem 0.5rem; border-radius: 4px;
  color: inherit; text-decoration: none; }
nav a:hover, nav a:focus { background: var(--tint); }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 0.4rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 0.4rem; padding-top: 0.8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 0.3rem; }
p { max-width: 44rem; } .soft, figcaption, caption { color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.87rem; margin: 0.6rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 1rem 0.35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
figure { margin: 1.2rem 0; } figure svg { max-width: 100%; } figure img { max-width: min(100%, 46rem); }
figure svg, figure img { height: auto; background: #ffffff;
  border-radius: 6px; padding: 6px; } figcaption { font-size: 0.85rem; margin-top: 0.2rem; }
code { font-family: ui-monospace, "SF Mono", Consolas, monospace; font-size: 0.92em; }
@media (max-width: 60rem) { .page { display: block; } nav { position: static; } }
@media print { nav { display: none; } .page { display: block; } figure { break-inside: avoid; } }
"""

HEAD = "<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>diagkit: report</title>"
RECORDS = ("what was checked", "error", "tolerance", "bytes predicted", "bytes counted", "time", "verdict")
CLAIMS = ("claim", "in the paper", "ours", "verdict", "this run")
NUMBERS = {"error", "tolerance", "bytes predicted", "bytes counted", "time"}


def page(report: Report) -> str:
    """The whole page."""
    bad = len(report.reasons)
    verdict = f"{bad} of its verdicts are bad" if bad else "every verdict holds"
    sections = [chapter_section(chapter) for chapter in report.chapters]
    whole = seconds(sum(chapter.time_s for chapter in report.chapters))
    body = [
        f"<h1>The chapters of diagkit, run</h1><p class='soft'>{escape(report.made)}, {escape(on(report.machine))}</p>",
        f"<p>Chapters: {len(report.chapters)}, run in {whole}: {mark(verdict, not bad)}.</p>",
        listed(report.reasons),
        *sections,
        claims_section(report),
        machine_section(report),
    ]
    main = f"<div class='page'>{contents(report)}<main>{''.join(body)}</main></div>"
    return f"<!doctype html><html lang='en'><head>{HEAD}<style>{STYLE}</style></head><body>{main}</body></html>\n"


def on(machine: Any) -> str:
    """The machine in words."""
    return f"on {machine.text('architecture') or machine.name}"


def mark(text: str, good: bool) -> str:
    """A verdict in its colour; the words say it too."""
    return f"<span class='{'good' if good else 'bad'}'>{escape(text)}</span>"


def listed(reasons: Sequence[str]) -> str:
    """What went wrong, as a list."""
    return "<ul>" + "".join(f"<li>{mark(reason, good=False)}</li>" for reason in reasons) + "</ul>" if reasons else ""


def contents(report: Report) -> str:
    """The table of chapters that stays in view."""
    entries = "".join(map(entry, report.chapters))
    more = "<li><a href='#claims'>The paper's claims</a></li><li><a href='#machine'>The machine</a></li>"
    return f"<nav aria-label='chapters'><strong>diagkit</strong><ol>{entries}{more}</ol></nav>"


def entry(chapter: Chapter) -> str:
    """A chapter's line in the table, with a mark for its verdict."""
    sign = mark("✗" if chapter.reason else "✓", not chapter.reason)
    return f"<li><a href='#{anchor(chapter)}'><span>{escape(chapter.title)}</span>{sign}</a></li>"


def anchor(chapter: Chapter) -> str:
    """The id of a chapter's section."""
    return "chapter-" + re.sub(r"[^0-9a-zA-Z]+", "-", chapter.path.stem)


def chapter_section(chapter: Chapter) -> str:
    """One chapter: its question, its records, its pictures."""
    stopped = f"<p>{mark(f'Stopped at {chapter.failure}', good=False)}</p>" if chapter.failure else ""
    figures = "".join(figure(picture, caption) for picture, caption in pictures(chapter.notebook))
    run = f"<p class='soft'>{escape(chapter.path.name)}, run in {seconds(chapter.time_s)}</p>"
    head = f"<h2>{escape(chapter.title)}</h2><p>{prose(chapter.question)}</p>"
    records = table(RECORDS, record_rows(chapter))
    return f"<section id='{anchor(chapter)}'>{head}{stopped}{records}{run}{figures}</section>"


SIGNS = {r"\times": "×", r"\infty": "∞", r"\to": "→", r"\le": "≤", r"\,": " ", "^2": "²", "^3": "³"}
"""What short formulas between words are written with."""


def prose(text: str) -> str:
    """A paragraph of markdown: code, emphasis and short formulas are kept, the rest is plain text.

    >>> prose("a *square* of $n \\\\times n$ in `H`")
    'a <em>square</em> of <i>n × n</i> in <code>H</code>'
    """
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    marked = re.sub(r"\$([^$]+)\$", lambda found: f"<i>{inline(found[1])}</i>", marked)
    return re.sub(r"(\*\*|\*)(?=\S)(.+?)(?<=\S)\1", r"<em>\2</em>", marked)


def inline(formula: str) -> str:
    """A short formula of TeX as HTML: signs, powers and subscripts."""
    for tex, sign in SIGNS.items():
        formula = formula.replace(tex, sign)
    raised = re.sub(r"\^\{?([\w+-]+)\}?", r"<sup>\1</sup>", formula)
    return re.sub(r"_\{?(\w+)\}?", r"<sub>\1</sub>", raised)


def record_rows(chapter: Chapter) -> Iterator[list[str]]:
    """The cells of each record's row, as HTML."""
    for record in chapter.records:
        texts = [record.check, small(record.error), small(record.tolerance), count(record.bytes_predicted)]
        texts += [count(record.bytes_counted), seconds(record.time_s)]
        yield [*map(escape, texts), mark(record.verdict, record.reason is None)]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns of numbers stand to the right. Cells are HTML already."""
    kinds = [" class='number'" if name in NUMBERS else "" for name in head]
    top = "".join(f"<th scope='col'>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        f"<div class='wide'><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>" if lines else ""
    )


def pictures(notebook: Any) -> Iterator[tuple[str, str]]:
    """Every picture that the cells displayed, as HTML, with the heading under which it stands."""
    heading = ""
    for cell in notebook.cells:
        heading = next(iter(reversed(list(headings([cell])))), heading)
        for output in cell.get("outputs", ()):
            inline = picture(output.get("data", {}))
            if inline:
                yield inline, heading


def picture(data: dict[str, Any]) -> str:
    """An output as inline SVG or as an image that carries its bytes, or "" where it is no picture."""
    if "image/svg+xml" in data:
        return re.sub(r"^\s*(<\?xml.*?\?>|<!DOCTYPE.*?>|\s)*", "", data["image/svg+xml"], flags=re.DOTALL)
    if "image/png" in data:
        described = escape(str(data.get("text/plain", "plot")))
        return f"<img alt='{described}' src='data:image/png;base64,{''.join(data['image/png'].split())}'>"
    return ""


def figure(inline: str, caption: str) -> str:
    """A picture with its caption."""
    return f"<figure>{inline}<figcaption>{escape(caption)}</figcaption></figure>"


def claims_section(report: Report) -> str:
    """The paper's claims, what is ours, and whether this run confirms it."""
    rows = []
    for claim in report.claims:
        outcome = claim.outcome(report.chapters)
        said = [f"{claim.chapter} {claim.claim}", claim.paper, claim.ours, claim.stated]
        rows.append([*map(prose, said), outcome_mark(outcome)])
    return f"<section id='claims'><h2>The paper's claims</h2>{table(CLAIMS, rows)}</section>"


def outcome_mark(outcome: str) -> str:
    """What the run says to a claim, in its colour; what did not run has none."""
    return f"<span class='soft'>{outcome}</span>" if outcome == "not run" else mark(outcome, outcome != "not confirmed")


def machine_section(report: Report) -> str:
    """The machine and the versions that the times belong to."""
    about = report.data()["versions"].items()
    versions = ", ".join(f"{escape(name)} {escape(version)}" for name, version in about)
    numbers = report.machine._repr_html_()
    return f"<section id='machine'><h2>The machine</h2><p>{versions}</p><div class='wide'>{numbers}</div></section>"
