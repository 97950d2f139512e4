"""A queue on a box that rests: it stays as it is while it is wanted stopped, and is woken when it has cells to run."""

from __future__ import annotations

from provider.models import QueueState
from provider.platforms.base import Wait
from provider.platforms.observe import observe
from provider.platforms.power import start_box
from provider.resources import ending
from provider.resources.pausing import AT_REST
from provider.session import Operation
from sweep.evidence.store import EvidenceStore
from sweep.journal import CellProgress

START_SECONDS = 900.0


def awake(op: Operation, state: QueueState, store: EvidenceStore) -> bool:
    """Whether something may be started on the box now.

    A box at rest that is wanted running has stopped since its queue was drained (`when_done: stop`): it is started
    again, which costs money, when one of these cells is not through. Raises StillCreating when that takes too long.
    """
    seen, record = observe(state.adapter, state.box, state.account)
    if record is None or record.phase not in AT_REST:
        return True
    if state.want == "stopped":
        op.info(f"queue of {state.box_name}: its box is stopped; what is new here waits until it is wanted running")
        return False
    journal = seen.journal.cells if seen.journal else {}
    if seen.journal is not None and all(_through(journal.get(cell.name)) for cell in state.cells):
        return False
    op.progress(f"starting {state.box} again: it has cells to run")
    wait = Wait(deadline=op.seconds(START_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    start_box(store, state.adapter, ending.facts_of(state), wait=wait)
    op.info(f"box {state.box_name} rested with its queue drained; it has cells again, and is started")
    return True


def _through(progress: CellProgress | None) -> bool:
    return progress is not None and (progress.state in ("sealed", "dropped") or progress.final)
