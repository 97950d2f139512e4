"""Runs one command in a pod, as `ssh` does on a host: its stdin, stdout and stderr are ours.

A program of its own, which imports next to nothing, so that it starts at once. What it needs is read from a descriptor
that its only argument names, as JSON (`Facts`): a token in an argument could be read by all.
It speaks to the API server's `exec` by websocket (`v5.channel.k8s.io`; `v4` on servers before 1.30, which can't be told
that the input has ended). One thread, bounded memory: what is not taken on one side is not read on the other.

Ends with the command's exit code; 255 and one line (on stderr, or in the file `report`) where the pod can't be reached,
or the connection breaks: what runs in the pod then sees its input end.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import ssl
import struct
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidMessage, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import Event
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from sweepstack.onbox.common.errors import Unreachable, one_line

Facts = dict[str, Any]
"""What `Cluster.exec_facts` has, its `path` with the query. `own`: stdin, stdout and stderr are ours alone, and the
other side takes its input as it comes. `patience`: seconds for which a container that just begins is waited for.
`terminal`: they are a person's terminal. `pieces`: the input is passed on as `onbox/leash.py` takes it. `report`: a
file for our own words, "" for stderr."""

LOST, CUT = 255, 141
"""Exit codes: the connection is lost; what reads our stdout is gone."""
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V5, V4 = Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")
NOT_YET = "container not found"
"""What a node says of a container that it does not run: nothing was begun in it."""
AGAIN_SECONDS = 0.1
CONNECT_SECONDS = 30.0
"""For all of it: the connection, TLS and the server's answer."""
PING_SECONDS, DEAD_SECONDS = 10.0, 30.0
"""Where nothing is heard for so long, the server is asked; and given up."""
LAST_SECONDS = 5.0
"""From the command's end to the connection's."""
CHUNK, HIGH = 1 << 15, 1 << 20
MOST_WORDS, MOST_FRAME = 1 << 16, 1 << 24
PIPE_BUF = 4096
"""So much can be written without blocking to a pipe that has room."""


# -- the connection


def connected(facts: Facts) -> tuple[socket.socket, ClientProtocol, list[Event]]:
    """A websocket: the connection, its protocol, what came already. Raises Unreachable within `CONNECT_SECONDS`."""
    ends = time.monotonic() + CONNECT_SECONDS
    where = urlsplit(facts["host"] if "//" in facts["host"] else f"https://{facts['host']}")
    host, secure = where.hostname or "", where.scheme != "http"
    port = where.port or (443 if secure else 80)
    at = f"the API server at {host}:{port}"
    target = f"{'wss' if secure else 'ws'}://{where.netloc.rpartition('@')[2]}{where.path.rstrip('/')}{facts['path']}"
    try:
        connection = _opened(facts.get("proxy") or "", host, port, ends)
        if secure:
            name = facts.get("server_name") or host
            connection.settimeout(_left(ends))
            connection = _context(facts).wrap_socket(connection, server_hostname=name)
        return (connection, *_upgraded(connection, target, facts.get("headers", {}), at, ends))
    except TimeoutError as error:
        raise Unreachable(f"{at} does not answer within {CONNECT_SECONDS:g} s") from error
    except (OSError, ValueError) as error:
        raise Unreachable(f"{at} can't be reached: {one_line(error)}") from error


def _opened(proxy: str, host: str, port: int, ends: float) -> socket.socket:
    """Connected to the host, through an HTTP proxy where there is one."""
    if not proxy:
        connection = socket.create_connection((host, port), timeout=_left(ends))
    else:
        from http.client import HTTPConnection

        by = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        if by.scheme != "http":
            raise Unreachable(f"a stream to a pod can't go through a proxy of {by.scheme}://, but one of http://")
        known = f"{unquote(by.username or '')}:{unquote(by.password or '')}".encode()
        header = f"Basic {base64.b64encode(known).decode('ascii')}"
        through = HTTPConnection(by.hostname or "", by.port or 80, timeout=_left(ends))
        through.set_tunnel(host, port, {"Proxy-Authorization": header} if by.username is not None else {})
        through.connect()
        connection = through.sock
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPALIVE", 10), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _context(facts: Facts) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=facts.get("ca") or None)
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # clusters' own authorities leave out what it asks for
    context.set_alpn_protocols(["http/1.1"])
    if not facts.get("verify", True):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if facts.get("cert"):
        context.load_cert_chain(facts["cert"], facts.get("key") or None)
    return context


def _upgraded(
    connection: socket.socket, target: str, headers: dict[str, str], at: str, ends: float
) -> tuple[ClientProtocol, list[Event]]:
    """Asks for a websocket, and follows no redirect: the token is for this server."""
    if any("\r" in text or "\n" in text for text in headers.values()):
        raise Unreachable("a header for the API server has a line break in it: is the token's file right?")
    protocol = ClientProtocol(parse_uri(target), subprotocols=[V5, V4], max_size=MOST_FRAME)
    request = protocol.connect()
    request.headers.update(headers)
    protocol.send_request(request)
    connection.settimeout(_left(ends))
    connection.sendall(b"".join(protocol.data_to_send()))
    events: list[Event] = []
    while not events and protocol.handshake_exc is None:
        connection.settimeout(_left(ends))
        data = connection.recv(1 << 14)
        protocol.receive_data(data) if data else protocol.receive_eof()
        events = protocol.events_received()
    if isinstance(protocol.handshake_exc, InvalidStatus):
        answer = protocol.handshake_exc.response
        raise Unreachable(_refused(answer.status_code, bytes(answer.body or b""), at))
    if isinstance(protocol.handshake_exc, InvalidMessage):
        raise Unreachable(f"{at} gives no answer that a server of HTTP would: {one_line(protocol.handshake_exc)}")
    if protocol.handshake_exc is not None or protocol.subprotocol is None:
        raise Unreachable(f"{at} answers as none would that runs commands in pods: is a proxy on the way?")
    return protocol, events[1:]


def _refused(status: int, body: bytes, at: str) -> str:
    text = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, AttributeError):
        text = str(json.loads(text).get("message") or text)
    return f"{at} answers {status}: {one_line(text)[:2000] or 'without a word'}"


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


# -- the bridge


class Bridge:
    """Passes bytes on until the command has ended. `run` returns its exit code."""

    def __init__(
        self, facts: Facts, connection: socket.socket, protocol: ClientProtocol, came: Sequence[Event], given: bytes
    ) -> None:
        """`given`: input that was read before."""
        self.kept = bytearray(given)
        """The input, as long as it is not known that a command takes it."""
        self._own, self._terminal = bool(facts.get("own")), bool(facts.get("terminal"))
        self._pieces = bool(facts.get("pieces"))
        self.begun = self._terminal or self._pieces or not facts.get("patience")
        """Whether something came from a command, or the input can't be given again."""
        self._given = 0
        """Bytes of a person's input. Where it is more than any pipe holds, a sign of life may wait behind what the
        command has not taken: then only the system finds out that a server is dead."""
        self._connection, self._protocol, self._came = connection, protocol, came
        self._channel: int | None = None
        """Of the message that is under way: its first byte. None while that did not come."""
        self._out = bytearray()
        self._pending = {1: bytearray(), 2: bytearray()}
        self._status = b""
        self._input, self._open = True, True
        self._ended_at = 0.0
        self._heard, self._asked = time.monotonic(), 0.0
        """When something came last, and when the server was asked for a sign of life since then; 0: it was not."""
        self._wake, self._woken = os.pipe()

    def close(self) -> None:
        """Lets go of all but stdin, stdout and stderr."""
        self._connection.close()
        os.close(self._wake)
        os.close(self._woken)

    def run(self) -> int:
        """Raises Unreachable."""
        self._connection.setblocking(False)
        if self._own:
            for descriptor in (0, 1, 2):
                os.set_blocking(descriptor, False)
        self._take(self._came)
        for at in range(0, len(self.kept), CHUNK):
            self._give(bytes([STDIN]), bytes(self.kept[at : at + CHUNK]))
        with self._raw():
            while self._open or any(self._pending.values()):
                self._turn()
                if self._ended_at and time.monotonic() - self._ended_at > LAST_SECONDS and not self._full():
                    self._open = False
                if not self._open and not self._ended_at:
                    break
        if not self._ended_at:
            raise Unreachable("the connection to the pod broke: whether what ran there has ended is not known")
        return self._code()

    def _turn(self) -> None:
        poller, wanted = select.poll(), self._wanted()
        for descriptor, events in wanted.items():
            poller.register(descriptor, events)
        pause = 0.2 if self._ended_at else min(1.0, PING_SECONDS / 2)
        ready = dict(poller.poll(0 if self._buffered() else pause * 1000))
        own = self._connection.fileno()
        if own in ready or self._buffered():
            self._receive()
        if self._out and self._open:
            self._send()
        if 0 in ready and self._open:
            self._read()
        for descriptor in (1, 2):
            if self._pending[descriptor] and descriptor in ready:
                self._write(descriptor)
        if self._wake in ready:
            os.read(self._wake, 4096)
            self._resize()
        if self._open:
            self._keep_alive()

    def _wanted(self) -> dict[int, int]:
        wanted = {self._wake: select.POLLIN}
        if self._open:
            events = (0 if self._full() else select.POLLIN) | (select.POLLOUT if self._out else 0)
            wanted[self._connection.fileno()] = events
        if self._input and self._open and not self._ended_at and len(self._out) < HIGH:
            wanted[0] = select.POLLIN
        return wanted | {descriptor: select.POLLOUT for descriptor, waiting in self._pending.items() if waiting}

    def _full(self) -> bool:
        return max(len(waiting) for waiting in self._pending.values()) >= HIGH

    def _buffered(self) -> bool:
        """Whether TLS has bytes already, of which the socket says nothing."""
        known = self._open and not self._full() and isinstance(self._connection, ssl.SSLSocket)
        return known and self._connection.pending() > 0  # type: ignore[attr-defined]

    # -- the server

    def _receive(self) -> None:
        while not self._full():
            try:
                data = self._connection.recv(1 << 16)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                if self._ended_at:
                    data = b""
                else:
                    raise Unreachable(f"the connection to the pod broke: {one_line(error)}") from error
            if not data:
                self._open = False
                return
            self._protocol.receive_data(data)
            self._take(self._protocol.events_received())
            if self._protocol.parser_exc is not None:
                words = one_line(self._protocol.parser_exc)
                raise Unreachable(f"the API server does not keep to the protocol of websockets: {words}")
            if not self._open or any(len(waiting) >= CHUNK for waiting in self._pending.values()):
                return  # pass that on first

    def _take(self, events: Sequence[Event]) -> None:
        self._heard, self._asked = time.monotonic(), 0.0
        for frame in events:
            if not isinstance(frame, Frame) or frame.opcode in (Opcode.PING, Opcode.PONG):
                continue
            if frame.opcode is Opcode.CLOSE:
                self._open = False
                return
            self._passed_on(frame)
        self._out += b"".join(self._protocol.data_to_send())  # answers to its signs of life

    def _passed_on(self, frame: Frame) -> None:
        piece = bytes(frame.data)
        if self._channel is None and piece:
            self._channel, piece = piece[0], piece[1:]
        if self._channel in (STDOUT, STDERR):
            self.begun = self.begun or bool(piece)
            self._pending[self._channel] += piece
        elif self._channel == STATUS and piece and len(self._status) < MOST_WORDS:
            self._status += piece
            self._ended_at = self._heard
        if frame.fin:
            self._channel = None

    def _give(self, *parts: bytes) -> None:
        if not self._open:
            return
        self._protocol.send_binary(b"".join(parts))
        self._out += b"".join(self._protocol.data_to_send())

    def _send(self) -> None:
        while self._out:
            try:
                del self._out[: self._connection.send(memoryview(self._out)[:CHUNK].tobytes())]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError as error:
                if self._ended_at:
                    self._out.clear()
                    return
                raise Unreachable(f"the connection to the pod broke: {one_line(error)}") from error

    def _keep_alive(self) -> None:
        now = time.monotonic()
        if self._full():  # what came is not read: nothing is known of the server
            self._heard, self._asked = now, 0.0
        silent = now - self._heard
        unanswered = self._asked and now - self._asked >= DEAD_SECONDS - PING_SECONDS
        judged = self._own or self._terminal or self._given <= PIPE_BUF
        if unanswered and judged and not self._out:
            raise Unreachable(f"nothing came from the API server for {silent:.0f} s: the connection is given up")
        if silent >= PING_SECONDS and not self._asked and not self._out:
            self._protocol.send_ping(b"")
            self._out += b"".join(self._protocol.data_to_send())
            self._asked = now
            self._send()

    # -- this side

    def _read(self) -> None:
        try:
            data = os.read(0, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # a terminal that hung up
            data = b""
        self._input = bool(data)
        self._given += len(data)
        if not self.begun:
            self.kept += data
            self.begun = len(self.kept) > HIGH
        if self._pieces:
            self._give(bytes([STDIN]), struct.pack(">I", len(data)), data)
        elif data:
            self._give(bytes([STDIN]), data)
        elif self._protocol.subprotocol == V5:
            self._give(bytes([CLOSE, STDIN]))
        elif self._own:  # nothing can be said to the command, and nothing more is wanted of it
            raise SystemExit(0)
        self._send()

    def _write(self, descriptor: int) -> None:
        waiting = self._pending[descriptor]
        most = 1 << 16 if self._own else PIPE_BUF
        try:
            while waiting:
                with memoryview(waiting) as view:
                    count = os.write(descriptor, view[:most])
                del waiting[:count]
                if not self._own:
                    return
        except BlockingIOError:
            return
        except BrokenPipeError as error:
            raise SystemExit(CUT) from error

    @contextlib.contextmanager
    def _raw(self) -> Iterator[None]:
        """A person's terminal passes each key on, and its size."""
        if not self._terminal or not os.isatty(0):
            yield
            return
        before = termios.tcgetattr(0)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGWINCH, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda ended_by, _frame: sys.exit(128 + ended_by))
        try:
            tty.setraw(0)
            self._resize()
            yield
        finally:
            termios.tcsetattr(0, termios.TCSADRAIN, before)

    def _resize(self) -> None:
        with contextlib.suppress(OSError):
            rows, columns = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))[:2]
            said = json.dumps({"Width": columns, "Height": rows}).encode("ascii")
            self._give(bytes([RESIZE]), said)

    # -- how it ended

    def _code(self) -> int:
        """Of the server's last words. Raises Unreachable where the command did not run, or its end was not seen."""
        try:
            said = json.loads(self._status)
            if said.get("status") == "Success":
                return 0
            causes = (said.get("details") or {}).get("causes") or ()
            if said.get("reason") == "NonZeroExitCode":
                return next(int(one["message"]) for one in causes if one.get("reason") == "ExitCode") & 255
            raise Unreachable(one_line(str(said.get("message") or said))[:2000])
        except (ValueError, AttributeError, KeyError, TypeError, StopIteration) as error:
            words = one_line(self._status.decode("utf-8", "replace"))
            raise Unreachable(f"the API server says how it ended in words of its own: {words[:500]}") from error


def _say(facts: Facts, text: str) -> None:
    data = f"{text}\n".encode()
    if facts.get("report"):
        with open(facts["report"], "ab") as report:
            report.write(data)
    else:
        with contextlib.suppress(OSError):
            os.set_blocking(2, True)
            os.write(2, data)


def main(argv: list[str]) -> int:
    """See the module. Blocks until the command has ended."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with os.fdopen(int(argv[1]), "rb") as source:
        facts: Facts = json.loads(source.read())
    until, given, begun = time.monotonic() + float(facts.get("patience") or 0), b"", False
    while True:
        try:
            bridge = Bridge(facts, *connected(facts), given)
            try:
                return bridge.run()
            finally:
                given, begun = bytes(bridge.kept), bridge.begun
                bridge.close()
        except Unreachable as error:
            if begun or NOT_YET not in str(error) or time.monotonic() > until:
                _say(facts, str(error))
                return LOST
        time.sleep(AGAIN_SECONDS)
