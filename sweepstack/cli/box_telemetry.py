"""Reads a box's last heartbeat (a patrol line) and the last points of its cells' curves.

If the connection breaks, what was read before stays. What a box sends is data, and is read in pieces of limited size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sweepstack.channel import prefetch
from sweepstack.core.heartbeat import INTERVAL, TAIL_BYTES, Patrol, merged, parse_patrol
from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.metrics import Point, last_row, last_rows, nan_since, number, point
from sweepstack.core.own_stop import noted
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.placeholders import PLACEHOLDER
from sweepstack.onbox.host.platform import Platform
from sweepstack.status.engine.state import MetricsEntry
from sweepstack.status.snapshot import BoxSnapshot

END_BYTES = 8192
NOTE_BYTES = 256
"""Of `lease.lock`."""
WHOLE_BYTES = 8 << 20
"""In a longer metrics file only the end is searched for the first NaN."""
SHOWN = 60
"""Up to so many cells the curve of each is read; of more cells, those that run or failed, and some sealed ones."""
SAMPLE = 3


def questions(metrics: MetricsEntry | None) -> list[prefetch.Question]:
    """The reads that `with_telemetry` will make, so that the caller can prefetch them."""
    # A command that asks for these has looked at the box, which renews its lease.
    asked = [prefetch.tails([box_layout.PATROL, box_layout.SPEC], TAIL_BYTES), prefetch.touch(box_layout.LOOKED)]
    asked.append(prefetch.tails([box_layout.LEASE_LOCK], NOTE_BYTES))
    if metrics is None or PLACEHOLDER.search(metrics.file):  # then it has another name in each cell
        return asked
    return [*asked, prefetch.newest(box_layout.CELLS, f"out/{metrics.file}", END_BYTES)]


def with_telemetry(box_snapshot: BoxSnapshot, platform: Platform) -> BoxSnapshot:
    """The box with its heartbeat and the curves of its running cells. Blocks for a few reads of the box."""
    try:
        channel = platform.channel(box_snapshot.box.native_id, box_snapshot.box.account)
        _, note = channel.tails([box_layout.LEASE_LOCK], NOTE_BYTES).get(box_layout.LEASE_LOCK, (0, b""))
        box_snapshot = replace(box_snapshot, patrol=_patrol(channel, box_snapshot.journal), lease_note=noted(note))
        metrics = box_snapshot.queue.metrics if box_snapshot.queue else None
        if metrics is None or box_snapshot.journal is None:
            return box_snapshot
        points = {}
        chosen = list(_chosen(list(box_snapshot.journal.cells.values())))
        params = {cell.name: cell.params for cell in box_snapshot.queue.cells} if box_snapshot.queue else {}
        own = {progress.name: metrics.of(progress.name, params.get(progress.name, {})) for progress in chosen}
        tails = channel.tails([_curve(progress, own[progress.name]) for progress in chosen], END_BYTES)
        for progress in chosen:
            of_cell = own[progress.name]
            found = read_point(channel, progress, of_cell, tails.get(_curve(progress, of_cell)))
            if found is not None:
                points[progress.name] = found
        return replace(box_snapshot, points=points)
    except (SweepstackError, OSError):
        return box_snapshot


def _patrol(channel: Channel, journal: Journal | None) -> Patrol | None:
    """The box's last heartbeat; of several workers, of all of which no end is known."""
    if journal is None or not journal.workers:
        return last_patrol(channel)
    paths = {box_layout.worker_patrol(one.name): one for one in journal.workers.values() if not one.ended}
    tails = channel.tails([*paths, box_layout.SPEC], TAIL_BYTES)
    interval = _interval(tails.get(box_layout.SPEC, (0, b""))[1])
    lines = {one.name: parse_patrol(tails.get(path, (0, b""))[1], interval) for path, one in paths.items()}
    return merged({name: line for name, line in lines.items() if line is not None})


def last_patrol(channel: Channel) -> Patrol | None:
    """The box's last heartbeat; None before the first. Raises Unreachable."""
    tails = channel.tails([box_layout.PATROL, box_layout.SPEC], TAIL_BYTES)
    size, data = tails.get(box_layout.PATROL, (0, b""))
    if not size:
        return None
    whole, spec = tails.get(box_layout.SPEC, (0, b""))
    if len(spec) < whole:
        spec = channel.read(box_layout.SPEC)
    return parse_patrol(data, _interval(spec))


def _interval(spec: bytes) -> float:
    """The seconds between two heartbeats, from the box's spec."""
    try:
        return number(json.loads(spec).get("patrol_seconds")) or INTERVAL
    except (ValueError, AttributeError, RecursionError):
        return INTERVAL


def _chosen(cells: Sequence[CellProgress]) -> Iterable[CellProgress]:
    """The cells whose curve is read: all of a small sweep, else those that run or failed, and the last few sealed."""
    begun = [cell for cell in cells if cell.attempts and cell.state in ("running", "failed", "sealed")]
    if len(begun) <= SHOWN:
        return begun
    open_ones = [cell for cell in begun if cell.state == "running"]
    open_ones += [cell for cell in begun if cell.state == "failed"]
    return open_ones[:SHOWN] + [cell for cell in begun if cell.state == "sealed"][-SAMPLE:]


def _curve(progress: CellProgress, metrics: MetricsEntry) -> str:
    return f"{box_layout.attempt_dir(progress.name, progress.attempts)}/out/{metrics.file}"


def read_point(
    channel: Channel, progress: CellProgress, metrics: MetricsEntry, tail: tuple[int, bytes] | None
) -> Point | None:
    """The last point of a cell's curve; None before the first.

    `tail`: size and end of the metrics file, if they were read already; more is read if that is not enough.
    """
    path = _curve(progress, metrics)
    size, data = tail or (0, b"")
    if not size:
        return None

    def read(offset: int, limit: int) -> bytes:
        begin = offset - (size - len(data))
        return data[begin : begin + limit] if begin >= 0 else channel.read(path, offset=offset, limit=limit)

    found = point(last_row(read, size, metrics.file, END_BYTES), metrics.x, metrics.y)
    if found is None or found.y is None or math.isfinite(found.y):
        return found
    rows = last_rows(read, size, metrics.file, WHOLE_BYTES)
    return replace(found, nan_since=nan_since(rows, metrics.x, metrics.y))
