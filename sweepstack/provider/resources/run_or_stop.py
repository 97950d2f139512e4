"""Stops a box that is wanted stopped, and starts it again: for the Check, Read and Update of Box.

Starts a stopped box again, too, if its queue has cells to run, and waits until a rented box runs: while it boots, after
a start, after a raised bid. A platform needs some looks until it shows what it was told, and for a while it shows a box
that was just started as ended. So no single look decides that a box does not come back: only a state that lasts, or the
platform's own refusal to start it. The user's key is let into a box that an earlier, interrupted command has made.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from sweepstack.billing.deadlines import last_seen, running, starting
from sweepstack.billing.ledger import bill_of
from sweepstack.core.journal import Journal
from sweepstack.core.resources import BoxInputs, BoxState, QueueState
from sweepstack.evidence.location import require_marker
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    EvidenceError,
    JournalDamaged,
    PlatformError,
    StillCreating,
    SweepstackError,
    TeardownRefused,
    Unreachable,
)
from sweepstack.onbox.common.files_hold import FILES
from sweepstack.onbox.common.next_version import takes_new
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import BeginsWithQueue, LetsIn
from sweepstack.onbox.host.platform import PROGRESS_SECONDS, BoxRecord, Phase, Platform, Wait
from sweepstack.operations.cell_moves import find, unplaced
from sweepstack.operations.drift import rests_drained, stops_drained
from sweepstack.operations.host_shutdown import settled
from sweepstack.operations.observe import look_up, observe
from sweepstack.operations.power import STOP_SECONDS, Pause, judge_stop, start_box, stop_box
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.provider.resources import create, manual_end, teardown
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt, BoxContext, BoxFacts
from sweepstack.teardown.stop_check import stop_facts, stop_line, stop_refusal

RUN_SECONDS = 900.0
LAG_SECONDS = 60.0
"""For so long the platform may show a state that is older than our request, and leads nowhere."""
RETURN_SECONDS = 600.0
"""For so long a box that was told to run may be shown as ended."""
ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.2


def judge(box: BoxContext, state: BoxState, *, full: bool) -> Pause | None:
    """The answer of the stop check for this box, as `state` has it; None if the platform has no stop."""
    stop = state.teardown.stop
    if stop is None:
        return None
    facts = stop_facts(BoxFacts.of(state), stop.kills, stop.keeps)
    return judge_stop(box.about(facts), dict(state.teardown.paths), state.approval, full=full)


def check(
    op: Operation, box: BoxContext | None, rented: BoxState | None, old: BoxInputs | None, new: BoxInputs
) -> list[Failure]:
    """The failures that refuse a stop in the preview already. Says there what an allowed stop kills."""
    if new.want != "stopped":
        return []
    if rented is None or box is None:
        words = (
            f"box {new.name} does not exist, and a stop rents nothing. Next: boxes.{new.name}.want: running, "
            "or gone to leave it out"
        )
        return [Failure("want", words)]
    pause = judge(box, _with(rented, new), full=False)
    if pause is None:
        return [Failure("want", f"{new.adapter} can't stop a box. Next: boxes.{new.name}.want: running, or gone")]
    if pause.at_rest:
        return []
    if not pause.verdict.allowed:
        facts = teardown.with_costs(op, pause.box, rented, pause.seen)
        return [Failure("want", stop_refusal(facts, pause.verdict, pause.risk, stack=op.stack))]
    if old is not None and old.want != "stopped":
        op.info(f"box {new.name}: {declared(_with(rented, new), pause)}")
    return []


def declared(state: BoxState, pause: Pause) -> str:
    """What a stop does, in one line."""
    stop = state.teardown.stop
    assert stop is not None
    line = stop_line(pause.facts, stop.bills_after, stop.price_per_hour)
    clocks = starting(state.teardown.clocks, datetime.now(UTC))
    line += f"; {clocks}" if clocks else ""
    return line + (f"; lost: {pause.risk.words(pause.facts.kills)}" if not pause.risk.nothing else "")


def _with(rented: BoxState, new: BoxInputs) -> BoxState:
    known = rented.model_dump()
    return BoxState.model_validate(known | new.model_dump() | {"price_per_hour": rented.price_per_hour})


def warn_of_clocks(op: Operation, box: BoxContext, state: BoxState, *, answers: bool) -> None:
    """Warns of each danger clock (a deadline of the platform) that runs for a stopped box. Also of one that may run for
    a box that ends its own bill and does not answer. Never raises."""
    if not state.teardown.clocks:
        return
    now = datetime.now(UTC)
    try:
        store = box.store
        bill = bill_of(store, state.name, state.generation, state.native_id, now)
        journal = store.journal(state.name, state.generation)
    except (EvidenceError, JournalDamaged):
        return  # said elsewhere
    stop = state.teardown.stop.issue if state.teardown.stop is not None else None
    ends_itself = stops_drained(state) and stop is not None and stop.by == "ssh"
    seen = last_seen(journal, state.created_at)
    off = seen if ends_itself and not answers else None
    named = {"box": state.name, "native_id": state.native_id}
    for clock in running(state.teardown.clocks, bill, now, **named, off=off, seen=seen):
        op.warn(f"box {state.name}: CLOCK {clock.text()}. boxes.{state.name}.want: running ends it; so does a destroy")


def woken(old: BoxState, new: BoxInputs) -> bool:
    """Whether a person asks by this change that a stopped box runs, although it may have nothing to run: so its files
    can be read."""
    return new.want == "running" and (old.want == "stopped" or (old.when_done == "stop" and new.when_done == "keep"))


def converge(op: Operation, box: BoxContext, state: BoxState, *, told: bool = False, woken: bool = False) -> BoxRecord:
    """Stops the box, or starts it and waits until it runs, as it is wanted. A start costs money. Asks the full check
    before a stop.

    A box that is cleared to end, or that is stopped because its queue is drained, is left as it is (but see
    `woken`). `told`: as in `until_running`, whose errors it raises.
    """
    if state.want == "stopped":
        return _stop(op, box, state)
    if state.clearance.startswith("cleared"):  # nothing more runs on it, so nothing more is paid or waited for
        try:
            return box.platform.get(state.native_id, state.account)
        except Unreachable as error:  # it is cleared all the same, and its end may be all that is left to do
            known = (state.native_id, state.tag, state.account, Phase.UNKNOWN, state.price_per_hour, state.created_at)
            return BoxRecord(*known, location="", note=str(error))
    if not woken and stops_drained(state) and state.teardown.stop is not None:
        seen, record = observe(box, files=False)
        if record is not None and seen.stopped and rests_drained(box, state, seen):
            return record
    return until_running(op, box, state, told=told)


def _stop(op: Operation, box: BoxContext, state: BoxState) -> BoxRecord:
    manual_end.finish_silence(op, box, state)
    pause = judge(box, state, full=True)
    if pause is None:
        raise SweepstackError(f"{state.adapter} can't stop a box. Next: boxes.{state.name}.want: running, or gone")
    if pause.at_rest and pause.record is not None and pause.record.phase is Phase.STOPPED:
        return pause.record
    if not pause.at_rest and not pause.verdict.allowed:
        facts = teardown.with_costs(op, pause.box, state, pause.seen)
        raise TeardownRefused(stop_refusal(facts, pause.verdict, pause.risk, stack=op.stack))
    stop = state.teardown.stop
    assert stop is not None
    try:
        require_marker(box.store.objects)  # read anew: the check above can take minutes
    except EvidenceError as error:
        raise SweepstackError(f"box {state.name} is not stopped: its records can't be written ({error})") from error
    wait = Wait(deadline=op.seconds(STOP_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    paths = dict(state.teardown.paths)
    profile = stop.price_per_hour
    record = stop_box(pause, paths, price_after=profile, wait=wait, say=op.progress, issued=stop.issue)
    price = record.bills_at_rest(profile)
    after = "at a price that is not known" if price is None else f"${spell_rate(price)}/h"
    op.info(
        f"box {state.name} is stopped: {', '.join(stop.kills) or 'nothing'} wiped, {', '.join(stop.keeps)} kept; it "
        f"bills {after} until it is wanted running or gone"
    )
    return record


def until_running(op: Operation, box: BoxContext, state: BoxState | QueueState, *, told: bool = False) -> BoxRecord:
    """Blocks until the box runs and has its address, for the operation's timeout at most, and returns it. A stopped box
    is started, which costs money. If the platform has no stop, and so no start, the box is returned as it is.

    `told`: the platform was just given a reason to start it by itself (a raised bid), so it gets time for that.

    Raises StillCreating on deadline, on cancel, and for a box that does not come up (its outputs are the platform's:
    the caller completes them); NoCapacity if the platform has no room for it; SweepstackError if it is gone.
    """
    look = _Looking(op, box, state, told)
    off = settled(box)
    if off is not None and off[1] is not None:
        raise SweepstackError(
            f"box {look.facts.name} is off: {off[1].note}. No command here starts it: start it where it was rented, "
            f"then pulumi up --stack {op.stack}"
        )
    while True:
        record = look.once()
        if record.phase is Phase.RUNNING and (record.endpoint is not None or not look.over_ssh):
            if look.waited:
                let_user_in(op, box)
                _until_answers(op, box.platform, record)
            return record
        if record.phase is Phase.CREATING and isinstance(box.platform, BeginsWithQueue):
            return _started(op, look)
        if record.phase.at_rest and (not told or look.stood() >= paced(LAG_SECONDS)):
            if state.teardown.stop is None:
                return record
            look.waited, told = True, False
            record = _started(op, look)
            let_user_in(op, box)
            _until_answers(op, box.platform, record)
            return record
        look.go_on()


@dataclass
class _Looking:
    """Repeated looks at one box, with the time since its phase changed."""

    op: Operation
    box: BoxContext
    state: BoxState | QueueState
    told: bool
    seen: BoxRecord | None = None
    waited: bool = False
    problem: str = ""

    def __post_init__(self) -> None:
        self._begin = self._since = self._said = time.monotonic()
        self._deadline = self.op.seconds(RUN_SECONDS)

    @property
    def facts(self) -> BoxFacts:
        return self.box.facts

    @property
    def over_ssh(self) -> bool:
        return self.box.platform.over_ssh

    def once(self) -> BoxRecord:
        """The box now; or as it was last seen, if the platform does not answer for a moment."""
        facts = self.facts
        try:
            record = look_up(self.box.platform, facts.native_id, facts.account, rented=self.state.teardown.rented)
        except Unreachable as error:
            if self.seen is None:
                raise
            self.problem = f"; its platform does not answer now: {error}"
            return self.seen
        if record.emptied:
            raise SweepstackError(manual_end.out_of_the_bill(self.op, self.state.teardown, record, facts.name))
        if record.phase in (Phase.GONE, Phase.ENDING):
            how = "is gone, and nothing of it bills" if record.phase is Phase.GONE else "is being destroyed"
            raise SweepstackError(
                f"box {facts.name} ({facts.native_id}) {how}: a person or the platform ended it. "
                f"Next: pulumi up --stack {self.op.stack}"
            )
        if record.phase is Phase.FAILED:
            raise SweepstackError(
                f"box {facts.name} ({facts.native_id}) can't be started: {record.note}. Next: sweepctl give-up --stack "
                f'{self.op.stack} data/{facts.name} --reason "…", then pulumi up and pulumi destroy'
            )
        if self.seen is not None and record.phase is not self.seen.phase:
            self._since = time.monotonic()
        self.seen, self.problem = record, ""
        return record

    def stood(self) -> float:
        """Seconds since its phase changed."""
        return time.monotonic() - self._since

    def left(self) -> float:
        return max(0.0, self._begin + self._deadline - time.monotonic())

    def go_on(self) -> None:
        """Shows progress, and waits a little. Raises StillCreating when there is nothing more to wait for."""
        assert self.seen is not None
        phase, now = self.seen.phase, time.monotonic()
        if phase is Phase.UNKNOWN and self.stood() >= paced(RETURN_SECONDS if self.told else LAG_SECONDS):
            raise self.still(f"has been {self._words()} for {self.stood():.0f} s: it may bill")
        if not self.left():
            raise self.still(f"is not ready yet after {self._deadline:g} s: it is {self._words()}, and bills")
        if not self.waited or now - self._said >= PROGRESS_SECONDS:
            self._said = now
            spent = f"{now - self._begin:.0f} s of at most {self._deadline:g} s"
            self.op.progress(f"waiting for {self.facts.native_id} to run: it is {self._words()}, {spent}")
        self.waited = True
        if self.op.session.cancelled.wait(POLL_SECONDS):
            raise self.still(f"is not ready yet, and bills: the wait was cancelled while it was {self._words()}")

    def still(self, words: str) -> StillCreating:
        assert self.seen is not None
        reason = f"box {self.facts.name} ({self.facts.native_id}) {words}"
        return StillCreating(self.facts.native_id, self.seen.outputs(), [reason])

    def _words(self) -> str:
        assert self.seen is not None
        return f"{self.seen.phase}{f' ({self.seen.note})' if self.seen.note else ''}{self.problem}"


def _started(op: Operation, look: _Looking) -> BoxRecord:
    op.progress(f"starting {look.facts.native_id} again")
    wait = Wait(deadline=look.left(), progress=op.progress, cancelled=op.session.cancelled)
    return start_box(teardown.priced(look.box, look.state), wait=wait)


def _until_answers(op: Operation, platform: Platform, record: BoxRecord) -> None:
    """Gives a box that has just come up some time to answer. If it does not, its queue reports that."""
    end = time.monotonic() + paced(ANSWER_SECONDS)
    op.progress(f"{record.native_id} runs; waiting for it to answer")
    while time.monotonic() < end:
        try:
            platform.channel(record.native_id, record.account).size("data")
            return
        except (PlatformError, OSError):
            if op.session.cancelled.wait(POLL_SECONDS):
                return


def let_user_in(op: Operation, box: BoxAt) -> None:
    """Adds the key, if the platform can do that for a box that exists. Warns if that fails; never raises."""
    platform = box.platform
    if not isinstance(platform, LetsIn):
        return
    try:
        platform.let_in(box.native_id, box.account, create.public_key())
    except SweepstackError as error:
        op.warn(f"whether {box.native_id} lets this computer's key in is not known: {error}")


@contextlib.contextmanager
def first_worker(op: Operation, box: BoxContext, state: QueueState) -> Iterator[None]:
    """Runs around all that is done to a queue. Where its box begins with it (`BeginsWithQueue`), asks for a first
    worker and waits until the box can be used; not where a person may have let the box go, or in a teardown.

    Raises StillCreating with the state of the queue."""
    if state.want != "running" or state.approval is not None or not _begins(box):
        yield
        return
    assert isinstance(box.platform, BeginsWithQueue)
    asked = state.job.scheduler if {cell.name for cell in state.cells} - set(state.dropped) else None
    scheduler = asked.model_dump(mode="json", exclude_none=True) if asked else None
    wait = Wait(deadline=op.seconds(RUN_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    with contextlib.ExitStack() as around:
        try:
            around.enter_context(box.platform.begun(state.box, state.account, scheduler, wait=wait))
        except StillCreating as error:
            raise StillCreating(f"{state.box}/queue", state.model_dump(mode="json"), error.reasons) from error
        yield


def _begins(box: BoxContext) -> bool:
    try:
        return isinstance(box.platform, BeginsWithQueue) and box.store.teardown() is None
    except EvidenceError:
        return False


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
        let_user_in(op, box)
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
    ready = state.sources or {}
    wanted = {cell.name for cell in state.cells if not cell.source or cell.name in ready} - set(state.dropped)
    again = {name: retry.manifest for name, retry in (state.retries or {}).items()}
    return unplaced(store, state.box_name, state.generation, wanted, partial(find, evidence=box.evidence), again)
