"""An API server's `exec`, with commands of this machine in the place of a pod's: strict about the protocol.

Channels: 0 stdin, 1 stdout, 2 stderr, 3 the status, 4 the terminal's size, 255 (v5) closes the one that it names.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import pty
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
TOKEN = "Bearer a-token"


class ExecServer:
    """`protocols`: those that it speaks. `refuses`: (status, message) for each request. `late`: so many commands
    find no container yet; `began`: what came from such a one before that. `piece`: a message is cut into frames of so
    many bytes. `mute`: it takes what comes, answers no ping, and runs nothing. `lose_after`: bytes of output after
    which the connection is reset. `tls`: (certificate, key) files."""

    def __init__(self, tls: tuple[str, str] | None = None) -> None:
        self.protocols: tuple[str, ...] = (V5, V4)
        self.refuses: tuple[int, str] | None = None
        self.late, self.began = 0, b""
        self.piece = 0
        self.mute = False
        self.lose_after: int | None = None
        self.faults: list[str] = []
        self.pings = 0
        self.sizes: list[dict[str, int]] = []
        self.asked: list[dict[str, list[str]]] = []
        self.commands: list[subprocess.Popen[bytes]] = []
        self._tls = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*tls)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self.host = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._door.close()
        self.cut()
        for process in self.commands:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def cut(self) -> None:
        """Resets all connections."""
        connections, self._connections = self._connections, []
        for one in connections:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._connections.append(connection)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (more := connection.recv(1)):
                    return
                head += more
            first, *lines = head.decode("latin-1").strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            self._begin(connection, first.split()[1], headers)
        except OSError:
            pass
        finally:
            with contextlib.suppress(OSError):
                connection.close()

    def _begin(self, connection: socket.socket, target: str, headers: dict[str, str]) -> None:
        if headers.get("authorization") != TOKEN:
            return self._refuse(connection, 401, "Unauthorized")
        if self.refuses is not None:
            return self._refuse(connection, *self.refuses)
        query: dict[str, list[str]] = {}
        for name, value in parse_qsl(urlsplit(target).query):
            query.setdefault(name, []).append(value)
        self.asked.append(query)
        offered = [one.strip() for one in headers["sec-websocket-protocol"].split(",")]
        spoken = next(one for one in offered if one in self.protocols)
        proof = hashlib.sha1(f"{headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        answer = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {base64.b64encode(proof).decode()}\r\nSec-WebSocket-Protocol: {spoken}\r\n\r\n"
        )
        connection.sendall(answer.encode())
        Session(self, connection, spoken, query).serve()
        return None

    @staticmethod
    def _refuse(connection: socket.socket, status: int, message: str) -> None:
        body = json.dumps({"kind": "Status", "status": "Failure", "message": message}).encode()
        head = f"HTTP/1.1 {status} No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)


class Session:
    """One command."""

    def __init__(
        self, server: ExecServer, connection: socket.socket, protocol: str, query: dict[str, list[str]]
    ) -> None:
        self.server, self.connection, self.protocol = server, connection, protocol
        self.lock = threading.Lock()
        self.sent = 0
        self.terminal = query.get("tty") == ["true"]
        self.argv = query["command"]

    def serve(self) -> None:
        if self.server.mute:
            with contextlib.suppress(OSError):
                while self.connection.recv(1 << 16):
                    pass
            return
        for channel in (1, 2, 3):
            self._message(channel, b"")  # as the real one does
        if self.server.late:
            self.server.late -= 1
            self._message(1, self.server.began)
            self._status({"status": "Failure", "reason": "InternalError", "message": _NOT_YET})
            return
        try:
            master = -1
            if self.terminal:
                master, slave = pty.openpty()
                process = subprocess.Popen(self.argv, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
                os.close(slave)
                into, outs = master, {1: master}
            else:
                pipe = subprocess.PIPE
                process = subprocess.Popen(self.argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
                assert process.stdin is not None
                assert process.stdout is not None
                assert process.stderr is not None
                into = os.dup(process.stdin.fileno())
                process.stdin.close()
                outs = {1: process.stdout.fileno(), 2: process.stderr.fileno()}
        except FileNotFoundError:
            self._status({"status": "Failure", "reason": "InternalError", "message": _NOT_FOUND.format(self.argv[0])})
            return
        self.server.commands.append(process)
        copies = [threading.Thread(target=self._copy, args=pair, daemon=True) for pair in outs.items()]
        threading.Thread(target=self._take, args=(into,), daemon=True).start()
        for copy in copies:
            copy.start()
        code = process.wait()
        for copy in copies:
            copy.join()
        code = 128 - code if code < 0 else code
        causes = [{"reason": "ExitCode", "message": str(code)}]
        failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        self._status(failed if code else {"status": "Success"})

    def _status(self, said: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._message(3, json.dumps({"kind": "Status", **said}).encode())
            self._frame(8, struct.pack(">H", 1000))
            self.connection.settimeout(2)
            time.sleep(0.05)

    def _copy(self, channel: int, source: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(source, 1 << 15):
                self._message(channel, data)
                self.sent += len(data)
                if self.server.lose_after is not None and self.sent > self.server.lose_after:
                    self.server.cut()
                    return

    def _take(self, into: int) -> None:
        """What the client sends, until it has gone."""
        with contextlib.suppress(OSError):
            while (frame := self._read()) is not None:
                opcode, data = frame
                if opcode == 9:
                    self.server.pings += 1
                    self._frame(10, data)
                elif opcode == 2 and data[:1] == b"\0":
                    left = memoryview(data)[1:]
                    while left:
                        left = left[os.write(into, left) :]
                elif opcode == 2 and data == b"\xff\0" and self.protocol == V5:
                    os.close(into)
                    into = -1
                elif opcode == 2 and data[:1] == b"\4":
                    self.server.sizes.append(json.loads(data[1:]))
                elif opcode != 8:
                    self.server.faults.append(f"{opcode} {data[:40]!r}")
        if into >= 0 and not self.terminal:
            with contextlib.suppress(OSError):
                os.close(into)

    def _read(self) -> tuple[int, bytes] | None:
        head = self._exactly(2)
        if head is None:
            return None
        if head[0] & 0x70 or not head[0] & 0x80 or not head[1] & 0x80:
            self.server.faults.append(f"frame {head!r}")
        size = head[1] & 127
        if size >= 126:
            more = self._exactly(2 if size == 126 else 8) or b""
            size = int.from_bytes(more, "big")
            if size < 126 or size > 1 << 20:
                self.server.faults.append(f"size {size}")
        mask, data = self._exactly(4), self._exactly(size)
        if mask is None or data is None:
            return None
        key = (mask * (size // 4 + 1))[:size]
        return head[0] & 15, (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")

    def _exactly(self, size: int) -> bytes | None:
        found = b""
        while len(found) < size:
            more = self.connection.recv(size - len(found))
            if not more:
                return None
            found += more
        return found

    def _message(self, channel: int, data: bytes) -> None:
        whole, piece = bytes([channel]) + data, self.server.piece or len(data) + 1
        parts = [whole[begin : begin + piece] for begin in range(0, len(whole), piece)]
        with self.lock:
            for index, part in enumerate(parts):
                self._send(0 if index else 2, part, final=index == len(parts) - 1)

    def _frame(self, opcode: int, data: bytes) -> None:
        with self.lock:
            self._send(opcode, data, final=True)

    def _send(self, opcode: int, data: bytes, *, final: bool) -> None:
        first, size = (0x80 if final else 0) | opcode, len(data)
        if size < 126:
            head = struct.pack(">BB", first, size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", first, 126, size)
        else:
            head = struct.pack(">BBQ", first, 127, size)
        self.connection.sendall(head + data)


_NOT_YET = 'Internal error occurred: unable to upgrade connection: container not found ("worker")'
_NOT_FOUND = (
    "Internal error occurred: error executing command in container: failed to exec in container: OCI runtime exec "
    'failed: exec failed: unable to start container process: exec: "{}": executable file not found in $PATH'
)


def until(what: Callable[[], bool], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)
