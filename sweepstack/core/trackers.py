"""What the core asks of the extension `trackers`.

A job without `tracker` asks nothing, and imports nothing.
"""

from __future__ import annotations

from typing import Any

from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.job import TrackerInput
from sweepstack.onbox.common.errors import ConfigError


def _module(name: str) -> Any:
    """A module of the extension. Raises ConfigError where that is not installed."""
    found = part_of("trackers", name)
    if found is None:
        raise ConfigError(f"job.tracker needs {not_here('trackers')}")
    return found


def variables(tracker: TrackerInput | None, identity: str) -> dict[str, str]:
    """The environment variables of a cell by which trackers log offline, with the placeholders of a cell; none without
    a tracker. `identity`: the sweep's. Raises ConfigError where the extension is not installed. Sends nothing."""
    if tracker is None:
        return {}
    found: dict[str, str] = _module("variables").variables(tracker, identity)
    return found


def places(tracker: TrackerInput) -> dict[str, str]:
    """Tracker → where the run of a cell is, for its manifest; `{run}` stands for the id. Raises as `variables`."""
    found: dict[str, str] = _module("variables").places(tracker)
    return found


def of_smoke(tracked: bool) -> dict[str, str]:
    """The variables of a smoke run, by which trackers log offline and which name no run; none without a tracker. A
    new name of a project is no reason for a new smoke run."""
    found: dict[str, str] = dict(_module("variables").OFFLINE) if tracked else {}
    return found


def synced(sources: Any) -> list[dict[str, Any]]:
    """Sends on what pulled cells logged, of each tracker that the state names; [] where it names none. Blocks for a
    minute or two at most. Never raises: what was not sent is told under `problem`."""
    if not any(queue.job.tracker for queue in sources.state.queues):
        return []
    try:
        found: list[dict[str, Any]] = _module("sync").synced(sources)
        return found
    except Exception as error:  # what a tracker does is never a reason for a pull to fail; its words may hold a key
        return [{"tracker": "tracker", "sent": 0, "problem": f"a mistake of ours: {type(error).__name__}", "links": {}}]


def links(state: Any) -> list[dict[str, Any]]:
    """Where the runs of the trackers that the state names can be seen; [] where it names none. Sends nothing, never
    raises."""
    if not any(queue.job.tracker for queue in state.queues):
        return []
    try:
        found: list[dict[str, Any]] = _module("links").links(state)
        return found
    except Exception:
        return []


def lines(found: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """What `links` or `synced` returned, as lines of a screen: (text, style)."""
    said: list[tuple[str, str | None]] = []
    for one in found:
        sent = f" ({one['sent']} sent now)" if one.get("sent") else ""
        if one.get("words"):
            said.append((f"tracker  {one['tracker']}: {one['words']}{sent}", None))
        if one.get("problem"):
            said.append((f"warning  {one['tracker']}: not sent, the evidence has it all: {one['problem']}", "yellow"))
    return said
