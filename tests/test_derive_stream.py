"""Streams that must come out of the algebra: what they carry, and that any split gives the whole."""

import ast
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from derive_cases import FORMS, arrays_for, attention, e, q, term, variance, x
from fold import Fold

import diagkit as dk
import diagkit.derive
import diagkit.term
from diagkit import ops
from diagkit.derive import fuse, hoist, stream
from diagkit.derive.moments import LEMMA
from diagkit.term import Contract, Label, Reduce, names, size

TRIALS = 200
LENGTH = 7


def streamed(name, **options):
    """One of the shared cases, fused and streamed along its axis, and the case as it was."""
    made, axis, more = FORMS[name]
    plain = made()
    return stream(fuse(plain), **{**more, **options, axis: f"s_{axis}"}), plain


def folded(flash, plain, length, rng):
    """The stream with random arrays, ready to run; and what the whole gives."""
    sizes, arrays = arrays_for(plain, flash.forms[0].axis, length, rng)
    return Fold(flash, flash.forms[0], arrays, sizes), outputs(plain, arrays)


def outputs(plain, arrays):
    whole = ops.reference(plain, arrays)
    return whole if isinstance(whole, dict) else {plain.outputs[0]: whole}


def close(found, wanted):
    for name, value in wanted.items():
        scale = max(1.0, float(np.max(np.abs(value[np.isfinite(value)]), initial=0.0)))
        np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-11 * scale, err_msg=name)


def random_cuts(length, rng):
    """Where the axis is cut: in any number of chunks, empty ones too."""
    inner = rng.integers(0, length + 1, size=rng.integers(0, 6))
    return [0, *sorted(map(int, inner)), length]


def tree(fold, cuts, rng):
    """Partial states of the chunks, merged two neighbours at a time in random order."""
    parts = list(pairwise(cuts))
    while len(parts) > 1:
        place = int(rng.integers(0, len(parts) - 1))
        parts[place : place + 2] = [tuple(parts[place : place + 2])]
    return fold.merged(parts[0])


@pytest.mark.parametrize("name", FORMS)
def test_any_split_and_any_merge_tree_gives_the_whole(name):
    flash, plain = streamed(name)
    rng = np.random.default_rng(len(name))
    fold, whole = folded(flash, plain, LENGTH, rng)
    for _ in range(TRIALS):
        cuts = random_cuts(LENGTH, rng)
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("name", FORMS)
def test_the_shortest_axes(name, length):
    flash, plain = streamed(name)
    fold, whole = folded(flash, plain, length, np.random.default_rng(0))
    for cuts in ([0, length], [0, 0, length, length]):
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, np.random.default_rng(1))), whole)


def test_a_wrong_factor_is_found_out():
    """The law can fail: without the correction of the sum, the whole is not what comes out."""
    flash, plain = streamed("attention")
    rng = np.random.default_rng(3)
    fold, whole = folded(flash, plain, LENGTH, rng)
    wrong = [
        b.__class__(**{**vars(b), "expr": b.expr * 0 + 1}) if b.name == "P.sum.factor" else b for b in fold.form.step
    ]
    object.__setattr__(fold.form, "step", tuple(wrong))
    with pytest.raises(AssertionError):
        close(fold.finish(fold.fold([0, 3, 6, LENGTH])), whole)


@pytest.mark.parametrize("name", ["attention", "logsumexp", "LayerNorm;linear", "variance", "projected cross-entropy"])
def test_merging_is_associative_and_the_start_is_its_unit(name):
    flash, plain = streamed(name)
    fold, _ = folded(flash, plain, LENGTH, np.random.default_rng(5))
    one, two, three = (fold.fold(cut) for cut in ([0, 2], [2, 5], [5, LENGTH]))
    left, right = fold.merge(fold.merge(one, two), three), fold.merge(one, fold.merge(two, three))
    close(left, right)
    close(fold.merge(fold.start(), one), one)
    close(fold.merge(one, fold.start()), one)


@pytest.mark.parametrize(
    "name", ["attention", "attention, normalised", "soft-cap", "two outputs", "projected cross-entropy"]
)
def test_logits_of_ten_thousand(name):
    flash, plain = streamed(name)
    rng = np.random.default_rng(7)
    sizes, arrays = arrays_for(plain, "x", LENGTH, rng)
    first = next(iter(arrays))
    arrays[first] = np.where(rng.random(arrays[first].shape) < 0.5, -1.0, 1.0) * 1e4
    fold, whole = Fold(flash, flash.forms[0], arrays, sizes), outputs(plain, arrays)
    for _ in range(50):
        cuts = random_cuts(LENGTH, rng)
        for state in (fold.fold(cuts), tree(fold, cuts, rng)):
            found = fold.finish(state)
            assert all(np.isfinite(value).all() for value in found.values())
            close(found, whole)


def dead_scores(kind, rng):
    """Scores of which whole rows, or the first chunk of some rows, see nothing."""
    scores = rng.normal(size=(4, LENGTH)) * (1e4 if kind == "huge" else 1)
    scores[1] = -np.inf
    scores[2, :4] = -np.inf
    scores[3, 4:] = -np.inf
    return scores


@pytest.mark.parametrize("options", [{}, {"hoist": False}])
@pytest.mark.parametrize("kind", ["plain", "huge"])
def test_dead_rows_and_dead_chunks(kind, options):
    S, V = dk.array("scores", q, x) * 1, dk.array("V", x, e)
    P, L = dk.softmax(S, over=x), dk.logsumexp(S, over=x)
    O = dk.einsum("q x, x e -> q e", P, V)
    plain = term(O, L, S=S, O=O, L=L)
    flash = stream(fuse(plain), x="s_x", **options)
    rng = np.random.default_rng(11)
    arrays = {"scores": dead_scores(kind, rng), "V": rng.normal(size=(LENGTH, 3))}
    fold = Fold(flash, flash.forms[0], arrays, {"q": 4, "x": LENGTH, "e": 3})
    whole = outputs(plain, arrays)
    assert (whole["O"][1] == 0).all() and whole["L"][1] == -np.inf
    for _ in range(50):
        cuts = random_cuts(LENGTH, rng)
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


def test_a_row_that_sees_nothing_gives_zero():
    """The sheet's instance: 2 x 4 mask, row 0 all masked, q = k = 0, v = 1..4: [0, 2.5]."""
    flash, _ = streamed("boolean mask")
    mask = np.array([[False] * 4, [True] * 4])
    arrays = {"Q": np.zeros((2, 3)), "K": np.zeros((4, 3)), "V": np.arange(1.0, 5)[:, None], "M": mask}
    fold = Fold(flash, flash.forms[0], arrays, {"q": 2, "x": 4, "d": 3, "e": 1})
    for cuts in ([0, 4], [0, 2, 4], [0, 1, 2, 3, 4]):
        np.testing.assert_array_equal(fold.finish(fold.fold(cuts))["O"], [[0.0], [2.5]])


def test_a_dead_chunk_before_a_live_one():
    """The sheet's instance: scores [-inf, -inf, 0, 0], v = [1, 2, 3, 5], chunks of 2: 4."""
    flash, _ = streamed("by hand")
    arrays = {"S": np.array([[-np.inf, -np.inf, 0, 0]]), "V": np.array([[1.0], [2], [3], [5]])}
    fold = Fold(flash, flash.forms[0], arrays, {"q": 1, "x": 4, "e": 1})
    np.testing.assert_array_equal(fold.finish(fold.fold([0, 2, 4]))["O"], [[4.0]])


def test_a_large_mean_does_not_cancel():
    """Welford's case: the lemma keeps the digits that power sums lose."""
    data = {"X": 1e8 + np.arange(LENGTH, dtype=float)[None]}
    exact = np.var(np.arange(LENGTH))
    errors = {}
    for lemma in (True, False):
        flash = stream(variance(), x="s_x", lemma=lemma)
        fold = Fold(flash, flash.forms[0], data, {"q": 1, "x": LENGTH})
        errors[lemma] = abs(float(fold.finish(fold.fold([0, 2, 5, LENGTH]))["V"][0]) - exact) / exact
    assert errors[True] < 1e-12 and errors[False] > 1e-3


UNSEEN = {
    "a minimum taken off": lambda X, c: dk.exp(X - dk.amin(X, x, name="n")),
    "a maximum added": lambda X, c: dk.exp(dk.amax(X, x, name="m") - X),
    "a slope of either sign": lambda X, c: dk.exp(X - c * dk.amax(X, x, name="m")),
    "a root of a maximum": lambda X, c: X / dk.sqrt(dk.amax(X, x, name="m") ** 2 + 1),
    "a product with a maximum": lambda X, c: X * dk.amax(X, x, name="m"),
}


@pytest.mark.parametrize("options", [{}, {"hoist": False}])
@pytest.mark.parametrize("summand", UNSEEN)
def test_extremes_that_have_seen_nothing(summand, options):
    """An infinite start never meets a 0: neither before the first chunk nor in an empty part."""
    X, c = dk.array("given", q, x) * 1, dk.array("c", q)
    plain = term(dk.total(UNSEEN[summand](X, c), x, name="T"), X=X)
    flash = stream(fuse(plain), x=None, **options)
    for length in (0, 6):
        fold, whole = folded(flash, plain, length, np.random.default_rng(2))
        for cuts in ([0, length], [0, 0, length // 2, length], [0, length, length]):
            close(fold.finish(fold.fold(cuts)), whole)
            close(fold.finish(tree(fold, cuts, np.random.default_rng(4))), whole)


def test_what_cancels_still_has_its_axes():
    """A summand that algebra makes 0 is still summed over the axes that its wire carries."""
    X = dk.array("given", q, x) * 1
    R = dk.total(X - X, x, name="R")
    plain = term(dk.total((X + R) - (X + R), x, name="T"), X=X)
    fold, whole = folded(stream(fuse(plain), x=None), plain, 5, np.random.default_rng(2))
    close(fold.finish(fold.fold([0, 2, 5])), whole)


def state_names(flash):
    return [state.name for state in flash.forms[0].state]


def test_attention_is_the_published_algorithm():
    flash, _ = streamed("attention")
    (form,) = flash.forms
    assert (form.axis, form.region, form.method) == ("x", ("QK", "S", "P", "O"), "hoisted")
    assert state_names(flash) == ["P.max", "P.sum", "O.acc"]
    assert [names(state.axes) for state in form.state] == [("q",), ("q",), ("q", "e")]
    assert [str(state.start) for state in form.state] == ["-oo", "0", "0"]
    assert form.carried == ("QK", "S", "P.exp")
    parts = {box.name: box for box in form.step}
    assert isinstance(parts["O.acc.part"], Contract) and parts["O.acc.part"].inputs == ("P.exp", "V")
    assert [box.name for box in form.tail] == ["O"] and form.tail[0].inputs == ("O.acc", "P.sum")
    assert [name for name in parts if "factor" in name] == ["P.sum.factor"]
    equations = [f"{left} = {right}" for left, right in form.identity]
    assert "o_new = o*exp(m - m_new) + o_chunk" in equations and "O = o / z" in equations
    assert flash.labels == (Label("stream", "x", size("s_x")),)


def test_without_hoisting_every_partial_result_is_normalised():
    flash, plain = streamed("attention, normalised")
    (form,) = flash.forms
    assert form.method == "normalised" and state_names(flash) == ["P.max", "P.sum", "O"] and form.tail == ()
    ratio = form.identity[3]
    assert [str(side) for side in ratio] == [
        "(exp(S - m_new)/z_new) / (exp(S - m)/z)",
        "(z*exp(m - m_new)) / z_new",
    ]
    rng = np.random.default_rng(0)
    fold, _ = folded(flash, plain, LENGTH, rng)
    sizes, first = fold.sizes | {"x": 4}, {n: v[:4] if n in "KV" else v for n, v in fold.arrays.items()}
    assert sizes["x"] == 4
    close(fold.finish(fold.fold([0, 2, 4])), outputs(plain, first))


def test_hoisting_on_the_spine_makes_the_same_stream():
    spine = stream(hoist(fuse(attention())), x="s_x", hoist=False)
    inside, _ = streamed("attention")
    assert spine.forms[0].method == "corrected"
    assert [box for box in spine.forms[0].step if isinstance(box, Contract)] == [
        box for box in inside.forms[0].step if isinstance(box, Contract)
    ]
    assert state_names(spine) == state_names(inside)


@pytest.mark.parametrize(
    ("name", "states", "method"),
    [
        ("logsumexp", ["L.max", "L.sum"], "corrected"),
        ("mean", ["M.sum"], "plain"),
        ("matmul", ["C"], "plain"),
        ("variance", ["V.total", "x.count", "V.sum"], LEMMA),
        ("variance, power sums", ["V.total", "V.sum.1"], "power sums"),
        ("spherical", ["P.sum", "O.acc"], "hoisted"),
        ("RMSNorm;linear", ["N.sum", "Y.acc"], "hoisted"),
        ("LayerNorm;linear", ["N.total", "x.count", "N.sum", "Y.1", "Y.2.weight", "Y.2"], LEMMA),
        ("LayerNorm;linear, power sums", ["N.total", "N.sum.1", "Y.1", "Y.2", "Y.3"], "power sums"),
        ("projected cross-entropy", ["L.logsumexp.max", "L.logsumexp.sum", "L.sum(hit)"], "corrected"),
        ("two outputs", ["softmax.max", "softmax.sum", "O.acc"], "hoisted"),
    ],
)
def test_what_is_carried(name, states, method):
    flash, _ = streamed(name)
    assert state_names(flash) == states and flash.forms[0].method == method


def test_five_power_sums_and_constants_counted_once():
    """LayerNorm;linear: five sums, those of equal summands shared; n is no state but a size."""
    flash, _ = streamed("LayerNorm;linear, power sums")
    sums = [box for box in flash.forms[0].step if isinstance(box, Reduce | Contract)]
    assert len(sums) == 5 and not any("count" in box.name for box in sums)


def test_logits_never_exist_as_a_whole():
    flash, _ = streamed("projected cross-entropy")
    form = flash.forms[0]
    assert "S" in form.carried and not any("x" in names(state.axes) for state in form.state)


def test_accumulators_are_at_least_single_precision():
    half = dk.einsum("q x, x e -> q e", dk.array("A", q, x, dtype="fp16"), dk.array("B", x, e, dtype="fp16"))
    double = dk.einsum("q x, x e -> q e", dk.array("A", q, x, dtype="fp64"), dk.array("B", x, e, dtype="fp64"))
    assert [stream(term(C), x=None).forms[0].state[0].dtype for C in (half, double)] == ["fp32", "fp64"]


def test_a_rounding_stays_where_it_was():
    P = dk.cast(dk.softmax(dk.array("S", q, x), over=x), "fp16")
    flash = stream(fuse(term(dk.einsum("q x, x e -> q e", P, dk.array("V", x, e)), P=P)), x=None)
    (rounded,) = [box for box in flash.forms[0].step if box.kind == "cast"]
    (product,) = [box for box in flash.forms[0].step if isinstance(box, Contract)]
    assert rounded.inputs == ("softmax.exp",) and product.inputs[0] == rounded.name


def test_a_title_means_nothing():
    """No rule knows an operation by name: another title gives the same stream."""
    plain, renamed = (stream(fuse(attention(title=title)), x="s_x") for title in ("softmax", "teapot"))
    assert plain.forms == renamed.forms


def test_no_operation_is_known_by_name():
    """Outside docstrings and comments the room holds no block's title, and no other name of one."""
    titles = {
        "softmax",
        "attention",
        "logsumexp",
        "mean",
        "variance",
        "rmsnorm",
        "layernorm",
        "l2 norm",
        "cross-entropy",
    }
    for path in Path(diagkit.derive.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
        docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
        words = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        assert not titles & {word.lower() for word in words if word not in docs}, path.name


def test_the_stored_wire_that_carries_the_axis_is_made_chunk_by_chunk():
    S = dk.array("X", q, x) * 2
    L = dk.logsumexp(S, over=x)
    flash = stream(fuse(term(S, L, S=S, L=L)), x=None)
    assert "S" in flash.forms[0].carried and flash.regions[0].stores == ("S", "L")


def test_streaming_is_a_label_and_a_step():
    plain = fuse(attention())
    flash = stream(plain, x="s_x")
    assert flash.boxes == plain.boxes and flash.erase() == attention()
    step = flash.steps[-1]
    assert (step.kind, step.rule, step.call) == ("relabel", "stream", ("stream", (("x", "s_x"),)))
    assert step.identity == flash.forms[0].identity and "division waits for the end" in step.reason


def test_two_regions_stream_one_axis_with_one_tile():
    A, B = dk.total(dk.array("X", q, x), x), dk.amax(dk.array("Y", q, x), x)
    both = stream(stream(term(A, B, A=A, B=B), x=4, region="A"), x=4, region="B")
    assert [form.region for form in both.forms] == [("A",), ("B",)] and len(both.labels) == 1


SUMMANDS = {
    "a product": lambda X, Y, c, first: X * Y * first,
    "a product and a term": lambda X, Y, c, first: X * first + Y,
    "a shifted exponential": lambda X, Y, c, first: dk.exp(X - first),
    "an exponential and factors": lambda X, Y, c, first: Y * dk.exp(X - first) * c,
    "a shift times a value": lambda X, Y, c, first: (X - first) * Y,
    "a squared shift": lambda X, Y, c, first: (X - first) ** 2 * c,
    "a square outside": lambda X, Y, c, first: X * first**2 - Y * c,
    "two brackets": lambda X, Y, c, first: (X + first) * (Y - first),
}
FIRST = {
    "sum": lambda X: dk.total(X, x, name="R"),
    "max": lambda X: dk.amax(X, x, name="R"),
    "mean": lambda X: dk.mean(X, over=x, name="R"),
}


@pytest.mark.parametrize("lemma", [True, False])
@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("summand", SUMMANDS)
def test_sums_of_what_waits_for_a_reduction(summand, first, lemma):
    X, Y, c = dk.array("X", q, x), dk.array("Y", q, x), dk.array("c", q)
    plain = term(dk.total(SUMMANDS[summand](X, Y, c, FIRST[first](X)), x, name="T"))
    if len(fuse(plain).regions) > 1:
        plain = term(dk.total(SUMMANDS[summand](X * 1, Y, c, FIRST[first](X * 1)), x, name="T"))
    flash = stream(fuse(plain), x=None, lemma=lemma)
    rng = np.random.default_rng(17)
    fold, whole = folded(flash, plain, 6, rng)
    for _ in range(10):
        cuts = random_cuts(6, rng)
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


@pytest.mark.parametrize("name", ["LayerNorm;linear", "attention block", "projected cross-entropy"])
def test_the_value_writes_itself_down(name):
    flash, _ = streamed(name)
    assert eval(repr(flash), vars(diagkit.term).copy()) == flash


@pytest.mark.parametrize("big", [dk.amax, dk.amin])
def test_an_extreme_that_is_carried_already_is_not_carried_twice(big):
    X = dk.array("X", q, x)
    farther = dk.Diagram(big(X - 2 * big(X, x), x, name="s")).fuse().stream(x="c")
    scores = np.random.default_rng(0).normal(size=(3, 7))
    assert len(farther.forms[0].state) == 1
    whole = farther.reference(X=scores)
    assert np.allclose(farther.lower(c=2).run(X=scores), whole) and farther.law(X=scores)


SHIFTED = {
    "a maximum times a factor": lambda X, Y, c: dk.exp(X * c - c * dk.amax(X * 1, x, name="m")) * Y,
    "a maximum and a bias": lambda X, Y, c: dk.exp(X - (c + dk.amax(X * 1, x, name="m"))) * Y,
    "half of everything": lambda X, Y, c: dk.exp(X * 0.5 - 0.5 * dk.amax(X * 1, x, name="m")),
    "a minimum and a bias": lambda X, Y, c: dk.exp((c + dk.amin(-X, x, name="n")) + X) * Y,
}


@pytest.mark.parametrize("summand", SHIFTED)
def test_shifts_made_of_a_maximum_in_a_box_of_their_own(summand):
    """Where a chunk sees nothing its maximum is -inf, and so is what is made of it; -inf - (-inf) is no number."""
    X, Y, c = dk.array("X", q, x), dk.array("Y", q, x), dk.array("c", q)
    plain = term(dk.total(SHIFTED[summand](X, Y, c), x, name="T"))
    flash = stream(fuse(plain), x=None)
    rng = np.random.default_rng(19)
    scores = rng.normal(size=(3, LENGTH))
    scores[:2, :4] = -np.inf
    arrays = {"X": scores, "Y": rng.normal(size=(3, LENGTH)), "c": rng.random(3) + 0.5}
    used = {array.name: arrays[array.name] for array in plain.inputs}
    fold, whole = Fold(flash, flash.forms[0], used, {"q": 3, "x": LENGTH}), outputs(plain, used)
    assert np.isfinite(whole["T"]).all()
    for _ in range(30):
        cuts = random_cuts(LENGTH, rng)
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


@pytest.mark.parametrize("hoist", [True, False])
@pytest.mark.parametrize("extreme", [dk.amax, dk.amin])
def test_an_extreme_less_the_log_of_what_may_be_an_empty_sum(extreme, hoist):
    """Empty and dead parts have the logarithm of 0 in them: it waits for the end."""
    X, Y = dk.array("X", q, x), dk.array("Y", q, x)
    plain = term(extreme(X - dk.log(dk.total(dk.exp(Y), x, name="Z")), x, name="T"))
    flash = stream(fuse(plain), x=None, hoist=hoist)
    rng = np.random.default_rng(23)
    arrays = {"X": rng.normal(size=(3, LENGTH)), "Y": rng.normal(size=(3, LENGTH))}
    arrays["Y"][:2, :4] = -np.inf
    fold, whole = Fold(flash, flash.forms[0], arrays, {"q": 3, "x": LENGTH}), outputs(plain, arrays)
    for cuts in ([0, 0, 2, 4, LENGTH], [0, 4, 4, LENGTH]):
        close(fold.finish(fold.fold(cuts)), whole)
        close(fold.finish(tree(fold, cuts, rng)), whole)


LIKE = ["attention", "attention, normalised", "two outputs", "grouped heads", "attention block", "tempered", "base two"]
DEAD = [*LIKE, "boolean mask", "causal mask", "bottom-right mask", "window mask", "added mask", "soft-cap", "softmin"]


@pytest.mark.parametrize("name", [*DEAD, "joint softmax", "summed heads", "entropy", "projected cross-entropy"])
def test_random_trees_of_huge_and_dead_parts(name):
    """Logits of 1e4 either way, and where a mask can hide them, whole parts hidden: never NaN where the whole is a
    number, and its value."""
    flash, plain = streamed(name)
    rng = np.random.default_rng(29)
    sizes, arrays = arrays_for(plain, "x", LENGTH, rng)
    for array in plain.inputs:
        if array.name in ("Q", "S", "H"):
            arrays[array.name] = np.where(rng.random(arrays[array.name].shape) < 0.5, -1.0, 1.0) * 1e4
        if array.name in ("M", "B"):
            arrays[array.name][:2, :] = False if array.name == "M" else -np.inf
    fold, whole = Fold(flash, flash.forms[0], arrays, sizes), outputs(plain, arrays)
    for _ in range(20):
        cuts = random_cuts(LENGTH, rng)
        for state in (fold.fold(cuts), tree(fold, cuts, rng)):
            for wire, value in fold.finish(state).items():
                assert not np.isnan(value).any(), wire
                np.testing.assert_allclose(value, whole[wire], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("normalise", [dk.rms_norm, dk.spherical])
def test_where_no_factor_is_needed_the_reason_speaks_of_none(normalise):
    q, x, d = dk.axes("q x d")
    S, V = dk.array("S", q, x), dk.array("V", x, d)
    made = dk.Diagram(dk.einsum("q x, x d -> q d", normalise(S, over=x), V)).fuse().stream(x="s_x")
    assert made.steps[-1].reason.endswith("; partial results combine as they are; division waits for the end")
    assert not [box.name for box in made.forms[0].step if "factor" in box.name]
