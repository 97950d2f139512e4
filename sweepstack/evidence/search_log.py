"""The log of a search, where the evidence lies: `records/search.jsonl`.

It is written whole, over nothing but what was read, and synced: of two writers one is refused, and a crash leaves the
old log or the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sweepstack.core.search_log import PRUNED, SearchLog, Step, parse_search_log
from sweepstack.evidence.location import RECORDS, object_store_at, read_marker
from sweepstack.evidence.object_store import ObjectStore

KEY = f"{RECORDS}/search.jsonl"


def read_search_log(objects: ObjectStore) -> SearchLog:
    """The log; an empty one where there is none. Raises EvidenceError, EvidenceDamaged."""
    held = objects.read(KEY)
    return SearchLog() if held is None else parse_search_log(held.data, held.tag, objects.shown(KEY))


def append(objects: ObjectStore, log: SearchLog, steps: Sequence[Step]) -> SearchLog:
    """Adds lines to the log as it was read, and returns the new one. Not idempotent by itself: raises EvidenceChanged
    where the log is not what was read any more, so the same lines are never added twice. Nothing to add: no write."""
    if not steps:
        return log
    longer = log.with_steps(steps)
    tag = objects.write(KEY, longer.data, over=log.tag)
    return SearchLog(longer.steps, longer.data, tag)


def decided_prunes(objects: ObjectStore, stopped: Mapping[str, str]) -> frozenset[str]:
    """Those of these cells (name → why it was stopped) whose reason is a decision of the log. Reads no log where no
    reason claims to be one. Raises EvidenceError, EvidenceDamaged."""
    claimed = {name: why for name, why in stopped.items() if why.startswith(PRUNED)}
    if not claimed:
        return frozenset()
    lines = {(step.cell, step.why) for step in read_search_log(objects).steps if step.kind == "pruned"}
    return frozenset(name for name, why in claimed.items() if (name, why) in lines)


def log_at(uri: str, project: Callable[[], str], stack: str) -> SearchLog:
    """The log in the evidence at `uri`, where that is this sweep's; an empty one where there is no evidence yet, or
    another sweep's. `project`: asked for the project's name where there is some. Raises EvidenceError where that can't
    be known."""
    objects = object_store_at(uri)
    marker = read_marker(objects)
    if marker is None or (marker.project, marker.stack) != (project(), stack):
        return SearchLog()
    return read_search_log(objects)
