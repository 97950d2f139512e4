"""Is ssh's ProxyCommand: hands it a connection over which both sides send small segments only.

Where that gets through and a usual connection does not, large packets are lost on the way. ssh is told
`ProxyUseFdpass=yes`.
"""

from __future__ import annotations

import array
import contextlib
import socket
import sys

SEGMENT = 536
"""What every way can carry."""
CONNECT_SECONDS = 5.0


def main(host: str, port: str) -> None:
    """Connects, and gives the connection to ssh on stdout."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
            made.settimeout(CONNECT_SECONDS)
            made.connect(address)
            made.settimeout(None)
            with socket.socket(fileno=1) as ssh:
                ssh.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
