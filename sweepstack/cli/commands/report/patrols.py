"""The lines of a box's patrol for the page: from the box, else from the copy of its logs.

A box that several workers share has a file for each start of each worker. All tries of one task are one series.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweepstack.core.heartbeat import Patrol, parse_patrols
from sweepstack.core.journal import Journal
from sweepstack.core.pieces import pieces
from sweepstack.evidence.box_logs import known, read
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.report.facts import task_of
from sweepstack.status.snapshot import BoxSnapshot

WORKERS = 48
"""Of so many starts of workers the lines are read, those that began last: as many as `pull` copies."""
TAIL_BYTES = 128 << 10
"""The end of each of their files."""


@dataclass(frozen=True)
class Patrols:
    """`own`: of the box's one runner; `workers`: task → lines of its workers. Each by time."""

    own: tuple[Patrol, ...] = ()
    workers: Mapping[str, tuple[Patrol, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.own or self.workers)


def patrols_on(box_snapshot: BoxSnapshot) -> Patrols:
    """What the box itself has. Blocks for reads of it. Nothing where that can't be read."""
    try:
        channel, journal = box_snapshot.box.context().channel(), box_snapshot.journal
        if journal is not None and journal.workers:
            return _of_workers(channel, journal)
        read_at = lambda offset, limit: channel.read(box_layout.PATROL, offset=offset, limit=limit)  # noqa: E731
        found = pieces(read_at, channel.size(box_layout.PATROL) or 0)
    except (SweepstackError, OSError):
        return Patrols()
    return Patrols(tuple(patrol for data in found for patrol in parse_patrols(data)))


def patrols_of_copy(store: EvidenceStore | None, box: str, generation: int, journal: Journal | None) -> Patrols:
    """The ends of the patrols' files, as they were copied with the box's logs."""
    if store is None:
        return Patrols()
    try:
        kept = known(store, box, generation)
        copied = {log.path: read(store, kept, log) or b"" for log in kept.logs if log.path.endswith("/patrol.jsonl")}
    except (SweepstackError, OSError):
        return Patrols()
    own = tuple(parse_patrols(copied.get(box_layout.PATROL, b"")))
    return Patrols(own, _by_task(journal.workers if journal is not None else (), copied))


def _of_workers(channel: Channel, journal: Journal) -> Patrols:
    names = [one.name for one in sorted(journal.workers.values(), key=lambda one: one.began_at)][-WORKERS:]
    tails = channel.tails([box_layout.worker_patrol(name) for name in names], TAIL_BYTES)
    return Patrols(workers=_by_task(names, {path: data for path, (_, data) in tails.items()}))


def _by_task(names: Iterable[str], files: Mapping[str, bytes]) -> dict[str, tuple[Patrol, ...]]:
    found: dict[str, list[Patrol]] = {}
    for name in names:
        if lines := parse_patrols(files.get(box_layout.worker_patrol(name), b"")):
            found.setdefault(task_of(name), []).extend(lines)
    return {task: tuple(sorted(lines, key=lambda one: one.time)) for task, lines in found.items()}
