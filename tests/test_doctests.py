"""Every public name shows itself: a doctest of its own, or, for what belongs to a class, a use in the doctest of its
class. Public are the names of diagkit, and the members of every class that these make or hand back."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cached_property

import pytest

import diagkit as dk
from diagkit import bench

# The command line of the chapters and what runs once on a GPU are no part of the library.
MODULES = [one.name for one in pkgutil.walk_packages(dk.__path__, "diagkit.") if "__main__" not in one.name]
CLASSES = {
    found.__name__: found
    for module in map(importlib.import_module, MODULES)
    for found in vars(module).values()
    if inspect.isclass(found) and found.__module__ == module.__name__
}

ROOMS = {name.removeprefix("diagkit."): importlib.import_module(name) for name in MODULES if name.count(".") == 1}


def own(found):
    return inspect.isclass(found) and found.__module__.startswith("diagkit")


def functions(kind):
    """(name, function) of every public method and property that the class itself defines."""
    for name, member in vars(kind).items():
        made = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        made = member.func if isinstance(member, cached_property) else made
        if not name.startswith("_") and inspect.isfunction(made):
            yield name, made


def handed_back(function):
    """The classes of diagkit that the annotation of a result names."""
    for dotted in re.findall(r"[\w.]+", str(getattr(function, "__annotations__", {}).get("return", ""))):
        first, *rest = dotted.split(".")
        found = function.__globals__.get(first) or CLASSES.get(first) or ROOMS.get(first)
        for part in rest:
            found = getattr(found, part, CLASSES.get(part))
        if own(found):
            yield found


def reached(start):
    """The classes among `start`, what they inherit, and what their members hand back, and so on."""
    found, waiting = {}, list(start)
    while waiting:
        kind = waiting.pop()
        if own(kind) and kind not in found:
            found[kind] = None
            waiting += [*kind.__mro__[1:], *(back for _, made in functions(kind) for back in handed_back(made))]
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


def examples(doc):
    """The statements of the doctests in a docstring, as one text."""
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.)(.*)$", doc or "", re.MULTILINE))


def only_a_name(kind):
    """An error that says no more than its base, whose doctest stands for it."""
    return issubclass(kind, dk.DiagkitError) and not dict(functions(kind)) and "__init__" not in vars(kind)


def unshown(kind):
    """What of a class no doctest shows."""
    shown = examples(kind.__doc__)
    if not shown and not only_a_name(kind):
        yield kind.__qualname__
    for name, made in functions(kind):
        inherited = any(re.search(rf"\.{name}\b", examples(base.__doc__)) for base in kind.__mro__)
        if not examples(made.__doc__) and not inherited:
            yield f"{kind.__qualname__}.{name}"


OPEN = {"dk": dk, "machine": dk.machine, "bench": bench}
"""What users reach: names of diagkit, and of the two rooms that the chapters enter."""
PUBLIC = {
    f"{room}.{name}": made
    for room, module in OPEN.items()
    for name in module.__all__
    if inspect.isfunction(made := getattr(module, name)) or own(made)
}
REACHED = reached([
    *filter(own, PUBLIC.values()),
    *(back for made in PUBLIC.values() if not own(made) for back in handed_back(made)),
])  # fmt: skip


@pytest.mark.parametrize("name", [name for name, made in PUBLIC.items() if not inspect.isclass(made)])
def test_every_public_function_shows_itself(name):
    assert examples(PUBLIC[name].__doc__), f"{name} has no doctest"


@pytest.mark.parametrize("kind", REACHED, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_class_that_users_meet_shows_its_members(kind):
    assert not list(unshown(kind))


def test_the_walk_reaches_results_of_results():
    assert {"Diagram", "Transfers", "Transfer", "Prediction", "Kernel", "Check", "Inspection"} <= {
        kind.__name__ for kind in REACHED
    }


def test_what_shows_nothing_is_seen():
    class Bare:
        """A thing.

        >>> 1
        1
        """

        def used(self):
            """What it does."""

    assert list(unshown(Bare)) == [f"{Bare.__qualname__}.used"]
    Bare.__doc__ += ">>> Bare().used()"
    assert not list(unshown(Bare))
