"""Waits until a rented box runs: while it boots, after a start, after a raised bid.

A platform needs some looks until it shows what it was told, and for a while it shows a box that was just started as
ended. So no single look decides that a box does not come back: only a state that lasts, or the platform's own refusal
to start it.

Lets the user's key into a box that an earlier, interrupted command has made.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from sweepstack.core.resources import BoxState, QueueState
from sweepstack.onbox.common.errors import PlatformError, StillCreating, SweepstackError, Unreachable
from sweepstack.onbox.host.capabilities import LetsIn
from sweepstack.onbox.host.platform import PROGRESS_SECONDS, BoxRecord, Phase, Platform, Wait
from sweepstack.operations.host_shutdown import settled
from sweepstack.operations.observe import look_up
from sweepstack.operations.power import start_box
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.provider.resources import create, manual_end, teardown
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt, BoxContext, BoxFacts

RUN_SECONDS = 900.0
LAG_SECONDS = 60.0
"""For so long the platform may show a state that is older than our request, and leads nowhere."""
RETURN_SECONDS = 600.0
"""For so long a box that was told to run may be shown as ended."""
ANSWER_SECONDS = 60.0
POLL_SECONDS = 0.2


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
        record = self.seen
        outputs = {} if record is None else record.outputs()
        return StillCreating(self.facts.native_id, outputs, [f"box {self.facts.name} ({self.facts.native_id}) {words}"])

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
