"""Programs run as the diagrams they came from, whatever the tiles."""

import numpy as np
import pytest
from derive_cases import attention, matmul, q, x
from hypothesis import given, settings
from hypothesis import strategies as st
from program_cases import flash, flash_by_hand, grouped_heads
from strategies import arrays_for, labelled, masked_streams

import diagkit as dk
from diagkit import derive, ops
from diagkit.program import For, ParFor, lower
from diagkit.term import InputError, Term


def outputs_of(term, result):
    """Outputs by name, also where there is only one."""
    return result if len(term.outputs) > 1 else {term.outputs[0]: result}


def check(term, sizes, seed=0):
    """The program's numbers against the diagram's own, in float64."""
    arrays = arrays_for(term, sizes, seed)
    made = outputs_of(term, lower(term, **sizes).run(**arrays))
    wanted = outputs_of(term, ops.reference(term, arrays))
    for name, value in wanted.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-10, atol=1e-10)


@settings(max_examples=300)
@given(labelled())
def test_a_program_computes_what_the_diagram_means(case):
    check(case.term, case.sizes)


@settings(max_examples=100)
@given(labelled(), st.data())
def test_empty_axes_give_what_the_diagram_gives(case, data):
    empty = data.draw(st.lists(st.sampled_from(list(case.term.axes)), min_size=1, max_size=2, unique=True))
    check(case.term, case.sizes | dict.fromkeys(empty, 0))


@settings(max_examples=150)
@given(masked_streams())
def test_leaving_out_dead_chunks_changes_no_number(case):
    check(case.term, case.sizes)


@settings(max_examples=150)
@given(labelled())
def test_the_walk_counts_what_the_run_touches(case):
    program = lower(case.term, **case.sizes)
    assert program.count() == program.count(**arrays_for(case.term, case.sizes))


@settings(max_examples=50)
@given(masked_streams())
def test_the_walk_skips_what_the_run_skips(case):
    program = lower(case.term, **case.sizes)
    assert program.count() == program.count(**arrays_for(case.term, case.sizes))


@pytest.mark.parametrize("make", [attention, flash, flash_by_hand, matmul])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 7), (8, 3), (13, 13)])
@pytest.mark.parametrize("tile", [1, 3, 64])
def test_awkward_lengths_and_tiles(make, rows, cols, tile):
    term = make()
    tiles = {str(label.tile): tile for label in term.labels}
    check(
        term, {"q": rows, "x": cols, "d": 3, "e": 5, **tiles} if make is not matmul else {"q": rows, "x": cols, "e": 5}
    )


def test_grouped_heads_share_their_keys():
    check(grouped_heads(), {"k": 2, "r": 2, "q": 5, "x": 7, "d": 3, "g_q": 2, "s_x": 3})


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_result_has_the_type_of_the_inputs_and_at_least_fp32_inside(dtype):
    term, random = flash(), np.random.default_rng(1)
    arrays = {n: random.normal(size=s).astype(dtype) for n, s in {"Q": (9, 4), "K": (6, 4), "V": (6, 3)}.items()}
    made = lower(term, g_q=4, s_x=4).run(**arrays)
    assert made.dtype == dtype
    np.testing.assert_allclose(made, ops.evaluate(term, arrays), rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    term = flash(mask=dk.causal(q, x))
    arrays = {n: torch.from_numpy(a) for n, a in arrays_for(term, {"q": 5, "x": 7, "d": 3, "e": 4}).items()}
    made = lower(term, g_q=2, s_x=3).run(**arrays)
    assert torch.allclose(made, ops.evaluate(term, arrays))


def test_strided_and_broadcast_inputs():
    term = flash()
    arrays = arrays_for(term, {"q": 6, "x": 8, "d": 4, "e": 4})
    odd = {
        "Q": np.asfortranarray(arrays["Q"]),
        "K": np.repeat(arrays["K"], 2, 0)[::2],
        "V": np.broadcast_to(arrays["V"][:1], (8, 4)),
    }
    np.testing.assert_allclose(lower(term, g_q=4, s_x=3).run(**odd), ops.reference(term, odd))


def test_several_kernels_hand_over_through_slow_memory():
    program = lower(attention(), q=3, x=4, d=2, e=2)
    assert [kernel.name for kernel in program.kernels] == ["QK", "S", "P", "O"]
    moved = program.count().transfers
    assert moved["S", 1, 0, "spill"] == moved["S", 0, 1, "refill"] == 12
    assert moved["O", 1, 0, "output"] == 6


def test_an_output_that_is_read_again_is_stored_once_and_refilled():
    S = dk.array("X", q, x) * 2
    term = Term(*ops.trace([S, dk.total(S, over=x)], {"S": S}), "twice")
    count = lower(term, q=3, x=4).count()
    assert count.transfers["S", 1, 0, "output"] == count.transfers["S", 0, 1, "refill"] == 12
    fused = lower(derive.fuse(term), q=3, x=4).count()
    assert ("S", 0, 1, "refill") not in fused.transfers


def test_the_tree_says_which_column_each_statement_comes_from():
    term = flash()
    (kernel,) = lower(term).kernels
    assert {s.column for s in kernel.statements if s.kind == "compute"} == {"QK", "S", "P", "O"}
    assert [type(s) for s in kernel.statements if s.kind in ("parfor", "for")] == [ParFor, For]


def test_what_is_missing_or_unknown_is_named():
    with pytest.raises(InputError, match=r"no open size or tile 'y'.*it takes: q, d, x, e, g_q, s_x"):
        lower(flash(), y=3)
    with pytest.raises(InputError, match=r"g_q cannot be 0.*>= 1"):
        lower(flash(), g_q=0)
    with pytest.raises(InputError, match=r"needs a number for s_x; lower it with s_x=\.\.\."):
        lower(flash(), g_q=2).run(**arrays_for(flash(), {"q": 2, "x": 2, "d": 2, "e": 2}))
    with pytest.raises(InputError, match="needs a number for q, d, x, e, s_x"):
        lower(flash(), g_q=2).count()
    with pytest.raises(InputError, match=r"'q' is 3 in the sizes given but 2 in 'Q'"):
        lower(flash(), q=3, g_q=2, s_x=2).run(**arrays_for(flash(), {"q": 2, "x": 2, "d": 2, "e": 2}))


def test_a_size_that_the_diagram_fixes_may_be_repeated():
    Y = dk.array("X", dk.axis("a", 4)) * 2
    term = Term(*ops.trace([Y], {"Y": Y}), "fixed")
    assert lower(term, a=4).count().total() == lower(term).count().total() == 8
    with pytest.raises(InputError, match="'a'"):
        lower(term, a=5)
