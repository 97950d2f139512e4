"""Says what a box's bucket has of its cells' checkpoints (MOUNT_CACHED): age, bytes, dollars.

By the heartbeat of the box's runner, so every field is looked at before it is used; and by its journal, where a runner
ended before all was copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sweepstack.core.journal import Journal
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.status.snapshot import BoxSnapshot

S3_USD_PER_GB_MONTH = 0.023
"""The list price of S3 Standard in us-east-1 for the first 50 TB; unverified. Of another store no price is known."""
ENOUGH = 2
"""So many sets: then there is one before the newest."""


@dataclass(frozen=True)
class CopiedCell:
    """The checkpoints of one cell in the bucket. `age_seconds`: since the last whole set was copied, None where this
    runner has copied none; `behind`: why its newest are not there."""

    name: str
    age_seconds: float | None
    bytes: int
    sets: int
    behind: str


@dataclass(frozen=True)
class BucketView:
    """The checkpoints of one box's cells in its bucket. `usd_per_month`: None where the store's price is not known."""

    source: str
    cells: tuple[CopiedCell, ...]
    bytes: int
    usd_per_month: float | None

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `boxes[].bucket`."""
        return vars(self) | {"cells": [vars(cell) for cell in self.cells]}

    def words(self) -> str:
        """For the screen."""
        sets = sum(cell.sets for cell in self.cells)
        price = "" if self.usd_per_month is None else f", about ${self.usd_per_month:.2f} a month at S3's list price"
        parts = [f"{self.source}: {spell_bytes(self.bytes)} of checkpoints in {sets} sets{price}"]
        ages = [(cell.age_seconds, cell.name) for cell in self.cells if cell.age_seconds is not None]
        if ages:
            age, name = max(ages)
            parts.append(f"the oldest copy is {age:.0f} s old ({name})")
        parts += [f"{cell.name} is not copied: {cell.behind}" for cell in self.cells if cell.behind]
        return "; ".join(parts)


def bucket_view(box_snapshot: BoxSnapshot, now: datetime) -> BucketView | None:
    """What its runner said last of its bucket, as of `now`; None without one, and of a runner that does not say."""
    patrol = box_snapshot.patrol
    said = patrol.uploads if patrol is not None else None
    if patrol is None or said is None or not isinstance(said.get("checkpoints"), dict):
        return None
    since = patrol.age(box_snapshot.there(now))
    cells = tuple(
        CopiedCell(str(name), _older(one.get("age"), since), _count(one, "bytes"), _count(one, "sets"), _text(one))
        for name, one in sorted(said["checkpoints"].items())
        if isinstance(one, dict)
    )
    size = sum(cell.bytes for cell in cells)
    amazon = said.get("endpoint") == ""
    return BucketView(str(said.get("source")), cells, size, size / 1e9 * S3_USD_PER_GB_MONTH if amazon else None)


def has_set_before(box_snapshot: BoxSnapshot, cell: str) -> bool:
    """Whether there may be a set of checkpoints before the newest: not where there is no bucket, or it has fewer."""
    if box_snapshot.patrol is None or box_snapshot.patrol.uploads is None:
        return False
    known = box_snapshot.patrol.uploads.get("checkpoints")
    one = known.get(cell) if isinstance(known, dict) else None
    return not isinstance(one, dict) or _count(one, "sets") >= ENOUGH


def not_copied(journal: Journal) -> Mapping[str, str]:
    """Cells whose newest checkpoints were not in the bucket when their runner ended → why; none that began since."""
    found: dict[str, str] = {}
    for entry in journal.entries:
        if entry["event"] == "runner-stopped" and isinstance(entry.get("not_copied"), dict):
            found |= {str(cell): str(why) for cell, why in entry["not_copied"].items()}
        elif found and "cell" in entry:
            found.pop(entry["cell"], None)
    return found


def alarms(box_snapshot: BoxSnapshot) -> Iterator[str]:
    """A line where the newest checkpoints lie on the box alone, and no runner is there to copy them."""
    left = not_copied(box_snapshot.journal) if box_snapshot.journal is not None and not box_snapshot.lost else {}
    if left:
        named = "; ".join(f"{cell} ({why})" for cell, why in left.items())
        yield f"its runner ended before all checkpoints were in the bucket, which lie on this box alone: {named}"


def _older(age: Any, since: float) -> float | None:
    return age + since if isinstance(age, (int, float)) and math.isfinite(age) else None


def _count(one: Mapping[str, Any], key: str) -> int:
    value = one.get(key)
    return value if isinstance(value, int) and value >= 0 else 0


def _text(one: Mapping[str, Any]) -> str:
    return str(one.get("behind") or "")
