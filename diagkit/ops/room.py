"""What a run needs at least, before it starts: refused in words where the machine has less memory."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from diagkit.term import Axes, InputError, Term, memory_bytes, names


def refuse_larger(term: Term, shape: Callable[[Axes], tuple[int, ...]], itemsize: int) -> None:
    """Refuse a run of whole wires, one of which alone has more bytes than the machine has memory.

    Wires of positions alone are left out: most are never written down.
    """
    room = memory_bytes()
    for box in term.flat:
        wire = term.wires[box.name]
        held = itemsize * prod(shape(wire.axes))
        if room and held > room and not wire.virtual:
            by = " x ".join(f"{name} = {n:,}" for name, n in zip(names(wire.axes), shape(wire.axes), strict=True))
            raise InputError(
                f"{box.name!r} ({by}) takes {held / 2**30:,.1f} GiB, and this machine has {room / 2**30:,.1f} GiB",
                box=box.name,
                remedy="give smaller sizes, or group and stream it and run tiles: .lower(...).run(...)",
            )
