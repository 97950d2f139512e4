"""The wire itself does what it says: or nothing that is shown by it would mean anything."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulators import wire
from tests.simulators.gateway import socket_in
from tests.simulators.wire import FAR, NEAR, Wire

HEADERS = 28
"""Of UDP over IPv4."""
SECONDS = 120.0


@pytest.fixture
def between() -> Iterator[Wire]:
    wire.require()
    made = Wire(seed=1)
    yield made
    made.close()


@pytest.fixture
def ends(between: Wire) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets that send datagrams to each other."""
    made = []
    for network, here in zip(between.networks, (NEAR, FAR), strict=True):
        with socket_in(network, socket.SOCK_DGRAM) as one:
            one.bind((here, 0))
            one.settimeout(SECONDS)
            made.append(one.dup())
    near, far = made
    near.connect(far.getsockname())
    far.connect(near.getsockname())
    yield near, far
    near.close()
    far.close()


def sent(between: Wire, near: socket.socket, far: socket.socket, words: list[bytes]) -> list[bytes]:
    """What comes of these words. Once all of them were on the wire it is well again."""
    between.after(sum(len(word) + HEADERS for word in words) + 1, between.heal)
    for word in [*words, b"last"]:
        near.send(word)
    return list(iter(lambda: far.recv(2000), b"last"))


def test_packets_vanish_by_size_by_chance_and_all_of_them(
    between: Wire, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, far = ends
    between.narrow(back=1000)
    near.send(b"x" * 1400)
    assert len(far.recv(2000)) == 1400, "only the way back is narrow"
    for size in (1000 - HEADERS + 1, 1000 - HEADERS):
        far.send(b"x" * size)
    assert len(near.recv(2000)) == 1000 - HEADERS
    assert between.vanished == 1
    between.heal()
    between.loss = 0.3
    came = sent(between, near, far, [b"%d" % number for number in range(200)])
    assert 30 < 200 - len(came) < 90, "about every third"
    assert came == sorted(came, key=int), "loss is not disorder"
    between.silence()
    assert sent(between, near, far, [b"never", b"never"]) == []


def test_packets_come_twice_and_late(between: Wire, ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    between.disorder = 0.2
    came = sent(between, near, far, [b"%d" % number for number in range(100)])
    assert set(came) >= {b"%d" % number for number in range(99)}
    assert len(came) > 105
    assert came != sorted(came, key=int)


def opened() -> list[str]:
    """The networks and network devices that this process holds open. What other tests of the process left open, and
    what the garbage collector closes of it meanwhile, is of another kind."""
    links = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            links.append(os.readlink(one))
    return sorted(link for link in links if link.startswith("net:") or link == wire.TUN)


def wires() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "wire"]


def test_nothing_of_it_stays_and_this_thread_is_back_where_it_was() -> None:
    wire.require()
    before = os.readlink("/proc/thread-self/ns/net"), opened(), wires()
    made = Wire()
    assert (opened(), wires()) != before[1:]
    with made.near():
        inside = os.readlink("/proc/thread-self/ns/net")
        pid = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "305")
    assert inside != before[0]
    made.close()
    made.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) < 0, "it was left running"
    assert (os.readlink("/proc/thread-self/ns/net"), opened(), wires()) == before
    networks = set()
    for one in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            networks.add(os.readlink(one))
        except OSError:
            continue
    assert inside not in networks
