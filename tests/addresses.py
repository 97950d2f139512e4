"""Ports of loopback that nobody in this process had before: adapters remember offers, boxes and turns by the address of
the API, so two servers that come after each other on one port would be one platform to them."""

from __future__ import annotations

from collections.abc import Callable
from socketserver import TCPServer
from typing import TypeVar

Server = TypeVar("Server", bound=TCPServer)
_had: set[int] = set()


def at_a_new_address(make: Callable[[], Server]) -> Server:
    """What `make` makes, on a port that the kernel chose (`make` asks for port 0) and has not given here before."""
    known: list[Server] = []
    while (found := make()).server_address[1] in _had:
        known.append(found)  # held until another is found, so that the kernel gives another
    for one in known:
        one.server_close()
    _had.add(int(found.server_address[1]))
    return found
