"""Finding and ending the processes of cells, also those that outlived the runner that started them.

A process is a cell's when its environment carries the box's id and the cell's name (or a setup's, which is ended with
all of them), or when its process group is the
one that the cell's attempt was started in (programs may overwrite their own environment). Zombies have ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Collection, Iterator, Mapping, NamedTuple  # noqa: UP035

BOX, CELL, SETUP = "SWEEPSTACK_BOX_ID", "SWEEPSTACK_CELL", "SWEEPSTACK_SETUP"
PROC = Path("/proc")
KILL_SECONDS = 5.0
POLL_SECONDS = 0.05


class Process(NamedTuple):
    """One process. `start` tells a reused pid apart; `environ`: its words `NAME=value`, as far as they can be read."""

    pid: int
    group: int
    start: str
    environ: frozenset[bytes]


def processes() -> Iterator[Process]:
    """All processes but this one and zombies."""
    if not (PROC / "self" / "stat").exists():
        yield from _processes_by_ps()
        return
    for name in os.listdir(PROC):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, IndexError):  # it ended meanwhile
                fields = stat_fields(name)
                if fields[0] not in ("Z", "X"):
                    environ = b""
                    with contextlib.suppress(PermissionError):  # another user's: none of ours
                        environ = (PROC / name / "environ").read_bytes()
                    yield Process(int(name), int(fields[2]), fields[19], frozenset(environ.split(b"\0")))


def start_of(pid: int) -> str:
    """When a process started, in the system's own words; empty where that can't be told."""
    try:
        return stat_fields(str(pid))[19]
    except (OSError, IndexError):
        return ""


def of_cells(box: str, cells: Collection[str] | None, leaders: Mapping[int, str]) -> list[int]:
    """Live processes of the box's cells: of the named, or of all and of setups. `leaders`: pid → start of their groups'
    leaders."""
    seen = list(processes())
    groups = {process.pid for process in seen if process.start and leaders.get(process.pid) == process.start}
    mark, keys = f"{BOX}={box}".encode(), (f"{CELL}=".encode(), f"{SETUP}=".encode())
    named = None if cells is None else {keys[0] + cell.encode() for cell in cells}

    def carries(environ: frozenset[bytes]) -> bool:
        if mark not in environ:
            return False
        return any(word.startswith(keys) for word in environ) if named is None else bool(named & environ)

    return [process.pid for process in seen if process.group in groups or carries(process.environ)]


def end_all(find: Callable[[], list[int]], grace: float) -> list[int]:
    """Ends what `find` finds: SIGTERM, `grace` seconds, SIGKILL, KILL_SECONDS. Returns what is alive even then."""
    left: list[int] = []
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, KILL_SECONDS)):
        told: set[int] = set()
        deadline = time.monotonic() + seconds
        while True:
            left = find()
            if not left:
                return []
            for pid in left:
                if pid not in told:
                    told.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS)
    return left


def signal_group(group: int, number: int) -> bool:
    """Sends a signal to a process group; 0 only asks. False when there is nobody in it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS refuses for zombies
        return False
    return True


def end_group(group: int, grace: float) -> list[int]:
    """Ends what a group's leader left behind when it ended. Returns what is alive even then."""
    if not signal_group(group, 0):
        return []
    return end_all(lambda: [process.pid for process in processes() if process.group == group], grace)


def stat_fields(name: str) -> list[str]:
    """The fields of /proc/<pid>/stat behind the command's name, which may hold anything."""
    return (PROC / name / "stat").read_bytes().rpartition(b")")[2].decode("ascii", "replace").split()


def _processes_by_ps() -> Iterator[Process]:
    """Where there is no /proc (macOS). `-E` shows the environment of our own processes behind the arguments."""
    command = ["ps", "-axww", "-E", "-o", "pid=,pgid=,stat=,command="]
    listing = subprocess.run(command, stdout=subprocess.PIPE, timeout=30, check=True).stdout
    for line in listing.splitlines():
        pid, group, state, *words = line.split()
        if int(pid) != os.getpid() and not state.startswith(b"Z"):
            yield Process(int(pid), int(group), "", frozenset(words))
