"""Reading data/machines: one TOML file per machine, every number with a source, anything else refused."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any

from diagkit.machine.facts import GRADES, Machine, MachineError, Number
from diagkit.machine.fields import BANDWIDTHS, FIELDS, LEVELS, PART, REQUIRED, TEXTS, unit_of
from diagkit.machine.measured import here

PACKAGE = Path(__file__).resolve().parent.parent
PARTS = ("value", "source", "grade")
LARGEST = sys.float_info.max
WRITE = 'write { value = 1.0, source = "a key of [sources]", grade = "published" }; grades: ' + ", ".join(GRADES)
AT_MOST = (
    ("device.clock_hz", "device.max_clock_hz"),
    *((f"level.{level}.capacity_per_block_bytes", f"level.{level}.capacity_bytes") for level in LEVELS),
)
"""Numbers of which the first is at most the second."""


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
    Errors: `MachineError` for an unknown name (closest first), a number that is missing, has no source, no unit in
    its name, is not a positive number, not whole where it counts, or contradicts another: each by field name.

    >>> load("h100-sxm").name
    'H100-SXM'
    """
    if not isinstance(name, str):
        raise MachineError(f"{name!r} is no name of a machine", remedy=f"known: {', '.join(names())}, here")
    if name.lower().endswith(".toml"):
        return read(Path(name), name)
    if name.lower() == "here":
        return here()
    return shipped(name)


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
    """A machine of data/machines by its name in any case, read once per process."""
    known = next((stem for stem in names() if stem.lower() == name.lower()), None)
    if known is None:
        raise MachineError(f"no machine {name!r}", remedy=f"known, closest first: {', '.join(closest(name))}, here")
    return read(data_path("machines", f"{known}.toml"), f"data/machines/{known}.toml")


def read(path: Path, origin: str) -> Machine:
    """The machine that one file describes; `origin` is how errors and the machine itself name the file."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        table = tomllib.loads(text)
    except (OSError, ValueError) as error:
        field = blamed(text, str(error))
        reason = f"{origin} cannot be read{f' at {field}' if field else ''}: {error}"
        raise MachineError(reason, field=field, remedy="a TOML file in UTF-8, each field once") from error
    machine = build(table, origin)
    if machine.name != path.stem:
        raise MachineError(f"{origin} names its machine {machine.name!r}", field="name", remedy=f"use {path.stem!r}")
    return machine


def blamed(text: str, error: str) -> str | None:
    """The field in the line that the TOML reader complains about, such as one that is stated twice; else None.

    >>> blamed("a = 1\\na = 2", "Cannot overwrite a value (at line 2, column 6)")
    'a'
    """
    place = re.search(r"at line (\d+)", error)
    key = text.splitlines()[int(place[1]) - 1].partition("=")[0].strip() if place else ""
    return key or None


def build(table: Mapping[str, Any], origin: str) -> Machine:
    """A machine from a parsed file, or the first reason why it is none."""
    if "name" not in table:
        raise MachineError(f"{origin} states no name", field="name", remedy='begin with name = "...", that of the file')
    about = tuple(texts(table, origin))
    machine = Machine(table["name"], about, tuple(facts(table, origin)), origin)
    for field in REQUIRED:
        if field not in machine:
            raise MachineError(f"{origin} states no {field}", field=field, remedy=WRITE)
    if not machine.formats:
        raise MachineError(f"{origin} states no peak", field="peak", remedy=f"one of: {', '.join(FIELDS['peak'])}")
    for field, reason in contradictions(machine):
        raise MachineError(f"{origin}: {field} {reason}", field=field, remedy="correct one of the two")
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
    for section, entries in sections(table):
        if section not in (*FIELDS, "sources"):
            remedy = f"sections: {', '.join(FIELDS)}; texts: {', '.join(TEXTS)}"
            raise MachineError(f"{origin}: unknown field {section}", field=section, remedy=remedy)
        if not isinstance(entries, Mapping):
            remedy = f"write [{section}] and below it what belongs there, a line each"
            raise MachineError(f"{origin}: {section} is no section", field=section, remedy=remedy)
        if section != "sources":
            yield from (fact(f"{section}.{key}", entries[key], table.get("sources", {}), origin) for key in entries)


def sections(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The tables with numbers, that of the sources first: each level is one of its own. A stray value counts as one."""
    for key in sorted(table, key=lambda key: key != "sources"):
        if key == "level" and isinstance(table[key], Mapping):
            yield from ((f"level.{level}", numbers) for level, numbers in table[key].items())
        elif key not in TEXTS:
            yield key, table[key]


def fact(field: str, entry: Any, sources: Mapping[str, Any], origin: str) -> Number:
    """One number, once nothing speaks against it."""
    reason = fault(field, entry, sources)
    if reason:
        raise MachineError(f"{origin}: {field} {reason}", field=field, remedy=WRITE)
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
        or value_fault(field, entry["value"])
        or source_fault(entry["source"], entry["grade"], sources)
    )


def value_fault(field: str, value: Any) -> str | None:
    """Why this is no positive finite number, whole where it counts things or bytes, or None."""
    said = f"has the value {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{said}, which is no number"
    if not 0 < value <= LARGEST:
        return f"{said[:60]}, which is not positive and finite"
    if field.endswith(PART):
        return f"{said}, which is more than the whole" if value > 1 else None
    return f"{said}, which is not whole" if unit_of(field) in ("", "B") and value != int(value) else None


def source_fault(source: Any, grade: Any, sources: Mapping[str, Any]) -> str | None:
    """Why source and grade do not say where the number is from, or None."""
    described = sources.get(source) if isinstance(source, str) else None
    if not isinstance(described, str) or not described.strip():
        return f"has the source {source!r}, which [sources] does not describe"
    return None if isinstance(grade, str) and grade in GRADES else f"has the unknown grade {grade!r}"


def contradictions(machine: Machine) -> Iterator[tuple[str, str]]:
    """What two numbers of a machine do not say together: the field, and why not."""
    for less, more in AT_MOST:
        if less in machine and more in machine and machine[less] > machine[more]:
            yield less, f"= {machine[less]} is more than {more} = {machine[more]}"
    for level in machine.levels:
        stated = [field for field in BANDWIDTHS if f"level.{level}.{field}" in machine]
        if len(stated) > 1:
            yield f"level.{level}.{stated[0]}", f"is stated again as {stated[1]}"
