"""What comes before renting: the budget, its webhook, and the smoke run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime

from sweepstack.billing.budget import BUDGET, renting_refused, use_of
from sweepstack.billing.forecast import forecast, hours_left, preview_line
from sweepstack.billing.ledger import spent, total
from sweepstack.config.own_files import own_files
from sweepstack.core.budget import Budget, Outlook
from sweepstack.core.job import Smoke
from sweepstack.core.journal import Journal
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.evidence.lazy import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.smoke import SmokeFailed, ensure
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.operations.events.channels import channels_of
from sweepstack.operations.events.deliver import deliver
from sweepstack.operations.events.event import budget_event
from sweepstack.operations.observe import observe
from sweepstack.provider.resources import runway
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.launched import copied_journal

LOOK_SECONDS = 5.0


def say_budget(op: Operation, evidence: Evidence, budget: Budget, outlook: Outlook) -> None:
    """Says how the budget stands, as a warning if it will not be enough. May call the budget's webhook, and does not
    wait for it. Never raises: a budget blocks only renting."""
    now = datetime.now(UTC)
    try:
        known = EvidenceStore.read_marker(evidence.uri) is not None
        store = evidence.store if known else None
        births = store.births() if store else []
        found = spent(store, now, births) if store else total((), (), now)
    except EvidenceError as error:
        op.warn(f"budget: what was spent is not known: {error}")
        return
    use = use_of(budget, found, outlook.price_per_hour)
    per_hour = None if outlook.price_per_hour is None else outlook.price_per_hour * outlook.boxes
    left = hours_left(_journals(store, births) if store else [], outlook, now)
    there = frozenset(birth.box for birth in births if birth.ended_at is None)
    runway.expect(op, runway.Expected(left, outlook.boxes, there))
    seen = forecast(use, hours_left=left, boxes=outlook.boxes, per_hour=per_hour)
    warns, line = preview_line(budget, use, seen, outlook)
    (op.warn if warns else op.info)(line)
    if store is not None and not outlook.dry_run:
        event = budget_event(budget, use, seen, stack=op.stack, per_hour=found.per_hour, now=now)
        if event is not None:  # nothing waits for the webhook; what is known already is said
            delivery = deliver(store, channels_of(None, budget), [event])
            if delivery.wait(0):
                op.progress("; ".join(delivery.problems) or "telling the budget's webhook")


def keep_budget(evidence: Evidence, budget: Budget | None) -> None:
    """Writes the budget into the evidence, for refusals that can't read it elsewhere. A convenience: never raises."""
    with suppress(EvidenceError):
        store = evidence.store
        if store.record(BUDGET, Budget) != budget:
            store.write_record(BUDGET, budget)


def refuse_past(op: Operation, store: EvidenceStore, budget: Budget | None, box: str, price: float | None) -> None:
    """Raises SweepstackError with the arithmetic if the budget allows no more renting. To adopt a box is not
    renting."""
    if budget is None:
        return
    found = spent(store, datetime.now(UTC))
    refusal = renting_refused(budget, found, box=box, price_per_hour=price, stack=op.stack)
    if refusal:
        raise SweepstackError(refusal)


def smoke_first(op: Operation, smoke: Smoke | None, box: str) -> None:
    """Runs the job's smoke run, unless it has passed with this code and config. Blocks. Raises SmokeFailed: then
    nothing is rented.

    It runs here and not in the program, because only a create costs money: nothing else of an `up` (a clearance, a
    stop, new cells) waits for it or fails with it. And here there is progress, a deadline, and an answer to Ctrl-C.
    """
    if smoke is None:
        return
    try:
        outcome = ensure(
            smoke,
            op.session.project_root,
            own=own_files(op.session.project_root),
            progress=op.progress,
            cancelled=op.session.cancelled,
            since=op.session.began,
        )
    except SmokeFailed as error:
        raise SmokeFailed(
            f"box {box} is not rented: {error}\n"
            f"  next        fix it, then pulumi up --stack {op.stack}\n"
            f"  try alone   sweepctl doctor --smoke --stack {op.stack}\n"
            f"  without it  take job.smoke out of the stack file"
        ) from error
    if outcome.ran:
        op.info(f"smoke run: passed in {outcome.passed.seconds:.1f} s")
    if outcome.ran and outcome.passed.missing:
        op.warn(f"smoke run: it passed and left no {', '.join(outcome.passed.missing)}; a cell that does so fails")


def _journals(store: EvidenceStore, births: Iterable[Birth]) -> list[Journal]:
    """The journals of all boxes ever rented: from the box if it answers in time, else the last copy."""
    births = [birth for birth in births if birth.native_id is not None]
    asked = {birth.native_id: _asker(birth) for birth in births if birth.ended_at is None}
    live = in_parallel(asked, LOOK_SECONDS)
    found = []
    for birth in births:
        journal = live.get(birth.native_id) or copied_journal(store, birth.box, birth.generation)
        if journal is not None:
            found.append(journal)
    return found


def _asker(birth: Birth) -> Callable[[], Journal | None]:
    def ask() -> Journal | None:
        try:
            return observe(BoxAt.of(birth), files=False)[0].journal
        except SweepstackError:
            return None

    return ask
