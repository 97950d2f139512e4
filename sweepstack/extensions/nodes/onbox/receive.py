"""Takes what the first node sends into the box's folder on a peer.

Runs from its own text (`python -c`): nothing of ours is there yet. Arguments: the box's folder, its native id, a nonce,
the durable tier's folder. On stdin nothing, or a JSON line {"files": {path: signature}} and a tar stream in frames (a
line with a length, the bytes), which a frame of length 0 with the stream's SHA-256 ends. Prints one JSON line:
{"shared": …, "durable": …, "have": {path: signature}} or {"refused": why}.

A folder that lies there too (a shared tier) is known by the file `node-<nonce>` that the first node made in it. A
shared box is left alone. Else the folder is made, and marked as this box's: what bears no mark is never touched.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from typing import Any, BinaryIO

MARK = "node-of.json"
STAGED = "incoming"


class Frames(io.RawIOBase):
    """The stream in the frames. `whole`: the end came, with the right digest."""

    def __init__(self, source: BinaryIO) -> None:
        self.source, self.left, self.whole, self.hashed = source, 0, False, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = b""
        while not self.whole and (size < 0 or len(found) < size):
            if not self.left:
                words = self.source.readline().split()
                if not words:
                    raise EOFError("the stream broke off")
                self.left = int(words[0])
                if not self.left:
                    if words[1].decode() != self.hashed.hexdigest():
                        raise ValueError("the stream's digest is another one")
                    self.whole = True
                    break
            part = self.source.read(self.left if size < 0 else min(self.left, size - len(found)))
            if not part:
                raise EOFError("the stream broke off")
            self.left -= len(part)
            self.hashed.update(part)
            found += part
        return found


def receive(box: str, native_id: str, nonce: str, durable: str) -> dict[str, Any]:
    """See the module."""
    if os.path.lexists(os.path.join(box, "node-" + nonce)):
        return {"shared": True, "durable": True, "have": {}}
    mark = os.path.join(box, MARK)
    try:
        with open(mark) as handle:
            known = json.load(handle)
    except FileNotFoundError:
        known = None
    if known is None and os.path.lexists(box) and os.listdir(box):
        return {"refused": box + " is there already, and is not ours: move it away, or give the first node's box "
                           "another folder (host: user@host:port/folder)"}  # fmt: skip
    if known is not None and known.get("native_id") != native_id:
        return {"refused": box + " belongs to the box " + str(known.get("native_id"))}
    os.makedirs(box, exist_ok=True)
    if known is None:
        known = {"native_id": native_id, "have": {}}
        write(mark, known)
    order = json.loads(sys.stdin.buffer.readline() or b"{}")
    if order:
        take(box, mark, known, order)
    tier, link = os.path.lexists(os.path.join(durable, "node-" + nonce)), os.path.join(box, "mnt", "durable")
    if tier and not os.path.islink(link):
        clear(link)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(durable, link)
    return {"shared": False, "durable": tier, "have": known["have"]}


def take(box: str, mark: str, known: dict[str, Any], order: dict[str, Any]) -> None:
    """Puts what came in its place: each folder is replaced by a rename, once the whole stream was right."""
    staged = os.path.join(box, STAGED)
    shutil.rmtree(staged, ignore_errors=True)
    os.makedirs(staged)
    frames = Frames(sys.stdin.buffer)
    with tarfile.open(fileobj=frames, mode="r|") as archive:
        archive.extractall(staged)
    while not frames.whole:
        frames.read(1 << 18)
    for path, signature in order["files"].items():
        place, came = os.path.join(box, path), os.path.join(staged, path)
        known["have"].pop(path, None)
        write(mark, known)
        clear(place)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.rename(came, place)
        known["have"][path] = signature
    write(mark, known)
    shutil.rmtree(staged, ignore_errors=True)


def clear(path: str) -> None:
    """Removes a file, a link or a folder."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def write(path: str, value: dict[str, Any]) -> None:
    """Writes a JSON file by a rename."""
    with open(path + ".tmp", "w") as handle:
        json.dump(value, handle)
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    try:
        print(json.dumps(receive(*sys.argv[1:5])))
    except (OSError, EOFError, ValueError, tarfile.TarError) as problem:
        print(json.dumps({"refused": "nothing was taken: " + str(problem)}))
