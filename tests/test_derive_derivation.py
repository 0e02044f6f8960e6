"""Derivations as data: what they say, how they are set, replayed and compared."""

import numpy as np
import pytest
from derive_cases import FORMS, attention, grouped_heads, layer_linear, matmul, q, softmax_alone, term, x

import diagkit as dk
from diagkit.derive import Derivation, derivation, diff, formats, fuse, group, hoist, open_blocks, replay, split, stream
from diagkit.term import LabelError, Step, StreamError


def flash():
    return stream(group(fuse(attention()), q="g_q"), x="s_x")


def test_the_steps_are_remembered():
    done = derivation(flash())
    assert [step.rule for step in done.steps] == ["fuse", "group", "stream"]
    assert done.stages[0] == attention() and done.stages[-1] == flash() and len(done.stages) == 4
    assert [call for call, _ in done.captions] == ["fuse()", "group(q='g_q')", "stream(x='s_x')"]
    assert all(step.kind == "relabel" and step.reason for step in done.steps)


def test_steps_are_no_part_of_the_value():
    other = group(stream(fuse(attention()), x="s_x"), q="g_q")
    assert other == flash() and other.steps != flash().steps


def test_the_text_is_golden(golden):
    golden("derive_attention.txt", f"{derivation(flash())}\n")
    golden("derive_layer_linear.txt", f"{derivation(stream(fuse(layer_linear()), x=None))}\n")


def test_the_equations_are_golden(golden):
    golden("derive_attention.tex", f"{derivation(flash()).latex()}\n")


def test_the_lemma_is_shown():
    assert r"\frac{e^{S - m_{\mathrm{new}}}}{e^{S - m}} &= e^{m - m_{\mathrm{new}}}" in derivation(flash()).latex()
    assert derivation(fuse(attention())).latex() == "" and derivation(fuse(attention()))._repr_latex_() is None
    assert derivation(flash())._repr_latex_().startswith(r"$\displaystyle \begin{aligned}")


@pytest.mark.parametrize("name", ["a & b", "50%", "q_x", "x^2", "{m}", "\\", "Σ", "key position", "#"])
def test_any_name_is_set(name):
    made = term(dk.softmax(dk.array("S", q, x), over=x, name=name))
    total = term(dk.total(dk.array("S", q, x), x, name=name))
    assert made.outputs == (name,)
    latex = derivation(stream(total, x=None)).latex()
    bare = latex.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}") and str(derivation(stream(total, x=None))).count(name) >= 1


def test_a_derivation_replays_on_another_diagram():
    done = derivation(flash())
    again = replay(done, attention())
    assert again == flash() and [step.call for step in again.steps] == [step.call for step in done.steps]
    heads = replay(done, grouped_heads())
    assert heads.labels == flash().labels and len(heads.forms) == 1
    with pytest.raises(StreamError, match="keeps x and needs the whole row"):
        replay(done, softmax_alone())


def test_every_rule_replays():
    plain = attention()
    made = stream(
        hoist(open_blocks(fuse(formats(plain, Q="fp16"), "QK", "S", "P", "O"), "P")), x=("s_x", 8), hoist=False
    )
    assert replay(derivation(made), plain) == made
    parted = split(fuse(plain), x=2)
    assert replay(derivation(parted), plain) == parted


def test_an_unknown_rule_is_refused():
    strange = Derivation(matmul(), (Step("rewrite", "bake", "", ("bake", ()), (), matmul()),))
    with pytest.raises(LabelError, match="no rule 'bake' to replay; the rules are: accumulate, cast, formats, fuse"):
        replay(strange, matmul())


def test_what_changed():
    change = diff(attention(), flash())
    assert change.moved == (("QK", 0, 1), ("S", 0, 1), ("P", 0, 1))
    assert [label.kind for label in change.came] == ["group", "stream"] and change.gone == ()
    assert "P: level 0 -> 1" in str(change) and "+ stream x in tiles of s_x" in str(change)
    back = diff(flash(), attention())
    assert back.gone == change.came and back.came == ()
    nothing = diff(flash(), flash())
    assert not nothing and str(nothing) == "no difference"


def test_a_rewrite_changes_columns():
    change = diff(attention(), open_blocks(attention()))
    assert change.columns_came == ("P.max", "P.exp", "P.sum", "P") and change.columns_gone == ("P",)
    assert change.moved == ()


def test_axes_may_be_named_like_arguments():
    odd = dk.axis("reason"), dk.axis("rule"), dk.axis("term")
    made = group(term(dk.exp(dk.array("X", *odd))), reason=2, rule=3, term=4)
    assert replay(derivation(made), made.erase()) == made


def test_derivations_are_deterministic():
    texts = {
        str(derivation(stream(fuse(FORMS[name][0]()), x=None))) for name in ("attention", "variance") for _ in range(2)
    }
    assert len(texts) == 2 and np.all([text.count("\n") for text in texts])
