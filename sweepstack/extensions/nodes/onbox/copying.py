"""Brings folders of the box to a peer, at the same path, and proves that they came whole.

A Python environment holds absolute paths, so the box's folder has the same path on each node. What came is known by a
signature of names, sizes, modes and times: it is sent again only when that has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.errors import RequestRefused, Unreachable

from .peers import Carrier, last_words

RECEIVE = Path(__file__).with_name("receive.py")
COPY_SECONDS = 3600.0
ASK_SECONDS = 60.0


class There(NamedTuple):
    """What a peer has: whether the whole box, or its durable tier, is one with the first node's; what was sent before,
    as path below the box → signature."""

    shared: bool
    durable: bool
    have: dict[str, str]


class Mirror:
    """The box's folder on the first node, and how its peers get theirs. `python`: the interpreter, the same on all."""

    def __init__(self, box: Path, native_id: str, durable: Path, python: str) -> None:
        self.box, self.native_id, self.durable, self.python = box, native_id, durable, python

    @contextlib.contextmanager
    def marked(self) -> Iterator[str]:
        """While this is open, the files lie there by which a peer sees that it shares a folder: gives their nonce."""
        nonce = uuid.uuid4().hex
        marks = [folder / f"node-{nonce}" for folder in (self.box, self.durable)]
        try:
            for mark in marks:
                with contextlib.suppress(OSError):  # a full disk: a peer that shares the folder is refused then
                    mark.touch()
            yield nonce
        finally:
            for mark in marks:
                with contextlib.suppress(OSError):
                    mark.unlink()

    def bring(self, peer: Carrier, nonce: str, paths: Sequence[str], again: bool = False) -> There:
        """Makes the box's folder on the peer, and brings these files and folders of it where they differ; with `again`
        all. Blocks as long as that takes. Raises Unreachable, RequestRefused."""
        there = self._there(peer, nonce, b"")
        if there.shared:
            return there
        signed = {path: signature(self.box / path) for path in paths}
        wanted = {path: said for path, said in signed.items() if again or there.have.get(path) != said}
        return self._send(peer, nonce, wanted) if wanted else there

    def _argv(self, nonce: str) -> list[str]:
        words = [str(self.box), self.native_id, nonce, os.path.realpath(self.durable)]
        return [self.python, "-I", "-S", "-c", RECEIVE.read_text(encoding="utf-8"), *words]

    def _there(self, peer: Carrier, nonce: str, order: bytes) -> There:
        answer = peer.ask(self._argv(nonce), order, ASK_SECONDS)
        return _understood(peer, self.python, answer.code, answer.out, answer.err)

    def _send(self, peer: Carrier, nonce: str, wanted: Mapping[str, str]) -> There:
        process = subprocess.Popen(
            peer.command(self._argv(nonce)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdin is not None
        late = threading.Timer(COPY_SECONDS, process.kill)
        late.daemon = True
        late.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps({"files": dict(wanted)}).encode() + b"\n")
                frames = Framed(process.stdin)
                with tarfile.open(fileobj=frames, mode="w|") as archive:
                    for path in sorted(wanted):
                        archive.add(str(self.box / path), arcname=path, recursive=True)
                frames.end()
            out, err = process.communicate(timeout=COPY_SECONDS)
        finally:
            late.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode in (255, -9):
            raise Unreachable(f"{peer.name}: the copy broke off: {last_words(err) or 'ssh said nothing'}")
        return _understood(peer, self.python, process.returncode, out, last_words(err))


class Framed(io.RawIOBase):
    """Writes a stream in frames, which `receive.Frames` reads."""

    def __init__(self, sink: Any) -> None:
        self._sink, self._hashed = sink, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if data:
            self._hashed.update(data)
            self._sink.write(b"%d\n" % len(data) + bytes(data))
        return len(data)

    def end(self) -> None:
        """Says that this was all, and what its digest is."""
        self._sink.write(b"0 %b\n" % self._hashed.hexdigest().encode())
        self._sink.flush()


def signature(path: Path) -> str:
    """A digest over names, types, modes, sizes and times of all below `path`; "" where nothing is."""
    found: list[tuple[Any, ...]] = []
    root = str(path)
    if not os.path.lexists(root):
        return ""
    waiting = [root]
    while waiting:
        one = waiting.pop()
        status = os.lstat(one)
        link = os.readlink(one) if os.path.islink(one) else ""
        plain = os.path.isdir(one) and not link
        size = 0 if plain else status.st_size
        times = 0 if plain else status.st_mtime_ns  # a look at compiled files changes a folder's own time
        found.append((os.path.relpath(one, root), status.st_mode, size, times, link))
        if plain:
            waiting += [os.path.join(one, name) for name in os.listdir(one) if name != "__pycache__"]
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()


def _understood(peer: Carrier, python: str, code: int, out: bytes, err: str) -> There:
    try:
        said = json.loads(out.splitlines()[-1])
        if "refused" in said:
            raise RequestRefused(f"{peer.name}: {said['refused']}")
        return There(bool(said["shared"]), bool(said["durable"]), dict(said["have"]))
    except (ValueError, IndexError, KeyError, TypeError) as error:
        if code in (126, 127):
            raise RequestRefused(
                f"{peer.name} has no {python}, and the cells run with that on every node: install the same Python there"
            ) from error
        raise RequestRefused(f"{peer.name} can't take files (exit code {code}): {err}") from error
