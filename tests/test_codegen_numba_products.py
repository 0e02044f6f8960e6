"""Contractions in numba kernels: which way each is written, and that every way gives the numbers of float64."""

import re

import numpy as np
import plain_numba
import pytest
from numba_cases import d as features
from numba_cases import h, kernel, normal, q, r, x

import diagkit as dk
from diagkit import derive, ops
from diagkit.bench import Kernel
from diagkit.codegen.numba_products import FEW
from diagkit.codegen.numba_source import write
from diagkit.program import lower
from diagkit.term import Term

pytest.importorskip("numba", reason="the numba target needs numba")
pytest.importorskip("scipy", reason="numba's products need scipy")
e = dk.axis("e")


def product(left, right, made=(), dtype="fp32"):
    """One contraction as a kernel of its own."""
    operands = (dk.array(name, *axes, dtype=t) for name, axes, t in (("A", left, "fp32"), ("B", right, dtype)))
    return Term(*ops.trace([dk.contract(*operands, over=set(left) & set(right) - set(made))], {}), "product")


SHAPES = {
    "a vector times rows": ((x,), (e, x), ()),
    "a vector times columns": ((x,), (x, e), ()),
    "rows times a vector": ((e, x), (x,), ()),
    "columns times a vector": ((x, e), (x,), ()),
    "few rows, the sum last": ((r, x), (e, x), ()),
    "few rows, the sum first": ((r, x), (x, e), ()),
    "few columns": ((e, x), (x, r), ()),
    "few of both": ((r, x), (x, h), ()),
    "a batch": ((h, r, x), (h, x, e), (h,)),
    "a batch in the middle": ((r, h, x), (x, h, e), (h,)),
    "two sums, two columns": ((x, q, r), (x, q, e, h), ()),
    "two sums apart": ((x, r, q), (x, e, q), ()),
}
SIZES = {"x": 11, "e": 13, "r": 3, "h": 2, "q": 5}


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("empty", [None, "x", "e"])
def test_few_rows_are_multiplied_row_by_row(shape, dtype, empty):
    term = product(*SHAPES[shape], dtype=dtype)
    sizes = {axis: 0 if axis == empty else SIZES[axis] for axis in term.axes}
    arrays = normal(**{a.name: [sizes[axis.name] for axis in a.axes] for a in term.inputs})
    if dtype == "int8":
        arrays["B"] = (40 * arrays["B"]).astype(np.int8)
    program = lower(term, **sizes)
    assert "np.dot" not in write(program).text
    for counted in (True, False):
        made, _ = plain_numba.run(program, arrays, counted=counted)
        np.testing.assert_allclose(made, ops.reference(term, arrays), rtol=1e-5, atol=1e-4)


def dots(term, **sizes):
    return write(lower(term, **sizes)).text.count("np.dot")


def test_many_rows_and_rows_of_unknown_number_go_to_the_blas():
    term = product((r, x), (x, e))
    assert [dots(term, r=FEW), dots(term, r=FEW + 1), dots(term)] == [0, 1, 1]
    tiled = derive.group(derive.fuse(term), r="g_r")
    assert [dots(tiled, g_r=1), dots(tiled, g_r=FEW), dots(tiled, g_r=FEW + 1)] == [0, 0, 1]


def test_a_text_for_all_tiles_does_not_depend_on_how_few_rows_a_tile_has():
    tiled = derive.group(derive.fuse(product((r, x), (x, e))), r="g_r")
    few, many = (write(lower(tiled, g_r=g), open_tiles=True).text for g in (2, 64))
    assert few == many


def decode(dtype):
    """One query of each head over all its keys; codes have a scale per key."""
    Q, K, V = dk.array("Q", h, features), *(dk.array(name, h, x, features, dtype=dtype) for name in "KV")
    S = dk.contract(Q, K, over=features) * dk.array("sk", h, x) * features.size**-0.5
    O = dk.contract(dk.softmax(S, over=x) * dk.array("sv", h, x), V, over=x)
    term = derive.group(derive.fuse(Term(*ops.trace([O], {"S": S, "O": O}), f"decode {dtype}")), h=1)
    return derive.stream(term, x=32)


@pytest.mark.parametrize("dtype", ["fp32", "int4"])
def test_a_compiled_kernel_for_one_query_agrees(dtype):
    arrays = normal(Q=(3, 24), K=(3, 75, 24), V=(3, 75, 24), sk=(3, 75), sv=(3, 75))
    if dtype == "int4":
        arrays |= {name: (3 * arrays[name]).clip(-8, 7).astype(np.int8) for name in "KV"}
    made = Kernel(lower(decode(dtype)))
    assert "np.dot" not in made.source.text
    assert made.check(arrays=arrays)


def loads(term, **options):
    return re.findall(r"def load_(\w+)", write(lower(term), **options).text)


def test_what_is_read_row_by_row_alone_is_not_copied_first():
    assert loads(decode("int8")) == ["Q", "sk", "sv"]
    assert loads(decode("int8"), counted=True) == ["Q", "K", "sk", "sv", "V"]
    assert loads(decode("int4")) == ["Q", "K", "sk", "sv", "V"], "pairs are unpacked"
    text = write(lower(decode("fp32"))).text
    assert "K_tile = K[h_first, x_first : x_first + x_count]" in text and "    K_buffer" not in text
    X, W = dk.array("X", x, e), dk.array("W", e)
    both = Term(*ops.trace([dk.einsum("x e, e -> x", X, W, name="Y"), dk.total(X, e, name="T")], {}), "read twice")
    assert "X" in loads(derive.fuse(both)), "a sweep reads it too"


def test_attention_over_many_queries_is_left_to_the_blas():
    assert kernel("attention").source.text.count("np.dot") == 2


def test_matrices_are_read_where_they_lie_in_dense_arrays_alone():
    """Those of strided arrays, of other numbers or for a kernel that counts are copied first."""
    program = kernel("attention").program
    assert "load_K" not in write(program).text and "K_tile = K[x_first : x_first + x_count]" in write(program).text
    assert "load_K" in write(program, dense=False).text and "load_K" in write(program, counted=True).text
    arrays = normal(Q=(50, 8), K=(45, 8), V=(45, 8))
    wanted = kernel("attention")(**arrays)
    for name in arrays:
        strided = {**arrays, name: np.asfortranarray(arrays[name])}
        np.testing.assert_allclose(kernel("attention")(**strided), wanted, rtol=1e-5, atol=1e-6)
        mixed = {**arrays, name: arrays[name].astype(np.float64)}
        np.testing.assert_allclose(kernel("attention")(**mixed), wanted, rtol=1e-4, atol=1e-5)
