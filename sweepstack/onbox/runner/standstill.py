"""A queue that stands still: when the lease is over, the runner ends it, so that the box can stop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.runner.attempt import Attempt
from sweepstack.onbox.runner.lease import Lease
from sweepstack.onbox.runner.patrol import Patrol


class Standstill:
    """Whether the lease is over and nothing moves. For the main thread."""

    def __init__(self, home: Path) -> None:
        self._lease = Lease(home)

    def why(self, spec: Mapping[str, Any], running: Mapping[str, Attempt], patrol: Patrol, *, blocked: bool) -> str:
        """Why the runner has to end; "" while it must not. `blocked`: nothing new can start. For a runner that seals
        nothing and sets nothing up just now. A cell that works is never ended: the box is needed."""
        if not self._lease.over(spec):
            return ""
        if running:
            return "each cell that runs is hung" if all(patrol.hung(one)[0] for one in running.values()) else ""
        return "nothing runs, and nothing can start" if blocked else ""
