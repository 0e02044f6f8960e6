"""What a GPU would be given: kernels compiled for a target without having one, and ten checks as verdicts.

Static counts give no clocks, stalls or races. Each kernel takes seconds to compile and is then kept on
disk by content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from diagkit.bench.architectures import architecture, check_formats
from diagkit.bench.buffers import Buffers, account, buffers_of, explained, unexplained
from diagkit.bench.compiled import Compiled, compiled
from diagkit.bench.resources import check_needs
from diagkit.bench.show import Shown
from diagkit.bench.triton_run import need_triton, written
from diagkit.bench.verdicts import Verdict, verdicts
from diagkit.program import Program, lower
from diagkit.term import InputError, Term

Predict = Callable[[Term, Mapping[str, int]], tuple[float, ...]]
"""Of a diagram at sizes: the bytes that each of its kernels holds in fast memory."""


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """Kernels compiled for `target`, each with its buffers, its verdicts, and what the diagram predicts that it
    holds in fast memory, in bytes (None where nothing was handed in).

    >>> one = Compiled("O", "sm_90", 4, 2, 1024, 32, 0, (), (), {}, {}, 0, (0, 0), {}, False)
    >>> row = (Verdict("no spills", "0 bytes a thread", True), Verdict("few waits", "no waits of this kind", None))
    >>> found = Inspection("sm_90", (one,), (Buffers((), (), 0),), (row,), (None,))
    >>> found.passed, found.verdict("few waits").mark, found.rows()[-2]
    (True, '–', ('no spills', '✓ 0 bytes a thread'))
    """

    target: str
    kernels: tuple[Compiled, ...]
    buffers: tuple[Buffers, ...]
    verdicts: tuple[tuple[Verdict, ...], ...]
    predicted_bytes: tuple[float | None, ...]

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
        every = zip(self.kernels, self.buffers, self.verdicts, self.predicted_bytes, strict=True)
        for one, buffers, row, predicted in every:
            found.append((f"kernel {one.kernel}", f"{one.target}, {one.warps} warps, {one.stages} stages"))
            found += _memory_rows(one, buffers, predicted)
            counts = ", ".join(f"{kind} {n}" for kind, n in one.counts.items()) or "none of note"
            found.append(("main loop" if one.looped else "instructions", counts))
            found += [(verdict.name, f"{verdict.mark} {verdict.text}") for verdict in row]
        return found


def _memory_rows(one: Compiled, buffers: Buffers, predicted: float | None) -> list[tuple[str, str]]:
    """Shared memory and registers; then the prediction, and by name what there is beside the loads in it."""
    found = [("shared memory", f"{one.shared_bytes:,} bytes a block: {explained(one, buffers)}")]
    found.append(("registers", f"{one.registers} a thread, {one.registers * 4 * 32 * one.warps:,} bytes a block"))
    if predicted is not None:
        rest = f"{buffers.loaded:,} loaded, {predicted - buffers.loaded:,.0f} made (here in registers)"
        found.append(("predicted", f"{predicted:,.0f} bytes on chip: {rest}"))
        beyond, unknown = account(one, buffers).beyond(buffers), unexplained(one, buffers)
        named = ", ".join(f"{name} {n:+,}" for name, n in beyond) or "nothing"
        found.append(("beside these loads", f"{named}; not explained: {unknown:.1%} of shared memory"))
    return found


def inspect(
    program: Program,
    target: str = "sm_90",
    dtypes: str | Mapping[str, str] | None = None,
    predicted_bytes: float | None = None,
    predict: Predict | None = None,
    timeout_s: float = 300.0,
) -> Inspection:
    """Compile every kernel of `program` for `target` ("sm_75", "sm_80", "sm_89", "sm_90" or "sm_100", or a machine
    that is one: "H100-SXM" is sm_90).

    `dtypes` puts other formats on the float inputs: one for all, or by name. What the diagram holds in fast
    memory is shown beside: `predicted_bytes` of the only kernel, or else as `predict` says. Arrays are taken
    as contiguous, open sizes as multiples of 16. Raises FormatError for a format that the target lacks and for a
    kernel far beyond what a block may have there (see `resources`), WorkerError where the compiler fails.
    """
    row = architecture(target)
    need_triton()
    ready = with_formats(program, dtypes) if dtypes is not None else program
    check_formats(ready, row)
    check_needs(ready, row)
    text = written(ready)
    built = [compiled(ready, kernel, text, row, timeout_s) for kernel in ready.kernels]
    found = tuple(buffers_of(kernel, ready) for kernel in ready.kernels)
    judged = [verdicts(one, row) for one in built]
    return Inspection(row.name, tuple(built), found, tuple(judged), _predicted(ready, predicted_bytes, predict))


def _predicted(program: Program, given: float | None, predict: Predict | None) -> tuple[float | None, ...]:
    """Bytes of fast memory per kernel, as far as anyone says."""
    if given is not None and len(program.kernels) == 1:
        return (given,)
    if predict is None or any(name in program.term.open_sizes for name in program.missing):
        return (None,) * len(program.kernels)
    return predict(program.term, dict(program.sizes))


def with_formats(program: Program, dtypes: str | Mapping[str, str]) -> Program:
    """The program with other formats on its float inputs."""
    term = program.term
    floats = [a.name for a in term.inputs if a.dtype != "bool" and not a.dtype.startswith("int")]
    wanted = dict.fromkeys(floats, dtypes) if isinstance(dtypes, str) else dict(dtypes)
    known = [array.name for array in term.inputs]
    for name in wanted:
        if name not in known:
            raise InputError(f"{term.name} has no input {name!r}", box=name, remedy=f"its inputs: {', '.join(known)}")
    inputs = tuple(replace(array, dtype=wanted.get(array.name, array.dtype)) for array in term.inputs)
    return lower(term.replace(inputs=inputs), **dict(program.sizes))
