"""Where the runs of trackers can be seen. Asks no server."""

from __future__ import annotations

from typing import Any

from sweepstack.extensions.trackers.kind import Sweep
from sweepstack.extensions.trackers.kinds import asked_of
from sweepstack.extensions.trackers.sent import Sent
from sweepstack.status.engine.state import StackState


def links(state: StackState) -> list[dict[str, Any]]:
    """One for each tracker: `words`, of a person; `links`: cell → the address of its run, of what was sent from this
    computer."""
    tracker = next((queue.job.tracker for queue in state.queues if queue.job.tracker is not None), None)
    if tracker is None or state.identity is None:
        return []
    sweep = Sweep(state.identity.identity, state.identity.evidence)
    sent = Sent(sweep.identity)
    return [
        {"tracker": kind.name, "words": kind.words(asked, sweep), "links": sent.links.get(kind.name, {})}
        for kind, asked in asked_of(tracker)
    ]
