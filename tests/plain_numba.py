"""Generated numba source run as plain Python: the same text, without a compiler in between.

Random diagrams are many and compiling takes seconds each; what the text says is the same either way.
"""

import sys
from types import SimpleNamespace

import numpy as np

from diagkit.bench.launch import check_bound
from diagkit.bench.numba_run import array_type
from diagkit.codegen.numba_source import write
from diagkit.ops.evaluate import close_arrays, open_arrays
from diagkit.program import Load, Store
from diagkit.term import names


def run(program, arrays, workers=2):
    """(outputs, elements moved): kernels one after the other, workers too, into memory poisoned with NaN."""
    engine, memory = open_arrays(program.term, arrays)
    check_bound(program, engine.sizes)
    number = str(np.dtype(engine.compute))
    code = write(program, number, counted=True)
    module = executed(code.text)
    moved = {}
    for kernel in program.kernels:
        entry = code.entry(kernel.name)
        for wire in entry.stores:
            shape = tuple(engine.sizes[axis] for axis in names(kernel.wire[wire].axes))
            memory[wire] = poisoned(shape, array_type(kernel.wire[wire].dtype, number))
        given = [memory[wire].reshape(memory[wire].shape or 1) for wire in (*entry.loads, *entry.stores)]
        slots = [s for s in kernel.statements if isinstance(s, Load | Store)]
        counts = np.zeros((len(slots), workers), np.int64)
        for worker in range(workers):
            with np.errstate(all="ignore"):
                module[entry.function](worker, workers, *given, *(engine.sizes[a] for a in entry.parameters), counts)
        for slot, count in zip(slots, counts.sum(axis=1), strict=True):
            levels = (0, 1) if isinstance(slot, Load) else (1, 0)
            key = (slot.wire, *levels, slot.traffic)
            moved[key] = moved.get(key, 0) + int(count)
    return close_arrays(engine, {name: memory[name] for name in program.term.outputs}), moved


def poisoned(shape, dtype):
    made = np.empty(shape, dtype)
    made[...] = np.nan if made.dtype.kind == "f" else 1
    return made


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
