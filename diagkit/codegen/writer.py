"""Lines under way: what a target's cases write to, and the names they use."""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from diagkit.codegen.source import Line


class Writer:
    """Collects lines with their nesting and the box that each comes from."""

    def __init__(self, depth: int = 0) -> None:
        self.lines: list[Line] = []
        self.depth = depth

    def add(self, text: str, column: str | None = None) -> None:
        """One line, at the current nesting."""
        self.lines.append(Line(text, column, self.depth))

    def blank(self, count: int = 1) -> None:
        """Empty lines."""
        self.lines += [Line("")] * count

    @contextmanager
    def nested(self, *headers: str, column: str | None = None) -> Iterator[None]:
        """Headers, each inside the one before; what is added meanwhile stands inside the last."""
        for header in headers:
            self.add(header, column)
            self.depth += 1
        yield
        self.depth -= len(headers)


_RESERVED = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins)}


def identifier(name: str) -> str:
    """`name` as a Python identifier of ASCII letters, digits and underscores.

    >>> identifier("P.max"), identifier("key position"), identifier("σ"), identifier("2x")
    ('P_max', 'key_position', 'u3c3', 'v2x')
    """
    letters = unicodedata.normalize("NFKD", name)
    plain = "".join(c if c.isascii() else f"u{ord(c):x}" for c in letters if not unicodedata.combining(c))
    words = re.sub(r"\W+", "_", plain).strip("_") or "v"
    return f"v{words}" if words[0].isdigit() else words


class Names:
    """Identifiers for whatever the diagram names: readable, unique, the same every time.

    >>> names = Names({"np"})
    >>> names["P.max"], names["P max"], names["P.max"], names["np"], names["lambda"]
    ('P_max', 'P_max_2', 'P_max', 'np_2', 'lambda_2')
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED, *reserved}
        self._given: dict[object, str] = {}

    def __getitem__(self, name: str) -> str:
        return self.of(name, name)

    def of(self, key: object, wish: str) -> str:
        """The identifier of `key`: as close to `wish` as is free, when first asked for."""
        if key not in self._given:
            self._given[key] = self._free(identifier(wish))
        return self._given[key]

    def _free(self, base: str) -> str:
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name
