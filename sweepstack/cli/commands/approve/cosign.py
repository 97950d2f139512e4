"""`sweepctl approve --cosign`: one more person signs the approval that stands in the stack file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from sweepstack.cli.accepted_facts import Relied
from sweepstack.cli.collect import take_snapshot
from sweepstack.cli.commands.approve.preview import Plan, dying, show
from sweepstack.cli.commands.approve.sign import Signer
from sweepstack.cli.commands.approve.store import ask_check, show_volumes, sweep_of_volumes
from sweepstack.cli.commands.approve.sweep import put_on_record, sweep_of_boxes, verdict_of
from sweepstack.cli.forgotten_boxes import with_forgotten
from sweepstack.cli.output import YES, No, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.cli.sources import open_sources, usable
from sweepstack.cli.target import Target
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.operations.volumes.end_check import VolumeContext
from sweepstack.operations.volumes.records import read_inventory
from sweepstack.operations.volumes.users import survey
from sweepstack.status.snapshot import Snapshot
from sweepstack.teardown.revocation import approval_digest
from sweepstack.teardown.signatures import signed_words, verified_signers
from sweepstack.teardown.stop_check import AtRisk


def cosign_sweep(target: Target, signer: Signer, digest: str | None, out: Out) -> int:
    """Exit 0 if the signature is in the stack file. Raises No if it was refused or not given.

    `digest`: of the approval as it stands, which is the person's yes; None: asks at the terminal.
    """
    approval = _standing(target, signer)
    sources = open_sources(target)
    store = sources.store if approval.abandon and approval.receipt is None else usable(sources, "approve")
    with Progress("looking"):
        snapshot = with_forgotten(take_snapshot(sources), store, [entry.box for entry in approval.abandon])
    plan = _plan(target, approval, snapshot, store)
    show(plan, snapshot, target, out)
    _show_approval(approval, sweep_of_boxes(target, plan, store), signer, out)
    refused = [f"box {one.box.name}: {'; '.join(why.reasons)}" for one, why in plan.asked if not why.allowed]
    if refused:
        raise _refusal(target, refused)
    names = [one.box.name for one, _ in plan.asked]
    _ask(target, approval, signer, digest, names, [one.box.name for one in plan.abandoned])
    plan.approval = signer.sign(approval, sweep_of_boxes(target, plan, store))
    _require_unchanged(target, approval)
    where, problems = put_on_record(plan, Relied(), target, snapshot, store)
    return _done(target, plan.approval, names, where, problems, out)


def cosign_store(target: Target, signer: Signer, digest: str | None, out: Out) -> int:
    """The same for a stack of volumes."""
    approval = _standing(target, signer)
    sources = open_sources(target)
    named = {action.native_id for action in approval.actions}
    volumes = [VolumeContext.of(one) for one in sources.state.volumes if one.guarded and one.native_id in named]
    if not volumes:
        raise No("no volume that this approval names is in the state: there is nothing to sign")
    with Progress("reading from every stack which sweeps mounted them"):
        found = survey(target.root, sources.store, [one.facts.native_id for one in volumes], but=target.stack)
    asked = [ask_check(volume, approval, found, "cosigned") for volume in volumes]
    asked = [one for one in asked if one.verdict.way != "gone"]
    if not asked:
        raise No("every volume that this approval names is gone already: there is nothing to sign")
    if approval.receipt is not None:
        shown = read_inventory(usable(sources, "approve"), approval.receipt)
        show_volumes(asked, shown, approval.receipt, out)
    for entry in approval.abandon:
        out.line(f"given up   {entry.box}: {entry.reason}", style="yellow")
    sweep = sweep_of_volumes(target, volumes[0].facts)
    _show_approval(approval, sweep, signer, out)
    refused = [f"volume {one.facts.name}: {'; '.join(one.verdict.reasons)}" for one in asked if not one.verdict.allowed]
    if refused:
        raise _refusal(target, refused)
    names = [one.facts.name for one in asked]
    _ask(target, approval, signer, digest, names, [one.facts.name for one in asked if one.verdict.way == "abandoned"])
    stood, approval = approval, signer.sign(approval, sweep)
    _require_unchanged(target, stood)
    target.file.write_approval(approval)
    return _done(target, approval, names, [target.file.shown], [], out)


def _standing(target: Target, signer: Signer) -> Approval:
    """The approval that stands in the stack file. Raises No if there is none, ConfigError if it can't be read."""
    approval = target.file.approval() if target.file.path.exists() else None
    if approval is None:
        raise No(
            f"there is no approval in {target.file.shown} to sign: the first person writes it",
            [f"sweepctl approve --stack {target.stack} --sign"],
        )
    if any(signature.principal == signer.name for signature in approval.signatures):
        raise No(
            f"not signed: {signer.name} has signed this approval already, and a second signature is another person's. "
            "Is that you? Then --signer NAME names you"
        )
    return approval


def _require_unchanged(target: Target, shown: Approval) -> None:
    """Raises No if the file has another approval by now than the one that was shown: a person may take minutes to say
    yes, and another one may have signed, approved anew or revoked since then."""
    now = target.file.approval() if target.file.path.exists() else None
    if now != shown:
        how = "was taken out of" if now is None else "was changed in"
        raise No(
            f"not signed; nothing was written: the approval {how} {target.file.shown} while you looked at it",
            [f"sweepctl approve --stack {target.stack} --cosign    (shows it as it stands now)"],
        )


def _plan(target: Target, approval: Approval, snapshot: Snapshot, store: EvidenceStore | None) -> Plan:
    """The approval with what the check says of each of its boxes. Raises No if none of them is there."""
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
    lost = {name: words for one in there for name, words in dying(store, [one], verbs[one.box.native_id]).items()}
    return Plan(approval, asked, [], [one.box.name for one in boxes if one.gone], risks, lost)


def _show_approval(approval: Approval, sweep: SweepName, signer: Signer, out: Out) -> None:
    """Prints what the screen of `approve` does not have: who gave it, until when, who signed, and the digest."""
    for entry in approval.abandon:
        out.line(f"given up  {entry.box} ({entry.verb}): {entry.reason}", style="yellow")
    out.line(f"given     by {approval.by} at {approval.at:%Y-%m-%d %H:%M} UTC, until {approval.expires:%Y-%m-%d %H:%M}")
    found = verified_signers(approval, sweep, None, at=datetime.now(UTC))
    for who, key in found.valid.items():
        out.line(f"signed    by {who}: it verifies, with the key {key}")
    for problem in found.problems:
        out.line(f"signed    {problem}", style="bold red")
    if not approval.signatures:
        out.line("signed    by none so far")
    out.line(f"signing   as {signer.name}, after your yes, with {signer.key}")
    out.line(f"approval {approval_digest(approval)}")


def _refusal(target: Target, reasons: Sequence[str]) -> No:
    lines = [
        "not signed; nothing was written: the approval as it stands ends nothing",
        *(f"  {one}" for one in reasons),
    ]
    return No("\n".join(lines), [f"sweepctl approve --stack {target.stack} --sign    (a new one, then signed again)"])


def _ask(
    target: Target,
    approval: Approval,
    signer: Signer,
    digest: str | None,
    names: Sequence[str],
    given_up: Sequence[str],
) -> None:
    """The person's yes. Raises No if it is not given, or if `digest` is not this approval's."""
    stands = approval_digest(approval)
    again = f"sweepctl approve --stack {target.stack} {signer.options} --approval {stands}"
    if digest is not None:
        if digest != stands:
            raise No(
                f"not signed: {digest} is not the approval that stands in {target.file.shown}. Look at it first",
                [again],
            )
        return
    if not sys.stdin.isatty():
        raise No(
            "there is no terminal to ask at: to sign, give the whole digest of the approval that is shown", [again]
        )
    expected = given_up[0] if given_up else "yes"
    counts = f"the name to go on ({expected})" if given_up else "yes to go on"
    losing = ", with what is on it lost for good" if given_up else ""
    if answer(f"sign that {', '.join(names)} may be ended{losing}? Type {counts}: ").lower() != expected:
        raise No("not signed; nothing was written")


def _done(
    target: Target, approval: Approval, names: Sequence[str], where: Sequence[str], problems: Sequence[str], out: Out
) -> int:
    following = [
        f"pulumi up --stack {target.stack}    (with this stack file)",
        f"pulumi destroy --stack {target.stack}",
    ]
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "approval": approval.model_dump(mode="json"),
            "approved": list(names),
            "recorded": list(where),
            "problems": list(problems),
            "next": following,
        }
    )
    for problem in problems:
        out.line(f"note      not recorded there: {problem}", style="yellow")
    out.line(signed_words(approval))
    out.line(f"written to {', '.join(where)}; it holds until {approval.expires:%Y-%m-%d %H:%M} UTC")
    out.next(following)
    return YES
