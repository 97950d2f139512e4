"""A queue on a box that rests: it stays as it is while it is wanted stopped, and is woken when it has cells to run."""

from __future__ import annotations

from sweepstack.core.journal import Journal
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.errors import StillCreating, SweepstackError
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.operations.observe import observe
from sweepstack.provider.models import QueueState
from sweepstack.provider.resources import user_key
from sweepstack.provider.resources.cell_moves import waiting_for
from sweepstack.provider.resources.wait_running import until_running
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext


def awake(op: Operation, box: BoxContext, state: QueueState) -> bool:
    """Whether something may be started on the box now.

    A box at rest that is wanted running has stopped since its queue was drained (`when_done: stop`): it is started
    again, which costs money, when there is a cell for it to run. One that comes up is waited for. Raises StillCreating
    when that takes too long.
    """
    seen, record = observe(box, files=False)
    if record is not None and record.phase in (Phase.CREATING, Phase.UNKNOWN) and state.want == "running":
        record = _up(op, box, state)
    if record is not None and record.phase is Phase.RUNNING and seen.journal is None:
        user_key.let_in(op, box)
    if record is None or not record.phase.at_rest:
        refuse_without_gpus(op, state, record)
        return True
    if state.want == "stopped":
        op.info(f"queue of {state.box_name}: its box is stopped; what is new here waits until it is wanted running")
        return False
    if seen.journal is not None and not _work(box, state, seen.journal):
        return False
    op.progress(f"starting {state.box} again: it has cells to run")
    refuse_without_gpus(op, state, _up(op, box, state))
    op.info(f"box {state.box_name} rested with its queue drained; it has cells again, and is started")
    return True


def _up(op: Operation, box: BoxContext, state: QueueState) -> BoxRecord:
    """Its box, running. The engine must remember the queue as it was asked for, whatever is said of the box."""
    try:
        return until_running(op, box, state)
    except StillCreating as error:
        raise StillCreating(f"{state.box}/queue", state.model_dump(mode="json"), error.reasons) from error


def refuse_without_gpus(op: Operation, state: QueueState, record: BoxRecord | None) -> None:
    """Raises SweepstackError when the box has fewer cards than its cells were promised: some platforms start a box
    again although its cards went to somebody else. Nothing is run, and nothing is ended: that is a person's decision.
    """
    asked = state.job.gpus or 0
    if record is None or record.gpu_count is None or record.gpu_count >= asked:
        return
    price = "" if record.price_per_hour is None else f" It bills ${record.price_per_hour:.2f}/h."
    box = state.box_name
    raise SweepstackError(
        f"queue of {box}: {state.box} came up with {record.gpu_count} of {asked} GPUs; nothing runs.{price}\n"
        f"  try again    boxes.{box}.want: stopped, pulumi up, and then running again\n"
        f"  another box  a further name below boxes: cells that did not start move there\n"
        f"  next         sweepctl status --stack {op.stack}"
    )


def _work(box: BoxContext, state: QueueState, journal: Journal) -> list[str]:
    """Cells that this box would run: of its own queue, or in no queue yet. Not what others have, nor what is verified.

    One that failed for good is work again with other code than it failed with.
    """
    launch = box.store.launch(state.box_name, state.generation)
    retries = state.retries or {}
    own = []
    for name in launch.cells if launch else ():
        progress = journal.cells.get(name)
        mended = progress is not None and progress.state == "failed" and progress.code != state.job.code
        if mended or not finished(progress, retries[name].retry if name in retries else 0):
            own.append(name)
    return own or waiting_for(box, state)
