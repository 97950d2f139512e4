"""Finds and ends every process of a box on this machine, however it was started and whatever happened to its folder.

A process is the box's when its environment carries the box's id, or its parent or its session's leader is one of them
(programs may overwrite their own environment, children may be given a bare one). Other users' processes are seen only
by descent.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sweepstack.onbox.agent.channel import BOX_ID_VARIABLE, BoxProcess
from sweepstack.onbox.common.errors import NotYetGone, Unreachable

PROC = Path("/proc")
SCAN_SECONDS = 0.05
KILL_SECONDS = 5.0
_PS_LINE = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.*)")


@dataclass(frozen=True)
class Seen:
    """One process as the system shows it. `start` tells a reused pid apart; `marked`: its environment has the id."""

    pid: int
    parent: int
    group: int
    session: int
    start: int
    marked: bool
    argv: tuple[str, ...]


def of_box(native_id: str) -> list[BoxProcess]:
    """The live processes of a box, by pid. Reads only, in milliseconds. Unreachable when nothing can be seen."""
    return [BoxProcess(process.pid, process.argv) for process in _members(native_id)]


def end_all(native_id: str, *, grace: float = 5.0) -> None:
    """SIGTERM to all processes of a box, up to `grace` seconds, SIGKILL until none is left. Irreversible; idempotent.

    Raises NotYetGone naming the survivors: after SIGKILL, or since this very command runs on the box.
    """
    _end(lambda: _members(native_id), f"of {native_id}", grace)


def end_group(native_id: str, pid: int, *, grace: float = 5.0) -> None:
    """The same for the process group of one process of the box. A pid that is not the box's is left alone."""
    group = next((process.group for process in _members(native_id) if process.pid == pid), None)
    if group is not None:
        _end(lambda: [p for p in _members(native_id) if p.group == group], f"in group {group} of {native_id}", grace)


def _end(find: Callable[[], list[Seen]], what: str, grace: float) -> None:
    own = _lineage()
    begin = time.monotonic()
    asked: set[tuple[int, int]] = set()
    empty_scans = 0
    while True:
        found = find()
        # One look at /proc is no snapshot: a process may fork and end between two reads. Only two empty looks count.
        empty_scans = 0 if found else empty_scans + 1
        if empty_scans == 2:
            return
        mine = [process for process in found if process.pid in own]
        if mine:
            raise NotYetGone(f"this command itself runs on the box ({_named(mine)}): run it from outside")
        elapsed = time.monotonic() - begin
        if elapsed > grace + KILL_SECONDS and found:
            raise NotYetGone(f"processes {what} survived SIGKILL: {_named(found)}")
        for process in found:
            if elapsed >= grace:
                _send(process, signal.SIGKILL)
            elif (process.pid, process.start) not in asked:
                asked.add((process.pid, process.start))
                _send(process, signal.SIGTERM)
        time.sleep(SCAN_SECONDS)


def _named(processes: Iterable[Seen]) -> str:
    return ", ".join(f"{process.pid} {' '.join(process.argv)[:60]}".strip() for process in processes)


def _members(native_id: str) -> list[Seen]:
    seen = _scan_proc(native_id) if (PROC / "self" / "environ").exists() else _scan_ps(native_id)
    ours = {process.pid for process in seen if process.marked}
    while True:
        more = {p.pid for p in seen if p.pid not in ours and (p.parent in ours or p.session in ours)}
        if not more:
            return sorted((process for process in seen if process.pid in ours), key=lambda process: process.pid)
        ours |= more


def _scan_proc(native_id: str) -> list[Seen]:
    mark = f"{BOX_ID_VARIABLE}={native_id}".encode()
    found = []
    try:
        names = [name for name in os.listdir(PROC) if name.isdigit()]
    except OSError as error:
        raise Unreachable(f"the processes of this machine can't be listed: {error}") from error
    for name in names:
        try:
            stat = (PROC / name / "stat").read_bytes()
        except OSError:
            continue  # ended meanwhile
        fields = stat[stat.rindex(b")") + 2 :].split()
        if fields[0] in (b"Z", b"X"):
            continue
        environ = argv = b""
        with contextlib.suppress(OSError):  # another user's, or ended meanwhile
            environ = (PROC / name / "environ").read_bytes()
            argv = (PROC / name / "cmdline").read_bytes()
        parent, group, session = (int(field) for field in fields[1:4])
        words = tuple(word.decode("utf-8", "replace") for word in argv.split(b"\0") if word)
        marked = mark in environ.split(b"\0")
        found.append(Seen(int(name), parent, group, session, int(fields[19]), marked, words))
    return found


def _scan_ps(native_id: str) -> list[Seen]:
    """Where there is no /proc (macOS). `-E` shows the environment of our own processes behind the arguments."""
    command = ["ps", "-axwwE", "-o", "pid=,ppid=,pgid=,state=,command="]
    try:
        shown = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise Unreachable(f"the processes of this machine can't be listed: {error}") from error
    return parse_ps(shown.decode("utf-8", "replace"), native_id)


def parse_ps(shown: str, native_id: str) -> list[Seen]:
    """The lines of `ps -axwwE -o pid=,ppid=,pgid=,state=,command=`. The group stands in for the session."""
    mark = re.compile(rf"(^|\s){re.escape(BOX_ID_VARIABLE)}={re.escape(native_id)}(\s|$)")
    found = []
    for line in shown.splitlines():
        match = _PS_LINE.match(line)
        if match and not match[4].startswith("Z"):
            pid, parent, group = (int(match[n]) for n in (1, 2, 3))
            marked = mark.search(match[5]) is not None
            found.append(Seen(pid, parent, group, group, 0, marked, tuple(match[5].split()[:4])))
    return found


def _start(pid: int) -> int | None:
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _send(process: Seen, number: signal.Signals) -> None:
    """Signals exactly this process: a pid handle is taken first, then checked not to be a successor's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # what survives is found by the next look
        if sys.platform == "linux" and hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):
            try:
                handle = os.pidfd_open(process.pid)
            except ProcessLookupError:
                return
            except OSError:  # a kernel without pid handles
                handle = None
            if handle is not None:
                try:
                    if _start(process.pid) == process.start:
                        signal.pidfd_send_signal(handle, number)
                finally:
                    os.close(handle)
                return
        os.kill(process.pid, number)


def _lineage() -> set[int]:
    """This process and its ancestors: never to be signalled by us."""
    pids = {os.getpid(), os.getppid()}
    pid = os.getppid()
    while pid > 1:
        try:
            stat = (PROC / str(pid) / "stat").read_bytes()
        except OSError:
            break
        pid = int(stat[stat.rindex(b")") + 2 :].split()[1])
        pids.add(pid)
    return pids
