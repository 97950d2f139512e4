"""One picture of a sweep, out of the state, the evidence, and what was seen of each box just now.

Pure: `sweep.cli.look` gathers, this decides what to call things. Nothing is called gone that is not proved gone, and
nothing verified whose files are not there any more.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sweep.cost import Meter, Running, meter
from sweep.journal import CellProgress
from sweep.model import SETTLED, Cell, ReceiptCell
from sweep.scene import Scene, Sight, Stranger

Bills = Literal["yes", "nothing", "unknown"]


@dataclass(frozen=True)
class CellView:
    name: str
    state: str
    attempts: int
    box: str | None
    config_digest: str | None
    step: str = ""
    loss: str = ""
    note: str = ""


@dataclass(frozen=True)
class BoxView:
    name: str
    platform: str
    native_id: str
    phase: str
    price_per_hour: float | None
    cost: float | None
    age_seconds: float | None
    where: str
    idle: bool | None
    note: str = ""


@dataclass(frozen=True)
class GateView:
    box: str
    state: Literal["locked", "cleared"]
    receipt: str | None
    reasons: tuple[str, ...]
    way: str | None


@dataclass(frozen=True)
class SweepView:
    """What `sweepctl status` shows."""

    stack: str
    cells: tuple[CellView, ...]
    boxes: tuple[BoxView, ...]
    gates: tuple[GateView, ...]
    meter: Meter
    eta_seconds: float | None
    unknown: tuple[Stranger, ...]
    notes: tuple[str, ...]
    next: tuple[str, ...]
    bills: Bills
    receipt: str | None
    evidence: str | None

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
            "cells": [vars(cell) for cell in self.cells],
            "boxes": [vars(box) for box in self.boxes],
            "gates": [vars(gate) | {"reasons": list(gate.reasons)} for gate in self.gates],
            "meter": vars(self.meter),
            "eta_seconds": self.eta_seconds,
            "unknown": [
                {key: value for key, value in vars(stranger).items() if key not in ("since", "proved")}
                for stranger in self.unknown
            ],
            "bills": self.bills,
            "receipt": self.receipt,
            "evidence": self.evidence,
            "notes": list(self.notes),
            "next": list(self.next),
        }


def compose(scene: Scene) -> SweepView:
    """Names every cell, box, gate and cost, and the command to type next."""
    verdicts = {cell.name: cell for cell in scene.receipt.cells} if scene.receipt else {}
    cells = tuple(_cell(scene, cell, verdicts.get(cell.name)) for cell in scene.roster) + tuple(
        _dropped(scene, name, reason)
        for name, reason in sorted(scene.dropped.items())
        if all(cell.name != name for cell in scene.roster)
    )
    gates = tuple(
        GateView(
            sight.box.name,
            "cleared" if sight.verdict.allowed else "locked",
            sight.verdict.receipt,
            () if sight.verdict.allowed else tuple(sight.verdict.reasons),
            sight.verdict.way,
        )
        for sight in scene.sights
    )
    unknown = (*scene.strangers, *_claims(scene))
    view = SweepView(
        stack=scene.state.stack,
        cells=cells,
        boxes=tuple(_box(sight, scene.now) for sight in scene.sights),
        gates=gates,
        meter=meter(_things(scene), scene.now),
        eta_seconds=eta(scene),
        unknown=unknown,
        notes=(*scene.notes, *_notes(scene)),
        next=(),
        bills=_bills(scene),
        receipt=scene.receipt_digest,
        evidence=scene.evidence,
    )
    return SweepView(**vars(view) | {"next": tuple(_next(scene, view))})


def _cell(scene: Scene, cell: Cell, verdict: ReceiptCell | None) -> CellView:
    holder = max(scene.sights, key=lambda sight: sight.holds(cell.name), default=None)
    if holder is not None and not holder.holds(cell.name):
        holder = None
    progress = holder.progress(cell.name) if holder else None
    state, note = _state(scene, cell, verdict, holder, progress)
    point = holder.points.get(cell.name) if holder and state in ("running", "failed") else None
    attempts = progress.attempts if progress else 0
    box = holder.box.name if holder else None
    if verdict is not None and (state == "verified" or holder is None):
        attempts, box = attempts or verdict.attempt or 0, verdict.box or box
    return CellView(
        cell.name,
        state,
        attempts,
        box,
        cell.config_digest,
        step=point.step if point else "",
        loss=point.loss if point else "",
        note=note,
    )


def _state(
    scene: Scene, cell: Cell, verdict: ReceiptCell | None, holder: Sight | None, progress: CellProgress | None
) -> tuple[str, str]:
    """The cell's state and a note. Files first, then the journal, then plans."""
    same = verdict is not None and (progress is None or progress.manifest == verdict.manifest)
    if verdict is not None and same and verdict.config_digest == cell.config_digest:
        if cell.name in scene.broken:
            return "damaged", f"the verified copy changed: {scene.broken[cell.name]}"
        if verdict.state not in SETTLED and cell.name in scene.waived:
            return "waived", "; ".join((scene.waived[cell.name], verdict.state, *verdict.reasons))
        if verdict.state in ("verified", "damaged", "unexpected"):
            return verdict.state, "; ".join(verdict.reasons)
    if holder is None:
        return "pending", "no box has it yet"
    stale = "as of the last copy of the journal" if holder.copied else ""
    if progress is None or progress.state == "pending":
        if holder.gone and holder.launch and cell.name in holder.launch.cells:
            return "lost", "its box is gone; `pulumi up` runs it again"
        if holder.journal is None and holder.launch is not None:
            return "pending", "whether it started is not known: the journal can't be read"
        return "pending", stale
    if progress.state == "sealed":
        if verdict is not None and verdict.manifest == progress.manifest and verdict.state == "missing":
            return "missing", "; ".join(verdict.reasons)
        return "sealed", "finished; not pulled and verified yet"
    if progress.state == "dropped":
        return "waived", f"dropped: {progress.reason or ''}".rstrip(": ")
    if progress.state == "failed":
        return "failed", (progress.reason or "") + ("" if progress.final else "; it will be tried again")
    if holder.gone:
        return "lost", "its box is gone; `pulumi up` runs it again"
    if holder.seen.runner_alive is False:
        return "failed", "its runner is not alive; `pulumi up` resumes it"
    if holder.seen.runner_alive is None:
        return "running", stale or "whether its runner is alive is not known"
    return "running", f"heartbeat {_ago(holder.heartbeat, scene.now)}" if holder.heartbeat else ""


def _dropped(scene: Scene, name: str, reason: str) -> CellView:
    holder = max(scene.sights, key=lambda sight: sight.holds(name), default=None)
    progress = holder.progress(name) if holder else None
    attempts = progress.attempts if progress else 0
    digest = progress.config_digest if progress else None
    box = holder.box.name if holder and holder.holds(name) else None
    if progress is not None and progress.state == "running" and holder is not None and not holder.gone:
        return CellView(name, "running", attempts, box, digest, note=f"dropped, not stopped yet: {reason}")
    return CellView(name, "waived", attempts, box, digest, note=f"dropped: {reason}")


def _box(sight: Sight, now: datetime) -> BoxView:
    thing = _thing(sight)
    age = (now - sight.since).total_seconds() if sight.since else None
    return BoxView(
        name=sight.box.name,
        platform=sight.box.adapter,
        native_id=sight.box.native_id,
        phase=sight.phase,
        price_per_hour=sight.price_per_hour,
        cost=thing.so_far(now),
        age_seconds=age,
        where=sight.where,
        idle=thing.idle,
        note=sight.seen.account_problem or sight.seen.note,
    )


def _thing(sight: Sight) -> Running:
    alive = sight.seen.runner_alive
    last = sight.journal.entries[-1]["time"] if sight.gone and sight.journal and sight.journal.entries else None
    return Running(
        price_per_hour=sight.price_per_hour,
        since=sight.since,
        until=datetime.fromisoformat(str(last)) if last else None,
        gone=sight.gone,
        idle=None if alive is None else not alive,
    )


def _things(scene: Scene) -> list[Running]:
    """Everything ever rented: the state's boxes, what the records say of others, and strangers without a record."""
    shown = {sight.box.native_id for sight in scene.sights}
    things = [_thing(sight) for sight in scene.sights]
    strange = {stranger.native_id: stranger for stranger in scene.strangers if stranger.kind == "box"}
    for birth in scene.births:
        if birth.native_id is None or birth.native_id in shown:
            continue
        stranger = strange.pop(birth.native_id, None)
        things.append(
            Running(
                price_per_hour=birth.price_per_hour,
                since=birth.created_at or birth.begun_at,
                until=birth.ended_at,
                gone=birth.ended_at is not None or stranger is None,
            )
        )
    things += [Running(stranger.price_per_hour, stranger.since) for stranger in strange.values()]
    return things


def _claims(scene: Scene) -> list[Stranger]:
    """Boxes that the state calls cleared although the check says no: edited state, or a word that no longer holds."""
    claims = []
    for sight in scene.sights:
        if sight.claims_cleared and not sight.verdict.allowed:
            claims.append(
                Stranger(
                    kind="claim",
                    box=sight.box.name,
                    native_id=sight.box.native_id,
                    platform=sight.box.adapter,
                    tag=sight.box.tag or None,
                    price_per_hour=sight.price_per_hour,
                    why=f"the state calls it cleared, and it is locked: {'; '.join(sight.verdict.reasons)}",
                    next=f"pulumi up --stack {scene.state.stack}",
                    since=sight.since,
                )
            )
    return claims


def _notes(scene: Scene) -> list[str]:
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
    notes += [
        f"the engine was cut off while {operation.kind} {operation.name}; it keeps that entry and says nothing of it "
        "(pulumi refresh --clear-pending-creates forgets it)"
        for operation in scene.state.pending
        if operation.token.startswith("sweepstack:")
    ]
    notes += [f"{len(loss.cells)} cells were lost with {loss.box} ({loss.why})" for loss in scene.losses]
    return notes


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


def _bills(scene: Scene) -> Bills:
    if any(not sight.gone for sight in scene.sights) or any(stranger.proved for stranger in scene.strangers):
        unsure = all(sight.phase == "unknown" for sight in scene.sights) and not any(s.proved for s in scene.strangers)
        return "unknown" if unsure else "yes"
    return "nothing" if scene.searched and not scene.strangers else "unknown"


def _next(scene: Scene, view: SweepView) -> Sequence[str]:
    stack = scene.state.stack
    if view.unknown:
        return list(dict.fromkeys(stranger.next for stranger in view.unknown))
    if scene.evidence_problem:
        return [f"sweepctl status --stack {stack}    (where the evidence is)"]
    if scene.teardown is not None:
        return [f"pulumi destroy --stack {stack}", f"sweepctl approve --stack {stack} --revoke    (to go on instead)"]
    if not scene.sights:
        again = "    (begins anew; what is verified is not trained again)" if scene.births else ""
        return [f"pulumi up --stack {stack}{again}"]
    if all(sight.verdict.allowed for sight in scene.sights):
        return [f"pulumi destroy --stack {stack}"]
    if any(sight.gone for sight in scene.sights) and not view.settled:
        return [f"pulumi up --stack {stack}"]
    locked = [sight for sight in scene.sights if not sight.verdict.allowed]
    if all(sight.proposed is not None and sight.proposed.allowed for sight in locked):
        return [f"pulumi up --stack {stack}    (clears what the stack file approves)"]
    states = set(view.counts())
    if "running" in states or ("pending" in states and any(sight.seen.runner_alive for sight in scene.sights)):
        return [f"sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack}"]
    if any("runner is not alive" in cell.note for cell in view.cells) or states & {"pending", "lost"}:
        return [f"pulumi up --stack {stack}    (resumes what waits)"]
    if view.settled:
        return [f"sweepctl approve --stack {stack}"]
    bad = next((cell.name for cell in view.cells if cell.state == "failed"), None)
    if bad is not None:
        return [f"sweepctl logs --stack {stack} {bad}", f"sweepctl finish --stack {stack}"]
    return [f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"]


def _ago(moment: datetime, now: datetime) -> str:
    seconds = max((now - moment).total_seconds(), 0)
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"
