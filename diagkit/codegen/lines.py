"""Statements as a reader would write them: without needless brackets, and broken over lines where long."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

_INDENT = "    "
_OPEN, _CLOSE = "([{", ")]}"
_OPERATORS = (r" (?=[&|] )", r" (?=[+-] )", r" (?=[*/] )")


def tidy(statement: str) -> str:
    """A statement with the brackets that its meaning needs.

    >>> tidy("p = exp(((2.0 * s) - (2.0 * m))) & (a < b)")
    'p = exp(2.0 * s - 2.0 * m) & (a < b)'
    """
    return ast.unparse(ast.parse(statement)).replace("'", '"')


def broken(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` characters where brackets allow it, the inner ones indented.

    >>> for line in broken("total = weigh(first_number * factor, second)", 40):
    ...     print(line)
    total = weigh(
        first_number * factor, second
    )
    >>> for line in broken("total = first_number * factor + second_number", 40):
    ...     print(line)
    total = (
        first_number * factor
        + second_number
    )
    """
    if len(text) <= width:
        return [text]
    assigned = re.match(r"[\w.]+ = ", text)
    terms = _cut(text[assigned.end() :], _OPERATORS) if assigned else []
    if assigned and len(terms) > 1:
        return [f"{assigned[0]}(", *_indented(terms, width), ")"]
    bracket = _widest(text)
    if bracket is None:
        return [text]
    start, end = bracket
    parts = _cut(text[start + 1 : end], (r"(?<=,) ",))
    inner = _filled(parts, width - len(_INDENT)) if len(parts) > 1 else _cut(parts[0], _OPERATORS)
    return [text[: start + 1], *_indented(inner, width), *broken(text[end:], width)]


def _indented(parts: list[str], width: int) -> list[str]:
    return [_INDENT + line for part in parts for line in broken(part, width - len(_INDENT))]


def _filled(parts: list[str], width: int) -> list[str]:
    """As many parts on each line as fit."""
    lines = parts[:1]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines


def _widest(text: str) -> tuple[int, int] | None:
    """The outermost pair of brackets with the most between them."""
    pairs, stack = [], []
    for place, letter in enumerate(text):
        if letter in _OPEN:
            stack.append(place)
        elif letter in _CLOSE and stack:
            start = stack.pop()
            if not stack and place - start > 1:
                pairs.append((start, place))
    return max(pairs, key=lambda pair: pair[1] - pair[0], default=None)


def _cut(text: str, patterns: tuple[str, ...]) -> list[str]:
    """`text` cut at the first of the patterns that it has outside of brackets."""
    for pattern in patterns:
        cuts = [m.start() for m in re.finditer(pattern, text) if not _depth(text[: m.start()])]
        if cuts:
            return [text[a + 1 : b] for a, b in pairwise([-1, *cuts, len(text)])]
    return [text]


def _depth(text: str) -> int:
    return sum(letter in _OPEN for letter in text) - sum(letter in _CLOSE for letter in text)
