"""Whether a box bills and does nothing, and for how long.

`billing.cost.meter` adds up what that costs.
"""

from __future__ import annotations

from datetime import datetime

from sweepstack.status.snapshot import Sight


def is_idle(sight: Sight) -> bool | None:
    """Whether the box bills for nothing: its runner is not alive, or has nothing that it may start. None: unknown."""
    alive = sight.seen.runner_alive
    if alive is None:
        return None
    if sight.phase == "stopped":
        return False
    return not alive or (sight.blocked is not None and not sight.running)


def idle_seconds(sight: Sight, now: datetime, *, setting_up: bool) -> float | None:
    """Seconds since a cell or the set-up ran there; 0 while one runs; None where that is not known."""
    alive = sight.seen.runner_alive
    if alive is None or sight.gone or sight.journal is None:
        return None
    if alive and (sight.running or setting_up):
        return 0.0
    last = sight.journal.last_at
    if last is not None:
        return max((sight.there(now) - last).total_seconds(), 0.0)
    return max((now - sight.since).total_seconds(), 0.0) if sight.since else None
