"""The approvals of an end that the evidence has on record, for what no state has any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from sweepstack.core.records import Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.teardown.revocation import revocation_problem


def approvals_on_record(
    stores: Iterable[EvidenceStore], native_id: str, verb: str, *, given_up: bool, now: datetime
) -> list[Approval]:
    """Those that hold now and are for this very end. `given_up`: only those that abandon it: who signed that it may end
    once all is verified did not sign that it may be lost. Raises nothing: what can't be read is none."""
    return [
        found
        for found in _standing(stores, native_id, verb, now)
        if not given_up or any((entry.verb, entry.native_id) == (verb, native_id) for entry in found.abandon)
    ]


def _standing(stores: Iterable[EvidenceStore], native_id: str, verb: str, now: datetime) -> Iterator[Approval]:
    for store in stores:
        try:
            found = store.clearance(native_id)
            if found is None or _is_for_another(found, native_id, verb) or now >= found.ends:
                continue
            if not revocation_problem(store, found):
                yield found
        except EvidenceError:
            continue


def _is_for_another(approval: Approval, native_id: str, verb: str) -> bool:
    """Whether the approval is for another box, volume or verb, or was edited."""
    edited = approval.waivers_digest != Approval.digest_waivers(approval.waive, approval.abandon, approval.unclaimed)
    return edited or not any((one.verb, one.native_id) == (verb, native_id) for one in approval.actions)
