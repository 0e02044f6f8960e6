"""Stands in for the interpreter's process: answers, sleeps, fails, dies or talks on demand, at once."""

import os
import sys
import time

from diagkit.bench.messages import Reply, receive, send


def main():
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    send(replies, Reply())
    while (request := receive(requests)) is not None:
        if request.function == "sleep":
            time.sleep(600)
        if request.function == "die":
            os.write(2, b"out of memory, says the double\n")
            os._exit(9)
        switch = os.environ.get("TRITON_INTERPRET", "")
        error = "ValueError: no such kernel" if request.function == "fail" else ""
        send(replies, Reply(outputs=(os.getpid(), switch), error=error))


if __name__ == "__main__":
    main()
