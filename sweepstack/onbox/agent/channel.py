"""What every way to a box must offer.

Paths are box-relative POSIX paths (`data/sweep/journal.jsonl`, `mnt/durable/…`): never absolute, never with `..`, and
a link may lead out of the box only where the platform itself made it (`mnt/<name>`).

Errors: FileNotFoundError means that the box answered and the path is not there; Unreachable that the box did not
answer, so nothing is known; PlatformError that the request itself is refused (an unsafe path, not a regular file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.common.run_process import Completed


def host_identity() -> str:
    """The name of this machine, as it is compared in accounts and evidence addresses."""
    import socket

    return socket.gethostname()


@dataclass(frozen=True)
class SshEndpoint:
    """Where a box's sshd listens now. `proxied`: through the platform's own relay, which passes a shell and no files.

    `start` is the platform's mark of this start of the box: while it is the same, the host key must be, too.
    `known_as`: the name under which that key is pinned; "" for the box's own, a host's where several boxes share it.
    """

    host: str
    port: int
    user: str = "root"
    proxied: bool = False
    start: str = ""
    known_as: str = ""


@dataclass(frozen=True)
class DirEntry:
    """One name in a folder. `size` in bytes for files, 0 for all else. Links are named, never followed."""

    name: str
    kind: Literal["file", "dir", "link", "other"]
    size: int


@dataclass(frozen=True)
class Listing:
    """Regular files below some folders: path, bytes, and when the file itself last changed (its ctime, epoch seconds).

    A file with several names is there once. `problem`: why it is not all there is; empty when it is.
    """

    files: tuple[tuple[str, int, float], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class BoxProcess:
    """A live process of a box, by its environment or by descent. Zombies are not live."""

    pid: int
    argv: tuple[str, ...]


def safe_parts(path: str) -> tuple[str, ...]:
    """The components of a box-relative path. Raises PlatformError for absolute paths, `..`, NUL, or an empty path."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise PlatformError(f"{path!r} is not a path inside the box: relative, without '..', is what it must be")
    return parts


class Channel(Protocol):
    """A way to one box. Calls block; threads may share one. What it keeps open between calls closes by itself.

    `native_id` is the box's. `python` is the absolute path of an interpreter on the box, for the runner. `skew`: by
    how many seconds its clock is ahead of ours, 0 where they agree within seconds: its times are compared with that.
    """

    native_id: str

    @property
    def python(self) -> str: ...

    @property
    def skew(self) -> float: ...

    def absolute(self, path: str) -> str:
        """`path` as processes on the box see it. Does not look whether it exists."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`. FileNotFoundError when the box answered and the file is not there."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a regular file; None when the box answered and it is not there, or is not a regular file."""
        ...

    def tails(self, paths: Sequence[str], most: int) -> dict[str, tuple[int, bytes]]:
        """Of each regular file that is there: its size, and its last `most` bytes. In one round trip, to look at many
        files; whatever is in the way of one leaves that one out. Raises Unreachable."""
        ...

    def listdir(self, path: str) -> list[DirEntry]:
        """What is in a folder, by name. FileNotFoundError, NotADirectoryError."""
        ...

    def walk(
        self, folders: Sequence[str], *, skip: Sequence[str] = (), limit: int = 100_000, seconds: float = 5.0
    ) -> Listing:
        """All regular files below `folders`, in the order of their names. Links are neither followed nor listed.

        `skip`: folders (box-relative, shell patterns) not gone into. A folder that is not there holds nothing. What
        can't be read, more than `limit` files, and more than `seconds` make a `problem`. Raises Unreachable.
        """
        ...

    def fetch(self, path: str, target: Path, progress: Callable[[int], None] | None = None) -> None:
        """Copies a file of the box to the local `target`; always a copy, never a link; fsync at the end.

        Resumable: what `target` holds already is taken for the beginning, unless it is longer than the source. It is
        not compared: check the digest afterwards, and on a mismatch delete `target` and fetch again. `progress` gets
        the bytes added since its last call, the resumed ones first. Raises Unreachable when the source shrinks or the
        box is cut off on the way; `target` then holds a part.
        """
        ...

    def fetch_many(self, files: Sequence[tuple[str, Path]], progress: Callable[[int], None] | None = None) -> None:
        """The same for many small files (path on the box, local target), in few round trips. After a cut some
        targets are whole, at most one holds a part, and the others are as they were."""
        ...

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a whole file atomically and fsyncs it; makes parent folders. Idempotent."""
        ...

    def append_locked(self, path: str, data: bytes, lock: str) -> None:
        """Appends whole lines under an exclusive flock on `lock` and fsyncs. All of `data` is added, or nothing.

        Makes the files and their parents. `data` must end in a newline. Repairs nothing: PlatformError when the file
        ends in a torn line, with the command that cuts it off. Unreachable when the lock isn't free within 60 s.
        """
        ...

    def put_tree(self, files: Iterable[tuple[str, Path, int]], dest: str) -> None:
        """Ships local files as (path inside `dest`, local file, mode) into the new folder `dest`, all or nothing.

        A `dest` that exists is complete, since it appears by rename: it is left as it is.
        """
        ...

    def spawn(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], log: str) -> int:
        """Starts a process that outlives us: own session, stdin empty, output appended to `log`. Returns its pid.

        `env` is its whole environment, plus the box's id and the login's HOME; nothing else is inherited. Costs what
        the box costs.
        """
        ...

    def lock_held(self, path: str) -> bool:
        """Is somebody holding an exclusive flock on the file now? False when the file is not there.

        Probing takes a shared lock for microseconds: whoever takes the lock must try for a second, not once.
        """
        ...

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes | None = None) -> Completed:
        """Runs a command to its end, in the box's root, with a minimal environment. Raises Unreachable after `timeout`
        seconds, when its process group has been killed."""
        ...

    def attach(self, argv: Sequence[str], *, cwd: str = "", terminal: bool = False) -> int:
        """Runs a person's own command, or a login shell where `argv` is empty, on this process's stdin, stdout and
        stderr; in `cwd` (the box's root by default), with the box's environment. `terminal`: it wants one.

        Returns its exit code, 128 + n for signal n. It is the person's process, not the box's: where the platform lets
        it be told apart, neither a stop nor a delete waits for it or kills it, and it never counts as work. Blocks
        until it ends. Raises PlatformError where nothing may run, Unreachable when the box can't be reached.
        """
        ...

    def reach(self, port: int, local: int, say: Callable[[str], None] | None = None) -> str:
        """Makes `port` of the box reachable as `local` on this machine and blocks until it is interrupted; returns at
        once, with how to reach it, where it is reachable already. `say` hears when it can be reached, while this
        blocks. Raises PlatformError, Unreachable."""
        ...

    def processes(self) -> list[BoxProcess]:
        """Everything alive on the box that belongs to it, from wherever it was started."""
        ...

    def terminate(self, pid: int, *, grace: float = 5.0) -> None:
        """Ends the process group of one of the box's processes: SIGTERM, up to `grace` seconds, SIGKILL. Idempotent; a
        pid that is not the box's (any more) is left alone. Raises NotYetGone when it survives."""
        ...
