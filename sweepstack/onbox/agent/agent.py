"""The agent: runs on a rented box and serves its files and processes over a pipe.

It is sent over the connection with all that it imports (`agent_source`), so a box needs nothing of ours. Python 3.8 and
the standard library, as LocalChannel. File names are sent as JSON and never pass through a shell.

Both directions carry frames: a letter, a length (4 bytes, big endian), that many bytes. J is JSON, D is data. A request
is one J, and the data that it announces; an answer is any number of D, then one J: {"ok": …} or {"error": …}. A Z may
stand in the place of a D: no bytes follow it, and it means so many zeros.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.agent.file_walk import newest
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout, holes
from sweepstack.onbox.common.errors import NotAFile, NotYetGone, PlatformError, SweepstackError, Unreachable
from sweepstack.onbox.common.mount_points import mount_points

HEADER = struct.Struct(">cI")
CHUNK = 1 << 20
MOST_JSON = 256 << 20
MOST_TAILS = 64 << 20
"""Bytes of all tails of one answer together."""
MOST_READ = 256 << 20
"""The most bytes that one `read` returns. Larger files are fetched."""
TOGETHER = 1 << 17
"""Bytes of small files that are collected for one write."""
IDLE_SECONDS = 120.0
"""An agent that gets no request for so long ends."""
RENEW_SECONDS = 60.0
"""So often the lease of a box is renewed while files are sent to it."""


class Cut(SweepstackError):
    """The other end is gone, or does not keep to the protocol. Handled inside this package."""


class Wire:
    """Frames over two descriptors."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._buffer = bytearray()
        self.announced = 0
        """Bytes of the request's data that were not read yet."""

    def gone(self) -> bool:
        """Whether the other end has closed. Never blocks; keeps what it has sent."""
        while select.select([self._source], [], [], 0)[0]:
            data = os.read(self._source, CHUNK)
            if not data:
                return True
            self._buffer += data
        return False

    def request(self) -> Any:
        """The next request; None when none comes within `IDLE_SECONDS`. Blocks."""
        if not self._buffer and not select.select([self._source], [], [], IDLE_SECONDS)[0]:
            return None
        kind, length = self._header()
        if kind != b"J" or length > MOST_JSON:
            raise Cut
        request = json.loads(bytes(self._exactly(length)))
        self.announced = int(request["args"].get("bytes", 0))
        return request

    def data(self, length: int) -> Iterator[bytes]:
        """The next `length` of the announced bytes."""
        while length:
            kind, size = self._header()
            if kind != b"D" or not 0 < size <= length:
                raise Cut
            chunk = self._exactly(size)
            length -= size
            self.announced -= size
            yield chunk

    def send(self, kind: bytes, data: bytes | bytearray) -> None:
        self.send_raw(framed(kind, data))

    def send_raw(self, frames: bytes | bytearray) -> None:
        left = memoryview(frames)
        while left:
            left = left[os.write(self._sink, left) :]

    def answer(self, value: Mapping[str, Any]) -> None:
        self.send(b"J", json.dumps(value).encode("ascii"))

    def _header(self) -> tuple[bytes, int]:
        kind, length = HEADER.unpack(self._exactly(HEADER.size))
        return kind, length

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = os.read(self._source, max(size - len(self._buffer), 1 << 16))
            if not data:
                raise Cut
            self._buffer += data
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found


def framed(kind: bytes, data: bytes | bytearray) -> bytes:
    return HEADER.pack(kind, len(data)) + data


class Announced:
    """A file that comes with the request; it is read once, in the order in which the files were announced. For
    `put_tree`."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def open(self, _mode: str) -> Announced:
        return self

    def __enter__(self) -> Announced:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def read(self, _size: int = -1) -> bytes:
        return next(self._chunks, b"")


class BoxChannel(LocalChannel):
    """A channel to the box on which this runs. Raises Unreachable for paths on a volume that is not mounted: an empty
    folder of that name is not the volume."""

    def __init__(self, native_id: str, root: str, mounts: Mapping[str, str], wire: Wire) -> None:
        where = {mount: Path(content) for mount, content in mounts.items()}
        super().__init__(native_id, Path(root), where, cancelled=wire.gone)
        self._own_mounts = {content: mount for mount, content in where.items() if content == Path(root) / mount}

    def _split(self, path: str) -> tuple[Path, tuple[str, ...]]:
        base, parts = super()._split(path)
        if base in self._own_mounts and os.path.realpath(base) not in {point for point, _ in mount_points()}:
            raise Unreachable(f"nothing is mounted at {base} of {self.native_id}, where its volume has to be")
        return base, parts

    def prepare(self) -> None:
        """Makes the root of a new box. Idempotent."""
        assert self._root is not None
        self._root.mkdir(parents=True, exist_ok=True)


class Agent:
    """Answers one request after the other. The method `do_<verb>` handles a verb; its result is the answer's `ok`."""

    def __init__(self, wire: Wire, channel: BoxChannel) -> None:
        self.wire, self.channel = wire, channel

    def serve(self) -> None:
        self._renewed = time.monotonic()
        while True:
            request = self.wire.request()
            if request is None:
                return
            try:
                if "box" in request:
                    self.serve_box(request["box"])
                verb = getattr(self, f"do_{request['verb']}")
                self.wire.answer({"ok": verb(**request["args"])})
            except Cut:
                raise
            except Exception as error:
                self.wire.answer(_described(error))
            if self.wire.announced:  # unread data would be taken for requests: end, and a new agent serves the next one
                return

    def serve_box(self, box: Mapping[str, Any]) -> None:
        """Serves this box from now on: one agent may serve all boxes on its machine."""
        self.channel = BoxChannel(box["native_id"], box["root"], box["mounts"], self.wire)

    def do_ping(self) -> bool:
        return True

    def do_prepare(self) -> None:
        self.channel.prepare()

    def do_read(self, path: str, offset: int, limit: int | None) -> None:
        with self.channel.open_file(path) as handle:
            size = max(0, os.fstat(handle.fileno()).st_size - offset)
            if min(size, size if limit is None else limit) > MOST_READ:
                raise PlatformError(f"{path} has more than {MOST_READ >> 20} MiB: it is fetched, not read")
        left = MOST_READ if limit is None else limit
        data = self.channel.read(path, offset=offset, limit=left)
        for begin in range(0, len(data), CHUNK):
            self.wire.send(b"D", data[begin : begin + CHUNK])

    def do_size(self, path: str) -> int | None:
        return self.channel.size(path)

    def do_tails(self, paths: list[str], limit: int) -> dict[str, Any]:
        found = self.channel.tails(paths, min(limit, MOST_TAILS // max(len(paths), 1)))
        return _ends(found)

    def do_newest(self, folder: str, below: str, count: int, limit: int) -> dict[str, Any]:
        """Of the files `folder/*/*/below`: the ends of those that changed last, and the paths of the others."""
        found, others = newest(self.channel, folder, below, count, min(limit, MOST_TAILS // max(count, 1)))
        return {"tails": _ends(found), "others": others}

    def do_listdir(self, path: str) -> list[tuple[str, str, int]]:
        return [(entry.name, entry.kind, entry.size) for entry in self.channel.listdir(path)]

    def do_walk(self, folders: list[str], skip: list[str], limit: int, seconds: float) -> dict[str, Any]:
        listing = self.channel.walk(folders, skip=skip, limit=limit, seconds=seconds)
        return {"files": listing.files, "problem": listing.problem}

    def do_others(self, folders: list[str], limit: int, seconds: float) -> list[tuple[str, str, str, int]]:
        found = self.channel.others(folders, limit=limit, seconds=seconds)
        return [(one.path, one.what, one.means, one.size) for one in found]

    def do_fetch(self, path: str, offset: int) -> int:
        """Answers twice: first the file's size, and at the end that all was sent."""
        with self.channel.open_file(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            done = offset if offset <= size else 0
            self.wire.answer({"size": size})
            chunks = holes.parts(handle, os.fstat(handle.fileno()), done)
            while done < size:
                chunk = next(chunks, b"")
                if len(chunk) > size - done:  # it grows
                    chunk = chunk[: size - done]
                if not chunk:
                    raise Unreachable(
                        f"{path} on {self.channel.native_id} shrank while it was copied: {done:,} of {size:,} bytes "
                        f"are here, and are not taken for the whole; pull again"
                    )
                for blank, begin, end in holes.runs(chunk):
                    if blank:
                        self.wire.send_raw(HEADER.pack(b"Z", end - begin))
                    else:
                        self.wire.send(b"D", chunk if end - begin == len(chunk) else chunk[begin:end])
                done += len(chunk)
        return size

    def do_fetch_many(self, paths: list[str]) -> None:
        """Sends each file's size and its bytes. Small files are collected, since each write would be a packet."""
        waiting = bytearray()
        for path in paths:
            with self.channel.open_file(path) as handle:
                size = os.fstat(handle.fileno()).st_size
                waiting += framed(b"J", json.dumps({"size": size}).encode("ascii"))
                while size:
                    chunk = handle.read(min(CHUNK, size))
                    if not chunk:
                        raise Unreachable(f"{path} on {self.channel.native_id} shrank while it was copied; pull again")
                    size -= len(chunk)
                    waiting += framed(b"D", chunk)
                    if len(waiting) >= TOGETHER:
                        self.wire.send_raw(waiting)
                        waiting = bytearray()
        self.wire.send_raw(waiting)

    def do_write(self, path: str, mode: int, bytes: int) -> None:
        self.channel.write(path, b"".join(self.wire.data(bytes)), mode=mode)

    def do_touch(self, path: str) -> bool:
        return self.channel.touch(path)

    def do_append(self, path: str, lock: str, bytes: int, at: int | None) -> bool:
        return self.channel.append_locked(path, b"".join(self.wire.data(bytes)), lock, at=at)

    def do_has(self, path: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(NotADirectoryError):
                self.channel.listdir(path)
            return True
        return False

    def do_put_tree(self, dest: str, files: list[tuple[str, int, int]], bytes: int) -> None:
        sources = ((path, Announced(self._renewing(self.wire.data(size))), mode) for path, size, mode in files)
        self.channel.put_tree(sources, dest)  # type: ignore[arg-type]  # it opens and reads them, nothing more

    def _renewing(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """The same. Meanwhile it renews the lease of the box, which may be shorter than what comes takes."""
        for chunk in chunks:
            if time.monotonic() >= self._renewed + RENEW_SECONDS:
                self._renewed = time.monotonic()
                self.channel.touch(box_layout.LOOKED)
            yield chunk

    def do_spawn(self, argv: list[str], cwd: str, env: dict[str, str], log: str) -> int:
        return self.channel.spawn(argv, cwd=cwd, env=env, log=log)

    def do_lock_held(self, path: str) -> bool:
        return self.channel.lock_held(path)

    def do_run(self, argv: list[str], timeout: float, stdin: bool, bytes: int) -> dict[str, int]:
        given = b"".join(self.wire.data(bytes))
        done = self.channel.run(argv, timeout=timeout, stdin=given if stdin else None)
        for stream in (done.stdout, done.stderr):
            for begin in range(0, len(stream), CHUNK):
                self.wire.send(b"D", stream[begin : begin + CHUNK])
        return {"returncode": done.returncode, "stdout": len(done.stdout), "stderr": len(done.stderr)}

    def do_processes(self) -> list[tuple[int, tuple[str, ...]]]:
        return [(process.pid, process.argv) for process in self.channel.processes()]

    def do_terminate(self, pid: int, grace: float) -> None:
        self.channel.terminate(pid, grace=grace)


def _ends(found: Mapping[str, tuple[int, bytes]]) -> dict[str, Any]:
    return {path: (size, base64.b64encode(data).decode("ascii")) for path, (size, data) in found.items()}


def _described(error: BaseException) -> dict[str, Any]:
    for kind in (NotYetGone, Unreachable, NotAFile, PlatformError):
        if isinstance(error, kind):
            return {"error": kind.__name__, "text": str(error)}
    if isinstance(error, OSError) and error.errno is not None:
        return {"error": "OSError", "errno": error.errno, "text": error.strerror or os.strerror(error.errno)}
    import traceback

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {"error": "defect", "text": text[-4000:]}


def greet(settings: Mapping[str, Any]) -> int:
    """Writes the greeting and returns the descriptor for answers. From now on, what other code prints to stdout goes to
    stderr, so that it does not come between frames."""
    sink = os.dup(1)
    os.dup2(2, 1)
    os.write(sink, b"\0sweepstack-agent " + settings["nonce"].encode("ascii") + b"\n")
    return sink


def hello(wire: Wire) -> None:
    """Sends the first answer, before any request: interpreter, version and clock."""
    wire.answer({"ok": {"python": sys.executable, "version": list(sys.version_info[:3]), "clock": time.time()}})


def main(settings: Mapping[str, Any]) -> None:
    """Serves on stdin and stdout until the other side has closed them."""
    wire = Wire(0, greet(settings))
    channel = BoxChannel(settings["native_id"], settings["root"], settings["mounts"], wire)
    with contextlib.suppress(Cut, BrokenPipeError, ConnectionResetError):
        hello(wire)
        Agent(wire, channel).serve()
    os._exit(0)  # don't wait for threads that wait for the box's processes: they would keep the connection open
