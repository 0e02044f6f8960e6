"""A derivation as data: shown as text and LaTeX, drawn as a strip, replayed on another diagram, compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sympy

from diagkit.derive.algebra import ONE
from diagkit.derive.formats import accumulate, formats
from diagkit.derive.fuse import fuse
from diagkit.derive.group import group, ungroup
from diagkit.derive.history import POSITIONAL, AnyTerm
from diagkit.derive.quantize import cast, quantize
from diagkit.derive.rewrite import hoist, open_blocks
from diagkit.derive.split import split
from diagkit.derive.stream import stream, unstream
from diagkit.derive.transforms import permute, rotate, scale, smooth
from diagkit.term import Label, LabelError, Step, Term, finite, plain, quotient

RULES: dict[str, Callable[..., Any]] = {
    "accumulate": accumulate,
    "cast": cast,
    "formats": formats,
    "fuse": fuse,
    "group": group,
    "hoist": hoist,
    "open": open_blocks,
    "permute": permute,
    "quantize": quantize,
    "rotate": rotate,
    "scale": scale,
    "smooth": smooth,
    "split": split,
    "stream": stream,
    "ungroup": ungroup,
    "unstream": unstream,
}
"""Every rule by name: what a remembered step calls when it is replayed."""


@dataclass(frozen=True)
class Derivation:
    """The steps that led to a diagram, each with its rule, its reason and the equations that it used.

    `stages` and `captions` are what a strip of pictures needs: a diagram before each step and the last,
    and between each two the rule as it was called and the reason.

    >>> import diagkit as dk
    >>> S = dk.array("S", dk.axis("q"), dk.axis("x"))
    >>> steps = dk.Diagram(dk.logsumexp(S, over="x", name="L")).fuse().stream(x="s_x").derivation
    >>> steps
    diagram
    1. stream(x='s_x')  [relabel]  carried from chunk to chunk of x: L.max, L.sum; a factor that no element enters
    carries each partial sum past a new chunk
          m_new = Max(m, m_chunk)
          exp(S - m_new) / exp(S - m) = exp(m - m_new)
          z_new = z*exp(m - m_new) + z_chunk
    >>> len(steps.stages), steps.captions[0][0], steps.latex().count("=")
    (2, "stream(x='s_x')", 3)
    """

    term: Term = field(repr=False)
    steps: tuple[Step, ...]

    @property
    def stages(self) -> tuple[Term, ...]:
        """The diagrams along the way, the first and the last included."""
        return (*(step.before for step in self.steps), self.term)

    @property
    def captions(self) -> tuple[tuple[str, str], ...]:
        """For each step the call and the reason."""
        return tuple((written(step.call), step.reason) for step in self.steps)

    def __str__(self) -> str:
        lines = [self.stages[0].name]
        for number, step in enumerate(self.steps, 1):
            lines.append(f"{number}. {written(step.call)}  [{step.kind}]  {step.reason}")
            lines += [f"      {_said(left)} = {_said(right)}" for left, right in step.identity]
        return "\n".join(lines)

    __repr__ = __str__

    def latex(self) -> str:
        """The equations of all steps as one aligned block; empty where no step used any."""
        pairs = [pair for step in self.steps for pair in step.identity]
        lines = [rf"{_set(left)} &= {_set(right)}" for left, right in pairs]
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}" if lines else ""

    def _repr_latex_(self) -> str | None:
        return f"$\\displaystyle {self.latex()}$" if self.latex() else None

    def _repr_markdown_(self) -> str:
        """The steps with their reasons, then the equations: notebooks prefer this to the bare equations."""
        steps = [f"{number}. `{call}`: {_literal(reason)}" for number, (call, reason) in enumerate(self.captions, 1)]
        return "\n".join(steps) + (f"\n\n$$\n{self.latex()}\n$$" if self.latex() else "")


def derivation(term: Term) -> Derivation:
    """How `term` came about: its steps, as data.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> plain = dk.Diagram(dk.total(dk.exp(dk.array("X", q, x)), over=x, name="T"))
    >>> rows = plain.fuse().group(q="g_q")
    >>> [step.rule for step in derivation(rows).steps]
    ['fuse', 'group']
    """
    return Derivation(term, term.steps)


def _literal(words: str) -> str:
    """Words as markdown that means these words."""
    return re.sub(r"([\\`*_{}\[\]<>$#|])", r"\\\1", words)


def replay(done: Derivation, term: AnyTerm) -> AnyTerm:
    """Take the same steps on another diagram. Raises what the steps raise where one is not lawful there,
    and LabelError for a step of a rule that this version does not know.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> plain = dk.Diagram(dk.total(dk.exp(dk.array("X", q, x)), over=x, name="T"))
    >>> rows = plain.fuse().group(q="g_q")
    >>> replay(derivation(rows), plain) == rows
    True
    """
    if not isinstance(done, Derivation):
        raise LabelError(f"{done!r} is no derivation", remedy="give another diagram's .derivation")
    for step in done.steps:
        rule, arguments = step.call
        if rule not in RULES:
            raise LabelError(f"no rule {rule!r} to replay", remedy=f"the rules are: {', '.join(RULES)}")
        named = dict(arguments)
        term = RULES[rule](term, *named.pop(POSITIONAL, ()), **named)
    return term


def written(call: tuple[str, tuple[tuple[str, Any], ...]]) -> str:
    """A remembered call as a user writes it.

    >>> written(("group", (("q", "g_q"), ("x", 64))))
    "group(q='g_q', x=64)"
    """
    rule, arguments = call
    named = dict(arguments)
    parts = [repr(one) for one in named.pop(POSITIONAL, ())]
    return f"{rule}({', '.join([*parts, *(f'{name}={_plainly(one)}' for name, one in named.items())])})"


def _plainly(argument: Any) -> str:
    return str(argument) if isinstance(argument, sympy.Basic) else repr(argument)


def _said(expr: Any) -> str:
    """An equation's side as text; a ratio that an equation is about stays a ratio."""
    return str(expr.replace(finite, lambda guarded: guarded) if expr.has(quotient) else plain(expr))


def _set(expr: Any) -> str:
    symbols = {symbol: _symbol(symbol.name) for symbol in expr.free_symbols}
    return str(sympy.latex(expr, symbol_names=symbols))


_ESCAPES = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}


def _symbol(name: str) -> str:
    """A name in LaTeX: a letter in italics, a word upright, what follows an underscore below."""
    base, *below = name.split("_")
    set_base = base if len(base) == 1 and base.isalpha() else _upright(base)
    return set_base + (f"_{{{','.join(map(_upright, below))}}}" if below else "")


def _upright(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9]+", text):
        return rf"\mathrm{{{text}}}"
    escaped = "".join(_ESCAPES.get(one, f"\\{one}" if one in "#$%&_{}" else one) for one in text)
    return rf"\text{{{escaped}}}"


@dataclass(frozen=True)
class Difference:
    """What became of one diagram on the way to another.

    `moved`: (wire, level before, level after) of wires in both; `gone` and `came`: labels; `columns_gone`
    and `columns_came`: names of boxes.
    """

    moved: tuple[tuple[str, int, int], ...]
    gone: tuple[Label, ...]
    came: tuple[Label, ...]
    columns_gone: tuple[str, ...]
    columns_came: tuple[str, ...]

    def __bool__(self) -> bool:
        return any((self.moved, self.gone, self.came, self.columns_gone, self.columns_came))

    def __str__(self) -> str:
        lines = [f"{wire}: level {before} -> {after}" for wire, before, after in self.moved]
        lines += [f"- {_label(label)}" for label in self.gone] + [f"+ {_label(label)}" for label in self.came]
        lines += [f"- box {name}" for name in self.columns_gone] + [f"+ box {name}" for name in self.columns_came]
        return "\n".join(lines) or "no difference"

    __repr__ = __str__


def _label(label: Label) -> str:
    multiple = "" if label.multiple == ONE else f", a multiple of {label.multiple}"
    level = f" at level {label.level}" if label.level > 1 else ""
    return f"{label.kind} {label.axis} in tiles of {label.tile}{multiple}{level}"


def diff(before: Term, after: Term) -> Difference:
    """Which wires changed level, which labels and which columns came and went between two diagrams.

    >>> import diagkit as dk
    >>> q, x = dk.axes("q x")
    >>> plain = dk.Diagram(dk.total(dk.exp(dk.array("X", q, x)), over=x, name="T"))
    >>> rows = plain.fuse().group(q="g_q")
    >>> print(diff(plain, rows))
    f(X): level 0 -> 1
    + group q in tiles of g_q
    """
    old, new = ({box.name: box for box in term.boxes} for term in (before, after))
    both = [name for name in old if name in new]
    return Difference(
        moved=tuple((w, before.level(w), after.level(w)) for w in both if before.level(w) != after.level(w)),
        gone=tuple(label for label in before.labels if label not in after.labels),
        came=tuple(label for label in after.labels if label not in before.labels),
        columns_gone=tuple(name for name in old if new.get(name) != old[name]),
        columns_came=tuple(name for name in new if old.get(name) != new[name]),
    )
