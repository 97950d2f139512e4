"""What a person must know beside cells and boxes: claims of the state that do not hold, and notes."""

from __future__ import annotations

from sweepstack.status.snapshot import Orphan, Scene


def claims(scene: Scene) -> list[Orphan]:
    """Boxes that the state calls cleared although the check says no: the state was edited, or an approval ended."""
    claims = []
    # While a teardown is open, an `up` is refused: what is missing is verified and approved again, and the end goes on.
    way_on = "sweepctl finish" if scene.teardown is not None else "pulumi up"
    for sight in scene.sights:
        handed = sight.handed is not None and sight.handed.verb == "destroy"  # its end was allowed, and is on its way
        if sight.claims_cleared and not sight.verdict.allowed and not handed:
            claims.append(
                Orphan(
                    kind="claim",
                    box=sight.box.name,
                    native_id=sight.box.native_id,
                    platform=sight.box.adapter,
                    tag=sight.box.tag or None,
                    price_per_hour=sight.price_per_hour,
                    why=f"the state calls it cleared, and it is locked: {'; '.join(sight.verdict.reasons)}",
                    next=f"{way_on} --stack {scene.state.stack}",
                    since=sight.since,
                )
            )
    return claims


def notes_of(scene: Scene) -> list[str]:
    notes = []
    if scene.evidence_problem:
        notes.append(scene.evidence_problem)
    if scene.teardown is not None:
        ended = len(set(scene.teardown.ended) & set(scene.teardown.native_ids))
        notes.append(f"a teardown has begun: {ended} of {len(scene.teardown.native_ids)} boxes ended")
    for sight in scene.sights:
        if sight.gone:
            notes.append(f"box {sight.box.name} ({sight.box.native_id}) is gone from {sight.box.adapter}")
        elif sight.box.to_delete:
            notes.append(f"box {sight.box.name} ({sight.box.native_id}) was replaced and still bills")
        if sight.copied:
            notes.append(f"box {sight.box.name} can't be reached: its cells are as of the last copy of its journal")
    notes += [one.text(scene.state.stack) for one in scene.still_billed]
    if scene.sights:
        notes += [
            f"box {name} is in the stack file and not rented: "
            + ("`pulumi up` rents it, or says why not" if scene.unstarted else "no cell")
            for name in scene.not_rented
        ]
    idle = [sight.box.name for sight in scene.sights if sight.idles]
    waiting = sum(len(sight.waiting) for sight in scene.sights)
    if idle and waiting:
        what, them = ("1 cell waits", "it") if waiting == 1 else (f"{waiting} cells wait", "them")
        move = f"`pulumi up`, or `sweepctl tend`, moves {them}"
        notes.append(f"box {', '.join(idle)}: nothing to do, and {what} elsewhere: {move}")
    notes += [
        f"the engine is {operation.kind} {operation.name} now, or was cut off there and keeps that entry unsaid "
        "(pulumi refresh --clear-pending-creates forgets it)"
        for operation in scene.state.pending
        if operation.token.startswith("sweepstack:")
    ]
    notes += [f"{len(loss.cells)} cells were lost with {loss.box} ({loss.why})" for loss in scene.losses]
    return notes
