"""Runs a person's command in a pod, and ends it when the person's side is gone.

A pod's exec tells a command of that by the end of its input alone, which a person's own input has, too. So the input
comes in pieces, each with its length before it; one of no length ends the person's. Without that one it is a cut.

Sent alone, as an argument: it imports no other module of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

HANGUP_SECONDS = 5.0


def main(argv: Sequence[str]) -> int:
    """Runs `argv[1:]`; returns its exit code, 128 + n for signal n. Blocks until it has ended."""
    process = subprocess.Popen(list(argv[1:]), stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    threading.Thread(target=_feed, args=(process, process.stdin), daemon=True).start()
    code = process.wait()
    return 128 - code if code < 0 else code


def _feed(process: subprocess.Popen[bytes], to: IO[bytes]) -> None:
    opened = True
    while True:
        if (head := _exactly(4)) is None or (data := _exactly(int.from_bytes(head, "big"))) is None:
            break
        with contextlib.suppress(OSError):  # the command has closed its input, and goes on
            if opened and data:
                to.write(data)
                to.flush()
            elif opened:
                to.close()
        opened = opened and bool(data)
    for number in (signal.SIGHUP, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(HANGUP_SECONDS)
            return


def _exactly(size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        more = os.read(0, size - len(found))
        if not more:
            return None
        found += more
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv))
