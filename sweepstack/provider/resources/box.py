"""Box: one rented machine. The check that counts is in its delete.

A change that would replace the box is answered with a new box beside the old one, to be written instead.

A rental platform allows two boxes with one tag. Two machines that rent at once can cause it, or a copy made in a
console, or a list that lagged. The second box is never adopted in place of the one in the state, and no delete of ours
ends it: it bills until a person ends it, and the command for that is named.

Where many boxes of one account are deleted at once, their deletes wait in line: a platform takes so many requests a
minute, from all boxes together. The deadline of each box counts from its own turn: the moment its platform has accepted
the delete. Until then its clock starts anew whenever another box in the line had its turn or is done, since the line
moves then. If the line does not move for that long, the wait ends. The number of boxes is finite, so every wait ends.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sweepstack.core.journal import CellProgress, Journal, started
from sweepstack.core.lease_terms import lease_seconds
from sweepstack.core.observation import Existence
from sweepstack.core.records import Approval, Birth
from sweepstack.core.resources import BoxInputs, BoxState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import take_lease
from sweepstack.onbox.common.box_layout import box_tag, tag_prefix
from sweepstack.onbox.common.errors import (
    EvidenceError,
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    StillCreating,
    SweepstackError,
    Unproved,
)
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.onbox.host.capabilities import HasMarket, KnowsKeys, RentsSpot
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.operations import drift
from sweepstack.platforms.common.deadline import DeadlineOver
from sweepstack.platforms.registry import has_address, load_platform, need
from sweepstack.provider import secrets
from sweepstack.provider.resources import (
    before_renting,
    error_context,
    held_by_another,
    host_address_change,
    imported,
    manual_end,
    market,
    policy_limits,
    run_or_stop,
    teardown,
    want_gone,
)
from sweepstack.provider.resources.base import Checked, Decision, Failure, Gone, Handler, ReadAnswer
from sweepstack.provider.resources.create import charge, generation_of, outputs_of, rent, seen_of
from sweepstack.provider.resources.held_by_another import sign_new
from sweepstack.provider.resources.teardown import Judgement
from sweepstack.provider.session import Operation
from sweepstack.teardown.abandonment import take_back
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.ownership import who
from sweepstack.teardown.refusal import refusal_text, waiting_cost

GONE_SECONDS = 300.0
POLL_SECONDS = 0.2
LOSSES = {"abandoned": "abandoned by a person", "emptied": "its folder is gone from its host"}


class BoxHandler(Handler[BoxInputs, BoxState]):
    """Rents by a fixed tag: if the answer to a create is lost, the next one finds the box, and rents no second."""

    token = "sweepstack:index:Box"
    inputs_type = BoxInputs
    state_type = BoxState
    replaces_before_delete = True
    not_in_outputs = frozenset({"leaving"})  # it belongs to one change, not to the box
    decisions: ClassVar[dict[str, Decision]] = {
        "identity": Decision.REFUSE,
        "evidence": Decision.REFUSE,
        "adapter": Decision.MOVE,
        "platform": Decision.UPDATE,
        "name": Decision.REPLACE,
        "resources": Decision.REPLACE,
        "price_per_hour": Decision.UPDATE,
        "max_price": Decision.UPDATE,
        "bid": Decision.UPDATE,
        "image": Decision.REPLACE,
        "pods": Decision.IGNORE,  # read when a box is made; later its queue says what they are like
        "placed": Decision.IGNORE,  # a rented box stays as it was rented
        "dry_run": Decision.IGNORE,
        "budget": Decision.IGNORE,
        "ignore_balance": Decision.IGNORE,
        "smoke": Decision.IGNORE,
        "no_code": Decision.IGNORE,  # read when a box is rented
        "mounts": Decision.REPLACE,
        "links": Decision.REPLACE,
        "places": Decision.REPLACE,
        "claims": Decision.IGNORE,  # read when a box is made
        "volume": Decision.IGNORE,  # what is mounted is in mounts
        "secrets": Decision.IGNORE,  # the queue sends them to the box
        "named": Decision.IGNORE,
        "leaving": Decision.IGNORE,
        "roster_digest": Decision.UPDATE,
        "artifacts_digest": Decision.UPDATE,
        "teardown": Decision.UPDATE,
        "want": Decision.UPDATE,
        "when_done": Decision.UPDATE,
        "lease": Decision.UPDATE,
        "approval": Decision.UPDATE,
        "clearance": Decision.UPDATE,
        "policy": Decision.UPDATE,
        "live": Decision.IGNORE,
        "list_lag": Decision.IGNORE,  # read when a box is rented
        "imported": Decision.UPDATE,
    }

    def check(self, op: Operation, old: BoxInputs | None, new: BoxInputs) -> Checked[BoxInputs]:
        """Writes `clearance`, and says what a new box would cost. Refuses a change that would replace a locked box,
        since a replace is a destroy."""
        dry_run, new = new.dry_run, new.model_copy(update={"dry_run": None})
        if (old or new).imported:
            return Checked(*imported.check(op, Evidence(new.evidence), old or new, new))
        new, refused = host_address_change.written_out(old, new)
        if refused:
            return Checked(new, refused)
        evidence = Evidence((old or new).evidence)
        rented, moved = host_address_change.in_preview(op, old, new, rented_on_record(evidence, old or new))
        if moved:
            return Checked(new, moved)
        binds = policy_limits.bound(op, evidence, old.policy if old is not None else None, new.identity)
        new = new.model_copy(update={"policy": binds.copy})
        if rented is None and new.want == "running" and (old is None or records_readable(evidence)):
            refused = market.preview(op, new.model_dump(mode="json") | {"dry_run": dry_run}, evidence)
            beside = want_gone.why_others_come_first(op, new, Evidence(new.evidence))
            refused += [Failure("name", beside)] if beside else []
        if old is None or rented is None:
            failures = [*refused, *self._over_price(new), *run_or_stop.check(op, None, None, old, new)]
            failures += secrets.failures("secrets", new.secrets)
            if old is None or records_readable(evidence):  # else it may be there, and has to get through
                failures += policy_limits.box_problems(binds, new.model_dump(mode="json"), market.bills(new.adapter))
            if new.no_code:
                failures.append(Failure("no_code", f"nothing is rented without its code. {new.no_code}"))
            return Checked(new.model_copy(update={"clearance": "locked"}), failures)
        box = BoxContext(BoxFacts.of(rented), rented.adapter, evidence)
        warn_of_second_box(op, box, rented)
        if dry_run:
            before_renting.say_runway(op, rented, evidence)
        judgement = teardown.judge_end(box, rented, new.approval, full=False, new=new)
        checked = new.model_copy(update={"clearance": teardown.clearance_of(judgement, new.approval)})
        if checked.clearance != old.clearance:
            op.info(f"{old.name}: {error_context.became(old.clearance, checked.clearance)}")
        failures = [*self._over_price(new), *run_or_stop.check(op, box, rented, old, new)]
        if new.bid is not None and new.bid != old.bid:
            failures += policy_limits.bid_problems(binds, new.bid)
        if not checked.clearance.startswith("cleared"):  # else it is to end, and its end has to get through
            failures += policy_limits.start_problems(binds, checked, judgement, op.stack)
        replacing = [name for name, decision in self.changes(old, checked).items() if decision is Decision.REPLACE]
        leaving = judgement.verdict.allowed and judgement.verdict.way != "gone"
        if replacing and leaving and (old.approval != new.approval or not old.clearance.startswith("cleared")):
            # One step at a time: an approval ends the box, and must not rent another one on the way. (A record
            # may have cleared it, without an approval in the state.)
            op.warn(f"box {old.name} is cleared first; the change of {', '.join(replacing)} waits for the next up")
            return Checked(checked.model_copy(update={name: getattr(old, name) for name in replacing}), failures)
        if replacing and not judgement.verdict.allowed:
            facts = teardown.with_costs(op, judgement.box, rented, judgement.seen)
            refusal = refusal_text(facts, judgement.verdict, stack=op.stack)
            words = f"changing it would replace box {old.name}, which is a destroy. Undo it, or end the box first.\n"
            whole = f"{words}{refusal}\n\n{recipe(judgement, old, checked, replacing, stack=op.stack)}"
            failures += [Failure(name, whole if name == replacing[0] else words) for name in replacing]
        return Checked(checked, failures)

    def _over_price(self, new: BoxInputs) -> list[Failure]:
        if new.max_price is None or new.price_per_hour is None or new.price_per_hour <= new.max_price:
            return []
        return [Failure("max_price", f"${new.price_per_hour}/h is above the ceiling of ${new.max_price}/h")]

    def find(self, op: Operation, asked: str) -> ReadAnswer[BoxInputs, BoxState]:
        return imported.look_up(op, asked, load_platform)

    def create(self, op: Operation, inputs: BoxInputs) -> tuple[str, BoxState]:
        """Rents a box, or adopts the one that an earlier try rented. Costs money from the moment the platform agrees.
        Blocks until it is ready."""
        evidence = Evidence(inputs.evidence)
        with error_context.naming(op, evidence, inputs.name):
            return self._create(op, evidence, inputs)

    def _create(self, op: Operation, evidence: Evidence, inputs: BoxInputs) -> tuple[str, BoxState]:
        store = evidence.store
        take_lease(store)
        ending_now = store.teardown() is not None
        platform = load_platform(inputs.adapter, inputs.teardown.moves)
        generation, existing = generation_of(op, store, platform, inputs)
        if existing is None:  # else it is adopted, even in a teardown: only what is in the state can end
            teardown.refuse_during_teardown(store, f"box {inputs.name}", op.stack)
            if beside := want_gone.why_others_come_first(op, inputs, evidence):
                raise SweepstackError(beside)
            inputs = policy_limits.require_policy(op, evidence, inputs, market.bills(inputs.adapter))
            price = inputs.max_price if inputs.price_per_hour is None else inputs.price_per_hour
            before_renting.refuse_past(op, store, inputs.budget, inputs.name, price)
            before_renting.require(op, inputs, evidence, price)
            before_renting.smoke_first(op, inputs.smoke, inputs.name)
        tag = box_tag(inputs.identity, inputs.name, generation)
        held_by_another.refuse_held(op, platform, store, tag, existing)
        adopted = store.birth(inputs.name, generation) if existing is not None else None
        now, lease = datetime.now(UTC), lease_seconds(inputs.lease)
        birth = Birth(
            box=inputs.name,
            generation=generation,
            tag=tag,
            platform=inputs.adapter,
            account=platform.account(),
            native_id=existing.native_id if existing else None,
            price_per_hour=inputs.price_per_hour,
            mounts=inputs.mounts,
            begun_at=adopted.begun_at if adopted is not None and adopted.imported else now,
            created_at=existing.created_at if existing else None,
            launch_by=None if lease is None else now + timedelta(seconds=lease),
            policy=adopted.policy if adopted is not None else teardown.policy_digest(inputs.policy),
            key=platform.key_digest() if isinstance(platform, KnowsKeys) else "",
            notes_requests=True,
            imported=adopted is not None and adopted.imported,
            by=(adopted.by if adopted is not None else "") or who(),
        )
        store.write_birth(birth)
        if existing is not None:
            store.write_clearance(existing.native_id, None)  # another state had it when it was cleared
            if existing.emptied:  # adopted all the same, so that it can be ended
                reason = manual_end.out_of_the_bill(op, inputs.teardown, existing, inputs.name)
                state = self._state(inputs, existing, generation, tag)
                raise StillCreating(existing.native_id, outputs_of(state), [reason])
            how = "was imported" if birth.imported else "carries this box's tag"
            op.info(f"box {inputs.name}: {existing.native_id} {how}: adopted, nothing new is rented")
        record = rent(op, platform, inputs, birth, store)
        sign_new(op, platform, record, birth, store)
        state = self._state(inputs, record, generation, tag)
        if (record.phase.at_rest and not ending_now) or inputs.want == "stopped":
            box = BoxContext(BoxFacts.of(state), state.adapter, evidence, platform)
            state = state.model_copy(update={"phase": self._converged(op, box, state).phase.value})
        return record.native_id, state

    def _converged(
        self, op: Operation, box: BoxContext, state: BoxState, *, told: bool = False, woken: bool = False
    ) -> BoxRecord:
        """Calls `stop.converge`. Completes the outputs of its StillCreating: the engine must be able to read them back
        as a whole state."""
        try:
            return run_or_stop.converge(op, box, state, told=told, woken=woken)
        except StillCreating as error:  # the adapter does not know all that the state keeps
            known = {name: value for name, value in error.outputs.items() if value is not None}
            raise StillCreating(error.identifier, outputs_of(state) | known, error.reasons) from error

    def _state(self, inputs: BoxInputs, record: BoxRecord, generation: int, tag: str) -> BoxState:
        known = inputs.model_dump() | {"price_per_hour": record.price_per_hour}
        return BoxState(
            **known,
            native_id=record.native_id,
            account=record.account,
            generation=generation,
            tag=tag,
            phase=record.phase.value,
            created_at=record.created_at,
            **seen_of(record),
        )

    def check_early(self, op: Operation, old: dict[str, Any], new: dict[str, Any]) -> list[Failure]:
        if old:
            return []
        known = new.get("evidence")
        binds = policy_limits.bound(op, Evidence(known) if isinstance(known, str) else None, None)
        found = policy_limits.box_problems(binds, new, market.bills(new.get("adapter")))
        return [*found, *(market.preview(op, new) if new.get("want", "running") == "running" else [])]

    def preview_create(self, op: Operation, inputs: dict[str, Any]) -> None:
        """Refuses what the account's balance does not carry."""
        if inputs.get("want", "running") == "running" and isinstance(inputs.get("adapter"), str):
            known = inputs.get("evidence")
            before_renting.preview(op, inputs, Evidence(known) if isinstance(known, str) else None)

    def read(self, op: Operation, identifier: str, state: BoxState) -> ReadAnswer[BoxInputs, BoxState] | Gone:
        box = teardown.context_of(state)
        by_state = teardown.judge_end(box, state, state.approval, full=False)
        judgement = teardown.by_records(by_state, full=False)
        if judgement.seen.existence is Existence.GONE:
            op.warn(teardown.gone_line(op, judgement))
            # Closed now: it leaves the state, and its queue and gate, whose deletes close it, too, may have left before
            # (a provider was killed). Those record what was lost, unless a later look may not learn this again.
            teardown.close(op, judgement, losses=bool(judgement.seen.note))
            return Gone()
        costs = teardown.with_costs(op, judgement.box, state, judgement.seen)
        line = teardown.lock_line(replace(judgement, box=box.about(costs)))
        if state.imported:
            line = imported.in_the_way(op.stack, state, op.urn)
        if (record := judgement.record) is None or record.phase is Phase.UNKNOWN:
            record = None  # the problem is said once, below
        else:  # a box is normally locked: no warning
            op.of_stack(line, warns=bool(judgement.seen.note))
            manual_end.follow_phase(op, box, state, record)
        run_or_stop.warn_of_clocks(op, box, state, answers=judgement.seen.existence is Existence.EXISTS)
        inputs = BoxInputs.model_validate(
            state.model_dump(include=set(BoxInputs.model_fields))
            | {"live": teardown.live_facts(judgement, state.teardown)}
        )
        if judgement is not by_state and judgement.verdict.allowed:
            # A delete would use the record. An `up` whose program has no such approval shows that, and takes it back.
            inputs = inputs.model_copy(update={"clearance": judgement.verdict.headline})
        if isinstance(box.platform, HasMarket):
            # The price comes from the offer. As an input, each preview would show it as a change.
            inputs = inputs.model_copy(update={"price_per_hour": None})
        if record is None:
            problem = judgement.seen.account_problem or judgement.seen.note
            words = f"UNKNOWN, {problem}; it may bill {waiting_cost(judgement.facts)}"
            return ReadAnswer(inputs, state, (f"box {state.name} ({state.native_id}): {words}",))
        now = state.model_copy(update={"phase": record.phase.value, **seen_of(record)})
        problem = drift.unwanted(box, state, record, judgement.seen)
        if not problem and policy_limits.is_stray(op, box, state.policy):
            problem = f"box {state.name}: its birth record names a policy that is not here; `pulumi up` mends that"
        birth = teardown.birth_of(box) if drift.price_now(box.platform, record) is not None else None
        drifted = drift.drift(state, box.platform, record, birth)
        if price := drifted.pop("price", ""):  # an update takes it into the books; nothing mends the others
            now = now.model_copy(update={"price_per_hour": record.price_per_hour})
        for words in drifted.values():
            op.warn(f"box {state.name} {words}")
        dearer = f"box {state.name} {price}" if price else ""
        return ReadAnswer(inputs, now, tuple(reason for reason in (problem, dearer) if reason))

    def update(self, op: Operation, identifier: str, old: BoxState, new: BoxInputs) -> BoxState:
        """Clears the box after a full check, stops or starts it as wanted, and waits until it is ready. A start costs
        money. Raises SweepstackError if the full check does not allow what the preview showed."""
        box = teardown.context_of(old)
        with error_context.naming(op, box.evidence, old.name):
            return self._update(op, box, old, new)

    def _update(self, op: Operation, box: BoxContext, old: BoxState, new: BoxInputs) -> BoxState:
        if old.imported and not new.imported:
            _, state = self._create(op, box.evidence, imported.take(op, box, old, new))
            imported.taken(box.store, old.name)
            return state
        given_up = new.approval.abandon if new.approval is not None else ()
        if not any(entry.native_id == old.native_id for entry in given_up):
            take_back(box.facts, "pulumi up", "the stack file does not give it up")
        store = records_to_write(op, box, old, new.approval)
        host_address_change.follow(op, store, old, new)
        old = old.model_copy(update={"adapter": new.adapter})
        box = BoxContext(box.facts, new.adapter, box.evidence)
        if store is None:
            pass  # no records to keep it in: the delete finds the approval in the state
        elif not new.clearance.startswith("cleared"):
            store.write_clearance(old.native_id, None)
        elif new.approval is not None:
            op.progress("reading every file of the receipt again")
            judgement = teardown.judge_end(box, old, new.approval, full=True, new=new)
            if not judgement.verdict.allowed:
                raise SweepstackError(
                    f"box {old.name} stays locked: {'; '.join(judgement.verdict.reasons)}. "
                    f"Next: sweepctl verify --stack {op.stack}"
                )
            keep_clearance(op, store, old, new.approval, judgement.verdict.way or "")
        price = old.price_per_hour if new.price_per_hour is None else new.price_per_hour
        state = BoxState.model_validate({**old.model_dump(), **new.model_dump(), "price_per_hour": price})
        box = box.about(BoxFacts.of(state))
        if store is not None and (new.policy != old.policy or policy_limits.is_stray(op, box, new.policy)):
            policy_limits.keep_birth(store, box, new.policy)
        if store is not None and (price != old.price_per_hour or drift.not_in_books(price, teardown.birth_of(box))):
            keep_price(store, state, running=old.phase == "running")
        bidding = new.bid is not None and new.bid != old.bid
        if bidding and new.bid is not None:
            need(box.platform, RentsSpot).change_bid(state.native_id, state.account, new.bid)
            op.info(f"box {state.name}: the bid is ${new.bid:.3f}/h now")
        try:
            record = self._converged(op, box, state, told=bidding, woken=run_or_stop.woken(old, new))
        except NoCapacity as error:
            if not bidding:
                raise
            # The bid has changed: the state says so, and the next up only has to start the box.
            raise StillCreating(state.native_id, outputs_of(state), [f"still outbid: {error}"]) from error
        if bidding and record.price_per_hour not in (None, state.price_per_hour):  # the bid is the price
            state = state.model_copy(update={"price_per_hour": record.price_per_hour})
            if store is not None:
                keep_price(store, state, running=record.phase is Phase.RUNNING)
        return state.model_copy(update={"phase": record.phase.value, **seen_of(record)})

    def delete(self, op: Operation, identifier: str, state: BoxState) -> None:
        """Asks the check, ends the box, and returns only when the platform proves that the native id is gone.

        Raises TeardownRefused, and then nothing was ended; NotYetGone when the end is not proved: then it may still
        bill.
        """
        imported.refuse_end(op, state)
        box = teardown.context_of(state)
        if manual_end.emptied(op, box, state):
            return
        asked = manual_end.asked_for(box, state)
        if asked is not None:  # it was allowed and asked for: only the proof is missing
            _prove_end(op, box, state, asked.way)
            return
        judgement = teardown.require_allowed(op, box, state)
        way = judgement.verdict.way or ""
        if way == "gone":
            return
        teardown.begin_teardown(judgement)
        teardown.keep_logs(op, judgement)
        if why := LOSSES.get(way):
            teardown.record_loss(op, judgement, why)
        if state.teardown.issue is not None:
            manual_end.hand_over(op, state, judgement, state.teardown.issue)
            return
        _prove_end(op, judgement.box, state, way)


def _prove_end(op: Operation, box: BoxContext, state: BoxState, way: str) -> None:
    """Ends a box whose end was allowed (`way`), and returns when the platform proves that it is gone. Raises
    NotYetGone."""
    platform, cost = box.platform, waiting_cost(box.facts)
    turn = Turn(f"{state.adapter} {state.account}", op.seconds(GONE_SECONDS))
    op.progress(f"{state.teardown.verb}: waiting for proof that {state.native_id} is gone")
    problem = _end(op, platform, state, turn)
    person = ""
    try:
        proved = platform.get(state.native_id, state.account).phase is Phase.GONE
    except PlatformError as error:
        proved, problem = False, str(error)
        if isinstance(error, Unproved):
            person = manual_end.ask_a_person(op, box, state, way)
    if not proved:
        again = f"pulumi destroy --stack {op.stack}"
        if way == "abandoned" and has_address(state.adapter):  # a host that is lost proves nothing any more
            confirm = manual_end.confirm_command(op.stack, state.name)
            again += f"; where that host is lost for good, before it: {confirm}"
        raise NotYetGone(
            f"box {state.name} ({state.native_id}): {state.teardown.verb} was asked for, but that it is gone is "
            f"not proved: {problem}. May still bill {cost}. Next: {again}{person}"
        )
    turn.done()
    warn_of_second_box(op, box, state)
    teardown.record_end(op, box, way)
    survives = ", ".join([*state.teardown.keeps, f"evidence at {state.evidence}"])
    op.info(f"box {state.name} is gone ({way}); {cost.split('; ')[-1]}; survives: {survives}")


def _end(op: Operation, platform: Platform, state: BoxState, turn: Turn) -> str:
    """Asks for the end of the box until its platform says that it is gone, it refuses, or time is up. Returns what was
    last in the way; whether the box is gone says the platform."""
    problem, pause = "the platform still lists it", POLL_SECONDS
    while turn.left():
        try:
            platform.destroy(state.native_id, state.account)
            turn.came()
            if platform.get(state.native_id, state.account).phase is Phase.GONE:
                break
        except (NotYetGone, OutcomeUnknown) as error:
            turn.came()
            if isinstance(error, NotYetGone) and error.within and str(error) != problem:
                turn.wait_for(error.within)
                pause = error.pause
                op.progress(f"{state.name}: {error}. The proof takes {error.within / 60:.0f} minutes at most")
            problem = str(error)
        except (RateLimited, DeadlineOver) as error:  # nothing was sent: other requests come first
            problem = str(error)
        except PlatformError as error:
            return str(error)
        if op.session.cancelled.wait(pause):
            return "the wait was cancelled"
    return problem


def rented_on_record(evidence: Evidence, old: BoxInputs) -> BoxState | None:
    """The state of the box behind these inputs, by its birth record; None if the records have no such box, or can't be
    read."""
    try:
        births = [birth for birth in evidence.store.births() if birth.box == old.name]
    except EvidenceError:
        return None
    birth = max(births, key=lambda birth: birth.generation, default=None)
    if birth is None or birth.native_id is None or birth.ended_at is not None:
        return None
    known = birth.model_dump(include={"native_id", "account", "generation", "tag", "created_at"})
    return BoxState(**old.model_dump() | known, phase="unknown")


def records_readable(evidence: Evidence) -> bool:
    """Whether the records can be read. If not, they don't prove that nothing is rented, and Check neither prices nor
    refuses anything: a box that is given up must get through, and Create reads the records itself."""
    try:
        evidence.store.births()
    except EvidenceError:
        return False
    return True


def keep_price(store: EvidenceStore, box: BoxState, *, running: bool) -> None:
    """Writes the box's new price into its records, since its queue may start it again at this price. `running`: also
    into the ledger, from now on."""
    birth = store.birth(box.name, box.generation)
    if birth is not None and birth.ended_at is None:
        store.write_birth(birth.model_copy(update={"price_per_hour": box.price_per_hour}))
        if running:
            charge(store, birth, box.native_id, "running", box.price_per_hour, datetime.now(UTC))


def records_to_write(
    op: Operation, box: BoxContext, state: BoxState, approval: Approval | None
) -> EvidenceStore | None:
    """The evidence to write to. None if it can't be opened and the box was given up by name: only such a box may end
    without evidence. Raises EvidenceError for any other box."""
    try:
        return box.store
    except EvidenceError as error:
        if teardown.judge_end(box, state, approval, full=True).verdict.way != "abandoned":
            raise
        op.warn(f"box {state.name}: {error}. It was given up by name, so it may end without evidence")
        return None


def keep_clearance(op: Operation, store: EvidenceStore, box: BoxState, approval: Approval, way: str) -> None:
    """Writes the clearance into the evidence. If that fails, raises EvidenceError; for a box that was given up by name
    it only warns, since such a box may end without evidence."""
    try:
        store.write_clearance(box.native_id, approval)
    except EvidenceError as error:
        if way != "abandoned":
            raise
        op.warn(f"box {box.name}: the abandonment is kept in the state alone, the evidence can't be written: {error}")


def warn_of_second_box(op: Operation, box: BoxContext, state: BoxState) -> None:
    """Names the other boxes that carry this box's tag. Asks for one list for all boxes of a sweep. Never raises for an
    outage."""
    for record in _beside(box, state):
        price = "" if record.price_per_hour is None else f" ${spell_rate(record.price_per_hour)}/h"
        op.warn(
            f"box {state.name}: a second box carries its tag, {record.native_id} on {state.adapter} ({record.phase}), "
            f"and may bill{price}; {state.native_id} is the one in the state. End the second: "
            f"sweepctl audit --end {state.adapter}:{record.native_id}"
        )


def _beside(box: BoxContext, state: BoxState) -> list[BoxRecord]:
    platform = box.platform
    if not isinstance(platform, HasMarket):
        return []  # only on a market can a second box get the tag
    try:
        listed = platform.list_tagged(tag_prefix(state.identity))
    except PlatformError:
        return []  # the look at the box itself reports the outage
    return [
        record
        for record in listed
        if record.tag == state.tag
        and record.native_id != state.native_id
        and record.phase not in (Phase.GONE, Phase.ENDING)
    ]


_lock = threading.Lock()
_moved: dict[str, float] = {}
"""Platform and account → when one of its boxes last had its turn, or was done (monotonic)."""


class Turn:
    """One box's place in line. `line`: platform and account, whose requests count together; `seconds`: the deadline,
    from the box's turn on."""

    def __init__(self, line: str, seconds: float) -> None:
        self._line = line
        self._seconds = seconds
        self._begin = time.monotonic()
        self._came = False

    def came(self) -> None:
        """The platform has accepted the delete: from the first call on the deadline is this box's own."""
        if not self._came:
            self._came = True
            self._begin = self._move()

    def wait_for(self, seconds: float) -> None:
        """The platform needs so many seconds for its proof: the deadline is no earlier."""
        self._seconds = max(self._seconds, seconds)

    def done(self) -> None:
        """This box is gone, so the line moves."""
        self._move()

    def left(self) -> float:
        """Seconds left; 0 when the wait is over."""
        with _lock:
            moved = self._begin if self._came else max(self._begin, _moved.get(self._line, self._begin))
        return max(0.0, moved + self._seconds - time.monotonic())

    def _move(self) -> float:
        with _lock:
            _moved[self._line] = now = time.monotonic()
        return now


def recipe(judgement: Judgement, old: BoxInputs, new: BoxInputs, changed: Sequence[str], *, stack: str) -> str:
    """The commands by which the cells move, as lines of text, with the costs as far as they were measured."""
    if set(changed) - {"resources"} or new.pods is not None:  # what pods ask for is no resource of the box
        why = "in this version all boxes of a sweep are on one platform and mount the same volume"
        return (
            f"To move: undo it and end this sweep here (sweepctl finish --stack {stack}), or begin beside it there "
            f"(sweepctl init NAME): {why if new.pods is None else 'this is the storage on which the box lies'}"
        )
    name = free_name(old, judgement.box.evidence)
    wanted = _flow({"want": "running", "resources": new.resources})
    cells = judgement.seen.journal.cells if judgement.seen.journal else {}
    lines = [line.name for line in judgement.verdict.cells]
    waiting = [cell for cell in lines if not started(cells.get(cell))]
    staying = [cell for cell in lines if started(cells.get(cell)) and not _ended(cells[cell])]
    moving = count(len(waiting), "cell")
    rows = [
        "To move instead:",
        f"  1. undo the change, and add below boxes:   {name}: {wanted}",
        f"  2. pulumi up --stack {stack}    (of {moving} not started, {name}'s share moves; what started stays)",
        f"  3. sweepctl wait --stack {stack} done && sweepctl finish --stack {stack} --box {old.name}",
        f"  costs     {_cost(judgement, staying)}",
        "  again     nothing that is sealed is trained or copied again; code and set-up are shipped to the new box",
    ]
    return "\n".join(rows)


def free_name(old: BoxInputs, evidence: Evidence) -> str:
    """A name that no box of this sweep ever had."""
    try:
        taken = {birth.box for birth in evidence.store.births()}
    except EvidenceError:
        taken = {old.name}
    stem = old.name[:36].rstrip("-")
    return next(name for number in range(2, 10_000) if (name := f"{stem}-{number}") not in taken)


def _cost(judgement: Judgement, staying: Sequence[str]) -> str:
    """What the old box costs until its own cells are done. If something is not known, it says so."""
    price, box = judgement.facts.price_per_hour, judgement.facts.name
    if not staying:
        return f"{box} has no cell at work, so it can end at once"
    cells = "its started cell is" if len(staying) == 1 else f"its {len(staying)} started cells are"
    what = f"{box} bills on until {cells} done"
    hours = _hours_left(judgement.seen.journal, staying, judgement.seen.skew)
    rate = "at a price that is not on record" if price is None else f"at ${spell_rate(price)}/h"
    if hours is None:
        return f"{what}, {rate}; how long is not known: no cell was sealed here yet"
    total = "" if price is None else f", ${hours * price:.2f} in all"
    return f"{what}, {rate}, about {hours:.2f} h by the median of its sealed cells{total}"


def _hours_left(journal: Journal | None, staying: Sequence[str], skew: float) -> float | None:
    """Hours until the last of the started cells is done, as if they ran side by side; None if no cell was sealed to
    measure by."""
    if journal is None:
        return None
    took = [
        (cell.ended_at - cell.started_at).total_seconds()
        for cell in journal.cells.values()
        if cell.state == "sealed" and cell.ended_at is not None and cell.started_at is not None
    ]
    if not took:
        return None
    now, median = datetime.now(UTC) + timedelta(seconds=skew), statistics.median(took)
    begun = [journal.cells[name].started_at for name in staying]
    left = [median - (now - at).total_seconds() for at in begun if at is not None]
    return max([0.0, *left]) / 3600


def _ended(progress: CellProgress) -> bool:
    return progress.state in ("sealed", "dropped") or progress.final


def _flow(value: Any) -> str:
    """The value as one line of YAML that a person can paste."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) and value.replace("-", "").isalnum() else json.dumps(value)
