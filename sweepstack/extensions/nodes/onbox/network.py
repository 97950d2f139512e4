"""The network between two nodes: which interface leads there, and how large a packet passes.

    network.py towards ADDRESS | named JSON | listen ADDRESS | probe JSON    from its own text (`python -c`) on a peer

It imports nothing of ours: it runs before anything is copied. IPv4, and the standard library alone: no ping, no root. A
probe is a UDP packet that may not be fragmented
(IP_MTU_DISCOVER). Where UDP does not pass at all, a TCP stream of a megabyte tells a hole from a way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import select
import socket
import struct
import sys
import threading
import time
from typing import Any, Callable, NamedTuple

SIOCGIFADDR, SIOCGIFMTU = 0x8915, 0x8921
IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
HEADERS = 28
"""Of IP and UDP: 1472 bytes fill a packet of 1500, 8972 one of 9000."""
USUAL = 1472
TRIES, TRY_SECONDS, CONNECT_SECONDS, STREAM_SECONDS = 4, 0.5, 5.0, 15.0
LADDER = (8972, 4000, 1472, 1422, 1372, 1322, 1272, 1252, 1172, 972, 548)
"""The payloads that are tried below one that does not pass: the largest that passes is the MTU to set, less HEADERS."""
STREAM = 1 << 20
NOT_A_WAY = ("lo", "docker", "virbr", "br-", "veth", "cni", "flannel")
"""Beginnings of the names of interfaces that lead to no other machine."""


class Interface(NamedTuple):
    """An interface: its name, its IPv4 address, its MTU."""

    name: str
    address: str
    mtu: int


def towards(address: str) -> Interface:
    """The interface by which packets for an address leave. Sends nothing. Raises OSError where no route leads there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        handle.connect((address, 9))
        own = handle.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                found = _interface(handle, name)
                if found.address == own:
                    return found
    raise OSError(f"no interface has {own} as its first address")


def _interface(handle: socket.socket, name: str) -> Interface:
    words = struct.pack("256s", name.encode()[:15])
    address = socket.inet_ntoa(fcntl.ioctl(handle, SIOCGIFADDR, words)[20:24])
    (mtu,) = struct.unpack_from("16xi", fcntl.ioctl(handle, SIOCGIFMTU, words))
    return Interface(name, address, mtu)


def named(value: str, beginnings: bool) -> Interface:
    """The interface that a job names itself: by names, of which the first that is there counts; or by their
    `beginnings`, with `=` before them by the whole names. Raises OSError where none of them has an address."""
    words, there = value.lstrip("=").split(","), [name for _, name in socket.if_nameindex()]
    whole = not beginnings or value.startswith("=")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for word in words:
            for name in there:
                if name == word or (not whole and name.startswith(word)):
                    with contextlib.suppress(OSError):  # it has no address
                        return _interface(handle, name)
    raise OSError(f"no interface of that name has an address there (it has {', '.join(there)})")


def listen(address: str) -> None:
    """Answers probes until stdin closes. Prints a JSON line with its ports first."""
    with _udp(address) as udp, socket.create_server((address, 0)) as tcp:
        print(json.dumps({"udp": udp.getsockname()[1], "tcp": tcp.getsockname()[1]}), flush=True)
        while True:
            ready, _, _ = select.select([udp, tcp, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            if udp in ready:
                with contextlib.suppress(OSError):
                    _answer(udp)
            if tcp in ready:
                made, _ = tcp.accept()
                threading.Thread(target=_stream, args=(made,), daemon=True).start()


def _answer(udp: socket.socket) -> None:
    data, where = udp.recvfrom(1 << 16)
    if data.startswith(b"send "):
        udp.sendto(b"x" * int(data.split()[1]), where)
    else:
        udp.sendto(b"got %d" % len(data), where)


def _stream(made: socket.socket) -> None:
    """Takes a megabyte, and gives one."""
    with contextlib.suppress(OSError), made:
        made.settimeout(STREAM_SECONDS)
        if _taken(made, STREAM):
            made.sendall(b"x" * STREAM)


def _taken(made: socket.socket, size: int) -> bool:
    while size > 0:
        part = made.recv(1 << 16)
        if not part:
            return False
        size -= len(part)
    return True


def measure_path(own: Interface, other: Interface, udp_port: int, tcp_port: int) -> dict[str, Any]:
    """What passes between this node and one that listens. `tcp`: why no connection is made, or "". `out`, `back`: the
    largest probe that passed, of the usual size and the interface's own, and where one of these did not, of LADDER; 0:
    none; None: UDP does not pass at all. `stream`: whether a megabyte went there and came back. Blocks for half a
    minute at most, for a minute where there is a hole."""
    found: dict[str, Any] = {"tcp": "", "out": None, "back": None, "stream": None}
    try:
        with socket.create_connection((other.address, tcp_port), CONNECT_SECONDS, (own.address, 0)):
            pass
    except OSError as error:
        found["tcp"] = str(error)
        return found
    with _udp(own.address) as udp:
        udp.connect((other.address, udp_port))
        if _passes(udp, b"x", b"got 1"):
            found["out"] = _largest(own.mtu, lambda size, tries: _passes(udp, b"x" * size, b"got %d" % size, tries))
            back = lambda size, tries: _passes(udp, b"send %d" % size, b"x" * size, tries)  # noqa: E731 - as above
            found["back"] = _largest(other.mtu, back)
            return found
    with contextlib.suppress(OSError), socket.create_connection((other.address, tcp_port), CONNECT_SECONDS) as made:
        made.settimeout(STREAM_SECONDS)
        made.sendall(b"x" * STREAM)
        found["stream"] = _taken(made, STREAM)
    found["stream"] = bool(found["stream"])
    return found


def _largest(mtu: int, passes: Callable[[int, int], bool]) -> int:
    """The largest payload that passes, as far as it is looked for; 0 for none. `passes`: one size, in so many tries."""
    asked = sizes(mtu)
    passed = [size for size in asked if passes(size, TRIES)]
    if len(passed) == len(asked):
        return asked[-1]
    least = max(passed, default=0)
    return next((size for size in LADDER if least < size < asked[-1] and passes(size, TRIES // 2)), least)


def sizes(mtu: int) -> list[int]:
    """The payloads that are tried: of a usual packet, and of the largest that the interface sends."""
    return sorted({min(USUAL, mtu - HEADERS), mtu - HEADERS})


def _udp(address: str) -> socket.socket:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 0))
    with contextlib.suppress(OSError):
        udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
    return udp


def _passes(udp: socket.socket, ask: bytes, answer: bytes, tries: int = TRIES) -> bool:
    for _ in range(tries):
        ends = time.monotonic() + TRY_SECONDS
        with contextlib.suppress(OSError):  # EMSGSIZE: this node itself can't send so much
            udp.send(ask)
        while (left := ends - time.monotonic()) > 0:
            udp.settimeout(left)
            try:
                if udp.recv(1 << 16) == answer:
                    return True
            except OSError:
                break
    return False


def hole(one: str, other: str, mine: Interface, its: Interface, found: dict[str, Any]) -> str:
    """What is wrong between two nodes, with the fix; "" where all is well. `found`: by `measure_path` on `one`."""
    if found["tcp"]:
        return (
            f"no TCP connection from {one} ({mine.address}) to {other} ({its.address}): {found['tcp']}. The nodes of a "
            f"job connect to each other on ports that the system chooses: let all TCP pass between them"
        )
    if found["out"] is None:
        if found["stream"]:
            return ""
        return f"small packets pass between {one} and {other}, and a megabyte does not: {_mtu(mine, its, 0)}"
    least = min(found["out"], found["back"])
    for sender, taker, size, passed in (
        (one, other, mine.mtu - HEADERS, found["out"]),
        (other, one, its.mtu - HEADERS, found["back"]),
    ):
        if passed < size:
            most = f"{passed} bytes do" if passed else "small ones do"
            return f"packets with {size} bytes don't get from {sender} to {taker}, and {most}: {_mtu(mine, its, least)}"
    return ""


def _mtu(mine: Interface, its: Interface, passed: int) -> str:
    """`passed`: the largest payload that passes both ways; 0 where that was not measured."""
    to = str(passed + HEADERS) if passed else "…"
    return (
        f"the MTU is {mine.mtu} on {mine.name} and {its.mtu} on {its.name}, and something between them carries less. "
        f"Large tensors would hang. Set the same, smaller MTU on both ends (`ip link set dev {mine.name} mtu {to}`), "
        f"or raise it on the bridge or tunnel between them"
    )


def main(verb: str, words: str) -> None:
    """Prints a JSON line."""
    if verb == "listen":
        listen(words)
    elif verb == "towards":
        print(json.dumps(list(towards(words))))
    elif verb == "named":
        print(json.dumps(list(named(*json.loads(words)))))
    else:
        own, other, udp, tcp = json.loads(words)
        print(json.dumps(measure_path(Interface(*own), Interface(*other), udp, tcp)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
