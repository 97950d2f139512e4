"""What was read of a box before our stop stands for it, so that it need not be started to end.

A stopped box of a rental platform can't be read. `operations.power` reads it once more before a stop: journal and files
in one look, after its runner had ended (`Look`). That look counts only as long as nothing can have changed the box
since. Each of these must be proved, and what is not known counts as changed (docs/adr/021):

- our stop is what ended it: the look is on record, named by the record of that stop, and its bytes are those;
- it is of this very box, and its journal is the copy that the evidence has;
- the platform tells when it last started the box, and that is the start of which the look was made;
- the queue was given nothing since.

Which receipt may end it then is `receipt_check`'s: the one that names this journal's head, and no earlier one.
"""

from __future__ import annotations

from dataclasses import replace

from sweepstack.core.journal import Journal
from sweepstack.core.journal_copy import Look
from sweepstack.core.observation import Existence, Observation
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import on_record
from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged
from sweepstack.teardown.box_context import BoxFacts

UNTOLD = "its platform does not tell when it last started it, so what ran there since its stop is not known"


def as_it_rested(store: EvidenceStore, facts: BoxFacts, seen: Observation) -> Observation:
    """`seen` with journal and files of the look before our stop, and `kept_at`; or `seen` with a note why that look
    does not count. Unchanged for a box that is not stopped, or that was read. Never raises."""
    if seen.existence is not Existence.EXISTS or not seen.stopped or seen.journal is not None:
        return seen
    try:
        look, journal = _counts(store, facts, seen)
    except (EvidenceError, JournalDamaged) as error:
        return replace(seen, note="; ".join(filter(None, (seen.note, str(error)))))
    return replace(
        seen,
        journal=journal,
        runner_alive=False,
        listing=Listing(look.files, look.problem),
        evidence_on=look.evidence_on,
        kept_at=look.at,
    )


def _counts(store: EvidenceStore, facts: BoxFacts, seen: Observation) -> tuple[Look, Journal]:
    """The look, and the journal that it read. Raises EvidenceError with the reason why it does not count."""
    rest, journal = store.rest(facts.name, facts.generation), store.journal(facts.name, facts.generation)
    if rest is None or journal is None or not rest.speaks_for(facts.native_id, journal):
        raise EvidenceError("sweepstack did not stop it, or something was started there since its journal was copied")
    if seen.started_at is None:
        raise EvidenceError(UNTOLD)
    look = store.look(rest)
    if look is None:
        raise EvidenceError("it was not read in one look between the end of its runner and its stop")
    if (look.box, look.generation, look.native_id) != (facts.name, facts.generation, facts.native_id):
        raise EvidenceError(f"the look on record is of {look.box} ({look.native_id})")
    if look.head != journal.head:
        raise EvidenceError("the look on record read another journal than the copy that is here")
    if look.started_at != seen.started_at:
        raise EvidenceError(f"it was started at {seen.started_at:%Y-%m-%d %H:%M} UTC, and that start was not looked at")
    if look.queued != queued(store, facts.name, facts.generation):
        raise EvidenceError("its queue, or a retry of its cells, was changed after it was read")
    return look, journal


def queued(store: EvidenceStore, box: str, generation: int) -> str:
    """The digest of all that the queue of a box was given: its cells, and how often a person asked for each again.
    Raises EvidenceError."""
    launch = store.launch(box, generation)
    cells = launch.cells if launch is not None else {}
    retries = {name: retry.model_dump(mode="json") for name, retry in on_record(store).items() if name in cells}
    return digest_of({"launch": launch.model_dump(mode="json") if launch is not None else None, "retries": retries})
