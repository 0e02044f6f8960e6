"""A scene as SVG text: opens alone, holds no style sheet, no script, no id, no font."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from xml.sax.saxutils import escape

from diagkit.draw.fonts import clean
from diagkit.draw.scene import Mark, Run, Scene, Words
from diagkit.draw.theme import FONTS, Style, Theme


def write_svg(scene: Scene, theme: Theme) -> str:
    """The scene in a theme, as one SVG document (UTF-8 text)."""
    wide, high = number(scene.width), number(scene.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'role="img" style="max-width:100%;height:auto">'
    )
    body = [f"<title>{text(scene.title).strip() or 'diagram'}</title>", f"<desc>{text(scene.about)}</desc>"]
    body.append(f'<rect width="{wide}" height="{high}" fill="{theme.paper}"/>')
    body += _marks(scene.marks, theme)
    body += [_words(line, theme) for line in scene.words if line.text.strip()]
    return "\n".join([head, *body, "</svg>"]) + "\n"


def text(raw: str) -> str:
    """Any text as the content of an element."""
    return escape(clean(raw))


def number(value: float) -> str:
    """A coordinate with at most one decimal.

    >>> number(3.0), number(2.45), number(-0.01)
    ('3', '2.5', '0')
    """
    rounded = round(value + 1e-9, 1) + 0.0
    return str(int(rounded)) if rounded == int(rounded) else str(rounded)


def _marks(marks: Iterable[Mark], theme: Theme) -> list[str]:
    lines = []
    for role, group in groupby(marks, key=lambda mark: mark.role):
        lines.append(f"<g {_paint(theme[role])}>")
        lines += [_path(mark) for mark in group]
        lines.append("</g>")
    return lines


def _paint(style: Style) -> str:
    parts = [f'fill="{style.fill or "none"}"']
    if style.stroke:
        parts.append(f'stroke="{style.stroke}" stroke-width="{number(style.width)}"')
    if style.dash:
        parts.append(f'stroke-dasharray="{",".join(number(n) for n in style.dash)}"')
    if style.opacity < 1:
        parts.append(f'fill-opacity="{round(style.opacity, 3)}"')
    return " ".join(parts)


def _path(mark: Mark) -> str:
    shape = f'<path d="{path_text(mark)}"'
    return f"{shape}><title>{text(mark.about)}</title></path>" if mark.about else f"{shape}/>"


def path_text(mark: Mark) -> str:
    """The path's commands; horizontal lines written short."""
    parts: list[str] = []
    last = (0.0, 0.0)
    for letter, numbers in mark.path:
        if letter == "L" and number(numbers[1]) == number(last[1]):
            parts.append(f"H{number(numbers[0])}")
        else:
            parts.append(letter + " ".join(number(n) for n in numbers))
        last = (numbers[-2], numbers[-1]) if numbers else last
    return "".join(parts)


def _words(line: Words, theme: Theme) -> str:
    anchor = "" if line.anchor == "start" else f' text-anchor="{line.anchor}"'
    start = f'<text x="{number(line.x)}" y="{number(line.y)}" font-family="{FONTS[line.family]}" '
    start += f'font-size="{number(line.size)}" fill="{theme[line.role].fill}"{anchor}'
    first, full = line.runs[0], f"<title>{text(line.about)}</title>" if line.about else ""
    if len(line.runs) == 1 and not first.rise and first.scale == 1:
        return f"{start}{_face(first)}>{full}{text(first.text)}</text>"
    return f"{start}>{full}{_spans(line)}</text>"


def _face(run: Run) -> str:
    return (' font-style="italic"' if run.italic else "") + (' font-weight="bold"' if run.bold else "")


def _spans(line: Words) -> str:
    """One tspan per run; each moves the baseline by the difference to the run before."""
    parts, height = [], 0.0
    for run in line.runs:
        move = (height - run.rise) * line.size
        shift = f' dy="{number(move)}"' if abs(move) > 0.04 else ""
        size = f' font-size="{number(line.size * run.scale)}"' if run.scale != 1 else ""
        parts.append(f"<tspan{shift}{size}{_face(run)}>{text(run.text)}</tspan>")
        height = run.rise
    return "".join(parts)
