"""A folder of a bucket that results come back to: what is small is copied, the rest is listed.

Marks, journals and logs are copied into a mirror, by which `returns` judges what counts. Sealed cells and checkpoints
stay where they are: their sizes are those of the one listing that a look makes, and `pull` fetches them by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from sweepstack.core.bucket_address import SCHEME, S3Address
from sweepstack.extensions.by_hand.onbox.carry import LOG_NAME, LOGS
from sweepstack.extensions.by_hand.onbox.returned import DEPTH, LARGE, MARK, SESSION, SMALL
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import write_atomically, write_json_atomically
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, Unreachable

MOST_OBJECTS = 1_000_000
"""So many are listed at most: a bucket of other things is no place for results."""
INDEX = ".index.json"
"""In the mirror: path → the object that it was copied from."""
MOST_LOG = 64 << 20
"""Bytes of a log that is copied at each look at which it grew; a larger one stays in the bucket."""
FRESH_SECONDS = 2.0
"""A look of this age is used again: one command asks for a box and then reads it."""
CHUNK = 1 << 20
PARALLEL = 16
TRIES = 3
"""Looks at a bucket that is written to meanwhile."""
_looking = threading.Lock()


@dataclass(frozen=True)
class BucketObject:
    """An object, as the listing has it. `changed`: seconds since the epoch."""

    size: int
    etag: str
    changed: float


class Changed(Unreachable):
    """An object is not the one of the last look."""


def is_bucket(returns: str) -> bool:
    """Whether results come back to a bucket, and not to a folder of this computer."""
    return returns.startswith(SCHEME)


class Bucket:
    """One folder of a bucket. `mirror`: the folder of this computer that what is small is copied to. To make one asks
    nothing. Raises ConfigError for what is no s3://bucket/prefix."""

    def __init__(self, returns: str, mirrors: Path) -> None:
        try:
            self.address = S3Address.parse(returns)
        except EvidenceError as error:
            raise ConfigError(str(error)) from error
        self.mirror = mirrors / hashlib.sha256(self.address.uri.encode()).hexdigest()[:16]
        self.objects: dict[str, BucketObject] = {}
        self._looked: float | None = None

    def look(self) -> None:
        """Lists what is there, and brings the mirror up to it. One process at a time does so for each bucket, and what
        was copied once is not copied again. A look of `FRESH_SECONDS` ago counts. Blocks. Raises Unreachable: nothing
        is then known of what came back."""
        with _looking:
            if self._looked is not None and time.monotonic() - self._looked < FRESH_SECONDS:
                return
            for left in reversed(range(TRIES)):
                try:
                    with _for_people(self.address.uri):
                        self.objects = self._listed()
                        self._bring([path for path in self.objects if self._is_small(path)])
                    self._looked = time.monotonic()
                    return
                except Changed:  # a session writes there now
                    if not left:
                        raise

    def put(self, name: str, data: bytes) -> str:
        """Writes a file beside what comes back, unless it is there with these bytes. Returns its address. Raises
        Unreachable."""
        uri = f"{self.address.uri}/{name}"
        with _for_people(uri), _asking(uri) as s3:
            known = self._listed_one(s3, name)
            if known is None or (known.size, known.etag) != (len(data), hashlib.md5(data).hexdigest()):
                s3.put_object(**self._where(name), Body=data)
        return uri

    def read(self, path: str, offset: int, limit: int | None) -> bytes:
        """Bytes of an object of the last look. Raises Unreachable where it is not that one any more."""
        return b"".join(self._body(path, offset, limit))

    def fetch(self, path: str, copy: Any, say: Callable[[int], None]) -> None:
        """Appends to the open file `copy` what it lacks of an object. `say` gets the bytes of each step. Raises
        Unreachable, with a part in `copy`."""
        done = copy.seek(0, os.SEEK_END)
        if done > self.objects[path].size:
            copy.truncate(0)
            done = copy.seek(0)
        if done:
            say(done)
        for chunk in self._body(path, done, None):
            copy.write(chunk)
            say(len(chunk))

    def _copy(self, path: str) -> None:
        """Copies an object of the last look into the mirror."""
        write_atomically(self.mirror / path, self.read(path, 0, None))

    def _body(self, path: str, offset: int, limit: int | None) -> Iterator[bytes]:
        found, uri = self.objects[path], f"{self.address.uri}/{path}"
        ends = found.size if limit is None else min(found.size, offset + limit)
        if offset >= ends:
            return
        with _for_people(uri), _asking(uri) as s3:
            span = f"bytes={offset}-{ends - 1}"
            body = s3.get_object(**self._where(path), IfMatch=found.etag, Range=span)["Body"]
            yield from body.iter_chunks(CHUNK)

    def _where(self, path: str) -> dict[str, str]:
        return {"Bucket": self.address.bucket, "Key": f"{self.address.prefix}/{path}"}

    def _listed(self) -> dict[str, BucketObject]:
        found: dict[str, BucketObject] = {}
        below = f"{self.address.prefix}/"
        with _asking(self.address.uri) as s3:
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self.address.bucket, Prefix=below)
            for page in pages:
                for one in page.get("Contents", ()):
                    path = str(one["Key"])[len(below) :]
                    if is_plain(path):  # a key may be any text: one that is no path below here is no session's
                        found[path] = _found(one)
                if len(found) > MOST_OBJECTS:
                    raise EvidenceError(
                        f"{self.address.uri} has more than {MOST_OBJECTS:,} objects: name a prefix for results alone"
                    )
        return found

    def _listed_one(self, s3: Any, name: str) -> BucketObject | None:
        answer = s3.list_objects_v2(Bucket=self.address.bucket, Prefix=self._where(name)["Key"], MaxKeys=1)
        same = [one for one in answer.get("Contents", ()) if one["Key"] == self._where(name)["Key"]]
        return _found(same[0]) if same else None

    def _is_small(self, path: str) -> bool:
        """Whether it is what a copy is judged by, or a log, and not larger than a session makes that."""
        parts, size = PurePosixPath(path).parts, self.objects[path].size
        if parts[-1] in (MARK, SESSION):
            return len(parts) <= DEPTH + 1 and size <= SMALL
        for depth in range(min(DEPTH, len(parts) - 1) + 1):
            rest = "/".join(parts[depth:])
            if rest == box_layout.JOURNAL:
                return size <= LARGE
            if any(rest == name or rest.startswith(f"{name}/") for name in LOGS):
                return size <= MOST_LOG
            if rest.startswith(f"{box_layout.CELLS}/") and parts[-1] == LOG_NAME:
                return size <= MOST_LOG
        return False

    def _bring(self, wanted: list[str]) -> None:
        """Makes the mirror hold these objects, as they were listed, and no others."""
        index = self.mirror / INDEX
        try:
            known = json.loads(index.read_bytes())
        except (OSError, ValueError):
            known = {}
        now = {path: [self.objects[path].etag, self.objects[path].size] for path in wanted}
        for path in known.keys() - now.keys():  # what was taken away there is not back here either
            if is_plain(path):
                (self.mirror / path).unlink(missing_ok=True)
        changed = [path for path in wanted if known.get(path) != now[path] or not (self.mirror / path).is_file()]
        for path in changed:
            (self.mirror / path).parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self._copy, changed))
        self.mirror.mkdir(parents=True, exist_ok=True)
        if changed or known != now:
            write_json_atomically(index, now)


def _found(one: Any) -> BucketObject:
    return BucketObject(int(one["Size"]), str(one["ETag"]).strip('"'), one["LastModified"].timestamp())


def is_plain(path: str) -> bool:
    """Whether a key below the prefix is a path below a folder."""
    return bool(path) and "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


@contextlib.contextmanager
def _for_people(where: str) -> Iterator[None]:
    """Turns the errors of object storage into Unreachable, as for a box that can't be asked."""
    try:
        yield
    except EvidenceError as error:
        # By its name: its module imports the SDK.
        kind = Changed if type(error).__name__ == "Precondition" else Unreachable
        raise kind(f"what came back can't be asked: {error}") from error
    except OSError as error:
        raise Unreachable(f"{where}: {error}") from error


@contextlib.contextmanager
def _asking(where: str) -> Iterator[Any]:
    from sweepstack.platforms.common.s3_client import asking  # imports the SDK: for returns in a bucket alone

    with asking(where) as s3:
        yield s3
