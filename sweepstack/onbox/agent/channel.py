"""The interface of a channel: reads, writes and runs commands on one box.

Paths are box-relative POSIX paths (`data/sweep/journal.jsonl`, `mnt/durable/…`): never absolute, never with `..`, and
a link may lead out of the box only where the platform itself made it (`mnt/<name>`).

Errors: FileNotFoundError means that the box answered and the path is not there; Unreachable that the box did not
answer, so nothing is known; PlatformError that the request itself is refused (an unsafe path, not a regular file).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.common.run_process import Completed


def host_identity() -> str:
    """This machine's name in accounts and evidence addresses."""
    import socket

    return socket.gethostname()


class SshEndpoint(NamedTuple):
    """Where a box's sshd listens now. `proxied`: through the platform's own relay, which passes a shell and no files.

    `start`: the platform's mark of this start of the box; while it is the same, the host key must be the same.
    `known_as`: the name under which the host key is pinned: the host's, when several boxes share it; "" for the box's.
    """

    host: str
    port: int
    user: str = "root"
    proxied: bool = False
    start: str = ""
    known_as: str = ""


class DirEntry(NamedTuple):
    """One entry of a folder. `size`: bytes for files, else 0. Links are listed as links, never followed."""

    name: str
    kind: Literal["file", "dir", "link", "other"]
    size: int


class Listing(NamedTuple):
    """Regular files below some folders: path, bytes, and the last change (ctime, epoch seconds).

    A file with several hard links is listed once. `problem`: why the list is not complete; "" when it is.
    """

    files: tuple[tuple[str, int, float], ...] = ()
    problem: str = ""


class Other(NamedTuple):
    """What is neither a file nor a folder. `what`: a socket, a pipe, or what the link leads to, for people. `means`:
    the regular file of the box that a link leads to, by its own path, with `size` bytes; "" where it leads to none."""

    path: str
    what: str
    means: str = ""
    size: int = 0


class BoxProcess(NamedTuple):
    """A live process of a box, found by its environment or its ancestors. Zombies are not live."""

    pid: int
    argv: tuple[str, ...]


def safe_parts(path: str) -> tuple[str, ...]:
    """The parts of a box-relative path. Raises PlatformError for an absolute or empty path, `..`, or NUL."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise PlatformError(f"{path!r} is not a path inside the box: it must be relative and without '..'")
    return parts


class Channel(Protocol):
    """A channel to one box. Calls block; threads may share one. Connections that it keeps open close by themselves.

    `native_id`: the box's. `python`: the absolute path of an interpreter on the box, for the runner. `skew`: seconds
    that the box's clock is ahead of ours, 0 when they agree within seconds.
    """

    native_id: str

    @property
    def python(self) -> str: ...

    @property
    def skew(self) -> float: ...

    def absolute(self, path: str) -> str:
        """The absolute path on the box. Does not check whether it exists."""
        ...

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """At most `limit` bytes from `offset`. FileNotFoundError when the box answered and the file is not there;
        NotAFile when a folder, or what else is no regular file, has its name."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a regular file; None when the box answered and it is not there, or is not a regular file."""
        ...

    def tails(self, paths: Sequence[str], most: int) -> dict[str, tuple[int, bytes]]:
        """For each regular file that is there: its size, and its last `most` bytes, all in one round trip. A file that
        can't be read is left out. Raises Unreachable."""
        ...

    def listdir(self, path: str) -> list[DirEntry]:
        """The entries of a folder, sorted by name. Raises FileNotFoundError, NotADirectoryError."""
        ...

    def walk(
        self, folders: Sequence[str], *, skip: Sequence[str] = (), limit: int = 100_000, seconds: float = 5.0
    ) -> Listing:
        """All regular files below `folders`, sorted by name. Links are neither followed nor listed.

        `skip`: folders (box-relative, shell patterns) that are left out. A missing folder counts as empty. Files that
        can't be read, more than `limit` files, or more than `seconds` give a `problem`. Raises Unreachable.
        """
        ...

    def others(self, folders: Sequence[str], *, limit: int = 10_000, seconds: float = 5.0) -> list[Other]:
        """What else is below `folders`: links, sockets, pipes, `limit` of them at most. Raises Unreachable."""
        ...

    def fetch(self, path: str, target: Path, progress: Callable[[int], None] | None = None) -> None:
        """Copies a file of the box to the local `target`; always a copy, never a link; fsyncs it.

        Resumes: what `target` holds already counts as the file's beginning, unless it is longer than the source. This
        is not compared: check the digest afterwards, and on a mismatch delete `target` and fetch again. `progress` gets
        the bytes added since its last call, the resumed ones first. Raises Unreachable when the source shrinks or the
        connection breaks; `target` then holds a part.
        """
        ...

    def fetch_many(self, files: Sequence[tuple[str, Path]], progress: Callable[[int], None] | None = None) -> None:
        """`fetch` for many small files (path on the box, local target), in few round trips. After a broken connection
        some targets are whole, at most one holds a part, and the others are unchanged."""
        ...

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file atomically and fsyncs it; makes parent folders. Idempotent. A folder of that name is kept, as
        `<name>.superseded-N`."""
        ...

    def touch(self, path: str) -> bool:
        """Sets a file's time to now, by the box's clock. False when it is not there: it is not made. Raises
        Unreachable."""
        ...

    def append_locked(self, path: str, data: bytes, lock: str, *, at: int | None = None) -> bool:
        """Appends whole lines under an exclusive flock on `lock` and fsyncs. All of `data` is added, or nothing. `at`:
        only where the file has this many bytes (0 where it is not there), so that no line was added since it was read.
        Returns whether it was done.

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
        """Starts a process that goes on when we end: own session, empty stdin, output appended to `log`. Returns its
        pid. Not idempotent.

        `env` is its whole environment, plus the box's id and the login's HOME; nothing else is inherited.
        """
        ...

    def lock_held(self, path: str) -> bool:
        """Whether a process holds an exclusive flock on the file now. False when the file is not there.

        This takes a shared lock for microseconds: code that takes the lock must try for a second, not once.
        """
        ...

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes | None = None) -> Completed:
        """Runs a command until it ends, in the box's root, with a minimal environment. After `timeout` seconds kills
        its process group and raises Unreachable."""
        ...

    def attach(self, argv: Sequence[str], *, cwd: str = "", terminal: bool = False) -> int:
        """Runs a person's own command, or a login shell where `argv` is empty, on this process's stdin, stdout and
        stderr; in `cwd` (the box's root by default), with the box's environment. `terminal`: give it a terminal.

        Returns its exit code, 128 + n for signal n. The process belongs to the person, not to the box: where the
        platform can tell them apart, a stop or delete neither waits for it nor kills it, and it never counts as work.
        Blocks until it ends. Raises PlatformError when nothing may run there, Unreachable.
        """
        ...

    def reach(self, port: int, local: int, say: Callable[[str], None] | None = None) -> str:
        """Forwards `port` of the box to `local` on this machine and blocks until it is interrupted. If the port can be
        reached without that, returns at once a text that says how. `say` gets a text once forwarding works. Raises
        PlatformError, Unreachable."""
        ...

    def processes(self) -> list[BoxProcess]:
        """All live processes of the box, however they were started."""
        ...

    def terminate(self, pid: int, *, grace: float = 5.0) -> None:
        """Ends the process group of one of the box's processes: SIGTERM, up to `grace` seconds, then SIGKILL.
        Idempotent; a pid that is not (or no longer) the box's is left alone. Raises NotYetGone when it survives."""
        ...


@runtime_checkable
class ByHand(Protocol):
    """A channel to a machine on which only a person can start anything: they carry a bundle there."""

    @property
    def note(self) -> str:
        """What a person should know of what came back, or still has to come; "" where there is nothing to say."""
        ...

    def pack(self, runner: str, facts: Mapping[str, Any]) -> str:
        """Packs what the box was given as a bundle that a person can run, and writes it where they find it. `runner`:
        its path below the box's home. `facts`: how it is started there (`sweepstack.profiles.access.ByHand`). Returns
        what to do with it, in words. Idempotent: the same content is not written again. Raises Unreachable."""
        ...


@runtime_checkable
class Scheduled(Protocol):
    """A channel to a box whose workers a scheduler starts, when it has room for them. The runner's lock counts as held
    while one of them runs, or waits and will begin by itself, and when that can't be known."""

    def state_command(self) -> list[str]:
        """The command with which a worker asks whether another one may still run: the job and the try are added. Ships
        what it needs. Idempotent. Raises Unreachable."""
        ...

    def top_up(self, runner: str, scheduler: Mapping[str, Any], cells: int) -> str:
        """Submits the workers that are missing for `cells` cells that are to be done. `runner`: its path below the
        box's home. `scheduler`: what each asks for. Idempotent: what was submitted is looked for first. Returns in
        words what there is now. Raises RequestRefused, OutcomeUnknown, Unreachable."""
        ...

    def end_workers(self) -> None:
        """Ends all workers, also those that wait; none begins until `top_up`. Blocks for a minute or two; idempotent.
        Raises NotYetGone when their end is not proved; Unreachable."""
        ...

    def workers(self) -> Mapping[str, Any]:
        """What the scheduler says of each: `tasks`, a list of `name`, `state`, `try`, `starts` (epoch seconds, or
        None), `node`, `words`; `before`, how many jobs wait before the first of them, or None; `at_work`, how many take
        cells or will by themselves; `held`, how many a person holds; and `words`, all of it in one line. Raises
        Unreachable."""
        ...


@runtime_checkable
class TakesWord(Protocol):
    """A channel to a box whose scheduler takes a person's word, too, that a worker has ended. It need not reach the
    box for that."""

    def worker_ended(self, worker: str, saw: str) -> str:
        """Tells the scheduler that a person saw that. Idempotent. Returns what it wrote down, in words; "" where it
        knows of no such worker, or of its end. Each part of a worker may have a name of its own: no word for the whole
        frees a cell before each has ended. Raises RequestRefused where it shows that the worker runs; Unreachable."""
        ...
