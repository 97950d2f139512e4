"""Finds and ends the processes of cells, also those that outlived the runner that started them.

A process belongs to a cell when its environment has the box's id and the cell's name (or a setup's, which is ended with
all cells), or when it is in the process group in which the cell's attempt was started (a program may overwrite its own
environment).
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE, Process, end_all, scan, signal_group

CELL, SETUP = "SWEEPSTACK_CELL", "SWEEPSTACK_SETUP"


def end_cells(
    box: str, cells: Collection[str] | None, leaders: Mapping[int, str], grace: float, worker: str = ""
) -> list[int]:
    """Ends the live processes of the named cells; with None, of all cells and setups. Blocks. Returns the pids that are
    alive even then; see `end_all`. `leaders`: pid → start time of their process groups' leaders. `worker`: only those
    that this worker started; other workers of the box may have theirs on this host."""
    return _pids(end_all(lambda: of_cells(box, cells, leaders, worker), grace))


def end_group(group: int, grace: float) -> list[int]:
    """Ends the processes that a process group's leader left behind. Returns the pids that are alive even then."""
    if not signal_group(group, 0):
        return []
    return _pids(end_all(lambda: [process for process in scan() if process.group == group], grace))


def end_children(children: Collection[subprocess.Popen[bytes]], grace: float) -> None:
    """Ends the process groups of these children of this process: SIGTERM, `grace` seconds, SIGKILL. Blocks."""
    for child in children:
        signal_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and any(child.poll() is None for child in children):
        time.sleep(0.05)
    for child in children:
        if child.poll() is None:
            signal_group(child.pid, signal.SIGKILL)


def of_cells(box: str, cells: Collection[str] | None, leaders: Mapping[int, str], worker: str = "") -> list[Process]:
    """The live processes of the box's cells, without this process. See `end_cells`."""
    seen = [process for process in scan() if process.pid != os.getpid()]
    groups = {process.pid for process in seen if process.start and leaders.get(process.pid) == process.start}
    mark, of_worker = f"{BOX_ID_VARIABLE}={box}".encode(), f"{WORKER_VARIABLE}={worker}".encode()
    keys = (f"{CELL}=".encode(), f"{SETUP}=".encode())
    named = None if cells is None else {keys[0] + cell.encode() for cell in cells}

    def carries(environ: frozenset[bytes]) -> bool:
        if mark not in environ:
            return False
        if worker:  # also one that it had just forked when it was killed, which is no cell yet
            return of_worker in environ
        return any(word.startswith(keys) for word in environ) if named is None else bool(named & environ)

    return [process for process in seen if process.group in groups or carries(process.environ)]


def left_by(box: str, cell: str, leader: int) -> tuple[list[Process], list[Process]]:
    """The live processes of a cell whose first process, `leader`, has ended, and of all that they started; and the
    other children of this process, which may be a cell's without its mark."""
    seen = [process for process in scan() if process.pid != os.getpid()]
    again = any(process.pid == leader for process in seen)  # then its group is empty: the kernel gave the pid anew
    found = {process.pid for process in seen if not again and leader in (process.group, process.session)}
    marks = {f"{BOX_ID_VARIABLE}={box}".encode(), f"{CELL}={cell}".encode()}
    if os.environ.get(WORKER_VARIABLE):
        marks.add(f"{WORKER_VARIABLE}={os.environ[WORKER_VARIABLE]}".encode())
    found = with_started(seen, found | {process.pid for process in seen if marks <= process.environ})
    ours = [process for process in seen if process.pid in found]
    return ours, [one for one in seen if one.parent == os.getpid() and one.pid not in found]


def mark_of(process: Process) -> str:
    """Which cell or setup a process says that it is of, as `NAME=value`; "" for none."""
    signs = (f"{CELL}=".encode(), f"{SETUP}=".encode())
    return next((word.decode("utf-8", "replace") for word in process.environ if word.startswith(signs)), "")


def with_started(seen: Sequence[Process], found: set[int]) -> set[int]:
    """These pids, and those of all that their processes started: a program may have an environment of its own."""
    while more := {one.pid for one in seen if one.pid not in found and (one.parent in found or one.session in found)}:
        found = found | more
    return found


def of_workers(seen: Sequence[Process], named: Callable[[str], bool], box: str | None = None) -> set[int]:
    """The pids of workers whose name is `named`, and of all that they started. `seen`: all processes of
    this host; `box`: only of this one's workers."""
    sign, mark = f"{WORKER_VARIABLE}=".encode(), f"{BOX_ID_VARIABLE}={box}".encode()
    found = {
        process.pid
        for process in seen
        if box is None or mark in process.environ
        for word in process.environ
        if word.startswith(sign) and named(word[len(sign) :].decode("utf-8", "replace"))
    }
    return with_started(seen, found)


def _pids(processes: list[Process]) -> list[int]:
    return [process.pid for process in processes]
