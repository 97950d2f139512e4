"""The cards of a box: which processes hold one, and whether it does what it is paid for.

A process that holds a card, such as a leftover of a run, has the device's file open. The driver's own list is used
only for the bytes: a process that hangs in the driver, or lost its context, may be missing there and still hold
memory. This module ends no process: a person decides whose it is and whether it matters.

What the driver calls utilization only says that some kernel ran. A card that is "100 %" busy at the power of an idle
one does next to nothing: it waits, or its kernels are tiny. The queries are asked apart from the others: an old driver
that does not know a field refuses the whole query.

What the cards and the box's processes use now is read here, too; memory and CPUs of the box: `onbox.common.cgroup`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, PROC, WORKER_VARIABLE, scan, stat_fields
from sweepstack.onbox.common.run_process import says
from sweepstack.onbox.runner.cell_processes import CELL, of_workers

DEVICE = re.compile(r"/dev/nvidia(\d+)")
YOUNG_SECONDS = 120.0
"""A younger process may soon end by itself, such as a probe."""
FREED_SECONDS = 10.0
"""A driver may need so long to free what a process held that has ended."""
FEW_BYTES = 1 << 30
"""Less than this on a GPU hinders no cell: a desktop, or the driver's own memory."""
COMMAND_CHARS = 60

GPU_SECONDS = 20.0
GPU_FIELDS = {
    "index": "index",
    "name": "name",
    "util": "utilization.gpu",
    "memory_used": "memory.used",
    "memory_total": "memory.total",
    "temperature": "temperature.gpu",
    "sm_clock": "clocks.sm",
    "sm_clock_max": "clocks.max.sm",
}
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


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
    seen, own = scan(), os.environ.get(WORKER_VARIABLE, "")
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


POWER = ("index", "power.draw", "power.limit")
ERRORS = ("index", "ecc.errors.uncorrected.volatile.total", "retired_pages.pending")
BUSY, IDLE_POWER = 90, 0.20
"""From this utilization on (percent), less than this share of the card's power limit is that of an idle card: 60 to 75
W of 400 or 700."""
IDLE_LINES = 6
"""So many lines in a row: the first batches of a cell load and compile."""
KERNEL_SECONDS = 5.0
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
DEAD = {
    48: "a memory error that can't be corrected",
    64: "a bad page of its memory that can't be retired",
    74: "an error of its NVLink",
    79: "it has fallen off the bus",
    95: "a memory error that was not contained",
    119: "its own processor (GSP) does not answer",
}
"""Reports after which a card, or the machine, is to be replaced; others come from programs."""


class GpuHealth:
    """Keeps what earlier looks saw. For one thread."""

    def __init__(self) -> None:
        self._idle: dict[int, int] = {}
        self._xids: dict[tuple[str, int], int] | None = None
        self._ours: set[tuple[int, ...]] = set()
        self._errors: dict[int, int] = {}

    def look(self, gpus: Iterable[dict[str, Any]], path: str | None = None) -> list[str]:
        """Adds `power`, `power_limit` (watts) and `uncorrected` (memory errors since the driver's start) to the values
        of each card, where the driver says them. Returns what a person has to know. Blocks for seconds."""
        cards = {int(gpu["index"]): gpu for gpu in gpus if gpu.get("index") is not None}
        if not cards:  # the only one may have fallen off the bus
            return self._reports(path) if self._ours else []
        alarms: list[str] = []
        if len(self._ours) < len(cards):  # kept: one that has fallen off the bus is not listed any more
            found = driver_rows("gpu", ["index", "pci.bus_id"], path)
            self._ours |= {place for _, where in found if (place := _place(where))}
        for index, draw, limit in _rows(POWER, path):
            if index in cards:
                cards[index].update(power=_watts(draw), power_limit=_watts(limit))
        for index, errors, pending in _rows(ERRORS, path):
            if index in cards and errors.isdigit():
                cards[index]["uncorrected"] = int(errors)
                if new := self._new_errors(index, int(errors)):
                    alarms.append(f"GPU {index} had {new} memory errors that can't be corrected: rent another one")
            if index in cards and pending.lower() == "yes":
                alarms.append(f"GPU {index} has bad pages of memory, retired at the next restart of the machine only")
        return [*alarms, *self._reports(path), *self._lies(cards)]

    def _new_errors(self, index: int, count: int) -> int:
        """How many came since the first look: the driver counts since its own start, also for the tenant before. A
        count that shrank began anew, with the driver."""
        first = self._errors.setdefault(index, count)
        if count < first:
            first = self._errors[index] = 0
        return count - first

    def _lies(self, cards: Mapping[int, Mapping[str, Any]]) -> list[str]:
        said = []
        for index, gpu in cards.items():
            power, limit = gpu.get("power"), gpu.get("power_limit")
            idle = bool(power and limit and (gpu.get("util") or 0) >= BUSY and power < IDLE_POWER * limit)
            self._idle[index] = self._idle.get(index, 0) + 1 if idle else 0
            if self._idle[index] >= IDLE_LINES:
                said.append(
                    f"GPU {index} says {gpu['util']}% in use, at {power:.0f} of {limit:.0f} W, an idle card's power: "
                    "its kernels are tiny or wait (a larger batch, or more cells on a card by job.slots), or it is "
                    "faulty"
                )
        return said

    def _reports(self, path: str | None) -> list[str]:
        """What the kernel's log has of this box's cards since the first look: what was there before is another job's.
        The log is the whole machine's, also its other customers'."""
        found = xids(path)
        if self._xids is None:
            self._xids = found
        new = {report: count for report, count in found.items() if count > self._xids.get(report, 0)}
        return [
            f"the driver reports Xid {number} of the GPU at {where}: {DEAD[number]}; rent another box"
            for (where, number) in sorted(new)
            if number in DEAD and (not self._ours or _place(where) in self._ours)
        ]


def xids(path: str | None = None) -> dict[tuple[str, int], int]:
    """(PCI address, Xid) → how often it is in the kernel's log; empty where this user may not read the log."""
    found: dict[tuple[str, int], int] = {}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        for match in XID.finditer(says("dmesg", seconds=KERNEL_SECONDS, path=path)):
            report = match.group(1), int(match.group(2))
            found[report] = found.get(report, 0) + 1
    return found


def _rows(fields: tuple[str, ...], path: str | None) -> list[tuple[int, str, str]]:
    rows = driver_rows("gpu", list(fields), path)
    return [(int(index), one, two) for index, one, two in rows if index.isdigit()]


def _place(where: str) -> tuple[int, ...]:
    """Domain, bus and device, which the driver's tool and its log write with other widths; () for another text."""
    with contextlib.suppress(ValueError):
        return tuple(int(part, 16) for part in where.partition(".")[0].split(":"))
    return ()


def _watts(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text)
    return None  # [N/A], [Not Supported]


class Usage(NamedTuple):
    """What the processes of one session use: CPU seconds so far, bytes of memory now."""

    cpu: float
    rss: int


def gpus(path: str | None = None) -> list[dict[str, Any]]:
    """The driver's values of each GPU (percent, bytes, degrees, MHz), None for a missing one; empty without a GPU.

    Blocks for GPU_SECONDS at most.
    """
    found = []
    for words in driver_rows("gpu", list(GPU_FIELDS.values()), path):
        gpu: dict[str, Any] = dict(zip(GPU_FIELDS, words))
        for key in GPU_FIELDS:
            if key != "name":
                gpu[key] = int(gpu[key]) if gpu[key].isdigit() else None
        for key in ("memory_used", "memory_total"):
            gpu[key] = gpu[key] << 20 if gpu[key] is not None else None
        found.append(gpu)
    return found


def driver_rows(what: str, fields: Sequence[str], path: str | None = None) -> list[list[str]]:
    """The rows of `nvidia-smi --query-<what>`, each with one text for each of `fields`; empty without a driver, and
    when it fails. Blocks for GPU_SECONDS at most."""
    query = [f"--query-{what}=" + ",".join(fields), "--format=csv,noheader,nounits"]
    try:
        said = says("nvidia-smi", *query, seconds=GPU_SECONDS, path=path)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",")] for line in said.splitlines()]
    return [row for row in rows if len(row) == len(fields)]


def usage(sessions: Collection[int]) -> dict[int, Usage]:
    """What the processes of these sessions use, by session; empty without /proc."""
    found: dict[int, Usage] = {}
    wanted = {str(session) for session in sessions}
    if not wanted:
        return {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, IndexError, ValueError):  # it ended meanwhile
                fields = stat_fields(name)
                if fields[3] in wanted:
                    before = found.get(int(fields[3]), Usage(0.0, 0))
                    ticks = sum(int(field) for field in fields[11:15])  # with those of children that have ended
                    found[int(fields[3])] = Usage(before.cpu + ticks / TICKS, before.rss + int(fields[21]) * PAGE)
    return found
