"""Starts a stopped box again if its queue has cells to run."""

from __future__ import annotations

from functools import partial

from sweepstack.core.journal import Journal
from sweepstack.core.resources import QueueState
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, StillCreating, SweepstackError
from sweepstack.onbox.common.files_hold import FILES
from sweepstack.onbox.common.next_version import takes_new
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.operations.cell_moves import find, unplaced
from sweepstack.operations.observe import observe
from sweepstack.provider.resources import wait_running
from sweepstack.provider.resources.wait_running import until_running
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext


def start_again(op: Operation, box: BoxContext, state: QueueState) -> bool:
    """Whether cells may be started on the box now.

    A stopped box that is wanted running was stopped when its queue was drained (`when_done: stop`). If there is a cell
    for it to run, it is started again: that costs money, and blocks until the box runs. A box that is coming up is
    waited for. Raises StillCreating if that takes too long.
    """
    seen, record = observe(box, files=False)
    if record is not None and record.phase in (Phase.CREATING, Phase.UNKNOWN) and state.want == "running":
        record = _up(op, box, state)
    if record is not None and record.phase is Phase.RUNNING and seen.journal is None:
        wait_running.let_user_in(op, box)
    if record is None or not record.phase.at_rest:
        refuse_without_gpus(op, state, record)
        return True
    if state.want == "stopped":
        op.info(f"queue of {state.box_name}: its box is stopped; what is new here waits until it is wanted running")
        return False
    journal = seen.journal if seen.journal is not None else _whole_copy(box, state)
    if journal is not None and not _work(box, state, journal):
        return False
    op.progress(f"starting {state.box} again: it has cells to run")
    refuse_without_gpus(op, state, _up(op, box, state))
    op.info(f"box {state.box_name} rested with its queue drained; it has cells again, and is started")
    return True


def rests_for_good(box: BoxContext, state: QueueState) -> bool:
    """Whether our own stop made the box stand still, and it has nothing to run: no `up` starts it then."""
    try:
        journal = _whole_copy(box, state)
        return journal is not None and not _work(box, state, journal)
    except EvidenceError:
        return False


def _whole_copy(box: BoxContext, state: QueueState) -> Journal | None:
    """The copy of the journal, if nothing can have been added to it since; else the box is started to be read."""
    try:
        return box.store.journal_at_rest(state.box_name, state.generation, state.box)
    except (EvidenceError, JournalDamaged):
        return None


def _up(op: Operation, box: BoxContext, state: QueueState) -> BoxRecord:
    """Waits until the box runs, and returns it. Its StillCreating carries the state of the queue: that is what the
    engine must remember."""
    try:
        return until_running(op, box, state)
    except StillCreating as error:
        raise StillCreating(f"{state.box}/queue", state.model_dump(mode="json"), error.reasons) from error


def refuse_without_gpus(op: Operation, state: QueueState, record: BoxRecord | None) -> None:
    """Raises SweepstackError if the box has fewer GPUs than its cells were promised: some platforms start a box again
    after they have given its GPUs to another customer. Nothing is run and nothing is ended: a person decides."""
    asked = state.job.gpus or 0
    if record is None or record.gpu_count is None or record.gpu_count >= asked:
        return
    price = "" if record.price_per_hour is None else f" It bills ${spell_rate(record.price_per_hour)}/h."
    box = state.box_name
    raise SweepstackError(
        f"queue of {box}: {state.box} came up with {record.gpu_count} of {asked} GPUs; nothing runs.{price}\n"
        f"  try again    boxes.{box}.want: stopped, pulumi up, and then running again\n"
        f"  another box  a further name below boxes: cells that did not start move there\n"
        f"  next         sweepctl status --stack {op.stack}"
    )


def _work(box: BoxContext, state: QueueState, journal: Journal) -> list[str]:
    """Cells that this box would run: of its own queue, or in no queue yet. Cells that other boxes have, or that are
    verified, are left out.

    A cell that failed for good counts again if the code has changed since, or if its files alone failed it: other
    artifacts are tried on them.
    """
    launch = box.store.launch(state.box_name, state.generation)
    retries = state.retries or {}
    own = []
    for name in launch.cells if launch else ():
        progress = journal.cells.get(name)
        goes_on = state.job.goes_across_code and progress is not None and bool(progress.work)
        mended = (
            progress is not None
            and progress.state == "failed"
            and (
                (progress.code != state.job.code and takes_new(progress.final, progress.saved, goes_on))
                or progress.failure_class == FILES
            )
        )
        if mended or not finished(progress, retries[name].retry if name in retries else 0):
            own.append(name)
    return own or waiting_for(box, state)


def waiting_for(box: BoxContext, state: QueueState) -> list[str]:
    """Cells that are to run here and that no queue has: the next `pulumi up` brings them in. Empty if the evidence
    can't be read."""
    try:
        store = box.store
    except SweepstackError:
        return []
    wanted = {cell.name for cell in state.cells} - set(state.dropped)
    again = {name: retry.manifest for name, retry in (state.retries or {}).items()}
    return unplaced(store, state.box_name, state.generation, wanted, partial(find, evidence=box.evidence), again)
