"""What the boxes on clusters have used of GPU-hours, for people."""

from __future__ import annotations

from collections.abc import Iterator

from sweepstack.billing.gpu_hours import HOUR, Rate, held, used_line
from sweepstack.launch.entries import finished
from sweepstack.status.snapshot import BoxSnapshot, Snapshot


def lines(snapshot: Snapshot, median: float | None) -> Iterator[str]:
    """One line for each rate that the stack config names. `median`: seconds that a cell takes, None unknown."""
    boxes: dict[Rate, list[tuple[BoxSnapshot, int]]] = {}
    for box_snapshot in snapshot.box_snapshots:
        scheduler = box_snapshot.queue.job.scheduler if box_snapshot.queue is not None else None
        if scheduler is not None and scheduler.gpus and scheduler.rate != Rate():
            boxes.setdefault(scheduler.rate, []).append((box_snapshot, scheduler.gpus * scheduler.nodes))
    for rate, found in boxes.items():
        used = sum(_held(snapshot, one, gpus) for one, gpus in found)
        left = [_left(one, gpus, median) for one, gpus in found]
        projected = None if None in left else used + sum(hours for hours in left if hours is not None)
        yield used_line(rate, used, projected)


def _held(snapshot: Snapshot, box_snapshot: BoxSnapshot, gpus: int) -> float:
    if box_snapshot.journal is None:
        return 0.0
    at_work = box_snapshot.reachable and box_snapshot.seen.runner_alive is not False
    return held(box_snapshot.journal, gpus, box_snapshot.there(snapshot.now) if at_work else None)


def _left(box_snapshot: BoxSnapshot, gpus: int, median: float | None) -> float | None:
    """GPU-hours until its last cell is through; None where nothing was measured."""
    queue = box_snapshot.queue
    assert queue is not None
    names = [name for name in queue.names if not finished(box_snapshot.progress(name), 0)]
    if not names:
        return 0.0
    return None if median is None else len(names) * median / HOUR * gpus / max(queue.job.slots, 1)
