"""The parts of a sweep's picture (cells, boxes, gates, cost) as plain values and as JSON.

What a box's bucket has of its cells' checkpoints (MOUNT_CACHED) is told by the heartbeat of the box's runner, so every
field is looked at before it is used; and by its journal, where a runner ended before all was copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from sweepstack.billing.balance import Runway
from sweepstack.billing.cost import Meter
from sweepstack.billing.deadlines import Countdown
from sweepstack.billing.stray import Stray
from sweepstack.core.journal import Journal
from sweepstack.core.records import SETTLED
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.status.snapshot import BoxSnapshot
from sweepstack.teardown.who_signed import OnRecord, signed

Bills = Literal["yes", "nothing", "unknown"]

S3_USD_PER_GB_MONTH = 0.023
"""The list price of S3 Standard in us-east-1 for the first 50 TB; unverified. Of another store no price is known."""
ENOUGH = 2
"""So many sets: then there is one before the newest."""


@dataclass(frozen=True)
class CellView:
    """A cell: its name, what became of it, and how far it is."""

    name: str
    state: str
    attempts: int
    box: str | None
    config_digest: str | None
    step: str = ""
    loss: str = ""
    note: str = ""
    x: float | None = None
    total: float | None = None
    elapsed_seconds: float | None = None
    """Of the running attempt so far, or of the one that was sealed."""
    eta_seconds: float | None = None
    verdict: str = ""
    """How the box's patrol judges a running cell: starting, working, slow, hung; empty where it says nothing."""
    suspect: bool = False
    """Sealed too fast to be believed: noted as `quick`. The state `suspect` is another thing."""
    resumed_from: int | None = None
    earlier: bool = False
    """Its result is the verified copy of an earlier run, until there is one of a later run."""
    y: float | None = None
    """The loss as a number; None where there is none, and where it is not finite."""

    @property
    def has_result(self) -> bool:
        """Whether its verified copy counts: of its last run, or of an earlier one."""
        return self.state == "verified" or self.earlier

    def as_json(self) -> dict[str, Any]:
        """For programs: `step` and `loss` are numbers, and beside them the texts of the screen."""
        step = None if self.x is None else {"done": self.x, "total": self.total}
        numbers = {"step": step, "step_text": self.step, "loss": self.y, "loss_text": self.loss}
        return {name: value for name, value in (vars(self) | numbers).items() if name != "y"}


@dataclass(frozen=True)
class BoxView:
    """A box of the state, as it was seen."""

    name: str
    platform: str
    native_id: str
    phase: str
    price_per_hour: float | None
    cost: float | None
    age_seconds: float | None
    where: str
    idle: bool | None
    told: str | None = None
    """`preempted`, `taken-or-stopped` or `frozen`, where its platform says so."""
    note: str = ""
    idle_seconds: float | None = None
    disk_used: float | None = None
    disk_free: int | None = None
    inodes_used: float | None = None
    inodes_free: int | None = None
    heartbeat_seconds: float | None = None
    """How long ago its runner wrote its last patrol line, by the box's clock."""
    setup: str = ""
    blocked: str | None = None
    alarms: tuple[str, ...] = ()
    gpus: tuple[Mapping[str, Any], ...] = ()
    workers: tuple[Mapping[str, Any], ...] = ()
    bucket: BucketView | None = None
    """The checkpoints of its cells in its bucket; None without one."""

    def as_json(self) -> dict[str, Any]:
        """The documented shape in `boxes[]`."""
        return vars(self) | {"bucket": self.bucket.as_json() if self.bucket else None}


@dataclass(frozen=True)
class GateView:
    """Whether a box may end, and why not."""

    box: str
    state: Literal["locked", "cleared"]
    receipt: str | None
    reasons: tuple[str, ...]
    way: str | None
    unclaimed: Mapping[str, Any] = field(default_factory=dict)
    """What would die with the box and belongs to no cell: files, bytes, largest, problem."""
    approvals: tuple[OnRecord, ...] = ()

    @property
    def signed(self) -> list[str]:
        """See `who_signed.signed`."""
        return signed(self.approvals, self.reasons)

    def as_json(self) -> dict[str, Any]:
        """The documented shape in `gates[]`."""
        return vars(self) | {"reasons": list(self.reasons), "approvals": [one.as_json() for one in self.approvals]}


@dataclass(frozen=True)
class BudgetView:
    """How a budget stands. `used`: the further of USD and hours, 1.0 is all of it; `projected_*`: at the last cell."""

    usd: float | None
    hours: float | None
    spent_usd: float
    spent_hours: float
    used: float
    projected_usd: float | None
    projected_hours: float | None
    unknown: tuple[str, ...] = ()
    unpriced: int = 0


@dataclass(frozen=True)
class SweepView:
    """What `sweepctl status` shows."""

    stack: str
    cells: tuple[CellView, ...]
    boxes: tuple[BoxView, ...]
    gates: tuple[GateView, ...]
    meter: Meter
    eta_seconds: float | None
    unknown: tuple[Stray, ...]
    notes: tuple[str, ...]
    next: tuple[str, ...]
    bills: Bills
    receipt: str | None
    evidence: str | None
    median_seconds: float | None = None
    """What a cell of this sweep takes, by those measured so far."""
    budget: BudgetView | None = None
    clocks: tuple[Countdown, ...] = ()
    runways: tuple[Runway, ...] = ()
    """How long the balance of each account lasts."""
    alarms: tuple[str, ...] = ()
    """What a person must do now about an account; alarms of a box are with the box."""
    money_lines: tuple[str, ...] = ()
    """What else there is to say of money, below the meter."""
    left: tuple[Stray, ...] = ()
    """Volumes that outlived all boxes."""
    never_up: bool = False
    """Whether nothing was ever rented from this backend; `bills` stays unknown, since another one may have it."""

    @property
    def verified(self) -> int:
        """Cells that are verified."""
        return sum(cell.state == "verified" for cell in self.cells)

    @property
    def settled(self) -> bool:
        """Whether every cell is verified or waived, and there is one."""
        return bool(self.cells) and all(cell.state in SETTLED for cell in self.cells)

    def counts(self) -> dict[str, int]:
        """Cells by state, in the order of first appearance."""
        counts: dict[str, int] = {}
        for cell in self.cells:
            counts[cell.state] = counts.get(cell.state, 0) + 1
        return counts

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `sweepctl status --json`, and more fields."""
        return {
            "stack": self.stack,
            "cells": [cell.as_json() for cell in self.cells],
            "boxes": [box.as_json() for box in self.boxes],
            "gates": [gate.as_json() for gate in self.gates],
            "meter": vars(self.meter),
            "eta_seconds": self.eta_seconds,
            "median_seconds": self.median_seconds,
            "budget": vars(self.budget) | {"unknown": list(self.budget.unknown)} if self.budget else None,
            "clocks": [
                {
                    "box": clock.box,
                    "native_id": clock.native_id,
                    "what": clock.what,
                    "since": clock.since.isoformat(),
                    "at": clock.at.isoformat() if clock.at else None,
                    "left_seconds": clock.left.total_seconds() if clock.left is not None else None,
                    "kills": list(clock.kills),
                }
                for clock in self.clocks
            ],
            "balances": [runway.as_json() for runway in self.runways],
            "alarms": list(self.alarms),
            "money_lines": list(self.money_lines),
            "volumes_left": [volume.as_json("volumes_left") for volume in self.left],
            "unknown": [orphan.as_json("unknown") for orphan in self.unknown],
            "bills": self.bills,
            "receipt": self.receipt,
            "evidence": self.evidence,
            "notes": list(self.notes),
            "next": list(self.next),
        }


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
