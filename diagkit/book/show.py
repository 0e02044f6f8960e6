"""Numbers as readers see them, and nothing where there is none."""

from __future__ import annotations

from diagkit.bench import seconds as measured


def count(number: int | None) -> str:
    """An integer with commas, or nothing.

    >>> count(1152000), count(None)
    ('1,152,000', '')
    """
    return "" if number is None else f"{number:,}"


def seconds(time_s: float | None) -> str:
    """A time in seconds with three digits and a fitting unit, or nothing.

    >>> seconds(0.0123), seconds(75.0), seconds(None)
    ('12.3 ms', '75 s', '')
    """
    return "" if time_s is None else measured(time_s)


def small(number: float | None) -> str:
    """An error or a tolerance with two digits, or nothing.

    >>> small(3.14159e-7), small(0.0), small(None)
    ('3.1e-07', '0', '')
    """
    return "" if number is None else f"{number:.2g}"
