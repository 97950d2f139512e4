"""The approvals of an end that the evidence has on record, for what no state has any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.teardown.approval import Subject, gives_up, judge_approval

if TYPE_CHECKING:
    from sweepstack.teardown.policy_in_force import Binding


def approvals_on_record(
    stores: Iterable[EvidenceStore],
    native_id: str,
    verb: str,
    binds: Sequence[Binding],
    *,
    given_up: bool,
    now: datetime,
) -> list[Approval]:
    """Those that hold now, also by the policies that bind (`binds`), and are for this very end. `given_up`: only those
    that abandon it: who signed that it may end once all is verified did not sign that it may be lost. Raises nothing:
    what can't be read is none."""
    standing = []
    for store in stores:
        subject = Subject("box", "", native_id, verb, SweepName(project="", stack="", identity=store.marker.identity))
        try:
            found = store.clearance(native_id)
        except EvidenceError:
            continue
        if found is None or (given_up and not gives_up(subject, found)):
            continue
        if not judge_approval(subject, found, store, lambda: binds, now=now).problems:
            standing.append(found)
    return standing
