"""Reads what a box's GPUs and processes use. Its memory and its CPUs: `onbox.common.cgroup`."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sweepstack.onbox.common.processes import stat_fields
from sweepstack.onbox.common.tools import says

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
