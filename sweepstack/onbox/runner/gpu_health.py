"""Whether the cards do what they are paid for: memory errors, reports of the driver, power.

What the driver calls utilization only says that some kernel ran. A card that is "100 %" busy at the power of an idle
one does next to nothing: it waits, or its kernels are tiny. The queries are asked apart from the others: an old driver
that does not know a field refuses the whole query.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from sweepstack.onbox.common.tools import says
from sweepstack.onbox.runner.resources import driver_rows

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
