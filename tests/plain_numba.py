"""Generated numba source run as plain Python: the same text, without a compiler in between.

Random diagrams are many and compiling takes seconds each; what the text says is the same either way.
"""

import sys
from types import SimpleNamespace

import numpy as np

from diagkit.bench.launch import check_bound
from diagkit.bench.numba_run import Slow
from diagkit.codegen.numba_source import write
from diagkit.ops.evaluate import close_arrays, open_arrays
from diagkit.program import Load, Store


def run(program, arrays, workers=2, counted=True):
    """(outputs, elements moved, where counted): kernels one after the other, workers too, into memory poisoned
    with NaN."""
    engine, memory = open_arrays(program.term, arrays)
    check_bound(program, engine.sizes)
    number = str(np.dtype(engine.compute))
    code = write(program, number, counted=counted)
    module = executed(code.text)
    moved = {}
    slow = Slow(program, engine.sizes, number, memory)
    for kernel in program.kernels:
        entry = code.entry(kernel.name)
        slots = [s for s in kernel.statements if isinstance(s, Load | Store)]
        for slot in (s for s in slots if isinstance(s, Store)):
            slow.make(kernel.wire[slot.wire], "int4" if slot.dtype == "int4" else kernel.wire[slot.wire].dtype)
            poison(memory[slot.wire])
        given = [slow.array(wire) for wire in (*entry.loads, *entry.stores)]
        counts = np.zeros((len(slots), workers), np.int64)
        for worker in range(workers):
            with np.errstate(all="ignore"):
                numbers = [engine.sizes[axis] for axis in entry.parameters] + [counts] * counted
                module[entry.function](worker, workers, *given, *numbers)
        for slot, count in zip(slots, counts.sum(axis=1), strict=True):
            levels = (0, 1) if isinstance(slot, Load) else (1, 0)
            key = (slot.array, *levels, slot.traffic)
            moved[key] = moved.get(key, 0) + int(count)
    slow.unpack()
    return close_arrays(engine, program.term, {name: memory[name] for name in program.term.outputs}), moved


def poison(value):
    value[...] = np.nan if value.dtype.kind == "f" else 1


def executed(text):
    """The names that the text defines, with decorators that do nothing."""
    real = sys.modules.get("numba")
    sys.modules["numba"] = SimpleNamespace(njit=lambda **_: lambda function: function)
    try:
        scope = {"__name__": "plain"}
        exec(compile(text, "generated", "exec"), scope)
        return scope
    finally:
        sys.modules.pop("numba")
        if real is not None:
            sys.modules["numba"] = real
