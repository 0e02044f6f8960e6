"""The figure of an explorer: the picture with numbers over its columns, and the charts under it, as one scene.

What the widget shows and what stands in exports is this one figure of the same state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from diagkit import cost, draw, machine
from diagkit.diagram import cost_table
from diagkit.draw import Bars, Roof, Scene, TileMap, brief
from diagkit.explore.reading import Reading, State, best_state, landscape, read, tile_choices, tiles_of
from diagkit.machine import Times
from diagkit.term import Term


@lru_cache(maxsize=32)
def template(term: Term) -> tuple[Scene, dict[str, Any]]:
    """The picture with a mark in each cell, drawn once, and the formula that each mark stands for."""
    marks: dict[Any, str] = {}

    def mark(formula: Any) -> str:
        return marks.setdefault(formula, f"#{len(marks):06d}") if formula != 0 else ""

    scene = draw.scene(term, cost_table(term, mark), loops=False)
    return scene, {mark: formula for formula, mark in marks.items()}


def figure(reading: Reading) -> Scene:
    """All of it, for one reading."""
    state = reading.state
    scene, marks = template(state.term)
    numbers = {mark: brief(cost.evaluate(formula, state.everything)) for mark, formula in marks.items()}
    charts = [draw.bars_scene(bars(reading)), *roofs(reading), *maps(reading)]
    return draw.board(draw.filled(scene, numbers), charts, [*lines(reading)])


def lines(reading: Reading) -> list[tuple[str, bool]]:
    """What the figure says in words; what is wrong stands out."""
    state, times = reading.state, reading.times
    sizes = ", ".join(f"{name} = {number:,}" for name, number in state.everything.items())
    said = [(f"Cannot run: {reason}.", True) for reason in reading.reasons]
    said += [(f"{state.machine} in {state.kind}: {sizes}.", False)]
    together = f" Fetched together: {reading.fetched:,} bytes." * state.shared
    held = f"Held: {reading.held:,} of {reading.room:,} bytes of a block. Moved: {reading.moved:,} bytes."
    said += [(held + together, False)]
    said += [(_time_line(times), False)]
    return said + [(best_line(reading), False)] * bool(tiles_of(state.term))


def _time_line(times: Times) -> str:
    """Both bounds; where the machine states no rate of the products, those of what is left, and no speed."""
    both = f"{brief(times.overlapped, 's')} if all overlaps, {brief(times.serial, 's')} if nothing does"
    if "tensor" in times.unknown:
        return f"Without the products: {both}."
    low, high = (brief(rate, "FLOP/s") for rate in times.rate())
    return f"Waits for {times.bottleneck}: {both}; {low} to {high}."


def best_line(reading: Reading) -> str:
    """The best legal tile in words."""
    if reading.best is None:
        return f"No best tile: {reading.no_best}."
    tiles = ", ".join(f"{name} = {tile}" for name, tile in reading.best.tiles.items())
    more = "" if reading.reasons else f", this one {100 * (reading.moved / reading.best.moved - 1):+.1f} %"
    return f"Best legal tile: {tiles}; it moves {reading.best.moved:,} bytes{more}."


def bars(reading: Reading) -> Bars:
    """The time of every resource, and both bounds."""
    times = reading.times
    seconds = (*times.seconds, *((name, None) for name in times.unknown))
    totals = (("overlapped", times.overlapped), ("serial", times.serial))
    return Bars(f"Time on {reading.state.machine}", seconds, totals, times.bottleneck)


def roofs(reading: Reading) -> list[Scene]:
    """The roofline, where the machine states a peak in this format and there is matrix work."""
    state, one = reading.state, machine.load(reading.state.machine)
    if "tensor" not in dict(reading.times.seconds):
        return []
    best = [_stand(read(best_state(state, reading.best)))] if reading.best else [None]
    title = f"Roofline, {state.machine} {state.kind}"
    return [draw.roof_scene(Roof(title, one.bandwidth("global"), one.peak(state.kind), _stand(reading), *best))]


def _stand(reading: Reading) -> tuple[float, float, float]:
    return (reading.intensity, *reading.times.rate())


def maps(reading: Reading) -> list[Scene]:
    """The map of the first two tiles (or of the only one), where there are any."""
    state, axes = reading.state, tiles_of(reading.state.term)
    if not axes:
        return []
    row, column = ("", *axes)[-2:] if len(axes) < 2 else tuple(axes)[:2]
    here = state.everything
    best = dict(reading.best.tiles) if reading.best else None
    rows, columns = (_along(state, axes, name) for name in (row, column))
    base = replace(state, tiles=tuple((name, 1 if name in (row, column) else tile) for name, tile in state.tiles))
    heights, unfit = landscape(base, rows, columns, reading.room)
    at = [(tiles.get(row, 1), tiles[column]) for tiles in (here, best) if tiles]
    return [draw.map_scene(TileMap("Bytes moved", "B", rows, columns, heights, unfit, *at))]


def _along(state: State, axes: dict[str, str], name: str) -> tuple[str, tuple[int, ...]]:
    if not name:
        return "", (1,)
    length = state.term.numbers(dict(state.sizes))[axes[name]]
    least = min(16, state.everything[name], length)
    return name, tuple(tile for tile in tile_choices(length) if tile >= least)
