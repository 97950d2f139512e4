"""Sends an alert to the webhook when a threshold of the budget is crossed.

The first command that sees it sends it, and no command waits long for the answer.
"""

from __future__ import annotations

import time

from sweepstack.billing.alerts import Alert, tell
from sweepstack.cli.output import note
from sweepstack.cli.sources import Sources
from sweepstack.status.compose import SweepView
from sweepstack.status.money import outlook_of
from sweepstack.status.snapshot import Snapshot

PATIENCE = 5.0
"""Seconds that a finished command still waits for the webhook."""
AGAIN_SECONDS = 60.0
"""Seconds until a command that runs on tries an unreachable webhook again."""


class BudgetAlerts:
    """The alerts of one command.

    It calls `look` after each snapshot and `end` at its end; neither changes its answer.
    """

    def __init__(self) -> None:
        self._alert: Alert | None = None
        self._begun = 0.0
        self._said = ""

    def look(self, sources: Sources, snapshot: Snapshot, view: SweepView) -> None:
        """Starts to send, if a threshold was crossed for which no alert was sent yet. Returns at once."""
        if self._alert is not None and time.monotonic() - self._begun < AGAIN_SECONDS:
            return
        self._say(0)
        found = outlook_of(snapshot, view.meter, view.eta_seconds)
        if found is None or snapshot.budget is None or sources.store is None:
            return
        use, seen = found
        self._alert = tell(
            sources.store, snapshot.budget, use, seen, stack=snapshot.state.stack, per_hour=view.meter.per_hour
        )
        self._begun = time.monotonic()

    def end(self) -> None:
        """Waits a moment for the answer; if there is none, says so on stderr."""
        self._say(PATIENCE)

    def _say(self, seconds: float) -> None:
        problem = self._alert.wait(seconds) if self._alert is not None else ""
        self._alert = None
        if problem and problem != self._said:
            self._said = problem
            note(problem)
