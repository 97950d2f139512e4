"""How long it will take, by what was measured so far."""

from __future__ import annotations

import statistics

from sweep.scene import Scene


def eta(scene: Scene) -> float | None:
    """Seconds until the last running queue is through, by the median of the cells measured so far; None: unknown."""
    measured = [
        (progress.ended_at - progress.started_at).total_seconds()
        for sight in scene.sights
        if sight.journal
        for progress in sight.journal.cells.values()
        if progress.state == "sealed" and progress.started_at and progress.ended_at
    ]
    if not measured:
        return None
    median = statistics.median(measured)
    ends = []
    for sight in scene.sights:
        if sight.journal is None or sight.launch is None or not sight.seen.runner_alive:
            continue
        left = 0.0
        for name in sight.launch.cells:
            progress = sight.progress(name)
            if progress is None or progress.state == "pending":
                left += median
            elif progress.state == "running" and progress.started_at:
                left += max(median - (scene.now - progress.started_at).total_seconds(), 0.0)
            elif progress.state == "failed" and not progress.final:
                left += median
        ends.append(left / max(sight.queue.job.slots if sight.queue else 1, 1))
    return max(ends, default=None)
