"""Themes: what each role looks like. The only place where a colour is named."""

from __future__ import annotations

from dataclasses import dataclass

from diagkit.term import DiagkitError

FONTS = {
    "serif": "'STIX Two Text', STIXGeneral, 'Times New Roman', Times, 'Liberation Serif', serif",
    "sans": "Helvetica, Arial, 'Liberation Sans', sans-serif",
}
"""What a reader's machine may take for each family, best first."""


@dataclass(frozen=True)
class Style:
    """How a role is drawn: colours (None = not drawn), line width, dashes, how much shows through."""

    stroke: str | None = None
    fill: str | None = None
    width: float = 1.3
    dash: tuple[float, ...] = ()
    opacity: float = 1.0


@dataclass(frozen=True)
class Theme:
    """A name, the colour of the sheet, and a style for every role."""

    name: str
    paper: str
    styles: dict[str, Style]

    def __getitem__(self, role: str) -> Style:
        return self.styles[role]


@dataclass(frozen=True)
class _Inks:
    paper: str
    ink: str
    faint: str
    rule: str
    glyph: str
    levels: tuple[str, str, str, str]
    load: str
    store: str
    tint: float


_LIGHT = _Inks("#ffffff", "#1f2328", "#6e7781", "#d0d7de", "#ffffff",
               ("#1f2328", "#c2570c", "#2e7d32", "#1f5fbf"), "#0b8577", "#b5179e", 1.0)  # fmt: skip
_DARK = _Inks("#1e1e1e", "#dedede", "#9aa4ae", "#3c444d", "#303030",
              ("#dedede", "#f0883e", "#63b96a", "#6ea8fe"), "#3fc1ae", "#e36fd2", 0.22)  # fmt: skip

TINTS = {
    "tint-contract": "#cfc8e8",
    "tint-softmax": "#cce7cf",
    "tint-norm": "#d5ecee",
    "tint-map": "#fdf3c4",
    "tint-reduce": "#dfe9c9",
    "tint-linear": "#e8eeeb",
    "tint-mask": "#fbe3ee",
    "tint-block": "#dcd3ee",
    "tint-view": "#f6dcd6",
    "tint-cast": "#e9e4d8",
    "tint-stream": "#fff8d6",
}


def _wires(inks: _Inks) -> dict[str, Style]:
    styles: dict[str, Style] = {}
    for level, colour in enumerate(inks.levels):
        styles[f"wire-{level}"] = Style(stroke=colour)
        styles[f"item-{level}"] = Style(stroke=colour, width=2.0, dash=(2, 3))
        styles[f"thin-wire-{level}"] = Style(stroke=colour, width=0.8)
        styles[f"thin-item-{level}"] = Style(stroke=colour, width=1.0, dash=(1.5, 3))
        styles[f"solid-{level}"] = Style(fill=colour)
        styles[f"glyph-{level}"] = Style(stroke=colour, fill=inks.glyph)
        styles[f"label-{level}"] = Style(fill=colour)
        styles[f"bar-{level}"] = Style(stroke=colour, width=1.0)
        styles[f"legend-{level}"] = Style(stroke=colour, width=2.2)
    return styles


def _glyphs(inks: _Inks) -> dict[str, Style]:
    return {
        "learned": Style(inks.ink, "#e8eeeb" if inks is _LIGHT else "#39423d"),
        "norm": Style(inks.ink, "#f1fcfc" if inks is _LIGHT else "#25383a"),
        "mask": Style(inks.ink, "#f9cbdf" if inks is _LIGHT else "#6d3b52"),
        "mask-hidden": Style(fill="#808080"),
        "hexagon": Style("#b3261e" if inks is _LIGHT else "#f2867e", inks.glyph),
        "tag": Style(inks.faint, inks.glyph, 1.0),
        "plain-line": Style(stroke=inks.ink),
        "separator": Style(stroke=inks.faint, width=1.3, dash=(5, 5)),
        "rule": Style(stroke=inks.rule, width=1.0),
        "loop": Style(stroke=inks.faint, width=1.4),
        "loop-head": Style(fill=inks.faint),
        "subloop": Style(stroke=inks.faint, width=1.1, dash=(1.5, 3)),
    }


def _lanes(inks: _Inks) -> dict[str, Style]:
    """Boxes by unit, in the colours of the levels that feed them; overhead, barriers."""
    black, orange, green, blue = inks.levels
    units = {"tensor": blue, "special": green, "fma": orange, "memory": black}
    return {f"unit-{unit}": Style(colour, colour, 1.0, opacity=0.3) for unit, colour in units.items()} | {
        "hatch": Style(stroke=inks.ink, width=0.7),
        "frame": Style(stroke=inks.ink, width=0.7),
        "barrier": Style(stroke=inks.ink, width=2.4, dash=(2.4, 3.6)),
    }


def _words(inks: _Inks) -> dict[str, Style]:
    plain = {role: Style(fill=inks.ink) for role in ("title", "name", "cell", "caption", "glyph-text", "equals")}
    faint = {role: Style(fill=inks.faint) for role in ("head", "kind", "note", "format", "reason")}
    return plain | faint | {"load-text": Style(fill=inks.load), "store-text": Style(fill=inks.store)}


def _regions(inks: _Inks) -> dict[str, Style]:
    tints = {role: Style(fill=colour, opacity=inks.tint * 0.8) for role, colour in TINTS.items()}
    tints["tint-stream"] = Style(fill=TINTS["tint-stream"], opacity=0.8 if inks is _LIGHT else 0.09)
    return tints | {
        "load": Style(fill=inks.load, opacity=0.17),
        "store": Style(fill=inks.store, opacity=0.14),
    }


_HEAT = ("#eef4fb", "#d3e3f3", "#aecbe6", "#82aed6", "#5890c4", "#346fa8", "#1d4f85")
_HEAT_DARK = ("#223044", "#27405f", "#2c527d", "#34669c", "#427cbb", "#5c95d4", "#86b4e8")


def _charts(inks: _Inks) -> dict[str, Style]:
    light = inks is _LIGHT
    heat = {f"heat-{shade}": Style(inks.paper, fill, 1.0) for shade, fill in enumerate(_HEAT if light else _HEAT_DARK)}
    red = "#b3261e" if light else "#f2867e"
    return heat | {
        "heat-none": Style(stroke=inks.rule, width=0.6, dash=(2, 2)),
        "chart-grid": Style(stroke=inks.rule, width=0.7),
        "chart-roof": Style(stroke=inks.ink, width=1.8),
        "chart-range": Style(stroke=red, width=2.2),
        "chart-here": Style(inks.paper, red, 1.5),
        "chart-best": Style(inks.ink, inks.paper, 1.8, opacity=0.6),
        "chart-bar": Style(fill="#5890c4" if light else "#427cbb"),
        "chart-slow": Style(fill=inks.levels[1]),
        "chart-total": Style(fill=inks.faint),
        "alarm": Style(fill=red),
        "alarm-sign": Style(stroke=inks.paper, width=1.3),
    }


def _theme(name: str, inks: _Inks) -> Theme:
    styles = _wires(inks) | _glyphs(inks) | _lanes(inks) | _words(inks) | _regions(inks) | _charts(inks)
    return Theme(name, inks.paper, styles)


THEMES: dict[str, Theme] = {"light": _theme("light", _LIGHT), "dark": _theme("dark", _DARK)}


def theme_of(name: str) -> Theme:
    """The theme of that name; an error that lists the others where there is none."""
    if name not in THEMES:
        raise DiagkitError(f"no theme {name!r}", remedy=f"use one of: {', '.join(THEMES)}")
    return THEMES[name]
