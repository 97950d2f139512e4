"""Identity: the random name of a sweep and the location of its evidence, made before any box."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from sweepstack.core.observation import Existence
from sweepstack.core.records import Birth
from sweepstack.core.resources import IdentityInputs, IdentityState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.publish import succession_problem
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import elsewhere_words, held_elsewhere, take_lease
from sweepstack.onbox.common.box_layout import box_tag
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, StillCreating, SweepstackError, TeardownRefused
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.operations.observe import look_up, made_by, rented_at
from sweepstack.provider.resources import before_renting, policy_limits, teardown, volume, want_gone
from sweepstack.provider.resources.base import Checked, Decision, Failure, Gone, Handler, ReadAnswer
from sweepstack.provider.resources.create import never_rented
from sweepstack.provider.resources.founding import evidence_of, founded, move_problem, place_problem
from sweepstack.provider.session import Operation
from sweepstack.status.engine.state import read_state
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.refusal import seen_ended


class IdentityHandler(Handler[IdentityInputs, IdentityState]):
    """Leaves nothing behind that bills: its delete refuses while the records name a box that may still run."""

    token = "sweepstack:index:Identity"
    inputs_type = IdentityInputs
    state_type = IdentityState
    decisions: ClassVar[dict[str, Decision]] = {
        "project": Decision.REFUSE,
        "stack": Decision.REFUSE,
        "pull_to": Decision.UPDATE,
        "leaving": Decision.UPDATE,
        "roster_digest": Decision.IGNORE,
        "artifacts_digest": Decision.IGNORE,
        "budget": Decision.UPDATE,
        "outlook": Decision.IGNORE,
        "search": Decision.UPDATE,
        "clearances": Decision.UPDATE,
        "policy": Decision.UPDATE,
    }

    def check(self, op: Operation, old: IdentityInputs | None, new: IdentityInputs) -> Checked[IdentityInputs]:
        problem = place_problem(op, new.pull_to, ask=old is None)
        if old is not None and not problem:
            problem = move_problem(op, old, new)
        if problem:
            return Checked(new, [Failure("pull_to", problem)])
        new, failures = self._under_policy(op, old, new)
        if failures:
            return Checked(new, failures)
        if new.budget is not None and new.outlook is not None:
            before_renting.say_budget(op, Evidence(evidence_of(op, new.pull_to)), new.budget, new.outlook)
        if new.search is not None:
            from sweepstack.config.search import search_words  # with the shapes of a stack file, for few sweeps

            op.info(search_words(new.search, new.budget))
        if old is None or new.leaving is None:
            return Checked(new)
        judged = want_gone.judge_leaving(Evidence(evidence_of(op, new.pull_to)), new.leaving, _rules(new), full=False)
        words = {judgement.facts.name: judgement.verdict.headline for judgement in judged}
        words |= volume.leaving_words(new.leaving)
        return Checked(new.model_copy(update={"clearances": words}))

    def _under_policy(
        self, op: Operation, old: IdentityInputs | None, new: IdentityInputs
    ) -> tuple[IdentityInputs, list[Failure]]:
        """The inputs with the policy that binds, and what it has against a new place or a budget that is taken out.
        Says why the file does not count, once for all resources."""
        place = evidence_of(op, new.pull_to)
        before = old.policy if old is not None else None
        now = policy_limits.bound(op, Evidence(place), before)
        policy_limits.seen_identity(op)
        for note in now.notes:
            op.warn(note)
        failures = [Failure("policy", now.file_problem)] if now.file_problem else []
        if old is None and (why := policy_limits.without_text(Evidence(place), now.copy)):
            failures.append(Failure("policy", why))
        for rule in now.rules:
            if old is None or old.pull_to != new.pull_to:
                failures += policy_limits.place_problems(rule, place, "pull_to")
            if old is not None and old.budget is not None:
                failures += policy_limits.budget_problems(rule, new.budget)
        return new.model_copy(update={"policy": now.copy}), failures

    def refusal(self, name: str, old: IdentityInputs, new: IdentityInputs) -> str:
        if name == "stack":
            return (
                f"this sweep is {old.stack}, as its evidence and the tags of its boxes say, and keeps that name. Next: "
                f"pulumi stack rename {old.stack} --stack {new.stack}    (back again); the next sweep may be called "
                f"{new.stack}, with a pull_to of its own"
            )
        if name == "project":
            return f"this sweep is of the project {old.project}. Next: name: {old.project} again in Pulumi.yaml"
        return super().refusal(name, old, new)

    def create(self, op: Operation, inputs: IdentityInputs) -> tuple[str, IdentityState]:
        """Makes a new name, or takes the one that the evidence already has: a sweep comes back to its own evidence.

        If another backend's state holds the sweep, raises StillCreating: this state then keeps only the name, so that
        its destroy can say what bills.
        """
        store, evidence, earlier = founded(op, inputs.project, inputs.stack, inputs.pull_to)
        identity = store.marker.identity
        made = IdentityState(**inputs.model_dump(), identity=identity, evidence=evidence)
        held = held_elsewhere(store)
        if held is not None:
            raise StillCreating(identity, made.model_dump(mode="json"), [elsewhere_words(held, inputs.stack)])
        take_lease(store)
        before_renting.keep_budget(Evidence(evidence), inputs.budget)
        if earlier:
            op.info(f"{evidence} holds this sweep's earlier evidence: what is verified there stays verified")
        return identity, made

    def read(
        self, op: Operation, identifier: str, state: IdentityState
    ) -> ReadAnswer[IdentityInputs, IdentityState] | Gone:
        try:
            store = Evidence(state.evidence).store
            held = held_elsewhere(store)
            if held is not None:
                op.warn(f"{op.stack}: {elsewhere_words(held, op.stack)}")
        except EvidenceError as error:
            op.warn(f"{op.stack}: {error}")
        op.survives(f"the evidence survives a destroy, at {state.evidence}")
        inputs = IdentityInputs.model_validate(state.model_dump(include=set(IdentityInputs.model_fields)))
        return ReadAnswer(inputs, state)

    def update(self, op: Operation, identifier: str, old: IdentityState, new: IdentityInputs) -> IdentityState:
        """Clears the boxes that leave the program with this change; their deletes come later, and check again.

        Follows the evidence to where it was published. Raises SweepstackError if not all of it is there, or if one of
        the boxes may not end.
        """
        evidence = Evidence(old.evidence)
        self._require_ours(evidence, op.stack)
        if new.pull_to != old.pull_to and (there := evidence_of(op, new.pull_to)) != old.evidence:
            problem = succession_problem(old.evidence, there, old.identity)
            if problem:
                raise SweepstackError(f"pull_to: {problem}")
            op.info(f"the evidence is in {there} from now on")
            evidence = Evidence(there)
        if old.leaving is not None:
            want_gone.take_back(evidence, old.leaving, new.leaving)
        if new.leaving is not None:
            want_gone.clear(op, evidence, new.leaving, _rules(new))
            volume.clear_leaving(evidence, new.leaving)
        if new.budget != old.budget:
            before_renting.keep_budget(evidence, new.budget)
        return IdentityState(**new.model_dump(), identity=old.identity, evidence=evidence.uri)

    def _require_ours(self, evidence: Evidence, stack: str) -> None:
        """Raises SweepstackError if another backend's state holds the sweep. Raises nothing if no backend does, or if
        the evidence can't be read."""
        try:
            store = evidence.store
            if store.lease() is None:
                return
            held = held_elsewhere(store)
        except EvidenceError:
            return  # the steps that need the records report it
        if held is not None:
            raise SweepstackError(elsewhere_words(held, stack))

    def preview_outputs(self, op: Operation, old_outputs: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        there = {"evidence": evidence_of(op, str(news["pull_to"]))}
        return {**old_outputs, **news, **({} if news.get("pull_to") == old_outputs.get("pull_to") else there)}

    def delete(self, op: Operation, identifier: str, state: IdentityState) -> None:
        try:
            store = Evidence(state.evidence).store
        except EvidenceError as error:
            # The boxes' own deletes came first and were checked one by one; only the records are out of reach.
            op.warn(f"{op.stack}: the records could not be closed: {error}")
            return
        held = None
        births: list[Birth] = []
        with contextlib.suppress(EvidenceError):
            held = held_elsewhere(store)
        try:
            births, damaged = store.readable("births", Birth)
            try:
                require_nothing_bills(op, store, births, damaged, elsewhere_words(held, op.stack) if held else "")
            except TeardownRefused:
                if not goes_on(op, state.identity):
                    raise
                op.info(f"{op.stack}: another entry of the state goes on with the sweep; this one ends nothing")
                return
        except EvidenceError as error:
            op.warn(f"{op.stack}: the records could not be read: {error}")
        if held is not None:
            op.info(f"{op.stack}: its records are left to the state in {held.backend}, which holds the sweep")
            return
        _close_gone(op, state, births)
        try:
            store.write_teardown(None)
            store.release_lease()
        except EvidenceError as error:
            op.warn(f"{op.stack}: the records could not be closed: {error}")
        op.info(
            f"evidence stays at {state.evidence}. `pulumi stack rm {op.stack}` would delete the stack file, too: with "
            "--preserve-config it stays"
        )


def _close_gone(op: Operation, state: IdentityState, births: Sequence[Birth]) -> None:
    """Closes what is still open of boxes that are proved gone: nothing of the state is left that would do it later.
    What is not known stays open."""
    for birth in births:
        if birth.ended_at is None and birth.native_id is not None:
            evidence = Evidence(state.evidence)
            judged = want_gone.judge_birth(evidence, birth, birth.native_id, None, _rules(state), full=False)
            if judged.seen.existence is Existence.GONE:
                teardown.close(op, judged)


def _rules(inputs: IdentityInputs) -> want_gone.Rules:
    return want_gone.Rules(inputs.roster_digest or "", inputs.artifacts_digest, inputs.policy)


def goes_on(op: Operation, identity: str) -> bool:
    """Whether the state has another entry of this sweep, whose delete will check again: this one was replaced (`pulumi
    up --replace`), and the engine deletes the old entry. Asks the engine for its state."""
    try:
        found = read_state(op.stack, op.session.project_root).identities
    except SweepstackError:
        return False
    ours = [entry for entry in found if entry.identity == identity]
    return len(ours) > 1 and any(not entry.to_delete for entry in ours)


def require_nothing_bills(
    op: Operation,
    store: EvidenceStore,
    births: Sequence[Birth],
    damaged: Sequence[tuple[str, str]],
    held: str = "",
) -> None:
    """Raises TeardownRefused while a box on record is not proved gone.

    If a birth record can't be read, the ledger says what was rented under its name. If all of that is proved gone, a
    warning says so, and the sweep may end. `held`: says that another backend's state holds the sweep, and the ways out.
    """
    living = [line for birth in births if (line := may_still_bill(birth))]
    if living:
        raise TeardownRefused(
            "REFUSED. The records name what this state does not:\n"
            + "\n".join(living)
            + (f"\n{held}" if held else f"\n{_way_out(op, births, living)}")
        )
    entries = store.ledger()[0] if damaged else []
    for name, why in damaged:
        box, _, generation = name.removesuffix(".json").rpartition("-g")
        of_box: dict[tuple[str, str, str], bool] = {}
        for entry in entries:
            if entry.box == box:
                whose = (entry.platform, entry.account, entry.native_id)
                paid = entry.phase != "ended" and rented_at(entry.price_per_hour)
                of_box[whose] = of_box.get(whose, False) or paid
        tag = box_tag(store.marker.identity, box, int(generation)) if generation.isdigit() else ""
        bills = [line for known, paid in sorted(of_box.items()) if (line := _may_bill(box, tag, *known, rented=paid))]
        if bills or not of_box:
            said = "\n".join(bills) or f"box {box}: the ledger names nothing that was rented for it"
            raise TeardownRefused(
                f"REFUSED. A record of what was rented does not read: {why}\n{said}\n"
                f"next  sweepctl audit    (what runs and bills; once that is ended, move the record away, and "
                f"pulumi destroy --stack {op.stack})"
            )
        op.warn(f"{why}; all that the ledger names of box {box} is proved gone, so the sweep ends without it")


def _way_out(op: Operation, births: Sequence[Birth], living: Sequence[str]) -> str:
    """The next command if the records name what the state does not."""
    asked = [b for b in births if b.ended_at is None and b.native_id is None and b.asked_at is not None]
    if len(asked) < len(living):
        ways = [seen_ended(op.stack, b.box, b.platform) for b in births if b.ended_at is None and b.native_id]
        over = "".join(f"\nover  {way}" for way in ways if way)
        return f"next  pulumi up --stack {op.stack}    (adopts it by its tag; then finish){over}"
    late = max((b.shown_by for b in asked if b.shown_by is not None), default=None)
    when = f" at {late:%H:%M:%S} UTC or later" if late is not None and datetime.now(UTC) < late else ""
    words = " && ".join(never_rented(op.stack, b.box) for b in asked)
    return f"next  {words} && pulumi destroy --stack {op.stack}    (if the console does not show it{when})"


def _may_bill(box: str, tag: str, adapter: str, account: str, native_id: str, *, rented: bool) -> str:
    """As `may_still_bill`, by the ledger. Also looks for a box with the tag of the record that can't be read. `rented`:
    it cost something."""
    try:
        platform = BoxAt(adapter, native_id, account).platform
        record = look_up(platform, native_id, account, rented=rented)
        if record.phase is not Phase.GONE:
            return f"box {box}: {native_id} on {adapter} {_still(record)}"
        found = platform.find_by_tag(tag, account) if tag else None
    except PlatformError as error:
        return f"box {box}: {native_id} on {adapter} may still bill: {error}"
    return f"box {box}: {found.native_id} on {adapter} carries its tag" if found else ""


def may_still_bill(birth: Birth) -> str:
    """One line if the box of this record is not proved gone; "" if it is. If no answer to its create came, looks for
    its tag."""
    if birth.ended_at is not None:
        return ""
    try:
        if birth.native_id is None:
            found, proved = made_by(birth)
            if not proved:
                return (
                    f"box {birth.box}: {birth.tag} was asked for on {birth.platform}, and its answer lost: it may bill"
                )
            return f"box {birth.box}: {found.native_id} was rented and its answer lost" if found else ""
        platform = BoxAt.of(birth).platform
        record = look_up(platform, birth.native_id, birth.account, rented=rented_at(birth.price_per_hour))
        if record.phase is Phase.GONE:
            return ""
    except PlatformError as error:
        return f"box {birth.box}: {birth.native_id or birth.tag} on {birth.platform} may still bill: {error}"
    price = "" if birth.price_per_hour is None else f", ${spell_rate(birth.price_per_hour)}/h"
    return f"box {birth.box}: {birth.native_id} on {birth.platform} {_still(record)}{price}"


def _still(record: BoxRecord) -> str:
    if record.phase is Phase.UNKNOWN:
        return f"may still run, and whether it has ended is not known: {record.note}"
    return f"bills on: {record.note}" if record.emptied else "still exists"
