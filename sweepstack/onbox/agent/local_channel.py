"""A channel to a box on this machine: a folder, with links to volumes below `mnt/`."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from sweepstack.onbox.agent.channel import BoxProcess, DirEntry, Listing, Other, safe_parts
from sweepstack.onbox.agent.file_walk import Walk, tail_of
from sweepstack.onbox.agent.file_writes import appear, append_lines, copy_in, open_target
from sweepstack.onbox.common import holes, locks, processes, run_process
from sweepstack.onbox.common.aside import make_way
from sweepstack.onbox.common.box_layout import QUEUE_LOCK, SHARED_LOCK
from sweepstack.onbox.common.canonical import fsync_directory, write_atomically
from sweepstack.onbox.common.errors import NotAFile, PlatformError, Unreachable
from sweepstack.onbox.common.locks import owner_of, state_of
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE
from sweepstack.onbox.common.run_process import Completed
from sweepstack.onbox.visit import shell

APPEND_LOCK_SECONDS = 60.0
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class LocalChannel:
    """See `sweepstack.onbox.agent.channel.Channel`. `mounts`: box-relative path → folder of a volume's content.

    `closed`: returns why nothing may be started on the box now, "" when it may. `runs`: False for a volume without its
    box; then the volume is the `root`, or `root` is None and there is only its mount. `cancelled`: asked during a wait;
    once it is true, the wait ends, and the process that was waited for is killed.

    Python 3.8 and the standard library, with all that it imports: a rented box runs this same code (`agent`).
    """

    def __init__(
        self,
        native_id: str,
        root: Path | None,
        mounts: Mapping[str, Path],
        *,
        closed: Callable[[], str] | None = None,
        runs: bool = True,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        self.native_id = native_id
        self.python, self.skew = sys.executable, 0.0
        self._root = root
        self._mounts = {safe_parts(mount): content for mount, content in mounts.items()}
        self._closed = closed
        self._runs = runs
        self._cancelled = cancelled

    def absolute(self, path: str) -> str:
        if self._root is None:
            base, rest = self._split(path)
            return str(base.joinpath(*rest))
        return str(self._root.joinpath(*safe_parts(path)))

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        with self.open_file(path) as handle, self._answering(path):
            handle.seek(offset)
            return handle.read(-1 if limit is None else limit)

    def size(self, path: str) -> int | None:
        with self._answering(path):
            try:
                status = os.lstat(self._locate(path))
            except _NOT_THERE:
                self._must_exist()
                return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def tails(self, paths: Sequence[str], most: int) -> dict[str, tuple[int, bytes]]:
        return {path: found for path in paths if (found := tail_of(self, path, most)) is not None}

    def listdir(self, path: str) -> list[DirEntry]:
        with self._answering(path):
            entries = []
            with os.scandir(self._locate(path)) as found:
                for entry in found:
                    with contextlib.suppress(FileNotFoundError):  # removed between the two looks
                        status = entry.stat(follow_symlinks=False)
                        kind = _kind(status.st_mode)
                        entries.append(DirEntry(entry.name, kind, status.st_size if kind == "file" else 0))
            return sorted(entries, key=lambda entry: entry.name)

    def walk(
        self, folders: Sequence[str], *, skip: Sequence[str] = (), limit: int = 100_000, seconds: float = 5.0
    ) -> Listing:
        return self._walked(folders, Walk(skip, limit, time.monotonic() + seconds)).listing()

    def others(self, folders: Sequence[str], *, limit: int = 10_000, seconds: float = 5.0) -> list[Other]:
        look = self._walked(folders, Walk((), limit, time.monotonic() + seconds))
        return [self._other(path, place, mode) for path, place, mode in look.others]

    def _walked(self, folders: Sequence[str], look: Walk) -> Walk:
        self._must_exist()
        for folder in folders:
            try:
                look.below(self._locate(folder), folder)
            except _NOT_THERE:
                self._must_exist()
        return look

    def _other(self, path: str, place: str, mode: int) -> Other:
        if not stat.S_ISLNK(mode):
            return Other(path, "a socket" if stat.S_ISSOCK(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device")
        what, real = "a link", os.path.realpath(place)
        with contextlib.suppress(OSError):
            what = f"a link to {os.readlink(place)}"
            status = os.stat(real)
            means = self._named(real) if stat.S_ISREG(status.st_mode) else ""
            return Other(path, what, means, status.st_size if means else 0)
        return Other(path, what)

    def _named(self, real: str) -> str:
        """The path on the box of a file, which is given without links; "" where it is not on it."""
        bases = [("/".join(mount), str(content)) for mount, content in self._mounts.items()]
        for name, base in [*bases, ("", str(self._root))] if self._root is not None else bases:
            inside = os.path.relpath(real, os.path.realpath(base))
            if not inside.startswith(".."):
                return f"{name}/{inside}" if name else inside
        return ""

    def fetch(self, path: str, target: Path, progress: Callable[[int], None] | None = None) -> None:
        say = progress or _silent
        with self.open_file(path) as source, open_target(target) as copy:
            expected = os.fstat(source.fileno()).st_size
            done = os.fstat(copy.fileno()).st_size
            if done > expected:
                copy.truncate(0)
                done = 0
            copy.seek(done)
            if done:
                say(done)
            chunks = holes.parts(source, os.fstat(source.fileno()), done)
            while done < expected:
                with self._answering(path):
                    chunk = next(chunks, b"")
                if len(chunk) > expected - done:  # it grows
                    chunk = chunk[: expected - done]
                if not chunk:
                    raise Unreachable(
                        f"{path} on {self.native_id} shrank while it was copied: {done:,} of {expected:,} bytes are "
                        f"here, and are not taken for the whole; pull again"
                    )
                holes.write(copy, chunk)
                done += len(chunk)
                say(len(chunk))
            copy.flush()
            os.fsync(copy.fileno())
        fsync_directory(target.parent)

    def fetch_many(self, files: Sequence[tuple[str, Path]], progress: Callable[[int], None] | None = None) -> None:
        for path, target in files:
            self.fetch(path, target, progress)

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        with self._answering(path):
            target = self._locate(path)
            make_way(target)
            write_atomically(target, data, mode=mode)

    def touch(self, path: str) -> bool:
        with self._answering(path):
            try:
                os.utime(self._locate(path))
            except _NOT_THERE:
                self._must_exist()
                return False
        return True

    def append_locked(self, path: str, data: bytes, lock: str, *, at: int | None = None) -> bool:
        if not data.endswith(b"\n"):
            raise PlatformError(f"only whole lines are appended to {path}: the data must end in a newline")
        with self._answering(path):
            file, lock_file = self._locate(path), self._locate(lock)
            for parent in (file.parent, lock_file.parent):
                parent.mkdir(parents=True, exist_ok=True)
            with open(lock_file, "ab") as holder:
                self._take(holder.fileno(), lock)
                if at is not None and at != (file.stat().st_size if file.exists() else 0):
                    return False
                append_lines(file, data)
            if lock == QUEUE_LOCK and b'"op":"drop"' in data:
                self._let_claims_end()
        return True

    def _let_claims_end(self) -> None:
        """Returns once each claim of a cell that is made later has read what was appended: the worker that has the lock
        now may have read the queue before. Only a drop has to wait for that. Raises Unreachable after 60 s."""
        folder, ends = self._locate(SHARED_LOCK), time.monotonic() + APPEND_LOCK_SECONDS
        with contextlib.suppress(FileNotFoundError):  # no worker was here yet
            first = now = state_of(folder, anew=True)
            while not now.free and now.number == first.number:
                if time.monotonic() > ends or (self._cancelled is not None and self._cancelled()):
                    owner = owner_of(folder, now.number)
                    raise Unreachable(
                        f"worker {owner.get('worker')} (host {owner.get('host')}, pid {owner.get('pid')}) of "
                        f"{self.native_id} has held its lock all the time: a cell that was taken out may have been "
                        f"started. Next: the same command again; if that worker is dead: sweepctl confirm worker"
                    )
                time.sleep(locks.PAUSE_SECONDS)
                now = state_of(folder, anew=True)

    def put_tree(self, files: Iterable[tuple[str, Path, int]], dest: str) -> None:
        import secrets

        with self._answering(dest):
            folder = self._locate(dest)
            if folder.exists():
                return
            folder.parent.mkdir(parents=True, exist_ok=True)
            staged = folder.with_name(f".{folder.name}.partial-{secrets.token_hex(4)}")
            try:
                staged.mkdir()
                for relative, source, mode in files:
                    copy_in(source, staged.joinpath(*safe_parts(relative)), mode)
                for parent, _, _ in os.walk(staged):
                    fsync_directory(Path(parent))
                appear(staged, folder)
            finally:
                shutil.rmtree(staged, ignore_errors=True)

    def spawn(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], log: str) -> int:
        self._must_run()
        with self._answering(cwd):
            log_file = self._locate(log)
            log_file.parent.mkdir(parents=True, exist_ok=True)
            with open(log_file, "ab") as output:
                process = subprocess.Popen(
                    list(argv),
                    cwd=self._locate(cwd),
                    env={"HOME": os.path.expanduser("~"), **env, BOX_ID_VARIABLE: self.native_id},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            try:
                self._must_run()  # a stop that began meanwhile may not have seen the new process
            except PlatformError:
                processes.signal_group(process.pid, signal.SIGKILL)
                process.wait()
                raise
        # The process outlives us; until then this thread waits for it, so that it leaves no zombie.
        threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()
        return process.pid

    def lock_held(self, path: str) -> bool:
        with self._answering(path):
            try:
                descriptor = os.open(self._locate(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except _NOT_THERE:
                self._must_exist()
                return False
            try:
                return locks.is_held(descriptor)
            finally:
                os.close(descriptor)

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes | None = None) -> Completed:
        root = self._must_run()
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(root),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            BOX_ID_VARIABLE: self.native_id,
        }
        what = f"`{' '.join(argv)}` on {self.native_id}"
        with self._answering("."):
            return run_process.run(
                what, argv, cwd=str(root), env=env, timeout=timeout, stdin=stdin, cancelled=self._cancelled
            )

    def attach(self, argv: Sequence[str], *, cwd: str = "", terminal: bool = False) -> int:
        root = self._must_run()
        command = list(argv) or [os.environ.get("SHELL") or "/bin/sh"]
        return shell.run(command, self._locate(cwd) if cwd else root, shell.environment(self.native_id, root))

    def reach(self, port: int, local: int, say: Callable[[str], None] | None = None) -> str:
        self._must_run()
        return _reachable(port, local)

    def processes(self) -> list[BoxProcess]:
        return [BoxProcess(process.pid, process.argv) for process in processes.of_box(self.native_id)]

    def terminate(self, pid: int, *, grace: float = 5.0) -> None:
        processes.end_group_of(self.native_id, pid, grace=grace)

    def _split(self, path: str) -> tuple[Path, tuple[str, ...]]:
        parts = safe_parts(path)
        for mount, content in self._mounts.items():
            if parts[: len(mount)] == mount:
                return content, parts[len(mount) :]
        if self._root is None:
            raise PlatformError(
                f"{path} is not on {self.native_id}, which has {', '.join(map('/'.join, self._mounts))}"
            )
        return self._root, parts

    def _locate(self, path: str) -> Path:
        """The absolute path, links resolved. Raises PlatformError when it lies outside of the box and its volumes,
        Unreachable when the box or the volume is not there."""
        self._must_exist()
        base, parts = self._split(path)
        try:
            base = base.resolve(strict=True)
        except OSError as error:
            raise Unreachable(f"what {path} on {self.native_id} leads to is not there: {error}") from error
        try:
            found = base.joinpath(*parts).resolve()
        except RuntimeError as error:
            raise PlatformError(f"{path} on {self.native_id} is a link that leads to itself") from error
        if base != found and base not in found.parents:
            raise PlatformError(f"{path} on {self.native_id} leads out of the box, to {found}: it is not followed")
        return found

    def _must_exist(self) -> None:
        if self._root is not None and not self._root.is_dir():
            raise Unreachable(f"{self.native_id} can't be reached: its folder {self._root} is not there")

    def _must_run(self) -> Path:
        self._must_exist()
        if self._root is None or not self._runs:
            raise PlatformError(f"{self.native_id} is a volume: nothing runs on it")
        why = self._closed() if self._closed else ""
        if why:
            raise PlatformError(f"{self.native_id} {why}")
        return self._root

    @contextlib.contextmanager
    def _answering(self, path: str) -> Iterator[None]:
        """Passes "not found" on only when the box itself is there; any other OSError becomes Unreachable."""
        try:
            yield
        except (*_NOT_THERE, IsADirectoryError):
            self._must_exist()
            raise
        except OSError as error:
            raise Unreachable(f"{path} on {self.native_id}: {error}") from error

    def open_file(self, path: str) -> IO[bytes]:
        """Opens a regular file of the box for reading. Raises FileNotFoundError, NotAFile, Unreachable."""
        with self._answering(path):
            try:
                # Non-blocking: to open a named pipe must not hang.
                descriptor = os.open(self._locate(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except NotADirectoryError as error:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise NotAFile(f"{path} on {self.native_id} is not a regular file")
            return os.fdopen(descriptor, "rb")

    def _take(self, descriptor: int, lock: str) -> None:
        if not locks.take(descriptor, APPEND_LOCK_SECONDS, self._cancelled or bool):
            if self._cancelled is not None and self._cancelled():
                raise Unreachable(f"{lock} on {self.native_id}: the command that waited for it is gone")
            raise Unreachable(f"{lock} on {self.native_id} has been held by another process for 60 s")


def _silent(_count: int) -> None:
    """The default for `progress`: ignores it."""


def _kind(mode: int) -> Literal["file", "dir", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def _reachable(port: int, local: int) -> str:
    """See `Channel.reach`, for a box that is this machine: checks whether a program answers at `port`."""
    if local != port:
        raise PlatformError(
            f"the box is this machine: its port {port} is {port} here already, and is not renamed to {local}. "
            f"Next: leave the second port away"
        )
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        answers = probe.connect_ex(("127.0.0.1", port)) == 0
    where = f"http://127.0.0.1:{port}"
    if answers:
        return f"nothing to forward: the box is this machine, and something answers at {where}"
    return f"nothing to forward: the box is this machine, and {where} is it; nothing answers there yet"
