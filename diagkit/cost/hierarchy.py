"""What a hierarchy of memories costs: the optimum at each level and their weighted sum, intermediate
caching, cross-transfer, and the network as one more level.

Every rule is drawn from the diagram's own H*(M), a sum of terms alpha * M**-beta; no operation is known
by name. Source: arXiv 2412.03317, sections 4.2, 4.4 (Theorem 2) and 4.5 (Theorem 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.cost.exact import Number, evaluate
from diagkit.cost.kernel import whole_elements
from diagkit.cost.optimum import Optimum, optimum
from diagkit.cost.show import Shown, Table, formula
from diagkit.term import DiagkitError, LevelGraph, Term, at_level, exact, names, size


@dataclass(frozen=True, repr=False)
class Rule(Shown):
    """A named rule applied to one diagram: the formula, in `unit`, and why it holds.

    `parts` are the terms it is the sum of, each with its beta.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    >>> flash = dk.Diagram(dk.attention(Q, K, V, over=x, features=d)).fuse().group(q="g_q").stream(x="s_x")
    >>> rule = flash.caching("M", "N")
    >>> rule.formula, rule.at(q=64, x=64, d=4, M=128, N=2), rule.unit
    (2*d*q + 4*d**2*q*x/(M*N), 1536, 'elements')
    """

    name: str
    formula: Any
    parts: tuple[tuple[Any, Any], ...]
    because: str
    when: str
    unit: str

    def at(self, **sizes: Any) -> Number:
        """The formula as a number at `sizes`."""
        return evaluate(self.formula, sizes)

    def _table(self) -> Table:
        parts = [(f"beta = {formula(beta)}", formula(part)) for part, beta in self.parts]
        return Table([(self.name, self.unit), ("all", formula(self.formula)), *parts,
                      ("because", self.because), ("while", self.when)])  # fmt: skip


def amount(value: Any) -> Any:
    """A number, a formula or the name of a symbol, as an expression.

    >>> amount("N") * amount(2)
    2*N
    """
    return size(value) if isinstance(value, str) else exact(value)


def positive(value: Any, what: str) -> Any:
    """An amount that is no number of 0 or below; else a DiagkitError that says `what` it should be.

    >>> positive("B", "bandwidth"), positive(3, "bandwidth")
    (B, 3)
    """
    found = amount(value)
    if found.is_number and not (found.is_finite and found > 0):
        raise DiagkitError(f"{value!r} is no {what}", remedy="give a number above 0, a formula, or a name")
    return found


def _best(term: Term, memory: Any, options: Mapping[str, Any]) -> Optimum:
    """H*(M) of the diagram, M a symbol; its terms are powers of M, which is what the theorems speak of."""
    found = optimum(term, memory, **options)
    strange = [part for part, beta in found.terms if not _is_power(part, beta, memory)]
    if strange:
        raise DiagkitError(
            f"H* has a term that is no power of memory: {formula(strange[0])}",
            remedy="leave the stream tile open and napkin=True: the rules are about the bound",
        )
    return found


def _is_power(part: Any, beta: Any, memory: Any) -> bool:
    return not sympy.powsimp(part * memory**beta).has(memory)


def _at_memory(best: Optimum, memory: Any, value: Any) -> list[tuple[Any, Any]]:
    """The terms of H* at another memory: part * (M / value) ** beta."""
    return [(sympy.powsimp(part * memory**beta) * value ** (-beta), beta) for part, beta in best.terms]


def _children(children: Any) -> Any:
    found = amount(children)
    if found.is_number and not (found.is_integer and found >= 1):
        raise DiagkitError(
            f"{children!r} memories share nothing", remedy="give a whole number of at least 1, or a name"
        )
    return found


def caching(term: Term, memory: Any, children: Any, **options: Any) -> Rule:
    """Theorem 2, intermediate caching: what the level above a caching one has to deliver.

    `memory` is that of one child, `children` how many share a middle memory. If the results stay in the
    children and the middle level only caches what streams past, then everything that the children hold
    together counts: H*(a, M N). The middle level's own size does not occur.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> caching(dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b"), "M", "N").formula
    a*c + 2*a*b*c/(sqrt(M)*sqrt(N))
    """
    symbol, count = size("M"), _children(children)
    parts = _at_memory(_best(term, symbol, options), symbol, positive(memory, "amount of memory") * count)
    return Rule(
        "intermediate caching (Theorem 2)", sympy.Add(*(part for part, _ in parts)), tuple(parts),
        "children that share a chunk load it once: together they are one tile of N times the memory",
        f"{formula(count)} tiles of the children are at work at once and their results stay with them",
        options.get("unit", "elements"),
    )  # fmt: skip


def cross_transfer(term: Term, memory: Any, children: Any, above: Any, across: Any, **options: Any) -> Rule:
    """Theorem 3, cross-transfer: the time when N children may read from each other, as in a cluster.

    `above` is the bandwidth from the level above to the children, `across` that between children and no less, in
    elements (or bytes, with unit="bytes") per second: ``(1/above - 1/across) H*(N M) + (1/across) H*(M)``.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b")
    >>> cross_transfer(tiled, "M", 1, "B_h", "B_x").formula
    a*c/B_h + 2*a*b*c/(B_h*sqrt(M))
    """
    symbol, count, held = size("M"), _children(children), positive(memory, "amount of memory")
    slow, cross = (1 / positive(rate, "bandwidth") for rate in (above, across))
    if (cross - slow).is_positive:
        reason = f"reading across at {across!r} is slower than from above at {above!r}"
        raise DiagkitError(reason, remedy="then nothing is read from a neighbour: take the optimum of one alone")
    best = _best(term, symbol, options)
    together, alone = (_at_memory(best, symbol, room) for room in (held * count, held))
    parts = [
        ((slow - cross) * shared + cross * own, beta) for (shared, beta), (own, _) in zip(together, alone, strict=True)
    ]
    return Rule(
        "cross-transfer (Theorem 3)", sympy.expand(sympy.Add(*(part for part, _ in parts))), tuple(parts),
        "what all need comes from above once, H*(N M); the rest of H*(M) comes from a neighbour",
        "reading from a neighbour is no slower than reading from above",
        "seconds",
    )  # fmt: skip


def cross_saving(beta: Any, children: Any, above: Any, across: Any) -> Any:
    """The part of a term's time that cross-transfer saves: ``(1 - above/across) (1 - N**-beta)``.

    >>> cross_saving(1, 2, 1, 2), cross_saving(sympy.Rational(1, 2), 4, 1, 2)
    (1/4, 1/4)
    """
    rates = positive(above, "bandwidth") / positive(across, "bandwidth")
    return (1 - rates) * (1 - _children(children) ** (-exact(beta)))


@dataclass(frozen=True, repr=False)
class LevelOptimum(Shown):
    """The best tiles of every level, each inside those above, and the time of all transfers one after another.

    * `levels`: (number, name, optimum, bandwidth) per level below the first;
    * `time`: the sum over levels of H*(M_l) / bandwidth_l, in seconds.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b")
    >>> slow, fast = dk.Level("global", 0), dk.Level("shared", 1, capacity="M", bandwidth="B")
    >>> tiled.level_optimum(dk.LevelGraph((slow, fast))).at(a=100, b=100, c=100, M=400, B=1000)
    110.0
    """

    levels: tuple[tuple[int, str, Optimum, Any], ...]
    time: Any

    def at(self, **sizes: Any) -> Number:
        """The time as a number at `sizes`, in seconds."""
        return evaluate(self.time, sizes)

    def _table(self) -> Table:
        rows: list[tuple[Any, ...]] = []
        for number, name, best, rate in self.levels:
            tiles = ", ".join(f"{formula(tile)} = {formula(value)}" for tile, value in best.tiles.items())
            rows.append(
                (f"{number} {name}", tiles, formula(best.transfers), formula(_short(best.transfers / rate, rate)))
            )
        head = ("level", "tiles", "least transfers", "seconds")
        whole = _short(self.time, sympy.Add(*(rate for *_, rate in self.levels)))
        return Table([head, *rows, ("all", "", "", formula(whole))])


def _short(time: Any, rate: Any) -> Any:
    """A time for reading: four digits where the rates are numbers."""
    return sympy.N(time, 4) if rate.is_number else time


def level_optimum(term: Term, graph: LevelGraph, caches: Iterable[str] = (), **options: Any) -> LevelOptimum:
    """The optimum of each level below the first of `graph`, by its capacity, weighted by 1 / bandwidth.

    A level named in `caches` keeps no results: what it is filled with is the optimum at the memory of all
    its children together (Theorem 2), and its own capacity does not occur.

    Levels add, and each is best by itself: a faster level is smaller, and its best tiles lie inside those of the
    level above, as tiles grow with memory. A level that has more memory than the one above it cannot use it, since
    its tiles lie inside: the lesser of the two counts, which makes the sum the optimum of all levels jointly. (Between
    symbols nobody knows the lesser: they are taken to shrink.) Options are those of `optimum`; capacities and
    bandwidths are in its unit.

    >>> import diagkit as dk
    >>> from diagkit.term import Level, LevelGraph
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> graph = LevelGraph((Level("global", 0), Level("shared", 1, 10_000, 10), Level("register", 2, 100, 40)))
    >>> level_optimum(dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b"), graph).time
    7*a*b*c/1000 + a*c/8
    """
    if not isinstance(graph, LevelGraph):
        raise DiagkitError(f"{graph!r} is no graph of levels", remedy="make one: LevelGraph((Level(...), ...))")
    known, found, above = tuple(caches), [], None
    for name in known:
        graph.number(name)
    for number, level in graph:
        room = _room(graph, number, known)
        if number > graph.top and room is not None:
            above = _lesser(above, room)
            best = optimum(at_level(term, number), above, **options)
            found.append((number, level.name, best, positive(level.bandwidth, "bandwidth")))
    time = sympy.Add(*(best.transfers / rate for _, _, best, rate in found))
    return LevelOptimum(tuple(found), sympy.expand(time))


def _lesser(above: Any, room: Any) -> Any:
    """The memory that a level can use: no more than the level above, whose tiles hold those of this one."""
    return room if above is None or not (above - room).is_negative else above


def _room(graph: LevelGraph, number: int, caches: tuple[str, ...]) -> Any:
    """The memory that counts at a level: its own, or that of all its children where it is a cache."""
    level = graph[number]
    if level.name not in caches:
        return None if level.capacity is None else amount(level.capacity)
    below = dict(graph).get(number + 1)
    room = None if below is None else _room(graph, number + 1, caches)
    if below is None or room is None:
        raise DiagkitError(f"{level.name} caches for nobody", remedy="give the level below it a capacity")
    return room * amount(below.children)


@dataclass(frozen=True, repr=False)
class Network(Shown):
    """What several devices send each other when an axis is shared out: `moved` by (array, what), in elements
    received by all devices together. What each device holds of its own is not sent.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    >>> flash = dk.Diagram(dk.attention(Q, K, V, over=x, features=d)).fuse().group(q="g_q").stream(x="s_x")
    >>> shared = flash.network(x=8)
    >>> shared.devices, shared.total(), shared.total(q=64, x=64, d=4)
    (8, 14*d*q + 14*q, 4480)
    """

    axis: str
    devices: Any
    moved: Mapping[tuple[str, str], Any]

    def total(self, **sizes: Any) -> Any:
        """All that is received, a formula or a number at `sizes`."""
        whole = sympy.Add(*self.moved.values())
        return evaluate(whole, sizes) if sizes else whole

    def _table(self) -> Table:
        rows = [(array, what, elements) for (array, what), elements in self.moved.items()]
        return Table([(f"{self.axis} over {self.devices}", "sent", "elements"), *rows, ("total", "", self.total())])


def network(term: Term, **devices: Any) -> Network:
    """The network as one more level: one axis shared out over so many devices, ``network(flash, x=8)``.

    Arrays begin and end spread evenly over the devices. Every array that lacks the axis is gathered on
    each, (devices - 1) times its size in all. An axis that is mapped over needs no more. One that is
    streamed leaves a partial state on each device, merged by the stream's own merge: a reduce-scatter of
    the state, (devices - 1) times its size.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c))
    >>> tiled = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b")
    >>> network(tiled, a="N").moved, network(tiled, b="N").total()
    ({('B', 'gather'): b*c*(N - 1)}, a*c*(N - 1))
    """
    if len(devices) != 1:
        raise DiagkitError("share out one axis at a time", remedy="write for example network(flash, x=8)")
    ((axis, count),) = devices.items()
    others = _children(count) - 1
    form = next((form for form in term.forms if form.axis == term.axis(axis).name), None)
    if form is None and term.label("group", axis) is None:
        reason = f"axis {axis!r} is neither grouped nor streamed: nothing says how devices would share it"
        raise DiagkitError(
            reason, axis=axis, remedy="group it (its parts are independent) or stream it (its parts are merged)"
        )
    moved = {(wire, "gather"): whole_elements(term.wires[wire].axes) for wire in _lacking(term, axis)}
    moved |= {(state.name, "reduce"): whole_elements(state.axes) for state in (form.state if form else ())}
    return Network(axis, amount(count), {key: elements * others for key, elements in moved.items()})


def _lacking(term: Term, axis: str) -> list[str]:
    """What kernels that carry the axis load without it."""
    found: dict[str, None] = {}
    for region in term.regions:
        loads = [wire for wire in region.loads if axis not in names(term.wires[wire].axes)]
        carried = (*(box.name for box in term.primitives(region)), *region.loads)
        if any(axis in names(term.wires[wire].axes) for wire in carried):
            found |= dict.fromkeys(loads)
    return list(found)
