"""One picture of a sweep, out of the state, the evidence, and what was seen of each box just now.

Pure: `operations.sweep` gathers, this decides what to call things. Nothing is called gone that is not proved gone, and
nothing verified whose files are not there any more.

A cell is shown by its files, else the journal of its box, else the plan. Beside cells and boxes: claims of the state
that do not hold, notes, what clusters have used of GPU-hours, and the time left, which is estimated from the seconds of
sealed cells and the steps of running ones.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from sweepstack.billing.cost import meter
from sweepstack.billing.gpu_hours import HOUR, Rate, held, used_line
from sweepstack.billing.stray import Stray
from sweepstack.core.journal import CellProgress
from sweepstack.core.metrics import number_text
from sweepstack.core.records import JUDGED, SETTLED, Cell, ReceiptCell
from sweepstack.launch.entries import finished
from sweepstack.status.boxes import bills, box_view, things, unexplained_stop
from sweepstack.status.model import BoxView, CellView, GateView, SweepView
from sweepstack.status.money import budget_view, money_lines, projected, running_clocks, runways
from sweepstack.status.next_commands import following
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

__all__ = ["BoxView", "CellView", "GateView", "SweepView", "compose"]


def compose(snapshot: Snapshot) -> SweepView:
    """Names every cell, box, gate and cost, and the command to type next."""
    timing = Timing(snapshot)
    known = {cell.name for cell in snapshot.roster}
    verdicts = {cell.name: cell for cell in snapshot.receipt.cells} if snapshot.receipt else {}
    cells = tuple(cell_view(snapshot, timing, cell, verdicts.get(cell.name)) for cell in snapshot.roster) + tuple(
        dropped_view(snapshot, name, reason) for name, reason in sorted(snapshot.dropped.items()) if name not in known
    )
    gates = tuple(
        GateView(
            box_snapshot.box.name,
            "cleared" if box_snapshot.verdict.allowed else "locked",
            box_snapshot.verdict.receipt,
            () if box_snapshot.verdict.allowed else tuple(box_snapshot.verdict.reasons),
            box_snapshot.verdict.way,
            vars(box_snapshot.verdict.unclaimed),
            box_snapshot.approvals,
        )
        for box_snapshot in snapshot.box_snapshots
    )
    unknown = (*snapshot.orphans, *claims(snapshot))
    eta = timing.eta()
    costs = projected(snapshot, meter(things(snapshot), snapshot.now), eta)
    budget = budget_view(snapshot, costs, eta)
    clocks = tuple(running_clocks(snapshot, cells))
    lasts = tuple(runways(snapshot, eta))
    boxes = tuple(box_view(box_snapshot, snapshot.now, snapshot.spent) for box_snapshot in snapshot.box_snapshots)
    view = SweepView(
        stack=snapshot.state.stack,
        cells=cells,
        boxes=boxes,
        gates=gates,
        meter=costs,
        eta_seconds=eta,
        unknown=unknown,
        notes=(*snapshot.notes, *notes_of(snapshot)),
        next=(),
        bills=bills(snapshot),
        never_up=snapshot.never_up,
        receipt=snapshot.receipt_digest,
        evidence=snapshot.evidence,
        median_seconds=timing.median,
        budget=budget,
        clocks=clocks,
        runways=lasts,
        alarms=(
            *(alarm for one in lasts if (alarm := one.alarm(snapshot.state.stack))),
            *(one.words(snapshot.state.stack) for one in snapshot.billing_unheld if one.over),
        ),
        money_lines=(
            *money_lines(snapshot, costs, budget, lasts),
            *(one.words(snapshot.state.stack) for one in snapshot.billing_unheld if not one.over),
            *cluster_use_lines(snapshot, timing.median),
            *(f"clock  box {one.box}: {one.text()}" for one in clocks),
            *(f"bucket box {box.name}: {box.bucket.words()}" for box in boxes if box.bucket and box.bucket.cells),
        ),
        left=snapshot.left,
    )
    return SweepView(**vars(view) | {"next": tuple(following(snapshot, view))})


def cell_view(snapshot: Snapshot, timing: Timing, cell: Cell, verdict: ReceiptCell | None) -> CellView:
    """A cell of the roster. `verdict`: what the latest receipt says of it."""
    holder = snapshot.holder_of(cell.name)
    progress = holder.progress(cell.name) if holder else None
    if progress is not None and progress.state == "dropped" and cell.name not in snapshot.dropped:
        progress = None  # given to another box, not dropped by a person: this journal says no more of it
    state, note = _state(snapshot, cell, verdict, holder, progress)
    attempts = progress.attempts if progress else 0
    box = holder.box.name if holder else None
    if verdict is not None and (state == "verified" or holder is None):
        attempts, box = attempts or verdict.attempt or 0, verdict.box or box
    known: dict[str, Any] = {"note": note}
    if holder is not None and state not in ("pending", "lost"):
        known = _measured(cell, state, attempts, note, timing, holder)
    if state != "verified" and _has_earlier(snapshot, cell, verdict):
        aside = verdict is None or verdict.aside is not None  # the attempt that stands there is a later one
        which = "an earlier attempt" if verdict is None or aside else f"attempt {verdict.attempt}"
        word = f"the verified copy of {which} stays its result"
        known |= {"earlier": True, "note": "; ".join(filter(None, (known["note"], word)))}
    return CellView(cell.name, state, attempts, box, cell.config_digest, **known)


def _has_earlier(snapshot: Snapshot, cell: Cell, verdict: ReceiptCell | None) -> bool:
    """Whether a copy of this cell that was found good is here as it was then, if only put aside."""
    if verdict is None or verdict.result is None or verdict.config_digest != cell.config_digest:
        return False
    return verdict.aside is not None or cell.name not in snapshot.broken or cell.name in snapshot.aside


def dropped_view(snapshot: Snapshot, name: str, reason: str) -> CellView:
    """A cell that a person took out: it stays listed. What the check says of it counts, as in a refusal: until its box,
    or the launch record, has the drop, the cell may still run, and keeps its box."""
    keeping = (
        (box_snapshot, line)
        for box_snapshot in snapshot.box_snapshots
        for line in box_snapshot.verdict.unsettled
        if line.name == name
    )
    kept = next(keeping, None)
    holder = kept[0] if kept else snapshot.holder_of(name)
    progress = holder.progress(name) if holder else None
    attempts = progress.attempts if progress else 0
    digest = progress.config_digest if progress else None
    box = holder.box.name if holder else None
    word = "pruned" if name in snapshot.pruned else "dropped"
    if kept is None or kept[0].lost:
        if name in snapshot.pruned:
            return CellView(name, "pruned", attempts, box, digest, note=reason)
        return CellView(name, "waived", attempts, box, digest, note=f"dropped: {reason}")
    line = kept[1]
    running = f"{word}, not stopped yet" if line.state == "running" else f"{word}, and its box has not taken that yet"
    note = "; ".join(filter(None, (f"{running}: {reason}", line.reason)))
    return CellView(name, line.state, attempts, box, digest, note=note)


def _measured(cell: Cell, state: str, attempts: int, note: str, timing: Timing, holder: BoxSnapshot) -> dict[str, Any]:
    """Step, loss, time, and what the patrol and the curve say of it: the further fields of its view."""
    name, point, running = cell.name, holder.points.get(cell.name), state == "running"
    doing = holder.patrol.running.get(name) if holder.patrol and running else None
    if doing is not None and doing.attempt not in (0, attempts):
        doing = None
    x, total = (point.x, timing.total(cell, holder)) if point else (None, None)
    if x is None or (total is not None and total < x):
        total = None
    quick = "" if running else timing.quick(holder, name)
    resumed = holder.times.resumed.get(name)
    notes = [
        f"{doing.verdict.upper() if doing.verdict == 'hung' else doing.verdict}: {doing.why or 'no output'}"
        if doing and doing.verdict in ("hung", "slow")
        else "",
        f"NaN since step {point.nan_since}" if point and point.nan_since else "",
        quick,
        note,
        f"resumed from step {resumed}" if resumed else "",
    ]
    return {
        "step": (point.step + (f"/{number_text(total)}" if total is not None else "")) if point else "",
        "loss": point.loss if point else "",
        "note": "; ".join(text for text in notes if text),
        "x": x,
        "total": total,
        "y": point.y if point and point.y is not None and math.isfinite(point.y) else None,
        "elapsed_seconds": timing.elapsed(holder, name) if running else holder.times.took.get(name),
        "eta_seconds": timing.left(holder, name) if running and holder.seen.runner_alive else None,
        "verdict": doing.verdict if doing else "",
        "suspect": bool(quick),
        "resumed_from": resumed,
    }


def _state(
    snapshot: Snapshot,
    cell: Cell,
    verdict: ReceiptCell | None,
    holder: BoxSnapshot | None,
    progress: CellProgress | None,
) -> tuple[str, str]:
    """The cell's state and a note. Files first, then the journal, then plans."""
    # While a later run has no copy, the receipt speaks of that run, and of an earlier one's copy.
    known = None if verdict is None or verdict.earlier else verdict.manifest
    same = verdict is not None and (progress is None or progress.manifest == known)
    if verdict is not None and same and verdict.config_digest == cell.config_digest:
        if cell.name in snapshot.broken:
            return "damaged", f"the verified copy changed: {snapshot.broken[cell.name]}"
        if verdict.state not in SETTLED and cell.name in snapshot.waived:
            return "waived", "; ".join((snapshot.waived[cell.name], verdict.state, *verdict.reasons))
        if verdict.state in JUDGED:
            return verdict.state, "; ".join(verdict.reasons)
    if holder is None and cell.name in snapshot.elsewhere:
        return (
            "pending",
            f"box {snapshot.elsewhere[cell.name]} has it, and is not in the state: how far it is, is not known",
        )
    if holder is None:
        return _without_box(cell, verdict)
    stale = "as of the last copy of the journal" if holder.copied else ""
    if progress is None or progress.state == "pending":
        if holder.lost and holder.launch and cell.name in holder.launch.cells:
            return "lost", "its box is gone; `pulumi up` runs it again"
        if holder.journal is None and holder.launch is not None:
            return "pending", "whether it started is not known: the journal can't be read"
        if holder.seen.stopped:
            return "pending", f"waits with box {holder.box.name}, which is stopped"
        held = (
            f"waits: {holder.journal.hold[0]} left the wrong files"
            if holder.journal and cell.name in holder.held
            else ""
        )
        source = holder.unsourced.get(cell.name)
        later = f"begins once {source} is verified" if source else ""
        note = "; ".join(filter(None, (stale, held, later, _to_move(snapshot, cell.name, holder))))
        return ("blocked_disk", _too_little(holder.blocked)) if holder.blocked else ("pending", note)
    if progress.state == "sealed":
        if verdict is not None and verdict.manifest == progress.manifest and verdict.state == "missing":
            return "missing", "; ".join(verdict.reasons)
        if holder.lost and cell.name not in snapshot.saved:
            return "lost", "sealed on its box, which is gone, and never pulled; `pulumi up` runs it again"
        return "sealed", "not verified yet"
    if progress.state == "dropped":
        return "waived", f"dropped: {progress.reason or ''}".rstrip(": ")
    if progress.state == "failed" and holder.retry_at_hand(cell.name) > progress.retry:
        return "pending", f"to run again, as was asked for; it failed: {progress.reason or ''}".rstrip(": ")
    if progress.state == "failed":
        return "failed", (progress.reason or "") + ("" if progress.final else "; it will be tried again")
    if holder.lost:
        return "lost", "its box is gone; `pulumi up` runs it again"
    if holder.seen.stopped:
        return "pending", f"started, and waits with box {holder.box.name}, which is stopped"
    return _started(snapshot, holder, progress.worker, stale)


def _started(snapshot: Snapshot, holder: BoxSnapshot, worker: str, stale: str) -> tuple[str, str]:
    """Of a cell that its journal has as started, on a box that is not known to stand still."""
    if holder.seen.runner_alive is False:
        lost = _worker_is_not_there(holder, worker)
        note = f"{lost}; `pulumi up` resumes it once its end is proved" if lost.startswith("whether ") else ""
        return "failed", note or "its runner is not alive; `pulumi up` resumes it"
    if holder.seen.runner_alive is None:
        return "running", stale or "whether its runner is alive is not known"
    if lost := _worker_is_not_there(holder, worker):
        return "running", lost
    return "running", f"heartbeat {ago(holder.heartbeat, holder.there(snapshot.now))}" if holder.heartbeat else ""


def _worker_is_not_there(holder: BoxSnapshot, worker: str) -> str:
    """What is known against the worker that has a cell, of several on its box, whose heartbeat is that of any of them;
    "" where nothing is. The cell counts as running until the journal has the worker's end, and another takes it."""
    known = holder.journal.workers.get(worker) if holder.journal else None
    if known is not None and known.ended:
        return f"its worker {worker} has ended: another one takes it next"
    job, _, tries = worker.rpartition(".")
    if not job or (not holder.seen.workers and holder.seen.runner_alive is not False):
        return ""
    task = next((one for one in holder.seen.workers if one.get("name") == job), None)
    if task is None:
        return f"whether its worker {worker} runs is not known: the scheduler lists it no more"
    if "exit" in task or str(task.get("try", tries)) != tries:  # of a task that ended alone its exit is told
        return f"its worker {worker} has ended ({task['state']}): another one takes it once that is proved"
    return str(task.get("words") or "")  # a node that it has lost


def _without_box(cell: Cell, verdict: ReceiptCell | None) -> tuple[str, str]:
    """A cell that no box of the state has: what the last receipt said of it, whose boxes are gone by now."""
    if verdict is None or verdict.config_digest != cell.config_digest:
        return "pending", "no box has it yet"
    if verdict.state == "failed":
        return "failed", "; ".join(verdict.reasons)
    if verdict.state in ("missing", "running", "lost", "sealed"):
        return "lost", "its box is gone; `pulumi up` runs it again"
    return "pending", "no box has it yet"


def _to_move(snapshot: Snapshot, cell: str, holder: BoxSnapshot) -> str:
    """Where a cell waits that was given this box and is to go to another one, which has not taken it."""
    given = holder.launch is not None and cell in holder.launch.cells
    meant = snapshot.meant_for(cell)
    if not given or meant in ("", holder.box.name):
        return ""
    return f"waits in the queue of {holder.box.name} until {meant}, which is to have it, takes it over"


def _too_little(blocked: Mapping[str, Any]) -> str:
    why = blocked.get("why")
    if why in ("read-only", "quota"):
        return f"{blocked.get('path')} " + ("is mounted read-only" if why == "read-only" else "is over its quota")
    what = "inodes" if why == "inodes" else "disk"
    free, needed = (_amount(blocked.get(key), what) for key in ("free", "needed"))
    return f"{what}: {free} free, {needed} needed to start a cell"


def _amount(value: Any, what: str) -> str:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "?"
    return f"{value:,.0f}" if what == "inodes" else f"{value / 1e9:.1f} GB"


def ago(moment: datetime, now: datetime) -> str:
    """`12 s ago`, `3 min ago`."""
    seconds = max((now - moment).total_seconds(), 0)
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def cluster_use_lines(snapshot: Snapshot, median: float | None) -> Iterator[str]:
    """One line for each rate that the stack config names. `median`: seconds that a cell takes, None unknown."""
    boxes: dict[Rate, list[tuple[BoxSnapshot, int]]] = {}
    for box_snapshot in snapshot.box_snapshots:
        scheduler = box_snapshot.queue.job.scheduler if box_snapshot.queue is not None else None
        if scheduler is None or not scheduler.gpus:
            continue
        rate = Rate(scheduler.price_per_gpu_hour, scheduler.gpu_hours)
        if rate != Rate():
            boxes.setdefault(rate, []).append((box_snapshot, scheduler.gpus * (scheduler.nodes or 1)))
    for rate, found in boxes.items():
        used = sum(_held(snapshot, one, gpus) for one, gpus in found)
        left = [_left(one, gpus, median) for one, gpus in found]
        projected = None if None in left else used + sum(hours for hours in left if hours is not None)
        yield used_line(rate, used, projected)


def _held(snapshot: Snapshot, box_snapshot: BoxSnapshot, gpus: int) -> float:
    if box_snapshot.journal is None:
        return 0.0
    at_work = box_snapshot.reachable and box_snapshot.seen.runner_alive is not False
    return held(box_snapshot.journal, gpus, box_snapshot.there(snapshot.now) if at_work else None)


def _left(box_snapshot: BoxSnapshot, gpus: int, median: float | None) -> float | None:
    """GPU-hours until its last cell is through; None where nothing was measured."""
    queue = box_snapshot.queue
    assert queue is not None
    names = [name for name in queue.names if not finished(box_snapshot.progress(name), 0)]
    if not names:
        return 0.0
    return None if median is None else len(names) * median / HOUR * gpus / max(queue.job.slots, 1)


MOST_NAMED = 5
"""Cells that one note names."""


def claims(snapshot: Snapshot) -> list[Stray]:
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
                Stray(
                    kind="claim",
                    name=box_snapshot.box.name,
                    native_id=box_snapshot.box.native_id,
                    platform=box_snapshot.box.adapter,
                    tag=box_snapshot.box.tag,
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


SUSPECT_FROM = 3
"""Sealed cells of a box that make a median worth comparing with."""
TOTAL_NAMES = ("{x}s", "max_{x}s", "max_{x}", "num_{x}s", "n_{x}s", "total_{x}s")
"""Parameters that say how far x goes: `steps`, `max_steps`, … where the metrics' x is `step`."""


class Timing:
    """What was measured in one snapshot. Computed once, asked for every cell."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ends = self._last_x()

    @cached_property
    def median(self) -> float | None:
        """Seconds that a cell takes: by the sealed ones, else as running ones project it; None: nothing to go by."""
        measured = [
            seconds for box_snapshot in self._snapshot.box_snapshots for seconds in box_snapshot.times.took.values()
        ]
        if measured:
            return statistics.median(measured)
        projected = [
            elapsed + left
            for box_snapshot in self._snapshot.box_snapshots
            for name in box_snapshot.running
            if (left := self._by_steps(box_snapshot, name)) is not None
            and (elapsed := self.elapsed(box_snapshot, name)) is not None
        ]
        return statistics.median(projected) if projected else None

    def elapsed(self, box_snapshot: BoxSnapshot, name: str) -> float | None:
        """Seconds since a cell's running attempt began."""
        progress = box_snapshot.progress(name)
        if progress is None or progress.state != "running" or progress.started_at is None:
            return None
        return max((box_snapshot.there(self._snapshot.now) - progress.started_at).total_seconds(), 0.0)

    def left(self, box_snapshot: BoxSnapshot, name: str) -> float | None:
        """Seconds until a running cell is through: by its own pace where step and total are known, else by the median.

        None where neither is known, where it takes longer than the median already or went further than the cells that
        were measured, and where it hangs.
        """
        if self._hangs(box_snapshot, name):
            return None
        by_steps = self._by_steps(box_snapshot, name)
        if by_steps is not None:
            return by_steps
        elapsed = self.elapsed(box_snapshot, name)
        if elapsed is None or self.median is None or elapsed > self.median or self._beyond(box_snapshot, name):
            return None
        return self.median - elapsed

    def total(self, cell: Cell, box_snapshot: BoxSnapshot) -> float | None:
        """The last x that a cell will reach: as its parameters name it, else as all sealed cells had it."""
        metrics = box_snapshot.queue.metrics if box_snapshot.queue else None
        if metrics is None:
            return None
        for pattern in TOTAL_NAMES:
            value = cell.params.get(pattern.format(x=metrics.x))
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return float(value)
        return self._ends

    def quick(self, box_snapshot: BoxSnapshot, name: str) -> str:
        """Why a sealed cell finished too fast to be believed, or nothing. What went on from a checkpoint never is."""
        state = box_snapshot.times
        seconds = state.took.get(name)
        if seconds is None or name in state.resumed or state.attempts_sealed.get(name) != 1:
            return ""
        usual = self._medians.get(box_snapshot.box.native_id)
        if usual is None or seconds >= usual / 2:
            return ""
        return f"quick: sealed after {seconds:.3g} s, the others took {usual:.3g} s"

    @cached_property
    def _medians(self) -> dict[str, float]:
        return {
            box_snapshot.box.native_id: statistics.median(box_snapshot.times.took.values())
            for box_snapshot in self._snapshot.box_snapshots
            if len(box_snapshot.times.took) >= SUSPECT_FROM
        }

    @cached_property
    def _cells(self) -> dict[str, Cell]:
        return {cell.name: cell for cell in self._snapshot.roster}

    def _hangs(self, box_snapshot: BoxSnapshot, name: str) -> bool:
        doing = box_snapshot.patrol.running.get(name) if box_snapshot.patrol else None
        return doing is not None and doing.verdict == "hung"

    def _by_steps(self, box_snapshot: BoxSnapshot, name: str) -> float | None:
        point, elapsed, cell = box_snapshot.points.get(name), self.elapsed(box_snapshot, name), self._cells.get(name)
        if point is None or point.x is None or elapsed is None or cell is None:
            return None
        total = self.total(cell, box_snapshot)
        if total is None or total < point.x:
            return None
        begun = box_snapshot.times.resumed.get(name)
        done = point.x - (begun if begun is not None else 0.0)
        return elapsed / done * (total - point.x) if done > 0 else None

    def _beyond(self, box_snapshot: BoxSnapshot, name: str) -> bool:
        """Whether a running cell went past the x at which the sealed ones ended: their times say nothing of it."""
        point = box_snapshot.points.get(name)
        return point is not None and point.x is not None and self._ends is not None and point.x > self._ends

    def _last_x(self) -> float | None:
        """The x at which sealed cells ended, where all that were looked at agree; what ended too fast has no say."""
        ends = {
            point.x
            for box_snapshot in self._snapshot.box_snapshots
            for name, point in box_snapshot.points.items()
            if point.x is not None and name in box_snapshot.times.took and not self.quick(box_snapshot, name)
        }
        return ends.pop() if len(ends) == 1 else None

    def eta(self) -> float | None:
        """Seconds until the last queue is through, those whose runner has died counted as if it went on now; None where
        that is not known."""
        ends = []
        for box_snapshot in self._snapshot.box_snapshots:
            if (
                box_snapshot.journal is None
                or box_snapshot.launch is None
                or not (box_snapshot.seen.runner_alive or box_snapshot.stranded)
            ):
                continue
            end = self._through(box_snapshot)
            if end is None:
                return None
            ends.append(end)
        return max(ends, default=None)

    def _through(self, box_snapshot: BoxSnapshot) -> float | None:
        """Seconds until one queue is through: running cells end, the waiting ones take the slots as they come free."""
        assert box_snapshot.launch is not None
        waiting, busy = 0, []
        for name in box_snapshot.launch.cells:
            progress = box_snapshot.progress(name)
            again = progress is not None and progress.state == "failed" and not progress.final
            if progress is None or progress.state == "pending" or again or name in box_snapshot.stranded:
                waiting += 1
            elif progress.state == "running":
                # Nothing to go by, though others were measured: it takes longer than they did, and may end any moment.
                left = self.left(box_snapshot, name)
                if left is None and (self.median is None or self._hangs(box_snapshot, name)):
                    return None
                busy.append(left or 0.0)
        if not waiting:
            return max(busy, default=0.0)
        if self.median is None or box_snapshot.blocked is not None:
            return None
        slots = box_snapshot.slots
        if not slots and not box_snapshot.stranded:
            return None  # its workers wait, and when they begin is the scheduler's to say
        slots = max(slots, 1)
        free = sorted(busy + [0.0] * max(slots - len(busy), 0))
        if waiting > 100 * slots:  # far from the end, who takes which slot makes no difference
            return sum(free) / len(free) + self.median * math.ceil(waiting / slots)
        for _ in range(waiting):
            heapq.heapreplace(free, free[0] + self.median)
        return max(free)
