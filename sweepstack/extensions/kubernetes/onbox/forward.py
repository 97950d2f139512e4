"""Joins stdin and stdout to a port of the pod in which it runs: one connection of a forwarded port.

Sent alone, as an argument: it imports no other module of ours.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence

CONNECT_SECONDS = 10.0


def main(argv: Sequence[str]) -> int:
    """`argv[1]`: the port. Blocks until the other side has ended the connection."""
    try:
        to = socket.create_connection(("127.0.0.1", int(argv[1])), CONNECT_SECONDS)
    except OSError as error:
        sys.stderr.write(f"nothing answers at port {argv[1]} of the pod: {error}\n")
        return 1
    to.settimeout(None)
    threading.Thread(target=_out, args=(to,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := to.recv(1 << 16):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        return 0
    return 1


def _out(to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 1 << 16):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    os._exit(main(sys.argv))  # the thread may wait for input still
