"""Where the runs of trackers can be seen. Asks no server."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from sweepstack.core.job import TrackerInput
from sweepstack.extensions.trackers.sent import Sent
from sweepstack.extensions.trackers.variables import address
from sweepstack.onbox.common.placeholders import PLACEHOLDER
from sweepstack.status.engine.state import StackState


def links(state: StackState) -> list[dict[str, Any]]:
    """One for each tracker: `words`, of a person; `links`: cell → the address of its run, of what was sent from this
    computer."""
    tracker = next((queue.job.tracker for queue in state.queues if queue.job.tracker is not None), None)
    if tracker is None or state.identity is None:
        return []
    sent = Sent(state.identity.identity)
    return [
        {"tracker": name, "words": words, "links": sent.links.get(name, {})}
        for name, words in _places(tracker, state.identity.identity, state.identity.evidence)
    ]


def _places(tracker: TrackerInput, identity: str, evidence: str) -> Iterator[tuple[str, str]]:
    if (wandb := tracker.wandb) is not None:
        group = wandb.group or identity
        each = PLACEHOLDER.search(group) is not None
        shown = address(wandb, "" if each else f"groups/{quote(group, safe='')}")
        yield "wandb", shown or f"project {wandb.project}" + ("" if each else f", group {group}")
    if (mlflow := tracker.mlflow) is not None:
        yield "mlflow", f"{mlflow.uri}, experiment {mlflow.experiment}"
    if tracker.tensorboard is not None:
        host, folder, path = evidence.removeprefix("file://").partition("/")
        here = evidence.startswith("file://") and bool(host)
        cells = shlex.join(["tensorboard", "--logdir", f"{folder}{path}/cells"])
        yield "tensorboard", cells if here else f"event files of the cells in {evidence}"
