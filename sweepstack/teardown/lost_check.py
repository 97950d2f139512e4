"""Whether anything is lost with a box that a person calls gone, and that can't be asked any more."""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.core.observation import Existence, Observation
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged
from sweepstack.teardown.abandonment import VERB
from sweepstack.teardown.approvals_on_record import approvals_on_record
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.box_facts import BoxFacts
from sweepstack.teardown.launched import signs_of_a_launch
from sweepstack.teardown.policy_check import binds, orphan_problems
from sweepstack.teardown.receipt_check import latest_problems


def not_proved_here(box: BoxContext) -> list[str]:
    """Why the box is not let go without an abandonment; empty if every cell that it was given is verified by the latest
    receipt, and the box had ended what the copy of its journal says, or if it was never given one. Reads every file of
    the receipt again. Raises nothing."""
    try:
        store, facts = box.store, box.facts
        problems = _not_here(store, facts)
        bound, now = binds(facts, store), datetime.now(UTC)
        given = approvals_on_record([store], facts.native_id, VERB, bound, given_up=False, now=now)
    except (EvidenceError, JournalDamaged) as error:
        return [str(error)]
    refused = orphan_problems(bound, facts.identity, given, given_up=False, now=now)
    return [*problems, *refused]


def _not_here(store: EvidenceStore, facts: BoxFacts) -> list[str]:
    launch = store.launch(facts.name, facts.generation)
    if launch is None or launch.native_id != facts.native_id:
        return signs_of_a_launch(store, facts.name, facts.generation, facts.native_id)
    digest, journal = store.latest_receipt(), store.journal(facts.name, facts.generation)
    if digest is None or journal is None:
        return ["its cells were never verified here"]
    seen = Observation(Existence.EXISTS, journal, runner_alive=False)
    return latest_problems(store, facts, digest, launch, seen, full=True)
