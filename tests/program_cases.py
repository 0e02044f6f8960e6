"""Labelled diagrams that the tests of programs share; the stream of attention is written out by hand."""

from derive_cases import attention

from diagkit.derive import fuse, group
from diagkit.term import Contract, Label, Map, Reduce, State, StreamForm, Term, arg, exact, finite, names, quotient, size
from sympy import Max, exp, oo



def attention_form(term: Term) -> StreamForm:
    """FlashAttention's recurrence for `attention()`: m, z, o, the factor exp(m - m.new), tail o / z."""
    region = term.regions[0]
    boxes = {box.name: box for box in term.primitives(region)}
    axis = {a.name: a for a in term.axes.values()}
    q, x, e = axis["q"], axis["x"], axis["e"]
    carried = tuple(box for name, box in boxes.items() if not name.startswith(("P", "O")) and _moves(box))
    fixed = tuple(box for name, box in boxes.items() if not name.startswith(("P", "O")) and box not in carried)
    score = boxes["P.max"].inputs[0]
    step = (
        *carried,
        Reduce("O.m.part", (q,), (score,), "max", ("x",)),
        Map("O.m.new", (q,), ("O.m", "O.m.part"), Max(arg(0), arg(1))),
        Map("O.f", (q,), ("O.m", "O.m.new"), exp(finite(arg(0)) - finite(arg(1)))),
        Map("O.p", (q, x), (score, "O.m.new"), exp(arg(0) - finite(arg(1)))),
        Reduce("O.z.part", (q,), ("O.p",), "sum", ("x",)),
        Map("O.z.new", (q,), ("O.z", "O.f", "O.z.part"), arg(0) * arg(1) + arg(2)),
        Contract("O.o.part", (q, e), ("O.p", "V")),
        Map("O.o.new", (q, e), ("O.o", "O.f", "O.o.part"), arg(0) * arg(1) + arg(2)),
    )
    state = (State("O.m", (q,), -oo, "O.m.new"), State("O.z", (q,), exact(0), "O.z.new"), State("O.o", (q, e), exact(0), "O.o.new"))
    tail = (Map("O", (q, e), ("O.o", "O.z"), quotient(arg(0), arg(1))),)
    return StreamForm("x", region.boxes, fixed, state, step, tail, (), (), "hoisted")


def _moves(box) -> bool:
    return "x" in names(box.axes)


def flash(tile_q="g_q", tile_x="s_x", **options) -> Term:
    """Attention, fused, q grouped and x streamed."""
    term = group(fuse(attention(**options)), q=tile_q)
    stream = Label("stream", "x", size(tile_x))
    return term.replace(labels=(*term.labels, stream), forms=(attention_form(term),))
