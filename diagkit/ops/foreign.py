"""What a value of a diagram answers where it is taken for an array, a number or a truth.

It has no numbers until the diagram runs, so each of these is refused with what stands in its place. The
refusal of a name is an AttributeError besides: whoever only asks whether there is such a name gets its no.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from diagkit.term import DiagkitError, MissingNameError, TermError, nearest

_BY_NAME = "axes go by name and have no order: write them in dk.einsum, or rename one with dk.rename"
_SIZES = "sizes come with the arrays; its axes are .axes, and the size of an axis q is q.size"
_CAST = 'dk.cast(value, "fp16") rounds to a format; an array has the one it is declared with, dtype="fp16"'
_REDUCED = {"sum": "total", "prod": "product", "max": "amax", "min": "amin"}
_INSTEAD = dict.fromkeys(("T", "mT", "transpose", "reshape", "permute", "swapaxes", "flatten", "view"), _BY_NAME)
_INSTEAD |= dict.fromkeys(("shape", "size", "ndim", "dim"), _SIZES)
_INSTEAD |= dict.fromkeys(("dtype", "astype", "to", "half", "float"), _CAST)
_INSTEAD |= {
    name: f"use dk.{ours}(value, over=...)" for name, ours in {**_REDUCED, "mean": "mean", "var": "variance"}.items()
}
_INSTEAD |= {name: f"use dk.{name}(value, over=...)" for name in ("softmax", "logsumexp", "argmax", "argmin")}
_INSTEAD |= {name: f"use dk.{name}(value)" for name in ("exp", "log", "sqrt", "tanh", "sin", "cos", "sign", "relu")}
_INSTEAD |= dict.fromkeys(("dot", "matmul"), 'use dk.einsum("a b, b c -> a c", A, B)')
_INSTEAD |= {"linear": 'use dk.einsum("b i, i o -> b o", X, W) + b', "machines": "use dk.machine.names()"}
_HAS = "it has: axes, name, named, source, inputs"


class Same:
    """What ``==`` and ``!=`` say of two nodes: whether they are one, for lists and dicts. It is no mask.

    >>> from diagkit.ops.build import array, axis
    >>> X, Y = array("X", axis("x")), array("Y", axis("x"))
    >>> [X, Y].index(Y), bool(X != Y)
    (1, True)
    >>> X == Y
    False: two nodes; dk.equal(a, b) compares their numbers
    """

    def __init__(self, holds: bool, two: bool) -> None:
        self.holds, self.two = holds, two

    def __bool__(self) -> bool:
        return self.holds

    def __eq__(self, other: object) -> bool:
        return self.holds == bool(other)

    def __hash__(self) -> int:
        return hash(self.holds)

    def __repr__(self) -> str:
        return f"{self.holds}: {'two nodes' if self.two else 'one node'}; dk.equal(a, b) compares their numbers"

    def refuse(self, *_others: Any) -> NoReturn:
        """Refuse to be taken for a mask."""
        raise TermError(
            "== and != ask whether two nodes are one, not where their numbers are equal",
            remedy="use dk.equal(a, b), or ~dk.equal(a, b)",
        )

    __and__ = __or__ = __rand__ = __ror__ = __invert__ = __mul__ = refuse


class Foreign:
    """The ways of arrays, numbers and truths that a value of a diagram does not have.

    >>> import diagkit as dk
    >>> dk.array("X", dk.axis("x")).shape
    Traceback (most recent call last):
    ...
    diagkit.term.errors.MissingNameError: a value of a diagram has no 'shape'; sizes come with the arrays; its axes \
are .axes, and the size of an axis q is q.size
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return Same(self is other, self is not other)

    def __ne__(self, other: object) -> Any:
        return Same(self is not other, self is not other)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise MissingNameError(f"a value of a diagram has no {name!r}", remedy=_INSTEAD.get(name, _HAS))

    def __getitem__(self, place: Any) -> NoReturn:
        raise TermError(
            f"a value of a diagram is not taken apart: [{place!r}]",
            remedy="dk.view reads other positions; a mask hides some: dk.select(dk.index(q) < 3, value, 0)",
        )

    def _without_numbers(self, *_args: Any, **_named: Any) -> NoReturn:
        raise TermError(
            "a value of a diagram has no numbers until the diagram runs",
            remedy="make the diagram and hand arrays in by name: dk.Diagram(O)(Q=..., K=...)",
        )

    __array__ = __float__ = __int__ = __len__ = __round__ = __index__ = _without_numbers

    def __bool__(self) -> bool:
        raise TermError("a diagram's value has no truth yet", remedy="use dk.select, & and | instead of if, and, or")

    def __matmul__(self, other: Any) -> NoReturn:
        raise TermError("@ does not say which axis is summed", remedy='use dk.einsum("a b, b c -> a c", A, B)')

    __rmatmul__ = __matmul__

    def __floordiv__(self, other: Any) -> NoReturn:
        raise TermError("// and % are not written for values", remedy="use dk.floor(a / b), a - b * dk.floor(a / b)")

    __rfloordiv__ = __mod__ = __rmod__ = __floordiv__

    def _sympy_(self) -> Any:
        raise TermError("a diagram's value is no sympy scalar", remedy="use dk.exp, dk.select, ... in its place")


def missing(name: str, known: Iterable[str] = ()) -> MissingNameError:
    """The error of a name that the package does not have, with what numpy and torch call so, or what is spelt so.

    >>> print(missing("sum"))
    diagkit has no 'sum'; use dk.total(value, over=...)
    >>> print(missing("soft_max", ["softmax", "amax"]))
    diagkit has no 'soft_max'; did you mean 'softmax'?
    """
    foreign = {"abs": "use dk.absolute(value)", "std": "use dk.sqrt(dk.variance(value, over=...))"} | _INSTEAD
    remedy = foreign.get(name) or nearest(name, known, "dir(diagkit) lists what it has")
    return MissingNameError(f"diagkit has no {name!r}", remedy=remedy)


def refuse_ufunc(name: str) -> DiagkitError:
    """The error of a numpy function that is called on a value, naming what to use.

    >>> print(refuse_ufunc("exp"))
    np.exp makes numbers and a value of a diagram has none yet; use dk.exp(value)
    """
    remedy = _INSTEAD.get({"add": "sum"}.get(name, name), "use the function of that kind in dk, such as dk.exp(value)")
    return TermError(f"np.{name} makes numbers and a value of a diagram has none yet", remedy=remedy)


_PICTURE = "it shows itself where it is displayed; .save(path) writes the picture, .svg() returns it"
_NO_GRADIENT = "derivatives are not taken; write the backward pass as a diagram of its own"
_STEPS = dict.fromkeys(("show", "plot", "render", "display"), _PICTURE)
_STEPS |= dict.fromkeys(("backward", "grad", "vjp"), _NO_GRADIENT)
_STEPS |= dict.fromkeys(("run", "forward", "eval", "evaluate"), "call it with arrays by name: diagram(Q=..., K=...)")
_STEPS |= dict.fromkeys(("cost", "costs"), "its costs are .transfers(), .memory() and .work()")
_STEPS |= dict.fromkeys(("flop", "flops"), "use .work().flop()")
_STEPS |= dict.fromkeys(("bytes", "traffic"), "use .transfers().bytes()")
_STEPS |= dict.fromkeys(
    ("tile", "block"), 'use .group(q="g_q") for independent tiles, .stream(x="s_x") for chunks in turn'
)
_STEPS |= dict.fromkeys(("compile", "build", "jit"), 'use .kernel("numba", ...) or .kernel("triton", ...)')
_STEPS |= dict.fromkeys(("time", "predict"), 'use .on("H100-SXM", ...)')


def missing_step(diagram: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """The error of a name that a diagram does not have, with what is so called elsewhere, or spelt so here.

    >>> print(missing_step("attention", "flops"))
    the diagram 'attention' has no 'flops'; use .work().flop()
    >>> print(missing_step("attention", "transfer", ["transfers", "memory"]))
    the diagram 'attention' has no 'transfer'; did you mean 'transfers'?
    """
    if name.startswith("_"):
        return AttributeError(name)
    remedy = _STEPS.get(name) or nearest(name, known, "dir(dk.Diagram) lists what it has")
    return MissingNameError(f"the diagram {diagram!r} has no {name!r}", remedy=remedy)
