"""Ports of loopback, for servers of this process and for programs that are told theirs.

One that nothing in this process had before: adapters remember offers, boxes and turns by the address of
the API, so two servers that come after each other on one port would be one platform to them."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socketserver import TCPServer
from typing import TypeVar

Server = TypeVar("Server", bound=TCPServer)
_had: set[int] = set()
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000


def at_a_new_address(make: Callable[[], Server]) -> Server:
    """What `make` makes, on a port that the kernel chose (`make` asks for port 0) and has not given here before."""
    known: list[Server] = []
    while (found := make()).server_address[1] in _had:
        known.append(found)  # held until another is found, so that the kernel gives another
    for one in known:
        one.server_close()
    _had.add(int(found.server_address[1]))
    return found


def port_for_a_program(at: str = "127.0.0.1") -> int:
    """A free port for a program that binds it in a while, and perhaps again later: none of those that the kernel gives
    by itself, or on a busy machine another process has it by then."""
    least = 0
    with suppress(OSError, ValueError, IndexError):
        least = int(_RANGE.read_text().split()[0])
    chosen = random.SystemRandom()  # the tests' own may be seeded, and alike in all workers
    ports = chosen.sample(range(_LOWEST, least), 100) if least >= _LOWEST + 100 else []
    for port in [*ports, 0]:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((at, port))
            return int(probe.getsockname()[1])
    raise AssertionError("no port is free")
