"""The log of a search, where the evidence lies: `records/search.jsonl`.

It is written whole, over nothing but what was read, and synced: of two writers one is refused, and a crash leaves the
old log or the new one. A bucket whose server writes over what it was told to leave takes no log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweepstack.core.search_log import PRUNED, SearchLog, Step, parse_search_log
from sweepstack.evidence.location import MARKER, RECORDS, object_store_at, read_marker
from sweepstack.evidence.object_store import FolderStore, ObjectStore
from sweepstack.evidence.s3.object_store import S3Store
from sweepstack.onbox.common.canonical import sha256_hex, write_atomically
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.xdg import cache_folder

KEY = f"{RECORDS}/search.jsonl"


def read_search_log(objects: ObjectStore) -> SearchLog:
    """The log; an empty one where there is none. Raises EvidenceError, EvidenceDamaged."""
    held = objects.read(KEY)
    return SearchLog() if held is None else parse_search_log(held.data, held.tag, objects.shown(KEY))


def append(objects: ObjectStore, log: SearchLog, steps: Sequence[Step]) -> SearchLog:
    """Adds lines to the log as it was read, and returns the new one. Not idempotent by itself: raises EvidenceChanged
    where the log is not what was read any more, so the same lines are never added twice; EvidenceError where the
    evidence can't promise that. Nothing to add: no write."""
    if not steps:
        return log
    longer = log.with_steps(steps)
    if isinstance(objects, S3Store):
        objects.proves_matching(MARKER)
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
    log = read_search_log(objects)
    if isinstance(objects, S3Store):
        _keep(local_log(uri), log.data)
    return log


def local_log(uri: str) -> Path | None:
    """The file on this computer that has the log: itself where the evidence is a folder; of a bucket a copy as it was
    last read here, to complete names by and nothing else. It need not be there. None for a folder of another host."""
    try:
        objects = object_store_at(uri)
    except EvidenceError:
        return None
    if isinstance(objects, FolderStore):
        return objects.root / KEY
    return cache_folder() / "search" / f"{sha256_hex(uri.encode())[:16]}.jsonl"


def _keep(path: Path | None, data: bytes) -> None:
    with contextlib.suppress(OSError):
        if path is not None and (not path.exists() or path.stat().st_size != len(data)):
            write_atomically(path, data)
