"""One picture of a sweep, out of the state, the evidence, and what was seen of each box just now.

Pure: `cli.collect` gathers, this decides what to call things. Nothing is called gone that is not proved gone, and
nothing verified whose files are not there any more.
"""

from __future__ import annotations

from sweepstack.billing.cost import meter
from sweepstack.status.boxes import bills, box_view, things
from sweepstack.status.cells import cell_view, dropped_view
from sweepstack.status.eta import Timing
from sweepstack.status.model import BoxView, CellView, GateView, SweepView
from sweepstack.status.money import budget_view, money_lines, projected, running_clocks
from sweepstack.status.next_commands import following
from sweepstack.status.notes import claims, notes_of
from sweepstack.status.snapshot import Scene

__all__ = ["BoxView", "CellView", "GateView", "SweepView", "compose"]


def compose(scene: Scene) -> SweepView:
    """Names every cell, box, gate and cost, and the command to type next."""
    timing = Timing(scene)
    known = {cell.name for cell in scene.roster}
    verdicts = {cell.name: cell for cell in scene.receipt.cells} if scene.receipt else {}
    cells = tuple(cell_view(scene, timing, cell, verdicts.get(cell.name)) for cell in scene.roster) + tuple(
        dropped_view(scene, name, reason) for name, reason in sorted(scene.dropped.items()) if name not in known
    )
    gates = tuple(
        GateView(
            sight.box.name,
            "cleared" if sight.verdict.allowed else "locked",
            sight.verdict.receipt,
            () if sight.verdict.allowed else tuple(sight.verdict.reasons),
            sight.verdict.way,
            vars(sight.verdict.unclaimed),
        )
        for sight in scene.sights
    )
    unknown = (*scene.orphans, *claims(scene))
    eta = timing.eta()
    costs = projected(scene, meter(things(scene), scene.now), eta)
    budget = budget_view(scene, costs, eta)
    clocks = tuple(running_clocks(scene))
    view = SweepView(
        stack=scene.state.stack,
        cells=cells,
        boxes=tuple(box_view(sight, scene.now, scene.spent) for sight in scene.sights),
        gates=gates,
        meter=costs,
        eta_seconds=eta,
        unknown=unknown,
        notes=(*scene.notes, *notes_of(scene)),
        next=(),
        bills=bills(scene),
        receipt=scene.receipt_digest,
        evidence=scene.evidence,
        median_seconds=timing.median,
        budget=budget,
        clocks=clocks,
        money_lines=(*money_lines(scene, costs, budget), *(f"clock  box {one.box}: {one.text()}" for one in clocks)),
        left=scene.left,
    )
    return SweepView(**vars(view) | {"next": tuple(following(scene, view))})
