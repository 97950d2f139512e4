"""Keeps the folders of downloads that a box began with, whatever a newer profile says.

A cache that moves is downloaded again, by cells that have begun. What a person writes in the stack file does move.
"""

from __future__ import annotations

from sweepstack.core.job import NetworkInput
from sweepstack.core.observation import Observation
from sweepstack.onbox.common.canonical import GENESIS
from sweepstack.provider.models import QueueInputs
from sweepstack.provider.session import Operation


def with_caches_kept(op: Operation, old: QueueInputs, new: QueueInputs, seen: Observation) -> QueueInputs:
    """The new inputs, with the old folders if anything has run on the box, or if that can't be told now."""
    if seen.journal is not None and seen.journal.head == GENESIS:
        return new
    before, after = old.job.network or NetworkInput(), new.job.network or NetworkInput()
    was, now = _caches(before), _caches(after)
    names = sorted(name for name in {*was, *now} - set(after.written) if was.get(name) != now.get(name))
    if not names:
        return new
    stay = ", ".join(f"{name}{f'={was[name]}' if name in was else ' (not set)'}" for name in names)
    op.info(
        f"queue of {new.box_name}: folders of downloads stay as this box began with: {stay}; "
        "overrides.<platform>.network.caches moves them"
    )

    def mixed(mine: dict[str, str], theirs: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in theirs.items() if name not in names} | {
            name: value for name, value in mine.items() if name in names
        }

    found = {"env": mixed(before.env, after.env), "folders": mixed(before.folders, after.folders)}
    network = after.model_copy(update=found)
    job = new.job.model_copy(update={"network": network if network != NetworkInput() else None})
    return new.model_copy(update={"job": job})


def _caches(network: NetworkInput) -> dict[str, str]:
    """Variable → folder. A mirror's variable is an address, and may change at any time."""
    paths = {name: value for name, value in network.env.items() if value.startswith(("/", "~/"))}
    return {**paths, **network.folders}
