"""Which boxes run in one sweep over a tile: maps over the same axes, and reductions of what they make.

A `Sweep` visits every position of a tile once. A box joins an earlier sweep when all it reads is there by
then and nothing in between touches the buffer it writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from diagkit.codegen.layout import Layout
from diagkit.program import Compute, Free, Kernel, Statement
from diagkit.term import Box, Cast, Index, Map, Reduce, names


@dataclass
class Sweep:
    """Computations in one visit of the positions of `axes` (a set; the order is the layout's)."""

    axes: frozenset[str]
    computes: list[Compute] = field(default_factory=list)

    @property
    def made(self) -> set[str]:
        """Wires that the sweep makes."""
        return {compute.box.name for compute in self.computes}

    @property
    def reduced(self) -> set[str]:
        """Wires that are whole only when the sweep is over."""
        return {compute.box.name for compute in self.computes if isinstance(compute.box, Reduce)}


Step = Sweep | Statement
"""What one part of a kernel runs, in order: sweeps, and every statement that is not in one."""


def inlined(kernel: Kernel) -> dict[str, Box]:
    """Boxes of positions that are written out where they are read, by name."""
    found: dict[str, Box] = {}
    for statement in kernel.statements:
        box = statement.box if isinstance(statement, Compute) else None
        if isinstance(box, Index | Map) and kernel.wire[box.name].virtual and all(w in found for w in box.inputs):
            found[box.name] = box
    return found


def sweeps(kernel: Kernel, part: Iterable[Statement], layout: Layout, needed: Iterable[str]) -> list[Step]:
    """The steps of one part of the kernel; boxes of positions appear only where they are `needed`."""
    steps: list[Step] = []
    written_out = set(inlined(kernel)) - set(needed)
    for statement in part:
        if isinstance(statement, Free) or (isinstance(statement, Compute) and statement.box.name in written_out):
            continue
        if isinstance(statement, Compute) and isinstance(statement.box, Map | Cast | Reduce | Index):
            _join(kernel, steps, statement, layout)
        else:
            steps.append(statement)
    return steps


def _join(kernel: Kernel, steps: list[Step], compute: Compute, layout: Layout) -> None:
    axes = _visited(kernel, compute.box)
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if isinstance(step, Sweep) and step.axes == axes and not step.reduced & set(compute.box.inputs):
            step.computes.append(compute)
            return
        if _between(step, compute, layout):
            break
    steps.append(Sweep(axes, [compute]))


def _visited(kernel: Kernel, box: Box) -> frozenset[str]:
    axes = kernel.wire[box.inputs[0]].axes if isinstance(box, Reduce) else box.axes
    return frozenset(names(axes))


def _between(step: Step, compute: Compute, layout: Layout) -> bool:
    """Whether `compute` must stay behind `step`."""
    if not isinstance(step, Sweep | Compute):
        return True
    computes = step.computes if isinstance(step, Sweep) else [step]
    touched = {layout.buffer[w] for c in computes for w in (*c.box.inputs, c.box.name) if w in layout.buffer}
    made = {c.box.name for c in computes}
    return bool(made & set(compute.box.inputs)) or layout.buffer[compute.box.name] in touched
