"""The other end of the processes that interpret and compile: starts them, talks, never waits for ever.

Readers set no environment variable: the library starts each process with Triton's switch as it needs it.
A compiler or a kernel that crashes takes only its own process along.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

from diagkit.bench.messages import receive, send
from diagkit.term import DiagkitError


class WorkerError(DiagkitError):
    """A process of ours could not be started, failed, was killed, or took too long."""


class Worker:
    """One process that answers requests, started at the first one and again after a failure.

    It runs the module `module` and is called `title` in messages; `interpret` sets Triton's switch.
    """

    def __init__(self, module: str, title: str, interpret: bool, start_s: float = 120.0) -> None:
        self.module, self.title, self.interpret, self.start_s = module, title, interpret, start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, request: Any, timeout_s: float = 120.0) -> Any:
        """The reply to one request; a WorkerError after `timeout_s` seconds or where it fails."""
        with self._lock:
            process = self._started()
            self._send(process, request)
            reply = self._receive(process, timeout_s, request.function)
        if reply.error:
            reason = f"{request.function} failed in {self.title}: {reply.error}"
            raise WorkerError(
                reason, box=request.function, remedy="the last line of it says why; numba runs the same loops"
            )
        return reply

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, self._errors):
                _close(stream)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            [sys.executable, "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=self._environment(),
        )
        self._receive(self._process, self.start_s, self.title)
        return self._process

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        switch = {"TRITON_INTERPRET": "1"} if self.interpret else {}
        return {**kept, **switch, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def _send(self, process: subprocess.Popen[bytes], request: Any) -> None:
        assert process.stdin is not None
        try:
            send(process.stdin, request)
        except OSError:
            self._fail(f"{self.title} ended before {request.function} was sent")

    def _receive(self, process: subprocess.Popen[bytes], timeout_s: float, what: str) -> Any:
        """Read in a thread, so that a process that hangs or dies leaves the caller free."""
        box: list[Any] = []
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, box), daemon=True)
        reader.start()
        reader.join(timeout_s)
        if reader.is_alive():
            self._fail(
                f"{what} gave no answer in {timeout_s:g} s and was stopped", "use smaller sizes, or a longer timeout_s"
            )
        if not box or box[0] is None:
            self._fail(f"{self.title} ended while it ran {what}")
        return box[0]

    def _fail(self, reason: str, remedy: str | None = None) -> None:
        said = self._last_words()
        self.stop()
        raise WorkerError(reason + (f": {said}" if said else ""), remedy=remedy)

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


def _read(stream: IO[bytes], box: list[Any]) -> None:
    try:
        box.append(receive(stream))
    except (EOFError, OSError, ValueError):
        box.append(None)


def _close(stream: IO[bytes] | None) -> None:
    try:
        if stream is not None:
            stream.close()
    except OSError:
        pass  # the other end is gone: there is nothing left to flush to


_INTERPRETER = Worker("diagkit.bench.interpreter", "the interpreter", interpret=True)
_COMPILER = Worker("diagkit.bench.compiler", "the compiler", interpret=False)
atexit.register(_INTERPRETER.stop)
atexit.register(_COMPILER.stop)


def interpreter() -> Worker:
    """The interpreting process that this session shares."""
    return _INTERPRETER


def compiler() -> Worker:
    """The compiling process that this session shares."""
    return _COMPILER
