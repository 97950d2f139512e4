"""Finds processes that hold a GPU and belong to no running cell, such as leftovers of an earlier run.

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
FEW_BYTES = 1 << 30
"""Less than this on a GPU hinders no cell: a desktop, or the driver's own memory."""
COMMAND_CHARS = 60


def holders(
    groups: Collection[int], cells: Collection[str], path: str | None = None, ended: Container[str] = ()
) -> list[dict[str, Any]]:
    """Processes that hold a GPU and belong to no running cell, each with `pid`, `start` (by the kernel), `gpus`,
    `user`, `own` (this user may end it), `command`, `seconds` (its age), `memory` (bytes by the driver; None: not in
    its list). The oldest first.

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
            gpus = [] if at_work else _devices(process.pid)
            seconds = up - int(process.start) / TICKS
            if not gpus or seconds < YOUNG_SECONDS:
                continue
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
                }
            )
    if found:
        listed = _listed(path)
        for one in found:
            one["memory"] = listed.get(one["pid"])
    return sorted(found, key=lambda one: -one["seconds"])


def alarms(
    gpus: Collection[Mapping[str, Any]],
    found: Collection[Mapping[str, Any]],
    taken: Collection[str],
    before: Mapping[str, int],
) -> list[str]:
    """A sentence for each GPU whose memory other processes hold. `taken`: indexes of the GPUs of running cells;
    `before`: what was used of a GPU when it was last seen without one."""
    said = []
    for gpu in gpus:
        used, total = gpu["memory_used"], gpu["memory_total"]
        theirs = [one for one in found if gpu["index"] in one["gpus"]]
        known = [one["memory"] for one in theirs if one["memory"] is not None]
        held = sum(known) if len(known) == len(theirs) and theirs else used
        begun = not theirs and str(gpu["index"]) in taken
        if begun and held is not None:  # the rest is the cell's own
            held = min(held, before.get(str(gpu["index"]), 0))
        if held is None or held < FEW_BYTES:
            continue
        share = f"{held / 1e9:.1f} of {total / 1e9:.1f} GB" if total else f"{held / 1e9:.1f} GB"
        if not theirs:
            when = "were held before its cell began" if begun else "are held"
            at = gpu["index"]
            said.append(
                f"GPU {at}: {share} {when}, by no process that can be seen on this box: it is another user's, another "
                f"container's, or gone. `fuser -v /dev/nvidia{at}` as root on the machine shows which; "
                f"`nvidia-smi --gpu-reset -i {at}` there frees what a process left that is gone"
            )
            continue
        one = theirs[0]
        more = f" and {len(theirs) - 1} more" if len(theirs) > 1 else ""
        whose = (
            f"`kill {one['pid']}` there ends it, if it is not needed" if one["own"] else f"it is {one['user']}'s to end"
        )
        said.append(
            f"GPU {gpu['index']}: {share} are held by pid {one['pid']}{more} ({one['user']}, {one['command']}, for "
            f"{one['seconds'] / 3600:.1f} h), no cell at work; {whose}"
        )
    return said


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
