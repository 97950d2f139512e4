"""Lets the first node start programs on another one by TCP, where no ssh or scheduler does.

    nodes.py door FOLDER INDEX NAME ID ADDRESS          on each node but the first

A file in FOLDER, which all nodes see and only their user reads, says where it listens, with a secret of its own. Who
knows that holds the door (`lead`), one at a time and once: when the holder is gone, or silent, the door ends, and with
its container all that was started through it. Then each program (`enter`): its stdin, its end, what it prints.

    server: 32 random bytes                    client: length, JSON {verb, holder, argv}, their HMAC with the secret
    server: length, JSON {} or {refused}       then, for `hold`: bytes both ways, BEAT now and then; TOLD: this node was
    told to end; END and a byte: how all of it ended. For `run`: stdin as it is; frames of stdout, stderr, exit code.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from sweepstack.onbox.common.canonical import canonical_json, write_atomically
from sweepstack.onbox.common.errors import Unreachable

BEAT, TOLD, END = b".", b"t", b"e"
BEAT_SECONDS, SILENT_SECONDS, CONNECT_SECONDS = 2.0, 30.0, 10.0
JOIN_SECONDS = 600.0
"""So long nodes wait for each other; then each asks for another start, and what it had is free until then."""
AGAIN = 75
"""The exit code that asks for another start."""
MOST_HEADER = 1 << 22
OUT, ERR, EXIT = b"o", b"r", b"x"
HEAD = struct.Struct("!I")


class Wire:
    """What both sides do with a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self._sending = connection, threading.Lock()

    def exactly(self, size: int) -> bytes:
        """Raises EOFError where the other side is gone before."""
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise EOFError("the connection broke off")
            found += part
        return found

    def packet(self) -> bytes:
        """Raises EOFError, ValueError."""
        (size,) = HEAD.unpack(self.exactly(HEAD.size))
        if size > MOST_HEADER:
            raise ValueError("too long")
        return self.exactly(size)

    def send(self, data: bytes) -> None:
        """Raises OSError."""
        with self._sending:
            self.socket.sendall(data)

    def send_packet(self, data: bytes, kind: bytes = b"") -> None:
        """Raises OSError."""
        self.send(kind + HEAD.pack(len(data)) + data)


def write_private(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON file that its user alone can read. Raises OSError."""
    write_atomically(path, canonical_json(value), mode=0o600)


def entered(there: Mapping[str, Any], verb: str, holder: str, argv: Sequence[str] = ()) -> Wire:
    """A connection to a door. `there`: what its file says. Raises Unreachable, also where the door refuses."""
    name = str(there["name"])
    try:
        wire = Wire(socket.create_connection((there["address"], int(there["port"])), CONNECT_SECONDS))
        with contextlib.ExitStack() as failed:
            failed.callback(wire.socket.close)
            nonce = wire.exactly(32)
            words = json.dumps({"verb": verb, "holder": holder, "argv": list(argv)}).encode()
            wire.send_packet(words)
            wire.send(_signed(str(there["secret"]), nonce, words))
            said = json.loads(wire.packet())
            if "refused" in said:
                raise Unreachable(f"{name} {said['refused']}")
            failed.pop_all()
        wire.socket.settimeout(None)
        return wire
    except (OSError, EOFError, ValueError) as error:
        raise Unreachable(f"{name} ({there['address']}) can't be reached: {error}") from error


def _signed(secret: str, nonce: bytes, words: bytes) -> bytes:
    return hmac.new(secret.encode(), nonce + words, hashlib.sha256).digest()


class Door:
    """One node's. Use it once, from the main thread."""

    def __init__(self, folder: Path, index: str, name: str, ident: str, address: str) -> None:
        self.secret = secrets.token_hex(32)
        self.file = folder / f"{index}-{ident}.json"
        self.listening = socket.socket()
        self.listening.bind((address, 0))
        self.listening.listen(64)
        self.listening.settimeout(0.2)
        self.facts = {"name": name, "id": ident, "address": address, "port": self.listening.getsockname()[1]}
        self.told = False
        self.holder: str | None = None
        self.code: int | None = None
        self._holding = threading.Lock()

    def run(self) -> int:
        """Blocks until its holder has ended, or none came in time. Returns the exit code."""
        signal.signal(signal.SIGTERM, self._on_signal)
        write_private(self.file, {**self.facts, "secret": self.secret})
        ends = time.monotonic() + JOIN_SECONDS
        try:
            while self.code is None:
                if self.holder is None and (self.told or time.monotonic() > ends):
                    return AGAIN
                with contextlib.suppress(socket.timeout):
                    connection = self.listening.accept()[0]
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            return self.code
        finally:
            with contextlib.suppress(OSError):
                self.file.unlink()

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self.told = True

    def _serve(self, connection: socket.socket) -> None:
        wire = Wire(connection)
        with contextlib.suppress(OSError, EOFError, ValueError, KeyError, TypeError), connection:
            connection.settimeout(CONNECT_SECONDS)
            nonce = secrets.token_bytes(32)
            wire.send(nonce)
            words = wire.packet()
            if not hmac.compare_digest(wire.exactly(32), _signed(self.secret, nonce, words)):
                return
            asked = json.loads(words)
            why = self._refusal(asked)
            wire.send_packet(json.dumps({"refused": why} if why else {}).encode())
            if why:
                return
            connection.settimeout(None)
            if asked["verb"] == "hold":
                self._held(wire)
            else:
                _run(wire, [str(word) for word in asked["argv"]])

    def _refusal(self, asked: Mapping[str, Any]) -> str:
        with self._holding:
            if asked["verb"] == "hold":
                if self.holder is not None or self.told:
                    return "is held by another worker, or ends"
                self.holder = str(asked["holder"])
            return "" if self.holder == asked["holder"] else "is held by another worker"

    def _held(self, wire: Wire) -> None:
        """Until the holder says how all of it ended, or is gone."""
        code, said = AGAIN, False
        try:
            for word in heard(wire):
                if word == END:
                    code = wire.exactly(1)[0]
                    break
                if self.told and not said:
                    said = True
                    wire.send(TOLD)
        except (OSError, EOFError):
            code = AGAIN
        self.code = code


def heard(wire: Wire) -> Iterator[bytes]:
    """The words of the other side, and b"" now and then; sends beats. Raises EOFError where it is gone, or silent."""
    spoke = told = time.monotonic()
    while True:
        now = time.monotonic()
        if now - told >= BEAT_SECONDS:
            told = now
            wire.send(BEAT)
        word = b""
        if select.select([wire.socket], [], [], 0.2)[0]:
            word = wire.exactly(1)
            spoke = time.monotonic()
        elif now - spoke > SILENT_SECONDS:
            raise EOFError(f"nothing is heard of it for {SILENT_SECONDS:.0f} s")
        yield word


def _run(wire: Wire, argv: list[str]) -> None:
    """Runs a program for the other side. When that is gone its stdin closes, as when it has ended its own."""
    try:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        wire.send_packet(str(error).encode(), ERR)
        wire.send_packet(b"127", EXIT)
        return

    def pass_on(source: Any, kind: bytes) -> None:
        while part := os.read(source.fileno(), 1 << 16):
            with contextlib.suppress(OSError):  # it is gone: its program has no reader, and must not wait for one
                wire.send_packet(part, kind)

    def feed() -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            while part := wire.socket.recv(1 << 16):
                process.stdin.write(part)
                process.stdin.flush()
        with contextlib.suppress(OSError):
            process.stdin.close()

    threads = [threading.Thread(target=pass_on, args=one) for one in ((process.stdout, OUT), (process.stderr, ERR))]
    threading.Thread(target=feed, daemon=True).start()
    for thread in threads:
        thread.start()
    code = process.wait()
    for thread in threads:
        thread.join(BEAT_SECONDS)  # what it left running may hold them open
    wire.send_packet(str(128 - code if code < 0 else code).encode(), EXIT)


def enter(record: str, node: str, *argv: str) -> int:
    """Runs a program on a node of a lead's record: stdin, stdout, stderr and exit code are the program's. 255 where
    it could not be reached, or the connection broke."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # of its group; it ends as its program does
        signal.signal(number, signal.SIG_IGN)
    try:
        known = json.loads(Path(record).read_bytes())
        wire = entered(known["nodes"][node], "run", str(known["holder"]), argv)
    except (OSError, ValueError, KeyError, Unreachable) as error:
        sys.stderr.write(f"enter: error: {error}\n")
        return 255

    def feed() -> None:
        with contextlib.suppress(OSError):
            while part := os.read(0, 1 << 16):
                wire.send(part)
        with contextlib.suppress(OSError):
            wire.socket.shutdown(socket.SHUT_WR)

    threading.Thread(target=feed, daemon=True).start()
    try:
        while (kind := wire.exactly(1)) != EXIT:
            _write(1 if kind == OUT else 2, wire.packet())
        return int(wire.packet())
    except (OSError, EOFError, ValueError) as error:
        sys.stderr.write(f"enter: error: {node}: {error}\n")
        return 255


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def main(*words: str) -> int:
    """See the module."""
    folder, index, name, ident, address = words
    return Door(Path(folder), index, name, ident, address).run()
