"""Groups that run at the same time and read the same stream: what they fetch together.

Intermediate caching (Theorem 2 of arXiv 2412.03317, section 4.4) with whole tiles: N groups that run at once
fetch what one group N times as large would. Which axes they lie along is chosen for the least transfers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from diagkit import cost
from diagkit.term import Term


def moved_together(term: Term, dtype: str | None, sizes: Mapping[str, int], count: int) -> int:
    """Bytes across global memory when `count` groups at a time fetch as one; `sizes` and tiles in elements.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b")
    >>> sizes = dict(a=64, b=64, c=64, g_a=16, g_c=16, s_b=16)
    >>> moved_together(tiled, "fp16", sizes, 1), moved_together(tiled, "fp16", sizes, 4)
    (73728, 40960)
    """
    moved = cost.transfers(term).bytes(dtype)
    tiles = [(label.axis, str(label.tile)) for label in term.labels if label.kind == "group" and label.level == 1]
    whole = term.numbers({name: number for name, number in sizes.items() if name in term.open_sizes})
    cuts = [(tile, sizes[tile], ceil(whole[axis] / sizes[tile])) for axis, tile in tiles if tile in sizes]
    shapes = shared_out(count, [groups for *_, groups in cuts])
    return min(
        int(moved.total(**{**sizes, **{tile: size * n for (tile, size, _), n in zip(cuts, shape, strict=True)}}))
        for shape in shapes
    )


def shared_out(count: int, most: list[int]) -> Iterator[tuple[int, ...]]:
    """Ways to lay `count` groups along axes that have so many each: powers of two, the last axis filled up.

    >>> list(shared_out(6, [4, 2]))
    [(1, 2), (2, 2), (4, 1)]
    """
    if len(most) <= 1:
        yield tuple(min(count, groups) for groups in most)
        return
    along = 1
    while along <= min(count, most[0]):
        yield from ((along, *rest) for rest in shared_out(count // along, most[1:]))
        along *= 2
