"""The quantization law: what fewer bits save, split into operands that move and operands that stay.

Transfers in bytes grow with the bytes of what moves, and once more with the bytes of what is resident,
since these decide how large a tile fits. A term that falls like M ** -beta so gains with the exponent
1 + beta, but only where everything resident shrinks: accumulators rarely do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from diagkit.cost.kernel import check_names, kernels, product
from diagkit.cost.optimum import Optimum, least
from diagkit.cost.show import Shown, Table, formula
from diagkit.cost.transfers import transfers
from diagkit.term import FORMATS, DiagkitError, InputError, Term, at_level, check_format, exact, size


def _width(name: str) -> Any:
    return size(f"b_{name}")


def _accumulator(name: str) -> Any:
    return size(f"b_{name}_acc")


@dataclass(frozen=True, repr=False)
class BitsLaw(Shown):
    """The least transfers in bytes with the bytes per element of every array left open.

    * `optimum`: H* in bytes, in b_X for an array X that moves and b_X_acc for X as it is held on chip
      while it is made; `moving` and `held`: those arrays.
    * `accumulator`: the format that the diagram gathers in.

    Source: arXiv 2412.03317, section 4.3, with moved and resident operands told apart.

    >>> import diagkit as dk
    >>> a, b, c = dk.axes("a b c")
    >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
    >>> law = dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b").bits()
    >>> law.transfers
    a*b_C*c + 2*a*b*sqrt(b_A)*sqrt(b_B)*sqrt(b_C_acc)*c/sqrt(M)
    >>> law.ruling
    2*a*b*sqrt(b_A)*sqrt(b_B)*sqrt(b_C_acc)*c/sqrt(M)
    >>> law.exponents()
    {'all': 3/2, 'operands': 1, 'accumulators': 1/2}
    >>> law.gain("int8"), law.gain("fp8e4m3")
    (2, 2)
    """

    optimum: Optimum
    moving: tuple[str, ...]
    held: tuple[str, ...]
    accumulator: str = "fp32"

    @property
    def transfers(self) -> Any:
        """H* in bytes, a formula in the bytes per element."""
        return self.optimum.transfers

    @property
    def ruling(self) -> Any:
        """The term that falls slowest with memory: the one that bits are spent on."""
        falling = [term for term, beta in self.optimum.terms if beta == self.optimum.beta != 0]
        if not falling:
            raise DiagkitError("no transfers fall with memory here", remedy="group an axis that an input lacks")
        return sympy.Add(*falling)

    def exponents(self) -> dict[str, Any]:
        """The power of their bytes with which the ruling term falls: of "all", of the "operands" that move,
        of the "accumulators" alone. For all together it is 1 + beta; the other two are local slopes.
        """
        operands = [_width(name) for name in self.moving]
        accumulators = [_accumulator(name) for name in self.held]
        kinds = {"all": [*operands, *accumulators], "operands": operands, "accumulators": accumulators}
        return {kind: self._slope(widths) for kind, widths in kinds.items()}

    def _slope(self, widths: list[Any]) -> Any:
        """d log(term) / d log(bytes), all of `widths` growing together."""
        slope = sympy.Add(*(width * sympy.diff(self.ruling, width) for width in widths)) / self.ruling
        return sympy.factor(sympy.simplify(slope))

    def gain(
        self, dtype: str | None = None, *, accumulators: Any = None, base: Any = "fp16",
        base_accumulators: Any = "fp32", **by_array: Any,
    ) -> Any:  # fmt: skip
        """How many times fewer bytes the ruling term moves with other formats than with `base` everywhere.

        `dtype` is for all arrays, `by_array` for some; a number stands for the bytes per element, so
        ``K=1 + 1/32`` has a scale of one byte per 32 elements. Accumulators change from
        `base_accumulators` to `accumulators`, or to what the diagram gathers in. InputError for an array that
        does not move.

        >>> import diagkit as dk
        >>> a, b, c = dk.axes("a b c")
        >>> C = dk.einsum("a b, b c -> a c", dk.array("A", a, b), dk.array("B", b, c), name="C")
        >>> law = bits(dk.Diagram(C).group(a="g_a", c="g_c").stream(b="s_b"))
        >>> law.gain("fp8e4m3"), law.gain("fp8e4m3", accumulators="fp16")
        (2, 2*sqrt(2))
        """
        for name in by_array:
            if name not in self.moving:
                raise InputError(f"{name!r} does not move here", remedy=f"what moves: {', '.join(self.moving)}")
        changed = {name: by_array.get(name, dtype or base) for name in self.moving}
        before = self._at(dict.fromkeys(self.moving, base), base_accumulators)
        return sympy.nsimplify(sympy.simplify(before / self._at(changed, accumulators or self.accumulator)))

    def _at(self, formats: Mapping[str, Any], accumulators: Any) -> Any:
        widths = {_width(name): _bytes(one) for name, one in formats.items()}
        return self.ruling.subs({**widths, **{_accumulator(name): _bytes(accumulators) for name in self.held}})

    def _table(self) -> Table:
        rows = [(f"beta = {formula(beta)}", formula(term)) for term, beta in self.optimum.terms]
        rows += [(f"power of {kind}", formula(power)) for kind, power in self.exponents().items()]
        return Table([("quantization law", "bytes"), *rows])


def _bytes(one: Any) -> Any:
    """The bytes of one element in a format, or the number itself."""
    if isinstance(one, str):
        return sympy.Rational(FORMATS[check_format(one)], 8)
    return sympy.nsimplify(exact(one), rational=True)


def bits(term: Term, memory: Any = "M", **sizes: Any) -> BitsLaw:
    """The quantization law of a tiled diagram within `memory` bytes: a number, a formula or a name.

    Everything that moves has its own bytes per element, and what is made is held in an accumulator
    format of its own. DiagkitError where the sums have no optimum in closed form.

    >>> import diagkit as dk
    >>> q, x, d = dk.axes("q x d")
    >>> Q, K, V = dk.array("Q", q, d), dk.array("K", x, d), dk.array("V", x, d)
    >>> O = dk.attention(Q, K, V, over=x, features=d, name="O")
    >>> bits(dk.Diagram(O).fuse().group(q="g_q").stream(x="s_x")).ruling
    d**2*q*x*(b_K + b_V)*(b_O_acc + b_Q)/M
    """
    term = at_level(term, 1)
    check_names(term, sizes)
    moved = transfers(term)
    total = sympy.Add(*(amount * _width(key.array) for key, amount in moved.items()))
    held = list(_held(term))
    notes = ["memory holds loads, chunks and accumulators only"]
    found = least(term, total, held, memory, sizes, notes, "bytes")
    made = dict.fromkeys(wire for region in term.regions for wire in region.stores)
    return BitsLaw(found, tuple(dict.fromkeys(key.array for key in moved)), tuple(made), _gathered_in(term))


def _gathered_in(term: Term) -> str:
    """The widest format of what streams carry over the axes of an output: sums that fill a tile."""
    carried = [state for form in term.forms for state in form.state]
    most = max((len(state.axes) for state in carried), default=0)
    formats = [state.dtype for state in carried if len(state.axes) == most]
    return max(formats, key=lambda dtype: FORMATS[dtype]) if formats else "fp32"


def _held(term: Term) -> Iterator[Any]:
    """The bytes of the loads and the accumulators of each kernel, at one full tile."""
    for kernel in kernels(term):
        loads = [product((kernel.held(wire), _width(wire))) for wire in kernel.region.loads]
        made = [product((kernel.held(wire), _accumulator(wire))) for wire in kernel.region.stores]
        yield sympy.Add(*loads, *made)
