"""Finds and ends processes of this machine, such as all processes of a box.

A process belongs to a box when its environment has the box's id, or when its parent or its session's leader belongs to
the box (a program may overwrite its own environment, or start children with an empty one). Other users' processes are
found only through their parents. Zombies count as ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from sweepstack.onbox.common.errors import NotYetGone, Unreachable

BOX_ID_VARIABLE = "SWEEPSTACK_BOX_ID"
"""Every process on a box has this variable, with the box's native id: the end of a box finds its processes by it."""
WORKER_VARIABLE = "SWEEPSTACK_WORKER"
"""So has what a worker of a shared queue starts, with the worker's name. One that is started without it puts it into
its own environment, and begins anew: who starts a worker saves that by setting it."""
PROC = Path("/proc")
SCAN_SECONDS = 0.05
KILL_SECONDS = 5.0
MOST_AT_ONCE = 1 << 16


class Process(NamedTuple):
    """One process as the system shows it. `start`: its start time in the system's own form, which tells a reused pid
    apart; "" when not known. `environ`: its entries `NAME=value`, as far as they can be read. `said`: its arguments, if
    they were read already."""

    pid: int
    parent: int
    group: int
    session: int
    start: str
    environ: frozenset[bytes]
    said: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """Its arguments, read now; empty when it has ended."""
        with contextlib.suppress(OSError):
            words = (PROC / str(self.pid) / "cmdline").read_bytes().split(b"\0")
            return tuple(word.decode("utf-8", "replace") for word in words if word)
        return self.said


def of_box(native_id: str) -> list[Process]:
    """The live processes of a box, sorted by pid. Reads only, takes milliseconds. Raises Unreachable when the processes
    can't be listed."""
    seen, mark = scan(), f"{BOX_ID_VARIABLE}={native_id}".encode()
    ours = {process.pid for process in seen if mark in process.environ}
    while True:
        more = {p.pid for p in seen if p.pid not in ours and (p.parent in ours or p.session in ours)}
        if not more:
            return sorted((process for process in seen if process.pid in ours), key=lambda process: process.pid)
        ours |= more


def end_box(native_id: str, *, grace: float = 5.0) -> None:
    """SIGTERM to all processes of a box, up to `grace` seconds, SIGKILL until none is left. Irreversible; idempotent.

    Raises NotYetGone naming the survivors: after SIGKILL, or since this very command runs on the box.
    """
    _must_end(lambda: of_box(native_id), f"of {native_id}", grace)


def end_group_of(native_id: str, pid: int, *, grace: float = 5.0) -> None:
    """`end_box` for the process group of one process of the box. A pid that is not the box's is left alone."""
    group = next((process.group for process in of_box(native_id) if process.pid == pid), None)
    if group is not None:
        _must_end(lambda: [p for p in of_box(native_id) if p.group == group], f"in group {group} of {native_id}", grace)


def _must_end(find: Callable[[], list[Process]], what: str, grace: float) -> None:
    left = end_all(find, grace)
    mine = [process for process in left if process.pid in _lineage()]
    if mine:
        raise NotYetGone(f"this command itself runs on the box ({_named(mine)}): run it from outside")
    if left:
        raise NotYetGone(f"processes {what} survived SIGKILL: {_named(left)}")


def end_all(find: Callable[[], list[Process]], grace: float) -> list[Process]:
    """Ends the processes that `find` returns: SIGTERM, `grace` seconds, then SIGKILL for KILL_SECONDS until none is
    left. Blocks. Returns those that are alive even then. If this process or one of its ancestors is among them, returns
    those at once and ends nothing. Raises what `find` raises."""
    own = _lineage()
    begin = time.monotonic()
    asked: set[tuple[int, str]] = set()
    # One reading of /proc is no snapshot: a process may fork and end between two reads. So two empty readings are
    # needed.
    while (found := find()) or (found := find()):
        mine = [process for process in found if process.pid in own]
        if mine:
            return mine
        elapsed = time.monotonic() - begin
        if elapsed > grace + KILL_SECONDS:
            return found
        for process in found:
            if elapsed >= grace:
                _send(process, signal.SIGKILL)
            elif (process.pid, process.start) not in asked:
                asked.add((process.pid, process.start))
                _send(process, signal.SIGTERM)
        time.sleep(SCAN_SECONDS)
    return []


def signal_group(group: int, number: int) -> bool:
    """Sends a signal to a process group; 0 only asks. False when no process is in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS refuses for zombies
        return False
    return True


def start_of(pid: int) -> str:
    """When a process started, in the system's own form; "" when that can't be read."""
    try:
        return stat_fields(pid)[19]
    except (OSError, IndexError):
        return ""


def stat_fields(pid: int | str) -> list[str]:
    """The fields of /proc/<pid>/stat after the command's name, which may contain any characters. Raises OSError."""
    return _read(pid, "stat").rpartition(b")")[2].decode("ascii", "replace").split()


def _read(pid: int | str, name: str) -> bytes:
    """A file of /proc/<pid>. A look at all processes reads two of each: by `Path` and `open` it takes twice as long."""
    handle = os.open(f"{PROC}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(handle, MOST_AT_ONCE):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def scan() -> list[Process]:
    """All processes of this machine except zombies. Raises Unreachable when they can't be listed."""
    if not (PROC / "self" / "environ").exists():
        return _scan_ps()
    found = []
    try:
        names = [name for name in os.listdir(PROC) if name.isdigit()]
    except OSError as error:
        raise Unreachable(f"the processes of this machine can't be listed: {error}") from error
    for name in names:
        try:
            fields = stat_fields(name)
            parent, group, session = (int(field) for field in fields[1:4])
            ended = fields[0] in ("Z", "X")
        except (OSError, ValueError, IndexError):
            continue  # ended meanwhile
        if ended:
            continue
        environ = b""
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            environ = _read(name, "environ")
        found.append(Process(int(name), parent, group, session, fields[19], frozenset(environ.split(b"\0"))))
    return found


def _scan_ps() -> list[Process]:
    """The same on a system without /proc (macOS). `-E` shows the environment of our own processes after the
    arguments."""
    command = ["ps", "-axwwE", "-o", "pid=,ppid=,pgid=,state=,command="]
    try:
        shown = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"the processes of this machine can't be listed: {error}") from error
    return parse_ps(shown)


def parse_ps(shown: bytes) -> list[Process]:
    """The processes in the output of `ps -axwwE -o pid=,ppid=,pgid=,state=,command=`. The group is used as session."""
    found = []
    for line in shown.splitlines():
        words = line.split()
        if len(words) > 3 and not words[3].startswith(b"Z"):
            pid, parent, group = (int(word) for word in words[:3])
            argv = tuple(word.decode("utf-8", "replace") for word in words[4:8])
            found.append(Process(pid, parent, group, group, "", frozenset(words[4:]), argv))
    return found


def _named(processes: Iterable[Process]) -> str:
    return ", ".join(f"{process.pid} {' '.join(process.argv)[:60]}".strip() for process in processes)


def _send(process: Process, number: signal.Signals) -> None:
    """Signals exactly this process: opens a pid handle, then checks that the pid was not reused."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # the caller looks again for survivors
        if sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            try:
                handle = os.pidfd_open(process.pid)  # novermin
            except ProcessLookupError:
                return
            except OSError:  # a kernel without pid handles
                handle = None
            if handle is not None:
                try:
                    if start_of(process.pid) == process.start:
                        signal.pidfd_send_signal(handle, number)  # novermin
                finally:
                    os.close(handle)
                return
        os.kill(process.pid, number)


def _lineage() -> set[int]:
    """The pids of this process and its ancestors, which we never signal."""
    pids = {os.getpid(), os.getppid()}
    pid = os.getppid()
    while pid > 1:
        try:
            pid = int(stat_fields(pid)[1])
        except OSError:
            break
        pids.add(pid)
    return pids
