"""Streaming: one region runs in chunks along one axis, carrying what the algebra says must be carried.

`stream` opens the region's blocks, sorts its boxes by their relation to the axis, finds for each reduction
the partial results and how they are corrected (see `sums`), and writes the result down as a `StreamForm`.
Nothing here knows any operation by name.
"""

from __future__ import annotations

from typing import Any

from diagkit.derive.attained import ATTAINED
from diagkit.derive.form import CHUNK, END, SIDES, Writer
from diagkit.derive.group import make_label, refuse_wider
from diagkit.derive.history import AnyTerm, relabel, take
from diagkit.derive.identity import identities, method
from diagkit.derive.moments import LEMMA
from diagkit.derive.ranked import RANKED
from diagkit.derive.rewrite import hoist as pulled
from diagkit.derive.sort import Sorted
from diagkit.derive.sums import Sums
from diagkit.derive.tops import TOPPED
from diagkit.derive.unseen import bare_shift
from diagkit.derive.windows import ordered
from diagkit.term import Box, Cast, Contract, Label, Reduce, Region, State, StreamError, StreamForm, Term, names, value


def stream(
    term: AnyTerm, /, *, hoist: bool = True, lemma: bool = True, region: str | None = None, level: int = 1, **tiles: Any
) -> AnyTerm:
    """Run one region in chunks along one axis: ``stream(x="s_x")``, ``stream(x=32)``, ``stream(x=None)``.

    The chunk is in elements. `region` names a box of the region where several could stream the axis.
    What is divided by a sum over the axis is divided once, at the end, and as the diagram divides: ``a / b`` is no
    number where both are 0, ``quotient(a, b)``, which the blocks use, is 0. Only where each s is -inf a stream gives
    more than a diagram written out by hand: there exp(s - max s) is no number, and its stream takes -inf for what is
    not there: sums are 0, what is divided by them too, as in `softmax`; the step's reason says where.
    Where a sum reads what is rounded after such a division, the stream has to round before it: that is no label any
    more, so the diagram is rewritten first, `hoist` past the rounding, a step of its own that says what is rounded now.
    With ``hoist=False`` divisions stay inside the sums: the always-normalised form. What is rounded is then divided by
    what is known at its chunk, and is larger than in the end.
    Powers of deviations from a mean, or from anything else near the data that later chunks change, are summed about a
    running mean: that under the formula's own weights where these cannot be negative (exponentials, squares,
    magnitudes, masks), else one under their magnitudes, which takes a few more sums. With ``lemma=False`` they are
    streamed by power sums, which cancel for data with a large mean. What is not centred enters as it is written.
    Partial results are those of the chunks seen so far, and exp(s - r) may overflow in one of them where r is no
    maximum of s: then exp(s - m) is summed, m being the maximum of s, which is carried too, and exp(m - r) is
    multiplied on at the end. Logs of what waits are opened, so that p log p is summed as exp(s - m) (s - m): with
    scores of 1e4 a stream is right where the log of a probability that was rounded to 0 is not.
    The result carries a `StreamForm`: state, step, tail, merge, and the equations used. With `level` 2 and
    up a chunk is run in chunks itself, ``stream(level=2, x="u_x")``: the same step, on less at a time.

    Raises StreamError, naming box, axis, reason and remedy, where no bounded state carries the region
    from chunk to chunk; AxisError for an unknown axis.

    Source: the streaming lemma, here derived: a partial sum of f(x, r) is carried forward by
    f(x, r_new) / f(x, r_old) where that is free of x.

    >>> from diagkit import ops
    >>> q, x = ops.axes("q x")
    >>> rows = Term(*ops.trace([ops.logsumexp(ops.array("S", q, x), over=x, name="L")]))
    >>> for state in stream(rows, x="s_x").forms[0].state:
    ...     print(state)
    State('L.max', (Axis('q'),), exact('-oo'), 'L.max.new', 'fp32')
    State('L.sum', (Axis('q'),), 0, 'L.sum.new', 'fp32')
    """
    axis, tile = _one_axis(tiles)
    if level != 1:
        return _sub_stream(term, axis, tile, level)
    label = make_label(term, "stream", axis, tile, StreamError)
    _refuse_other_tile(term, label)
    term, form = _rounded_late(term, first_form(term, axis, region, hoist, lemma))
    others = {name: flag for name, flag, usual in (("hoist", hoist, True), ("lemma", lemma, True)) if flag != usual}
    named = {**others, **({} if region is None else {"region": region}), **tiles}
    step = relabel(term, "stream", _reason(term, form), named=named, identity=form.identity)
    labels = tuple(one for one in term.labels if one.order != label.order)
    return take(term, {"labels": (*labels, label), "forms": (*term.forms, form)}, step)


def _rounded_late(term: AnyTerm, form: StreamForm) -> tuple[AnyTerm, StreamForm]:
    """The diagram and its stream, which rounds what the diagram rounds: where it would round what is not divided yet,
    the diagram is rewritten to do so."""
    region = next(one for one in term.regions if one.boxes == form.region)
    made = {box.name for box in (*form.fixed, *form.step, *form.tail)}
    late = tuple(b.name for b in term.primitives(region) if isinstance(b, Cast) and b.name not in made)
    sums = [b for b in term.primitives(region) if isinstance(b, Contract | Reduce) and set(late) & set(b.inputs)]
    if not sums:
        return term, form
    rewritten = pulled(term, *(box.name for box in sums), past=late)
    return rewritten, first_form(rewritten, form.axis, sums[-1].name)


def _sub_stream(term: AnyTerm, axis: str, tile: Any, level: int) -> AnyTerm:
    """A sub-loop: the accumulator of a stream takes a chunk in several parts, as it takes an axis in chunks."""
    label = make_label(term, "stream", axis, tile, StreamError, level)
    if term.label("stream", axis) is None:
        reason, remedy = f"{axis!r} has no chunks to cut", f"stream it at level 1 first: stream({axis}='s_{axis}')"
        raise StreamError(reason, axis=axis, remedy=remedy)
    labels = (*(one for one in term.labels if one.order != label.order), label)
    refuse_wider(labels, [label])
    reason = f"what carries a chunk of {axis} carries its parts, {label.tile} at a time"
    return take(term, {"labels": labels}, relabel(term, "stream", reason, named={"level": level, axis: tile}))


def unstream(term: AnyTerm, /, *axes: str) -> AnyTerm:
    """The diagram without the streams along `axes` (along any axis where none is named).

    >>> import diagkit as dk
    >>> rows = dk.Diagram(dk.total(dk.array("X", dk.axis("x")), over="x", name="T"))
    >>> unstream(rows.stream(x="s_x")) == rows
    True
    """
    gone = {term.axis(axis).name for axis in axes} or {form.axis for form in term.forms}
    labels = tuple(label for label in term.labels if label.kind != "stream" or label.axis not in gone)
    forms = tuple(form for form in term.forms if form.axis not in gone)
    return take(term, {"labels": labels, "forms": forms}, relabel(term, "unstream", "a label says how, not what", axes))


def _one_axis(tiles: dict[str, Any]) -> tuple[str, Any]:
    if len(tiles) == 1:
        return next(iter(tiles.items()))
    axes = ", ".join(tiles) or "none"
    raise StreamError(
        f"stream takes one axis at a time, not {axes}",
        axis=next(iter(tiles), None),
        remedy='write for example stream(x="s_x")',
    )


def _refuse_other_tile(term: Term, label: Label) -> None:
    known = term.label("stream", label.axis)
    if known is not None and (known.tile, known.multiple) != (label.tile, label.multiple):
        raise StreamError(
            f"axis {label.axis!r} is streamed already, in chunks of {known.tile}",
            axis=label.axis,
            remedy=f"use the same chunk, {label.axis}={str(known.tile)!r}, or unstream it first",
        )


def first_form(term: Term, axis: str, box: str | None, hoist: bool = True, lemma: bool = True) -> StreamForm:
    """The form of the one region that takes the axis away; the first refusal where one cannot."""
    regions = [_region_of(term, box, axis)] if box is not None else reducing(term, axis)
    if not regions:
        raise _nothing_to_stream(term, axis)
    found = [(region, _attempt(term, region, axis, hoist, lemma)) for region in regions]
    forms = [form for _, form in found if isinstance(form, StreamForm)]
    refusal = next((form for _, form in found if isinstance(form, StreamError)), None)
    others = " or ".join(f"region={region.boxes[-1]!r}" for region, form in found if isinstance(form, StreamForm))
    if refusal is not None:
        raise _with_others(refusal, others)
    if len(forms) > 1:
        boxes = [region.boxes[-1] for region in regions]
        raise StreamError(
            f"several regions reduce over {axis!r}: those of {', '.join(map(repr, boxes))}",
            axis=axis,
            box=boxes[0],
            remedy=f"name one, {others}, and then the other with the same chunk",
        )
    return forms[0]


def _attempt(term: Term, region: Region, axis: str, hoist: bool, lemma: bool) -> StreamForm | StreamError:
    """The form of a region, or why it has none."""
    try:
        _refuse_second(term, region, axis)
        return derive(term, region, axis, hoist, lemma)
    except StreamError as refusal:
        return refusal


def _with_others(refusal: StreamError, others: str) -> StreamError:
    """The refusal of one region, where other regions could stream the axis."""
    if not others:
        return refusal
    remedy = f"{refusal.remedy}, or stream another region ({others})"
    return StreamError(refusal.reason, axis=refusal.axis, box=refusal.box, remedy=remedy)


def _region_of(term: Term, box: str, axis: str) -> Region:
    column = term.box(box).name
    region = next((region for region in term.regions if column in region.boxes), None)
    if region is None:
        reason = f"{box!r} depends on positions only and runs in no kernel"
        raise StreamError(reason, axis=axis, box=box, remedy="name another box")
    if not _reduced_in(term, region, axis):
        raise _nothing_to_stream(term, axis, region)
    return region


def reducing(term: Term, axis: str) -> list[Region]:
    """The regions that take `axis` away by a reduction; not those that only prepare something for others, as
    long as there is another."""
    found = [region for region in term.regions if _reduced_in(term, region, axis)]
    return [region for region in found if not term.kept >= {*region.stores}] or found


def _reduced_in(term: Term, region: Region, axis: str) -> bool:
    return any(
        axis not in names(box.axes) and any(axis in names(term.wires[wire].axes) for wire in box.inputs)
        for box in term.primitives(region)
        if not term.wires[box.name].virtual
    )


def _nothing_to_stream(term: Term, axis: str, region: Region | None = None) -> StreamError:
    regions = term.regions if region is None else (region,)
    in_order = ordered(term, regions, axis)
    if in_order is not None:
        return in_order
    mapped = [b.name for one in regions for b in term.primitives(one) if axis in names(b.axes)]
    if mapped:
        return StreamError(
            f"{mapped[-1]!r} only maps over {axis!r}: there is nothing to carry from chunk to chunk",
            axis=axis,
            box=mapped[-1],
            remedy=f"use group({axis}=...): its tiles are independent",
        )
    box = regions[0].boxes[-1] if regions else None
    reason = f"no box of the region of {box!r} carries {axis!r}"
    return StreamError(reason, axis=axis, box=box, remedy="name another region")


def _refuse_second(term: Term, region: Region, axis: str) -> None:
    form = term.form(region)
    if form is not None:
        raise StreamError(
            f"the region of {region.boxes[-1]!r} is streamed along {form.axis!r} already: it holds one stream",
            axis=axis,
            box=region.boxes[-1],
            remedy=f"unstream {form.axis!r} first",
        )


def derive(term: Term, region: Region, axis: str, hoist: bool = True, lemma: bool = True) -> StreamForm:
    """The stream of one region along one axis, derived from its primitives; a StreamError where there is none."""
    chain = Sorted(term, region, axis)
    sums = Sums(chain, hoist, lemma)
    _refuse_outputs(chain)
    step, tail, merge = (Writer(chain, sums) for _ in range(3))
    _write(chain, sums, step, tail, merge)
    return StreamForm(
        axis=axis,
        region=region.boxes,
        fixed=_fixed(chain, {**step.fixed, **tail.fixed, **merge.fixed}),
        state=_states(chain, sums),
        step=tuple(step.boxes),
        tail=tuple(tail.boxes),
        merge=tuple(merge.boxes),
        identity=identities(chain, sums),
        method=method(sums),
    )


def _states(chain: Sorted, sums: Sums) -> tuple[State, ...]:
    found = sums.by_name().values()
    return tuple(State(one.name, one.axes, one.start, f"{one.name}.new", _format(chain)) for one in found)


def _write(chain: Sorted, sums: Sums, step: Writer, tail: Writer, merge: Writer) -> None:
    for name in sums.by_name():
        step.advanced(name, CHUNK)
        merge.advanced(name, SIDES[0])
    for wire in chain.region.stores:
        (step if chain.carries(wire) else tail).wire(value(wire), CHUNK if chain.carries(wire) else END)


def _fixed(chain: Sorted, wanted: dict[str, None]) -> tuple[Box, ...]:
    """The boxes behind the wires that are computed once, in the diagram's order."""
    needed = set(wanted)
    for box in reversed(list(chain.boxes.values())):
        if box.name in needed:
            needed |= set(box.inputs)
    return tuple(box for box in chain.boxes.values() if box.name in needed)


def _format(chain: Sorted) -> str:
    """Accumulators are at least fp32: fp64 where an input is."""
    return "fp64" if any(chain.term.wires[wire].dtype == "fp64" for wire in chain.region.loads) else "fp32"


def _refuse_outputs(chain: Sorted) -> None:
    for wire in chain.region.stores:
        if chain.carries(wire) and chain.waits[wire]:
            last = chain.waits[wire][-1]
            readers = [box.name for box in chain.term.consumers(wire)]
            contract = f"fuse it with {readers[0]!r}" if readers else f"contract {wire!r} with something first"
            raise StreamError(
                f"{wire!r} keeps {chain.axis} and needs the whole row: {last!r} is known only after the last chunk",
                axis=chain.axis,
                box=wire,
                remedy=f"run two passes (first {last!r}, then {wire!r}), or {contract}",
            )


_WAITS = "; division waits for the end"
_WHY = {
    "plain": "partial results combine as they are",
    "corrected": "a factor that no element enters carries each partial sum past a new chunk",
    "hoisted": f"a factor that no element enters carries each partial sum past a new chunk{_WAITS}",
    "normalised": "divisions stay inside the sums, so that every partial result is normalised",
    "power sums": "polynomials in what still changes are kept as sums of powers",
    ATTAINED: "what was gathered where an extreme was attained begins anew when a chunk moves the extreme",
    RANKED: "of the earlier pairs the first that comes after the new one is what earlier elements still offer",
    TOPPED: "what is summed counts from the extreme seen so far, and moves with it by what the extreme moves",
    LEMMA: "powers of deviations from the running mean are summed, since power sums cancel where the mean is large",
}


def _reason(term: Term, form: StreamForm) -> str:
    carried = ", ".join(state.name for state in form.state)
    rescaled = any(box.name.endswith(".factor") for box in form.step)
    why = _WHY["plain"] + _WAITS if form.method == "hoisted" and not rescaled else _WHY[form.method]
    region = next(region for region in term.regions if region.boxes == form.region)
    bare = bare_shift({box.name: box for box in term.primitives(region)}, form.axis)
    more = "" if bare is None else f"; where all that enters {bare!r} is -inf, nothing counts and sums are 0, not nan"
    return f"carried from chunk to chunk of {form.axis}: {carried}; {why}{more}"
