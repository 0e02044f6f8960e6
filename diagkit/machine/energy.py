"""Energy: bytes moved times joules per byte, operations times joules per operation, and what share moving has.

The arithmetic alone is charged, and what leaves a memory; instructions, wires, leakage and the idle rest of a
board are not. What a machine states no energy for is named and left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from diagkit.machine.facts import Machine, MachineError, need_machine
from diagkit.machine.show import Sheet

ASSUMED = (
    ("alone", "operations and memories alone: no instructions, wires, leakage, or idle parts (assumed)"),
    ("older", "where a chip has no figures of its own, those of an older process stand for it: see the machine's file"),
)


@dataclass(frozen=True, repr=False)
class Energy:
    """Joules by resource.

    * `moving`: by memory level, what leaves it; `computing`: by unit; `unknown`: what the machine states no energy
      for, left out of both.

    >>> Energy((("global", 3e-3),), (("tensor", 1e-3),)).moving_share
    0.75

    >>> spent = Energy((("global", 3e-3),), (("tensor", 1e-3),))
    >>> spent.total, spent.table().column("mJ")
    (0.004, ['3', '1', '4'])
    """

    moving: tuple[tuple[str, float], ...]
    computing: tuple[tuple[str, float], ...]
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        """Joules in all."""
        return sum(joules for _, joules in (*self.moving, *self.computing))

    @property
    def moving_share(self) -> float:
        """The share of moving data in what is known; 0 where nothing is."""
        return self._share(sum(joules for _, joules in self.moving))

    def _share(self, joules: float) -> float:
        return joules / self.total if self.total else 0.0

    def table(self) -> Sheet:
        """Millijoules and shares by resource."""
        parts = (*(("moving", *pair) for pair in self.moving), *(("computing", *pair) for pair in self.computing))
        rows = [(kind, name, f"{1e3 * joules:.4g}", f"{self._share(joules):.1%}") for kind, name, joules in parts]
        rows += [("", name, "not stated", "") for name in self.unknown]
        rows += [("all", "", f"{1e3 * self.total:.4g}", f"{self.moving_share:.1%} moving")]
        return Sheet(
            ("what", "where", "mJ", "share"), tuple(rows), tuple(f"assumed, {a}: {text}" for a, text in ASSUMED)
        )

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def energy(machine: Machine, moved: Mapping[str, float], work: Mapping[str, float], dtype: str) -> Energy:
    """The energy of bytes `moved` out of each level and of `work` by unit ("tensor" in FLOP of `dtype`; "fma" in
    operations, each half a multiply-add in fp32; "special" in exponentials).

    >>> from diagkit.machine.files import load
    >>> found = energy(load("A100-SXM-80GB"), {"global": 1e9}, {"tensor": 1e12, "special": 1e9}, "fp16")
    >>> [(name, round(joules, 4)) for name, joules in (*found.moving, *found.computing)], found.unknown
    ([('global', 0.0312), ('tensor', 0.36)], ('special',))
    """
    need_machine(machine)
    costs: dict[str, Callable[[], float]] = {
        "tensor": lambda: machine.work_energy(dtype),
        "fma": lambda: machine.work_energy("fp32"),
        "special": lambda: float(machine["energy.exp_j_per_op"]),
    }
    unknown: list[str] = []

    def known(amounts: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        for name, amount in amounts.items():
            try:
                yield name, amount * (costs[name]() if name in costs else machine.energy(name))
            except MachineError:
                unknown.append(name)

    return Energy(tuple(known(moved)), tuple(known(work)), tuple(unknown))
