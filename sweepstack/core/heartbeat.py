"""The heartbeat of a box's runner, from patrol.jsonl: what runs, and how much room is left.

For people and for alarms; no evidence of anything. It comes from a box, so every field is looked at before it is used:
what is missing or of another type is unknown, never an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, get_args

from sweepstack.onbox.common.dataclass import dataclass, field, replace

TAIL_BYTES = 1 << 16
"""What is read from the end of the file: some lines, of which the last whole one counts."""
MISSED = 3
"""So many heartbeats may be missing before a live runner is called silent."""
INTERVAL = 30.0
"""Seconds between two heartbeats, unless the box's spec.json says more (`patrol_seconds`)."""

CellVerdict = Literal["", "starting", "working", "slow", "hung"]
_VERDICTS: tuple[CellVerdict, ...] = get_args(CellVerdict)


@dataclass(frozen=True)
class Doing:
    """How a running attempt does: `hung` when nothing of it grew for an interval, `slow` when only CPU time did.
    `judge` of `onbox/runner/patrol.py` decides that on the box."""

    attempt: int
    verdict: CellVerdict = ""
    why: str = ""
    quiet_seconds: float | None = None


@dataclass(frozen=True)
class Room:
    """Free and total, of bytes or of inodes. Older runners did not say the total."""

    free: int | None = None
    total: int | None = None

    @property
    def used(self) -> float | None:
        """The used part, 0 to 1."""
        if self.free is None or not self.total:
            return None
        return min(max(1 - self.free / self.total, 0.0), 1.0)


@dataclass(frozen=True)
class Patrol:
    """The last whole line. `time` is by the box's clock; `interval`: seconds from one to the next when all is quiet."""

    time: datetime
    interval: float = INTERVAL
    running: Mapping[str, Doing] = field(default_factory=dict)
    disk: Room = Room()
    inodes: Room = Room()
    memory: Mapping[str, int] = field(default_factory=dict)
    """`used`, `limit` in bytes, `oom_kills`, where the box says them."""
    gpus: tuple[Mapping[str, Any], ...] = ()
    alarms: tuple[str, ...] = ()
    blocked: Mapping[str, Any] | None = None
    uploads: Mapping[str, Any] | None = None
    """What it says of its bucket; None without one (MOUNT_CACHED)."""

    def age(self, now: datetime) -> float:
        """Seconds since it was written, by two clocks."""
        return max((now - self.time).total_seconds(), 0.0)

    def silent(self, now: datetime) -> bool:
        """Whether a runner that is alive should have written again by now."""
        return self.age(now) > MISSED * self.interval


def parse_patrol(tail: bytes, interval: float = INTERVAL) -> Patrol | None:
    """The last whole line of `tail` that reads, which may begin and end in the middle of one; None without one."""
    lines = (row for line in reversed(tail[: tail.rfind(b"\n") + 1].splitlines()) if (row := _row(line)) is not None)
    found = next(lines, None)
    return None if found is None else _patrol(*found, interval)


def merged(patrols: Mapping[str, Patrol]) -> Patrol | None:
    """The patrols of the workers that share a box (name → last line), as one: what runs anywhere, all alarms with the
    worker's name, one more for each that is silent while others write, `blocked` where each of them is; the rest of the
    latest one. None without any."""
    if not patrols:
        return None
    every = sorted(patrols.items(), key=lambda one: one[1].time)
    _, latest = every[-1]
    return replace(
        latest,
        running={cell: doing for _, one in every for cell, doing in one.running.items()},
        alarms=tuple(
            f"{name}: {alarm}"
            for name, one in every
            for alarm in (*([_silence(one, latest)] if one.silent(latest.time) else []), *one.alarms)
        ),
        blocked=latest.blocked if all(one.blocked for _, one in every) else None,
        uploads=_uploads([one.uploads for _, one in every if one.uploads is not None]),
    )


def _uploads(said: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """What workers say of the one bucket: the latest, with the checkpoints of all their cells."""
    cells = {cell: facts for one in said for cell, facts in _mapping(one.get("checkpoints")).items()}
    return {**said[-1], "checkpoints": cells} if said else None


def _silence(one: Patrol, latest: Patrol) -> str:
    every = f"a heartbeat comes every {one.interval:.0f} s"
    return f"it has written nothing for {one.age(latest.time):.0f} s ({every}), and its end is not known"


def parse_patrols(data: bytes) -> list[Patrol]:
    """All lines of `data` that read, in their order; it may begin and end in the middle of one."""
    rows = (_row(line) for line in data[: data.rfind(b"\n") + 1].splitlines())
    return [_patrol(*row, INTERVAL) for row in rows if row is not None]


def _patrol(last: Mapping[str, Any], time: datetime, interval: float) -> Patrol:
    disk, memory, blocked = _mapping(last.get("disk")), _mapping(last.get("memory")), last.get("blocked")
    uploads = last.get("uploads")
    return Patrol(
        time=time,
        interval=max(interval, INTERVAL),
        running=_running(last.get("running")),
        disk=_room(disk.get("free", last.get("disk_free")), disk.get("total")),
        inodes=_room(disk.get("inodes_free", last.get("inodes_free")), disk.get("inodes_total")),
        memory={key: whole for key in ("used", "limit", "oom_kills") if (whole := _whole(memory.get(key))) is not None},
        gpus=tuple(gpu for gpu in _list(last.get("gpus")) if isinstance(gpu, dict)),
        alarms=tuple(str(alarm) for alarm in _list(last.get("alarms"))),
        blocked=blocked if isinstance(blocked, dict) else None,
        uploads=uploads if isinstance(uploads, dict) else None,
    )


def _row(line: bytes) -> tuple[dict[str, Any], datetime] | None:
    try:
        row = json.loads(line)
        time = datetime.fromisoformat(row["time"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (row, time) if isinstance(row, dict) and time.tzinfo is not None else None


def _running(value: Any) -> dict[str, Doing]:
    found: dict[str, Doing] = {}
    for entry in _list(value):
        if not isinstance(entry, dict) or not isinstance(entry.get("cell"), str):
            continue
        said: CellVerdict = next((known for known in _VERDICTS if known == entry.get("verdict")), "")
        quiet = entry.get("quiet_seconds")
        number = float(quiet) if isinstance(quiet, (int, float)) and math.isfinite(quiet) else None
        found[entry["cell"]] = Doing(_whole(entry.get("attempt")) or 0, said, str(entry.get("why") or ""), number)
    return found


def _room(free: Any, total: Any) -> Room:
    """Negative numbers are how a box says that its file system does not count them."""
    left, size = _whole(free), _whole(total)
    return Room(left if left is not None and left >= 0 else None, size if size is not None and size > 0 else None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
