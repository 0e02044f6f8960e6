"""The pen: collects marks by layer, and words, while a picture is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from diagkit.draw.fonts import SERIF
from diagkit.draw.rows import Strand, Zone
from diagkit.draw.scene import Command, Mark, Runs, Words, circle, polyline

TITLE = 10.5
TEXT = 14.0
LAYERS = ("back", "strip", "line", "wire", "glyph", "front")


@dataclass
class Pen:
    """Collects marks by layer, and words."""

    layers: dict[str, list[Mark]] = field(default_factory=lambda: {layer: [] for layer in LAYERS})
    words: list[Words] = field(default_factory=list)

    def draw(self, layer: str, path: tuple[Command, ...], role: str, owner: str = "", about: str = "") -> None:
        """Add a mark."""
        self.layers[layer].append(Mark(path, role, owner, about))

    def say(
        self,
        runs: Runs,
        x: float,
        y: float,
        size: float,
        role: str,
        anchor: str = "middle",
        family: str = SERIF,
        owner: str = "",
    ) -> None:
        """Add words, where there are any."""
        if runs:
            self.words.append(Words(runs, x, y, size, role, anchor, family, owner))

    def add(self, other: Pen) -> None:
        """Add everything that another pen has drawn."""
        for layer in LAYERS:
            self.layers[layer] += other.layers[layer]
        self.words += other.words

    def head(self, x: float, y: float, level: int, owner: str, back: float = 8.0) -> None:
        """A small solid arrowhead whose point is at (x, y)."""
        path = polyline([(x, y), (x - back, y - 4), (x - back + 2.5, y), (x - back, y + 4)], closed=True)
        self.draw("front", path, f"solid-{level}", owner)

    def dot(self, x: float, y: float, level: int) -> None:
        """A filled dot: wires that fork or join."""
        self.draw("front", circle(x, y, 2.4), f"solid-{level}")


def row(strand: Strand, zone: Zone) -> float:
    """The height at which a strand runs through a zone (or the nearest to it)."""
    return strand.row(zone.number)
