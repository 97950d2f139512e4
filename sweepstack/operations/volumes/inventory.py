"""What is on volumes by the records, made to be shown to a person before their end is approved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sweepstack.core.records import Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged
from sweepstack.operations.volumes.end_check import VolumeFacts, launched_on
from sweepstack.operations.volumes.records import Inventory, Use
from sweepstack.operations.volumes.users import Survey, User, births_on


def take_inventory(
    identity: str, volumes: Iterable[VolumeFacts], survey: Survey, said: Mapping[str, Approval]
) -> Inventory:
    """Every user of these volumes with its latest receipt, and the cells that a person has waived for that receipt.

    `said`: stack → the approval in its stack file. A user whose evidence can't be read is listed without a receipt, so
    that the check names it. Reads only.
    """
    return Inventory(
        identity=identity,
        volumes={
            facts.native_id: tuple(
                _use(user, facts.native_id, said.get(user.stack)) for user in survey.of(facts.native_id)
            )
            for facts in volumes
        },
    )


def _use(user: User, native_id: str, said: Approval | None) -> Use:
    known = Use(stack=user.stack, identity=user.identity, evidence=user.evidence)
    try:
        store = user.at.store
        digest = store.latest_receipt()
        if digest is None or not launched_on(user, native_id)[0]:
            return known
        receipt = store.receipt(digest)
        words = [word for word in (said, *_clearances(store, user, native_id)) if word is not None]
    except (EvidenceError, JournalDamaged):
        return known
    waived = {
        waiver.cell: waiver.reason
        for word in words
        if word.receipt == digest
        and word.waivers_digest == Approval.digest_waivers(word.waive, word.abandon, word.unclaimed)
        for waiver in word.waive
    }
    return known.model_copy(
        update={"receipt": digest, "verified": receipt.verified, "total": receipt.total, "waived": waived}
    )


def _clearances(store: EvidenceStore, user: User, native_id: str) -> Iterator[Approval | None]:
    """What the boxes that mounted the volume were ended with."""
    for birth in births_on(user, native_id):
        if birth.native_id is not None:
            yield store.clearance(birth.native_id)
