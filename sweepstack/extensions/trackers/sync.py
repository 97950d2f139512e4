"""Sends on what cells logged offline, after a pull.

What can't be sent is told with the next command, and sent by the next pull. A try is sent once. Nothing is written into
the evidence, and no cell's copy is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sweepstack.core.job import TrackerInput
from sweepstack.extensions.trackers import mlflow_server, wandb_runs
from sweepstack.extensions.trackers.links import links
from sweepstack.extensions.trackers.sent import Sent
from sweepstack.extensions.trackers.tries import Try, unsent
from sweepstack.extensions.trackers.variables import MLFLOW, WANDB
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import Sources

SECONDS = 60.0
"""The longest that one tracker may take."""
Send = Callable[[Sequence[Try]], Iterator[tuple[Try, str]]]
"""Sends tries in their order, and gives each that was sent with the address of its run, "" where that is not known.
Raises SweepstackError, OSError for the first that was not."""


def synced(sources: Sources) -> list[dict[str, Any]]:
    """What `core.trackers.synced` returns: for each tracker how many tries were sent now, and why others were not."""
    store, found = sources.store, {one["tracker"]: one for one in links(sources.state)}
    if store is None:
        return []
    identity = store.marker.identity
    sent = Sent(identity)
    asked = [queue for queue in sources.state.queues if queue.job.tracker is not None]
    cells = {cell.name: cell.params for queue in asked for cell in queue.cells}
    for name, folder, send in _senders(asked[0].job.tracker, cells, identity) if asked else ():
        done, all_of = 0, 0
        problem = ""
        try:
            new = unsent(sources, cells, folder, partial(sent.has, name))
            all_of = len(new)
            for one, link in send(new) if new else ():
                sent.add(name, one.key, one.cell, link)
                done += 1
        except (SweepstackError, OSError) as error:
            waits = f"; {count(all_of - done, 'attempt')} left to send" if all_of else ""
            problem = f"{error}{waits}. Next, once that is mended: sweepctl pull --stack {sources.target.stack}"
        if done:
            sent.save()
        found[name] = {**found.get(name, {"tracker": name}), "sent": done, "problem": problem}
        found[name]["links"] = sent.links.get(name, {})
    return list(found.values())


def _senders(
    tracker: TrackerInput | None, cells: Mapping[str, Mapping[str, Any]], identity: str
) -> Iterator[tuple[str, str, Send]]:
    """(tracker, its folder, how it is sent) of those that have a server."""
    if tracker is not None and (wandb := tracker.wandb) is not None:
        yield "wandb", WANDB, partial(wandb_runs.send, wandb, identity=identity, seconds=SECONDS)
    if tracker is not None and (mlflow := tracker.mlflow) is not None:
        yield "mlflow", MLFLOW, partial(mlflow_server.send, mlflow, cells=cells, identity=identity, seconds=SECONDS)
