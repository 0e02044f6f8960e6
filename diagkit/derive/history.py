"""How a step is written into the value that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from diagkit.term import Step, Term

AnyTerm = TypeVar("AnyTerm", bound=Term)
Identity = tuple[tuple[Any, Any], ...]
Named = Mapping[str, Any] | None


def take(term: AnyTerm, changes: dict[str, Any], step: Step) -> AnyTerm:
    """`term` with `changes` and the step that made them; `term` itself when nothing changes."""
    made = term.replace(**changes)
    return term if made is term else made.replace(steps=(*term.steps, step))


def relabel(
    term: Term, rule: str, reason: str, given: tuple[Any, ...] = (), named: Named = None, identity: Identity = ()
) -> Step:
    """A step that leaves the columns as they are; `given` and `named` are what it was called with."""
    return Step("relabel", rule, reason, call_of(rule, given, named), identity, term)


def rewrite(
    term: Term, rule: str, reason: str, given: tuple[Any, ...] = (), named: Named = None, identity: Identity = ()
) -> Step:
    """A step that makes other columns of the same numbers."""
    return Step("rewrite", rule, reason, call_of(rule, given, named), identity, term)


POSITIONAL = "*"
"""The key under which a call keeps the arguments that were given by position."""


def call_of(rule: str, given: tuple[Any, ...], named: Named) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """A method call as plain data: its name, then (argument, value) pairs."""
    positional = ((POSITIONAL, given),) if given else ()
    return rule, (*positional, *(named or {}).items())
