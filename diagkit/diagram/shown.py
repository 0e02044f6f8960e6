"""What diagrams show: a picture under its costs, the strip of a derivation, the difference between two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagkit import cost, derive, draw
from diagkit.derive import Derivation, Difference
from diagkit.diagram.table import cost_table
from diagkit.term import DiagkitError, Term


@dataclass(frozen=True)
class Picture:
    """A finished picture: displays inline, `svg` is its text in its theme, `caption` says in words what it shows.

    >>> import diagkit as dk
    >>> from tempfile import TemporaryDirectory
    >>> strip = dk.Diagram(dk.exp(dk.array("X", dk.axis("x")), name="E"), name="exp").fuse().strip()
    >>> with TemporaryDirectory() as folder:
    ...     strip.save(f"{folder}/exp.svg").name
    'exp.svg'
    >>> strip.svg[:4], strip.caption
    ('<svg', 'exp')
    """

    scene: draw.Scene
    caption: str
    theme: str = "light"

    @property
    def svg(self) -> str:
        """The picture as SVG text."""
        return draw.as_svg(self.scene, self.theme)

    def save(self, path: str | Path) -> Path:
        """Write it to a file: .svg, .png or .pdf; returns the path."""
        return draw.write(lambda: self.scene, path, self.theme)

    def __repr__(self) -> str:
        return self.caption

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> Mapping[str, Any]:
        return {"image/svg+xml": self.svg, "text/plain": self.caption}


def picture(term: Term, theme: str = "light") -> str:
    """The picture of a diagram as SVG text, its costs over the columns."""
    return draw.svg(term, cost_table(term), theme)


def drawn(term: Term, theme: str, ranges: bool | Mapping[str, Any], sizes: Mapping[str, int]) -> Picture:
    """The picture, wires that may overflow, saturate or vanish marked where `ranges` asks for it."""
    if ranges is False:
        if sizes:
            raise DiagkitError("a picture without ranges has no sizes", remedy="ask for ranges=True, or leave them out")
        return Picture(draw.scene(term, cost_table(term)), listing(term), theme)
    found = cost.ranges(term, None if ranges is True else ranges, **sizes)
    said = {row.wire: row.trouble for row in found.flagged}
    scene = draw.scene(term, cost_table(term), warnings=said)
    return Picture(scene, f"{listing(term)}\n{_troubles(said)}", theme)


def _troubles(said: Mapping[str, str]) -> str:
    """The warnings as lines of the listing."""
    return "\n".join(f"warning  {wire} {words}" for wire, words in said.items()) or f"ranges   {draw.FINE}"


def save(term: Term, path: str | Path) -> Path:
    """Write that picture to a file: .svg, .png or .pdf."""
    return draw.save(term, path, cost_table(term))


def listing(term: Term) -> str:
    """The diagram as text: one line per box, with its costs."""
    return draw.listing(term, cost_table(term))


_SHOWN: dict[str, Callable[[Term], Any]] = {
    "image/svg+xml": picture,
    "text/plain": listing,
    "image/png": lambda term: draw.png(term, cost_table(term)),
}


def bundle(term: Term, include: Iterable[str] | None, exclude: Iterable[str] | None) -> dict[str, Any]:
    """The picture by kind of data: SVG and text unless `include` names others, less those in `exclude`."""
    wanted = set(include or ("image/svg+xml", "text/plain")) - set(exclude or ())
    return {kind: show(term) for kind, show in _SHOWN.items() if kind in wanted}


def strip(done: Derivation, theme: str = "light") -> Picture:
    """Every stage of a derivation under the one before, with what was done and why between them."""
    tables = [cost_table(stage) for stage in done.stages]
    return Picture(draw.strip_scene(done.stages, done.captions, tables), str(done), theme)


@dataclass(frozen=True)
class Comparison:
    """Two diagrams: `labels` says which wires changed level and which labels and columns came and went;
    `gone` and `came` are the transfers (elements) that only the first and only the second has."""

    labels: Difference
    gone: tuple[tuple[cost.Transfer, Any], ...]
    came: tuple[tuple[cost.Transfer, Any], ...]

    def __bool__(self) -> bool:
        return bool(self.labels) or bool(self.gone) or bool(self.came)

    def __repr__(self) -> str:
        lines = [str(self.labels)] if self.labels else []
        lines += [f"- {_moved(key)}: {amount} elements" for key, amount in self.gone]
        lines += [f"+ {_moved(key)}: {amount} elements" for key, amount in self.came]
        return "\n".join(lines) or "no difference"


def _moved(key: cost.Transfer) -> str:
    return f"{key.kind} {key.array} ({key.source} → {key.target})"


def compare(before: Term, after: Term) -> Comparison:
    """What changed from `before` to `after`."""
    if not isinstance(after, Term):
        raise DiagkitError(f"{after!r} is no diagram to compare with", remedy="give another diagram")
    old, new = dict(cost.transfers(before).items()), dict(cost.transfers(after).items())
    gone = tuple((key, amount) for key, amount in old.items() if new.get(key) != amount)
    came = tuple((key, amount) for key, amount in new.items() if old.get(key) != amount)
    return Comparison(derive.diff(before, after), gone, came)
