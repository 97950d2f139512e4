"""Sends on what cells logged offline, after a pull.

What can't be sent is told with the next command, and sent by the next pull. A try is sent once. Nothing is written into
the evidence, and no cell's copy is changed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sweepstack.extensions.trackers.kind import Sweep
from sweepstack.extensions.trackers.kinds import asked_of
from sweepstack.extensions.trackers.links import links
from sweepstack.extensions.trackers.sent import Sent
from sweepstack.extensions.trackers.tries import unsent
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import Sources

SECONDS = 60.0
"""The longest that one tracker may take."""


def synced(sources: Sources) -> list[dict[str, Any]]:
    """What `core.trackers.synced` returns: for each tracker how many tries were sent now, and why others were not."""
    store, found = sources.store, {one["tracker"]: one for one in links(sources.state)}
    queues = [queue for queue in sources.state.queues if queue.job.tracker is not None]
    if store is None or not queues or queues[0].job.tracker is None:
        return []
    sweep = Sweep(store.marker.identity, cells={cell.name: cell.params for queue in queues for cell in queue.cells})
    sent = Sent(sweep.identity)
    for kind, asked in asked_of(queues[0].job.tracker):
        if kind.send is None:
            continue
        done, all_of = 0, 0
        problem = ""
        try:
            new = unsent(sources, sweep.cells, kind.folder, partial(sent.has, kind.name))
            all_of = len(new)
            for one, link in kind.send(asked, new, sweep, SECONDS) if new else ():
                sent.add(kind.name, one.key, one.cell, link)
                done += 1
        except (SweepstackError, OSError) as error:
            waits = f"; {count(all_of - done, 'attempt')} left to send" if all_of else ""
            problem = f"{error}{waits}. Next, once that is mended: sweepctl pull --stack {sources.target.stack}"
        if done:
            sent.save()
        found[kind.name] = {**found.get(kind.name, {"tracker": kind.name}), "sent": done, "problem": problem}
        found[kind.name]["links"] = sent.links.get(kind.name, {})
    return list(found.values())
