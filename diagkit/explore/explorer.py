"""`Explorer`: diagrams with a machine, sizes and tiles to turn; the same figure live and in exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from diagkit import draw, machine
from diagkit.diagram import need_sizes
from diagkit.draw import Scene
from diagkit.explore.figure import figure, lines
from diagkit.explore.reading import (
    Pairs,
    Reading,
    State,
    best_tile,
    formats_of,
    in_format,
    read,
    tile_choices,
    tiles_of,
)
from diagkit.term import DiagkitError, Term, check_format

VIEW = "application/vnd.jupyter.widget-view+json"


class Explorer:
    """Turn the tiles, sizes, machine and number format of a diagram and see its costs move.

    `diagrams` are the forms to choose from: several, or one with the steps that led to it. `dtype` is the
    format of all inputs (None: as they are). `sizes` are elements by name of the axis; the name of another
    size makes one follow it; tiles that are not given start at the best legal ones. In a notebook it
    displays as sliders over a figure; where nothing runs (an export, a stored notebook) as that figure.
    `at` gives the same with something changed. Times are for groups that fetch for themselves or, where
    `shared`, for groups that run at once and fetch together what they have in common (Theorem 2).

    Errors: DiagkitError for a missing size or an unknown name, MachineError for an unknown machine.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C, name="matmul").fuse().group(a="g_a", c="g_c").stream(b="s_b")
    >>> shown = Explorer(tiled, machine="A100-SXM-80GB", a=4096, b="a", c="a", g_a=128, g_c=128, s_b=32)
    >>> shown.reading.moved, shown.at(g_a=256).reading.moved
    (2181038080, 1644167168)

    >>> shown.term.name, shown.formats[:2], shown.choices("s_b")[:3], dict(shown.sizes)["c"]
    ('matmul', ('fp16', 'fp32'), (1, 2, 4), 4096)
    >>> shown.svg()[:4], shown.scene().width > 0
    ('<svg', True)

    >>> type(shown.widget()).__name__
    'VBox'
    """

    def __init__(
        self,
        *diagrams: Term,
        machine: str = "H100-SXM",
        dtype: str | None = "fp16",
        form: str = "",
        shared: bool = False,
        **sizes: Any,
    ) -> None:
        self.forms = forms_of(diagrams)
        self.form = form or list(self.forms)[-1]
        self.shared = bool(shared)
        self.machine, self.dtype, self.given = named(machine), check_format(dtype) if dtype else None, dict(sizes)
        self._check()
        self.state = self._state()

    def at(self, **changes: Any) -> Explorer:
        """The same with other `machine`, `dtype`, `form`, sizes or tiles."""
        now = {"machine": self.machine, "dtype": self.dtype, "form": self.form, "shared": self.shared}
        return Explorer(*self.forms.values(), **{**now, **self.given, **changes})

    def _check(self) -> None:
        if self.form not in self.forms:
            raise DiagkitError(f"no form {self.form!r}", remedy=f"one of: {', '.join(self.forms)}")
        known = {name for one in self.forms.values() for name in (*one.open_sizes, *tiles_of(one))}
        reasons = (fault(name, number, self.given, known) for name, number in self.given.items())
        reason = next((said for said in reasons if said), None)
        if reason:
            raise DiagkitError(reason, remedy=f"sizes and tiles are: {', '.join(sorted(known))}, in elements")
        need_sizes(self.term, self.given)

    @property
    def term(self) -> Term:
        """The form that is shown, its inputs in the format that is chosen."""
        return in_format(self.forms[self.form], self.dtype)

    @property
    def sizes(self) -> Pairs:
        """Every open size of the form in elements, those that follow another included."""
        return tuple((name, int(self.given.get(self.given[name], self.given[name]))) for name in self.term.open_sizes)

    def _state(self) -> State:
        """Tiles never exceed their axes; those not given are the best, else as small as can be."""
        lengths = self.term.numbers(dict(self.sizes))
        best = best_tile(self.term, self.machine, self.sizes)
        start = dict(best.tiles) if best else {}
        tiles = ((tile, int(self.given.get(tile, start.get(tile, 1)))) for tile in tiles_of(self.term))
        axes = tiles_of(self.term)
        within = tuple((tile, max(1, min(number, lengths[axes[tile]]))) for tile, number in tiles)
        return State(self.term, self.machine, self.sizes, within, self.shared)

    @property
    def reading(self) -> Reading:
        """The numbers that the figure shows."""
        return read(self.state)

    def choices(self, tile: str) -> tuple[int, ...]:
        """The numbers that a tile's slider offers: powers of two, the whole axis, the best and the present one."""
        if tile not in tiles_of(self.term):
            known = ", ".join(tiles_of(self.term)) or "none"
            raise DiagkitError(f"no tile {tile!r}", remedy=f"tiles are: {known}")
        length = self.term.numbers(dict(self.sizes))[tiles_of(self.term)[tile]]
        best = best_tile(self.term, self.machine, self.sizes)
        return tile_choices(length, self.state.everything[tile], *([int(best.tiles[tile])] if best else []))

    @property
    def formats(self) -> tuple[str | None, ...]:
        """The formats to choose from: those whose matrix rate the machine states."""
        return tuple(dict.fromkeys((self.dtype, *formats_of(self.machine))))

    def scene(self) -> Scene:
        """The figure as geometry."""
        return figure(self.reading)

    def svg(self, theme: str = "light") -> str:
        """The figure as SVG text, alone and the same in every process."""
        return draw.as_svg(self.scene(), theme)

    def save(self, path: str | Path) -> Path:
        """Write the figure to a file: .svg, .png or .pdf.

        >>> import tempfile, diagkit as dk
        >>> doubled = dk.Diagram(2 * dk.array("X", dk.axis("x")), name="double")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Explorer(doubled, x=64).save(f"{folder}/double.svg").name
        'double.svg'
        """
        return draw.write(self.scene, path)

    def widget(self) -> Any:
        """The figure under sliders and menus, as an ipywidgets box; needs ipywidgets."""
        try:
            from diagkit.explore.widget import Controls
        except ImportError as error:
            raise DiagkitError("sliders need ipywidgets", remedy="install diagkit[lab]") from error
        return Controls(self).box

    def __repr__(self) -> str:
        return "\n".join([f"{self.form}", *(text for text, _ in lines(self.reading))])

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> Mapping[str, Any]:
        """The figure, and the live widget where ipywidgets is installed."""
        try:
            live = {VIEW: self.widget()._repr_mimebundle_()[VIEW]}
        except DiagkitError:
            live = {}
        shown = {"text/plain": repr(self), "image/svg+xml": self.svg(), **live}
        wanted = set(include or shown) - set(exclude or ())
        return {kind: data for kind, data in shown.items() if kind in wanted}


def named(given: str) -> str:
    """A machine's own name where it is one of those in data/machines; the path of a file stays as given."""
    name = machine.load(given).name
    return name if name in machine.names() else given


def fault(name: str, number: Any, given: Mapping[str, Any], known: set[str]) -> str | None:
    """Why this is no size or tile, or None."""
    if name not in known:
        return f"no size or tile {name!r}"
    if isinstance(number, str):
        return None if isinstance(given.get(number), int) else f"{name} follows {number!r}, which has no number"
    whole = isinstance(number, int) and not isinstance(number, bool) and number > 0
    return None if whole else f"{name} = {number!r} is no size"


def forms_of(diagrams: tuple[Term, ...]) -> dict[str, Term]:
    """The forms by what they are called: diagrams as given, or the one diagram after each of its steps."""
    if not diagrams or not all(isinstance(one, Term) for one in diagrams):
        raise DiagkitError("an explorer of no diagram", remedy="give one or several: Explorer(naive, flash, q=1024)")
    several = [*(step.before for step in diagrams[0].steps), diagrams[0]] if len(diagrams) == 1 else diagrams
    found: dict[str, Term] = {}
    for term in several:
        found[draw.headline(term)] = term  # of two with one name the later counts
    return found
