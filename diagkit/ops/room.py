"""What a run needs at least, before it starts: refused in words where the machine has less memory."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from diagkit.term import Axes, InputError, Term, memory_bytes, names

_TILES = "give smaller sizes, or group and stream it and run tiles: .lower(...).run(...)"


def refuse_larger(term: Term, shape: Callable[[Axes], tuple[int, ...]], itemsize: int) -> None:
    """Refuse a run of whole wires, one of which alone has more bytes than the machine has memory.

    Wires of positions alone are left out: most are never written down.
    """
    for box in term.flat:
        wire = term.wires[box.name]
        if not wire.virtual:
            by = " x ".join(f"{name} = {n:,}" for name, n in zip(names(wire.axes), shape(wire.axes), strict=True))
            refuse_bytes(f"{box.name!r} ({by})", itemsize * prod(shape(wire.axes)), box.name)


def refuse_bytes(what: str, held: int, box: str | None = None, remedy: str = _TILES) -> None:
    """Refuse what holds more bytes than the machine has memory.

    >>> refuse_bytes("a matrix of 2 by 2", 32)
    """
    room = memory_bytes()
    if room and held > room:
        reason = f"{what} takes {held / 2**30:,.1f} GiB, and this machine has {room / 2**30:,.1f} GiB"
        raise InputError(reason, box=box, remedy=remedy)
