"""`sweepctl approve` for a stack of volumes: shows what is on each, and asks for approval to end it.

It reads from every stack of this backend which sweeps mounted the volumes. What it shows is stored by its digest, and
the approval names that digest.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

from sweepstack.billing.volume_cost import cost_words
from sweepstack.cli.accepted_facts import Relied, relied
from sweepstack.cli.commands.approve.options import ApproveOptions
from sweepstack.cli.commands.approve.preview import show_signing
from sweepstack.cli.output import YES, No, Out, Unsure
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer
from sweepstack.cli.sources import Sources, open_sources
from sweepstack.cli.target import Target, approval_of
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.project import project_name
from sweepstack.core.records import Abandonment, Action, Approval
from sweepstack.core.signature import SweepName
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.operations.observe_volume import observe_volume
from sweepstack.operations.volumes.end_check import VolumeContext, VolumeEnding, VolumeFacts, VolumeVerdict
from sweepstack.operations.volumes.inventory import take_inventory
from sweepstack.operations.volumes.records import VERB, Inventory, write_inventory
from sweepstack.operations.volumes.users import Survey, survey
from sweepstack.teardown.approval import Given
from sweepstack.teardown.check import may_end
from sweepstack.teardown.ownership import who
from sweepstack.teardown.refusal import revoked_again
from sweepstack.teardown.revocation import WRITTEN_AGAIN, given_at
from sweepstack.teardown.signatures import signed_words


@dataclass(frozen=True)
class Asked:
    """One volume asked for, and the answer of the end check for the approval that would be written."""

    facts: VolumeFacts
    verdict: VolumeVerdict


def approve_store(target: Target, options: ApproveOptions, out: Out) -> int:
    """Exit 0 if the approval is in the stack file; raises No if it was refused or not given."""
    if options.waive or options.unclaimed or options.verb != "destroy":
        raise Unsure(
            "a volume has no cells: --waive, --waive-unclaimed and --verb are for sweeps. A cell of one that used it "
            "is waived there (sweepctl approve --stack SWEEP --waive CELL); a volume is given up by --abandon NAME"
        )
    sources = open_sources(target)
    volumes = _chosen(sources, options)
    facts = [volume.facts for volume in volumes]
    with Progress("reading from every stack which sweeps mounted them"):
        found = survey(target.root, sources.store, [one.native_id for one in facts], but=target.stack)
    identity = sources.state.identity.identity if sources.state.identity else facts[0].identity
    inventory = take_inventory(identity, facts, found, _approvals(target))
    digest = _kept(sources, inventory, options, facts)
    approval = _build(options, facts, digest, given_at(sources.store, datetime.now(UTC)))
    with Progress("checking"):
        asked = [ask_check(volume, approval, found) for volume in volumes]
    asked = [one for one in asked if one.verdict.way != "gone"]
    if not asked:
        out.document({"approved": [], "file": target.file.shown, "next": [f"pulumi up --stack {target.stack}"]})
        out.line("every volume named is gone already: nothing to approve")
        out.next([f"pulumi up --stack {target.stack}"])
        return YES
    show_volumes(asked, inventory, digest, out)
    refused = [one for one in asked if not one.verdict.allowed]
    if refused:
        raise _refusal(target, refused)
    if options.receipt is not None and options.receipt != digest:
        raise No(
            f"what is on them has changed since {options.receipt} was shown",
            [f"sweepctl approve --stack {target.stack}"],
        )
    old_facts = volume_facts_relied_on(target, options, volumes)
    old_facts.show(out)
    show_signing(options.signer, approval_of(target), out)
    if options.receipt is None:
        _ask(asked, digest, options, target)
    if options.signer is not None:
        approval = options.signer.sign(approval, sweep_of_volumes(target, facts[0]))
    old_facts.write(target)
    target.file.write_approval(approval)
    following = [
        f"pulumi up --stack {target.stack}    (clears the volumes)",
        f"pulumi destroy --stack {target.stack}    (or volumes.NAME.want: gone, for one of them)",
    ]
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "approval": approval.model_dump(mode="json"),
            "approved": [one.facts.name for one in asked],
            "accepted_facts": list(old_facts.given),
            "next": following,
        }
    )
    if approval.signatures:
        out.line(signed_words(approval))
    out.line(f"written to {target.file.shown}; it holds until {approval.expires:%Y-%m-%d %H:%M} UTC")
    out.next(following)
    return YES


def sweep_of_volumes(target: Target, facts: VolumeFacts) -> SweepName:
    """The stack of volumes that a signature is for."""
    return SweepName(project=project_name(target.root), stack=target.stack.split("/")[-1], identity=facts.identity)


def volume_facts_relied_on(
    target: Target, options: ApproveOptions, volumes: Sequence[VolumeContext], command: str = ""
) -> Relied:
    """The old facts that the end of these volumes relies on. Raises No if one is not accepted. An abandonment relies on
    none."""
    whose = [(None, volume.adapter) for volume in volumes if volume.facts.name not in options.abandon]
    return relied(target, whose, "volume", options.accept_facts, command or options.spelled(target.stack))


def _chosen(sources: Sources, options: ApproveOptions) -> list[VolumeContext]:
    """The volumes asked for: those named, else all."""
    kept = {entry.name: entry for entry in sources.state.volumes if entry.guarded}
    if not kept:
        raise No(f"there is no volume in the state of {sources.state.stack}: nothing to approve")
    for name in (*options.boxes, *options.abandon):
        if name not in kept:
            raise No(
                f"there is no volume {name} in the state (there: {', '.join(kept)}){did_you_mean(name, kept)}",
                [f"sweepctl status --stack {sources.target.stack}"],
            )
    wanted = {*options.boxes, *options.abandon} or set(kept)
    return [VolumeContext.of(entry) for name, entry in kept.items() if name in wanted]


def _approvals(target: Target) -> dict[str, Approval]:
    """The approvals in the stack files of sweeps, as far as the files can be read."""
    said: dict[str, Approval] = {}
    for name in StackFile.stacks(target.root):
        try:
            approval = StackFile.locate(target.root, name).approval()
        except ConfigError:
            continue
        if approval is not None:
            said[name] = approval
    return said


def _kept(
    sources: Sources, inventory: Inventory, options: ApproveOptions, volumes: Sequence[VolumeFacts]
) -> str | None:
    """Stores the inventory that is shown. Its digest; None if all volumes are given up and there is no evidence."""
    store: EvidenceStore | None = sources.store
    if store is not None:
        return write_inventory(store, inventory)
    if {facts.name for facts in volumes} <= set(options.abandon):
        return None
    raise Unsure(
        f"the inventory to approve can't be stored: {sources.problem or 'the evidence of this stack is not known'}"
    )


def _build(options: ApproveOptions, volumes: Sequence[VolumeFacts], digest: str | None, now: datetime) -> Approval:
    abandon = tuple(
        Abandonment(box=facts.name, native_id=facts.native_id, reason=options.abandon[facts.name], verb=VERB)
        for facts in volumes
        if facts.name in options.abandon
    )
    return Approval(
        receipt=digest,
        actions=tuple(Action(verb=VERB, box=facts.name, native_id=facts.native_id) for facts in volumes),
        abandon=abandon,
        waivers_digest=Approval.digest_waivers((), abandon),
        by=who(),
        at=now,
        expires=now + options.expires,
    )


def ask_check(volume: VolumeContext, approval: Approval, found: Survey, given: Given = "now") -> Asked:
    seen, _ = observe_volume(volume, found.of(volume.facts.native_id))
    return Asked(volume.facts, may_end(VolumeEnding(volume, approval, seen, found, given=given), full=False))


def show_volumes(asked: Sequence[Asked], inventory: Inventory, digest: str | None, out: Out) -> None:
    """Prints what is on each volume by the records, which receipts prove that copies exist elsewhere, and the cost."""
    out.line(f"inventory  {digest or 'none: it could not be stored'}", style="bold")
    rows = []
    for one in asked:
        size = f"{one.facts.size_gb} GB" if one.facts.size_gb else "-"
        cost = cost_words(one.facts.price_per_month, one.facts.keep_until, today=date.today())
        rows.append(
            (one.facts.name, one.facts.native_id, size, str(one.verdict.way or "locked"), one.facts.where, cost)
        )
    out.table(("VOLUME", "ID", "SIZE", "WAY", "WHERE", "COST"), rows)
    for one in asked:
        uses = inventory.volumes.get(one.facts.native_id, ())
        if not uses:
            out.line(f"on it      {one.facts.name}: no sweep on record ever mounted it")
        for use in uses:
            waived = f", {len(use.waived)} waived" if use.waived else ""
            safe = f"{use.verified} of {use.total} verified{waived}, {use.receipt}" if use.receipt else "no receipt"
            out.line(f"on it      {one.facts.name}: {use.stack} ({use.identity}): {safe}")
        if one.verdict.way == "abandoned":
            out.line(f"ABANDONED  {one.facts.name}: what is on it may be lost", style="bold red")
    for words in dict.fromkeys(words for one in asked for words in one.verdict.unsigned):
        out.line(f"unsigned   {words}; it counts once they signed it", style="yellow")


def _refusal(target: Target, refused: Sequence[Asked]) -> No:
    stack = target.stack
    lines = ["not approved; nothing was written"]
    lines += [f"  volume {one.facts.name}: {reason}" for one in refused for reason in one.verdict.reasons]
    users = dict.fromkeys(user.stack for one in refused for user in one.verdict.users)
    following = [f"sweepctl finish --stack {user}    (pull, verify, approve, up, destroy)" for user in list(users)[:3]]
    if any(WRITTEN_AGAIN in reason for one in refused for reason in one.verdict.reasons):
        following = [revoked_again(stack)]
    name = refused[0].facts.name
    following.append(f'sweepctl approve --stack {stack} --abandon {name} --reason "…"    (what is on it may be lost)')
    return No("\n".join(lines), following)


def _ask(asked: Sequence[Asked], digest: str | None, options: ApproveOptions, target: Target) -> None:
    """Asks at the terminal. Raises No if there is no terminal, or if the answer is another one."""
    names = [one.facts.name for one in asked]
    given_up = [one.facts.name for one in asked if one.verdict.way == "abandoned"]
    if not sys.stdin.isatty():
        if set(names) <= set(given_up):
            return
        command = f"sweepctl approve --stack {target.stack} --receipt {digest}"
        command += options.signing + "".join(f" --accept-fact {name}" for name in options.accept_facts)
        command += "".join(f" --box {name}" for name in names if name not in given_up)
        command += "".join(f' --abandon {name} --reason "{options.abandon[name]}"' for name in given_up)
        raise No(
            "there is no terminal to ask at: to approve, give the whole digest of what was shown",
            [command],
        )
    expected = given_up[0] if given_up else "yes"
    counts = f"the volume's name to go on ({expected})" if given_up else "yes to go on"
    prompt = (
        f"let {', '.join(names)} be deleted with all that is on {'it' if len(names) == 1 else 'them'}? Type {counts}: "
    )
    if answer(prompt).lower() != expected:
        raise No("not approved; nothing was written", [f"sweepctl approve --stack {target.stack}"])
