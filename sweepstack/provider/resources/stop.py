"""Stops a box that is wanted stopped, and starts it again: for the Check, Read and Update of Box."""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.billing.deadlines import last_seen, running, starting
from sweepstack.billing.ledger import bill_of
from sweepstack.core.lease import NONE
from sweepstack.core.observation import Observation
from sweepstack.core.resources import BoxInputs, BoxState
from sweepstack.evidence.location import require_marker
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, SweepstackError, TeardownRefused, Unreachable
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.operations.observe import observe
from sweepstack.operations.power import STOP_SECONDS, Pause, drained, judge_stop, stop_box
from sweepstack.provider.resources import manual_end, teardown
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.wait_running import until_running
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.stop_check import stop_facts, stop_line, stop_refusal


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


def deviation(box: BoxContext, state: BoxState, record: BoxRecord, seen: Observation) -> str:
    """Why a box is not as it is wanted, a reason to ask for an update; "" if it is.

    A box that is stopped because its queue is drained is as it is wanted.
    """
    name, phase = state.name, record.phase
    if state.want == "stopped":
        if phase is Phase.STOPPED:
            return ""
        return f"box {name} is {phase.value} and wanted stopped: it bills as if it ran"
    if phase is Phase.RUNNING:
        return ""
    if phase.at_rest and rests_drained(box, state, seen):
        return ""
    why = f" ({record.note})" if record.note else ""
    if phase.at_rest and state.resources.get("spot"):
        why = why or " (outbid, or stopped by hand; a higher bid may bring it back)"
    if phase.at_rest:
        return f"box {name} is {phase.value} and wanted running{why}; `pulumi up` starts it"
    return f"box {name} is {phase.value}, not ready{why}"


def rests_drained(box: BoxContext, state: BoxState, seen: Observation) -> bool:
    """Whether the box is to stop once its queue is drained (`when_done: stop`, or a lease), and it is. The queue starts
    it again when it is given cells."""
    if not _stops_drained(state):
        return False
    try:
        return drained(box.store, state.name, state.generation, seen)
    except EvidenceError:
        return False


def _stops_drained(state: BoxState) -> bool:
    return state.when_done == "stop" or state.lease not in (None, NONE)


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
    ends_itself = _stops_drained(state) and stop is not None and stop.by == "ssh"
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
    if not woken and _stops_drained(state) and state.teardown.stop is not None:
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
