"""Labelled diagrams that the tests of programs share."""

from derive_cases import attention, q, x
from sympy import Max, exp, oo

import diagkit as dk
from diagkit import derive
from diagkit.ops import trace
from diagkit.term import (
    Contract,
    Label,
    Map,
    Reduce,
    State,
    StreamForm,
    Term,
    arg,
    exact,
    finite,
    names,
    quotient,
    size,
)


def flash(**options) -> Term:
    """Attention, fused, q grouped and x streamed, as `derive` finds it."""
    return derive.stream(derive.group(derive.fuse(attention(**options)), q="g_q"), x="s_x")


def grouped_heads() -> Term:
    """Causal attention with two query heads r per key head k, all of them grouped, keys streamed."""
    k, r, d = dk.axes("k r d")
    Q, K, V = dk.array("Q", k, r, q, d), dk.array("K", k, x, d), dk.array("V", k, x, d)
    O = dk.attention(Q, K, V, over=x, features=d, mask=dk.causal(q, x, "bottom-right"))
    term = derive.group(Term(*trace([O], {"O": O}), "heads"), q="g_q", k=1, r=1)
    return derive.stream(term, x="s_x")


def flash_by_hand() -> Term:
    """The same recurrence written out here: m, z, o, the factor exp(m - m.new), and the tail o / z."""
    term = derive.group(derive.fuse(attention()), q="g_q")
    return term.replace(labels=(*term.labels, Label("stream", "x", size("s_x"))), forms=(_form(term),))


def _form(term: Term) -> StreamForm:
    region = term.regions[0]
    axis = {a.name: a for a in term.axes.values()}
    rows, cols, values = axis["q"], axis["x"], axis["e"]
    carried = tuple(box for box in term.primitives(region) if box.name in ("QK", "S") and "x" in names(box.axes))
    step = (
        *carried,
        Reduce("O.m.part", (rows,), ("S",), "max", ("x",)),
        Map("O.m.new", (rows,), ("O.m", "O.m.part"), Max(arg(0), arg(1))),
        Map("O.f", (rows,), ("O.m", "O.m.new"), exp(finite(arg(0)) - finite(arg(1)))),
        Map("O.p", (rows, cols), ("S", "O.m.new"), exp(arg(0) - finite(arg(1)))),
        Reduce("O.z.part", (rows,), ("O.p",), "sum", ("x",)),
        Map("O.z.new", (rows,), ("O.z", "O.f", "O.z.part"), arg(0) * arg(1) + arg(2)),
        Contract("O.o.part", (rows, values), ("O.p", "V")),
        Map("O.o.new", (rows, values), ("O.o", "O.f", "O.o.part"), arg(0) * arg(1) + arg(2)),
    )
    state = (
        State("O.m", (rows,), -oo, "O.m.new"),
        State("O.z", (rows,), exact(0), "O.z.new"),
        State("O.o", (rows, values), exact(0), "O.o.new"),
    )
    tail = (Map("O", (rows, values), ("O.o", "O.z"), quotient(arg(0), arg(1))),)
    return StreamForm("x", region.boxes, (), state, step, tail, (), (), "hoisted")
