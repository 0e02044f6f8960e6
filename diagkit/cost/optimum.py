"""The best tiles: least transfers under a memory limit, with every step of the working kept.

The problem is a geometric program: transfers without ceilings and memory are sums of products of tiles.
It is solved in closed form where its shape allows (see `closed`), else numerically in logarithms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import sympy

from diagkit.cost.closed import closed_form
from diagkit.cost.exact import Number, evaluate, relax
from diagkit.cost.exponents import exponents
from diagkit.cost.kernel import check_names, check_unit
from diagkit.cost.memory import memory as memory_of
from diagkit.cost.numeric import minimise
from diagkit.cost.posynomial import Posynomial, posynomial
from diagkit.cost.show import Shown, Table, formula, latex
from diagkit.cost.transfers import transfers
from diagkit.cost.upper import undominated
from diagkit.term import DiagkitError, InputError, Label, Term, at_level, exact, size


@dataclass(frozen=True, repr=False)
class Optimum(Shown):
    """The best tiles and what they move.

    * `tiles`: formula or number by tile (a product of tiles where only that counts);
    * `transfers`: H*(M), the least transfers; `terms`: its terms with the exponent of M in each, so that
      H* is a sum of ``alpha * M ** -beta``;
    * `objective` and `constraints`: what was minimised, and the memory sums that stay within `limit`;
    * `method`: how it was solved; `relaxations`: what was assumed on the way; `unit`: of all of these.

    Source: arXiv 2412.03317, section 4.1 (form of the optimum), 3.1 (matmul) and 3.2 (attention).

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> best = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").optimum(memory="M")
    >>> best.tiles, best.transfers
    ({g_a: sqrt(M), g_c: sqrt(M)}, a*c + 2*a*b*c/sqrt(M))
    >>> best.beta, best.at(a=100, b=100, c=100, M=400)
    (1/2, 110000.0)
    """

    tiles: Mapping[Any, Any]
    transfers: Any
    terms: tuple[tuple[Any, Any], ...]
    objective: Any
    constraints: tuple[Any, ...]
    limit: Any
    method: str
    relaxations: tuple[str, ...]
    unit: str = "elements"

    @property
    def beta(self) -> Any:
        """The exponent of M in the term that falls slowest, which rules for large M; 0 where none falls."""
        return min((beta for _, beta in self.terms if beta != 0), default=sympy.Integer(0))

    def at(self, **sizes: Any) -> Number:
        """H* as a number at `sizes` (elements) and the memory limit, by name."""
        return evaluate(self.transfers, sizes)

    def _table(self) -> Table:
        bounds = [("such that", f"{formula(bound)} <= {formula(self.limit)}") for bound in self.constraints]
        tiles = [("tile", f"{formula(tile)} = {formula(best)}") for tile, best in self.tiles.items()]
        terms = [("beta", f"{formula(beta)} in {formula(term)}") for term, beta in dict.fromkeys(self.terms)]
        rows = [("minimise", formula(self.objective)), *bounds, ("solved by", self.method), *tiles]
        rows += [("least transfers", formula(self.transfers)), *terms, *(("relaxed", one) for one in self.relaxations)]
        return Table([("optimum", self.unit), *rows])

    def _repr_latex_(self) -> str:
        lines = [rf"H &= {latex(self.objective)}"]
        lines += [rf"{latex(bound)} &\le {latex(self.limit)}" for bound in self.constraints]
        lines += [rf"{latex(tile)} &= {latex(best)}" for tile, best in self.tiles.items()]
        lines.append(rf"H^* &= {latex(self.transfers)}, \quad \beta = {latex(self.beta)}")
        working = r" \\ ".join(lines)
        return rf"$\displaystyle \begin{{aligned}} {working} \end{{aligned}}$"


@dataclass
class _Problem:
    """The problem while it is set up: what to choose, what to minimise, what bounds it."""

    most: dict[Any, Any]
    objective: Any
    columns: list[Any]
    limit: Any
    notes: list[str] = field(default_factory=list)
    settled: dict[Any, Any] = field(default_factory=dict)

    def settle(self, values: Mapping[Any, Any]) -> None:
        """Put values in for tiles."""
        self.settled |= values
        self.most = {tile: most for tile, most in self.most.items() if tile not in values}
        self.objective = self.objective.subs(values)
        self.columns = undominated([column.subs(values) for column in self.columns])

    def sums(self) -> tuple[Posynomial, list[Posynomial]]:
        """Transfers, and the memory sums that depend on a tile."""
        held = [posynomial(column, self.most) for column in self.columns]
        return posynomial(self.objective, self.most), [one for one in held if one.active]


def optimum(
    term: Term,
    memory: Any = None,
    *,
    napkin: bool = True,
    unit: str = "elements",
    dtype: str | None = None,
    buffers: int = 1,
    **sizes: Any,
) -> Optimum:
    """The group tiles with the least transfers whose kernels stay within `memory`, in `unit`.

    `memory` is a number, a formula or the name of a symbol. With `napkin` only loads, chunks and stored
    outputs are held, as on paper; else everything is. `sizes` give numbers or formulas to axes and tiles
    by name: a stream tile that is not given goes to 0, which is the bound. With unit="bytes" both sides
    are in bytes, by the format of each wire or in `dtype`; with `buffers` 2 every chunk has room for the next.

    A DiagkitError where no closed form exists and sizes are still open, or where nothing fits.

    >>> from diagkit.ops import array, axes, einsum, trace
    >>> from diagkit.term import Label
    >>> a, b, c = axes("a b c")
    >>> C = einsum("a b, b c -> a c", array("A", a, b), array("B", b, c), name="C")
    >>> tiled = Term(*trace([C]), labels=(Label("group", "a", size("g_a")), Label("group", "c", size("g_c"))))
    >>> optimum(tiled, "M", b=1).tiles
    {g_a: sqrt(M + 1) - 1, g_c: sqrt(M + 1) - 1}
    """
    term = at_level(term, 1)
    limit = _limit(memory)
    check_names(term, sizes)
    check_unit(unit)
    moved, held = transfers(term), memory_of(term).buffered(buffers)
    held = held.napkin() if napkin else held
    moved, held = (moved.bytes(dtype), held.bytes(dtype)) if unit == "bytes" else (moved, held)
    notes = ["memory holds loads, chunks and stored outputs only"] if napkin else []
    notes += [f"every chunk has {buffers} buffers"] if buffers > 1 else []
    return least(term, moved.total(), list(held.columns().values()), limit, sizes, notes, unit)


def least(
    term: Term, moved: Any, held: list[Any], memory: Any, sizes: Mapping[str, Any], notes: list[str], unit: str
) -> Optimum:
    """The group tiles of `term` that make the sum `moved` least while no sum in `held` exceeds `memory`."""
    problem = _problem(term, moved, held, _limit(memory), sizes, notes)
    _drop_idle(problem)
    tiles, names = _merge_alike(problem)
    objective, bounds = problem.sums()
    method, found, betas = _solve(problem, objective, bounds)
    best = {names.get(tile, tile): value for tile, value in {**found, **problem.settled}.items() if tile in tiles}
    shown = [bound.expression().subs(names) for bound in bounds]
    terms = _terms(objective, found, betas)
    return Optimum(
        best, sympy.Add(*(value for value, _ in terms)), terms, objective.expression().subs(names), tuple(shown),
        problem.limit, method, tuple(problem.notes), unit,
    )  # fmt: skip


def _problem(
    term: Term, moved: Any, held: list[Any], limit: Any, sizes: Mapping[str, Any], notes: list[str]
) -> _Problem:
    given = {size(name): _size(name, value) for name, value in sizes.items()}
    groups = {tile: term.axis(axis).size.subs(given) for axis, tile in _open(term, "group", given)}
    problem = _Problem(groups, relax(moved).subs(given), [column.subs(given) for column in held], limit)
    problem.columns = undominated(problem.columns)
    problem.notes += ["tiles divide their axes: no ceilings"] if moved.has(sympy.ceiling) else []
    problem.notes += notes
    _shrink_chunks(problem, [tile for _, tile in _open(term, "stream", given)])
    return problem


def _size(name: str, value: Any) -> Any:
    """What a size is given as: a number, a formula or a name."""
    if isinstance(value, str) and value.isidentifier():
        return size(value)
    number = exact(value) if isinstance(value, (int, float, sympy.Expr, Integral)) else None
    if number is None or number.is_positive is False:
        raise InputError(f"{name!r} cannot have size {value!r}", axis=name, remedy="give a number, a formula or a name")
    return number


_LIKE_A_FORMAT = re.compile(r"(fp|bf|tf|u?int|float)\d+\w*")  # bits("fp8") asks for gain("fp8e4m3")


def _limit(memory: Any) -> Any:
    """The memory limit as a formula; refused where it is no amount of memory."""
    if memory is None:
        raise InputError(
            "no memory is given", remedy='say how much: memory=65536, or memory="M"; sizes go by name, q=4096'
        )
    if isinstance(memory, str) and memory.isidentifier() and not _LIKE_A_FORMAT.fullmatch(memory):
        return size(memory)
    limit = exact(memory) if isinstance(memory, (int, float, sympy.Expr)) else None
    if limit is None or (limit.is_number and not (limit.is_finite and limit > 0)):
        raise DiagkitError(
            f"{memory!r} is no amount of memory", remedy='give a number above 0, a formula, or a name such as "M"'
        )
    return limit


def _open(term: Term, kind: str, given: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """The axes whose tile is a symbol without a value."""
    labels: Iterable[Label] = (label for label in term.labels if label.kind == kind)
    return [(label.axis, label.tile) for label in labels if label.tile.is_Symbol and label.tile not in given]


def _shrink_chunks(problem: _Problem, chunks: Sequence[Any]) -> None:
    if problem.objective.free_symbols & set(chunks):
        raise DiagkitError("transfers depend on the chunk", remedy="give the stream tile, or ask for the legal tile")
    problem.columns = undominated([column.subs(dict.fromkeys(chunks, 0)) for column in problem.columns])
    problem.notes += [f"{chunk} -> 0: a chunk takes memory and saves no transfers" for chunk in chunks]


def _drop_idle(problem: _Problem) -> None:
    """A tile that saves nothing is 1: it could only take memory."""
    moved = posynomial(problem.objective, problem.most)
    idle = [tile for tile in problem.most if not moved.uses(tile)]
    problem.notes += [f"{tile} = 1: transfers do not depend on it" for tile in idle]
    problem.settle(dict.fromkeys(idle, sympy.Integer(1)))


def _merge_alike(problem: _Problem) -> tuple[set[Any], dict[Any, Any]]:
    """Tiles that occur only as a product become one; returns what is chosen, and products by new symbol."""
    moved, held = problem.sums()
    alike: dict[Any, list[Any]] = {}
    for place, tile in enumerate(problem.most):
        signature = tuple(powers[place] for one in (moved, *held) for powers, _ in one.terms)
        alike.setdefault(signature, []).append(tile)
    names = {}
    for several in (tiles for tiles in alike.values() if len(tiles) > 1):
        product = size("*".join(tile.name for tile in several))
        names[product] = sympy.Mul(*several)
        problem.notes.append(f"only the product {names[product]} counts")
        most = {product: sympy.Mul(*(problem.most[tile] for tile in several))}
        problem.settle({several[0]: product, **dict.fromkeys(several[1:], sympy.Integer(1))})
        problem.settled = {tile: value for tile, value in problem.settled.items() if tile not in several}
        problem.most |= most
    return {*problem.most, *problem.settled}, names


Solution = tuple[str, dict[Any, Any], list[Any]]
"""How it was solved, the tiles, and the exponent of M in each active term."""


def _solve(problem: _Problem, objective: Posynomial, bounds: list[Posynomial]) -> Solution:
    if not problem.most or not bounds:
        return _whole(problem, objective)
    found = closed_form(objective, bounds[0], problem.limit) if len(bounds) == 1 else None
    if found is None:
        return _numeric(problem, objective, bounds)
    _, tiles, _ = found
    beyond = [tile for tile, most in problem.most.items() if _is_beyond(tiles[tile], most)]
    if beyond:
        return _on_the_edge(problem, objective, bounds, beyond)
    problem.notes += [
        f"holds while {t.name} <= {formula(most)}" for t, most in problem.most.items() if tiles[t].free_symbols
    ]
    return found


def _whole(problem: _Problem, objective: Posynomial) -> Solution:
    """No memory depends on the tiles: each is the whole axis."""
    return "nothing to choose", dict(problem.most), [sympy.Integer(0)] * len(objective.active)


def _is_beyond(tile: Any, most: Any) -> bool:
    """Whether a tile is known to be smaller than 1 or larger than its axis."""
    return bool(tile.is_number and most.is_number and not 1 <= float(tile) <= float(most))


def _on_the_edge(problem: _Problem, objective: Posynomial, bounds: list[Posynomial], beyond: Sequence[Any]) -> Solution:
    """A tile that the closed form puts beyond its axis: alone, it is cut off; else it is searched for."""
    (bound,), most = bounds, problem.most
    smallest = bound.at(dict.fromkeys(most, sympy.Integer(1)))
    if len(most) > 1 or float(smallest) > float(problem.limit):
        return _numeric(problem, objective, bounds)
    (tile,) = beyond
    problem.notes.append(f"{tile.name} is as large as its axis")
    return "one tile, the whole axis", {tile: most[tile]}, exponents(objective, bounds)


def _numeric(problem: _Problem, objective: Posynomial, bounds: list[Posynomial]) -> Solution:
    sums = [objective.expression(), *(bound.expression() for bound in bounds)]
    free = [one.free_symbols - set(problem.most) for one in (*sums, problem.limit, *problem.most.values())]
    still = sorted({symbol.name for symbols in free for symbol in symbols})
    if still:
        names = ", ".join(sorted(tile.name for tile in problem.most))
        within = f"{formula(sums[1])} <= {formula(problem.limit)}"
        reason = f"no closed form says which {names} make {formula(sums[0])} least within {within}"
        raise DiagkitError(reason, remedy=f"give numbers for: {', '.join(still)}")
    most = {tile: float(top) for tile, top in problem.most.items()}
    found = minimise(objective, bounds, float(problem.limit), list(most.values()))
    edge = {tile for tile, value in found.items() if value > most[tile] * (1 - 1e-6)}
    problem.notes += [f"{tile.name} is as large as its axis" for tile in most if tile in edge]
    tiles = {tile: problem.most[tile] if tile in edge else sympy.Float(value) for tile, value in found.items()}
    return "numerically, in logarithms", tiles, exponents(objective, bounds)


def _terms(objective: Posynomial, tiles: Mapping[Any, Any], betas: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """The terms of H*, with exponents: those without a tile do not fall with M."""
    fixed = [(objective.constant, sympy.Integer(0))] if objective.constant != 0 else []
    moving = [objective.term_at(powers, factor, tiles) for powers, factor in objective.active]
    return (*fixed, *zip(moving, betas, strict=True))
