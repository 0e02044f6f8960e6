"""Rewrites of the spine: other columns, the same numbers.

`open_blocks` shows what is inside a block; `hoist` pulls factors and terms that do not see a reduced axis
out of the reduction, by linearity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy

from diagkit.derive.algebra import ONE, ZERO, factored, gathered, is_positive, split_factors, split_terms
from diagkit.derive.history import AnyTerm, rewrite, take
from diagkit.derive.unseen import divided, only_unseen
from diagkit.term import (
    Axes,
    Block,
    Box,
    Cast,
    Contract,
    Map,
    Reduce,
    StreamError,
    Term,
    TermError,
    arg,
    elements,
    empty,
    flatten,
    names,
    value,
)


def open_blocks(term: AnyTerm, /, *blocks: str) -> AnyTerm:
    """Put the boxes inside blocks onto the spine: all blocks, or those that make the wires `blocks`.

    One layer: a block within a block stays one. The wires inside stay in fast memory, so that nothing
    is moved that was not moved before; the numbers are those of the same boxes. Raises TermError where
    a name is no block's.

    >>> from diagkit import ops
    >>> rows = Term(*ops.trace([ops.softmax(ops.array("S", ops.axis("x")), over="x", name="P")]))
    >>> [box.name for box in open_blocks(rows).boxes]
    ['P.max', 'P.exp', 'P.sum', 'P']
    """
    found = {box.name: box for box in term.boxes if isinstance(box, Block)}
    for name in blocks:
        if term.box(name).name not in found:
            known = ", ".join(found) or "none"
            raise TermError(f"{name!r} is no block", box=name, remedy=f"the blocks are: {known}")
    chosen = {name: box for name, box in found.items() if not blocks or name in blocks}
    if not chosen:
        return term
    titles = ", ".join(f"{box.title} {name!r}" for name, box in chosen.items())
    step = rewrite(term, "open", f"{titles}: the boxes inside take its place", blocks)
    return take(term, _opened(term, {name: box.body for name, box in chosen.items()}), step)


def _opened(term: Term, bodies: dict[str, tuple[Box, ...]]) -> dict[str, Any]:
    """What changes as the columns named are replaced by their bodies."""
    boxes = tuple(inner for box in term.boxes for inner in bodies.get(box.name, (box,)))
    inner = [box.name for body in bodies.values() for box in body[:-1] if not term.wires[box.name].virtual]
    forms = tuple(replace(form, region=_inside(form.region, bodies)) for form in term.forms)
    return {"boxes": boxes, "levels": (*term.levels, *((name, 1) for name in inner)), "forms": forms}


def _inside(region: tuple[str, ...], bodies: dict[str, tuple[Box, ...]]) -> tuple[str, ...]:
    columns = {name: [box.name for box in body] for name, body in bodies.items()}
    return tuple(inner for name in region for inner in columns.get(name, [name]))


@dataclass(frozen=True)
class Pull:
    """A reduction out of which something can be pulled.

    `box` reduces the wire `operand`, which is `outside` combined with `inside`, formulas over wires;
    `through` are the maps that these formulas replace. It takes `number` elements each; the sums `unseen` are 0 only
    where nothing was seen. Where `operand` rounds what is pulled apart, `rounds` is the cast that does.
    """

    box: Any
    operand: str
    outside: Any
    inside: Any
    through: frozenset[str]
    number: Any
    unseen: frozenset[Any]
    rounds: Cast | None = None


def hoist(term: AnyTerm, /, *boxes: str, past: str | tuple[str, ...] = ()) -> AnyTerm:
    """Pull what does not see the reduced axes out of sums (factors) and of maxima and minima (terms).

    ``contract(e / z, V)`` becomes ``contract(e, V) / z``: one division at the end instead of one per
    summand. Of all reductions, or of those that make the wires `boxes`. Blocks in which that happens
    are opened. Terms of a sum stay inside: n times the mean of n values, taken off again, cancels.
    A division by what may be 0 stays what it was: of an empty axis the sum is 0, and what is divided by the sum of
    exp(s - max s) is 0 where each s is -inf, the sum being that of nothing.

    A rounding is passed only where `past` names the wire that it makes, and that *changes rounding*: what is rounded
    then is e and no longer e / z, which may vanish in a format where e does not, or fit where e does not.

    Returns the diagram itself when there is nothing to pull out. Raises StreamError where the region is
    streamed already, TermError for a name that no box makes, or that no cast makes in `past`.

    >>> from diagkit import ops
    >>> x, e = ops.axes("x e")
    >>> P = ops.softmax(ops.array("S", x), over=x, name="P")
    >>> O = ops.einsum("x, x e -> e", P, ops.array("V", x, e), name="O")
    >>> [str(side) for side in hoist(Term(*ops.trace([O]))).steps[-1].identity[0]]
    ['O', 'O.acc / P.sum']
    """
    sums = [box.name for box in term.flat if isinstance(box, Contract | Reduce)]
    for name in boxes:
        if name not in {box.name for box in term.flat}:
            remedy = f"name what a sum makes: {', '.join(sums) or 'here is none'}"
            raise TermError(f"{term.name} has no box {name!r}", box=name, remedy=remedy)
    past = (past,) if isinstance(past, str) else past
    _check_casts(term, past)
    pulls = list(_pulls(term, boxes, past))
    if not pulls:
        return term
    opened = open_around(term, {name for pull in pulls for name in (pull.box.name, *pull.through)}, "hoist")
    changes: dict[str, Any] = {"boxes": opened.boxes, "levels": opened.levels}
    identity: list[tuple[Any, Any]] = []
    for pull in pulls:
        changes = _pulled(opened.replace(**changes), pull)
        identity.append(_equation(pull))
    what = ", ".join(f"out of {pull.box.name!r}" for pull in pulls)
    reason = f"what the reduced axis does not enter is pulled {what}, by linearity{_rounding(pulls)}"
    named = {"past": past} if past else {}
    return take(term, changes, rewrite(term, "hoist", reason, boxes, named=named, identity=tuple(identity)))


def _check_casts(term: Term, past: tuple[str, ...]) -> None:
    casts = [box.name for box in term.flat if isinstance(box, Cast)]
    for name in past:
        if name not in casts:
            remedy = f"name one of: {', '.join(casts)}" if casts else "round something first: cast(...)"
            raise TermError(f"{term.name} has no rounding {name!r} to pull past", box=name, remedy=remedy)


def _rounding(pulls: list[Pull]) -> str:
    """What a pull past a cast changes, in words; nothing where there is none."""
    moved = [f"{pull.rounds.name!r} rounds {gathered(pull.inside)}" for pull in pulls if pull.rounds]
    return f"; this changes rounding: {', '.join(moved)}" if moved else ""


def _pulls(term: Term, boxes: tuple[str, ...], past: tuple[str, ...]) -> Iterator[Pull]:
    """One pull for each reduction that has one."""
    for box in term.flat:
        if isinstance(box, Reduce | Contract) and (not boxes or box.name in boxes):
            found = (_Splitter(term, box).pull(wire, wire in past) for wire in box.inputs)
            yield from [pull for pull in found if pull is not None][:1]


class _Splitter:
    """Splits what a reduction reads into what the reduced axes enter and what they do not."""

    def __init__(self, term: Term, box: Any) -> None:
        self.term, self.box = term, box
        self.all: dict[str, Any] = {made.name: made for made in term.flat}
        self.makers = {name: made for name, made in self.all.items() if isinstance(made, Map)}
        self.over = {axis.name for wire in box.inputs for axis in term.wires[wire].axes} - set(names(box.axes))
        self.adds = getattr(box, "op", "sum") != "sum"
        self.through: set[str] = set()

    def enters(self, wire: str) -> bool:
        """Whether a reduced axis is on the wire."""
        return bool(self.over & set(names(self.term.wires[wire].axes)))

    def split(self, formula: Any) -> tuple[Any, Any]:
        """`formula` as (outside, inside)."""
        symbols = frozenset(symbol for symbol in formula.free_symbols if not symbol.is_integer)
        inside = frozenset(symbol for symbol in symbols if self.enters(symbol.name))
        return (split_terms if self.adds else split_factors)(factored(formula, symbols), inside, symbols)

    def formula(self, wire: str) -> Any:
        """The wire written out as far as something can be pulled out of it."""
        box, held = self.makers.get(wire), self.term.wires[wire]
        if box is None or not self.enters(wire) or held.virtual or held.dtype == "bool":
            return value(wire)
        formula = box.expr.xreplace({arg(place): self.formula(source) for place, source in enumerate(box.inputs)})
        outside, inside = self.split(formula)
        if outside == (ZERO if self.adds else ONE) or not any(self.enters(s.name) for s in _values(inside)):
            return value(wire)
        self.through.add(wire)
        return formula

    def pull(self, wire: str, rounded: bool) -> Pull | None:
        """What can be pulled out of the reduction's input `wire`, past its rounding too where that is wanted."""
        maker = self.all.get(wire)
        rounds = maker if rounded and isinstance(maker, Cast) else None
        source = rounds.inputs[0] if rounds else wire
        formula = self.formula(source)
        if formula == value(source):
            return None
        number = elements(tuple(axis for axis in self.term.axes.values() if axis.name in self.over))
        unseen = frozenset(symbol for symbol in _values(formula) if self._only_unseen(symbol.name))
        through = frozenset((*self.through, wire))
        return Pull(self.box, wire, *self.split(formula), through, number, unseen, rounds)

    def _only_unseen(self, wire: str) -> bool:
        """Whether a wire is a sum of exponentials, each less the largest exponent."""
        box = self.all.get(wire)
        made = self.makers.get(box.inputs[0]) if isinstance(box, Reduce) and box.op == "sum" else None
        if made is None:
            return False
        extremes = [self.all.get(source) for source in made.inputs]
        of = {value(e.name): value(e.inputs[0]) for e in extremes if isinstance(e, Reduce) and e.op in ("max", "min")}
        return only_unseen(made.expr.xreplace({arg(n): value(source) for n, source in enumerate(made.inputs)}), of)


def _values(formula: Any) -> list[Any]:
    return [part for part in sympy.preorder_traversal(formula) if part.is_Symbol and not part.is_integer]


def open_around(term: AnyTerm, touched: set[str], rule: str) -> AnyTerm:
    """The diagram with every block opened, through and through, that holds one of the boxes `touched`. Raises
    StreamError where one of them runs in a stream, which was derived for what is there; `rule` goes first."""
    bodies = {
        box.name: flatten(box.body)
        for box in term.boxes
        if isinstance(box, Block) and touched & {inner.name for inner in flatten(box.body)}
    }
    for form in term.forms:
        hit = sorted((touched | set(bodies)) & set(form.region))
        if hit:
            raise StreamError(
                f"{hit[0]!r} runs in a stream over {form.axis!r}", axis=form.axis, box=hit[0],
                remedy=f"{rule} first, then stream",
            )  # fmt: skip
    return term.replace(**_opened(term, bodies))


def _pulled(term: Term, pull: Pull) -> dict[str, Any]:
    """What changes as one pull is carried out: the sum of what stays inside, then the combination."""
    box, taken = pull.box, set(term.wires)
    kept = before = _map(term, _free(f"{box.name}.summand", taken), gathered(pull.inside), None)
    if pull.rounds:
        name = pull.operand if _alone(term, pull) else _free(f"{pull.operand}.late", taken)
        kept = replace(pull.rounds, name=name, axes=kept.axes, inputs=(kept.name,))
    inputs = tuple(kept.name if wire == pull.operand else wire for wire in box.inputs)
    carried = {*kept.axes, *(axis for wire in inputs if wire != kept.name for axis in term.wires[wire].axes)}
    axes = tuple(axis for axis in box.axes if axis in carried)
    partial = replace(box, name=_free(f"{box.name}.acc", taken), inputs=inputs, axes=axes)
    whole = _map(term, box.name, _combined(pull, value(partial.name)), box.axes)
    made = [part for part in dict.fromkeys((before, kept)) if isinstance(part, Box)]
    new = [*made, partial]
    old = [one for one in term.boxes if one.name != kept.name or not pull.rounds]
    columns = [made for one in old for made in ((*new, whole) if one.name == box.name else (one,))]
    columns = _read_only(columns, pull.through, term.outputs)
    return {"boxes": tuple(columns), "levels": _levels(term, pull, new, (*inputs, *whole.inputs), columns)}


def _alone(term: Term, pull: Pull) -> bool:
    """Whether nobody else reads what is pulled apart."""
    return pull.operand not in term.outputs and len(list(term.consumers(pull.operand))) == 1


def _levels(term: Term, pull: Pull, new: list[Any], read: tuple[str, ...], columns: list[Box]) -> tuple[Any, ...]:
    """New wires stay on chip where the operand did; what was read inside a kernel is on chip still only
    where the operand's reader is in that kernel."""
    level = term.level(pull.operand)
    levels = dict(term.levels) | {one.name: level for one in new} | {new[-1].name: 1}
    levels |= {wire: min(level, levels[wire]) for wire in read if wire in dict(term.levels)}
    made = {box.name for box in columns}
    return tuple((wire, one) for wire, one in levels.items() if wire in made and (one or wire in term.kept))


def _map(term: Term, name: str, formula: Any, axes: Axes | None) -> Any:
    """The map of a formula over wires; the wire itself where the formula is one."""
    wires = list(dict.fromkeys(_values(formula)))
    if axes is None and formula.is_Symbol:
        return term.wires[formula.name]
    if axes is None:
        carried = {axis for symbol in wires for axis in term.wires[symbol.name].axes}
        axes = tuple(axis for axis in term.axes.values() if axis in carried)
    places = {symbol: arg(place) for place, symbol in enumerate(wires)}
    return Map(name, axes, tuple(symbol.name for symbol in wires), formula.xreplace(places))


def _combined(pull: Pull, partial: Any) -> Any:
    """What was pulled out, with the partial result."""
    added = getattr(pull.box, "op", "sum") != "sum"
    formula = partial + pull.outside if added else partial * pull.outside

    def doubtful(below: Any) -> bool:
        return bool(_values(below)) and not is_positive(below, {})

    return gathered(divided(formula, pull.number, doubtful, pull.unseen.__contains__))


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    return name


def _read_only(boxes: list[Box], doubtful: frozenset[str], outputs: tuple[str, ...]) -> list[Box]:
    """`boxes` without those of the `doubtful` that nobody reads any more."""
    kept: list[Box] = []
    read = set(outputs)
    for box in reversed(boxes):
        if box.name in read or box.name not in doubtful:
            kept.append(box)
            read |= set(box.inputs)
    return kept[::-1]


def _equation(pull: Pull) -> tuple[Any, Any]:
    """What the reduction is, in terms of the partial result."""
    whole = _combined(pull, value(f"{pull.box.name}.acc"))
    return value(pull.box.name), whole.replace(empty, lambda count: ZERO)
