"""What this box may use of its machine: memory and CPUs, by its cgroup.

Tools such as `free` show the whole host, with other customers' processes: limits and counts are read from the cgroup.
"""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
UNLIMITED = 1 << 60


def memory() -> dict[str, int | None]:
    """`used`, `limit` (bytes, of this cgroup, else of the machine) and `oom_kills`; None for what is not known.

    `used` does not count the page cache, which the kernel frees when needed: with it, every box would look full.
    """
    used, limit, kills = _memory_v2() or _memory_v1() or (None, None, None)
    if limit is None or limit > UNLIMITED:
        machine = _words(Path("/proc/meminfo"), ":")
        total, free = machine.get("MemTotal"), machine.get("MemAvailable")
        if total is not None and free is not None:
            used, limit = (total - free) << 10, total << 10
    return {"used": used, "limit": limit, "oom_kills": kills}


def cpus() -> float | None:
    """How many CPUs this box may use at once: by its cgroup's quota, and by those that it may run on at all."""
    may = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    bounds = [bound for bound in (may, _quota_v2(), _quota_v1()) if bound]
    return min(bounds) if bounds else None


def oom_kills() -> int | None:
    """How many processes of this cgroup the kernel has killed for lack of memory; None when it does not count them."""
    counter = _kill_counter()
    return _words(counter).get("oom_kill") if counter else None


@functools.lru_cache
def _kill_counter() -> Path | None:
    """The file in which the kernel counts killed processes; looked up at every start of a cell."""
    for controller, root, name in (("", CGROUP, "memory.events"), ("memory", CGROUP / "memory", "memory.oom_control")):
        folder = _folder(controller, root)
        if folder is not None and (folder / name).exists():
            return folder / name
    return None


def _memory_v2() -> tuple[int | None, int | None, int | None] | None:
    folder = _folder("", CGROUP)
    if folder is None or not (folder / "memory.current").exists():
        return None
    used = _number(folder / "memory.current")
    cache = _words(folder / "memory.stat").get("inactive_file", 0)
    limits = []
    while True:  # the smallest limit of all parents counts
        limit = _number(folder / "memory.max")
        limits += [limit] if limit is not None else []
        if folder == CGROUP or not str(folder).startswith(f"{CGROUP}/"):
            break
        folder = folder.parent
    kills = _words((_folder("", CGROUP) or CGROUP) / "memory.events").get("oom_kill")
    return (max(0, used - cache) if used is not None else None), (min(limits) if limits else None), kills


def _memory_v1() -> tuple[int | None, int | None, int | None] | None:
    folder = _folder("memory", CGROUP / "memory")
    if folder is None or not (folder / "memory.usage_in_bytes").exists():
        return None
    used, stat = _number(folder / "memory.usage_in_bytes"), _words(folder / "memory.stat")
    limit = stat.get("hierarchical_memory_limit", _number(folder / "memory.limit_in_bytes"))
    cache = stat.get("total_inactive_file", 0)
    kills = _words(folder / "memory.oom_control").get("oom_kill")
    return (max(0, used - cache) if used is not None else None), limit, kills


def _quota_v2() -> float | None:
    """Of `cpu.max`, such as `200000 100000`; the smallest of all parents counts. None: no quota."""
    folder, found = _folder("", CGROUP), []
    while folder is not None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            quota, period = (folder / "cpu.max").read_text().split()[:2]
            found += [int(quota) / int(period)] if quota != "max" and int(period) else []
        folder = None if folder == CGROUP or not str(folder).startswith(f"{CGROUP}/") else folder.parent
    return min(found, default=None)


def _quota_v1() -> float | None:
    """Of the controller `cpu`, whose quota is -1 where there is none."""
    for root in (CGROUP / "cpu", CGROUP / "cpu,cpuacct"):
        folder = _folder("cpu", root)
        if folder is not None and (folder / "cpu.cfs_quota_us").exists():
            quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
            return quota / period if quota and quota > 0 and period else None
    return None


def _folder(controller: str, root: Path) -> Path | None:
    """The folder of this process's cgroup. In a container the path may be the host's: then the root folder."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(",") if controller else not names:
                inside = root / path.lstrip("/")
                return inside if inside.is_dir() else root
    return None


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _words(path: Path, separator: str = "") -> dict[str, int]:
    """The lines `name number` of a kernel file, as a dict."""
    found = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            words = line.replace(separator, " ").split() if separator else line.split()
            if len(words) > 1 and words[1].isdigit():
                found[words[0]] = int(words[1])
    return found
