"""Where `sweepctl approve` writes what a person decided: the stack file, and for boxes given up wherever it can."""

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
    """Writes the approval. Returns the places that took it, and what was in the way of others.

    The stack file takes every approval; without it nothing is approved but a box that is given up, by name: that is
    also put where its delete finds it without a program run. Raises what the stack file raises, and Unsure where not
    one place took it.
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
            continue  # it was put on record when it was given
        decision = _decision(entry, sights[entry.native_id], plan.approval, target, scene, store)
        kept = keep(store, alone(plan.approval, entry), decision)
        where += [place for place in kept.where if place not in where]
        problems += [problem for problem in kept.problems if problem not in problems]
    for sight, _ in plan.asked:
        if (sight.box.native_id, VERB) in verbs and all(e.native_id != sight.box.native_id for e in given_up):
            problems += _take_back(sight, store, plan.approval.by)
    if not where:
        raise Unsure("not approved: it could be written nowhere. " + "; ".join(problems))
    if store is None and scene.evidence_problem:
        problems.append(scene.evidence_problem)
    return where, problems


def _take_back(sight: Sight, store: EvidenceStore | None, by: str) -> list[str]:
    """An earlier abandonment of a box that is approved now and not given up counts no more. What was in the way."""
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
    return [f"that box {sight.box.name} is not given up any more: {problem}" for problem in problems]


def _decision(
    entry: Abandonment, sight: Sight, approval: Approval, target: Target, scene: Scene, store: EvidenceStore | None
) -> Decision:
    """The line for this computer's record."""
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
