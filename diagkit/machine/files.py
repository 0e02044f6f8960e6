"""Reading data/machines: one TOML file per machine, every number with a source, anything else refused."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any

from diagkit.machine.facts import GRADES, Machine, MachineError, Number
from diagkit.machine.fields import FIELDS, REQUIRED, TEXTS
from diagkit.machine.measured import here

PACKAGE = Path(__file__).resolve().parent.parent
PARTS = ("value", "source", "grade")


def data_path(*parts: str) -> Path:
    """A path inside data/: that of the installed wheel, else the one beside the package in the repository.

    Errors: `MachineError` where neither holds it.

    >>> data_path("machines", "T4.toml").name
    'T4.toml'
    """
    places = (PACKAGE / "_data", PACKAGE.parent / "data")
    found = next((place.joinpath(*parts) for place in places if place.joinpath(*parts).exists()), None)
    if found is None:
        wanted = "/".join(("data", *parts))
        raise MachineError(f"no {wanted}", remedy="reinstall diagkit, or work in a full checkout of the repository")
    return found


def names() -> tuple[str, ...]:
    """The machines that data/machines has a file for, in alphabetical order.

    >>> "H100-SXM" in names()
    True
    """
    return tuple(sorted((path.stem for path in data_path("machines").glob("*.toml")), key=str.lower))


def load(name: str) -> Machine:
    """The machine of that name, in any case; "here" is the machine at hand, measured.

    A text that ends in .toml is the path of a file to read: a machine needs no code.
    Errors: `MachineError` for an unknown name (closest first), a number that is missing, has no source,
    no unit in its name, or is not a positive number: each by field name.

    >>> load("h100-sxm").name
    'H100-SXM'
    """
    if not isinstance(name, str):
        raise MachineError(f"{name!r} is no name of a machine", remedy=f"known: {', '.join(names())}, here")
    if name.endswith(".toml"):
        return read(Path(name), name)
    if name.lower() == "here":
        return here()
    known = next((stem for stem in names() if stem.lower() == name.lower()), None)
    if known is None:
        raise MachineError(f"no machine {name!r}", remedy=f"known, closest first: {', '.join(closest(name))}, here")
    return shipped(known)


def closest(name: str) -> list[str]:
    """The known names: those that begin so, then the most similar.

    >>> closest("A100")[0], closest("H100-SMX")[0]
    ('A100-SXM-80GB', 'H100-SXM')
    """
    asked = name.lower()

    def distance(known: str) -> tuple[bool, float]:
        return not known.startswith(asked), -SequenceMatcher(None, asked, known).ratio()

    return sorted(names(), key=lambda known: distance(known.lower()))


@lru_cache(maxsize=64)
def shipped(name: str) -> Machine:
    """A machine of data/machines, read once per process."""
    return read(data_path("machines", f"{name}.toml"), f"data/machines/{name}.toml")


def read(path: Path, origin: str) -> Machine:
    """The machine that one file describes; `origin` is how errors and the machine itself name the file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MachineError(f"{origin} cannot be read: {error}", remedy="a TOML file in UTF-8") from error
    machine = build(table, origin)
    if machine.name != path.stem:
        raise MachineError(f"{origin} names its machine {machine.name!r}", field="name", remedy=f"use {path.stem!r}")
    return machine


def build(table: Mapping[str, Any], origin: str) -> Machine:
    """A machine from a parsed file, or the first reason why it is none."""
    numbers = tuple(facts(table, origin))
    machine = Machine(str(table.get("name", "")), tuple(texts(table, origin)), numbers, origin)
    for field in REQUIRED:
        machine.number(field)
    if not machine.formats:
        raise MachineError(f"{origin} states no peak", field="peak", remedy=f"one of: {', '.join(FIELDS['peak'])}")
    return machine


def texts(table: Mapping[str, Any], origin: str) -> Iterator[tuple[str, str]]:
    """The texts about the machine, the name excepted."""
    for key in TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise MachineError(f"{origin}: {key} is no text", field=key, remedy=f'{key} = "..."')
        if key != "name" and key in table:
            yield key, table[key]


def facts(table: Mapping[str, Any], origin: str) -> Iterator[Number]:
    """Every number of the file in its order, with the section in front of the field."""
    sources = table.get("sources", {})
    for section, entries in sections(table):
        if section not in FIELDS:
            remedy = f"sections: {', '.join(FIELDS)}; texts: {', '.join(TEXTS)}"
            raise MachineError(f"{origin}: unknown field {section}", field=section, remedy=remedy)
        for key, entry in entries.items():
            yield fact(f"{section}.{key}", entry, sources, origin)


def sections(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables with numbers: each level is one of its own. A stray top-level value counts as one too."""
    for key, entry in table.items():
        if key == "level" and isinstance(entry, Mapping):
            yield from ((f"level.{level}", as_table(numbers)) for level, numbers in entry.items())
        elif key != "sources" and key not in TEXTS:
            yield key, as_table(entry)


def as_table(entry: Any) -> Mapping[str, Any]:
    """The entry where it is a table, else an empty one: its name is then what gets refused."""
    return entry if isinstance(entry, Mapping) else {"": entry}


def fact(field: str, entry: Any, sources: Mapping[str, Any], origin: str) -> Number:
    """One number, once nothing speaks against it."""
    reason = fault(field, entry, sources)
    if reason:
        remedy = 'write { value = 1.0, source = "a key of [sources]", grade = "published" }; grades: '
        raise MachineError(f"{origin}: {field} {reason}", field=field, remedy=remedy + ", ".join(GRADES))
    return Number(field, entry["value"], sources[entry["source"]], entry["grade"])


def fault(field: str, entry: Any, sources: Mapping[str, Any]) -> str | None:
    """Why this entry is no sourced number, or None."""
    section, key = field.rsplit(".", 1)
    if key not in FIELDS[section]:
        return f"is an unknown field; {section} may have {', '.join(FIELDS[section])}"
    if not isinstance(entry, Mapping):
        return "has no source"
    absent = [part for part in PARTS if part not in entry]
    strange = [part for part in entry if part not in PARTS]
    return (
        (f"has no {absent[0]}" if absent else None)
        or (f"has an unknown part {strange[0]}" if strange else None)
        or value_fault(entry["value"])
        or source_fault(entry["source"], entry["grade"], sources)
    )


def value_fault(value: Any) -> str | None:
    """Why this is no positive finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"has the value {value!r}, which is no number"
    return None if math.isfinite(value) and value > 0 else f"has the value {value!r}, which is not positive and finite"


def source_fault(source: Any, grade: Any, sources: Mapping[str, Any]) -> str | None:
    """Why source and grade do not say where the number is from, or None."""
    if not isinstance(sources.get(source), str) or not sources[source].strip():
        return f"has the source {source!r}, which [sources] does not describe"
    return None if grade in GRADES else f"has the unknown grade {grade!r}"
