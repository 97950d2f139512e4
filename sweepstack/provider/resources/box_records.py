"""Reads and writes the records of one box, for its Check and its Update."""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.core.records import Approval
from sweepstack.evidence.lazy import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.provider.models import BoxInputs, BoxState
from sweepstack.provider.resources import teardown
from sweepstack.provider.resources.create import charge
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext


def rented(evidence: Evidence, old: BoxInputs) -> BoxState | None:
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


def readable(evidence: Evidence) -> bool:
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


def to_write(op: Operation, box: BoxContext, state: BoxState, approval: Approval | None) -> EvidenceStore | None:
    """The evidence to write to. None if it can't be opened and the box was given up by name: only such a box may end
    without evidence. Raises EvidenceError for any other box."""
    try:
        return box.store
    except EvidenceError as error:
        if teardown.judge(box, state, approval, full=True).verdict.way != "abandoned":
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
