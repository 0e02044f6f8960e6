"""Calls that do not fit: the public functions and methods say how they are called, in the one family of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, isfunction, signature
from typing import ParamSpec, TypeVar

from diagkit.term.errors import CallError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def spoken(function: Callable[P, R], method: bool = False) -> Callable[P, R]:
    """The same function; arguments that it does not take are a CallError that writes its call.

    A TypeError from within stays what it is: only one that Python raises before the first line is reworded.

    >>> def tile(value, over): ...
    >>> spoken(tile)(1, axis=2)
    Traceback (most recent call last):
    ...
    diagkit.term.errors.CallError: tile() got an unexpected keyword argument 'axis'; write tile(value, over)
    """

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except TypeError as error:
            inside = error.__traceback__ and error.__traceback__.tb_next
            if inside is not None:
                raise
            raise CallError(str(error), remedy=f"write {written(function, method)}") from None

    return call


def speaking(cls: C) -> C:
    """The same class, its public methods `spoken`."""
    for name, one in list(vars(cls).items()):
        if isfunction(one) and not name.startswith("_"):
            setattr(cls, name, spoken(one, method=True))
    return cls


def written(function: Callable[..., object], method: bool = False) -> str:
    """How a function is called: its name and parameters, without types; a method behind a dot, without self.

    >>> def stream(self, hoist=True, **tiles): ...
    >>> written(stream, method=True)
    '.stream(hoist=True, **tiles)'
    """
    known = list(signature(function).parameters.values())[1 if method else 0 :]
    plain = Signature([one.replace(annotation=Parameter.empty) for one in known])
    return f"{'.' if method else ''}{function.__name__}{plain}"


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """A remedy for a misspelt name: the known one that is written nearly so, or else what to do.

    >>> nearest("transfer", ["transfers", "memory"], "see dir(diagram)"), nearest("xyz", ["memory"], "see dir(diagram)")
    ("did you mean 'transfers'?", 'see dir(diagram)')
    """
    bare = {other.replace("_", "").lower(): other for other in known}
    near = get_close_matches(name.replace("_", "").lower(), bare, n=1, cutoff=0.75)
    return f"did you mean {bare[near[0]]!r}?" if near else otherwise


def public(cls: type) -> list[str]:
    """The names that users of a class may use.

    >>> public(type("Tile", (), {"side": 1, "_kept": 2}))
    ['side']
    """
    return [name for name in dir(cls) if not name.startswith("_")]
