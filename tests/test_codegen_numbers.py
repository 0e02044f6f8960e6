"""Numbers that wait: which factors a loop need not multiply by, and what the text then says."""

import re

import pytest
import sympy
from numba_cases import TERMS, d, e, q, streamed, x

import diagkit as dk
from diagkit import ops
from diagkit.codegen import source
from diagkit.codegen.numbers import factor, nonnegative, waiting, without
from diagkit.program import lower
from diagkit.term import Term, arg, quotient, size, where

SIZES = {"q": 64, "x": 64, "d": 16, "e": 16, "g_q": 16, "s_x": 32}
S, SEEN = arg(0), arg(1)


def kernel_of(O, target="triton", **more):
    term = streamed(Term(*ops.trace([O], {"O": O, **more}), "numbers"))
    program = lower(term, **{name: n for name, n in SIZES.items() if name in (*term.axes, "g_q", "s_x")})
    return program.kernels[0], {size(name): n for name, n in SIZES.items()}, source(program, target).text


def scores(scale=None):
    S = dk.einsum("q d, x d -> q x", dk.array("Q", q, d), dk.array("K", x, d))
    return S * (d.size**-0.5 if scale is None else scale)


def values(P, top=1):
    return dk.einsum("q x, x e -> q e", P, dk.array("V", x, e)) / top


def test_the_factor_of_a_formula_is_positive_and_common_to_its_choices():
    assert factor(-3 * S) == 3 and factor(S * sympy.sqrt(2) / 16) == sympy.sqrt(2) / 16
    assert factor(where(SEEN, S / 4, -sympy.oo)) == sympy.Rational(1, 4)
    assert factor(where(SEEN, S / 4, S / 2)) == factor(where(SEEN, S / 4, 1)) == factor(S + 2) == 1
    assert factor(sympy.S.Zero) is None and factor(sympy.oo) is None


@pytest.mark.parametrize("expr", [-3 * S, S * sympy.sqrt(2) / 16, where(SEEN, S / 4, -sympy.oo), S + 2])
def test_a_formula_is_its_factor_times_the_rest(expr):
    for seen in (sympy.true, sympy.false):
        at = {S: sympy.Rational(5, 7), SEEN: seen}
        assert sympy.simplify(without(expr, factor(expr)).xreplace(at) * factor(expr) - expr.xreplace(at)) in (
            0,
            sympy.nan,
        )


def test_the_scale_of_scores_waits_for_their_exponential():
    kernel, sizes, text = kernel_of(values(dk.softmax(scores(), over=x)))
    assert list(waiting(kernel, sizes).values()) == [sympy.Rational(1, 4)]
    assert "_raw = QK" in text and "0.25 * largest(" in text and "0.36067376022224085 * " in text


def test_numba_holds_the_products_without_their_scale_and_writes_none_of_them_twice():
    text = kernel_of(values(dk.softmax(scores(), over=x)), target="numba")[2]
    assert "number(0.25) * ordered(" in text and "exp2(fused(number(0.36067376022224085), " in text
    assert "exp((softmax_max_at - finite(softmax_max_new_at)))" in text
    masked = kernel_of(values(dk.softmax(dk.masked(scores(), dk.causal(q, x)), over=x)), target="numba")[2]
    written = [len(re.findall(r"_tile\[q, x\] = (?!softmax)", one)) for one in (text, masked)]
    assert written == [0, 1], "the chunk on the diagonal has its mask written"


def test_masks_hand_the_scale_on():
    kernel, sizes, text = kernel_of(values(dk.softmax(dk.masked(scores(), dk.causal(q, x)), over=x)))
    assert set(waiting(kernel, sizes).values()) == {sympy.Rational(1, 4)} and len(waiting(kernel, sizes)) == 2
    assert "0.25 * QK" not in text and "0.25 * largest(" in text


def test_a_factor_on_an_exponential_becomes_a_term_of_its_argument_once_per_row():
    P = dk.cast(dk.softmax(scores(), over=x) * 256, "fp16")
    kernel, sizes, text = kernel_of(values(P, 256))
    assert waiting(kernel, sizes)["softmax.exp"] == sympy.Rational(1, 256)
    plain = re.sub(r"\s+", "", re.sub(r"#.*", "", text))
    assert "tl.exp2(8.0-1.4426950408889634*finite(softmax_max_new[:,None])+0.3606" in plain
    assert "256.0 *" not in text and "0.00390625 * tl.sum(softmax_exp_raw, 1)" in text


def test_what_is_multiplied_as_it_is_or_stored_keeps_its_number():
    """A product reads the scaled values themselves, and a function of them is no exponential."""
    for O in (values(scores()), values(dk.tanh(scores())), values(dk.softmax(dk.tanh(scores()), over=x))):
        kernel, sizes, _ = kernel_of(O)
        assert not waiting(kernel, sizes)
    assert not waiting(lower(TERMS["matmul"](), q=8, x=8, e=8, g_q=8, g_e=8, s_x=8).kernels[0], {})


def test_an_open_size_is_no_number():
    term = TERMS["attention"]()
    (kernel,) = lower(term, q=8, x=8, e=8, g_q=8, s_x=8).kernels
    assert not waiting(kernel, {})


def test_what_is_never_negative_is_clamped_from_above_alone():
    exponential, either = sympy.exp(S - SEEN), frozenset([S, SEEN])
    for expr in (
        256 * exponential,
        S**2,
        abs(S),
        quotient(exponential, abs(S)),
        where(S > 0, S**2, 1),
        exponential + 1,
    ):
        assert nonnegative(expr, frozenset()), expr
    for expr in (S * SEEN, S + SEEN, sympy.sqrt(S), quotient(S, SEEN)):
        assert nonnegative(expr, either) and not nonnegative(expr, frozenset()), expr
    for expr in (S, -exponential, S - 1, where(S > 0, S, -1), exponential - 1, dk.tanh(S)):
        assert not nonnegative(expr, frozenset([SEEN])), expr
    P = dk.softmax(scores(), over=x)
    texts = [kernel_of(values(dk.cast(kind, "fp8e4m3")))[2] for kind in (P * 256, dk.tanh(scores()))]
    assert "at_most(" in texts[0] and "clamp(" not in texts[0] and "at_most(" not in texts[1]
