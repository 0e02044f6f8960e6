"""Formulas in which a size divides, where the size is 0: one rule, for the reference, programs, kernels and splits."""

import numpy as np
import pytest

import diagkit as dk

q, x, d = dk.axes("q x d")
X, K = dk.array("X", q, x), dk.array("K", x, d)
n, m = x.size, dk.mean(X, over=x)

REFUSED = {
    "divided inside": dk.total(X / n, over=x),
    "divided outside": dk.total(X, over=x) / n,
    "root inside": dk.total(dk.exp(X * n**-0.5), over=x),
    "shifted": dk.total(dk.exp(X / n - dk.amax(X / n, over=x)), over=x),
    "product": dk.product(X / n, over=x),
    "largest": dk.amax(X / n, over=x),
    "logarithm": dk.logsumexp(X, over=x) - dk.log(n),
    "scores": dk.einsum("q x, x d -> q d", dk.softmax(X * n**-0.5, over=x), K),
    "a mean, divided again": dk.total(X * dk.exp(-m / n), over=x),
    "a quotient of what has no value": dk.quotient(dk.total(X, over=x) / n, n),
}
"""Refused where x is 0, and run from 1 on."""

RUN = {
    "mean": m,
    "variance": dk.variance(X, over=x),
    "deviations": dk.total((X - m) ** 2, over=x),
    "one more": dk.total(X, over=x) / (n + 1),
    "shifted by a mean": dk.total(dk.exp(X - m), over=x),
    "weighed, shifted by a mean": dk.einsum("q x, x d -> q d", dk.exp(X - m), K),
    "largest above a mean": dk.amax(X - m, over=x),
    "quotient inside": dk.total(dk.exp(dk.quotient(X - dk.amax(X, over=x), n)), over=x),
    "quotient by another size": dk.total(dk.exp(dk.quotient(X - dk.amax(X, over=x), d.size)), over=x)
    * dk.total(dk.total(K, over=x), over=d),
    "normalised": dk.einsum("q x, x d -> q d", dk.rms_norm(X, over=x), K),
}
"""Run at every size."""


def ways(diagram, arrays, sizes):
    """The ways to run a diagram without compiling, by name; each makes its numbers when it is called."""
    stream = diagram.fuse().stream(x="s")
    split = stream.split(x=2)
    tiles = {tile: 2 for tile in split.lower().missing if tile not in split.axes}
    known = {axis: size for axis, size in sizes.items() if axis in split.axes}
    return {
        "reference": lambda: diagram.reference(**arrays),
        "call": lambda: diagram(**arrays),
        "run": lambda: diagram.lower(**sizes).run(**arrays),
        "run, sizes open": lambda: diagram.lower().run(**arrays),
        "stream": lambda: stream.lower(**sizes, s=2).run(**arrays),
        "stream, sizes open": lambda: stream.lower(s=2).run(**arrays),
        "split": lambda: split.lower(**known, **tiles).run(**arrays),
        "split, sizes open": lambda: split.lower(**tiles).run(**arrays),
    }


def compiled(diagram, arrays, sizes):
    """The ways to run a diagram as a kernel."""
    stream = diagram.fuse().stream(x="s")
    return {
        "numba": lambda: stream.kernel("numba", s=2)(**arrays),
        "triton": lambda: stream.kernel("triton", **sizes, s=16)(**arrays),
    }


def at(output, **sizes):
    """A diagram, numbers for its inputs and its sizes."""
    diagram = dk.Diagram(output, name="formula")
    sizes = {axis: size for axis, size in sizes.items() if axis in diagram.axes}
    shapes = {array.name: [sizes[axis.name] for axis in array.axes] for array in diagram.inputs}
    random = np.random.default_rng(0)
    return diagram, {name: random.normal(size=shape) for name, shape in shapes.items()}, sizes


def equal(found, wanted):
    """Every way gives the numbers wanted."""
    for way, run in found.items():
        np.testing.assert_allclose(run(), wanted, rtol=1e-5, atol=1e-5, err_msg=way)


@pytest.mark.parametrize("name", REFUSED)
def test_every_way_refuses_a_size_of_0_that_divides_in_the_same_words(name):
    given = at(REFUSED[name], q=3, x=0, d=2)
    for way, run in (ways(*given) | compiled(*given)).items():
        with pytest.raises(dk.InputError, match="at x = 0") as refused:
            run()
        assert refused.value.axis == "x", way
        assert "give x at least 1 element" in str(refused.value), way


@pytest.mark.parametrize("name", REFUSED)
def test_the_remedy_of_a_refusal_runs(name):
    found = ways(*at(REFUSED[name], q=3, x=1, d=2))
    equal(found, found["reference"]())


@pytest.mark.parametrize("sizes", [{"x": 0, "d": 2}, {"x": 3, "d": 0}, {"x": 0, "d": 0}], ids=str)
@pytest.mark.parametrize("name", RUN)
def test_every_way_gives_the_numbers_of_the_reference_at_size_0(name, sizes):
    found = ways(*at(RUN[name], q=3, **sizes))
    wanted = found["reference"]()
    assert not np.isnan(wanted).any()
    equal(found, wanted)


def test_kernels_give_the_numbers_of_the_reference_at_size_0():
    given = at(RUN["quotient by another size"], q=16, x=16, d=0)  # was NaN: the step divided by d
    equal(compiled(*given), given[0].reference(**given[1]))


def test_the_fewest_elements_that_a_formula_takes_are_named():
    unbiased = dk.Diagram(dk.total((X - m) ** 2, over=x) / (n - 1))
    with pytest.raises(dk.InputError, match="at x = 1; give x at least 2 elements$"):
        unbiased(X=np.ones((2, 1)))
    assert unbiased(X=np.ones((2, 2))).shape == (2,)


def test_a_comparison_with_what_has_no_value_is_refused_too():
    least = 1 / n
    chosen = dk.Diagram(dk.where(dk.absolute(X) > least, X, 0))
    with pytest.raises(dk.InputError, match="at x = 0"):
        chosen(X=np.ones((2, 0)))
