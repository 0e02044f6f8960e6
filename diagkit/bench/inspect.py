"""What a GPU would be given: kernels compiled for a target without having one, and ten checks as verdicts.

Static counts give no clocks, stalls or races. Each kernel takes seconds to compile and is then kept on
disk by content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from diagkit.bench.architectures import architecture, check_formats
from diagkit.bench.compiled import Buffers, Compiled, buffers_of, compiled, explained
from diagkit.bench.show import Shown
from diagkit.bench.triton_run import need_triton, written
from diagkit.bench.verdicts import Verdict, verdicts
from diagkit.program import Program, lower


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """Kernels compiled for `target`, each with its buffers, its verdicts, and a prediction in bytes of what
    it holds in fast memory, where one was handed in."""

    target: str
    kernels: tuple[Compiled, ...]
    buffers: tuple[Buffers, ...]
    verdicts: tuple[tuple[Verdict, ...], ...]
    predicted_bytes: float | None = None

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(verdict.passed is not False for row in self.verdicts for verdict in row)

    def verdict(self, name: str, kernel: str | None = None) -> Verdict:
        """The verdict of that name, of the first kernel unless named."""
        at = [one.kernel for one in self.kernels].index(kernel) if kernel else 0
        return next(verdict for verdict in self.verdicts[at] if verdict.name == name)

    def rows(self) -> list[tuple[str, str]]:
        """(name, text) of each row of the display."""
        found: list[tuple[str, str]] = []
        for one, buffers, row in zip(self.kernels, self.buffers, self.verdicts, strict=True):
            found.append((f"kernel {one.kernel}", f"{one.target}, {one.warps} warps, {one.stages} stages"))
            found += _memory_rows(one, buffers, self.predicted_bytes if len(self.kernels) == 1 else None)
            counts = ", ".join(f"{kind} {n}" for kind, n in one.counts.items()) or "none of note"
            found.append(("main loop" if one.looped else "instructions", counts))
            found += [(verdict.name, f"{verdict.mark} {verdict.text}") for verdict in row]
        return found


def _memory_rows(one: Compiled, buffers: Buffers, predicted: float | None) -> list[tuple[str, str]]:
    found = [("shared memory", f"{one.shared_bytes:,} bytes a block: {explained(one, buffers)}")]
    found.append(("registers", f"{one.registers} a thread, {one.registers * 4 * 32 * one.warps:,} bytes a block"))
    if predicted is not None:
        loads = buffers.shared(1)
        rest = f"{loads:,} loaded, {predicted - loads:,.0f} made (here in registers)"
        found.append(("predicted", f"{predicted:,.0f} bytes on chip: {rest}"))
    return found


def inspect(
    program: Program,
    target: str = "sm_90",
    dtypes: str | Mapping[str, str] | None = None,
    predicted_bytes: float | None = None,
    timeout_s: float = 300.0,
) -> Inspection:
    """Compile every kernel of `program` for `target` ("sm_75", "sm_80", "sm_89", "sm_90" or "sm_100").

    `dtypes` puts other formats on the float inputs: one for all, or by name. `predicted_bytes` (what
    `memory()` says) is shown beside. Arrays are taken as contiguous, open sizes as multiples of 16.
    Raises FormatError for a format that the target lacks, WorkerError where the compiler fails.
    """
    need_triton()
    row = architecture(target)
    ready = with_formats(program, dtypes) if dtypes is not None else program
    check_formats(ready, row)
    text = written(ready)
    built = [compiled(ready, kernel, text, row, timeout_s) for kernel in ready.kernels]
    found = tuple(buffers_of(kernel, ready) for kernel in ready.kernels)
    judged = [verdicts(one, row) for one in built]
    return Inspection(target, tuple(built), found, tuple(judged), predicted_bytes)


def with_formats(program: Program, dtypes: str | Mapping[str, str]) -> Program:
    """The program with other formats on its float inputs."""
    term = program.term
    floats = [a.name for a in term.inputs if a.dtype != "bool" and not a.dtype.startswith("int")]
    wanted = dict.fromkeys(floats, dtypes) if isinstance(dtypes, str) else dict(dtypes)
    inputs = tuple(replace(array, dtype=wanted.get(array.name, array.dtype)) for array in term.inputs)
    return lower(term.replace(inputs=inputs), **dict(program.sizes))
