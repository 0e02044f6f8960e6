"""The controls of an explorer: menus and sliders of ipywidgets, each with its name, over the figure."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets

from diagkit import machine
from diagkit.explore.figure import lines
from diagkit.explore.reading import SIZES
from diagkit.term import DiagkitError

if TYPE_CHECKING:
    from diagkit.explore.explorer import Explorer

HIDDEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"


class Controls:
    """The widgets of one explorer. What the reader turns becomes another explorer; its figure is shown."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.turning = False
        self.menus = {"form": self._menu("diagram"), "machine": self._menu("machine"), "dtype": self._menu("format")}
        self.shared = ipywidgets.Checkbox(description="groups share a cache", layout=ipywidgets.Layout(width="24em"))
        self.sizes: dict[str, Any] = {}
        self.tiles: dict[str, Any] = {}
        self.sliders = ipywidgets.HBox(layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.figure, self.said = ipywidgets.HTML(), ipywidgets.HTML()
        self.menu_row = ipywidgets.HBox(
            [*self.menus.values(), self.shared], layout=ipywidgets.Layout(flex_flow="row wrap")
        )
        self.box = ipywidgets.VBox([self.menu_row, self.sliders, self.said, self.figure])
        for name, menu in self.menus.items():
            menu.observe(self._turned(name), "value")
        self.shared.observe(self._turned("shared"), "value")
        self.show()

    def _menu(self, said: str) -> Any:
        return ipywidgets.Dropdown(description=said, layout=ipywidgets.Layout(width="24em"))

    def _slider(self, name: str) -> Any:
        made = ipywidgets.SelectionSlider(
            options=[1], description=name, continuous_update=True, layout=ipywidgets.Layout(width="24em")
        )
        made.observe(self._turned(name), "value")
        return made

    def _turned(self, name: str) -> Callable[[Any], None]:
        """What happens when the control of that name is turned."""

        def turned(change: Any) -> None:
            if not self.turning:
                self.change(name, change["new"])

        return turned

    def change(self, name: str, value: Any) -> None:
        """Set one thing; an error is shown in words and leaves the figure as it was."""
        try:
            self.explorer = self.explorer.at(**{name: value})
            self.show()
        except DiagkitError as error:
            self.said.value = f'<p role="alert" style="color:#b3261e;margin:0">{escape(str(error))}</p>'

    def show(self) -> None:
        """Bring every control and the figure to the explorer's state."""
        svg = self.explorer.svg()
        words = " ".join(text for text, _ in lines(self.explorer.reading))
        self.turning = True
        try:
            self._set_menus()
            self._set_sliders()
        finally:
            self.turning = False
        self.figure.value = svg
        self.said.value = f'<p role="status" aria-live="polite" style="{HIDDEN}">{escape(words)}</p>'

    def _set_menus(self) -> None:
        explorer = self.explorer
        formats = [(one or "as they are", one) for one in explorer.formats]
        options = {
            "form": list(explorer.forms),
            "machine": list(dict.fromkeys((*machine.names(), explorer.machine))),
            "dtype": formats,
        }
        for name, menu in self.menus.items():
            _set(menu, options[name], getattr(explorer, name))
        self.shared.value = explorer.shared

    def _set_sliders(self) -> None:
        explorer = self.explorer
        free = [name for name in explorer.term.open_sizes if not isinstance(explorer.given[name], str)]
        now = explorer.state.everything
        sizes = {name: sorted({*SIZES, now[name]}) for name in free}
        tiles = {tile: list(explorer.choices(tile)) for tile, _ in explorer.state.tiles}
        for name, options in {**sizes, **tiles}.items():
            kept = self.sizes if name in sizes else self.tiles
            if name not in kept:
                kept[name] = self._slider(name)
            _set(kept[name], options, now[name])
        shown = [{**self.sizes, **self.tiles}[name] for name in (*sizes, *tiles)]
        if tuple(shown) != tuple(self.sliders.children):
            self.sliders.children = shown


def _set(control: Any, options: Any, value: Any) -> None:
    """Options and value at once; nothing is sent where nothing changes."""
    with control.hold_sync():
        if list(control.options) != list(options):
            control.options = options
        if control.value != value:
            control.value = value
