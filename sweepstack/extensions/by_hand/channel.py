"""The way to a box that only a person can reach: what was packed for it, and what came back.

Its results come back as files that a person brings, or to a bucket, object by object.
"""

from __future__ import annotations

import fnmatch
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sweepstack.extensions.by_hand import bundle
from sweepstack.extensions.by_hand.bucket import PARALLEL, Bucket
from sweepstack.extensions.by_hand.returns import Returned, folder_of
from sweepstack.onbox.agent.channel import DirEntry, Listing, safe_parts
from sweepstack.onbox.agent.file_writes import open_target
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import fsync_directory
from sweepstack.onbox.common.errors import Unreachable

CLOSED = "is on a machine that only a person can reach: nothing can be started there from here"


class HandChannel(LocalChannel):
    """See `sweepstack.onbox.agent.channel.Channel` and `ByHand`. Its durable tier is the one that came back."""

    def __init__(self, native_id: str, box: Path, mounts: Mapping[str, Path], returns: str, returned: Returned) -> None:
        durable = returned.folder / box_layout.DURABLE if returned.folder is not None else None
        back = {box_layout.DURABLE: durable} if durable is not None and durable.is_dir() else {}
        super().__init__(native_id, box, {**mounts, **back}, closed=lambda: CLOSED)
        self.python = "python3"
        self.returned = returned
        self._box, self._returns = box, returns

    @property
    def note(self) -> str:
        if self.returned.folder is not None or self.returned.note:
            return self.returned.note
        bundle_here = next(folder_of(self._returns).glob(f"*.{self.native_id}.zip"), None)
        return f"nothing has come back yet; its bundle is {bundle_here}" if bundle_here is not None else ""

    def lock_held(self, path: str) -> bool:
        """For the runner's lock: whether a session said so within `returns.ALIVE_SECONDS`."""
        return self.returned.alive if path == box_layout.RUNNER_LOCK else super().lock_held(path)

    def pack(self, runner: str, facts: Mapping[str, Any]) -> str:
        folder = folder_of(self._returns)
        try:
            path, notebook = bundle.write(self._box, runner, facts, folder)
        except OSError as error:
            raise Unreachable(f"no bundle can be written into {folder}: {error}") from error
        step = str(facts.get("step") or "python3 {bundle}").replace("{bundle}", path.name)
        beside = f" (its cell: {notebook.name})" if notebook is not None else ""
        return f"to run it by hand: {path}{beside}. {step}"


DURABLE = safe_parts(box_layout.DURABLE)
STEP = (
    "Bring it to the machine and type: python3 {bundle} --out FOLDER, where FOLDER is a mount of {bucket} (rclone "
    "mount) or is kept in step with it (aws s3 sync FOLDER {bucket}, again and again)"
)


class BucketChannel(HandChannel):
    """See `HandChannel`. Nothing is written to what came back."""

    def __init__(
        self, native_id: str, box: Path, mounts: Mapping[str, Path], bucket: Bucket, returned: Returned
    ) -> None:
        super().__init__(native_id, box, mounts, str(bucket.mirror), returned)
        self.bucket = bucket
        copy = returned.folder.relative_to(bucket.mirror).as_posix() if returned.folder is not None else None
        self._copy = "" if copy == "." else copy
        self._tree: dict[str, dict[str, DirEntry]] | None = None

    @property
    def note(self) -> str:
        if self.returned.folder is not None or self.returned.note:
            return self.returned.note
        name = next((path for path in self.bucket.objects if path.endswith(f".{self.native_id}.zip")), None)
        return f"nothing has come back yet; its bundle is {self.bucket.address.uri}/{name}" if name else ""

    def pack(self, runner: str, facts: Mapping[str, Any]) -> str:
        """See `ByHand.pack`: the bundle is put into the bucket."""
        try:
            path, _ = bundle.write(self._box, runner, facts, self._box)
        except OSError as error:
            raise Unreachable(f"no bundle can be written: {error}") from error
        at = self.bucket.put(path.name, path.read_bytes())
        return f"to run it by hand: {at}. {STEP.format(bundle=path.name, bucket=self.bucket.address.uri)}"

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        key = self._key(path)
        return (
            super().read(path, offset=offset, limit=limit)
            if key is None
            else self.bucket.read(self._object(path, key), offset, limit)
        )

    def size(self, path: str) -> int | None:
        key = self._key(path)
        if key is None:
            return super().size(path)
        found = self.bucket.objects.get(key)
        return None if found is None else found.size

    def tails(self, paths: Sequence[str], most: int) -> dict[str, tuple[int, bytes]]:
        here = {path: key for path in paths if (key := self._key(path)) is not None}
        tails = super().tails([path for path in paths if path not in here], most)
        for path, key in here.items():
            if (found := self.bucket.objects.get(key)) is not None:
                tails[path] = found.size, self.bucket.read(key, max(found.size - most, 0), most)
        return tails

    def listdir(self, path: str) -> list[DirEntry]:
        key = self._key(path)
        if key is None:
            return super().listdir(path)
        if key in self.bucket.objects:
            raise NotADirectoryError(path)
        found = self._folders().get(key)
        if found is None and safe_parts(path) != DURABLE:
            raise FileNotFoundError(path)
        return [entry for _, entry in sorted((found or {}).items())]

    def walk(
        self, folders: Sequence[str], *, skip: Sequence[str] = (), limit: int = 100_000, seconds: float = 5.0
    ) -> Listing:
        here = {folder: key for folder in folders if (key := self._key(folder)) is not None}
        others = super().walk([one for one in folders if one not in here], skip=skip, limit=limit, seconds=seconds)
        files = list(others.files)
        for folder, key in here.items():
            for name, found in self.bucket.objects.items():
                shown = f"{folder}/{name[len(key) + 1 :]}"
                if name.startswith(f"{key}/") and not _skipped(shown, folder, skip):
                    files.append((shown, found.size, found.changed))
        more = f"more than {limit:,} files" if len(files) > limit else ""
        return Listing(tuple(sorted(files)[:limit]), "; ".join(filter(None, (others.problem, more))))

    def fetch(self, path: str, target: Path, progress: Callable[[int], None] | None = None) -> None:
        key = self._key(path)
        if key is None:
            super().fetch(path, target, progress)
            return
        name = self._object(path, key)
        with open_target(target) as copy:
            self.bucket.fetch(name, copy, progress or (lambda _count: None))
            copy.flush()
            os.fsync(copy.fileno())
        fsync_directory(target.parent)

    def fetch_many(self, files: Sequence[tuple[str, Path]], progress: Callable[[int], None] | None = None) -> None:
        one_at_a_time = threading.Lock()

        def say(count: int) -> None:
            with one_at_a_time:
                if progress is not None:
                    progress(count)

        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(lambda one: self.fetch(one[0], one[1], say), files))

    def _key(self, path: str) -> str | None:
        """Where a path of the durable tier lies below the bucket's prefix; None for any other, and before something
        came back."""
        parts = safe_parts(path)
        if self._copy is None or parts[: len(DURABLE)] != DURABLE:
            return None
        return "/".join((*filter(None, [self._copy]), *parts))

    def _object(self, path: str, key: str) -> str:
        if key not in self.bucket.objects:
            raise FileNotFoundError(path)
        return key

    def _folders(self) -> dict[str, dict[str, DirEntry]]:
        """Folder → its entries by name, of the whole durable tier that came back."""
        if self._tree is None:
            tree: dict[str, dict[str, DirEntry]] = {}
            for path, found in self.bucket.objects.items():
                folder, _, name = path.rpartition("/")
                entry = DirEntry(name, "file", found.size)
                while name not in tree.setdefault(folder, {}):
                    tree[folder][name] = entry
                    folder, _, name = folder.rpartition("/")
                    if not name:
                        break
                    entry = DirEntry(name, "dir", 0)
            self._tree = tree
        return self._tree


def _skipped(path: str, folder: str, skip: Sequence[str]) -> bool:
    """Whether a folder between `folder` and the file is left out."""
    parts = path[len(folder) + 1 :].split("/")[:-1]
    above = ["/".join((folder, *parts[: count + 1])) for count in range(len(parts))]
    return any(fnmatch.fnmatchcase(one, pattern) for one in above for pattern in skip)
