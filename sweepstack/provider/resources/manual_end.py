"""Ends boxes that no API can end: a command on the host does it, or a person at a console.

sweepstack never does the person's step, and runs no command on a host that can't be undone.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.billing.deadlines import dated
from sweepstack.billing.ledger import FOUND_STOPPED, bill_of
from sweepstack.core.box_end import IssueFacts, TeardownFacts
from sweepstack.core.observation import Existence
from sweepstack.core.resources import BoxState
from sweepstack.evidence.location import require_marker
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, NotYetGone, PlatformError, SweepstackError, Unproved
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.operations.host_shutdown import Command, finish, issue
from sweepstack.operations.power import write_phase
from sweepstack.platforms.registry import has_address
from sweepstack.provider.resources import teardown
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.close_box import StillBilled
from sweepstack.teardown.handover_records import Handover, begun_before, keep_handover, kept_here, known_handover
from sweepstack.teardown.refusal import waiting_cost

GONE_SECONDS = 300.0
ENDED_SECONDS = 60.0


def emptied(op: Operation, box: BoxContext, state: BoxState) -> bool:
    """Whether a box that was handed to a person has ended since; if so, closes its records.

    False if nothing was handed over yet: then the check decides. Raises NotYetGone while it bills, or may: the check
    allowed its end, its host proved that nothing of it is left, and only the person's step is open.
    """
    finish_silence(op, box, state)
    known = known_handover(box)
    if known is None or known.verb != "destroy":
        return False
    judgement = teardown.judge_end(box, state, state.approval, full=False)
    if judgement.seen.existence is Existence.GONE:
        teardown.close(op, judgement)
        op.info(f"box {state.name} is gone: {judgement.seen.note}")
        return True
    if known.by != "person" or known.ended_at is None:
        return False
    facts = teardown.with_costs(op, judgement.box, state, judgement.seen)
    if judgement.record is not None and judgement.record.phase is not Phase.ENDING:
        return False  # it is there again: the check has to be asked anew
    raise NotYetGone(_open(op, facts, known, _why(state, known)))


def hand_over(op: Operation, state: BoxState, judgement: teardown.Judgement, how: IssueFacts) -> None:
    """Ends the box after the check has allowed it. Returns only when the end of the bill is proved; else raises
    NotYetGone, with the person's step, what waiting for it costs, and the next command."""
    box, way = judgement.box, judgement.verdict.way or ""
    store: EvidenceStore | None = None
    try:
        require_marker(box.store.objects)  # read anew: the check can take minutes
        store = box.store
    except EvidenceError as error:
        if way != "abandoned":  # one that was given up by name ends without evidence
            raise SweepstackError(f"box {state.name} is not ended: its records can't be written ({error})") from error
    if how.by == "ssh":
        _by_command(op, box, state, store, way, how)
        return
    known = Handover(
        box=state.name,
        native_id=state.native_id,
        verb="destroy",
        by="person",
        native=how.native,
        way=way,
        manual=how.manual or "",
        begun_at=datetime.now(UTC),
    )
    before = begun_before(store, state.native_id, way)
    if before is not None and before.verb == "destroy":  # a person's confirmation stays when the end is tried again
        known = known.model_copy(update={"begun_at": before.begun_at, "confirmed": before.confirmed})
    keep_handover(store, known)
    if kept_here(state.native_id) is not None:
        op.warn(f"box {state.name}: the evidence can't be written; only this computer has on record that its end began")
    problem = _empty_host(op, box, state)
    if not problem:
        known = keep_handover(store, known.model_copy(update={"ended_at": datetime.now(UTC)}))
    costs = teardown.with_costs(op, box, state, judgement.seen)
    raise NotYetGone(_open(op, costs, known, problem))


def ask_a_person(op: Operation, box: BoxContext, state: BoxState, way: str) -> str:
    """Records that the end of this box was allowed and asked for, which its platform does not prove: a person may
    confirm it. Returns how, for the end of a message; "" if it can't be recorded."""
    known = Handover(
        box=state.name,
        native_id=state.native_id,
        verb="destroy",
        by="person",
        native=state.teardown.verb,
        way=way,
        manual="see in its console that it is gone",
        begun_at=datetime.now(UTC),
    )
    try:
        keep_handover(box.evidence.usable, known)
    except EvidenceError as error:
        op.warn(f"box {state.name}: that its end was asked for can't be recorded: {error}")
        return ""
    return f"; or, once its console shows that it is gone: {confirm_command(op.stack, state.name)}"


def asked_for(box: BoxContext, state: BoxState) -> Handover | None:
    """The record of an end that was allowed and asked for (`ask_a_person`), as long as the platform shows the box
    nowhere and does not prove that; else None: then the check is asked."""
    known = known_handover(box)
    if state.teardown.issue is not None or known is None or known.verb != "destroy":
        return None
    try:
        box.platform.get(state.native_id, state.account)
    except Unproved:
        return known
    except PlatformError:
        return None
    return None


def _empty_host(op: Operation, box: BoxContext, state: BoxState) -> str:
    """Ends what is ours on the host. Blocks for a minute at most. Returns "" when the host proves that nothing of it is
    left, else the problem: a host that does not answer must be ended by the person all the same."""
    platform = box.platform
    op.progress(f"ending what is ours on {state.adapter}")
    wait = Wait(op.seconds(ENDED_SECONDS), cancelled=op.session.cancelled)
    problem = "the host still has it"

    def left() -> bool:
        nonlocal problem
        try:
            platform.destroy(state.native_id, state.account)
            # A box that was made while it cost nothing leaves no mark on its host.
            return platform.get(state.native_id, state.account).phase in (Phase.GONE, Phase.ENDING)
        except NotYetGone as error:
            problem = str(error)
            return False

    try:
        return "" if not wait.until(left, f"{state.native_id} to be ended on its host") else problem
    except PlatformError as error:
        return str(error)


def _by_command(
    op: Operation, box: BoxContext, state: BoxState, store: EvidenceStore | None, way: str, how: IssueFacts
) -> None:
    """Runs the command by which the host ends its bill and keeps its files. Blocks until the end is proved; else raises
    NotYetGone."""
    wait = Wait(op.seconds(GONE_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    asked = Command("destroy", how.native, how.command or "", way, _bills_after(state), state.teardown.release)
    try:
        known = issue(store, box.platform, box.facts, asked, wait=wait, say=op.progress)
    except PlatformError as error:
        cost = waiting_cost(box.facts)
        raise NotYetGone(
            f"box {state.name} ({state.native_id}): {error}. May still bill {cost}.\n"
            f"  next            pulumi destroy --stack {op.stack}    (asks it again, where it answers)\n"
            f"  at the console  see that it is off, then {confirm_command(op.stack, state.name)}"
        ) from error
    teardown.record_end(op, box, how.native, known.silent_at, known.bills_after)
    clocks = dated(state.teardown.clocks, known.silent_at or datetime.now(UTC))
    survives = ", ".join([*state.teardown.keeps, f"evidence at {state.evidence}"])
    op.info(f"box {state.name}: {how.native} is proved ({way}); outlives its release: {survives}")
    if clocks:
        op.warn(f"box {state.name} stands still, and sweepstack does not watch it any more: {clocks}")
    if known.bills_after != 0:
        whose = (state.name, state.native_id, state.adapter, state.generation)
        op.warn(StillBilled(*whose, how.native, known.bills_after, known.release).text(op.stack))


def _bills_after(state: BoxState) -> float | None:
    """USD per hour that a box bills after an end that only stops it; 0.0 for nothing, None if that is not known."""
    stop = state.teardown.stop
    if stop is None or (stop.price_per_hour is None and not stop.bills_after):
        return 0.0
    return stop.price_per_hour


def finish_silence(op: Operation, box: BoxContext, state: BoxState) -> None:
    """Waits for the proof of a command that the host accepted before the process that sent it was cut off."""
    known = known_handover(box) if has_address(state.adapter) else None
    if known is None or known.by != "ssh" or known.accepted_at is None or known.silent_at is not None:
        return
    wait = Wait(op.seconds(GONE_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    finish(box.evidence.usable, box.platform, state.native_id, wait=wait, say=op.progress)


def follow_phase(op: Operation, box: BoxContext, state: BoxState, record: BoxRecord) -> None:
    """Writes into the ledger a stop, or a start, that was made elsewhere (in a console, by the platform, by the box
    itself)."""
    again = state.phase == "stopped" and record.phase is Phase.RUNNING and has_address(state.adapter)
    if again:
        rate = spell_rate(state.price_per_hour or 0.0)
        op.warn(f"box {state.name} runs again, and bills ${rate}/h: its clock is taken back")
    try:
        store = box.store
        bill = bill_of(store, state.name, state.generation, state.native_id, datetime.now(UTC))
    except EvidenceError:
        return
    written = bill.open.phase if bill is not None and bill.open is not None else None
    if again or (record.phase is Phase.RUNNING and written == "stopped"):
        write_phase(store, state.adapter, box.facts, "running", state.price_per_hour)
    elif record.phase is Phase.STOPPED and written == "running":
        stop = state.teardown.stop
        price = record.bills_at_rest(stop.price_per_hour if stop is not None else None)
        write_phase(store, state.adapter, box.facts, "stopped", price, FOUND_STOPPED)


def _why(state: BoxState, known: Handover) -> str:
    return (
        "" if known.confirmed is None else f"{known.confirmed.by} confirmed its end, and {state.adapter} still answers"
    )


def _open(op: Operation, facts: BoxFacts, known: Handover, problem: str) -> str:
    """What is left for a person to do, with the commands."""
    here = (
        "nothing of the box is left on the host"
        if known.ended_at
        else "the host could not be asked, so it may still run"
    )
    lines = [
        f"box {facts.name} ({facts.native_id}): {here}; its bill goes on, and only a person can end it"
        + (f" ({problem})" if problem else ""),
        f"  do this        ({known.native}) {known.manual or 'end it where it was rented'}",
        f"  waiting costs  {waiting_cost(facts)}",
        f"  then           {confirm_command(op.stack, facts.name)}",
        f"  next           pulumi destroy --stack {op.stack}    (takes your confirmation while no host answers)",
    ]
    return "\n".join(lines)


def out_of_the_bill(op: Operation, facts: TeardownFacts, record: BoxRecord, box: str) -> str:
    """The text about an emptied box that is in the state: the person's step if there is one, and the commands."""
    up, issue = f"pulumi up --stack {op.stack}", facts.issue
    what, gone = f"box {box} ({record.native_id}): {record.note}.", f"Next: write boxes.{box}.want: gone, then {up}"
    if issue is None or issue.by != "person":
        return f"{what} {gone}, which says what ends the bill"
    step, confirm = f"({issue.native}): {issue.manual or 'end it'}", confirm_command(op.stack, box)
    return f"{what} A person has to do this {step}. {gone}; then {confirm}; then {up}"


def confirm_command(stack: str, box: str) -> str:
    """The command that a person types once the console shows that the box is gone."""
    return f'sweepctl confirm gone --stack {stack} {box} --saw "what the console shows"'
