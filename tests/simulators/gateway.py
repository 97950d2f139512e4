"""The two ways of a machine: a loopback port of the host whose connections end in its own network, and the other way.

The gateway stands where a platform's port mapping stands, the outlet where the internet begins; so this is also where
connections are cut, fall silent, or are counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.addresses import port_for_a_program

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8913, 0x8914, 0x8916, 0x1
CHUNK = 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)
T = TypeVar("T")


def elsewhere(do: Callable[[], T]) -> T:
    """In a thread that ends then, and takes the network that it entered along. Raises the OSError that `do` raised."""
    made: list[T | OSError] = []

    def run() -> None:
        try:
            made.append(do())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def new_network() -> int:
    """This thread is in a network namespace of its own from now on: a descriptor of it. Needs root."""
    if _libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(network: int) -> None:
    """This thread is in another network namespace from now on (a descriptor of its /proc/PID/ns/net). Needs root."""
    if _libc.setns(network, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def socket_in(network: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A socket that lives in another network namespace, where it stays; only a thread that ends then ever enters it."""

    def make() -> socket.socket:
        enter(network)
        return socket.socket(type=kind)

    return elsewhere(make)


def raise_loopback(network: int) -> None:
    """What `ip link set lo up` does, in another network namespace."""
    with socket_in(network) as handle:
        request = fcntl.ioctl(handle, SIOCGIFFLAGS, struct.pack("16sh22x", b"lo", 0))
        (flags,) = struct.unpack_from("16xh", request)
        fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))


def add_address(network: int, address: str) -> None:
    """One more address of the loopback in another network namespace. With 127.0.0.1 alone, programs that resolve names
    with AI_ADDRCONFIG take the machine for one without IPv4."""
    with socket_in(network) as handle:
        there = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(handle, SIOCSIFADDR, struct.pack("16s16s8x", b"lo:1", there))


class Relay:
    """Listens at a port of loopback in one network, and passes on to another one: what a gateway and an outlet share.

    `near`, `far`: make a socket in the network where it listens, and in the one where it connects to port `inside`.
    `port` 0: a free one; `at`: of which address. `to_machine`, `from_machine`: bytes passed on to the far side, and
    back from it, over all connections, since it was made.
    """

    def __init__(
        self,
        near: Callable[[], socket.socket],
        far: Callable[[], socket.socket],
        inside: int,
        *,
        port: int = 0,
        at: str = "127.0.0.1",
    ) -> None:
        self._far, self.inside = far, inside
        self.to_machine = self.from_machine = 0
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._closed = False
        self._budget: int | None = None
        self._rate: float | None = None
        self._listener = near()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((at, port or port_for_a_program()))  # it may come back to it
        self._listener.listen(128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name=f"relay-{self.port}", daemon=True).start()

    def cut(self) -> None:
        """Resets every connection that there is. New ones are taken."""
        with self._lock:
            torn = list(self._open)
            self._open.clear()
        for one in torn:
            _tear(one)

    def cut_after(self, count: int) -> None:
        """Resets all connections once `count` more bytes have come from the machine; once."""
        self._budget = self.from_machine + count

    def silence(self, silent: bool = True) -> None:
        """Nothing passes any more, and nothing is refused: a dead link. With False, it goes on where it was."""
        if silent:
            self._flowing.clear()
        else:
            self._flowing.set()

    def slow(self, bytes_per_second: float | None) -> None:
        """Caps each connection's way from the machine. None: as fast as it goes."""
        self._rate = bytes_per_second

    def answers(self) -> bool:
        """Does something listen behind it?"""
        with self._reaching() as far:
            return far is not None

    def close(self) -> None:
        """Refuses from now on; what is open is reset. Idempotent."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self._flowing.set()
        self.cut()

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[socket.socket | None]:
        far = self._far()
        try:
            far.settimeout(5)
            far.connect(("127.0.0.1", self.inside))
            yield far
        except OSError:
            yield None
        finally:
            far.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._flowing.wait()
        try:
            far = self._far()
            far.connect(("127.0.0.1", self.inside))
        except OSError:
            _tear(near)
            return
        with self._lock:
            self.connections += 1
            self._open |= {near, far}
        if self._closed:
            self.cut()
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._pump, args=(near, far, False), daemon=True).start()
        self._pump(far, near, True)

    def _pump(self, source: socket.socket, sink: socket.socket, outward: bool) -> None:
        """Moves bytes inside the kernel: what passes here must not cost the test that runs in this process."""
        held, fill = os.pipe()
        try:
            fcntl.fcntl(fill, fcntl.F_SETPIPE_SZ, CHUNK)
            while count := os.splice(source.fileno(), fill, CHUNK):
                self._flowing.wait()
                if outward and self._rate:
                    time.sleep(count / self._rate)
                self._pass_on(held, sink, count, outward)
            sink.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):  # torn, also between two looks: a closed socket has no descriptor
            for one in (source, sink):
                _tear(one)
        finally:
            os.close(held)
            os.close(fill)
        with self._lock:
            done = source not in self._open or sink not in self._open
            self._open.discard(source)
        if done:  # the other way has ended, too
            for one in (source, sink):
                one.close()

    def _pass_on(self, held: int, sink: socket.socket, count: int, outward: bool) -> None:
        while count:
            if outward and self._budget is not None:
                allowed = self._budget - self.from_machine
                if allowed <= 0:
                    self._budget = None
                    self.cut()
                    raise ConnectionResetError
                moved = os.splice(held, sink.fileno(), min(count, allowed))
            else:
                moved = os.splice(held, sink.fileno(), count)
            count -= moved
            if outward:
                self.from_machine += moved
            else:
                self.to_machine += moved


class Gateway(Relay):
    """Listens on an address of the host's loopback and passes on to `inside` (a port) of a machine's network."""

    def __init__(self, network: int, inside: int, *, port: int = 0, at: str = "127.0.0.1") -> None:
        super().__init__(socket.socket, lambda: socket_in(network), inside, port=port, at=at)


class Outlet(Relay):
    """Listens at a port of 127.0.0.1 of a machine's network and passes on to the host's: the only way out of it."""

    def __init__(self, network: int, port: int) -> None:
        super().__init__(lambda: socket_in(network), socket.socket, port, port=port)

    def silence(self, silent: bool = True) -> None:
        """As a gateway's; but what was sent meanwhile never arrives."""
        if not silent:
            self.cut()
        super().silence(silent)

    def _connect(self, near: socket.socket) -> None:
        if not self._flowing.is_set():
            self._flowing.wait()
            _tear(near)
            return
        super()._connect(near)


def _tear(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST, not FIN
        one.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or writes
    one.close()


def network_of(pid: int) -> int:
    """A descriptor of the network namespace of a process."""
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
