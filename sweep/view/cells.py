"""What to call a cell: files first, then the journal of the box that holds it, then plans."""

from __future__ import annotations

from datetime import datetime

from sweep.journal import CellProgress
from sweep.model import SETTLED, Cell, ReceiptCell
from sweep.scene import Scene, Sight
from sweep.view.shapes import CellView


def cell_view(scene: Scene, cell: Cell, verdict: ReceiptCell | None) -> CellView:
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


def dropped_view(scene: Scene, name: str, reason: str) -> CellView:
    holder = max(scene.sights, key=lambda sight: sight.holds(name), default=None)
    progress = holder.progress(name) if holder else None
    attempts = progress.attempts if progress else 0
    digest = progress.config_digest if progress else None
    box = holder.box.name if holder and holder.holds(name) else None
    if progress is not None and progress.state == "running" and holder is not None and not holder.gone:
        return CellView(name, "running", attempts, box, digest, note=f"dropped, not stopped yet: {reason}")
    return CellView(name, "waived", attempts, box, digest, note=f"dropped: {reason}")


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


def _ago(moment: datetime, now: datetime) -> str:
    seconds = max((now - moment).total_seconds(), 0)
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"
