"""Kernels checked, counted and timed: what each result says, and what is refused before anything is timed."""

import time
import warnings

import examples
import numpy as np
import pytest
from numba_cases import TERMS, kernel, normal, q

import diagkit as dk
from diagkit import ops
from diagkit.bench import Check, Compared, Kernel, KernelError, Measured, Times, numba_run, triton_run
from diagkit.bench import check as checking
from diagkit.bench import measure as measuring
from diagkit.bench.blas import _control, one_blas_thread
from diagkit.bench.launch import check_pairs, packed, unpacked
from diagkit.bench.rivals import roles
from diagkit.program import lower
from diagkit.term import InputError, Term

pytest.importorskip("numba", reason="the kernels that are timed here are numba's")
pytest.importorskip("scipy", reason="numba's products need scipy")


@pytest.fixture
def attention():
    """A kernel of its own: its checks are not another test's."""
    return Kernel(kernel("attention").program)


def test_a_check_says_what_was_run_and_what_was_found(attention):
    found = attention.check(seed=3, q=40, x=50, d=16, e=8)
    assert found.passed and bool(found) and 0 < found.error < found.tolerance < 1e-4
    assert str(found).splitlines() == [
        "check    numba, d=16, e=8, q=40, x=50, random inputs, seed 3",
        f"error    below 1e-06 of the largest value, tolerance {found.tolerance:.0e}",
        "verdict  agrees with float64",
    ]
    assert attention.check(seed=3, q=40, x=50, d=16, e=8) == found


def test_sizes_left_open_are_no_multiples_of_the_tiles(attention):
    sizes = dict(attention.check().sizes)
    assert sizes["q"] % 32 and sizes["x"] % 16 and sizes["q"] > 64


def broken(monkeypatch, change):
    """Kernels whose outputs are changed after they ran."""
    launch = numba_run.launch

    def changed(*args, **options):
        bound = launch(*args, **options)

        def run():
            before = {name: value.copy() for name, value in bound.outputs.items()}
            bound.run()
            for name, value in bound.outputs.items():
                change(value, before[name])

        return type(bound)(run, bound.outputs, bound.memory, bound.moved)

    monkeypatch.setattr(numba_run, "launch", changed)


def test_a_wrong_number_fails_the_check(attention, monkeypatch):
    broken(monkeypatch, lambda value, _: value.__setitem__((1, 2), value[1, 2] + 1e-3))
    found = attention.check()
    assert not found.passed and found.error > 1e-4 and found.unwritten == found.wrong == 0
    assert "DIFFERS" in str(found)


def test_an_element_that_is_never_written_fails_the_check(attention, monkeypatch):
    broken(monkeypatch, lambda value, before: value.__setitem__((3, 0), before[3, 0]))
    found = attention.check()
    assert found.unwritten == 1 and not found.passed and "1 never written" in str(found)


def test_an_infinity_where_there_is_none_fails_the_check(attention, monkeypatch):
    broken(monkeypatch, lambda value, _: value.__setitem__((0, 0), np.inf))
    assert attention.check().wrong == 1


def test_real_activations_can_be_checked():
    from diagkit.machine import activations

    arrays = activations(layer=2, head=3)
    found = Kernel(kernel("attention").program).check(arrays=arrays)
    assert found.passed and found.seed is None and "given inputs" in str(found)


def test_the_tolerance_grows_with_the_sum_and_with_the_unit():
    term = TERMS["matmul"]()
    random = np.random.default_rng(0)

    def tolerance(length, dtype):
        arrays = {
            "A": random.standard_normal((8, length)).astype(dtype),
            "B": random.standard_normal((length, 8)).astype(dtype),
        }
        wanted = {"C": ops.reference(term, arrays)}
        return checking.tolerance_of(term, arrays, wanted, {"q": 8, "x": length, "e": 8})

    assert tolerance(10, np.float32) < tolerance(10_000, np.float32) < 1e-3
    assert tolerance(100, np.float64) < 1e-12


def test_counts_display_elements_and_bytes():
    counted = kernel("masked").count(q=40, x=20, d=4, e=2)
    assert counted.total() == sum(counted.transfers.values())
    text = str(counted)
    assert "M (input)   800 elements, 800 bytes" in text and text.splitlines()[-1].startswith("total")


def test_nothing_is_timed_before_it_is_checked(attention):
    with pytest.raises(KernelError, match="is not timed: it has not been checked; run kernel.check"):
        attention.measure()


def test_nothing_is_timed_after_its_check_failed(attention, monkeypatch):
    broken(monkeypatch, lambda value, _: value.fill(0))
    attention.check()
    with pytest.raises(KernelError, match="its check failed"):
        attention.measure()


def test_measuring_times_rivals_in_the_same_rounds(attention):
    pytest.importorskip("torch", reason="rivals are torch's")
    attention.check()
    found = attention.measure(against=("numpy", "torch", "torch-sdpa", "gemm"), repeats=3, q=64, x=48, d=16, e=16)
    assert [len(times.runs_s) for times in (found.kernel, *found.rivals)] == [3] * 5
    assert found.kernel.flops == 2 * 64 * 48 * (16 + 16)
    assert all(found.ratio(times.name) > 0 for times in found.rivals)
    assert "kernel" in str(found) and " of its rate" in str(found) and "cores" in found.device
    with pytest.raises(InputError, match="'cuda' was not measured; measured: numpy, torch, torch-sdpa, gemm"):
        found.ratio("cuda")


def test_causal_attention_is_timed_against_causal_attention():
    pytest.importorskip("torch", reason="the rival is torch's")
    made = Kernel(kernel("causal").program)
    made.check()
    found = made.measure(against="torch-sdpa", repeats=1, cold=True, q=64, x=64, d=16, e=16)
    assert found.cold and "emptied" in str(found)


def test_each_contestant_waits_until_the_one_before_has_come_to_rest(attention, monkeypatch):
    """Threads of OpenMP turn in circles for a while after their work."""
    attention.check()
    spans = []

    def once(run, cold, rest_s):
        begun = time.perf_counter()
        found = timed_once(run, cold, rest_s)
        spans.append((time.perf_counter() - begun, found))
        return found

    timed_once = measuring._once
    monkeypatch.setattr(measuring, "_once", once)
    attention.measure(against="numpy", repeats=2)
    assert len(spans) == 4 and all(whole - timed >= measuring.REST_S for whole, timed in spans)


def test_rivals_that_compute_something_else_are_refused():
    pytest.importorskip("torch", reason="the rival is torch's")
    made = Kernel(kernel("seasoned").program)
    made.check()
    with pytest.raises(KernelError, match="full or causal, is not what seasoned computes"):
        made.measure(against="torch-sdpa", repeats=1)
    with pytest.raises(InputError, match="nothing to measure against is named 'cudnn'"):
        made.measure(against="cudnn")


def test_roles_are_read_off_the_products():
    found = roles(TERMS["grouped heads"]())
    assert (found.queries, found.keys, found.values) == ("Q", "K", "V")
    assert (found.batch, found.rows, found.over, found.features, found.columns) == (("k",), ("q", "r"), "x", "d", "d")
    with pytest.raises(KernelError, match="does not have the products and axes of attention"):
        roles(TERMS["matmul"]())


def test_ratios_are_taken_round_by_round():
    mine, other = Times("kernel", (1.0, 2.0, 4.0), 8), Times("numpy", (3.0, 6.0, 4.0), 8)
    gemm = Times("gemm", (1.0, 2.0, 4.0), 16)
    found = Measured("numba", "a machine", (("q", 8),), False, mine, (other, gemm))
    assert found.ratio("numpy") == 3 and found.ratio("gemm") == 0.5
    assert mine.median_s == 2 and mine.spread == 1.5 and mine.rate == 4


def test_a_measurement_lies_between_two_predictions_or_not():
    assert Compared(2.0, 1.0, 3.0).within and "between the two" in str(Compared(2.0, 1.0, 3.0))
    assert "slower than serial, 4x overlapped" in str(Compared(4.0, 1.0, 3.0))
    assert "faster than overlapped" in str(Compared(0.5, 1.0, 3.0))


def test_arrays_of_other_sizes_than_lowered_are_refused():
    made = Kernel(lower(TERMS["attention"](), g_q=32, s_x=16, d=8))
    with pytest.raises(InputError, match="axis .d. is 8 in .* but 9 in .Q."):
        made(**normal(Q=(4, 9), K=(5, 9), V=(5, 2)))
    with pytest.raises(InputError, match="attention has no open size 'd'"):
        made.check(d=9)


def test_a_kernel_displays_as_its_source_and_keeps_the_kind_of_its_arrays(attention):
    torch = pytest.importorskip("torch", reason="torch arrays go in")
    assert repr(attention) == attention.source.text and "<pre" in attention._repr_html_()
    arrays = {name: torch.from_numpy(value) for name, value in normal(Q=(4, 8), K=(5, 8), V=(5, 2)).items()}
    made = attention(**arrays)
    assert isinstance(made, torch.Tensor) and made.dtype == torch.float32
    half = attention(**{name: value.bfloat16() for name, value in arrays.items()})
    assert half.dtype == torch.bfloat16 and torch.allclose(half.float(), made, atol=2e-2)


def test_the_blas_gets_its_threads_back():
    control = _control()
    if control is None:
        pytest.skip("scipy's BLAS here is not OpenBLAS")
    before = control[0]()
    with one_blas_thread():
        assert control[0]() == 1
    assert control[0]() == before


def test_several_threads_may_call_kernels_at_once(attention):
    from concurrent.futures import ThreadPoolExecutor

    arrays = normal(Q=(100, 16), K=(60, 16), V=(60, 8))
    wanted = attention(**arrays)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: attention(**arrays), range(16)))
    assert all((one == wanted).all() for one in made)


def test_compiling_is_never_timed(attention, monkeypatch):
    """What is timed is a launch that has run before."""
    events = []
    launch = numba_run.launch

    def noted(*args, **options):
        bound = launch(*args, **options)
        return type(bound)(lambda: events.append("run") or bound.run(), bound.outputs, bound.memory, bound.moved)

    attention.check()
    monkeypatch.setattr(numba_run, "launch", noted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention.measure(repeats=4, q=40, x=20, d=8, e=8)
    assert events == ["run"] * 5


def test_whole_numbers_and_masks_are_checked_too():
    hits = dk.equal(dk.array("t", q, dtype="int64"), dk.index(dk.axis("c", 4)), name="hits")
    made = Kernel(lower(Term(*ops.trace([hits], {}), "hits")))
    found = made.check(q=5)
    assert isinstance(found, Check) and found.passed


def test_a_triton_kernel_is_not_timed_without_a_gpu(monkeypatch):
    """What the interpreter takes is no time of a kernel."""
    monkeypatch.setattr(triton_run, "on_gpu", lambda: False)
    kernel = examples.matmul().kernel("triton", a=4, b=5, c=6)
    kernel.check()
    with pytest.raises(KernelError, match="make gpu"):
        kernel.measure()


# ---- int4: two codes in a byte ----


def test_int4_codes_are_packed_in_pairs_and_come_back():
    codes = np.arange(-8, 8).reshape(2, 8)
    pairs = packed(codes)
    assert pairs.dtype == np.uint8 and pairs.shape == (2, 4) and pairs[0, 0] == 0b1001_1000
    np.testing.assert_array_equal(unpacked(pairs), codes)
    np.testing.assert_array_equal(unpacked(pairs[:, ::2]), codes.reshape(2, 4, 2)[:, ::2].reshape(2, 4))
    assert unpacked(packed(np.zeros((3, 0), np.int8))).shape == (3, 0)


@pytest.mark.parametrize(("codes", "match"), [([[1, 2, 3]], "whole bytes"), (3, "whole bytes"), ([8, 0], "-8..7")])
def test_what_int4_cannot_hold_is_refused(codes, match):
    with pytest.raises(InputError, match=match):
        packed(np.array(codes))


def test_int4_arrays_are_taken_and_need_an_even_last_axis():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    term = Term(*ops.trace([dk.array("X", q, dtype="int4") * 0.5], {}), "halves")
    given = np.array([-8, 7, 3, -1], ml_dtypes.int4)
    assert ops.evaluate(term, {"X": given}).tolist() == [-4, 3.5, 1.5, -0.5]
    with pytest.raises(InputError, match="'X' is int4 and has 3 along 'q'"):
        check_pairs(lower(term), {"q": 3})


def test_codes_may_be_one_off_where_the_number_lies_within_rounding_of_the_middle():
    X = dk.array("X", q)
    codes, _ = dk.quantize(X, "int8", name="codes")
    term = Term(*ops.trace([codes], {}), "codes")
    values = np.float32([*((np.arange(126) + 0.5) / 127), 0.3, 1.0])
    wanted = ops.reference(term, {"X": values})
    found = np.rint(values / np.float32(1 / np.float32(127))).astype(np.int8)

    def excused(found):
        return checking.near_ties(term, "codes", {"X": values}, {"q": len(values)}, found, wanted)

    off = found != wanted
    assert 5 < off.sum() < 100 and excused(found)[off].all()
    assert checking._compare(found, wanted, excused(found)) == (0.0, 0, 0)
    for place, change in ((126, 1), (127, -1), (3, 2), (3, -2)):
        wrong = wanted.astype(np.int8)
        wrong[place] += change
        assert checking._compare(wrong, wanted, excused(wrong)) == (0.0, 1, 0)
