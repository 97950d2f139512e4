"""Closing the books of one box: its birth record, its bill, and the teardown when it was the last one of it."""

from __future__ import annotations

from datetime import UTC, datetime

from sweep.errors import EvidenceError
from sweep.evidence.store import EvidenceStore
from sweep.handover import handover_of
from sweep.model import Teardown
from sweep.money.ledger import record_phase


def close_books(store: EvidenceStore, *, box: str, generation: int, native_id: str, how: str, at: datetime) -> None:
    """Writes down that it ended, `at`, and `how`. Idempotent; what stands there already stays, as does the record of
    another native id. Raises EvidenceError."""
    birth = store.birth(box, generation)
    if birth is not None and birth.ended_at is None and birth.native_id in (None, native_id):
        store.write_birth(birth.model_copy(update={"ended_at": at, "ended_how": how}))
        record_phase(
            store,
            box=box,
            native_id=native_id,
            platform=birth.platform,
            account=birth.account,
            phase="ended",
            price_per_hour=0.0,
            at=at,
            how=how,
        )

    def ended(open_one: Teardown | None) -> Teardown | None:
        if open_one is None or native_id not in open_one.native_ids:
            return open_one
        done = tuple(sorted({*open_one.ended, native_id}))
        closed = set(done) >= set(open_one.native_ids)
        return None if closed else open_one.model_copy(update={"ended": done})

    store.update_teardown(ended)


def close_gone(store: EvidenceStore, *, box: str, generation: int, native_id: str) -> None:
    """The same for a box that is proved gone: it ended when its handover says so, where there is one, and else now.
    Idempotent. Raises EvidenceError."""
    try:
        known = handover_of(store, native_id)
    except EvidenceError:  # damaged: that it is gone was proved without it
        known = None
    how, at = "gone", datetime.now(UTC)
    if known is not None and known.confirmed is not None:
        how, at = f"confirmed by {known.confirmed.by}", known.confirmed.at
    elif known is not None and known.over(native_id):
        how, at = known.native, known.silent_at or at
    close_books(store, box=box, generation=generation, native_id=native_id, how=how, at=at)
