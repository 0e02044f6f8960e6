"""How costs show themselves: one small table as text, HTML and LaTeX; the same value, the same bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter

Rows = Sequence[Sequence[Any]]
SHORT = 100  # the largest denominator of a fraction that is read as it stands
CELL = "text-align:left;padding:1px 10px 1px 0"


class Shown:
    """A cost that displays as a table; subclasses give its rows, the first of which is the head.

    >>> import diagkit as dk
    >>> print(dk.Diagram(dk.exp(dk.array("Q", dk.axis("q")), name="E")).transfers())
    array  kind    levels  elements
    Q      input   0 → 1   q
    E      output  1 → 0   q
    total                  2*q
    """

    def _table(self) -> Table:
        raise NotImplementedError

    def __str__(self) -> str:
        return self._table().text()

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self._table().latex()}$"


class Table:
    """Rows of text and formulas under a head."""

    def __init__(self, rows: Rows) -> None:
        self.rows = [tuple(row) for row in rows]

    def text(self) -> str:
        """The rows in columns."""
        cells = [[one if isinstance(one, str) else formula(one) for one in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)

    def html(self) -> str:
        """The rows as an HTML table; nothing in it but text, so it opens anywhere."""
        head, *body = ["".join(_html_cell(one, tag) for one in row) for tag, row in self._tagged()]
        rows = "".join(f"<tr>{row}</tr>" for row in (head, *body))
        return f'<table style="border-collapse:collapse">{rows}</table>'

    def _tagged(self) -> list[tuple[str, tuple[Any, ...]]]:
        return [("td" if number else "th", row) for number, row in enumerate(self.rows)]

    def latex(self) -> str:
        """The rows as a LaTeX array."""
        lines = [" & ".join(map(_latex_cell, row)) for row in self.rows]
        body = r" \\ ".join((lines[0] + r" \\ \hline", *lines[1:])).replace(r"\hline \\ ", r"\hline ")
        return rf"\begin{{array}}{{{'l' * len(self.rows[0])}}} {body} \end{{array}}"


def table(rows: Rows) -> Table:
    """A table of rows, the first of which is the head."""
    return Table(rows)


def formula(expr: Any) -> str:
    """A formula as text on one line.

    >>> from diagkit.term import size
    >>> formula(size("q") * size("d")), formula(1000 * sympy.sqrt(10001)), formula(sympy.Rational(1, 2))
    ('d*q', '100005.0', '1/2')
    """
    return decimal(expr) or str(sympy.sstr(expr))


def decimal(expr: Any) -> str:
    """A number that nobody reads at a glance (a root, a long fraction) as a decimal; else the empty text."""
    number = sympy.sympify(expr)
    if not (number.is_number and number.is_finite) or (number.is_Rational and number.q <= SHORT):
        return ""
    return f"{float(expr):.1f}" if abs(expr) >= 1000 else f"{float(expr):.6g}"


def _html_cell(cell: Any, tag: str) -> str:
    return f'<{tag} style="{CELL}">{escape(cell if isinstance(cell, str) else formula(cell))}</{tag}>'


_TEX = {"\\": r"\backslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "&": r"\&", "#": r"\#", "$": r"\$", "%": r"\%"}
_TEX |= {"^": r"\hat{}", "~": r"\sim{}", "→": r"$\to$"}


def _latex_cell(cell: Any) -> str:
    return _latex_text(cell) if isinstance(cell, str) else latex(cell)


def _latex_text(words: str) -> str:
    return rf"\text{{{''.join(_TEX.get(letter, letter) for letter in words)}}}"


class _Latex(LatexPrinter):  # type: ignore[misc]
    """LaTeX in which a name that is no simple symbol is set as the text it is."""

    def _print_Symbol(self, symbol: Any, style: str = "plain") -> str:
        simple = re.fullmatch(r"[A-Za-z]+(_[A-Za-z0-9]+)?", symbol.name)
        return str(super()._print_Symbol(symbol, style)) if simple else _latex_text(symbol.name)


def latex(expr: Any) -> str:
    """A formula as LaTeX; any text may be the name of an axis.

    >>> from diagkit.term import size
    >>> latex(size("key & value") / size("g_q"))
    '\\\\frac{\\\\text{key \\\\& value}}{g_{q}}'
    """
    return decimal(expr) or str(_Latex().doprint(expr))
