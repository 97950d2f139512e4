"""What is there now, as far as a review needs it: plain values, taken from the picture of the sweep.

They are kept as JSON beside a recorded preview in the tests: so a review is made of two documents, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from pydantic import Field

from sweepstack.billing.cost import Meter
from sweepstack.core.records import REFUSED, SETTLED, Approval, Record
from sweepstack.status.compose import SweepView
from sweepstack.status.engine.state import BoxEntry, VolumeEntry
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.refusal import next_commands
from sweepstack.teardown.signatures import given_by


class LiveCell(Record):
    """A cell: what became of it, on which box, and why it is not verified."""

    name: str
    state: str
    box: str = ""
    note: str = ""


class LiveBox(Record):
    """A box as the state has it, `entry`, and what was seen of it.

    `allowed`: the check's answer to an end by the approval in the state, or on record; `way`, `reasons`: see `Verdict`.
    `proposed`: the same by the approval in the stack file; None where it is no other. `cells`: of its queue.
    `in_no_copy`: files of attempts without a seal that die with it.
    """

    entry: BoxEntry
    exists: str = "exists"
    price_per_hour: float | None = None
    """Now, as `BoxSnapshot` has it."""
    allowed: bool = False
    way: str | None = None
    reasons: tuple[str, ...] = ()
    proposed: bool | None = None
    proposed_reasons: tuple[str, ...] = ()
    cells: tuple[LiveCell, ...] = ()
    queue: tuple[str, ...] = ()
    unclaimed: str = ""
    in_no_copy: str = ""
    next: tuple[str, ...] = ()
    """What leads to its end from here, while it is locked."""


class LiveVolume(Record):
    """A volume as the state has it, `entry`; and of one that this stack keeps, so that its delete ends it, the check's
    answer to that."""

    entry: VolumeEntry
    allowed: bool = False
    way: str | None = None
    reasons: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class LiveApproval(Record):
    """An approval, and where it was found: in the state of these boxes, or in the stack file."""

    where: str
    receipt: str | None = None
    by: str
    at: datetime
    expires: datetime
    actions: tuple[str, ...] = ()
    waived: tuple[LiveCell, ...] = ()
    abandoned: tuple[LiveCell, ...] = ()
    unclaimed: tuple[LiveCell, ...] = ()


class LiveFact(Record):
    """A dated fact of a platform's profile that an end relies on, and that is old, was never checked, or comes from a
    platform that was never proved live. `platform`: as the boxes and volumes name it."""

    name: str
    platform: str
    words: str
    leans: tuple[str, ...]
    stale: bool
    accepted: str = ""
    """The day on which the stack file accepts it; "" where it does not, or where that counts no more."""


class Roster(Record):
    """Cells by name with the digest of their config, and those that a person dropped, with the reason."""

    cells: dict[str, str] = Field(default={})
    dropped: dict[str, str] = Field(default={})


class Live(Record):
    """The sweep now. `rosters`: `state`, `file`, and `base` where one was asked for. `problems`: what is not known."""

    stack: str
    store: bool = False
    """It is a stack of volumes, without cells and boxes."""
    now: datetime
    evidence: str = ""
    receipt: str | None = None
    cells: tuple[LiveCell, ...] = ()
    boxes: tuple[LiveBox, ...] = ()
    volumes: tuple[LiveVolume, ...] = ()
    meter: Meter = Meter(0.0, 0.0, 0.0)
    money_lines: tuple[str, ...] = ()
    volumes_per_month: float = 0.0
    """USD, of volumes that this stack keeps or that outlived its boxes."""
    approvals: tuple[LiveApproval, ...] = ()
    facts: tuple[LiveFact, ...] = ()
    rosters: dict[str, Roster] = Field(default={})
    base: str = ""
    bills: str = "unknown"
    unknown: tuple[str, ...] = ()
    """What runs, or may run, and is not in the state."""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def box(self, native_id: str, name: str = "") -> LiveBox | None:
        """The box with this native id; without one, the box of this name."""
        return next(
            (box for box in self.boxes if (box.entry.native_id == native_id if native_id else box.entry.name == name)),
            None,
        )

    def volume(self, native_id: str) -> LiveVolume | None:
        """The volume with this native id."""
        return next((volume for volume in self.volumes if volume.entry.native_id == native_id), None)


def live_of(
    snapshot: Snapshot,
    view: SweepView,
    *,
    rosters: Mapping[str, Roster],
    facts: Iterable[LiveFact] = (),
    volumes: Iterable[LiveVolume] = (),
    in_no_copy: Mapping[str, str] | None = None,
    base: str = "",
    problems: Iterable[str] = (),
    store: bool = False,
) -> Live:
    """The values of a picture. Pure. `volumes`: those that this stack keeps, with their verdicts; the others are taken
    from the state. `in_no_copy`: box → files that die with it and are in no copy."""
    cells = tuple(LiveCell(name=c.name, state=c.state, box=c.box or "", note=c.note) for c in view.cells)
    bad = {cell.name: cell for cell in cells if cell.state in REFUSED}
    judged = {volume.entry.native_id: volume for volume in volumes}
    kept = [entry.price_per_month or 0.0 for entry in snapshot.state.volumes if not entry.kept]
    return Live(
        stack=snapshot.state.stack,
        store=store,
        now=snapshot.now,
        evidence=snapshot.evidence or "",
        receipt=snapshot.receipt_digest,
        cells=cells,
        boxes=tuple(
            _box(
                one,
                snapshot,
                bad,
                in_no_copy=(in_no_copy or {}).get(one.box.name, ""),
            )
            for one in snapshot.box_snapshots
        ),
        volumes=tuple(judged.get(entry.native_id) or LiveVolume(entry=entry) for entry in snapshot.state.volumes),
        meter=view.meter,
        money_lines=view.money_lines,
        volumes_per_month=sum(kept) + sum(one.price_per_month or 0.0 for one in snapshot.left),
        approvals=_approvals(snapshot),
        facts=tuple(facts),
        rosters=dict(rosters),
        base=base,
        bills=view.bills,
        unknown=tuple(
            f"{' '.join(filter(None, (orphan.name, orphan.native_id))) or orphan.kind}: {orphan.why}"
            for orphan in view.unknown
        ),
        notes=() if store else view.notes,  # they are about cells and boxes
        problems=(*problems, *([snapshot.evidence_problem] if snapshot.evidence_problem else [])),
    )


def _box(
    one: BoxSnapshot,
    snapshot: Snapshot,
    bad: Mapping[str, LiveCell],
    *,
    in_no_copy: str,
) -> LiveBox:
    """`bad`: cells whose verified copy is not what it was. The check that ends a box looks at copies only once it is
    approved, and until then calls them verified."""
    box, verdict = one.box, one.verdict
    return LiveBox(
        entry=box,
        exists=one.seen.existence.value,
        price_per_hour=one.price_per_hour,
        allowed=verdict.allowed,
        way=verdict.way,
        reasons=tuple(verdict.reasons),
        proposed=one.proposed.allowed if one.proposed else None,
        proposed_reasons=tuple(one.proposed.reasons) if one.proposed else (),
        cells=tuple(
            LiveCell(name=c.name, state=bad[c.name].state, box=box.name, note=bad[c.name].note)
            if c.name in bad
            else LiveCell(name=c.name, state=c.state, box=box.name, note=c.reason)
            for c in verdict.cells
        ),
        queue=tuple(sorted(one.queue.names)) if one.queue else (),
        unclaimed=verdict.unclaimed.words if verdict.unclaimed else "",
        in_no_copy=in_no_copy,
        next=()
        if verdict.allowed
        else tuple(
            command
            for label, command in next_commands(box.facts(), verdict, stack=snapshot.state.stack)
            if label in ("next", "accept")
        ),
    )


def _approvals(snapshot: Snapshot) -> tuple[LiveApproval, ...]:
    """Each approval once: those in the state with the boxes that have it, and the one in the stack file."""
    found: list[tuple[Approval, list[str]]] = []
    for one in snapshot.box_snapshots:
        approval = one.box.approval
        if approval is None:
            continue
        known = next((names for other, names in found if other == approval), None)
        if known is None:
            found.append((approval, known := []))
        known.append(one.box.name)
    if snapshot.approval is not None:
        known = next((names for other, names in found if other == snapshot.approval), None)
        if known is None:
            found.append((snapshot.approval, []))
    return tuple(
        _approval(approval, f"the state, for {', '.join(names)}" if names else "the stack file, and not up yet")
        for approval, names in found
    )


def _approval(approval: Approval, where: str) -> LiveApproval:
    return LiveApproval(
        where=where,
        receipt=approval.receipt,
        by=given_by(approval),
        at=approval.at,
        expires=approval.expires,
        actions=tuple(f"{one.verb} {one.box} ({one.native_id})" for one in approval.actions),
        waived=tuple(LiveCell(name=one.cell, state="waived", note=one.reason) for one in approval.waive),
        abandoned=tuple(
            LiveCell(name=one.box, state="abandoned", box=one.box, note=one.reason) for one in approval.abandon
        ),
        unclaimed=tuple(
            LiveCell(name=one.box, state="let go", box=one.box, note=f"{one.files} files: {one.reason}")
            for one in approval.unclaimed
        ),
    )


def open_cells(cells: Iterable[LiveCell]) -> list[LiveCell]:
    """Those that are neither verified nor waived."""
    return [cell for cell in cells if cell.state not in SETTLED]
