"""The Triton target, run by the interpreter: it means what its diagram says, and moves what the program counts."""

import ast
import importlib.util

import numpy as np
import pytest
import sympy
from derive_cases import FORMS, arrays_for
from numba_cases import TERMS, d, e, k, normal, q, r, scores, streamed, x
from triton_cases import agrees, kernel, run, whole

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import triton_run
from diagkit.codegen import source
from diagkit.codegen.lines import broken, tidy
from diagkit.codegen.numbers import folded
from diagkit.program import lower
from diagkit.term import FormatError, GroupError, InputError, Term, arg, coordinate

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="no wheel for this system: the last test of this file says so"
)
AWKWARD = [(7, 3, 4), (8, 4, 4), (0, 4, 4)]


# ---- every form that streams: unfused, and fused, grouped and streamed ----


def variants(name):
    make, axis, options = FORMS[name]
    plain = make()
    fused = derive.fuse(plain)
    try:
        fused = derive.group(fused, q="g_q")
    except GroupError:
        assert name in ("joint softmax", "shared maximum") or "q" not in fused.axes
    return axis, plain, derive.stream(fused, **{axis: "s_x"}, **options)


@needs_triton
@pytest.mark.parametrize("name", [name for name in FORMS if name != "narrowed weights"])
def test_every_form_agrees_with_float64_and_with_the_count(name):
    axis, plain, form = variants(name)
    random = np.random.default_rng(0)
    for term, (length, g, s) in [(plain, (5, 1, 1)), *((form, sizes) for sizes in AWKWARD)]:
        sizes, arrays = arrays_for(plain, axis, length, random)
        arrays = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in arrays.items()}
        tiles = {str(label.tile): {"g_q": g, "s_x": s}[str(label.tile)] for label in term.labels}
        agrees(kernel(term, **sizes, **tiles), arrays)


# ---- pitfalls ----

ATTENTION = TERMS["attention"]()
CAUSAL = TERMS["causal"]()
MASKED = TERMS["masked"]()
HEADS = TERMS["grouped heads"]()


def numbers(**arrays):
    return {name: np.asarray(value, np.float32) for name, value in arrays.items()}


@needs_triton
def test_padding_never_counts():
    arrays = numbers(Q=np.zeros((192, 4)), K=np.zeros((192, 4)), V=np.arange(192.0)[:, None])
    np.testing.assert_allclose(run(ATTENTION, arrays, g_q=128, s_x=128), 95.5, rtol=1e-6)


@needs_triton
def test_causal_alignment_where_lengths_differ():
    arrays = numbers(Q=np.zeros((2, 3)), K=np.zeros((4, 3)), V=np.arange(1.0, 5.0)[:, None])
    np.testing.assert_allclose(run(CAUSAL, arrays).ravel(), [1, 1.5], rtol=1e-6)
    heads = numbers(Q=np.zeros((1, 1, 2, 1)), K=np.zeros((1, 4, 1)), V=np.arange(1.0, 5.0).reshape(1, 4, 1))
    np.testing.assert_allclose(run(HEADS, heads).ravel(), [2, 2.5], rtol=1e-6)


def masked_row(added, mask, values):
    """Attention of one feature with these scores, under the mask: (O, L)."""
    values = np.asarray(values, np.float32)[:, None]
    arrays = numbers(Q=np.zeros((len(mask), 1)), K=np.zeros((len(added), 1)), B=added, V=values)
    made = run(MASKED, {**arrays, "M": np.asarray(mask)})
    return made["O"].ravel(), made["L"]


@needs_triton
def test_a_row_that_sees_nothing_is_zero_and_its_logsumexp_minus_infinity():
    made, lse = masked_row([0, 0, 0, 0], [[False] * 4, [True] * 4], [1, 2, 3, 4])
    np.testing.assert_allclose(made, [0, 2.5], rtol=1e-6)
    assert lse[0] == -np.inf and lse[1] == pytest.approx(np.log(4), rel=1e-6)


@needs_triton
def test_a_dead_tile_before_a_live_one():
    made, _ = masked_row([*[-np.inf] * 32, 0, 0], [[True] * 34], [1.0] * 32 + [3, 5])
    np.testing.assert_allclose(made, [4.0], rtol=1e-6)


@needs_triton
def test_logsumexp_is_natural():
    _, lse = masked_row([1, 2, 3], [[True] * 3], [0, 0, 0])
    assert lse[0] == pytest.approx(3.407606, rel=1e-6)


@needs_triton
@pytest.mark.parametrize(("queries", "keys"), [(2, 0), (0, 5), (0, 0)])
def test_empty_axes(queries, keys):
    arrays = normal(Q=(queries, 3), K=(keys, 3), V=(keys, 4))
    made = run(ATTENTION, arrays)
    assert made.shape == (queries, 4) and not made.any()


@needs_triton
@pytest.mark.parametrize("width", [1, 3, 8, 96, 256])
def test_head_sizes_that_are_no_power_of_two_and_differ(width):
    agrees(whole(ATTENTION, arrays := normal(Q=(20, width), K=(18, width), V=(18, 40))), arrays)


@needs_triton
def test_a_negative_or_zero_scale_is_taken_as_it_is():
    for scale in (0, -0.5):
        O = dk.attention(dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, e), over=x, features=d,
                         scale=scale, mask=dk.causal(q, x))  # fmt: skip
        term = streamed(Term(*ops.trace([O], {"O": O}), "scaled"))
        agrees(whole(term, arrays := normal(Q=(20, 4), K=(20, 4), V=(20, 3))), arrays)


@needs_triton
def test_grouped_heads_share_their_keys():
    arrays = numbers(Q=np.zeros((2, 2, 1, 1)), K=np.zeros((2, 1, 1)), V=np.array([10.0, 20.0]).reshape(2, 1, 1))
    assert run(HEADS, arrays).ravel().tolist() == [10, 10, 20, 20]


@needs_triton
def test_grouped_heads_in_one_tile_are_rows_of_one_product():
    term = streamed(Term(*ops.trace([dk.attention(
        dk.array("Q", k, r, q, d), dk.array("K", k, x, d), dk.array("V", k, x, d), over=x, features=d, name="O"
    )], {}), "heads"), q="g_q", k=1, r=4)  # fmt: skip
    made = whole(term, arrays := normal(Q=(2, 4, 9, 8), K=(2, 21, 8), V=(2, 21, 8)), g_q=4)
    agrees(made, arrays)
    assert "tl.reshape" in made.source.text


@needs_triton
def test_logits_beyond_the_input_format():
    term = in_format(scores_and_values("fp16"))
    arrays = {name: np.full(shape, 256, np.float16) for name, shape in (("Q", (40, 128)), ("K", (40, 128)))}
    made = run(term, {**arrays, "V": np.ones((40, 3), np.float16)})
    assert made.dtype == np.float16 and (made == 1).all()


def scores_and_values(dtype):
    Q, K, V = (dk.array(name, *axes, dtype=dtype) for name, axes in (("Q", (q, d)), ("K", (x, d)), ("V", (x, e))))
    S = dk.einsum("q d, x d -> q x", Q, K) * d.size**-0.5
    return dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), V)


def in_format(O):
    return streamed(Term(*ops.trace([O], {"O": O}), "attention"))


@needs_triton
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_narrow_formats_agree_to_their_own_rounding(dtype):
    term = in_format(scores_and_values(dtype))
    made = whole(term, arrays := normal(Q=(40, 24), K=(37, 24), V=(37, 8)))
    rounded = {
        name: np.asarray(ops.evaluate(cast_term(dtype, value.ndim), {"X": value})) for name, value in arrays.items()
    }
    agrees(made, rounded)


def cast_term(dtype, axes):
    X = dk.array("X", *dk.axes("a b c")[:axes])
    return Term(*ops.trace([dk.cast(X, dtype, name="Y")], {}), "cast")


@needs_triton
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp8e4m3", "fp8e5m2"])
def test_casts_round_as_the_reference_does(dtype):
    random = np.random.default_rng(0)
    values = np.concatenate([random.standard_normal(500) * 2.0 ** random.integers(-30, 18, 500), [0, -0.0]])
    values = np.concatenate([values, [448, 449, 464, 1e6, -1e6, 65504, 65519, 65520, np.inf, -np.inf]])
    arrays = {"X": values.astype(np.float32)}
    with np.errstate(over="ignore"):
        wanted = ops.reference(cast_term(dtype, 1), arrays)
    np.testing.assert_array_equal(run(cast_term(dtype, 1), arrays).astype(np.float64), wanted)


@needs_triton
def test_a_row_stride_past_32_bits():
    """Row 1 lies 2^31 elements behind row 0: offsets that wrapped would read elsewhere, and the meter would see."""
    rows = np.lib.stride_tricks.as_strided(np.zeros(2**31 + 8, np.int8), (2, 8), (2**31, 1), writeable=True)
    rows[...] = np.arange(16).reshape(2, 8)
    X = dk.array("X", q, x, dtype="int8")
    term = Term(*ops.trace([dk.total(X * 2, x, name="T")], {}), "far")
    assert run(derive.group(derive.fuse(term), q=1), {"X": rows}).tolist() == [56, 184]


@needs_triton
def test_torch_tensors_come_back_as_torch_tensors_of_their_format():
    import torch

    arrays = {name: torch.from_numpy(v).bfloat16() for name, v in normal(Q=(9, 16), K=(20, 16), V=(20, 5)).items()}
    term = in_format(scores_and_values("bf16"))
    made = run(term, arrays)
    assert made.dtype == torch.bfloat16
    wanted = ops.reference(term, arrays)
    torch.testing.assert_close(made.double(), wanted, rtol=0.03, atol=0.03)


@needs_triton
def test_infinities_and_nan_pass_through():
    arrays = normal(Q=(3, 4), K=(40, 4), V=(40, 2))
    arrays["Q"][1, 0] = np.nan
    made = run(ATTENTION, arrays)
    assert np.isnan(made[1]).all() and np.isfinite(made[[0, 2]]).all()


@needs_triton
def test_whole_numbers_multiply_as_whole_numbers():
    C = dk.einsum("q x, x e -> q e", dk.array("A", q, x, dtype="int8"), dk.array("B", x, e, dtype="int8"))
    term = streamed(Term(*ops.trace([C * 1.0], {"C": C}), "int8"))
    random = np.random.default_rng(0)
    arrays = {n: random.integers(-127, 128, s).astype(np.int8) for n, s in (("A", (20, 40)), ("B", (40, 18)))}
    made = whole(term, arrays)
    np.testing.assert_array_equal(made(**arrays), arrays["A"].astype(int) @ arrays["B"].astype(int))
    assert "out_dtype=tl.int32" in made.source.text


@needs_triton
def test_powers_of_negative_numbers():
    X = dk.array("X", x)
    term = Term(*ops.trace([dk.combine(lambda v: v**7 + v**6, X, name="Y")], {}), "powers")
    agrees(whole(term, arrays := numbers(X=[-2, -1, -0.5, 0, 0.5, 3])), arrays)


# ---- what is refused, by name and before launch ----


def refused(O, match, error=FormatError, **sizes):
    with pytest.raises(error, match=match) as caught:
        source(lower(Term(*ops.trace([O], {"O": O}), "refused"), **sizes), "triton")
    return caught.value


def test_what_blocks_cannot_hold_is_refused_by_name():
    X = dk.array("X", x)
    assert refused(dk.array("X", x, dtype="fp64") * 2, "hold no fp64, the format of 'X'", x=4).box == "X"
    shifted = dk.view(X, {"x": coordinate("x") + 1}, (x,))
    assert "numba" in refused(shifted, "cannot gather the view", x=4).remedy
    assert refused(X * 2, "a block of 2097152 elements .x 2097152. for 'X'", x=2**21).axis == "x"
    assert refused(X * 2, "holds the whole axis 'x', whose size is open", InputError).axis == "x"


# ---- the text ----

SIZES = {"q": 1000, "x": 777, "d": 64, "e": 64, "g_q": 64, "s_x": 32}


def text_of(name, **sizes):
    term = TERMS[name]()
    wanted = {**SIZES, "k": 2, "r": 2, "h": 4, "g_e": 64, **sizes}
    accepted = [*term.axes, *(str(label.tile) for label in term.labels)]
    return source(lower(term, **{n: wanted[n] for n in accepted if n in wanted}), "triton")


def test_the_text_of_flash_attention(golden):
    golden("codegen/attention_triton.py.txt", text_of("attention").text)
    golden("codegen/causal_triton.py.txt", text_of("causal").text)


@pytest.mark.parametrize("name", TERMS)
def test_the_text_is_python_whose_masked_loads_name_their_fill(name):
    text = text_of(name)
    calls = [node for node in ast.walk(ast.parse(text.text)) if isinstance(node, ast.Call)]
    loads = [node for node in calls if ast.unparse(node.func) == "tl.load"]
    assert loads
    for load in loads:
        keywords = {keyword.arg for keyword in load.keywords}
        assert ("mask" in keywords) == ("other" in keywords)
    assert max(map(len, text.text.splitlines())) <= 110
    assert text == text_of(name)


def test_every_line_of_a_kernel_names_the_box_it_comes_from():
    text = text_of("attention")
    assert set(text.provenance()) == {"q", "d", "e", "x", "Q", "K", "V", "QK", "S", "softmax", "O"}


def test_products_say_their_precision():
    assert text_of("attention").text.count('input_precision="ieee"') == 3
    narrow = source(lower(in_format(scores_and_values("tf32")), **SIZES), "triton").text
    assert narrow.count('input_precision="tf32"') == 3


def test_whole_chunks_mask_nothing():
    even = text_of("attention", q=1024, x=1024).text
    assert "mask=" not in even and "tl.where(x" not in even and "static_range" not in even
    assert "for edge in tl.static_range(2):" in text_of("causal").text
    three = source(lower(streamed(windowed()), **SIZES), "triton").text
    assert "for part in tl.static_range(3):" in three


def windowed():
    S = dk.masked(scores(), dk.window(q, x, 100))
    O = dk.einsum("q x, x e -> q e", dk.softmax(S, over=x), dk.array("V", x, e))
    return Term(*ops.trace([O], {"S": S, "O": O}), "window")


def test_small_products_are_padded_to_what_matrix_instructions_take():
    text = text_of("attention", q=3, x=5, d=2, e=1, g_q=2, s_x=4).text
    assert text.count("tl.arange(0, 16)") == 4
    eight = source(lower(in_format(scores_and_values("fp8e4m3")), **{**SIZES, "d": 8, "s_x": 16}), "triton").text
    assert eight.count("tl.arange(0, 32)") == 1, "8-bit products sum 32 at a time: the scores do; P is fp32 again"


def test_options_follow_the_rule():
    def options(dtype, **sizes):
        term = in_format(scores_and_values(dtype))
        return dict(source(lower(term, **{**SIZES, **sizes}), "triton").entries[0].options)

    large = {"q": 4096, "x": 4096, "g_q": 128, "s_x": 128}
    assert options("fp16", **large, d=128, e=128) == {"num_warps": 8, "num_stages": 2}
    assert options("fp16", **large) == {"num_warps": 8, "num_stages": 3}
    assert options("fp16") == {"num_warps": 4, "num_stages": 3}


def test_numbers_of_a_product_become_one_and_exponentials_powers_of_two():
    s, m = arg(0), arg(1)
    assert str(folded(s / sympy.sqrt(128), {})) == "0.088388347648318441*a0"
    rows, row = {"q", "x"}, {"q"}
    shifted = folded(sympy.exp(s - m), {s: rows, m: row}).args[0]
    assert shifted.coeff(s) == pytest.approx(1.4426950408889634, rel=1e-15)


def test_a_maximum_that_stays_leaves_what_was_gathered_as_it_was():
    """A multiply-add of 1.44 a - 1.44 b is not 0 where a = b: it rounds one product alone, again in each chunk."""
    s, m = arg(0), arg(1)
    assert str(folded(sympy.exp(s - m), {s: {"q"}, m: {"q"}})) == "exp(1.4426950408889634*(a0 - a1))"


def test_long_statements_are_broken_where_brackets_allow():
    text = tidy("v = (((first + second) * third) + function(argument, (another)))")
    assert text == "v = (first + second) * third + function(argument, another)"
    assert [ast.dump(ast.parse(text))] == [ast.dump(ast.parse("\n".join(broken(text, width)))) for width in (30,)]
    assert max(map(len, broken(text, 45))) <= 45


# ---- without triton ----


def test_without_triton_the_kernel_says_what_is_missing(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "triton" else real(name, *rest)
    )
    made = kernel(ATTENTION, d=8, e=8)
    assert "tl.dot" in made.source.text, "the text needs no triton"
    with pytest.raises(FormatError, match="Triton kernels need triton; .*numba kernels run everywhere"):
        made.check(q=8, x=8)
    assert triton_run.on_gpu() in (True, False)
