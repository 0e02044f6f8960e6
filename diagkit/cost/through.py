"""Loads through views: how many elements of the array behind an alias a kernel loads.

The array is covered as the alias covers it: each of its elements once per tile that reads it, positions
beyond it never. A coordinate ``floor(x / 64)`` reads one element per block of 64 positions and tile; windows of w
positions, g of them in a tile, read g + w - 1, cut off at the ends of the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as combinations
from typing import Any

import sympy

from diagkit.cost.kernel import Kernel, product, tiles
from diagkit.cost.masks import Mask
from diagkit.cost.visits import Bound, Clip, Cut, make_visited
from diagkit.term import Alias, InputError, Run, at_least, coordinate, exact, shifted

Limits = list[tuple[Any, Any]]
"""(shift, size): a coordinate counts only where 0 <= coordinate + shift < size."""


def loaded_through(kernel: Kernel, alias: Alias, mask: Mask) -> Any:
    """The elements of the array behind `alias` that all groups of a kernel load."""
    along = kernel.streamed if any(axis.name == kernel.streamed for axis in alias.over) else None
    if along and mask.bounds:
        return _visited(kernel, alias, mask)
    again = kernel.chunks if along and along not in alias.read else 1
    return product((*_counts(kernel, alias, ()), kernel.repeats(alias.read), again))


def tile_through(kernel: Kernel, alias: Alias) -> Any:
    """The elements of the array behind `alias` that belong to one full tile; the streamed axis passed whole."""
    found = []
    for run, read in zip(alias.runs, alias.coordinates, strict=True):
        sizes = {axis.name: exact(axis.size) for axis in alias.over}
        extents = [kernel.grouped.get(axis, sizes[axis]) for axis in run.axes]
        whole = all(axis not in kernel.grouped and not (run.signs and axis == kernel.streamed) for axis in run.axes)
        if run.signs:
            found.append(_halo(kernel, run, sizes) if not whole else _inside(run, _limits(alias, read)))
        elif run.block > 1:
            found.append(tiles(extents[0], _unit(kernel, run)))
        else:
            found.append(_inside(run, _limits(alias, read)) if whole else product(tuple(extents)))
    return product(tuple(found))


def _counts(kernel: Kernel, alias: Alias, but: Iterable[str]) -> Iterator[Any]:
    """What each coordinate reads in all tiles together; those that depend on one of the axes `but` left out."""
    for run, read in zip(alias.runs, alias.coordinates, strict=True):
        if not set(run.axes) & set(but) and run.signs:
            yield _overlapping(kernel, alias, run, _limits(alias, read))
        elif not set(run.axes) & set(but):
            yield _blocks(kernel, alias, run) if run.block > 1 else _inside(run, _limits(alias, read))


def _halo(kernel: Kernel, run: Run, sizes: Mapping[str, Any]) -> Any:
    """The positions of one full tile of windows; along the streamed axis those of every chunk."""
    reach = sympy.Add(*(kernel.grouped.get(a, sizes[a]) - 1 for a in run.axes if a != kernel.streamed))
    if kernel.streamed not in run.axes:
        return reach + 1
    return sizes[str(kernel.streamed)] + kernel.chunks * reach


def _overlapping(kernel: Kernel, alias: Alias, run: Run, limits: Limits) -> Any:
    """The positions that windows read in all tiles together: in each tile from the least to the greatest."""
    sizes = {axis.name: exact(axis.size) for axis in alias.over if axis.name in run.axes}
    tile_of = {**kernel.grouped, **({kernel.streamed: kernel.chunk} if kernel.streamed else {})}
    cut = {axis: Cut(sizes[axis], tile_of[axis], 0) for axis in run.axes if axis in tile_of}
    whole = sympy.Add(*(sizes[axis] - 1 for axis in run.axes if axis not in cut))
    if not cut:
        return _inside(run, limits)
    if not limits:
        return _unlimited([*cut.values()], whole)
    signs = {axis: sign for axis, sign in zip(run.axes, run.signs, strict=True) if axis in cut}
    low, slopes = run.start + sympy.Add(*(sizes[a] - 1 for a in cut if signs[a] < 0)), tuple(signs.values())
    bounds = [Bound(1, slopes, low + whole), Bound(-1, tuple(-slope for slope in slopes), -low)]
    still = (0,) * len(slopes)
    bounds += [Bound(1, still, length - shift - 1) for shift, length in limits if shift]
    bounds += [Bound(-1, still, shift) for shift, _ in limits if shift]
    length = exact(alias.axes[alias.runs.index(run)].size)
    return make_visited(Cut(length, sympy.S.One, sympy.S.One), [*cut.values()], bounds)


def _unlimited(cuts: Sequence[Cut], whole: Any) -> Any:
    """The same where windows never reach beyond the array: each tile has its positions and `whole` more, less one for
    each cut axis but the first."""
    counts = [tiles(cut.size, cut.tile) for cut in cuts]
    every = product(tuple(counts))
    own = sympy.Add(*(cut.size * every / count for cut, count in zip(cuts, counts, strict=True)))
    return every * (whole + 1 - len(cuts)) + own


def _blocks(kernel: Kernel, alias: Alias, run: Run) -> Any:
    (axis,) = (axis for axis in alias.over if axis.name in run.axes)
    return tiles(exact(axis.size), _unit(kernel, run))


def _unit(kernel: Kernel, run: Run) -> Any:
    """The positions that share one element within a tile: a block, or the tile where that is smaller."""
    (axis,) = run.axes
    tile = kernel.chunk if axis == kernel.streamed else kernel.grouped.get(axis)
    return sympy.Integer(run.block) if tile is None else sympy.Min(tile, run.block)


def _limits(alias: Alias, read: Any) -> Limits:
    """The bounds on one coordinate. That an axis of open size keeps it under another name is understood."""
    sizes = {axis.name: axis.length for axis in alias.over}
    renamed = {coordinate(name) for name, length in sizes.items() if length is None}
    open_ = {axis.size for axis in alias.axes if axis.length is None}
    found = []
    for position, length in alias.bounds:
        shift = shifted(position, read)
        if shift is not None and not (position in renamed and length in open_):
            found.append((shift, exact(length)))
    return found


def _inside(run: Run, limits: Limits) -> Any:
    """The positions of a run within its limits."""
    first, step = run.ends[0], abs(run.stride)
    lows = [sympy.ceiling(-(first + shift) / step) for shift, _ in limits]
    highs = [sympy.ceiling((size - shift - first) / step) for shift, size in limits]
    low, high = _greatest([sympy.S.Zero, *lows]), -_greatest([-one for one in (run.count, *highs)])
    return high - low if at_least(high, low) else sympy.Max(0, high - low)


def _greatest(values: list[Any]) -> Any:
    kept: list[Any] = []
    for value in values:
        if not any(at_least(other, value) for other in kept):
            kept = [other for other in kept if not at_least(value, other)] + [value]
    return sympy.Max(*kept)


def _visited(kernel: Kernel, alias: Alias, mask: Mask) -> Any:
    """The same under a mask that skips chunks."""
    streamed, sizes = str(kernel.streamed), {axis.name: exact(axis.size) for axis in kernel.term.axes.values()}
    touched = {streamed, *mask.axes}
    met = [run for run in alias.runs if touched & set(run.axes)]
    _refuse_clipped(kernel, alias, met)
    halos = [_pieces(kernel, run, sizes) for run in met if run.signs]
    cut = [axis for run in met if run.signs for axis in run.axes if axis in kernel.grouped and axis not in touched]
    clipped = [axis for run in met if _bound(alias, run) for axis in run.axes if axis not in touched]
    axes = (*mask.axes, *cut, *clipped)
    bounds = [replace(one, slopes=(*one.slopes, *(0 for _ in (*cut, *clipped)))) for one in mask.bounds]
    clips = list(_clips(alias, met, streamed, axes))
    rest = [sizes[axis] for run in met if not run.signs for axis in run.axes if axis not in {streamed, *axes}]
    found = []
    for choice in combinations(*halos):
        unit = _units(kernel, alias) | {axis: one for units, _ in choice for axis, one in units.items()}
        others = [Cut(sizes[a], kernel.grouped.get(a, sizes[a]), unit.get(a, 0)) for a in axes]
        visited = make_visited(Cut(sizes[streamed], kernel.chunk, unit.get(streamed, 0)), others, bounds, clips)
        found.append(product((*(times for _, times in choice), visited)))
    return product((*_counts(kernel, alias, touched), *rest, kernel.repeats(alias.read, axes), sympy.Add(*found)))


def _units(kernel: Kernel, alias: Alias) -> dict[str, Any]:
    """What of a tile counts as one along the axes that are read, but for those of windows: a block or a position."""
    plain = [run for run in alias.runs if not run.signs]
    return {axis: _unit(kernel, run) if run.block > 1 else 1 for run in plain for axis in run.axes}


def _pieces(kernel: Kernel, run: Run, sizes: Mapping[str, Any]) -> list[tuple[dict[str, Any], Any]]:
    """The positions of the windows of a tile as a sum: those along each axis that is cut, where the others count
    tiles (0 of their positions), and how often; and for each tile what all windows have more."""
    cut = [axis for axis in run.axes if axis in kernel.grouped or axis == kernel.streamed]
    more = sympy.Add(*(sizes[axis] - 1 for axis in run.axes if axis not in cut)) + 1 - len(cut)
    return [({axis: int(axis == counted) for axis in cut}, sympy.S.One) for counted in cut] + [
        (dict.fromkeys(cut, 0), more)
    ]


def _refuse_clipped(kernel: Kernel, alias: Alias, met: Iterable[Run]) -> None:
    """Windows that reach beyond the array are cut off in some of the tiles that a mask visits: no formula counts
    these."""
    run = next((run for run in met if run.signs and _bound(alias, run)), None)
    if run is not None:
        raise InputError(
            f"a mask skips chunks of {kernel.streamed!r}, and windows of {alias.array!r} that are read in them may "
            "reach beyond it",
            axis=run.axes[0],
            remedy="count a run, lower(...).count(), end a kernel at the windows, or give sizes with which all "
            "windows lie inside",
        )


def _bound(alias: Alias, run: Run) -> Limits:
    return _limits(alias, alias.coordinates[alias.runs.index(run)])


def _clips(alias: Alias, runs: list[Run], streamed: str, axes: tuple[str, ...]) -> Iterator[Clip]:
    """The limits of some coordinates, as of positions along the streamed axis and `axes`."""
    for run in runs:
        read = sympy.expand(alias.coordinates[alias.runs.index(run)])
        slopes = tuple(read.coeff(coordinate(axis)) for axis in axes)
        for shift, size in _limits(alias, read):
            yield Clip(read.coeff(coordinate(streamed)), slopes, run.start + shift, size)
