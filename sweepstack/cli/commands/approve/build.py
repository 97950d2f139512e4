"""Builds an approval from what a person chose, and keeps what an earlier one says of other boxes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.core.records import Abandonment, Action, Approval, UnclaimedWaiver, Waiver
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.check import Verdict, may_end
from sweepstack.teardown.ownership import who


def build(
    options: ApproveOptions,
    *,
    receipt: str | None,
    box_snapshots: Sequence[BoxSnapshot],
    waive: dict[str, str],
    expires: datetime,
    now: datetime,
) -> Approval:
    """The approval for exactly these boxes."""
    waivers = tuple(Waiver(cell=cell, reason=reason) for cell, reason in sorted(waive.items()))
    abandoned = tuple(
        Abandonment(
            box=box_snapshot.box.name,
            native_id=box_snapshot.box.native_id,
            reason=options.abandon[box_snapshot.box.name],
            verb=options.verb,
        )
        for box_snapshot in box_snapshots
        if box_snapshot.box.name in options.abandon
    )
    unclaimed = tuple(
        _unclaimed(box_snapshot, options.unclaimed[box_snapshot.box.name])
        for box_snapshot in box_snapshots
        if box_snapshot.box.name in options.unclaimed and box_snapshot.verdict.unclaimed
    )
    return Approval(
        receipt=receipt,
        actions=tuple(
            Action(verb=options.verb, box=box_snapshot.box.name, native_id=box_snapshot.box.native_id)
            for box_snapshot in box_snapshots
        ),
        waive=waivers,
        abandon=abandoned,
        unclaimed=unclaimed,
        waivers_digest=Approval.digest_waivers(waivers, abandoned, unclaimed),
        by=who(),
        at=now,
        expires=expires,
    )


def _unclaimed(box_snapshot: BoxSnapshot, reason: str) -> UnclaimedWaiver:
    """A waiver of exactly the unclaimed bytes that are there now, because only these were shown to the person."""
    found = box_snapshot.verdict.unclaimed
    return UnclaimedWaiver(
        box=box_snapshot.box.name,
        native_id=box_snapshot.box.native_id,
        files=found.files,
        bytes=found.bytes,
        reason=reason,
        uncounted=bool(found.problem),
        listed=found.listed or None,
    )


def merge(
    approval: Approval, earlier: Approval | None, snapshot: Snapshot, asked: set[str]
) -> tuple[Approval, list[tuple[BoxSnapshot, Verdict]]]:
    """Adds what an earlier approval says of other boxes, if it is for the same receipt and still holds."""
    if earlier is None or (approval.receipt and earlier.receipt and approval.receipt != earlier.receipt):
        return approval, []
    verbs = {action.native_id: action.verb for action in earlier.actions if action.box not in asked}
    candidates = [
        box_snapshot
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.box.native_id in verbs and not box_snapshot.gone
    ]

    def by(approval: Approval, box_snapshot: BoxSnapshot) -> Verdict:
        box = box_snapshot.box.context(verbs[box_snapshot.box.native_id])
        return may_end(box, approval, box_snapshot.seen, full=False)

    held = [box_snapshot for box_snapshot in candidates if by(earlier, box_snapshot).allowed]
    if not held:
        return approval, []
    ids = {box_snapshot.box.native_id for box_snapshot in held}
    waivers = {waiver.cell: waiver for waiver in (*earlier.waive, *approval.waive)}
    waive = tuple(waivers[name] for name in sorted(waivers))
    abandon = (*approval.abandon, *(entry for entry in earlier.abandon if entry.native_id in ids))
    unclaimed = (*approval.unclaimed, *(entry for entry in earlier.unclaimed if entry.native_id in ids))
    merged = approval.model_copy(
        update={
            "unclaimed": unclaimed,
            "receipt": approval.receipt or earlier.receipt,
            "actions": (*approval.actions, *(action for action in earlier.actions if action.native_id in ids)),
            "waive": waive,
            "abandon": abandon,
            "waivers_digest": Approval.digest_waivers(waive, abandon, unclaimed),
            "expires": min(approval.expires, earlier.expires),
        }
    )
    return merged, [(box_snapshot, by(merged, box_snapshot)) for box_snapshot in held]
