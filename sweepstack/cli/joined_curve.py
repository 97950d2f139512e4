"""Puts what earlier tries wrote before the curve of a cell that went on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sweepstack.core.metrics import Row, begins_late, leading
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError

Reader = Callable[[int], tuple[str, list[Row]]]
"""Attempt → where its metrics file was read, and its rows. Raises SweepstackError or OSError."""


@dataclass(frozen=True)
class EarlierRows:
    """What an earlier try gave: its first rows, before those of the tries that followed."""

    attempt: int
    source: str
    rows: tuple[Row, ...]


def joined(rows: Sequence[Row], attempt: int, x: str, read: Reader) -> tuple[EarlierRows, ...]:
    """The parts that lead up to these rows of an attempt, the earliest first. Empty where nothing is missing before
    them, or no earlier try fits without a gap. An earlier file is read only where something is missing."""
    found: list[EarlierRows] = []
    first = rows
    while attempt > 1 and begins_late(first, x):
        attempt -= 1
        try:
            source, before = read(attempt)
        except (SweepstackError, OSError):
            continue
        part = leading(before, first, x)
        if before and not part:
            break
        if part:
            found.insert(0, EarlierRows(attempt, source, tuple(part)))
            first = part
    return tuple(found)
