"""Waits for processes of an ended cell that still write its results, and ends all that it left.

A process that has a file of {out} open for writing, or mapped, or that changes one, is a part of the cell: a tracker
that flushes late, a save in the background. It is waited for, up to the cell's grace, and ended then. All others
(TensorBoard, helpers of a DataLoader, a service) are ended after a second in which nothing changed: nothing of a cell
keeps a GPU, a port or a slot.

On Linux this process adopts what its cells orphan (a child subreaper), so that a clean end is seen by its own children
alone, without a look at all processes. Elsewhere, and where open files can't be seen, only the changes of {out} tell.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from sweepstack.onbox.common.processes import PROC, Process, end_all, signal_group, start_of, stat_fields
from sweepstack.onbox.runner.cell_processes import CELL, left_by, mark_of
from sweepstack.onbox.runner.sealing import Stamp, walk

QUIET_SECONDS, LET_GO_SECONDS = 1.0, 1.0
"""So long nothing may change, and so long what is ended then may take; writers take KILL_SECONDS."""
KILL_SECONDS = 5.0
FIRST_LOOK, LAST_LOOK = 0.02, 0.5
"""The pauses between two looks grow from one to the other."""
ZOMBIE_SECONDS = 10.0
"""An ended child that was not asked for in this time was adopted: this process asks for its own at once."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""
NAMED, NAME_CHARS = 3, 60
INTERPRETERS = ("python", "sh", "bash", "node", "perl", "ruby")
"""What they run says more than they do."""


class Remains(NamedTuple):
    """How what was left behind ended. `left`: what it was, a sentence each. `doubts`: why the results may not be all,
    or not whole. `alive`: pids that can't be ended."""

    left: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    alive: tuple[int, ...] = ()


class Children:
    """The children of this process, with those that its cells orphaned. For the main loop and the sealers."""

    def __init__(self, box: str) -> None:
        self._box, self._adopts = box, _adopt_orphans()
        self._others: dict[int, tuple[str, str]] = {}  # pid → its start, and its mark
        self._ended: dict[int, float] = {}  # pid → since when it is known to have ended
        self._due = 0.0

    def may_remain(self, cell: str, leader: int, out: Path, own: Collection[int]) -> bool:
        """Whether something of a cell may live on whose first process, `leader`, has ended. `own`: what this process
        started for other cells. Takes well below a millisecond; never blocks."""
        _reap(-leader)
        if signal_group(leader, 0):
            return True
        pids = _children() if self._adopts else None
        if pids is None:
            return True
        self._others = {pid: known for pid, known in self._others.items() if pid in pids}
        return any(self._may_be_of(cell, pid, out) for pid in pids if pid not in own)

    def _may_be_of(self, cell: str, pid: int, out: Path) -> bool:
        try:
            fields = stat_fields(pid)
        except OSError:
            return False
        if fields[0] in ("Z", "X"):
            return False
        start, marked = self._others.get(pid, ("", ""))
        if start != fields[19]:
            return True
        return bool(held(pid, out, {})) if not marked else marked == f"{CELL}={cell}"

    def of(self, cell: str, leader: int, out: Path) -> list[Process]:
        """The live processes of the cell: by its mark, its group, its session, and what they started; and of those
        that this process adopted, what has a file of `out` open and no mark of any cell."""
        found, others = left_by(self._box, cell, leader)
        for process in others:
            marked = mark_of(process)
            self._others[process.pid] = process.start, marked
            if not marked and held(process.pid, out, {}):
                found.append(process)
        return found

    def reap(self, own: Collection[int]) -> None:
        """Forgets orphans that have ended; call it often. `own`: those whose exit code this process asks for."""
        at = time.monotonic()
        if at < self._due:
            return
        self._due = at + ZOMBIE_SECONDS
        ended: dict[int, float] = {}
        for pid in (_children() or ()) if self._adopts else ():
            with contextlib.suppress(OSError):
                if pid not in own and stat_fields(pid)[0] == "Z":
                    ended[pid] = self._ended.get(pid, at)
                    if at - ended[pid] >= ZOMBIE_SECONDS:
                        _reap(pid)
        self._ended = ended


def let_go(
    find: Callable[[], list[Process]],
    out: Path,
    grace: float,
    cut: Callable[[], bool],
    tell: Callable[[str], None] = lambda _: None,
) -> Remains:
    """Waits for those processes that write to `out`, up to `grace` seconds, and ends what is left then. Blocks.

    `find`: the live processes of the cell. `cut`: whether to wait no longer; what was left then is no result. `tell`:
    gets a line when it waits.
    """
    watch = _Watch(find, out)
    while watch.look() and not cut():
        if watch.elapsed >= grace or watch.quiet >= QUIET_SECONDS:
            break
        if watch.writing:
            watch.announce(tell, grace)
        watch.pause()
    else:
        if not watch.found:
            return Remains(watch.named, watch.doubts())
        return Remains(watch.named, (), end(find, KILL_SECONDS))
    doubts = watch.doubts(grace)
    alive = end(find, KILL_SECONDS if watch.writing else LET_GO_SECONDS)
    late = watch.late()
    return Remains(watch.named, (*doubts, *late), alive)


def end(find: Callable[[], list[Process]], grace: float) -> tuple[int, ...]:
    """Ends the processes: SIGTERM, `grace` seconds, SIGKILL. Blocks. Returns the pids that are alive even then."""
    seen: set[tuple[int, str]] = set()

    def found() -> list[Process]:
        live = find()
        seen.update(map(_key, live))
        return live

    alive = end_all(found, grace)
    for key in seen.difference(map(_key, alive)):
        _reap(*key)
    return tuple(process.pid for process in alive)


class _Watch:
    """The looks at one cell. `found`: what lives now; `writing`: those of it that have files of {out} open."""

    def __init__(self, find: Callable[[], list[Process]], out: Path) -> None:
        self._find, self._out = find, out
        self._began = self._restless = time.monotonic()
        self._files, self._pause, self._told = stamps(out), FIRST_LOOK, False
        self.found: list[Process] = []
        self.writing: dict[tuple[int, str], tuple[str, ...]] = {}
        self._names: dict[tuple[int, str], str] = {}
        self._wrote: dict[tuple[int, str], tuple[str, ...]] = {}
        self._unclear: set[tuple[int, str]] = set()
        self._blamed: set[str] = set()
        self._bad: list[str] = []

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def quiet(self) -> float:
        """Seconds since something wrote, or might have."""
        return 0.0 if self.writing else time.monotonic() - self._restless

    @property
    def _living(self) -> str:
        return _list([self._names[key] for key in map(_key, self.found)])

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(self._names.values())

    def look(self) -> bool:
        """Whether something of the cell is alive."""
        before = self.writing
        self.found = self._find() or self._find()  # one reading of /proc is no snapshot
        keys = {_key(process): process for process in self.found}
        files = stamps(self._out)
        inodes = {(one.device, one.inode): path for path, one in files.items()}
        self.writing = {}
        for key, process in keys.items():
            self._names.setdefault(key, f"{_program(process)} (pid {process.pid})")
            open_files = held(process.pid, self._out, inodes)
            if open_files is None:
                self._unclear.add(key)
            elif open_files:
                self.writing[key] = open_files
        for key in self._names.keys() - keys.keys():
            self._note_end(key)
        self._wrote.update(self.writing)
        changed = _changes(self._files, files)
        self._files = files
        if changed and not (before or self.writing):  # else it is known who wrote, and whether that ended well
            self._blamed |= changed
        if changed or self.writing:
            self._restless = time.monotonic()
        return bool(self.found)

    def _note_end(self, key: tuple[int, str]) -> None:
        """Where it was adopted, its exit code is known: a writer that was killed may have left half a file."""
        code, wrote = _reap(*key), self._wrote.pop(key, ())
        if wrote and code:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._bad.append(f"{self._names[key]}, which wrote {_list(wrote)} after exit code 0, ended with {how}")

    def announce(self, tell: Callable[[str], None], grace: float) -> None:
        if not self._told:
            self._told = True
            tell(f"exit code 0, and it is waited for up to {grace:g} s: {self._who()}")

    def _who(self) -> str:
        by_files: dict[tuple[str, ...], list[str]] = {}
        for key, files in sorted(self.writing.items()):
            by_files.setdefault(files, []).append(self._names[key])
        return "; ".join(
            f"{_list(names)} {'has' if len(names) == 1 else 'have'} {_list(files)} open for writing"
            for files, names in by_files.items()
        )

    def doubts(self, grace: float | None = None) -> tuple[str, ...]:
        """Why what was written after exit code 0 may not be whole. `grace`: what lives now is ended after so long."""
        found = list(self._bad)
        if grace is None:
            return tuple(found)
        if self.writing:
            was, it = ("was", "it") if len(self.writing) == 1 else ("were", "them")
            found.append(f"{self._who()}, {grace:g} s after exit code 0, and {was} ended; job.grace gives {it} longer")
        if self._blamed:
            found.append(f"{_list(self._blamed)} changed after exit code 0, while {self._living} ran on, and was ended")
        unclear = [self._names[key] for key in map(_key, self.found) if key in self._unclear]
        if unclear:
            found.append(f"{_list(unclear)} was ended, and its open files can't be seen: it may have written")
        return tuple(found)

    def late(self) -> tuple[str, ...]:
        """What changed while the rest was ended."""
        changed = _changes(self._files, stamps(self._out)) - self._blamed
        if not changed or self.writing:
            return ()
        return (f"{_list(changed)} changed while {self._living} was ended, after exit code 0",)

    def pause(self) -> None:
        time.sleep(self._pause)
        self._pause = min(LAST_LOOK, self._pause * 2)


def stamps(folder: Path) -> dict[str, Stamp]:
    """The regular files below a folder, and those that links there mean: path → what changes with it. What can't be
    read is left out."""
    found = {}
    with contextlib.suppress(OSError):
        for path, status in walk(folder):
            with contextlib.suppress(OSError):
                if isinstance(status, OSError) or stat.S_ISLNK(status.st_mode):
                    status = os.stat(folder / path)
                if stat.S_ISREG(status.st_mode):
                    found[path] = Stamp.of(status)
    return found


def held(pid: int, out: Path, files: Mapping[tuple[int, int], str]) -> tuple[str, ...] | None:
    """The files of `out` that a process has open for writing, or mapped to write: sorted paths. None when that can't
    be seen and it lives. `files`: device and inode → path, of those that are there and lie elsewhere by their names.
    """
    if not PROC.is_dir() or not (PROC / "self" / "fd").is_dir():
        return ()  # no such system: only changes tell
    found, above = set(), os.path.realpath(out) + "/"
    try:
        for path, status in _open_files(pid):
            named = files.get((status.st_dev, status.st_ino))
            if named is not None or path.startswith(above):
                found.add(named or path[len(above) :])
    except PermissionError:
        return None
    except OSError:  # it has ended
        return ()
    return tuple(sorted(found))


def _open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """What a process may write to. Raises OSError."""
    folder = f"{PROC}/{pid}"
    for name in os.listdir(f"{folder}/fd"):
        link = f"{folder}/fd/{name}"
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.lstat(link).st_mode & stat.S_IWUSR:  # the link's mode says how it was opened
                status = os.stat(link)
                if stat.S_ISREG(status.st_mode):
                    yield os.readlink(link), status
    with open(f"{folder}/maps", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            words = line.rstrip("\n").split(None, 5)
            if len(words) == 6 and words[1][1] == "w" and words[1][3] == "s" and words[4] != "0":
                with contextlib.suppress(OSError):
                    yield words[5], os.stat(words[5])


def _changes(before: Mapping[str, Stamp], after: Mapping[str, Stamp]) -> set[str]:
    return {path for path in {*before, *after} if before.get(path) != after.get(path)}


def _key(process: Process) -> tuple[int, str]:
    return process.pid, process.start


def _program(process: Process) -> str:
    """What it is, without arguments, which may hold a secret: `python train.py`, `wandb-core`."""
    first, *rest = process.argv or ("a process",)
    name, words = os.path.basename(first), rest[1:] if rest[:1] == ["-m"] else rest
    if name.startswith(INTERPRETERS) and words and not words[0].startswith("-"):
        name += " " + os.path.basename(words[0])
    return name[:NAME_CHARS]


def _list(names: Collection[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
    return ", ".join(shown[:NAMED]) + more


def _children() -> set[int] | None:
    """The pids of this process's children; None where the kernel does not list them."""
    found: set[int] = set()
    try:
        for thread in os.listdir(PROC / "self" / "task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                text = (PROC / "self" / "task" / thread / "children").read_text()
                found.update(int(word) for word in text.split())
    except (OSError, ValueError):
        return None
    return found


def _adopt_orphans() -> bool:
    """Makes what a child of this process orphans its own child, as init would get it. False where no system does."""
    if sys.platform != "linux" or _children() is None:
        return False
    with contextlib.suppress(ImportError, OSError, AttributeError):  # a Python without libffi, another C library
        import ctypes

        return bool(ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0) == 0)
    return False


def _reap(pid: int, start: str = "") -> int | None:
    """Takes the exit code of a child that has ended and that nothing else asks for; of all of a group, where `pid` is
    below 0. `start`: only of the one that began then. None where there is none."""
    code = None
    with contextlib.suppress(OSError):
        while not start or start_of(pid) == start:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended == 0:
                break
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return code
