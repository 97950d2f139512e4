"""A bad network for the tests: two networks with nothing but a wire between them, on which packets are lost.

Each end is a TUN device in a network namespace of its own; a thread of this process carries IP packets from one to the
other, or does not. So unlike at a gateway no side ever hears of it: no reset, no error, no ICMP. Needs root and
/dev/net/tun on Linux, and neither `ip` nor a module of the kernel for loss.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import select
import shutil
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.simulators.gateway import (
    IFF_UP,
    SIOCGIFFLAGS,
    SIOCSIFFLAGS,
    elsewhere,
    enter,
    new_network,
    raise_loopback,
    socket_in,
)
from tests.simulators.host import Host

NEAR, FAR = "10.77.0.1", "10.77.0.2"
"""Of the only two addresses there: these networks lead nowhere else, so they may be the same in every test."""
MTU = 1500
TCP_SYN = 0x2
TUN = Path("/dev/net/tun")
IFF_TUN, IFF_NO_PI, TUNSETIFF = 0x1, 0x1000, 0x400454CA
SIOCSIFADDR, SIOCSIFNETMASK = 0x8916, 0x891C
END_SECONDS = 120.0


@functools.cache
def missing() -> str:
    """Why there can be no such wire here, which is tried; empty where there can."""
    what = f"a wire that loses packets takes root, network namespaces and {TUN}"
    if os.geteuid() != 0 or shutil.which("nsenter") is None:
        return f"{what}, and nsenter (util-linux)"
    try:
        Wire().close()
    except OSError as error:
        return f"{what}: {error}"
    return ""


def require() -> None:
    """Skips the test where the system lets nobody have such a wire, with what is in the way."""
    import pytest

    if why := missing():
        pytest.skip(f"NOT TESTED: {why}")


class Wire:
    """What is set takes effect with the next packet. `loss`: the share of packets that vanish, either way. `disorder`:
    the share that comes twice, and the share that comes after the one behind it. `widest_out`, `widest_back`: bytes of
    the largest packet that gets to the far end, and from it; larger ones vanish.

    `networks`: descriptors of the near one's namespace, and the far one's; none once it is closed.
    `back`: bytes of TCP streams that came back, each once: what TCP sends again, because of a loss, is no new byte.
    `vanished`: packets that were not carried. `broken`: see `after`.
    """

    def __init__(self, seed: int = 0) -> None:
        self.loss = self.disorder = 0.0
        self.widest_out = self.widest_back = MTU
        self.back = self.vanished = 0
        self._came: dict[tuple[int, int], int] = {}
        self.broken = threading.Event()
        self._dice = random.Random(seed)
        self._left: int | None = None
        self._fault: Callable[[], None] = self.silence
        self._late: dict[int, bytes] = {}
        self._before = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.networks = [elsewhere(new_network) for _ in (NEAR, FAR)]
        self._ends = [_end(*place) for place in zip(self.networks, (NEAR, FAR), strict=True)]
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        self._thread.start()

    @property
    def there(self) -> tuple[str, ...]:
        """What stands before a command that is to run at the far end."""
        return ("nsenter", f"--net=/proc/{os.getpid()}/fd/{self.networks[1]}")

    @contextlib.contextmanager
    def near(self) -> Iterator[None]:
        """This thread, and what it starts from now on, is at the near end; what runs already stays where it is."""
        enter(self.networks[0])
        try:
            yield
        finally:
            enter(self._before)

    def silence(self) -> None:
        """Nothing gets through any more."""
        self.narrow(0, 0)

    def narrow(self, out: int = MTU, back: int = MTU) -> None:
        """Sets the widest packets that get through."""
        self.widest_out, self.widest_back = out, back

    def after(self, count: int, fault: Callable[[], None]) -> None:
        """Calls `fault` once `count` more bytes were carried, either way; `broken` is set then."""
        self._left, self._fault = count, fault

    def heal(self) -> None:
        """From now on it loses nothing."""
        self._left = None
        self.loss = self.disorder = 0.0
        self.widest_out = self.widest_back = MTU
        self.broken.clear()

    def close(self) -> None:
        """Ends whatever is at either end, and both networks with it. Idempotent."""
        if not self.networks:
            return
        ends = time.monotonic() + END_SECONDS
        while found := self._inhabitants():
            assert time.monotonic() < ends, f"{found} survive"
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        os.close(self._stopped)
        self._thread.join(END_SECONDS)
        for descriptor in (self._stop, self._before, *self._ends, *self.networks):
            os.close(descriptor)
        self.networks = []

    def _inhabitants(self) -> list[int]:
        networks = {os.fstat(network).st_ino for network in self.networks}
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                stat = Path("/proc", name, "stat").read_bytes()
                state = stat[stat.rindex(b")") + 2 :][:1]
                if int(name) != os.getpid() and state != b"Z" and os.stat(f"/proc/{name}/ns/net").st_ino in networks:
                    found.append(int(name))
        return found

    def _carry(self) -> None:
        poll = select.poll()
        for descriptor in (self._stop, *self._ends):
            poll.register(descriptor, select.POLLIN)
        near, far = self._ends
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._stop:
                    return
                packet = os.read(descriptor, 1 << 16)
                if packet[0] >> 4 == 4:  # IPv6 looks around by itself
                    self._pass(packet, far if descriptor == near else near)

    def _pass(self, packet: bytes, to: int) -> None:
        outward = to == self._ends[1]
        if self._left is not None:
            self._left -= len(packet)
            if self._left <= 0:
                self._left = None
                self._fault()
                self.broken.set()
        if self._gone(len(packet), self.widest_out if outward else self.widest_back):
            self.vanished += 1
            return
        packets = [packet]
        if self.disorder:
            if to not in self._late and self._dice.random() < self.disorder:
                self._late[to] = packet
                return
            packets += [packet] * (self._dice.random() < self.disorder)
        if to in self._late:
            packets.append(self._late.pop(to))
        for one in packets:
            os.write(to, one)
            if not outward:
                self.back += self._new_bytes(one)

    def _new_bytes(self, packet: bytes) -> int:
        """By how much it is further in its TCP stream than what came before."""
        head = (packet[0] & 0xF) * 4
        if packet[9] != socket.IPPROTO_TCP:
            return 0
        source, to, number = struct.unpack_from("!HHI", packet, head)
        begins = bool(packet[head + 13] & TCP_SYN)
        end = number + len(packet) - head - (packet[head + 12] >> 4) * 4 + begins
        before = end if begins else self._came.get((source, to), number)
        new = (end - before) % (1 << 32)
        if new >= 1 << 31:  # it came before, or is older than what did
            return 0
        self._came[source, to] = end
        return new

    def _gone(self, size: int, widest: int) -> bool:
        return size > widest or self._dice.random() < self.loss


class FarHost(Host):
    """A host of the user's own at the far end of a wire."""

    at = FAR
    quick = ""

    def __init__(self, folder: Path, wire: Wire) -> None:
        self.before = wire.there
        super().__init__(folder)


def _end(network: int, address: str) -> int:
    """The descriptor of a TUN device in a network, which is up and has this address."""

    def make() -> int:
        enter(network)
        tun = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"wire", IFF_TUN | IFF_NO_PI))
        return tun

    tun = elsewhere(make)
    raise_loopback(network)
    with socket_in(network) as handle:
        for request, value in ((SIOCSIFADDR, address), (SIOCSIFNETMASK, "255.255.255.252")):
            words = (b"wire", socket.AF_INET, 0, socket.inet_aton(value))
            fcntl.ioctl(handle, request, struct.pack("16sHH4s16x", *words))
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(handle, SIOCGIFFLAGS, struct.pack("16sh22x", b"wire", 0)))
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh22x", b"wire", flags | IFF_UP))
    return tun
