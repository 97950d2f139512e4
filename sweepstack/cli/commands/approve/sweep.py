"""`sweepctl approve` for a sweep: checks an approval, asks a person for it, and writes it.

A person approves by giving the whole digest of the receipt, or by typing `yes` when asked. There is no `--yes`.
The check of a delete (`may_end`) is asked first, so an approval that is written will also be accepted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from sweepstack.cli.collect import look
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.approve.preview import Plan, dying, show, stop_hint, what_next
from sweepstack.cli.commands.approve.record import put_on_record
from sweepstack.cli.forgotten_boxes import with_forgotten
from sweepstack.cli.output import YES, No, Out, Unsure
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.cli.roster_diff import file_roster
from sweepstack.cli.sources import open_sources, usable
from sweepstack.cli.target import Target, approval_of
from sweepstack.core.records import Abandonment, Action, Approval, Receipt, UnclaimedWaiver, Waiver
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import DIGEST
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.operations.power import judge_stop
from sweepstack.status.engine.state import STOP
from sweepstack.status.next_commands import first_hung
from sweepstack.status.snapshot import Scene, Sight
from sweepstack.teardown.check import Verdict, may_end
from sweepstack.teardown.launched import unnamed_cells
from sweepstack.teardown.ownership import who
from sweepstack.teardown.refusal import of_another_account
from sweepstack.teardown.revocation import given_at
from sweepstack.teardown.stop_check import AtRisk


def approve(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 if the approval is in the stack file, 1 if it was refused or not given."""
    there = target.file.path.exists()
    if not there and (not options.abandon or options.receipt or options.waive or options.boxes or options.verb == STOP):
        raise No(
            f"an approval is written into {target.file.shown}, which is not here: run this in a checkout that has it. "
            "Only --abandon works without a stack file",
            [f'sweepctl approve --stack {target.stack} --abandon BOX --reason "…"    (what is on it may be lost)'],
        )
    sources = open_sources(target)
    # An abandonment needs no evidence: the reason may be that the evidence can't be read.
    store = sources.store if options.abandon and not options.receipt else usable(sources, "approve")
    with Progress("looking"):
        scene = with_forgotten(look(sources), store)
    free = _free(options, scene)
    options = replace(options, boxes=tuple(name for name in options.boxes if name not in free))
    if free and not (options.boxes or options.abandon):
        following = [f"{stop_hint(free)}, then pulumi up --stack {target.stack}"]
        out.document({"approved": [], "free": free, "file": target.file.shown, "next": following})
        out.line(f"stopping {', '.join(free)} loses no data: no approval is needed")
        out.next(following)
        return YES
    plan = prepare(target, options, scene, store)
    if plan is None:
        out.document({"approved": [], "file": target.file.shown, "next": [f"pulumi up --stack {target.stack}"]})
        out.line("every box named is gone already: nothing to approve")
        out.next([f"pulumi up --stack {target.stack}", f"pulumi destroy --stack {target.stack}"])
        return YES
    show(plan, scene, target, out)
    if not _given(plan, options):
        _ask(plan, options, target)
    where, problems = put_on_record(plan, target, scene, store)
    following = what_next(plan, target, options, scene, store)
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "approval": plan.approval.model_dump(mode="json"),
            "approved": [sight.box.name for sight, _ in plan.asked],
            "recorded": where,
            "problems": problems,
            "next": following,
        }
    )
    for problem in problems:
        out.line(f"note      not recorded there: {problem}", style="yellow")
    out.line(f"written to {', '.join(where)}; it holds until {plan.approval.expires:%Y-%m-%d %H:%M} UTC")
    out.next(following)
    return YES


def prepare(target: Target, options: ApproveOptions, scene: Scene, store: EvidenceStore | None) -> Plan | None:
    """The approval that would be written, checked. None if all named boxes are gone. Raises No with every reason."""
    named, gone = _boxes(options, scene)
    if not named:
        return None
    _known_cells(target, options, scene)
    digest, receipt = _receipt(target, options, scene, store, named)
    now = given_at(store, datetime.now(UTC), [sight.box.native_id for sight in named])
    approval = build(options, receipt=digest, sights=named, waive=options.waive, expires=now + options.expires, now=now)
    risks: dict[str, AtRisk] = {}
    asked = [(sight, _verdict(sight, approval, options.verb, risks)) for sight in named]
    refused = [(sight, verdict) for sight, verdict in asked if not verdict.allowed]
    if refused:
        raise _refusal(target, options, refused, receipt, digest)
    if any(verdict.way == "cleared" for _, verdict in asked):
        _same_roster(target, receipt)
    elif all(verdict.way in ("abandoned", "nothing-launched") for _, verdict in asked) and not options.receipt:
        approval = approval.model_copy(update={"receipt": None})
    merged, kept = merge(approval, approval_of(target), scene, {sight.box.name for sight in named})
    return Plan(merged, asked, kept, gone, risks, dying(store, named, options.verb))


def _free(options: ApproveOptions, scene: Scene) -> list[str]:
    """The boxes asked for that may be stopped without an approval."""
    if options.verb != STOP:
        return []
    named, _ = _boxes(options, scene)
    return [sight.box.name for sight in named if _verdict(sight, None, STOP, {}).way == "nothing-at-risk"]


def _verdict(sight: Sight, approval: Approval | None, verb: str, risks: dict[str, AtRisk]) -> Verdict:
    """The answer of the verb's own check for the box and this approval."""
    box = sight.box.context(verb)
    if verb != STOP:
        return may_end(box, approval, sight.seen, full=False, given_now=True)
    pause = judge_stop(box, sight.box.teardown.paths, approval, full=False)
    risks[sight.box.name] = pause.risk
    return pause.verdict


def _boxes(options: ApproveOptions, scene: Scene) -> tuple[list[Sight], list[str]]:
    """The boxes asked for, without those that are proved gone, and the names of those."""
    if not scene.sights:
        raise No(f"there is no box in the state of {scene.state.stack}: nothing to approve")
    by_name = {sight.box.name: sight for sight in scene.sights}
    for name in (*options.boxes, *options.abandon, *options.unclaimed):
        if name not in by_name:
            there = f"there is no box {name} in the state (there: {', '.join(by_name)}){did_you_mean(name, by_name)}"
            raise No(there, [f"sweepctl status --stack {scene.state.stack}"])
    if options.boxes:
        wanted = set(options.boxes) | set(options.abandon) | set(options.unclaimed)
    elif options.abandon and not options.receipt:
        wanted = set(options.abandon)
    else:
        wanted = set(by_name)
    sights = [sight for sight in scene.sights if sight.box.name in wanted]
    return [sight for sight in sights if not sight.gone], [sight.box.name for sight in sights if sight.gone]


def _known_cells(target: Target, options: ApproveOptions, scene: Scene) -> None:
    unnamed = set(_unnamed(scene.sights, scene.receipt))
    known = {cell.name for cell in scene.roster} | unnamed
    for name in options.waive:
        if name in scene.dropped and name not in unnamed:
            raise No(f"{name} is dropped: it needs no waiver")
        if name not in known:
            raise target.no_cell(name, sorted(known))


def _unnamed(sights: Iterable[Sight], receipt: Receipt | None) -> list[str]:
    """Cells that the boxes' journals name and that neither the roster nor the receipt has."""
    known = {cell.name for cell in receipt.cells} if receipt else set()
    return [name for sight in sights for name in unnamed_cells(sight.seen.journal, sight.launch, known)]


def _receipt(
    target: Target, options: ApproveOptions, scene: Scene, store: EvidenceStore | None, named: Sequence[Sight]
) -> tuple[str | None, Receipt | None]:
    """The named receipt; else the latest one, if one of the boxes needs a receipt."""
    again = first_hung(target.stack, named) or [f"sweepctl verify --stack {target.stack}"]
    digest = options.receipt
    if digest is not None:
        if not DIGEST.fullmatch(digest):
            latest = f" The latest is {scene.receipt_digest}." if scene.receipt_digest else ""
            raise No(f"{digest} is not a whole digest (sha256: and 64 hex digits).{latest}", again)
    else:
        # A box on which nothing was launched, or that is abandoned, needs no receipt.
        if all(sight.box.name in options.abandon or sight.launch is None for sight in named) and not options.waive:
            return None, None
        digest = scene.receipt_digest
        if digest is None:
            raise No("there is no receipt to approve: nothing was verified yet", again)
    if store is None:
        raise Unsure("the evidence can't be read, so no receipt can be approved")
    try:
        return digest, store.receipt(digest)
    except EvidenceError as error:
        raise No(str(error), again) from error


def build(
    options: ApproveOptions,
    *,
    receipt: str | None,
    sights: Sequence[Sight],
    waive: dict[str, str],
    expires: datetime,
    now: datetime,
) -> Approval:
    """The approval for exactly these boxes."""
    waivers = tuple(Waiver(cell=cell, reason=reason) for cell, reason in sorted(waive.items()))
    abandoned = tuple(
        Abandonment(
            box=sight.box.name,
            native_id=sight.box.native_id,
            reason=options.abandon[sight.box.name],
            verb=options.verb,
        )
        for sight in sights
        if sight.box.name in options.abandon
    )
    unclaimed = tuple(
        _unclaimed(sight, options.unclaimed[sight.box.name])
        for sight in sights
        if sight.box.name in options.unclaimed and sight.verdict.unclaimed
    )
    return Approval(
        receipt=receipt,
        actions=tuple(Action(verb=options.verb, box=sight.box.name, native_id=sight.box.native_id) for sight in sights),
        waive=waivers,
        abandon=abandoned,
        unclaimed=unclaimed,
        waivers_digest=Approval.digest_waivers(waivers, abandoned, unclaimed),
        by=who(),
        at=now,
        expires=expires,
    )


def _unclaimed(sight: Sight, reason: str) -> UnclaimedWaiver:
    """A waiver of exactly the unclaimed bytes that are there now, because only these were shown to the person."""
    found = sight.verdict.unclaimed
    return UnclaimedWaiver(
        box=sight.box.name,
        native_id=sight.box.native_id,
        files=found.files,
        bytes=found.bytes,
        reason=reason,
        uncounted=bool(found.problem),
        listed=found.listed or None,
    )


def merge(
    approval: Approval, earlier: Approval | None, scene: Scene, asked: set[str]
) -> tuple[Approval, list[tuple[Sight, Verdict]]]:
    """Adds what an earlier approval says of other boxes, if it is for the same receipt and still holds."""
    if earlier is None or (approval.receipt and earlier.receipt and approval.receipt != earlier.receipt):
        return approval, []
    verbs = {action.native_id: action.verb for action in earlier.actions if action.box not in asked}
    candidates = [sight for sight in scene.sights if sight.box.native_id in verbs and not sight.gone]

    def by(approval: Approval, sight: Sight) -> Verdict:
        box = sight.box.context(verbs[sight.box.native_id])
        return may_end(box, approval, sight.seen, full=False)

    held = [sight for sight in candidates if by(earlier, sight).allowed]
    if not held:
        return approval, []
    ids = {sight.box.native_id for sight in held}
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
    return merged, [(sight, by(merged, sight)) for sight in held]


def _same_roster(target: Target, receipt: Receipt | None) -> None:
    """Raises No if the stack file has another roster than the receipt: the next `up` would lock the boxes again."""
    written, _ = file_roster(target.file)
    if written is not None and receipt is not None and written.digest != receipt.roster_digest:
        raise No(
            f"{target.file.shown} has other cells than the receipt: `pulumi up` would lock the boxes again",
            [f"pulumi up --stack {target.stack} && sweepctl finish --stack {target.stack}"],
        )


def _refusal(
    target: Target,
    options: ApproveOptions,
    refused: list[tuple[Sight, Verdict]],
    receipt: Receipt | None,
    digest: str | None,
) -> No:
    """The refusal: the reasons, and the command that would be accepted, complete with all its options."""
    stack = target.stack
    lines = ["not approved; nothing was written"]
    for sight, verdict in refused:
        lines.append(f"  box {sight.box.name} ({sight.box.native_id}): {'; '.join(verdict.reasons)}")
    if elsewhere := [sight.seen.account_problem for sight, _ in refused if sight.seen.account_problem]:
        return No("\n".join(lines), of_another_account(stack, elsewhere))
    bad = [*_bad_cells(receipt, refused), *_unnamed((sight for sight, _ in refused), receipt)]
    # A box that can't be read is not waited for: the wait would not end.
    heard = [verdict for _, verdict in refused if not verdict.silent]
    running = any(line.state in ("running", "pending") for verdict in heard for line in verdict.unsettled)
    following = [f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"]
    if running:
        following = [f"sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack}"]
    following = first_hung(stack, [sight for sight, _ in refused]) or following
    if all(sight.launch is None and sight.journal and v.launched is None for sight, v in refused):
        following = []  # the records of what ran are lost, and no pull restores them
    held = [sight.box.name for sight, verdict in refused if verdict.held_by_unclaimed]
    if not running and digest and (bad or held):
        given = [f"--box {name}" for name in options.boxes]
        given += [f"--waive {name}" for name in sorted({*options.waive, *bad})]
        given += [f"--waive-unclaimed {name}" for name in sorted({*options.unclaimed, *held})]
        given += [f"--abandon {name}" for name in sorted(options.abandon)]
        what = " and ".join(
            ["the bad cells may be missing"] * bool(bad) + ["the unclaimed bytes may be lost"] * bool(held)
        )
        following = [f'sweepctl approve --stack {stack} --receipt {digest} {" ".join(given)} --reason "…"    ({what})']
        again = f"sweepctl pull --stack {stack} --verify"
        if _not_pulled(receipt, bad):  # it may be only missing here, not bad
            following = [f"{again}    (some cells were not pulled)", *following]
        elif bad:
            following += [f"{again}    (if a copy is bad)"]
    elif held:
        given = [f"--waive-unclaimed {name}" for name in held]
        command = (
            f'sweepctl approve --stack {stack} {" ".join(given)} --reason "…"    (the unclaimed bytes may be lost)'
        )
        following = [command, *following] if len(held) < len(refused) else [command]
    named = " ".join(f"--abandon {name}" for name in sorted({*options.abandon, *(s.box.name for s, _ in refused)}))
    following.append(f'sweepctl approve --stack {stack} {named} --reason "…"    (to give up the data on it)')
    return No("\n".join(lines), following)


def _bad_cells(receipt: Receipt | None, refused: list[tuple[Sight, Verdict]]) -> list[str]:
    if receipt is None:
        return []
    said = " ".join(reason for _, verdict in refused for reason in verdict.reasons)
    return [cell.name for cell in receipt.cells if cell.state != "verified" and f"{cell.name} is {cell.state}" in said]


def _not_pulled(receipt: Receipt | None, bad: Iterable[str]) -> bool:
    """Whether one of these cells is sealed on its box, and the receipt found no copy of it."""
    return any(cell.name in set(bad) and cell.state == "missing" for cell in (receipt.cells if receipt else ()))


def _given(plan: Plan, options: ApproveOptions) -> bool:
    """Whether the command line is already the person's approval."""
    if options.receipt is not None:
        return True
    if sys.stdin.isatty():
        return False
    reasons = set(options.explained) | set(options.unclaimed)
    explained = {name for name, verdict in _ways(plan) if verdict == "nothing-launched"} & reasons
    return {name for name, _ in _ways(plan)} <= set(options.abandon) | explained


def _ways(plan: Plan) -> list[tuple[str, str | None]]:
    return [(sight.box.name, verdict.way) for sight, verdict in plan.asked]


def _ask(plan: Plan, options: ApproveOptions, target: Target) -> None:
    """Asks at the terminal. Raises No if there is no terminal, or if the answer is another one."""
    names = [sight.box.name for sight, _ in plan.asked]
    if not sys.stdin.isatty():
        raise No("there is no terminal to ask at: " + _instead(plan), [_command(plan, target)])
    what = "stopped" if options.verb == STOP else "destroyed"
    expected, prompt = "yes", f"let {', '.join(names)} be {what}? Type yes to go on: "
    if plan.abandoned:
        expected = plan.abandoned[0].box.name
        prompt = f"its data may be lost for good. Type the box's name to go on ({expected}): "
    if answer(prompt).lower() != expected:
        raise No("not approved; nothing was written", [f"sweepctl approve --stack {target.stack}"])


def _instead(plan: Plan) -> str:
    if plan.approval.receipt is not None:
        return "to approve, give the receipt's whole digest"
    return "to approve, name each box with a reason"


def _command(plan: Plan, target: Target) -> str:
    """The command that approves without a terminal."""
    command = f"sweepctl approve --stack {target.stack}"
    if any(action.verb == STOP for action in plan.approval.actions):
        command += f" --verb {STOP}"
    if plan.approval.receipt is not None:
        command += f" --receipt {plan.approval.receipt}"
        command += "".join(f" --box {name}" for name, _ in _ways(plan))
        command += "".join(f' --waive {entry.cell} --reason "{entry.reason}"' for entry in plan.approval.waive)
        unclaimed = plan.approval.unclaimed
        return command + "".join(f' --waive-unclaimed {entry.box} --reason "{entry.reason}"' for entry in unclaimed)
    return command + "".join(f' --abandon {name} --reason "nothing was launched"' for name, _ in _ways(plan))
