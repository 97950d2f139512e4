"""What Box, Queue and Gate share when a box is to end: its facts, the check, and the records."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

from sweepstack.billing.budget import BUDGET
from sweepstack.billing.cost import box_costs
from sweepstack.billing.deadlines import dated
from sweepstack.billing.forecast import sealed_bytes
from sweepstack.billing.ledger import Spent, spent
from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.budget import Budget
from sweepstack.core.observation import Observation
from sweepstack.core.records import Approval, Birth, Loss, Teardown
from sweepstack.core.resources import BoxInputs, BoxSeen, BoxState, GateState, QueueState
from sweepstack.evidence import box_logs
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError, TeardownRefused, Unreachable
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import BoxRecord
from sweepstack.operations.observe import observe
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.provider.session import Operation
from sweepstack.status.engine.state import may_hold, read_state
from sweepstack.teardown.abandonment import recorded_approvals
from sweepstack.teardown.box_check import BoxEnding, Verdict
from sweepstack.teardown.box_context import BoxContext, BoxFacts, in_entry
from sweepstack.teardown.check import may_end
from sweepstack.teardown.close_box import close_books, close_gone, lost_with, note_end
from sweepstack.teardown.handover_records import known_handover
from sweepstack.teardown.refusal import refusal_text, waiting_cost

COSTS_SECONDS = 10.0
"""The sum over a sweep that is said with each of its boxes may be this old."""
_records = threading.Lock()
"""Lock of the teardown record: the engine deletes boxes in parallel, and they share it."""


@dataclass(frozen=True)
class Judgement:
    """The check's answer about one box, and what it is based on."""

    box: BoxContext
    seen: Observation
    verdict: Verdict
    record: BoxRecord | None
    approval: Approval | None

    @property
    def facts(self) -> BoxFacts:
        """The facts of the box that the check used."""
        return self.box.facts


def context_of(state: BoxState | QueueState | GateState) -> BoxContext:
    """The box that any of its resources belongs to, with nothing opened yet. A handler makes it once for each
    request."""
    return BoxContext(BoxFacts.of(state), state.adapter)


def priced(box: BoxContext, state: BoxState | QueueState | GateState) -> BoxContext:
    """The same box with price and age from its birth record, if the state has neither and the record can be read."""
    birth = None if isinstance(state, BoxState) else birth_of(box)
    if birth is None:
        return box
    return box.about(replace(box.facts, price_per_hour=birth.price_per_hour, created_at=birth.created_at))


def birth_of(box: BoxContext) -> Birth | None:
    """The box's birth record, or None if it can't be read."""
    try:
        return box.store.birth(box.facts.name, box.facts.generation)
    except EvidenceError:
        return None


def judge_end(
    box: BoxContext,
    state: BoxState | QueueState | GateState,
    approval: Approval | None,
    *,
    full: bool,
    new: BoxInputs | None = None,
) -> Judgement:
    """Looks at the box and asks the check. `full`: every file of the receipt is read again. `new`: the inputs that the
    box is to have from now on; their roster, artifacts and tiers count instead of the state's, since its delete will
    use them."""
    box = priced(box, state)
    if new is not None:
        changed = replace(
            box.facts,
            roster_digest=new.roster_digest,
            artifacts_digest=new.artifacts_digest,
            verb=new.teardown.verb,
            kills=new.teardown.kills,
            keeps=new.teardown.keeps,
            policies=in_entry(new.policy),
        )
        box = box.about(changed)
    seen, record = observe(box, rented=state.teardown.rented)
    if box.facts.price_per_hour is None and record is not None:  # the evidence can't be read, and the platform knows
        box = box.about(replace(box.facts, price_per_hour=record.price_per_hour))
    return Judgement(box, seen, may_end(BoxEnding(box, approval, seen), full=full), record, approval)


def clearance_of(judgement: Judgement, approval: Approval | None) -> str:
    """The value of `clearance`, for the diff. Without an approval of this box it is just `locked`."""
    if approval is None or not any(action.box == judgement.facts.name for action in approval.actions):
        return "locked"
    return judgement.verdict.headline


def require_allowed(op: Operation, box: BoxContext, state: BoxState | QueueState | GateState) -> Judgement:
    """Returns the judgement if it allows the end; else raises TeardownRefused with all that a person needs. Closes the
    records of a box that is gone already."""
    box = box.about(replace(box.facts, urn=op.urn))  # a signature is for the stack by its name
    birth = birth_of(box)  # a queue keeps the policy that it was made with
    differs = birth is not None and birth.policy != policy_digest(state.policy)
    unread = None
    if differs or may_hold('"policy"', op.stack, op.project):
        try:
            box = box.about(replace(box.facts, policies=policies_of_state(op)))
        except SweepstackError as error:
            unread = error
    judgement = by_records(judge_end(box, state, state.approval, full=True), full=True)
    if unread is not None and judgement.verdict.way not in (None, "gone", "emptied"):  # these two need no policy
        raise unread
    if not judgement.verdict.allowed:
        facts = with_costs(op, judgement.box, state, judgement.seen)
        others = _locked_beside(judgement.box)
        with op.session.saying:  # boxes are refused in parallel
            words = refusal_text(facts, judgement.verdict, stack=op.stack, others=others, said=op.session.said)
        raise TeardownRefused(words)
    if judgement.verdict.way == "gone":
        close(op, judgement)
    return judgement


def policy_digest(entry: str | None) -> str:
    """How a birth record names the policy of this entry; "" if there is none, or if it does not read."""
    if entry is None:
        return ""
    from sweepstack.teardown.policy_in_force import in_state  # most sweeps have no policy

    return next((policy.digest for policy in in_state([entry]).policies), "")


def policies_of_state(op: Operation) -> tuple[str, ...]:
    """The policies of the stack's state: any one entry that has it is enough. Asks the engine, once in some seconds for
    all that ends together. Raises SweepstackError."""
    asked: SingleFlight[tuple[str, ...]]
    asked = op.session.shared.setdefault("policies of the state", SingleFlight())
    return asked.get(lambda: read_state(op.stack, op.session.project_root).policies, max_age=COSTS_SECONDS)


def _locked_beside(box: BoxContext) -> list[str]:
    """The sweep's other boxes on record that have not ended and have no clearance on record."""
    try:
        store, name = box.store, box.facts.name
        births = [birth for birth in store.births() if birth.ended_at is None and birth.native_id is not None]
        return [birth.box for birth in births if birth.box != name and store.clearance(birth.native_id or "") is None]
    except EvidenceError:
        return []


def close(op: Operation, judgement: Judgement, *, losses: bool = True) -> None:
    """Closes the records of a box that is proved gone: what was lost with it (`losses`), and its end. Idempotent.

    The delete of any of its resources may do it first: a refresh may have taken the box itself out of the state. If the
    box was handed to its host or to a person, no loss is recorded, since the check that allowed its end covered its
    cells; it ended when the person saw that.
    """
    box, facts = judgement.box, judgement.facts
    birth = birth_of(box)
    if birth is not None and birth.native_id not in (None, facts.native_id):  # a state that was edited
        op.warn(f"{facts.native_id} is no box; by the records box {facts.name} is {birth.native_id}: they stay open")
        return
    known = known_handover(box)
    if losses and (known is None or known.way in ("", "abandoned")):
        record_loss(op, judgement, "its box is gone from the platform")
    with _closing(op, facts):
        close_gone(box.store, box=facts.name, generation=facts.generation, native_id=facts.native_id)


def with_costs(op: Operation, box: BoxContext, state: BoxState | QueueState | GateState, seen: Observation) -> BoxFacts:
    """The facts of the box, with its costs by the ledger; unchanged if that can't be read. For a stopped box the
    platform's present price counts: the ledger may not know of the stop."""
    facts = box.facts
    if seen.stopped_per_hour is not None:
        facts = replace(facts, price_per_hour=seen.stopped_per_hour)
    try:
        found, budget = _spent(op, box.evidence)
    except (EvidenceError, Unreachable):
        return facts
    kept = sealed_bytes([seen.journal]) if seen.journal is not None else 0
    costs = box_costs(found, facts.native_id, budget, state.teardown.keeps_per_gb_month, kept)
    if costs is not None and seen.stopped_per_hour is not None:
        more = (costs.per_hour or 0.0) - seen.stopped_per_hour
        whole = max(costs.sweep_per_hour - more, seen.stopped_per_hour)
        costs = replace(costs, per_hour=seen.stopped_per_hour, sweep_per_hour=whole)
    return replace(facts, costs=costs)


def _spent(op: Operation, evidence: Evidence) -> tuple[Spent, Budget | None]:
    """What the whole sweep costs, and its budget. Read once for all boxes that are looked at together, so it may be
    some seconds old."""

    def read() -> tuple[Spent, Budget | None]:
        store = evidence.store
        return spent(store, datetime.now(UTC)), store.record(BUDGET, Budget)

    asked: SingleFlight[tuple[Spent, Budget | None]]
    asked = op.session.shared.setdefault(f"costs of {evidence.uri}", SingleFlight())
    return asked.get(read, max_age=COSTS_SECONDS)


def by_records(judgement: Judgement, *, full: bool) -> Judgement:
    """The same judgement if the approval in the state allows the end; else one by what is on record for this very box.

    For a box of the state that the program can't reach any more (taken out of it, or renamed), and for a box that was
    given up where the program can't be run any more.
    """
    for recorded in recorded_approvals(judgement.box):
        if judgement.verdict.allowed:
            break
        if recorded != judgement.approval:
            verdict = may_end(BoxEnding(judgement.box, recorded, judgement.seen), full=full)
            if verdict.allowed or judgement.approval is None:
                judgement = replace(judgement, verdict=verdict, approval=recorded)
    return judgement


def keep_logs(op: Operation, judgement: Judgement) -> None:
    """Copies the box's own logs, as they are now, into the evidence, if the box answers. A problem is a warning, and no
    error."""
    box, facts, journal = judgement.box, judgement.facts, judgement.seen.journal
    if journal is None:
        return
    for problem in box_logs.copy_last(box.channel, box.evidence, facts.name, facts.generation, journal.head):
        op.warn(f"box {facts.name}: {problem}")


def begin_teardown(judgement: Judgement) -> None:
    """Records that the approved boxes may end, and that nothing new may start until all of them have ended."""
    facts, approval = judgement.facts, judgement.approval
    if approval is None:
        return
    with _records, contextlib.suppress(EvidenceError):

        def begun(open_one: Teardown | None) -> Teardown:
            ids = {action.native_id for action in approval.actions if action.verb == facts.verb}
            ids |= set(open_one.native_ids if open_one else ())
            return Teardown(
                receipt=approval.receipt,
                native_ids=tuple(sorted(ids)),
                ended=open_one.ended if open_one else (),
                begun_at=open_one.begun_at if open_one else datetime.now(UTC),
            )

        judgement.box.store.update_teardown(begun)


def record_end(
    op: Operation, box: BoxContext, how: str, at: datetime | None = None, bills_after: float | None = 0.0
) -> None:
    """Closes the birth record, and the teardown if this was its last box. `at`: when it ended, if that is known to be
    earlier than now. `bills_after`: see `close_books`. If the records can't be written, it only warns."""
    facts = box.facts
    with _closing(op, facts):
        close_books(
            box.store,
            box=facts.name,
            generation=facts.generation,
            native_id=facts.native_id,
            how=how,
            at=at or datetime.now(UTC),
            bills_after=bills_after,
        )


@contextlib.contextmanager
def _closing(op: Operation, facts: BoxFacts) -> Iterator[None]:
    """If a record of a box that has ended can't be written, that is a warning, and no error."""
    try:
        with _records:
            yield
    except EvidenceError as error:
        op.warn(f"box {facts.name} has ended, but its record could not be closed: {error}")
        note_end(facts, str(error))


def record_loss(op: Operation, judgement: Judgement, why: str) -> None:
    """Records, and warns of, the cells that have no verified copy and no sealed one on a volume that survives."""
    facts = judgement.facts
    lost = lost_cells(op, judgement)
    if not lost:
        return
    with contextlib.suppress(EvidenceError), _records:
        loss = Loss(box=facts.name, native_id=facts.native_id, cells=lost, why=why, at=datetime.now(UTC))
        judgement.box.store.write_loss(loss)
    op.warn(f"box {facts.name} ({facts.native_id}): {len(lost)} cells LOST, {why}: {', '.join(lost[:8])}")


def lost_cells(op: Operation, judgement: Judgement) -> tuple[str, ...]:
    """The cells of a box that is gone that have no verified copy, and no sealed one on a volume that outlived it.

    Writes nothing. Empty if a volume can't be asked; a warning says so.
    """
    lost = lost_with(judgement.box, judgement.verdict)
    if lost is None:
        count, name = len(judgement.verdict.unsettled), judgement.facts.name
        op.warn(f"box {name}: whether its volume holds sealed copies of {count} cells is not known")
    return lost or ()


def gone_line(op: Operation, judgement: Judgement) -> str:
    """One line about a box that is gone: from which platform, how that is known, and which cells are lost with it."""
    facts, lost = judgement.facts, lost_cells(op, judgement)
    how = f": {judgement.seen.note}" if judgement.seen.note else ""
    named = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if lost[8:] else "")
    words = f"; cells without a copy, which run again: {named}" if lost else ""
    return f"box {facts.name} ({facts.native_id}) is gone from {judgement.box.adapter}{how}{words}"


def lock_line(judgement: Judgement) -> str:
    """One line about the box: locked or cleared, cells, cost."""
    verdict, facts = judgement.verdict, judgement.facts
    word = "CLEARED" if verdict.allowed else "LOCKED"
    settled = len(verdict.cells) - len(verdict.unsettled)
    if judgement.seen.note:
        return f"box {facts.name} {word}: {judgement.seen.note}; {waiting_cost(facts)}"
    return f"box {facts.name} {word}: {settled} of {len(verdict.cells)} cells verified; {waiting_cost(facts)}"


def live_facts(judgement: Judgement, teardown: TeardownFacts) -> BoxSeen:
    """What the delete step of `pulumi destroy --preview-only --diff` shows of the box."""
    verdict, facts = judgement.verdict, judgement.facts
    last: dict[str, str] = {}
    if teardown.issue is not None:
        issue = teardown.issue
        last["bill_ends_by"] = f"{issue.native}: {issue.command or issue.manual}"
        if issue.by == "ssh":
            last["then"] = dated(teardown.clocks, datetime.now(UTC))
    settled = len(verdict.cells) - len(verdict.unsettled)
    age = (datetime.now(UTC) - facts.created_at).total_seconds() / 3600 if facts.created_at else None
    return BoxSeen(
        verified=f"{settled} of {len(verdict.cells)} cells",
        not_safe=tuple(f"{cell.name}: {cell.state}" for cell in verdict.unsettled),
        dies=tuple(facts.kills),
        unclaimed=verdict.unclaimed.words,
        survives=(*facts.keeps, facts.evidence),
        cost=waiting_cost(facts),
        age_hours=round(age, 2) if age is not None else None,
        state="cleared" if verdict.allowed else "locked",
        because=verdict.way or "; ".join(verdict.reasons),
        seen=judgement.seen.note or judgement.seen.existence.value,
        **last,
    )


def refuse_during_teardown(store: EvidenceStore, what: str, stack: str) -> None:
    """Raises SweepstackError while a teardown is open: an interrupted destroy must not rent again what is already
    gone."""
    teardown = store.teardown()
    if teardown is None:
        return
    ended = set(teardown.ended)
    still = [native_id for native_id in teardown.native_ids if native_id not in ended]
    rate = 0.0
    with contextlib.suppress(EvidenceError):
        rate = spent(store, datetime.now(UTC)).per_hour_of(still)
    bills = f", ${spell_rate(rate)}/h" if rate else ""
    raise SweepstackError(
        f"{what}: a teardown has begun ({len(ended)} of {len(teardown.native_ids)} boxes ended, still there: "
        f"{', '.join(still)}{bills}); nothing new is started. Next: pulumi destroy --stack {stack}, or, to go on with "
        f"the sweep instead, sweepctl revoke --stack {stack}"
    )
