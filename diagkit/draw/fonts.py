"""How wide text is, from a table: nothing is measured, so every machine draws the same picture.

The widths are those of a Times-like serif and a Helvetica-like sans, in thousandths of the font size,
made a little wider, because a reader's machine may put a broader font in their place.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

SERIF = "serif"
SANS = "sans"
CAUTION = {SERIF: 1.28, SANS: 1.17}
"""How much broader than the table a fallback font may be: DejaVu, where there is nothing better."""

_ITALIC = {
    "a": 500, "b": 500, "c": 444, "d": 500, "e": 444, "f": 278, "g": 500, "h": 500, "i": 278, "j": 278, "k": 444,
    "l": 278, "m": 722, "n": 500, "o": 500, "p": 500, "q": 500, "r": 389, "s": 389, "t": 278, "u": 500, "v": 444,
    "w": 667, "x": 444, "y": 444, "z": 389, "A": 611, "B": 611, "C": 667, "D": 722, "E": 611, "F": 611, "G": 722,
    "H": 722, "I": 333, "J": 444, "K": 667, "L": 556, "M": 833, "N": 667, "O": 722, "P": 611, "Q": 722, "R": 611,
    "S": 500, "T": 556, "U": 722, "V": 611, "W": 833, "X": 611, "Y": 556, "Z": 556,
}  # fmt: skip
_UPRIGHT = {
    "a": 556, "b": 556, "c": 500, "d": 556, "e": 556, "f": 278, "g": 556, "h": 556, "i": 222, "j": 222, "k": 500,
    "l": 222, "m": 833, "n": 556, "o": 556, "p": 556, "q": 556, "r": 333, "s": 500, "t": 278, "u": 556, "v": 500,
    "w": 722, "x": 500, "y": 500, "z": 500, "A": 667, "B": 667, "C": 722, "D": 722, "E": 667, "F": 611, "G": 778,
    "H": 722, "I": 278, "J": 500, "K": 667, "L": 556, "M": 833, "N": 722, "O": 778, "P": 667, "Q": 778, "R": 722,
    "S": 667, "T": 611, "U": 722, "V": 667, "W": 944, "X": 667, "Y": 667, "Z": 611,
}  # fmt: skip
_MARKS = {
    " ": 250, "\u2009": 170, "\u200a": 90, ".": 260, ",": 260, ":": 290, ";": 290, "(": 333, ")": 333, "[": 333,
    "]": 333, "/": 290, "|": 260, "'": 230, "′": 260, "-": 340, "−": 640, "+": 640, "=": 640, "×": 640, "·": 280,
    "→": 1000, "≡": 660, "ℓ": 480, "∞": 800, "≤": 640, "<": 640, ">": 640, "⌈": 420, "⌉": 420, "⌊": 420, "⌋": 420,
    "Σ": 680, "Π": 760, "√": 560, "…": 900, "&": 760, "%": 860, "@": 930, "#": 560, "!": 333, "_": 500, "*": 500,
}  # fmt: skip
_TABLE = {SERIF: _ITALIC, SANS: _UPRIGHT}
_BOLD = 1.12
ELLIPSIS = "…"


@lru_cache(maxsize=8192)
def width(text: str, size: float, family: str = SERIF, bold: bool = False) -> float:
    """The width of `text` in a font of that size, in the same unit as the size; rather too wide.

    >>> width("q", 10), width("q", 10, bold=True) > width("q", 10)
    (6.4, True)
    """
    units = sum(_units(char, family) for char in text)
    return round(units * size * CAUTION[family] * (_BOLD if bold else 1.0) / 1000, 3)


def _units(char: str, family: str) -> int:
    known = _TABLE[family].get(char) or _MARKS.get(char)
    if known is not None:
        return known
    if char.isdecimal() and char.isascii():
        return 556 if family == SANS else 500
    return _units_by_class(char)


def _units_by_class(char: str) -> int:
    """Width of a character outside the table: nothing for marks that sit on another, wide for emoji and
    the scripts of East Asia, broad for the rest."""
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    if unicodedata.east_asian_width(char) in "WF":
        return 1000 if ord(char) < 0x1F000 else 1300
    return 700 if ord(char) < 0x2E80 else 1100


def clean(text: str) -> str:
    """`text` without what no picture may hold: control characters, halves of surrogate pairs, marks that
    turn the direction of writing. Line breaks and tabs become blanks.

    >>> clean("a\\x00b\\nc")
    'ab c'
    """
    if text.isprintable():
        return text
    spaced = "".join(" " if char in "\n\r\t\v\f\x85\u2028\u2029" else char for char in text)
    return "".join(char for char in spaced if _printable(char))


def _printable(char: str) -> bool:
    point = ord(char)
    turned = 0x202A <= point <= 0x202E or 0x2066 <= point <= 0x2069 or point in (0x200E, 0x200F)
    return not (turned or unicodedata.category(char) in ("Cc", "Cs", "Cn", "Co") or point & 0xFFFE == 0xFFFE)


def fit(text: str, room: float, size: float, family: str = SERIF, bold: bool = False) -> str:
    """`text`, cut in the middle with … where it is wider than `room`: names differ at their ends.

    >>> fit("key position", 60, 15), fit("key", 60, 15)
    ('ke…on', 'key')
    """
    if width(text, size, family, bold) <= room:
        return text
    left = room - width(ELLIPSIS, size, family, bold)
    pieces, head, tail = letters(text), "", ""
    while pieces:
        ahead = len(tail) >= len(head)
        grown = head + pieces[0] if ahead else pieces[-1] + tail
        if width(grown + (tail if ahead else head), size, family, bold) > left:
            break
        head, tail = (grown, tail) if ahead else (head, grown)
        pieces.pop(0 if ahead else -1)
    return head.rstrip() + ELLIPSIS + tail.lstrip()


def folded(text: str, room: float, size: float, family: str = SERIF) -> list[str]:
    """`text` in lines, broken at blanks; a word that is wider than `room` has a line of its own.

    >>> folded("one two three", 90, 15)
    ['one two', 'three']
    """
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        lines[-1:] = [longer] if width(longer, size, family) <= room else [*lines[-1:], word]
    return lines


def letters(text: str) -> list[str]:
    """The text in letters, each with the marks that sit on it.

    >>> len(letters("x\u0304y"))
    2
    """
    found: list[str] = []
    for char in text:
        if found and (_units_by_class(char) == 0 or found[-1][-1] == JOINER):
            found[-1] += char
        else:
            found.append(char)
    return found


JOINER = "\u200d"
"""Makes one letter of those before and after it."""
