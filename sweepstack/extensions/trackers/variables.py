"""The variables by which each tracker's own client logs into the cell's outputs, and asks no server.

Names are those of wandb 0.31, mlflow 3.17, trackio 0.43, aim 3.29 and transformers 5. No client waits for its server
there: so a tracker that is off, down, slow, or that rejects a key costs a cell nothing. What trackio asks Hugging Face
where a cell has its token, no variable of its own turns off: docs/trackers.md says so.
"""

from __future__ import annotations

from sweepstack.core.job import TrackerInput
from sweepstack.extensions.trackers.kinds import KINDS, asked_of

OFFLINE = {name: value for kind in KINDS for name, value in kind.offline.items()}
"""What keeps a client offline, and its files in the cell's outputs."""


def variables(tracker: TrackerInput, identity: str) -> dict[str, str]:
    """Variable → value, with the placeholders of a cell. No secret is among them."""
    found: dict[str, str] = {}
    for kind, asked in asked_of(tracker):
        own = kind.variables(asked, identity)
        found |= {**kind.offline, **{name: value for name, value in own.items() if value}}
    return found


def places(tracker: TrackerInput) -> dict[str, str]:
    """Tracker → where the run of a cell is, in words; `{run}` stands for its id. What the manifests of cells keep."""
    return {kind.name: kind.place(asked) for kind, asked in asked_of(tracker)}
