"""`sweepctl revoke`: takes all approvals back that were given until now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

from sweepstack.cli.options import AsJson, Stack
from sweepstack.cli.output import UNSURE, YES, Out
from sweepstack.core.local_decisions import REVOKED_ALL, TAKEN_BACK, Decision, record_decision
from sweepstack.core.records import Approval, Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target, approval_of
from sweepstack.status.engine.state import StackState
from sweepstack.teardown.ownership import who
from sweepstack.teardown.revocation import write_revocation


def command(stack: Stack = None, json: AsJson = False) -> int:
    """Take back every approval that was given until now. None of them ends anything any more."""
    return revoke_approvals(Target.find(stack), Out(as_json=json))


@dataclass(frozen=True)
class _Records:
    """The evidence, where the revocation is recorded, and the engine's state, as far as they can be read."""

    store: EvidenceStore | None
    state: StackState
    problem: str = ""


def revoke_approvals(target: Target, out: Out) -> int:
    """Records that every approval given until now no longer counts, and removes it from the stack file.

    The record is written first: a running teardown reads it before its next step.
    """
    records = _open(target)
    now = datetime.now(UTC)
    problem, closed = _close_records(target, records, now)
    here = _named(records)
    try:
        for native_id, line in here.items():
            by = who()
            record_decision(
                line.model_copy(update={"native_id": native_id, "stack": target.stack, "by": by, "at": now})
            )
    except SweepstackError as error:
        here, problem = {}, "; ".join(filter(None, (problem, str(error))))
    removed = target.file.write_approval(None) if target.file.path.exists() else False
    following = [f"pulumi up --stack {target.stack}    (locks again)"]
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "removed": removed,
            "revoked": not problem,
            "teardown_closed": closed,
            "problem": problem or None,
            "next": following,
        }
    )
    out.line(f"{target.file.shown}: {'the approval is removed' if removed else 'there was no approval'}")
    if not problem:
        out.line("on record as revoked: approvals given until now end nothing any more, not even in a running teardown")
    if closed:
        out.line("the open teardown is closed: the sweep may go on")
    if problem:
        out.line(f"UNKNOWN the revocation could not be recorded: {problem}", style="yellow")
        where = "on another computer " if here else ""
        out.line(
            f"        {where}`pulumi destroy` obeys the approval in the engine's state until `pulumi up` removes it"
        )
    out.next(following)
    return UNSURE if problem else YES


def _open(target: Target) -> _Records:
    try:
        sources = open_sources(target)
        return _Records(sources.store, sources.state, sources.problem)
    except SweepstackError as error:  # the evidence can be found without the backend
        state, problem = StackState(stack=target.stack), str(error)
    try:
        evidence = target.likely_evidence()
        store = EvidenceStore.open(evidence) if evidence else None
        return _Records(store if store and store.marker.stack == target.stack else None, state, problem)
    except EvidenceError as error:
        return _Records(None, state, f"{problem}; {error}")


def _close_records(target: Target, records: _Records, now: datetime) -> tuple[str, bool]:
    """Records the revocation; deletes clearances and closes the open teardown. Only locks, never unlocks."""
    store = records.store
    if store is None:
        return records.problem or "the evidence is not known", False
    try:
        write_revocation(store, _known(target, records.state), at=now, by=who())
        was_open = store.teardown() is not None
        store.write_teardown(None)
        for birth in store.readable("births", Birth)[0]:
            if birth.native_id is not None and birth.ended_at is None:
                store.write_clearance(birth.native_id, None)
        for volume in records.state.volumes:
            if volume.guarded:
                store.write_clearance(volume.native_id, None)
    except EvidenceError as error:
        return str(error), False
    return "", was_open


def _named(records: _Records) -> dict[str, Decision]:
    """A line for this computer for each box and volume that the state or the records name: native id → line."""
    found: dict[str, Decision] = {}

    def add(native_id: str | None, name: str, platform: str, account: str, identity: str, evidence: str) -> None:
        if native_id is not None:
            found[native_id] = Decision(
                what=TAKEN_BACK,
                by="",
                at=datetime.now(UTC),
                reason=REVOKED_ALL,
                platform=platform,
                native_id=native_id,
                box=name,
                account=account,
                identity=identity,
                evidence=evidence,
            )

    for entry in records.state.identities:  # what may follow the sweep's policy
        add(entry.identity, "", "", "", entry.identity, entry.evidence)
    if records.store is not None:
        place = records.store.marker.identity, records.store.objects.uri
        add(place[0], "", "", "", *place)
        with contextlib.suppress(EvidenceError):
            for birth in records.store.readable("births", Birth)[0]:
                add(
                    birth.native_id if birth.ended_at is None else None,
                    birth.box,
                    birth.platform,
                    birth.account,
                    *place,
                )
    for box in records.state.boxes:
        add(box.native_id, box.name, box.adapter, box.account, box.identity, box.evidence)
    for one in records.state.volumes:
        if one.guarded:
            add(one.native_id, one.name, one.adapter, one.account or "", one.identity, one.evidence)
    return found


def _known(target: Target, state: StackState) -> Iterator[Approval]:
    """The approvals that can be found: in the stack file, and in the engine's state."""
    found = [approval_of(target) if target.file.path.exists() else None]
    found += [one.approval for one in state.boxes] + [one.approval for one in state.gates]
    found += [one.approval for one in state.volumes]
    yield from (approval for approval in found if approval is not None)
