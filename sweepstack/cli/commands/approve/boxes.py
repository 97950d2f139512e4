"""What `sweepctl approve` asks for in a sweep: boxes, each with the check's answer for the approval.

Builds an approval from what a person chose, and keeps what an earlier one says of other boxes. The check of a delete
(`may_end`) is asked first, so an approval that is written will also be accepted. Writes it into the stack file, and
abandonments also into the records.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from sweepstack.cli.commands.approve.options import ApprovalRequest, ApproveOptions
from sweepstack.cli.commands.approve.preview import ApprovalDraft, print_draft, stops, what_next
from sweepstack.cli.output import Out
from sweepstack.cli.progress import Progress
from sweepstack.config.project import project_name
from sweepstack.core.local_decisions import Decision
from sweepstack.core.records import Abandonment, Action, Approval, Receipt, UnclaimedWaiver, Waiver
from sweepstack.core.signature import SweepName
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import DIGEST
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, No, SweepstackError, Unsure
from sweepstack.operations.power import judge_stop
from sweepstack.operations.strays.beside_sweep import with_forgotten
from sweepstack.operations.sweep.accepted_facts import NoProfile, Relied, relied
from sweepstack.operations.sweep.collect import in_no_copy, take_snapshot
from sweepstack.operations.sweep.engine_mend import put_back
from sweepstack.operations.sweep.roster_diff import file_roster
from sweepstack.operations.sweep.sources import gives_up, open_sources, usable
from sweepstack.operations.sweep.target import Target, approval_of
from sweepstack.profiles.dated_facts import Leaning
from sweepstack.status.engine.state import STOP
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.status.ways_on import first_hung
from sweepstack.teardown.abandonment import VERB, alone, record_abandonment, take_back
from sweepstack.teardown.approval import Given
from sweepstack.teardown.box_check import BoxEnding, Verdict
from sweepstack.teardown.check import may_end
from sweepstack.teardown.launched import unnamed_cells
from sweepstack.teardown.ownership import who
from sweepstack.teardown.policy_check import binds, longest
from sweepstack.teardown.refusal import give_up, of_another_account, revoked_again, sure_first, to_be_read, without_need
from sweepstack.teardown.revocation import WRITTEN_AGAIN, given_at, readable
from sweepstack.teardown.signatures import sweep_of
from sweepstack.teardown.stop_check import AtRisk


def ask_for_boxes(target: Target, options: ApproveOptions, out: Out) -> ApprovalRequest | None:
    """What is asked for, checked. None, and said so, where nothing needs an approval. Raises No with every reason."""
    there = target.file.path.exists()
    sources = open_sources(target)
    if not there and (not options.abandon or options.receipt or options.waive or options.boxes or options.verb == STOP):
        back = put_back(target, sources.store) if sources.store is not None else ""
        raise No(
            f"an approval is written into {target.file.shown}, which is not here: put it back, or run this in a "
            "checkout that has it. Only data/BOX is given up without a stack file",
            [*([back] if back else []), *gives_up(sources, "what is on it may be lost")],
        )
    # An abandonment needs no evidence: the reason may be that the evidence can't be read.
    store = sources.store if options.abandon and not options.receipt else usable(sources, "approve")
    with Progress("looking"):
        snapshot = with_forgotten(take_snapshot(sources), store, options.abandon)
    free = _free(options, snapshot)
    options = replace(options, boxes=tuple(name for name in options.boxes if name not in free))
    if free and not (options.boxes or options.abandon):
        following = [stops(target.stack, free)]
        out.document({"approved": [], "free": free, "file": target.file.shown, "next": following})
        out.line(f"stopping {', '.join(free)} loses no data: no approval is needed")
        out.next(following)
        return None
    plan = prepare(target, options, snapshot, store)
    if plan is None:
        out.document({"approved": [], "file": target.file.shown, "next": [f"pulumi up --stack {target.stack}"]})
        out.line("every box named is gone already: nothing to approve")
        out.next([f"pulumi up --stack {target.stack}", f"pulumi destroy --stack {target.stack}"])
        return None
    asked = _asked(target, options, snapshot, store, plan)
    asked.facts = facts_relied_on(target, options, [one for one, _ in plan.asked])
    return asked


def boxes_to_sign(target: Target, approval: Approval) -> ApprovalRequest:
    """What this approval names, for one more signature. Raises No if none of it is there."""
    sources = open_sources(target)
    store = sources.store if approval.abandon and approval.receipt is None else usable(sources, "approve")
    with Progress("looking"):
        snapshot = with_forgotten(take_snapshot(sources), store, [entry.box for entry in approval.abandon])
    verbs = {action.native_id: action.verb for action in approval.actions}
    boxes = [one for one in snapshot.box_snapshots if one.box.native_id in verbs]
    there = [one for one in boxes if not one.gone]
    if not there:
        raise No(
            "no box that this approval names is there: there is nothing to sign",
            [f"sweepctl status --stack {target.stack}"],
        )
    risks: dict[str, AtRisk] = {}
    asked = [(one, verdict_of(one, approval, verbs[one.box.native_id], risks, "cosigned")) for one in there]
    lost = {name: words for one in there for name, words in in_no_copy(store, [one], verbs[one.box.native_id]).items()}
    plan = ApprovalDraft(approval, asked, [], [one.box.name for one in boxes if one.gone], risks, lost)
    return _asked(target, ApproveOptions(), snapshot, store, plan)


def _asked(
    target: Target, options: ApproveOptions, snapshot: Snapshot, store: EvidenceStore | None, plan: ApprovalDraft
) -> ApprovalRequest:
    names, given_up = [one.box.name for one, _ in plan.asked], [one.box.name for one in plan.abandoned]

    def record(approval: Approval, facts: Relied) -> tuple[list[str], list[str]]:
        plan.approval = approval
        return put_on_record(plan, facts, target, snapshot, store)

    what = "stopped" if options.verb == STOP else "destroyed"
    return ApprovalRequest(
        target,
        "box",
        plan.approval,
        names,
        given_up,
        [f"box {one.box.name}: {'; '.join(why.reasons)}" for one, why in plan.asked if not why.allowed],
        lambda: _sweep(target, plan, store),
        lambda out: print_draft(plan, snapshot, target, out),
        record,
        lambda: what_next(plan, target, options, snapshot, store),
        given=_given(plan, options),
        question="its data may be lost for good." if given_up else f"let {', '.join(names)} be {what}?",
        instead=_instead(plan.approval, names, options, target),
    )


def _sweep(target: Target, plan: ApprovalDraft, store: EvidenceStore | None) -> SweepName:
    """The sweep that a signature is for, as the check of these boxes will name it."""
    box = (*plan.asked, *plan.kept)[0][0].box
    known = sweep_of(box.facts(), store)
    if known.project and known.stack:
        return known
    return SweepName(project=project_name(target.root), stack=target.stack.split("/")[-1], identity=known.identity)


def _given(plan: ApprovalDraft, options: ApproveOptions) -> bool:
    """Whether the command line is already the person's approval: by the receipt's digest; or, without a terminal, by a
    name and a reason for each box."""
    if options.receipt is not None:
        return True
    if sys.stdin.isatty():
        return False
    reasons = set(options.explained) | set(options.unclaimed)
    explained = {one.box.name for one, why in plan.asked if why.way == "nothing-launched"} & reasons
    return {one.box.name for one, _ in plan.asked} <= set(options.abandon) | explained


def _instead(approval: Approval, names: list[str], options: ApproveOptions, target: Target) -> tuple[str, str]:
    """What approves without a terminal."""
    if approval.receipt is None:
        named = replace(options, boxes=(), abandon=dict.fromkeys(names, "nothing was launched"))
        return "to approve, name each box with a reason", named.spelled(target.stack)
    whole = replace(
        options,
        receipt=approval.receipt,
        boxes=tuple(names),
        waive={entry.cell: entry.reason for entry in approval.waive},
        unclaimed={entry.box: entry.reason for entry in approval.unclaimed},
    )
    return "to approve, give the receipt's whole digest", whole.spelled(target.stack)


def facts_relied_on(target: Target, options: ApproveOptions, named: Sequence[BoxSnapshot], by: str = "") -> Relied:
    """The old facts that ending, or stopping, these boxes relies on. Raises No if one is not accepted. An abandonment
    relies on none, so that it needs no profile: what is on the box is given up, whatever a verb does to it."""
    given_up = set(options.abandon)
    whose = [(one.box.platform, one.box.adapter) for one in named if one.box.name not in given_up]
    verb: Leaning = "stop" if options.verb == STOP else "destroy"
    try:
        return relied(target, whose, verb, options.accept_facts, partial(options.spelled, target.stack, verb=by))
    except NoProfile as error:
        locked = [one.box.name for one in named if not one.verdict.allowed]
        if locked and verb == "destroy":
            error.next.append(give_up(target.stack, locked, "where that can't be done"))
        raise


def prepare(
    target: Target, options: ApproveOptions, snapshot: Snapshot, store: EvidenceStore | None
) -> ApprovalDraft | None:
    """The approval that would be written, checked. None if all named boxes are gone. Raises No with every reason."""
    named, gone = _boxes(options, snapshot)
    if not named:
        return None
    _known_cells(target, options, snapshot)
    digest, receipt = _receipt(target, options, snapshot, store, named)
    now = given_at(store, datetime.now(UTC), [box_snapshot.box.native_id for box_snapshot in named])
    expires = now + options.lasts(longest(binds(one.box.context(options.verb).facts, store)) for one in named)
    approval = build(options, receipt=digest, box_snapshots=named, waive=options.waive, expires=expires, now=now)
    risks: dict[str, AtRisk] = {}
    asked = [(box_snapshot, verdict_of(box_snapshot, approval, options.verb, risks)) for box_snapshot in named]
    refused = [(box_snapshot, verdict) for box_snapshot, verdict in asked if not verdict.allowed]
    if refused:
        raise _refusal(target, options, refused, receipt, digest)
    if any(verdict.way == "cleared" for _, verdict in asked):
        _same_roster(target, receipt)
    elif all(verdict.way in ("abandoned", "nothing-launched") for _, verdict in asked) and not options.receipt:
        approval = approval.model_copy(update={"receipt": None})
    merged, kept = merge(approval, approval_of(target), snapshot, {box_snapshot.box.name for box_snapshot in named})
    return ApprovalDraft(merged, asked, kept, gone, risks, in_no_copy(store, named, options.verb))


def _free(options: ApproveOptions, snapshot: Snapshot) -> list[str]:
    """The boxes asked for that may be stopped without an approval."""
    if options.verb != STOP:
        return []
    named, _ = _boxes(options, snapshot)
    return [
        box_snapshot.box.name
        for box_snapshot in named
        if verdict_of(box_snapshot, None, STOP, {}).way == "nothing-at-risk"
    ]


def verdict_of(
    box_snapshot: BoxSnapshot, approval: Approval | None, verb: str, risks: dict[str, AtRisk], given: Given = "now"
) -> Verdict:
    """The answer of the verb's own check for the box and this approval."""
    box = box_snapshot.box.context(verb)
    if verb != STOP:
        return may_end(BoxEnding(box, approval, box_snapshot.seen, given=given), full=False)
    pause = judge_stop(box, box_snapshot.box.teardown.paths, approval, full=False, given=given)
    risks[box_snapshot.box.name] = pause.risk
    return pause.verdict


def _boxes(options: ApproveOptions, snapshot: Snapshot) -> tuple[list[BoxSnapshot], list[str]]:
    """The boxes asked for, without those that are proved gone, and the names of those."""
    if not snapshot.box_snapshots:
        raise No(f"there is no box in the state of {snapshot.state.stack}: nothing to approve")
    by_name = {box_snapshot.box.name: box_snapshot for box_snapshot in snapshot.box_snapshots}
    for name in (*options.boxes, *options.abandon, *options.unclaimed):
        if name not in by_name:
            there = f"there is no box {name} in the state (there: {', '.join(by_name)}){did_you_mean(name, by_name)}"
            raise No(there, [f"sweepctl status --stack {snapshot.state.stack}"])
    if options.boxes:
        wanted = set(options.boxes) | set(options.abandon) | set(options.unclaimed)
    elif options.abandon and not options.receipt:
        wanted = set(options.abandon)
    else:
        wanted = set(by_name)
    box_snapshots = [box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.box.name in wanted]
    return [box_snapshot for box_snapshot in box_snapshots if not box_snapshot.gone], [
        box_snapshot.box.name for box_snapshot in box_snapshots if box_snapshot.gone
    ]


def _known_cells(target: Target, options: ApproveOptions, snapshot: Snapshot) -> None:
    unnamed = set(_unnamed(snapshot.box_snapshots, snapshot.receipt))
    known = {cell.name for cell in snapshot.roster} | unnamed
    for name in options.waive:
        if name in snapshot.dropped and name not in unnamed:
            raise No(f"{name} is dropped: it needs no waiver")
        if name not in known:
            raise target.no_cell(name, sorted(known))


def _unnamed(box_snapshots: Iterable[BoxSnapshot], receipt: Receipt | None) -> list[str]:
    """Cells that the boxes' journals name and that neither the roster nor the receipt has."""
    known = {cell.name for cell in receipt.cells} if receipt else set()
    return [
        name
        for box_snapshot in box_snapshots
        for name in unnamed_cells(box_snapshot.seen.journal, box_snapshot.launch, known)
    ]


def _receipt(
    target: Target,
    options: ApproveOptions,
    snapshot: Snapshot,
    store: EvidenceStore | None,
    named: Sequence[BoxSnapshot],
) -> tuple[str | None, Receipt | None]:
    """The named receipt; else the latest one, if one of the boxes needs a receipt."""
    again = first_hung(target.stack, named) or [f"sweepctl verify --stack {target.stack}"]
    digest = options.receipt
    if digest is not None:
        if not DIGEST.fullmatch(digest):
            latest = f" The latest is {snapshot.receipt_digest}." if snapshot.receipt_digest else ""
            raise No(f"{digest} is not a whole digest (sha256: and 64 hex digits).{latest}", again)
    else:
        # A box on which nothing was launched, or that is abandoned, needs no receipt.
        if (
            all(box_snapshot.box.name in options.abandon or box_snapshot.launch is None for box_snapshot in named)
            and not options.waive
        ):
            return None, None
        digest = snapshot.receipt_digest
        if digest is None:
            raise No("there is no receipt to approve: nothing was verified yet", again)
    if store is None:
        raise Unsure("the evidence can't be read, so no receipt can be approved")
    try:
        return digest, store.receipt(digest)
    except EvidenceError as error:
        raise No(str(error), again) from error


def _same_roster(target: Target, receipt: Receipt | None) -> None:
    """Raises No if the stack file has another roster than the receipt: the next `up` would lock the boxes again."""
    written, _ = file_roster(target.file, target.root)
    if written is not None and receipt is not None and written.digest != receipt.roster_digest:
        raise No(
            f"{target.file.shown} has other cells than the receipt: `pulumi up` would lock the boxes again",
            [f"pulumi up --stack {target.stack} && sweepctl finish --stack {target.stack}"],
        )


def _refusal(
    target: Target,
    options: ApproveOptions,
    refused: list[tuple[BoxSnapshot, Verdict]],
    receipt: Receipt | None,
    digest: str | None,
) -> No:
    """The refusal: the reasons, and the command that would be accepted, complete with all its options."""
    stack = target.stack
    lines = ["not approved; nothing was written"]
    for box_snapshot, verdict in refused:
        lines.append(f"  box {box_snapshot.box.name} ({box_snapshot.box.native_id}): {'; '.join(verdict.reasons)}")
    if elsewhere := [
        box_snapshot.seen.account_problem for box_snapshot, _ in refused if box_snapshot.seen.account_problem
    ]:
        return No("\n".join(lines), of_another_account(stack, elsewhere))
    bad = [*_bad_cells(receipt, refused), *_unnamed((box_snapshot for box_snapshot, _ in refused), receipt)]
    # A box that can't be read is not waited for: the wait would not end.
    heard = [verdict for _, verdict in refused if not verdict.silent]
    running = any(line.state in ("running", "pending") for verdict in heard for line in verdict.unsettled)
    following = [f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"]
    if rest := [box_snapshot.box.name for box_snapshot, verdict in refused if verdict.rests]:
        following = [to_be_read(stack, rest)]
    if running:
        following = [f"sweepctl wait --stack {stack} done && sweepctl finish --stack {stack}"]
    following = first_hung(stack, [box_snapshot for box_snapshot, _ in refused]) or following
    if all(box_snapshot.launch is None and box_snapshot.journal and v.launched is None for box_snapshot, v in refused):
        following = []  # the records of what ran are lost, and no pull restores them
    held = [box_snapshot.box.name for box_snapshot, verdict in refused if verdict.held_by_unclaimed]
    if not running and digest and (bad or held):
        what = " and ".join(
            ["the bad cells may be missing"] * bool(bad) + ["the unclaimed bytes may be lost"] * bool(held)
        )
        whole = replace(
            options,
            receipt=digest,
            waive=dict.fromkeys(bad, "…") | options.waive,
            unclaimed=dict.fromkeys(held, "…") | options.unclaimed,
        )
        following = [f"{whole.spelled(stack)}    ({what})"]
        again = f"sweepctl pull --stack {stack} --verify"
        if _not_pulled(receipt, bad):  # it may be only missing here, not bad
            following = [f"{again}    (some cells were not pulled)", *following]
        elif bad:
            following += [f"{again}    (if a copy is bad)"]
    elif held:
        command = ApproveOptions(unclaimed=dict.fromkeys(held, "…")).spelled(stack)
        command += "    (the unclaimed bytes may be lost)"
        following = [command, *following] if len(held) < len(refused) else [command]
    if any(WRITTEN_AGAIN in reason for _, verdict in refused for reason in verdict.reasons):
        following = [revoked_again(stack)]
    lost = ApproveOptions(abandon=dict.fromkeys(sorted({*options.abandon, *(s.box.name for s, _ in refused)}), "…"))
    following.append(f"{lost.spelled(stack)}    (to give up the data on it)")
    sure = len(heard) == len(refused) and not rest  # else `finish`, or a start, may go on failing
    return No("\n".join(lines), without_need(following) if sure else sure_first(following))


def _bad_cells(receipt: Receipt | None, refused: list[tuple[BoxSnapshot, Verdict]]) -> list[str]:
    if receipt is None:
        return []
    said = " ".join(reason for _, verdict in refused for reason in verdict.reasons)
    return [cell.name for cell in receipt.cells if cell.state != "verified" and f"{cell.name} is {cell.state}" in said]


def _not_pulled(receipt: Receipt | None, bad: Iterable[str]) -> bool:
    """Whether one of these cells is sealed on its box, and the receipt found no copy of it."""
    return any(cell.name in set(bad) and cell.state == "missing" for cell in (receipt.cells if receipt else ()))


def build(
    options: ApproveOptions,
    *,
    receipt: str | None,
    box_snapshots: Sequence[BoxSnapshot],
    waive: dict[str, str],
    expires: datetime,
    now: datetime,
) -> Approval:
    """The approval for exactly these boxes."""
    waivers = tuple(Waiver(cell=cell, reason=reason) for cell, reason in sorted(waive.items()))
    abandoned = tuple(
        Abandonment(
            box=box_snapshot.box.name,
            native_id=box_snapshot.box.native_id,
            reason=options.abandon[box_snapshot.box.name],
            verb=options.verb,
        )
        for box_snapshot in box_snapshots
        if box_snapshot.box.name in options.abandon
    )
    unclaimed = tuple(
        _unclaimed(box_snapshot, options.unclaimed[box_snapshot.box.name])
        for box_snapshot in box_snapshots
        if box_snapshot.box.name in options.unclaimed and box_snapshot.verdict.unclaimed
    )
    return Approval(
        receipt=receipt,
        actions=tuple(
            Action(verb=options.verb, box=box_snapshot.box.name, native_id=box_snapshot.box.native_id)
            for box_snapshot in box_snapshots
        ),
        waive=waivers,
        abandon=abandoned,
        unclaimed=unclaimed,
        waivers_digest=Approval.digest_waivers(waivers, abandoned, unclaimed),
        by=who(),
        at=now,
        expires=expires,
    )


def _unclaimed(box_snapshot: BoxSnapshot, reason: str) -> UnclaimedWaiver:
    """A waiver of exactly the unclaimed bytes that are there now, because only these were shown to the person."""
    found = box_snapshot.verdict.unclaimed
    return UnclaimedWaiver(
        box=box_snapshot.box.name,
        native_id=box_snapshot.box.native_id,
        files=found.files,
        bytes=found.bytes,
        reason=reason,
        uncounted=bool(found.problem),
        listed=found.listed or None,
    )


def merge(
    approval: Approval, earlier: Approval | None, snapshot: Snapshot, asked: set[str]
) -> tuple[Approval, list[tuple[BoxSnapshot, Verdict]]]:
    """Adds what an earlier approval says of other boxes, if it is for the same receipt and still holds."""
    if earlier is None or (approval.receipt and earlier.receipt and approval.receipt != earlier.receipt):
        return approval, []
    verbs = {action.native_id: action.verb for action in earlier.actions if action.box not in asked}
    candidates = [
        box_snapshot
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.box.native_id in verbs and not box_snapshot.gone
    ]

    def by(approval: Approval, box_snapshot: BoxSnapshot) -> Verdict:
        box = box_snapshot.box.context(verbs[box_snapshot.box.native_id])
        return may_end(BoxEnding(box, approval, box_snapshot.seen), full=False)

    held = [box_snapshot for box_snapshot in candidates if by(earlier, box_snapshot).allowed]
    if not held:
        return approval, []
    ids = {box_snapshot.box.native_id for box_snapshot in held}
    waivers = {waiver.cell: waiver for waiver in (*earlier.waive, *approval.waive)}
    waive = tuple(waivers[name] for name in sorted(waivers))
    abandon = (*approval.abandon, *(entry for entry in earlier.abandon if entry.native_id in ids))
    unclaimed = (*approval.unclaimed, *(entry for entry in earlier.unclaimed if entry.native_id in ids))
    merged = approval.model_copy(
        update={
            "unclaimed": unclaimed,
            "receipt": approval.receipt or earlier.receipt,
            "actions": (*approval.actions, *(action for action in earlier.actions if action.native_id in ids)),
            "waive": waive,
            "abandon": abandon,
            "waivers_digest": Approval.digest_waivers(waive, abandon, unclaimed),
            "expires": min(approval.expires, earlier.expires),
        }
    )
    return merged, [(box_snapshot, by(merged, box_snapshot)) for box_snapshot in held]


def put_on_record(
    plan: ApprovalDraft, old_facts: Relied, target: Target, snapshot: Snapshot, store: EvidenceStore | None
) -> tuple[list[str], list[str]]:
    """Writes the approval, and before it the facts that it relies on. Returns the places where it was written, and the
    problems of the others.

    Every approval goes into the stack file. Without one, only the abandonment of named boxes can be approved: it is
    also written where the delete finds it without a program run. Raises the errors of the stack file, No where its disk
    can't be written, and Unsure if it could be written nowhere.
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
            if not isinstance(error.__cause__, OSError):
                raise
            names = [box_snapshot.box.name for box_snapshot, _ in plan.asked]
            raise No(f"not approved: {error}", [give_up(target.stack, names, "where it stays so")]) from error
        problems.append(str(error))
    box_snapshots = {box_snapshot.box.native_id: box_snapshot for box_snapshot, _ in (*plan.asked, *plan.kept)}
    asked = {box_snapshot.box.native_id for box_snapshot, _ in plan.asked}
    verbs = {(action.native_id, action.verb) for action in plan.approval.actions}
    for entry in given_up:
        if entry.native_id not in asked:
            continue  # recorded already, when it was approved
        decision = _decision(entry, box_snapshots[entry.native_id], plan.approval, target, snapshot, store)
        kept = record_abandonment(store, alone(plan.approval, entry), decision)
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
