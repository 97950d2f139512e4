"""What a person must know beside cells and boxes: claims of the state that do not hold, and notes."""

from __future__ import annotations

from sweepstack.status.snapshot import Orphan, Snapshot
from sweepstack.status.unexplained import unexplained_stop

MOST_NAMED = 5
"""Cells that one note names."""


def claims(snapshot: Snapshot) -> list[Orphan]:
    """Boxes that the state calls cleared although the check says no: the state was edited, or an approval ended."""
    claims = []
    for box_snapshot in snapshot.box_snapshots:
        # While a teardown is open, an `up` is refused: what is missing is verified and approved again, and the end goes
        # on. So it does where the approval ran out: an `up` alone would only lock the box.
        again = snapshot.teardown is not None or box_snapshot.approval_ran_out(snapshot.now)
        way_on = "sweepctl finish" if again else "pulumi up"
        # Then its end was allowed, and is on its way.
        handed = box_snapshot.handed is not None and box_snapshot.handed.verb == "destroy"
        if box_snapshot.claims_cleared and not box_snapshot.verdict.allowed and not handed:
            claims.append(
                Orphan(
                    kind="claim",
                    box=box_snapshot.box.name,
                    native_id=box_snapshot.box.native_id,
                    platform=box_snapshot.box.adapter,
                    tag=box_snapshot.box.tag or None,
                    price_per_hour=box_snapshot.price_per_hour,
                    why=f"the state calls it cleared, and it is locked: {'; '.join(box_snapshot.verdict.reasons)}",
                    next=f"{way_on} --stack {snapshot.state.stack}",
                    since=box_snapshot.since,
                )
            )
    return claims


def notes_of(snapshot: Snapshot) -> list[str]:
    notes = []
    if snapshot.evidence_problem:
        notes.append(snapshot.evidence_problem)
    if snapshot.teardown is not None:
        ended = len(set(snapshot.teardown.ended) & set(snapshot.teardown.native_ids))
        notes.append(f"a teardown has begun: {ended} of {len(snapshot.teardown.native_ids)} boxes ended")
    for box_snapshot in snapshot.box_snapshots:
        if box_snapshot.gone:
            notes.append(
                f"box {box_snapshot.box.name} ({box_snapshot.box.native_id}) is gone from {box_snapshot.box.adapter}"
            )
        elif box_snapshot.box.to_delete:
            notes.append(f"box {box_snapshot.box.name} ({box_snapshot.box.native_id}) was replaced and still bills")
        bill = snapshot.spent.of(box_snapshot.box.native_id) if snapshot.spent is not None else None
        if trace := unexplained_stop(box_snapshot, bill, snapshot.now):
            notes.append(trace)
        if box_snapshot.held_by and not box_snapshot.gone:
            notes.append(f"box {box_snapshot.box.name}: {box_snapshot.held_by}")
        if box_snapshot.copied:
            notes.append(
                f"box {box_snapshot.box.name} can't be reached: its cells are as of the last copy of its journal"
            )
    notes += [one.text(snapshot.state.stack) for one in snapshot.still_billed]
    if snapshot.box_snapshots:
        notes += [
            f"box {name} is in the stack file and not rented: "
            + ("`pulumi up` rents it, or says why not" if snapshot.unstarted else "no cell")
            for name in snapshot.not_rented
        ]
    idle = [box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.idles]
    waiting = sum(len(box_snapshot.waiting) for box_snapshot in snapshot.box_snapshots)
    if idle and waiting:
        what, them = ("1 cell waits", "it") if waiting == 1 else (f"{waiting} cells wait", "them")
        move = f"`pulumi up`, or `sweepctl tend`, moves {them}"
        notes.append(f"box {', '.join(idle)}: nothing to do, and {what} elsewhere: {move}")
    notes += [
        f"the engine is {operation.kind} {operation.name} now, or was cut off there and keeps that entry unsaid "
        "(pulumi refresh --clear-pending-creates forgets it)"
        for operation in snapshot.state.pending
        if operation.token.startswith("sweepstack:")
    ]
    if again := snapshot.to_run_again:
        more = f" and {len(again) - MOST_NAMED} more" if again[MOST_NAMED:] else ""
        up = f"`pulumi up --stack {snapshot.state.stack}` starts it"
        notes.append(f"to run again, as was asked for: {', '.join(again[:MOST_NAMED])}{more}. {up}")
    notes += [f"{len(loss.cells)} cells were lost with {loss.box} ({loss.why})" for loss in snapshot.losses]
    return notes
