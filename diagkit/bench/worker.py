"""The interpreter's other end: starts the process, talks to it, and never waits for ever.

Readers set no environment variable: the library starts a process of its own with Triton's switch set.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

from diagkit.bench.messages import Reply, Request, receive, send
from diagkit.term import DiagkitError


class WorkerError(DiagkitError):
    """The interpreter could not be started, failed, was killed, or took too long."""


class Worker:
    """One interpreter process, started at the first request and again after a failure."""

    def __init__(self, start_s: float = 120.0) -> None:
        self.start_s = start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, request: Request, timeout_s: float = 120.0) -> Reply:
        """The reply to one request; a WorkerError after `timeout_s` seconds or where the kernel fails."""
        with self._lock:
            process = self._started()
            self._send(process, request)
            reply = self._receive(process, timeout_s, request.function)
        if reply.error:
            raise WorkerError(f"{request.function} failed in the interpreter: {reply.error}", box=request.function)
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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "diagkit.bench.interpreter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._receive(self._process, self.start_s, "the interpreter")
        return self._process

    def _send(self, process: subprocess.Popen[bytes], request: Request) -> None:
        assert process.stdin is not None
        try:
            send(process.stdin, request)
        except OSError:
            self._fail(f"the interpreter ended before {request.function} was sent")

    def _receive(self, process: subprocess.Popen[bytes], timeout_s: float, what: str) -> Reply:
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
            self._fail(f"the interpreter ended while it ran {what}")
        reply: Reply = box[0]
        return reply

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


_WORKER = Worker()
atexit.register(_WORKER.stop)


def interpreter() -> Worker:
    """The process that this session shares."""
    return _WORKER
