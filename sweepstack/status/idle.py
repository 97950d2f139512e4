"""Whether a box bills and does nothing, and for how long.

`billing.cost.meter` adds up what that costs.
"""

from __future__ import annotations

from datetime import datetime

from sweepstack.status.snapshot import BoxSnapshot


def is_idle(box_snapshot: BoxSnapshot) -> bool | None:
    """Whether the box bills for nothing: its runner is not alive, or has nothing that it may start. None: unknown."""
    alive = box_snapshot.seen.runner_alive
    if alive is None:
        return None
    if box_snapshot.phase == "stopped":
        return False
    return not alive or (box_snapshot.blocked is not None and not box_snapshot.running)


def idle_seconds(box_snapshot: BoxSnapshot, now: datetime, *, setting_up: bool) -> float | None:
    """Seconds since a cell or the set-up ran there; 0 while one runs; None where that is not known."""
    alive = box_snapshot.seen.runner_alive
    if alive is None or box_snapshot.gone or box_snapshot.journal is None:
        return None
    if alive and (box_snapshot.running or setting_up):
        return 0.0
    last = box_snapshot.journal.last_at
    if last is not None:
        return max((box_snapshot.there(now) - last).total_seconds(), 0.0)
    return max((now - box_snapshot.since).total_seconds(), 0.0) if box_snapshot.since else None
