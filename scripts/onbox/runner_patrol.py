"""The heartbeat: what runs, and how much room there is. For people and for `status`; no evidence of anything.

Part of the runner (see runner.py): Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Mapping  # noqa: UP035

from runner_attempt import Attempt
from runner_records import now

HEARTBEAT_SECONDS = 5.0
MAX_BYTES = 8 << 20


class Patrol:
    """Writes patrol.jsonl. `due`: when the next line is (monotonic)."""

    def __init__(self, home: Path) -> None:
        self.due = 0.0
        self._home, self._path = home, home / "patrol.jsonl"

    def beat(self, running: Mapping[str, Attempt]) -> None:
        """A line every HEARTBEAT_SECONDS, however often it is called. Losing one is no harm: never raises OSError."""
        if time.monotonic() < self.due:
            return
        self.due = time.monotonic() + HEARTBEAT_SECONDS
        with contextlib.suppress(OSError):
            room = os.statvfs(self._home)
            line = {
                "time": now(),
                "running": [
                    {"cell": name, "attempt": attempt.number, "pid": attempt.process.pid}
                    for name, attempt in running.items()
                ],
                "disk_free": room.f_bavail * room.f_frsize,
                "inodes_free": room.f_favail,
            }
            if self._path.exists() and self._path.stat().st_size > MAX_BYTES:
                os.replace(self._path, self._path.with_name("patrol.1.jsonl"))
            with open(self._path, "a") as handle:
                handle.write(json.dumps(line) + "\n")
