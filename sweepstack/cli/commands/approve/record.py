"""Writes an approval into the stack file, and abandonments also into the records."""

from __future__ import annotations

from sweepstack.cli.accepted_facts import Relied
from sweepstack.cli.commands.approve.preview import Plan
from sweepstack.cli.output import Unsure
from sweepstack.cli.target import Target
from sweepstack.core.local_decisions import Decision
from sweepstack.core.records import Abandonment, Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.abandonment import VERB, alone, keep, take_back
from sweepstack.teardown.revocation import readable


def put_on_record(
    plan: Plan, old_facts: Relied, target: Target, snapshot: Snapshot, store: EvidenceStore | None
) -> tuple[list[str], list[str]]:
    """Writes the approval, and before it the facts that it relies on. Returns the places where it was written, and the
    problems of the others.

    Every approval goes into the stack file. Without one, only the abandonment of named boxes can be approved: it is
    also written where the delete finds it without a program run. Raises the errors of the stack file, and Unsure if it
    could be written nowhere.
    """
    where: list[str] = []
    problems: list[str] = []
    given_up = [entry for entry in plan.approval.abandon if entry.verb == VERB]
    try:
        old_facts.write(target)
        target.file.write_approval(plan.approval)
        where.append(target.file.shown)
    except (ConfigError, OSError) as error:
        if not plan.ends_alone:
            raise
        problems.append(str(error))
    box_snapshots = {box_snapshot.box.native_id: box_snapshot for box_snapshot, _ in (*plan.asked, *plan.kept)}
    asked = {box_snapshot.box.native_id for box_snapshot, _ in plan.asked}
    verbs = {(action.native_id, action.verb) for action in plan.approval.actions}
    for entry in given_up:
        if entry.native_id not in asked:
            continue  # recorded already, when it was approved
        decision = _decision(entry, box_snapshots[entry.native_id], plan.approval, target, snapshot, store)
        kept = keep(store, alone(plan.approval, entry), decision)
        where += [place for place in kept.where if place not in where]
        problems += [problem for problem in kept.problems if problem not in problems]
    for box_snapshot, _ in plan.asked:
        if (box_snapshot.box.native_id, VERB) in verbs and all(
            e.native_id != box_snapshot.box.native_id for e in given_up
        ):
            problems += _take_back(box_snapshot, store, plan.approval.by)
    if not where:
        raise Unsure("not approved: the approval could not be written anywhere. " + "; ".join(problems))
    if store is None and snapshot.evidence_problem:
        problems.append(snapshot.evidence_problem)
    return where, problems


def _take_back(box_snapshot: BoxSnapshot, store: EvidenceStore | None, by: str) -> list[str]:
    """Withdraws an earlier abandonment of a box that is approved now without being given up. Returns the problems."""
    native_id, problems = box_snapshot.box.native_id, []
    try:
        take_back(box_snapshot.box.facts(VERB), by, "it was approved later, and not given up")
    except SweepstackError as error:
        problems.append(str(error))
    try:
        known = store.clearance(native_id) if store is not None else None
        if store is not None and known is not None and known.abandon:
            store.write_clearance(native_id, None)
    except EvidenceError as error:
        problems.append(str(error))
    return [f"the earlier abandonment of box {box_snapshot.box.name} still counts: {problem}" for problem in problems]


def _decision(
    entry: Abandonment,
    box_snapshot: BoxSnapshot,
    approval: Approval,
    target: Target,
    snapshot: Snapshot,
    store: EvidenceStore | None,
) -> Decision:
    """The decision as this computer records it."""
    open_cells = box_snapshot.verdict.unsettled
    identity = snapshot.state.identity
    return Decision(
        what="abandoned",
        by=approval.by,
        at=approval.at,
        reason=entry.reason,
        platform=box_snapshot.box.adapter,
        native_id=entry.native_id,
        verb=entry.verb,
        box=entry.box,
        account=box_snapshot.box.account,
        project=identity.project if identity is not None else "",
        stack=target.stack,
        identity=box_snapshot.box.identity,
        evidence=box_snapshot.box.evidence,
        found=f"{len(open_cells)} cells without a verified copy" if box_snapshot.verdict.launched is not None else "",
        unread=store is not None and not readable(store),
    )
