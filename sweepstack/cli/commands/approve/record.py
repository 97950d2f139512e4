"""Writes an approval into the stack file, and abandonments also into the records."""

from __future__ import annotations

from sweepstack.cli.commands.approve.preview import Plan
from sweepstack.cli.output import Unsure
from sweepstack.cli.target import Target
from sweepstack.core.local_decisions import Decision
from sweepstack.core.records import Abandonment, Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.status.snapshot import Scene, Sight
from sweepstack.teardown.abandonment import VERB, alone, keep, take_back
from sweepstack.teardown.revocation import readable


def put_on_record(plan: Plan, target: Target, scene: Scene, store: EvidenceStore | None) -> tuple[list[str], list[str]]:
    """Writes the approval. Returns the places where it was written, and the problems of the others.

    Every approval goes into the stack file. Without one, only the abandonment of named boxes can be approved: it is
    also written where the delete finds it without a program run. Raises the errors of the stack file, and Unsure if it
    could be written nowhere.
    """
    where: list[str] = []
    problems: list[str] = []
    given_up = [entry for entry in plan.approval.abandon if entry.verb == VERB]
    try:
        target.file.write_approval(plan.approval)
        where.append(target.file.shown)
    except (ConfigError, OSError) as error:
        if not plan.ends_alone:
            raise
        problems.append(str(error))
    sights = {sight.box.native_id: sight for sight, _ in (*plan.asked, *plan.kept)}
    asked = {sight.box.native_id for sight, _ in plan.asked}
    verbs = {(action.native_id, action.verb) for action in plan.approval.actions}
    for entry in given_up:
        if entry.native_id not in asked:
            continue  # recorded already, when it was approved
        decision = _decision(entry, sights[entry.native_id], plan.approval, target, scene, store)
        kept = keep(store, alone(plan.approval, entry), decision)
        where += [place for place in kept.where if place not in where]
        problems += [problem for problem in kept.problems if problem not in problems]
    for sight, _ in plan.asked:
        if (sight.box.native_id, VERB) in verbs and all(e.native_id != sight.box.native_id for e in given_up):
            problems += _take_back(sight, store, plan.approval.by)
    if not where:
        raise Unsure("not approved: the approval could not be written anywhere. " + "; ".join(problems))
    if store is None and scene.evidence_problem:
        problems.append(scene.evidence_problem)
    return where, problems


def _take_back(sight: Sight, store: EvidenceStore | None, by: str) -> list[str]:
    """Withdraws an earlier abandonment of a box that is approved now without being given up. Returns the problems."""
    native_id, problems = sight.box.native_id, []
    try:
        take_back(sight.box.facts(VERB), by, "it was approved later, and not given up")
    except SweepstackError as error:
        problems.append(str(error))
    try:
        known = store.clearance(native_id) if store is not None else None
        if store is not None and known is not None and known.abandon:
            store.write_clearance(native_id, None)
    except EvidenceError as error:
        problems.append(str(error))
    return [f"the earlier abandonment of box {sight.box.name} still counts: {problem}" for problem in problems]


def _decision(
    entry: Abandonment, sight: Sight, approval: Approval, target: Target, scene: Scene, store: EvidenceStore | None
) -> Decision:
    """The decision as this computer records it."""
    open_cells = sight.verdict.unsettled
    identity = scene.state.identity
    return Decision(
        what="abandoned",
        by=approval.by,
        at=approval.at,
        reason=entry.reason,
        platform=sight.box.adapter,
        native_id=entry.native_id,
        verb=entry.verb,
        box=entry.box,
        account=sight.box.account,
        project=identity.project if identity is not None else "",
        stack=target.stack,
        identity=sight.box.identity,
        evidence=sight.box.evidence,
        found=f"{len(open_cells)} cells without a verified copy" if sight.verdict.launched is not None else "",
        unread=store is not None and not readable(store),
    )
