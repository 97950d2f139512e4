"""One picture of a sweep, out of the state, the evidence, and what was seen of each box just now.

Pure: `cli.collect` gathers, this decides what to call things. Nothing is called gone that is not proved gone, and
nothing verified whose files are not there any more.
"""

from __future__ import annotations

from sweepstack.billing.cost import meter
from sweepstack.status import cluster_use
from sweepstack.status.boxes import bills, box_view, things
from sweepstack.status.cells import cell_view, dropped_view
from sweepstack.status.eta import Timing
from sweepstack.status.model import BoxView, CellView, GateView, SweepView
from sweepstack.status.money import budget_view, money_lines, projected, running_clocks, runways
from sweepstack.status.next_commands import following
from sweepstack.status.notes import claims, notes_of
from sweepstack.status.snapshot import Snapshot

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
            *cluster_use.lines(snapshot, timing.median),
            *(f"clock  box {one.box}: {one.text()}" for one in clocks),
            *(f"bucket box {box.name}: {box.bucket.words()}" for box in boxes if box.bucket and box.bucket.cells),
        ),
        left=snapshot.left,
    )
    return SweepView(**vars(view) | {"next": tuple(following(snapshot, view))})
