"""What comes before renting: the budget, its webhook, the account's balance, and the smoke run.

Whether the balance carries what is to be rented is said by a preview, and asked again before a box is rented. Nothing
but renting is refused: what runs, changes, stops or ends does not wait for a balance.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from sweepstack.billing.balance import BalanceLeft, Runway, balance_refusal
from sweepstack.billing.budget import BUDGET, renting_refused, use_of
from sweepstack.billing.forecast import forecast, hours_left, preview_line
from sweepstack.billing.ledger import spent, total
from sweepstack.config.own_files import own_files
from sweepstack.core.budget import Budget, Outlook
from sweepstack.core.job import Smoke
from sweepstack.core.journal import Journal
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Birth
from sweepstack.core.resources import BoxInputs
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.smoke import SmokeFailed, ensure
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.operations.balances import left_at
from sweepstack.operations.observe import observe
from sweepstack.platforms.common.single_flight import SingleFlight
from sweepstack.platforms.registry import has_address, has_wallet, payer
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.launched import copied_journal

LOOK_SECONDS = 5.0

FORECAST = "what the Identity's check knows of the boxes"
SETTING = "ignore_balance"


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
    expect(op, Expected(left, outlook.boxes, there))
    seen = forecast(use, hours_left=left, boxes=outlook.boxes, per_hour=per_hour)
    warns, line = preview_line(budget, use, seen, outlook)
    (op.warn if warns else op.info)(line)
    if store is not None and not outlook.dry_run:
        # With the shapes of `events` in a stack file: a sweep without a budget has no use for them.
        from sweepstack.operations.events.channels import channels_of
        from sweepstack.operations.events.deliver import deliver
        from sweepstack.operations.events.event import budget_event

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


@dataclass(frozen=True)
class Expected:
    """What the check of the Identity leaves for the boxes, which are checked after it. `hours_left`: until the last
    cell; `boxes`: wanted running; `there`: on record as rented, so that a create adopts them."""

    hours_left: float | None = None
    boxes: int = 0
    there: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Asked:
    """An account before this command rents anything. `running`: USD per hour of the sweep's boxes there."""

    left: BalanceLeft
    running: float
    boxes: int


@dataclass
class _Account:
    """An account in one command. `offered`: box → USD per hour of the offer that its check found; `planned`: the same
    of boxes that this command rents."""

    answer: SingleFlight[_Asked | None] = field(default_factory=SingleFlight)
    lock: threading.Lock = field(default_factory=threading.Lock)
    offered: dict[str, float] = field(default_factory=dict)
    planned: dict[str, float] = field(default_factory=dict)
    said: bool = False

    def plan(self, box: str, per_hour: float) -> tuple[list[str], float]:
        """Counts this box; the boxes to rent so far, and what they cost per hour."""
        with self.lock:
            self.planned[box] = per_hour
            return sorted(self.planned), sum(self.planned.values())

    def first(self) -> bool:
        """Whether nothing was said of it so far."""
        with self.lock:
            first, self.said = not self.said, True
        return first


def expect(op: Operation, known: Expected) -> None:
    """Leaves this for the boxes, which would have to ask every box and read all records again."""
    op.session.shared[FORECAST] = known


def foresee(op: Operation, inputs: Mapping[str, Any], price_per_hour: float, evidence: Evidence | None) -> None:
    """For the check of a box that is not rented yet: remembers its price, and says once for each preview how long the
    balance lasts with all boxes. Refuses nothing: a check is made of boxes that this command leaves alone, too. Blocks
    for seconds; never raises.

    `inputs`: of the box, as the program gave them.
    """
    who = _payer(inputs)
    account = _account(op, who)
    account.offered[str(inputs["name"])] = price_per_hour
    if not inputs.get("dry_run") or not account.first():
        return
    asked = _ask(op, who, evidence)
    if asked is not None:
        known = _expected(op)
        _say(op, _runway(asked, price_per_hour * max(known.boxes - asked.boxes, 1), known.hours_left))


def preview(op: Operation, inputs: Mapping[str, Any], evidence: Evidence | None) -> None:
    """For the preview of a create, which the engine asks for what it would really rent. Raises SweepstackError as
    `require`. Where an approval stands in the stack file it warns instead: the `up` that brings it in must go through,
    and rents nothing all the same. Nothing of a box that is there already: it is adopted."""
    who, box = _payer(inputs), str(inputs["name"])
    if box in _expected(op).there or box not in _account(op, who).offered:
        return
    try:
        _require(op, who, evidence, box, None, inputs.get(SETTING))
    except SweepstackError as error:
        if not (inputs.get("approval") or inputs.get("leaving")):
            raise
        op.warn(str(error))


def say_runway(op: Operation, box: BoxInputs, evidence: Evidence) -> None:
    """Says once for each preview how long the balance lasts that pays for the box. Blocks for seconds; never raises."""
    who = payer(box.adapter, box.platform or "")
    if _account(op, who).first() and (asked := _ask(op, who, evidence)) is not None:
        _say(op, _runway(asked, 0.0, _expected(op).hours_left))


def require(op: Operation, inputs: BoxInputs, evidence: Evidence, price: float | None) -> None:
    """Raises SweepstackError with the figures if the balance does not carry this box beside what bills there and what
    else this command rents. To adopt a box is not renting. `price`: the most that it may cost, where no offer is known.
    Blocks for seconds.
    """
    who = payer(inputs.adapter, inputs.platform or "")
    _require(op, who, evidence, inputs.name, price, inputs.ignore_balance)


def _require(
    op: Operation, adapter: str, evidence: Evidence | None, box: str, price: float | None, ignored: Any
) -> None:
    account = _account(op, adapter)
    asked = _ask(op, adapter, evidence)
    if asked is None:
        return
    boxes, added = account.plan(box, account.offered.get(box, price or 0.0))
    runway = _runway(asked, added, _expected(op).hours_left)
    if asked.left.usd is None:
        if account.first():
            op.warn(runway.text())
        return
    words = balance_refusal(runway, boxes, added, stack=op.stack)
    if words and isinstance(ignored, str) and ignored:
        op.warn(f"{words.partition(chr(10))[0]} Rented all the same, since {SETTING} says: {ignored}")
    elif words:
        raise SweepstackError(words)


def _say(op: Operation, runway: Runway) -> None:
    (op.warn if runway.short or runway.left.usd is None else op.info)(runway.text())


def _runway(asked: _Asked, added: float, hours: float | None) -> Runway:
    rate = asked.left.rate(asked.running) + added
    return Runway(asked.left, rate, datetime.now(UTC), hours)


def _expected(op: Operation) -> Expected:
    known: Expected = op.session.shared.get(FORECAST, Expected())
    return known


def _payer(inputs: Mapping[str, Any]) -> str:
    platform = inputs.get("platform")
    return payer(str(inputs["adapter"]), platform if isinstance(platform, str) else "")


def _account(op: Operation, adapter: str) -> _Account:
    found: _Account = op.session.shared.setdefault(f"runway at {adapter}", _Account())
    return found


def _ask(op: Operation, adapter: str, evidence: Evidence | None) -> _Asked | None:
    """The account as it was when this command asked first; None where the platform has no balance."""

    def ask() -> _Asked | None:
        left = left_at(adapter)
        return None if left is None else _Asked(left, *_running(adapter, evidence))

    return _account(op, adapter).answer.get(ask, max_age=math.inf)


def _running(adapter: str, evidence: Evidence | None) -> tuple[float, int]:
    """USD per hour of this sweep's boxes there, and how many run, by the ledger; nothing where that can't be read. Of a
    wallet, those on any host: the ledger does not say whose a host is, and too much is the safe side."""
    if evidence is None:
        return 0.0, 0
    try:
        if EvidenceStore.read_marker(evidence.uri) is None:
            return 0.0, 0
        found = spent(evidence.store, datetime.now(UTC))
    except EvidenceError:
        return 0.0, 0
    hosts = has_wallet(adapter)
    ours = [bill for bill in found.bills if bill.platform == adapter or (hosts and has_address(bill.platform))]
    there = [bill for bill in ours if bill.open is not None]
    return sum(bill.per_hour or 0.0 for bill in there), len(there)
