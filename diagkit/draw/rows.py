"""Rows: where wires run. A strand is one wire; a track is one straight row that strands run along.

A strand keeps its track until wires have to cross; then those that move get new tracks. Each column says
which tracks stand in which order and how far apart; `settle` gives every track its height from that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from diagkit.draw.plan import Key
from diagkit.draw.scene import Runs

ROW = 26.0
"""Distance between the wires of one array."""
APART = 42.0
"""Distance between the last wire of one array and the first of the next."""
LANE = 17.0
"""Distance between a wire and the line of scalars beside it."""


@dataclass(eq=False)
class Track:
    """A row: its height `y`, what must stand above it and by how much, and what it is centred on."""

    above: dict[Track, float] = field(default_factory=dict)
    centre: tuple[Track, Track] | None = None
    hugs: bool = False
    y: float = 0.0


@dataclass
class Span:
    """A strand on one track from one zone to another."""

    first: int
    last: int
    track: Track


@dataclass(eq=False)
class Strand:
    """One wire: `kind` is "axis", "item" (an array of one number) or "lane" (the scalars a glyph makes)."""

    axis: str
    level: int
    kind: str = "axis"
    spans: list[Span] = field(default_factory=list)
    forked: Strand | None = None
    joins: Strand | None = None
    joins_at: int = -1
    start_x: float | None = None
    end_x: float | None = None
    named: bool = False
    label_x: float = -1e9
    owner: str = ""
    seat: Track | None = None
    thin: bool = False

    @property
    def track(self) -> Track:
        """The row it runs on now."""
        return self.spans[-1].track

    @property
    def y(self) -> float:
        """The height of the row it runs on last."""
        return self.spans[-1].track.y

    def row(self, number: int) -> float:
        """The height at which it runs through a zone, or through the one nearest to it; a branch that
        joins others at once runs where it forks off."""
        if not self.spans:
            assert self.forked is not None
            return self.forked.row(number)
        inside = [span for span in self.spans if span.first <= number <= span.last]
        return (inside or self.spans)[0].track.y


@dataclass(eq=False)
class Bundle:
    """One array in one place: its key and its strands, top to bottom."""

    key: Key
    strands: list[Strand]
    shown: Runs = ()
    note: Runs = ()
    continued: bool = False
    rail: bool = False
    warning: str = ""

    def axis(self, name: str) -> Strand | None:
        """The strand of that axis."""
        return next((strand for strand in self.strands if strand.axis == name and strand.kind == "axis"), None)

    @property
    def axes(self) -> tuple[str, ...]:
        """Its axes, top to bottom."""
        return tuple(strand.axis for strand in self.strands if strand.kind == "axis")

    @property
    def wires(self) -> list[Strand]:
        """Its strands without the line of scalars."""
        return [strand for strand in self.strands if strand.kind != "lane"]


@dataclass
class Zone:
    """A stretch of a line: "margin", "glyph" or "label"; `stack` is what runs through it; wires change rows
    before it. `x0` and `x1` come last, when widths are known."""

    kind: str
    number: int
    stack: list[Bundle]
    groups: list[list[Bundle]]
    moves: bool = False
    x0: float = 0.0
    x1: float = 0.0


class Line:
    """One line of the picture while it is being arranged, left to right."""

    def __init__(self) -> None:
        self.stack: list[Bundle] = []
        self.zones: list[Zone] = []
        self.strands: list[Strand] = []
        self.tracks: list[Track] = []
        self.needs: list[tuple[Track, Track, float]] = []

    def track(self, hugs: bool = False) -> Track:
        """A new row."""
        made = Track(hugs=hugs)
        self.tracks.append(made)
        return made

    def strand(self, axis: str, level: int, kind: str = "axis", owner: str = "", thin: bool = False) -> Strand:
        """A new wire, on no row yet."""
        made = Strand(axis, level, kind, owner=owner, thin=thin)
        self.strands.append(made)
        return made

    def find(self, key: Key) -> Bundle:
        """The array of that key in the stack."""
        return next(bundle for bundle in self.stack if bundle.key == key)

    def open(
        self, kind: str, stack: Sequence[Bundle], groups: Iterable[Sequence[Bundle]] = (), hug: Iterable[Strand] = ()
    ) -> Zone:
        """Begin a zone in which `stack` runs: strands out of order get new rows, the rest keep theirs.

        `groups` are arrays that are about to become one (no separator between them); strands in `hug`
        are drawn down to what stands below them.
        """
        zone = Zone(kind, len(self.zones), list(stack), _grouped(stack, groups))
        old = [strand for bundle in self.stack for strand in bundle.strands]
        new = [strand for bundle in stack for strand in bundle.strands]
        keeps, hugging = _undisturbed(old, new), set(hug)
        for strand in self.strands:
            if strand.joins is not None and strand.joins_at < 0:
                strand.joins_at, zone.moves = zone.number, True
        for strand in new:
            self._run(strand, zone, strand in keeps and strand not in hugging, strand in hugging)
        self.zones.append(zone)
        self.stack = list(stack)
        self._order(self.stack)
        return zone

    def _run(self, strand: Strand, zone: Zone, keep: bool, hug: bool) -> None:
        before = zone.number - 1
        if strand.spans and keep:
            strand.spans[-1].last = zone.number
            return
        if not strand.spans and strand.seat is not None:
            strand.spans.append(Span(zone.number, zone.number, strand.seat))
            return
        zone.moves = zone.moves or bool(strand.spans) or strand.forked is not None
        if strand.spans:
            strand.spans[-1].last = before
        strand.spans.append(Span(zone.number, zone.number, self.track(hug)))

    def _order(self, stack: Sequence[Bundle]) -> None:
        last: tuple[Strand, Bundle] | None = None
        for bundle in stack:
            for strand in bundle.strands:
                if last is not None:
                    self.need(last[0], strand, _gap(last[0], strand, last[1] is bundle))
                last = (strand, bundle)

    def need(self, upper: Strand, lower: Strand, gap: float) -> None:
        """Ask for room between two neighbours."""
        above = lower.track.above
        above[upper.track] = max(gap, above.get(upper.track, 0.0))

    def room(self, top: Strand, bottom: Strand, head: float, foot: float) -> None:
        """Ask for room above the strand `top` and below the strand `bottom` in the present stack; twice as
        much towards another array, because a separator runs half way."""
        rows = [(strand, bundle) for bundle in self.stack for strand in bundle.strands]
        for (upper, one), (lower, other) in pairwise(rows):
            if lower is top or upper is bottom:
                gap = head if lower is top else foot
                self.need(upper, lower, gap if one is other else 2 * gap - 10)

    def settle(self, top: float) -> float:
        """Give every row its height, the first at `top`; returns the lowest."""
        below: dict[Track, list[tuple[Track, float]]] = {track: [] for track in self.tracks}
        for track in self.tracks:
            for upper, gap in track.above.items():
                below[upper].append((track, gap))
        order = _topological(self.tracks)
        for track in order:
            track.y = max([top] + [upper.y + gap for upper, gap in track.above.items()])
            if track.centre:
                track.y = max(track.y, (track.centre[0].y + track.centre[1].y) / 2)
        for track in reversed(order):
            if track.hugs and below[track]:
                track.y = max(track.y, min(lower.y - gap for lower, gap in below[track]))
        return max((track.y for track in self.tracks), default=top)


def _grouped(stack: Sequence[Bundle], groups: Iterable[Sequence[Bundle]]) -> list[list[Bundle]]:
    lead = {id(group[0]): list(group) for group in groups}
    inside = {id(bundle) for group in lead.values() for bundle in group[1:]}
    return [lead.get(id(bundle), [bundle]) for bundle in stack if id(bundle) not in inside]


def _gap(upper: Strand, lower: Strand, together: bool) -> float:
    if together:
        return LANE if "lane" in (upper.kind, lower.kind) else ROW
    return APART - 6 if "lane" in (upper.kind, lower.kind) else APART


def _undisturbed(old: Sequence[Strand], new: Sequence[Strand]) -> set[Strand]:
    """The strands that keep their rows. Those that trade places with their neighbours all get new ones;
    where a few cross many, the many keep theirs."""
    both = set(old) & set(new)
    was = {strand: place for place, strand in enumerate(strand for strand in old if strand in both)}
    keeps: set[Strand] = set()
    window: list[Strand] = []
    for place, strand in enumerate(strand for strand in new if strand in both):
        window.append(strand)
        if max(was[one] for one in window) == place:
            keeps |= set(_still(window, was))
            window = []
    return keeps


def _still(window: list[Strand], was: dict[Strand, int]) -> list[Strand]:
    """Of strands that change order among each other, those that stay."""
    rising = _rising(window, was)
    movers = len(window) - len(rising)
    return rising if 3 * movers <= len(window) else []


def _rising(window: list[Strand], was: dict[Strand, int]) -> list[Strand]:
    """The longest run of strands, gaps allowed, that stand in their old order."""
    best: list[list[Strand]] = []
    for strand in window:
        before = max((run for run in best if was[run[-1]] < was[strand]), key=len, default=[])
        best.append([*before, strand])
    return max(best, key=len)


def _topological(tracks: Sequence[Track]) -> list[Track]:
    """Every row after those that stand above it or that it is centred on."""
    waits = {track: {*track.above, *(track.centre or ())} for track in tracks}
    readers: dict[Track, list[Track]] = {track: [] for track in tracks}
    for track, uppers in waits.items():
        for upper in uppers:
            readers[upper].append(track)
    count = {track: len(uppers) for track, uppers in waits.items()}
    ready = [track for track in tracks if not count[track]]
    order = []
    for track in ready:
        order.append(track)
        for lower in readers[track]:
            count[lower] -= 1
            if not count[lower]:
                ready.append(lower)
    return order
