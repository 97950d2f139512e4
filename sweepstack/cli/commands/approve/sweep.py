"""`sweepctl approve`: a person's word, for one receipt and named boxes, written into the stack file.

Naming the whole digest of the receipt is that word; so is typing `yes` when asked. There is no `--yes`.
What is written would be taken: the same check that a delete asks says so before.
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


def approve(target: Target, words: ApproveOptions, out: Out) -> int:
    """Exit 0 when the approval is in the stack file, 1 when it was refused or not given."""
    there = target.file.path.exists()
    if not there and (not words.abandon or words.receipt or words.waive or words.boxes or words.verb == STOP):
        raise No(
            f"an approval is written into {target.file.shown}, which is not here: run this where the stack file is. "
            "Only a box that is given up needs no stack file",
            [f'sweepctl approve --stack {target.stack} --abandon BOX --reason "…"    (what is on it may be lost)'],
        )
    sources = open_sources(target)
    # Abandoning needs no evidence: that it can't be read may be the very reason.
    store = sources.store if words.abandon and not words.receipt else usable(sources)
    with Progress("looking"):
        scene = with_forgotten(look(sources), store)
    free = _free(words, scene)
    words = replace(words, boxes=tuple(name for name in words.boxes if name not in free))
    if free and not (words.boxes or words.abandon):
        following = [f"{stop_hint(free)}, then pulumi up --stack {target.stack}"]
        out.document({"approved": [], "free": free, "file": target.file.shown, "next": following})
        out.line(f"a stop of {', '.join(free)} kills nothing that is nowhere else: it needs no approval")
        out.next(following)
        return YES
    plan = prepare(target, words, scene, store)
    if plan is None:
        out.document({"approved": [], "file": target.file.shown, "next": [f"pulumi up --stack {target.stack}"]})
        out.line("every box named is gone already: nothing to approve")
        out.next([f"pulumi up --stack {target.stack}", f"pulumi destroy --stack {target.stack}"])
        return YES
    show(plan, scene, target, out)
    if not _given(plan, words):
        _ask(plan, words, target)
    where, problems = put_on_record(plan, target, scene, store)
    following = what_next(plan, target, words, scene, store)
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


def prepare(target: Target, words: ApproveOptions, scene: Scene, store: EvidenceStore | None) -> Plan | None:
    """The approval that would be written, checked. None when all named boxes are gone. Raises No with every reason."""
    named, gone = _boxes(words, scene)
    if not named:
        return None
    _known_cells(target, words, scene)
    digest, receipt = _receipt(target, words, scene, store, named)
    now = given_at(store, datetime.now(UTC), [sight.box.native_id for sight in named])
    approval = build(words, receipt=digest, sights=named, waive=words.waive, expires=now + words.expires, now=now)
    risks: dict[str, AtRisk] = {}
    asked = [(sight, _verdict(sight, approval, words.verb, risks)) for sight in named]
    refused = [(sight, verdict) for sight, verdict in asked if not verdict.allowed]
    if refused:
        raise _refusal(target, words, refused, receipt, digest)
    if any(verdict.way == "cleared" for _, verdict in asked):
        _same_roster(target, receipt)
    elif all(verdict.way in ("abandoned", "nothing-launched") for _, verdict in asked) and not words.receipt:
        approval = approval.model_copy(update={"receipt": None})
    merged, kept = merge(approval, approval_of(target), scene, {sight.box.name for sight in named})
    return Plan(merged, asked, kept, gone, risks, dying(store, named, words.verb))


def _free(words: ApproveOptions, scene: Scene) -> list[str]:
    """Boxes that may be stopped as they are: nothing needs a word."""
    if words.verb != STOP:
        return []
    named, _ = _boxes(words, scene)
    return [sight.box.name for sight in named if _verdict(sight, None, STOP, {}).way == "nothing-at-risk"]


def _verdict(sight: Sight, approval: Approval | None, verb: str, risks: dict[str, AtRisk]) -> Verdict:
    """What the verb's own check says of the box by this approval."""
    facts = sight.box.facts(verb)
    if verb != STOP:
        return may_end(facts, approval, sight.seen, full=False, given_now=True)
    pause = judge_stop(sight.box.adapter, facts, sight.box.teardown.paths, approval, full=False)
    risks[sight.box.name] = pause.risk
    return pause.verdict


def _boxes(words: ApproveOptions, scene: Scene) -> tuple[list[Sight], list[str]]:
    """The boxes that are asked for, without those that are proved gone."""
    if not scene.sights:
        raise No(f"there is no box in the state of {scene.state.stack}: nothing to approve")
    by_name = {sight.box.name: sight for sight in scene.sights}
    for name in (*words.boxes, *words.abandon, *words.unclaimed):
        if name not in by_name:
            there = f"there is no box {name} in the state (there: {', '.join(by_name)}){did_you_mean(name, by_name)}"
            raise No(there, [f"sweepctl status --stack {scene.state.stack}"])
    if words.boxes:
        wanted = set(words.boxes) | set(words.abandon) | set(words.unclaimed)
    elif words.abandon and not words.receipt:
        wanted = set(words.abandon)
    else:
        wanted = set(by_name)
    sights = [sight for sight in scene.sights if sight.box.name in wanted]
    return [sight for sight in sights if not sight.gone], [sight.box.name for sight in sights if sight.gone]


def _known_cells(target: Target, words: ApproveOptions, scene: Scene) -> None:
    unnamed = set(_unnamed(scene.sights, scene.receipt))
    known = {cell.name for cell in scene.roster} | unnamed
    for name in words.waive:
        if name in scene.dropped and name not in unnamed:
            raise No(f"{name} is dropped: it needs no waiver")
        if name not in known:
            raise target.no_cell(name, sorted(known))


def _unnamed(sights: Iterable[Sight], receipt: Receipt | None) -> list[str]:
    """Cells that ran on these boxes by their own journals, and that nothing else here has heard of."""
    known = {cell.name for cell in receipt.cells} if receipt else set()
    return [name for sight in sights for name in unnamed_cells(sight.seen.journal, sight.launch, known)]


def _receipt(
    target: Target, words: ApproveOptions, scene: Scene, store: EvidenceStore | None, named: Sequence[Sight]
) -> tuple[str | None, Receipt | None]:
    """The receipt that was named; else the latest, where one of the boxes needs one."""
    again = first_hung(target.stack, named) or [f"sweepctl verify --stack {target.stack}"]
    digest = words.receipt
    if digest is not None:
        if not DIGEST.fullmatch(digest):
            latest = f" The latest is {scene.receipt_digest}." if scene.receipt_digest else ""
            raise No(f"{digest} is not a whole digest (sha256: and 64 hex digits).{latest}", again)
    else:
        # A box on which nothing was launched, and one that is abandoned, need none.
        if all(sight.box.name in words.abandon or sight.launch is None for sight in named) and not words.waive:
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
    words: ApproveOptions,
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
            reason=words.abandon[sight.box.name],
            verb=words.verb,
        )
        for sight in sights
        if sight.box.name in words.abandon
    )
    unclaimed = tuple(
        _unclaimed(sight, words.unclaimed[sight.box.name])
        for sight in sights
        if sight.box.name in words.unclaimed and sight.verdict.unclaimed
    )
    return Approval(
        receipt=receipt,
        actions=tuple(Action(verb=words.verb, box=sight.box.name, native_id=sight.box.native_id) for sight in sights),
        waive=waivers,
        abandon=abandoned,
        unclaimed=unclaimed,
        waivers_digest=Approval.digest_waivers(waivers, abandoned, unclaimed),
        by=who(),
        at=now,
        expires=expires,
    )


def _unclaimed(sight: Sight, reason: str) -> UnclaimedWaiver:
    """Exactly what is seen now: anything else is not what the person was shown."""
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
    """Takes in what an earlier approval says of other boxes, as far as it still holds for the same receipt."""
    if earlier is None or (approval.receipt and earlier.receipt and approval.receipt != earlier.receipt):
        return approval, []
    verbs = {action.native_id: action.verb for action in earlier.actions if action.box not in asked}
    candidates = [sight for sight in scene.sights if sight.box.native_id in verbs and not sight.gone]

    def by(word: Approval, sight: Sight) -> Verdict:
        return may_end(sight.box.facts(verbs[sight.box.native_id]), word, sight.seen, full=False)

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
    """The next `up` brings the stack file's roster in; a receipt for another one would be locked again at once."""
    written, _ = file_roster(target.file)
    if written is not None and receipt is not None and written.digest != receipt.roster_digest:
        raise No(
            f"{target.file.shown} has other cells than the receipt: `pulumi up` would lock the boxes again",
            [f"pulumi up --stack {target.stack} && sweepctl finish --stack {target.stack}"],
        )


def _refusal(
    target: Target,
    words: ApproveOptions,
    refused: list[tuple[Sight, Verdict]],
    receipt: Receipt | None,
    digest: str | None,
) -> No:
    """Why, and the one command that leads out: with all that was given already, and all that is missing."""
    stack = target.stack
    lines = ["not approved; nothing was written"]
    for sight, verdict in refused:
        lines.append(f"  box {sight.box.name} ({sight.box.native_id}): {'; '.join(verdict.reasons)}")
    if elsewhere := [sight.seen.account_problem for sight, _ in refused if sight.seen.account_problem]:
        return No("\n".join(lines), of_another_account(stack, elsewhere))
    bad = [*_bad_cells(receipt, refused), *_unnamed((sight for sight, _ in refused), receipt)]
    # One that can't be read is not waited for: that would not end.
    heard = [verdict for _, verdict in refused if not verdict.silent]
    running = any(line.state in ("running", "pending") for verdict in heard for line in verdict.unsettled)
    following = [f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"]
    if running:
        following = [f"sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack}"]
    following = first_hung(stack, [sight for sight, _ in refused]) or following
    if all(sight.launch is None and sight.journal and v.launched is None for sight, v in refused):
        following = []  # the records of what ran are lost, and no pull brings them back
    held = [sight.box.name for sight, verdict in refused if verdict.held_by_unclaimed]
    if not running and digest and (bad or held):
        given = [f"--box {name}" for name in words.boxes]
        given += [f"--waive {name}" for name in sorted({*words.waive, *bad})]
        given += [f"--waive-unclaimed {name}" for name in sorted({*words.unclaimed, *held})]
        given += [f"--abandon {name}" for name in sorted(words.abandon)]
        what = " and ".join(["what is bad may be missing"] * bool(bad) + ["the unclaimed bytes may die"] * bool(held))
        following = [f'sweepctl approve --stack {stack} --receipt {digest} {" ".join(given)} --reason "…"    ({what})']
        again = f"sweepctl pull --stack {stack} && sweepctl verify --stack {stack}"
        if _not_pulled(receipt, bad):  # nothing is bad yet
            following = [f"{again}    (what is missing was not pulled)", *following]
        elif bad:
            following += [f"{again}    (where a copy is bad)"]
    elif held:
        given = [f"--waive-unclaimed {name}" for name in held]
        word = f'sweepctl approve --stack {stack} {" ".join(given)} --reason "…"    (the unclaimed bytes may die)'
        following = [word, *following] if len(held) < len(refused) else [word]
    named = " ".join(f"--abandon {name}" for name in sorted({*words.abandon, *(s.box.name for s, _ in refused)}))
    following.append(f'sweepctl approve --stack {stack} {named} --reason "…"    (to give up what is on it)')
    return No("\n".join(lines), following)


def _bad_cells(receipt: Receipt | None, refused: list[tuple[Sight, Verdict]]) -> list[str]:
    if receipt is None:
        return []
    said = " ".join(reason for _, verdict in refused for reason in verdict.reasons)
    return [cell.name for cell in receipt.cells if cell.state != "verified" and f"{cell.name} is {cell.state}" in said]


def _not_pulled(receipt: Receipt | None, bad: Iterable[str]) -> bool:
    """Whether one of these cells is sealed on its box and the receipt found no copy of it here."""
    return any(cell.name in set(bad) and cell.state == "missing" for cell in (receipt.cells if receipt else ()))


def _given(plan: Plan, words: ApproveOptions) -> bool:
    """Whether the command line is the person's word already."""
    if words.receipt is not None:
        return True
    if sys.stdin.isatty():
        return False
    reasons = set(words.explained) | set(words.unclaimed)
    explained = {name for name, verdict in _ways(plan) if verdict == "nothing-launched"} & reasons
    return {name for name, _ in _ways(plan)} <= set(words.abandon) | explained


def _ways(plan: Plan) -> list[tuple[str, str | None]]:
    return [(sight.box.name, verdict.way) for sight, verdict in plan.asked]


def _ask(plan: Plan, words: ApproveOptions, target: Target) -> None:
    """Asks at the terminal. Raises No when there is none, or the answer is not the one."""
    names = [sight.box.name for sight, _ in plan.asked]
    if not sys.stdin.isatty():
        raise No("there is no terminal to ask at: " + _instead(plan), [_command(plan, target)])
    what = "stopped" if words.verb == STOP else "destroyed"
    expected, prompt = "yes", f"let {', '.join(names)} be {what}? Type yes to go on: "
    if plan.abandoned:
        expected = plan.abandoned[0].box.name
        prompt = f"what is on it may be lost for good. Go on? Type the box's name to go on ({expected}): "
    if answer(prompt).lower() != expected:
        raise No("not approved; nothing was written", [f"sweepctl approve --stack {target.stack}"])


def _instead(plan: Plan) -> str:
    if plan.approval.receipt is not None:
        return "name the receipt's whole digest: that is your approval"
    return "name each box with a reason: that is your approval"


def _command(plan: Plan, target: Target) -> str:
    """What to type where there is no terminal."""
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
