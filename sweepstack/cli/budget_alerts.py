"""Telling the webhook of a budget's thresholds, from whichever command looks first. No command waits long for it."""

from __future__ import annotations

import time

from sweepstack.billing.alerts import Telling, tell
from sweepstack.cli.output import note
from sweepstack.cli.sources import Sources
from sweepstack.status.compose import SweepView
from sweepstack.status.money import outlook_of
from sweepstack.status.snapshot import Scene

PATIENCE = 5.0
"""Seconds that a command which has said all it has to say still gives the webhook."""
AGAIN_SECONDS = 60.0
"""How long a command that looks again and again leaves a webhook alone that it could not reach."""


class BudgetAlerts:
    """One command's messages. `look` after each look, `end` as the last thing; neither changes the answer."""

    def __init__(self) -> None:
        self._telling: Telling | None = None
        self._begun = 0.0
        self._said = ""

    def look(self, sources: Sources, scene: Scene, view: SweepView) -> None:
        """Begins to tell, if a threshold was crossed that nobody was told of. Returns at once."""
        if self._telling is not None and time.monotonic() - self._begun < AGAIN_SECONDS:
            return
        self._say(0)
        found = outlook_of(scene, view.meter, view.eta_seconds)
        if found is None or scene.budget is None or sources.store is None:
            return
        use, seen = found
        self._telling = tell(
            sources.store, scene.budget, use, seen, stack=scene.state.stack, per_hour=view.meter.per_hour
        )
        self._begun = time.monotonic()

    def end(self) -> None:
        """Waits a moment for the answer, and says on stderr where there was none."""
        self._say(PATIENCE)

    def _say(self, seconds: float) -> None:
        problem = self._telling.wait(seconds) if self._telling is not None else ""
        self._telling = None
        if problem and problem != self._said:
            self._said = problem
            note(problem)
