"""Where the bytes of evidence lie, by key: a folder of this host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from sweepstack.onbox.common.aside import make_way
from sweepstack.onbox.common.canonical import fsync_directory, sha256_hex, write_atomically
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceError

ABSENT: Final = ""
"""The tag of a key that holds nothing."""


@dataclass(frozen=True)
class Held:
    """The bytes under a key, and the tag of this very content: what a conditional write compares."""

    data: bytes
    tag: str


class ObjectStore(Protocol):
    """Keys are relative paths with `/`. A write is whole or not there, and lasts once it returns.

    What can't be known raises EvidenceError: None, and an empty listing, are for what is proved not to be there.
    """

    @property
    def uri(self) -> str:
        """The address, as it stands in the state."""
        ...

    def shown(self, key: str = "") -> str:
        """The place of a key as a person finds it; of the whole without one."""
        ...

    def missing(self) -> str:
        """Why the marker is not there, in a few words."""
        ...

    def read(self, key: str) -> Held | None:
        """The content of a key, or None when there is none."""
        ...

    def size(self, key: str) -> int | None:
        """How many bytes a key holds, or None when there is none. Moves none of them."""
        ...

    def write(self, key: str, data: bytes, *, over: str | None = None) -> str:
        """Writes a key and returns its new tag. `over`: only while its tag is this (`ABSENT`: while there is none).

        Raises EvidenceChanged when it is not: another process was faster.
        """
        ...

    def remove(self, key: str, *, over: str | None = None) -> None:
        """Takes a key away; none there is fine.

        `over`: only while its tag is this. Raises EvidenceChanged when it holds something else, as `write` does.
        """
        ...

    def names(self, folder: str) -> list[str]:
        """The keys directly below `folder`, without it, sorted; unfinished writes left out."""
        ...

    def holds_any(self, folder: str) -> bool:
        """Is anything at all below `folder`, or a file in its place?"""
        ...


class FolderStore:
    """Tags are digests of the content. Conditional writes are safe among the processes of this host."""

    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self.root = root

    def shown(self, key: str = "") -> str:
        return str(self.root / key) if key else str(self.root)

    def missing(self) -> str:
        there = self.root.is_dir()
        return f"holds no {{}}: moved, deleted, or {_DISK}" if there else f"is not there: moved, deleted, or {_DISK}"

    def read(self, key: str) -> Held | None:
        path = self.root / key
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            if isinstance(error, NotADirectoryError) and not self.root.is_dir():
                return None
            raise EvidenceError(f"{path} can't be read: {error.strerror}") from error
        return Held(data, sha256_hex(data))

    def size(self, key: str) -> int | None:
        path = self.root / key
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise EvidenceError(f"{path} can't be read: {error.strerror}") from error

    def write(self, key: str, data: bytes, *, over: str | None = None) -> str:
        path = self.root / key
        try:
            make_way(path)
            if over == ABSENT:
                self._place_once(path, data)
            elif over is None:
                write_atomically(path, data)
            else:
                with self._alone():
                    held = self.read(key)
                    if (held.tag if held else ABSENT) != over:
                        raise changed(str(path))
                    write_atomically(path, data)
        except OSError as error:
            raise EvidenceError(f"{path} can't be written: {error.strerror}") from error
        return sha256_hex(data)

    def remove(self, key: str, *, over: str | None = None) -> None:
        path = self.root / key
        try:
            with self._alone() if over is not None else contextlib.nullcontext():
                held = self.read(key) if over is not None else None
                if held is not None and held.tag != over:
                    raise changed(str(path))
                if path.exists():
                    path.unlink()
                    fsync_directory(path.parent)
        except OSError as error:
            raise EvidenceError(f"{path} can't be removed: {error.strerror}") from error

    def names(self, folder: str) -> list[str]:
        path = self.root / folder
        try:
            return sorted(name for name in os.listdir(path) if not name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EvidenceError(f"{path} can't be read: {error.strerror}") from error

    def holds_any(self, folder: str) -> bool:
        return (self.root / folder).exists()

    def _place_once(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
        try:
            with temporary.open("xb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.link(temporary, path)  # whole or not at all, and only if no other process was faster
        except FileExistsError:
            raise changed(str(path)) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        fsync_directory(path.parent)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the folder itself, so that no lock file lies about. A holder's death ends it."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


_DISK = "a disk that is not mounted? Put it back"


def changed(where: str) -> EvidenceChanged:
    """The error for a conditional write that came second."""
    return EvidenceChanged(
        f"{where} was changed by another command at the same moment: nothing was written over it. Run the command again"
    )
