"""Finds processes that hold a GPU, and those that no running cell owns, such as leftovers of a run.

Such a process has the device's file open. The driver's own list is used only for the bytes: a process that hangs in the
driver, or lost its context, may be missing there and still hold memory. This module ends no process: a person decides
whose it is and whether it matters.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Collection, Container, Mapping
from typing import Any

from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, PROC, scan
from sweepstack.onbox.runner.cell_processes import CELL, WORKER, of_workers
from sweepstack.onbox.runner.resources import TICKS, driver_rows

DEVICE = re.compile(r"/dev/nvidia(\d+)")
YOUNG_SECONDS = 120.0
"""A younger process may soon end by itself, such as a probe."""
FREED_SECONDS = 10.0
"""A driver may need so long to free what a process held that has ended."""
FEW_BYTES = 1 << 30
"""Less than this on a GPU hinders no cell: a desktop, or the driver's own memory."""
COMMAND_CHARS = 60


def holders(
    groups: Collection[int], cells: Collection[str], path: str | None = None, ended: Container[str] = ()
) -> list[dict[str, Any]]:
    """Processes that hold a GPU, each with `pid`, `start` (by the kernel), `gpus`, `user`, `own` (this user may end
    it), `command`, `seconds` (its age), `memory` (bytes by the driver; None: not in its list), `box` (the id of another
    box that it belongs to, else ""), `at_work` (it belongs to a running cell of this one). The oldest first;
    `in_the_way` says which of them keep a GPU from the cells.

    `groups`: process groups of the running cells; `cells`: their names. `ended`: the workers of the box whose end is
    known. What belongs to another worker, which may live, is at work. Blocks as long as `driver_rows` at most.
    """
    box = os.environ.get(BOX_ID_VARIABLE, "")
    mark = f"{BOX_ID_VARIABLE}={box}".encode()
    found: list[dict[str, Any]] = []
    named = {f"{CELL}={cell}".encode() for cell in cells}
    up = _uptime()
    if not up:  # no /proc: open files can't be seen
        return []
    seen, own = scan(), os.environ.get(WORKER, "")
    theirs = of_workers(seen, lambda name: name != own and name not in ended, box) if own else set()
    for process in seen:
        at_work = process.group in groups or process.pid in theirs
        at_work = at_work or bool(mark in process.environ and named & process.environ)
        with contextlib.suppress(OSError, ValueError):  # it ended meanwhile, or we may not read it
            gpus = _devices(process.pid)
            if not gpus:
                continue
            seconds = up - int(process.start) / TICKS
            uid = (PROC / str(process.pid)).stat().st_uid
            found.append(
                {
                    "pid": process.pid,
                    "start": process.start,
                    "gpus": gpus,
                    "user": _user(uid),
                    "own": uid == os.getuid(),
                    "command": _command(process.pid),
                    "seconds": round(seconds),
                    "memory": None,
                    "box": _box(process.environ, box),
                    "at_work": at_work,
                }
            )
    if found:
        listed = _listed(path)
        for one in found:
            one["memory"] = listed.get(one["pid"])
    return sorted(found, key=lambda one: -one["seconds"])


def in_the_way(found: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of `holders` that belong to no running cell, and have been there for so long that a person should know."""
    return [one for one in found if not one["at_work"] and one["seconds"] >= YOUNG_SECONDS]


class Unseen:
    """How much of each GPU was held by no process that can be seen, when no cell was on it.

    Seen on an H200: the memory of a cell that was killed is in use for a moment longer than its process, and one look
    in between made an alarm of it that stayed for the whole of the next cell.
    """

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}
        self._busy_at: dict[str, float] = {}

    def busy(self, devices: Collection[str], at: float) -> None:
        """Cells are on these GPUs. `at`: now (monotonic). Call it more often than FREED_SECONDS."""
        self._busy_at.update(dict.fromkeys(devices, at))

    def look(self, gpus: Collection[Mapping[str, Any]], found: Collection[Mapping[str, Any]], at: float) -> None:
        """Takes in what the driver says (`resources.gpus`) and who was seen (`holders`). `at`: when, monotonic."""
        for gpu in gpus:
            index = str(gpu["index"])
            if at - self._busy_at.get(index, at - FREED_SECONDS) < FREED_SECONDS:
                continue
            known = [one["memory"] for one in found if gpu["index"] in one["gpus"]]
            used = 0 if None in known else (gpu["memory_used"] or 0) - sum(known)
            self.bytes[index] = max(0, used)


def alarms(
    gpus: Collection[Mapping[str, Any]],
    found: Collection[Mapping[str, Any]],
    taken: Collection[str],
    unseen: Mapping[str, int],
) -> list[str]:
    """A sentence for each GPU whose memory is held by those `in_the_way`, or by no process that was seen (`unseen`:
    `Unseen.bytes`). `taken`: indexes of the GPUs of running cells."""
    said = []
    for gpu in gpus:
        used, total = gpu["memory_used"], gpu["memory_total"]
        theirs = [one for one in found if gpu["index"] in one["gpus"]]
        known = [one["memory"] for one in theirs if one["memory"] is not None]
        held = sum(known) if len(known) == len(theirs) and theirs else used
        if not theirs and held is not None:  # the rest is the cell's own, or of one that may soon end
            held = min(held, unseen.get(str(gpu["index"]), 0))
        if held is None or held < FEW_BYTES:
            continue
        share = f"{held / 1e9:.1f} of {total / 1e9:.1f} GB" if total else f"{held / 1e9:.1f} GB"
        if not theirs:
            at = gpu["index"]
            when = "were held before its cell began" if str(at) in taken else "are held"
            said.append(
                f"GPU {at}: {share} {when}, by no process that can be seen on this box: it is another user's, another "
                f"container's, or gone. `fuser -v /dev/nvidia{at}` as root on the machine shows which; "
                f"`nvidia-smi --gpu-reset -i {at}` there frees what a process left that is gone"
            )
            continue
        one = theirs[0]
        more = f" and {len(theirs) - 1} more" if len(theirs) > 1 else ""
        age = f"{one['seconds'] / 3600:.1f} h" if one["seconds"] >= 3600 else f"{one['seconds'] / 60:.0f} min"
        whose = f"no cell at work; it is {one['user']}'s to end"
        if one["own"]:
            whose = f"no cell at work; `kill {one['pid']}` there ends it, if it is not needed"
        if one["box"]:
            whose = (
                f"of box {one['box']} on the same machine: both use this GPU (with `job.slots` one box runs several)"
            )
        said.append(
            f"GPU {gpu['index']}: {share} are held by pid {one['pid']}{more} ({one['user']}, {one['command']}, for "
            f"{age}), {whose}"
        )
    return said


def _box(environ: Collection[bytes], own: str) -> str:
    mark = f"{BOX_ID_VARIABLE}=".encode()
    found = next((word[len(mark) :].decode("utf-8", "replace") for word in environ if word.startswith(mark)), "")
    return "" if found == own else found


def _devices(pid: int) -> list[int]:
    found = set()
    folder = PROC / str(pid) / "fd"
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            match = DEVICE.fullmatch(os.readlink(folder / name))
            if match:
                found.add(int(match.group(1)))
    return sorted(found)


def _listed(path: str | None) -> dict[int, int]:
    found: dict[int, int] = {}
    for pid, used in driver_rows("compute-apps", ["pid", "used_memory"], path):
        if pid.isdigit() and used.isdigit():
            found[int(pid)] = found.get(int(pid), 0) + (int(used) << 20)  # a line for each GPU
    return found


def _uptime() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return float((PROC / "uptime").read_text().split()[0])
    return 0.0


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(pid: int) -> str:
    words = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").split()
    text = " ".join(words)
    return text if len(text) <= COMMAND_CHARS else text[: COMMAND_CHARS - 1] + "…"
