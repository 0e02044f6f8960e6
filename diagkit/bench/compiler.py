"""The process that compiles Triton kernels without a GPU: run as ``python -m diagkit.bench.compiler``.

It is started by `worker`, and answers `Build`s with the shared memory, the assembler's log and the machine
code. Everything it calls ships with triton.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from diagkit.bench.interpreter import module
from diagkit.bench.messages import Build, Built, receive, send


def build(request: Build) -> Built:
    """Compile one kernel; assemble it again with the log that Triton keeps to itself."""
    import triton
    from triton.backends.compiler import GPUTarget

    source = _source(getattr(module(request.path), request.function), request)
    target = GPUTarget("cuda", request.capability, 32)
    made = triton.compile(source, target=target, options=dict(request.options))
    log, sass = _assembled(made.asm["ptx"], request.capability)
    return Built(int(made.metadata.shared), log, sass)


def _source(function: Any, request: Build) -> Any:
    from triton.compiler import ASTSource

    names = list(function.arg_names)
    signature = {n: "constexpr" if kind == "1" else kind for n, kind in zip(names, request.types, strict=True)}
    ones = {name: 1 for name, kind in zip(names, request.types, strict=True) if kind == "1"}
    attributes = {(place,): [["tt.divisibility", 16]] for place in request.aligned}
    return ASTSource(function, signature, ones, attributes)


def _assembled(ptx: str, capability: int) -> tuple[str, str]:
    """The assembler's log and the machine code of a PTX text."""
    from triton.backends.nvidia import compiler

    tools = Path(compiler.__file__).parent / "bin"
    target = re.search(r"^\.target\s+([\w]+)", ptx, re.MULTILINE)
    assert target is not None
    with tempfile.TemporaryDirectory() as place:
        source, cubin = Path(place) / "kernel.ptx", Path(place) / "kernel.cubin"
        source.write_text(ptx, encoding="utf-8")
        assembler = tools / ("ptxas-blackwell" if capability >= 100 else "ptxas")
        log = _run([str(assembler), "-v", f"--gpu-name={target[1]}", str(source), "-o", str(cubin)])
        return log, _run([str(tools / "nvdisasm"), "-c", str(cubin)])


def _run(command: list[str]) -> str:
    """What a tool says, errors too; RuntimeError where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout + done.stderr


def main() -> None:
    """Answer requests until the input ends; what goes wrong is an answer too."""
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    send(replies, Built())
    while (request := receive(requests)) is not None:
        try:
            reply = build(request)
        except Exception as error:  # noqa: BLE001  (whatever it is, the caller shall read it)
            reply = Built(error=f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}")
        send(replies, reply)


if __name__ == "__main__":
    main()
